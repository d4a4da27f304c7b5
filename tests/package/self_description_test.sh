#!/bin/bash
# Every command and option that --help lists is in the manual page and is completed by bash, and
# the page has nothing that man warns of.
# Usage: self_description_test.sh PEAL
set -u
peal=$1
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
failed=0
fail() {
  printf '%s\n' "$*" >&2
  failed=1
}

"$peal" man >"$scratch/peal.1" || fail "peal man failed"
"$peal" completion bash >"$scratch/completion" || fail "peal completion bash failed"
# shellcheck disable=SC1091
source "$scratch/completion" || exit 1

# completed WORD...: what the last, begun word of a command line can become.
completed() {
  COMP_WORDS=("$@")
  COMP_CWORD=$(($# - 1))
  COMPREPLY=()
  _peal
  printf '%s\n' "${COMPREPLY[@]}"
}

# The page's section of a command, as plain text.
section_of() {
  awk -v heading=".SS ${*//-/\\\\-}" '/^\.S[HS]/ {in_it = $0 == heading} in_it' "$scratch/peal.1" |
    sed -e 's/\\f[BP]//g' -e 's/\\-/-/g'
}

commands=0
options=0
# check COMMAND...: it, and what is below it.
check() {
  local help name names section below completions
  commands=$((commands + 1))
  help=$("$peal" "${@:2}" --help) || fail "$*: --help failed"
  if [ $# -eq 1 ]; then
    section=$(sed -e 's/\\f[BP]//g' -e 's/\\-/-/g' "$scratch/peal.1")
  else
    section=$(section_of "$@")
  fi
  [ -n "$section" ] || fail "the page has no section on $*"
  # The names at the start of a line: "  -s,--size TEXT".
  mapfile -t names < <(grep -oE '^  +-[-A-Za-z0-9,]+' <<<"$help" | tr -d ' ' | tr , '\n')
  [ "${#names[@]}" -ge 2 ] || fail "$*: --help lists no option"
  completions=" $(completed "$@" - | paste -sd ' ') "
  for name in "${names[@]}"; do
    options=$((options + 1))
    [[ $completions == *" $name "* ]] || fail "$*: bash does not complete $name"
    [[ $section =~ $'\n'(-.', ')?"$name"(','|' VALUE')?$'\n' || $section =~ $'\n'"$name, " ]] ||
      fail "$*: the page lacks $name"
  done
  mapfile -t below < <(sed -n '/^Subcommands:/,/^[^ S]/s/^  \([a-z-]*\) .*/\1/p' <<<"$help")
  completions=" $(completed "$@" "" | paste -sd ' ') "
  for name in "${below[@]}"; do
    [[ $completions == *" $name "* ]] || fail "$*: bash does not complete $name"
    check "$@" "$name"
  done
}
check peal
[[ $commands -ge 10 && $options -ge 100 ]] ||
  fail "--help was not understood: $commands commands, $options options"

expect() {
  local wanted=$1 got
  shift
  got=$(completed "$@" | paste -sd ' ')
  [ "$got" = "$wanted" ] || fail "completing '$*' gave '$got', not '$wanted'"
}
expect "--once" peal server --on
expect "decode" peal dec
expect "wqe cqe packet -h --help" peal decode ""
expect "" peal ladder --json ""            # a file, by bash itself
expect "--json" peal ladder --counters --js
expect "--json" peal ladder --stages decode --js  # a value is no command

if command -v man >/dev/null; then
  warnings=$(LC_ALL=C.UTF-8 MANROFFSEQ='' MANWIDTH=80 man --warnings -E UTF-8 -l -Tutf8 -Z \
    "$scratch/peal.1" 2>&1 >/dev/null) || fail "man cannot show the page"
  [ -z "$warnings" ] || fail "man warns: $warnings"
else
  echo "no man here, so that nothing was asked of it"
fi

echo "$commands commands, $options options"
exit "$failed"
