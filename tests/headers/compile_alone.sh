#!/bin/bash
# Compiles every public header as the only include of a translation unit, so that each brings what
# it needs. Given nvcc, compiles those that device code may use, as C++17, in one unit.
# Usage: compile_alone.sh COMPILER [OPTION...]
set -u

if [ $# -lt 1 ]; then
  echo "usage: compile_alone.sh COMPILER [OPTION...]" >&2
  exit 2
fi
compiler=$1
shift

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT

# Host-only headers are C++20; GPU memory is written in what only nvcc knows.
is_for_device() {
  case $1 in
    peal/host/* | peal/memory/cpu_memory.hpp) return 1 ;;
    peal/core/* | peal/mlx5/* | peal/device/* | peal/memory/*) return 0 ;;
    *) return 1 ;;
  esac
}
is_for_host() {
  case $1 in
    peal/memory/gpu*) return 1 ;;
    *) return 0 ;;
  esac
}

mapfile -t headers < <(cd "$root/include" && find peal -name '*.hpp' | sort)
if [ "${#headers[@]}" -eq 0 ]; then
  echo "no header found under $root/include/peal" >&2
  exit 1
fi

compiled=0
failed=0
case $(basename "$compiler") in
  nvcc*)
    for header in "${headers[@]}"; do
      is_for_device "$header" || continue
      printf '#include "%s"\n' "$header" >>"$scratch/all.cu"
      compiled=$((compiled + 1))
    done
    "$compiler" -std=c++17 -x cu -arch=sm_90 -Werror all-warnings -I"$root/include" "$@" \
      -c "$scratch/all.cu" -o "$scratch/all.o" || failed=1
    ;;
  *)
    for header in "${headers[@]}"; do
      is_for_host "$header" || continue
      printf '#include "%s"\n' "$header" >"$scratch/one.cpp"
      compiled=$((compiled + 1))
      if ! "$compiler" -std=c++20 -fsyntax-only -Wall -Wextra -Werror -I"$root/include" "$@" \
        "$scratch/one.cpp"; then
        echo "does not compile alone: $header" >&2
        failed=$((failed + 1))
      fi
    done
    ;;
esac

echo "$compiled headers, $failed failures ($compiler)"
[ "$failed" -eq 0 ]
