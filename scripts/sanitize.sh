#!/usr/bin/env bash
# Builds everything with a sanitizer and runs the tests; the set-up of scripts/build.sh must be there.
# Takes half an hour or more. Arguments behind the first go to ctest:
#   scripts/sanitize.sh              addresses and undefined behaviour, all tests
#   scripts/sanitize.sh tsan         races between threads
#   scripts/sanitize.sh tsan -R log  those tests whose name has "log" in it
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

sanitizer=${1:-asan}
shift || true

# Tests that cannot be run, with the reason; others skip by themselves and say why.
# Where operator new gets no memory, a sanitizer ends the program instead of throwing.
left_out=('BatchLoader\.TellsWhichSettingIsTooLargeForTheMemory')
case $sanitizer in
  asan)
    export ASAN_OPTIONS="allocator_may_return_null=1:strict_string_checks=1:${ASAN_OPTIONS:-}"
    export UBSAN_OPTIONS="print_stacktrace=1:${UBSAN_OPTIONS:-}"
    ;;
  tsan)
    # What LibTorch does inside is not looked at: it is not instrumented.
    export TSAN_OPTIONS="suppressions=$PWD/scripts/tsan_suppressions.txt:ignore_noninstrumented_modules=1:allocator_may_return_null=1:${TSAN_OPTIONS:-}"
    # The process that trains a model of sentencepiece may write to no more memory than the machine
    # has; the sanitizer's shadow memory counts, and is larger.
    left_out+=(SentencePieceTrainer 'MakeTokenizer\.TrainsASentencePieceModel')
    ;;
  *) fail "$sanitizer is no sanitizer here: asan or tsan" ;;
esac

export CCACHE_BASEDIR="${CCACHE_BASEDIR:-$PWD}" CCACHE_NOHASHDIR=1
say "Building build-$sanitizer/"
cmake --preset "$sanitizer" --log-level=WARNING >/dev/null || fail "cmake failed (see above)"
cmake --build --preset "$sanitizer" -j "${CMAKE_BUILD_PARALLEL_LEVEL:-2}" || fail "the build failed (see above)"
say "Testing; left out, for reasons that scripts/sanitize.sh tells: ${left_out[*]}"
ctest --test-dir "build-$sanitizer" --output-on-failure --no-tests=error \
  -E "$(IFS='|' && echo "${left_out[*]}")" "$@" ||
  fail "some tests failed (listed above)"
say "All tests passed"
