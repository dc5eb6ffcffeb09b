#!/usr/bin/env bash
# A Python environment with transformers, in which tests/export/transformers_test.py runs:
# build/export-venv. It sees the packages of .venv, so that PyTorch is not downloaded again. Can be
# repeated; with nothing to do it takes a second and needs no network. Where it fails, that test skips.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

directory=build/export-venv
requirements=scripts/requirements-export.txt

.venv/bin/python -c "import torch" 2>/dev/null ||
  fail "no .venv with PyTorch in it, which scripts/build.sh makes unless CMAKE_PREFIX_PATH names another"
if [[ -x $directory/bin/python ]] &&
  [[ $("$directory/bin/python" scripts/venv_state.py "$requirements" 2>/dev/null) == complete ]]; then
  say "Python environment $directory: complete"
  exit
fi
say "Python environment $directory: installing transformers (20 MB)"
rm -rf "$directory"
.venv/bin/python -m venv "$directory" || fail "python -m venv $directory failed (see above)"
packages() {
  "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
}
packages .venv/bin/python >"$(packages "$directory/bin/python")/of_build.pth"
"$directory/bin/python" -m pip install --quiet --disable-pip-version-check --retries 1 \
  -r "$requirements" || fail "pip could not install what $requirements names (see above)"
