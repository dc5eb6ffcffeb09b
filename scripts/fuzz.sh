#!/usr/bin/env bash
# Builds the fuzzers of tests/fuzz by clang (Debian's clang and libclang-rt-14-dev) and lets each look
# for inputs that break its reader, one after the other.
#   scripts/fuzz.sh                  every fuzzer, a minute each
#   scripts/fuzz.sh TARGET           tests/fuzz/TARGET_fuzzer.cpp
#   scripts/fuzz.sh TARGET SECONDS   for that long; "all" is every fuzzer
# They start from tests/fuzz/corpus/TARGET and keep what they learn in build-fuzz/corpus/TARGET. An
# input that fails is named: once mended, it goes into tests/fuzz/corpus/TARGET, which the ordinary
# tests run.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

target=${1:-all}
seconds=${2:-60}
targets=()
for source in tests/fuzz/*_fuzzer.cpp; do
  name=$(basename "$source" _fuzzer.cpp)
  [[ $target != all && $target != "$name" ]] || targets+=("$name")
done
((${#targets[@]} > 0)) || fail "no fuzzer is called $target: see tests/fuzz"
[[ $seconds =~ ^[1-9][0-9]*$ ]] || fail "$seconds is no number of seconds"
command -v clang++ >/dev/null || fail "no clang++ (Debian's packages are clang and libclang-rt-14-dev)"

export CCACHE_BASEDIR="${CCACHE_BASEDIR:-$PWD}" CCACHE_NOHASHDIR=1
say "Building build-fuzz/"
cmake --preset fuzz --log-level=WARNING >/dev/null || fail "cmake failed (see above)"
cmake --build --preset fuzz -j "${CMAKE_BUILD_PARALLEL_LEVEL:-2}" --target "${targets[@]/%/_fuzzer}" ||
  fail "the build failed (see above)"

# What the fuzzers write lies in memory where there is such a place.
memory=/dev/shm
[[ -d $memory && -w $memory ]] || memory=${TMPDIR:-/tmp}
TMPDIR=$(mktemp -d "$memory/transnormer-fuzz-XXXXXX")
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT

failed=()
for name in "${targets[@]}"; do
  say "Fuzzing $name for $seconds s"
  mkdir -p "build-fuzz/corpus/$name" build-fuzz/failed
  build-fuzz/tests/"${name}_fuzzer" "build-fuzz/corpus/$name" "tests/fuzz/corpus/$name" \
    -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1 \
    -artifact_prefix="build-fuzz/failed/$name-" </dev/null &>"build-fuzz/$name.log" || {
    failed+=("$name")
    grep -aE "what\(\)|runtime error|ERROR|SUMMARY|Test unit written" "build-fuzz/$name.log" || true
  }
  grep -a "number_of_executed_units" "build-fuzz/$name.log" || true
done
((${#failed[@]} == 0)) || fail "inputs that fail were found for: ${failed[*]} (build-fuzz/failed, build-fuzz/*.log)"
say "No input failed"
