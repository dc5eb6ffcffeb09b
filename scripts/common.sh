# shellcheck shell=bash
# Sourced by the other scripts: stops at the first fault, works from the project's folder, and says
# what goes on in lines that start with the minutes and seconds since the first script began.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# What the user's own Python needs must not leak into the one of .venv.
unset PYTHONPATH PYTHONHOME
# Threads that wait must not spin on cores that others may need.
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-passive}"
export TRANSNORMER_BEGAN="${TRANSNORMER_BEGAN:-$(date +%s)}"

say() {
  local passed=$(($(date +%s) - TRANSNORMER_BEGAN))
  printf '[%2d:%02d] %s\n' $((passed / 60)) $((passed % 60)) "$*"
}

fail() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}
