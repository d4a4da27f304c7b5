#!/bin/sh
# What `peal server` and `peal client --link roce` move over 127.0.0.1, beside ucx_perftest's
# ucp_put_bw over TCP (Debian: ucx-utils), in turn, one core a process. Software on both sides.
# Usage: bench/roce_ucx.sh PEAL [SIZE...]
set -eu

peal=${1:?"usage: bench/roce_ucx.sh PEAL [SIZE...]"}
shift
[ $# -gt 0 ] || set -- 8 4096 65536
rounds=3
wait_s=120  # of any one run
command -v ucx_perftest > /dev/null || { echo "ucx_perftest is missing (Debian: ucx-utils)" >&2; exit 5; }
[ "$(nproc)" -ge 2 ] || { echo "two cores are needed, one a process" >&2; exit 5; }
export UCX_TLS=tcp,self UCX_LOG_LEVEL=error

folder=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2> /dev/null || :; rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM

# About 256 MiB a run, a million PUTs at most.
puts_of() { n=$((268435456 / $1)); echo $((n > 1000000 ? 1000000 : n)); }

# Both answer with MB/s (10^6) of payload.
run_peal() {
  : > "$folder/out"
  taskset -c 0 timeout $wait_s "$peal" server --bind 127.0.0.1 --port 0 --once > "$folder/out" &
  server=$!
  until port=$(sed -n 's/.*, port \([0-9]*\)$/\1/p' "$folder/out") && [ -n "$port" ]; do
    kill -0 $server || exit 4
    sleep 0.05
  done
  taskset -c 1 timeout $wait_s "$peal" client 127.0.0.1 --port "$port" --link roce --mtu 4096 \
    --stages batch --submit peal --size "$1" --iters "$(puts_of "$1")" --repeat 1 --json - > "$folder/row"
  wait $server
  server=
  sed 's/.*"gbps":\([0-9.e+-]*\).*/\1/' "$folder/row" | awk '{ printf "%.1f", $1 * 125 }'
}
run_ucx() {
  taskset -c 0 timeout $wait_s ucx_perftest -p 13997 > /dev/null &
  server=$!
  sleep 0.5
  taskset -c 1 timeout $wait_s ucx_perftest 127.0.0.1 -p 13997 -t ucp_put_bw -s "$1" -n "$(puts_of "$1")" \
    -w 1000 -f -v > "$folder/csv"
  wait $server
  server=
  awk -F, 'END { printf "%.1f", $6 * 1.048576 }' "$folder/csv"
}

echo "size  peal MB/s  ucx MB/s  ratio (medians of $rounds, in turn)"
for size in "$@"; do
  : > "$folder/peal"
  : > "$folder/ucx"
  for _ in $(seq $rounds); do
    { run_peal "$size"; echo; } >> "$folder/peal"
    { run_ucx "$size"; echo; } >> "$folder/ucx"
  done
  middle=$(((rounds + 1) / 2))
  p=$(sort -n "$folder/peal" | sed -n ${middle}p)
  u=$(sort -n "$folder/ucx" | sed -n ${middle}p)
  echo "$size $p $u" | awk '{ printf "%-5s %-10s %-9s %.2f\n", $1, $2, $3, $2 / $3 }'
done
