#!/usr/bin/env bash
# Builds the kernels and tests/ops/kernels_alone_test.cpp for 64-bit ARM by a cross compiler and runs the test in
# an emulator. Debian's packages: g++-aarch64-linux-gnu, qemu-user (or qemu-user-static), googletest.
#   scripts/aarch64_check.sh [BUILD_DIR]     BUILD_DIR: build/aarch64 unless told
# Ends with 77, and says what is missing, where it cannot be done.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

out=${1:-build/aarch64}
compiler=aarch64-linux-gnu-g++
googletest=/usr/src/googletest/googletest

cannot() {
  say "aarch64: not checked: $1"
  exit 77
}
command -v "$compiler" >/dev/null || cannot "no $compiler (package g++-aarch64-linux-gnu)"
emulator=$(command -v qemu-aarch64 || command -v qemu-aarch64-static) ||
  cannot "no qemu-aarch64 (package qemu-user)"
[[ -f $googletest/src/gtest-all.cc ]] || cannot "no $googletest (package googletest)"

launcher=()
command -v ccache >/dev/null && launcher=(ccache)
mkdir -p "$out"
compile() { # OBJECT SOURCE OPTION..
  rm -f "$1"
  "${launcher[@]}" "$compiler" -std=c++20 -Isrc -c "$2" -o "$1" "${@:3}"
}

warnings=(-Wall -Wextra -Wpedantic -Wshadow -Werror)
objects=()
for source in src/ops/kernels/*.cpp; do
  object=$out/$(basename "$source").o
  objects+=("$object")
  compile "$object" "$source" -O2 "${warnings[@]}" -DTRANSNORMER_ISA=baseline \
    -ffp-contract=fast -fno-math-errno -fno-trapping-math -Wno-psabi &
  (($(jobs -rp | wc -l) < $(nproc))) || wait -n
done
wait
compile "$out/test.o" tests/ops/kernels_alone_test.cpp -O1 "${warnings[@]}" \
  -isystem "$googletest/include"
for source in gtest-all gtest_main; do
  compile "$out/$source.o" "$googletest/src/$source.cc" -O1 -I"$googletest" -I"$googletest/include"
  objects+=("$out/$source.o")
done
"$compiler" -static "$out/test.o" "${objects[@]}" -pthread -o "$out/kernels_alone_test" 2> >(grep -v getaddrinfo >&2)
"$emulator" "$out/kernels_alone_test"
