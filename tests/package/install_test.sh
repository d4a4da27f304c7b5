#!/bin/bash
# Installs a build, moves the prefix, and uses it from there: a project by find_package, which is
# run; headers alone and the libraries by pkg-config. Exits with 5 where pkg-config is missing.
# Usage: install_test.sh SOURCE BUILD CXX GENERATOR HAS_CUDA
set -eu
source=$1 build=$2 compiler=$3 generator=$4 has_cuda=$5
scratch=$build/tests/package/install
installed=$scratch/moved
fail() {
  printf '%s\n' "$*" >&2
  exit 1
}

rm -rf "$scratch"
mkdir -p "$scratch"
cmake --install "$build" --prefix "$scratch/prefix" --strip >"$scratch/install.log"
mv "$scratch/prefix" "$installed"
for path in "$source" "$build"; do
  ! grep -rlF -e "$path" "$installed" || fail "these name $path"
done

"$installed/bin/peal" --version

cmake -S "$source/tests/package/project" -B "$scratch/project" -G "$generator" \
  -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 \
  -Dpeal_ROOT="$installed" -DPEAL_CONSUMER="$source/examples/consumer" \
  -DPEAL_EXPECT_CUDA="$has_cuda"
cmake --build "$scratch/project"
"$scratch/project/consumer/consumer" || fail "the consumer found by find_package exits with $?"

for program in device_alone cuda; do
  [ ! -e "$scratch/project/$program" ] || "$scratch/project/$program" || fail "$program exits with $?"
done

command -v pkg-config >/dev/null || {
  echo "no pkg-config here, so that nothing was built by it"
  exit 5
}
PKG_CONFIG_PATH=$(dirname "$(find "$installed" -name peal.pc)")
export PKG_CONFIG_PATH
# shellcheck disable=SC2046
"$compiler" -std=c++17 "$source/tests/package/project/device_alone.cpp" -o "$scratch/device_alone" \
  $(pkg-config --cflags --libs peal-device)
"$scratch/device_alone" || fail "device_alone by pkg-config exits with $?"
# shellcheck disable=SC2046
"$compiler" -std=c++20 "$source/examples/cpu_put.cpp" -o "$scratch/cpu_put" \
  $(pkg-config --cflags --libs peal)
"$scratch/cpu_put" || fail "cpu_put by pkg-config exits with $?"

# A shared library can hold all of it; and the control path needs nothing of the software ConnectX.
libraries=$(pkg-config --variable=libdir peal)
holds_all() {  # LIBRARIES ARCHIVE...
  # shellcheck disable=SC2086
  "$compiler" -shared -o "$scratch/all.so" -Wl,--no-undefined -L"$libraries" -Wl,--whole-archive \
    "${@:2}" -Wl,--no-whole-archive $1 -ldl -pthread || fail "${*:2}: not all that they need"
}
holds_all "" -lpeal_host
holds_all "$(pkg-config --libs libdeflate)" -lpeal_host -lpeal_wire -lpeal_nic
