#!/usr/bin/env bash
# Trains in several processes by Open MPI's mpirun, on one machine or more:
#   scripts/launch/mpirun.sh CONFIG [OPTION OF train]..
# What to change, here or in the environment:
#   NPROC  processes in all; unless told, one for each GPU of this machine
#   HOSTS  machines and how many processes each takes, as node1:8,node2:8; this one is the first
# More processes than cores: OMPI_MCA_rmaps_base_oversubscribe=1. As root:
# OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1.
set -euo pipefail
project=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

NPROC=${NPROC:-$(nvidia-smi --list-gpus 2>/dev/null | wc -l || true)}
HOSTS=${HOSTS:-}

if ((NPROC < 1)); then
  echo "mpirun.sh: no GPU here; say how many processes to start: NPROC=2 $0 $*" >&2
  exit 2
fi
options=(-n "$NPROC" --bind-to none) # unless told, mpirun binds each process to one core
if [[ -n $HOSTS ]]; then
  export MASTER_ADDR=${MASTER_ADDR:-${HOSTS%%[:,]*}}
  options+=(--host "$HOSTS" -x MASTER_ADDR)
fi

# In a session of its own, where no Ctrl-C reaches it: mpirun that is told to stop kills its
# processes a second later. They are told themselves; one that hears of it is enough.
setsid mpirun "${options[@]}" "$project/build/transnormer" train "$@" &
mpirun=$!
trap 'pkill -TERM -P "$mpirun"' INT TERM
status=0
while kill -0 "$mpirun" 2>/dev/null; do
  wait "$mpirun" && status=0 || status=$?
done
exit "$status"
