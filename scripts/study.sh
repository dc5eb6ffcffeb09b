#!/usr/bin/env bash
# One of the paper's tables or figures, run anew: configs/studies/NAME.json, into runs/studies/NAME/.
# Can be stopped (Ctrl-C) and goes on by the same command; what is done is not done again.
#   scripts/study.sh NAME [--scale cpu|gpu|paper] [--seeds N] [--out DIR] [--table-only]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

[[ -x build/transnormer && -x .venv/bin/python ]] || scripts/build.sh
exec .venv/bin/python scripts/study.py "$@"
