#!/usr/bin/env bash
# Trains in several processes by torchrun, on one machine or more:
#   scripts/launch/torchrun.sh CONFIG [OPTION OF train]..
# What to change, here or in the environment:
#   NPROC     processes on this machine; unless told, one for each of its GPUs
#   NODES     machines. Start the script on each of them, with the same NODES and HEAD
#   HEAD      one of the machines and a free port of it, as node1:29500
#   RESTARTS  how often the processes are started again when one of them fails; they go on from the
#             newest checkpoint
set -euo pipefail
project=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

NPROC=${NPROC:-$(nvidia-smi --list-gpus 2>/dev/null | wc -l || true)}
NODES=${NODES:-1}
HEAD=${HEAD:-localhost:0}  # port 0: any that is free, for one machine
RESTARTS=${RESTARTS:-0}

if ((NPROC < 1)); then
  echo "torchrun.sh: no GPU here; say how many processes to start: NPROC=2 $0 $*" >&2
  exit 2
fi
if ((NODES > 1)) && [[ $HEAD == localhost:* ]]; then
  echo "torchrun.sh: $NODES machines need HEAD, one of them and a port, as HEAD=node1:29500" >&2
  exit 2
fi
exec "$project/.venv/bin/torchrun" --no-python --nproc-per-node "$NPROC" --nnodes "$NODES" \
  --rdzv-backend c10d --rdzv-endpoint "$HEAD" --rdzv-id transnormer --max-restarts "$RESTARTS" \
  "$project/build/transnormer" train "$@"
