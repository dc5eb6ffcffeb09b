#!/usr/bin/env bash
# The set-up of scripts/build.sh, then the tests. Arguments go to ctest:
#   scripts/test.sh             all tests
#   scripts/test.sh -L unit     those with the label unit (also e2e, dist, gpu)
#   scripts/test.sh -R norm     those whose name has "norm" in it
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

scripts/build.sh all
scripts/export_venv.sh || say "Exports are not tested with transformers (see above)"
say "Testing"
status=0
ctest --test-dir build --output-on-failure --no-tests=error -j 2 "$@" || status=$?
((status == 0)) || fail "some tests failed (listed above)"
say "All tests passed"
