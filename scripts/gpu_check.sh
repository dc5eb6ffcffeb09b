#!/usr/bin/env bash
# What only a machine with an NVIDIA GPU can tell, in one command and at most ten minutes: the build
# with the GPU's kernels, every operator against the CPU in double precision and the other tests
# labelled gpu, training on the GPU against the CPU, resuming to the same bits, the other ways to the
# same results (TRANSNORMER_OPERATORS) by losses and speed, several processes where there are several
# GPUs, and speed, share of the peak and memory beside PyTorch's own.
# Needs no network where the set-up of scripts/build.sh is there. Exits 2 where there is no GPU.
#   scripts/gpu_check.sh          builds first
#   scripts/gpu_check.sh --built  takes build/ as it is, for a machine that cannot build
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

case ${1:-} in
  "") build=1 ;;
  --built) build=0 ;;
  *) fail "unknown argument $1" ;;
esac

gpu=$(nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader 2>/dev/null |
  head -n 1) || gpu=
if [[ -z $gpu ]]; then
  echo "gpu_check.sh: no NVIDIA GPU here (nvidia-smi shows none), so there is nothing to check" >&2
  exit 2
fi

transnormer=build/transnormer
python=.venv/bin/python
[[ -x $python ]] || python=python3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# train NAME CONFIG ARGUMENTS..: a run in $work/NAME, its log shown only if it fails.
train() {
  local name=$1
  shift
  "$transnormer" train "$@" --run-dir "$work/$name" --set data.cache_dir="$work/cache" \
    >"$work/$name.log" 2>&1 || {
    cat "$work/$name.log" >&2
    fail "training \"$name\" failed (see above)"
  }
}

# numbers NAME KEY: KEY of every training line of a run.
numbers() {
  "$python" -c '
import json, sys
for line in open(sys.argv[1]):
    event = json.loads(line)
    if event["kind"] == "train":
        print(event[sys.argv[2]])' "$work/$1/metrics.jsonl" "$2"
}

run_tests() {
  local test
  for test in build/tests/*_cuda_test; do
    "$test" | tee -a "$work/tests.log" || fail "$test failed (see above)"
  done
  if grep -qi skipped "$work/tests.log"; then
    [[ ! -e build/libtransnormer_cuda.so ]] ||
      fail "tests were skipped though there is a GPU; run build/tests/ops_cuda_test to see why"
  fi
}

# Losses of the first updates, which rounding has not yet driven apart.
compare_with_cpu() {
  local device
  for device in cpu cuda; do
    train "tiny-$device" configs/tiny.json --device "$device" --precision fp32 \
      --set train.steps=10 --set log.every=1
  done
  paste <(numbers tiny-cpu loss) <(numbers tiny-cuda loss) | "$python" -c '
import sys
pairs = [tuple(map(float, line.split())) for line in sys.stdin]
worst = max(abs(a - b) / a for a, b in pairs)
print(f"  {len(pairs)} losses, largest relative difference {worst:.1e}")
sys.exit(not (len(pairs) == 10 and worst < 1e-4))' ||
    fail "losses on the GPU differ from those on the CPU by more than 1e-4"
}

# Twenty updates at once, and ten more from the checkpoint of the tenth. The first updates of a run
# are launched kernel by kernel, the later ones replayed, so this compares the two as well.
compare_resumed() {
  local precision file
  local options=(--device cuda --set train.deterministic=true --set train.steps=20)
  for precision in fp32 bf16 fp16; do
    train "whole-$precision" configs/tiny.json "${options[@]}" --precision "$precision"
    train "resumed-$precision" configs/tiny.json "${options[@]}" --precision "$precision" \
      --resume "$work/whole-$precision/checkpoints/step-00000010"
    for file in model optimizer; do
      cmp "$work"/{whole,resumed}-"$precision/checkpoints/step-00000020/$file.safetensors" ||
        fail "$precision: $file.safetensors of the resumed run has other bits"
    done
  done
}

# The quickstart's model with 16,000 words, on the fixture's text.
train_a_while() {
  local precision
  for precision in bf16 fp16; do
    train "quickstart-$precision" configs/quickstart.json --device cuda --precision "$precision" \
      --set data.train=data/fixture/train.txt --set data.valid=data/fixture/valid.txt \
      --set data.test=data/fixture/test.txt --set model.vocab_size=16000 \
      --set train.steps=100 --set train.global_batch_size=64
    paste <(numbers "quickstart-$precision" loss) <(numbers "quickstart-$precision" tokens_per_s) |
      "$python" -c '
import sys
lines = [tuple(map(float, line.split())) for line in sys.stdin]
(first, _), (last, speed) = lines[0], lines[-1]
print(f"  {sys.argv[1]}: loss {first:.3f} -> {last:.3f}, {speed:,.0f} tokens/s")
sys.exit(not last < first)' "$precision" || fail "the loss in $precision did not fall"
  done
}

seconds_left() {
  echo $((570 - $(date +%s) + TRANSNORMER_BEGAN))
}

# The first use of a GPU tries the kernels; what is left out would make all that follows say little.
check_kernels() {
  local said
  said=$("$transnormer" bench configs/tiny.json --device cuda --repeat 1 --json 2>&1 >/dev/null) || {
    echo "$said" >&2
    fail "bench failed (see above)"
  }
  if grep -q "left out\|could not be tried" <<<"$said"; then
    echo "$said" >&2
    fail "kernels do not agree with LibTorch's operations on this GPU (see above)"
  fi
}

# The ways to the same results (TRANSNORMER_OPERATORS): with and without CUDA graphs, the library's
# fused attention, rows of 16 bytes, kernels of ours. Each must learn alike; then what each costs.
alternatives=(default launched own-attention dense-rows plain)

operators() {
  [[ $1 == default ]] || echo "$1"
}

compare_losses() {
  local way
  for way in "${alternatives[@]}"; do
    TRANSNORMER_OPERATORS=$(operators "$way") train "way-$way" configs/tiny.json --device cuda \
      --precision bf16 --set train.steps=20 --set log.every=1
    paste <(numbers way-default loss) <(numbers "way-$way" loss) | "$python" -c '
import sys
pairs = [tuple(map(float, line.split())) for line in sys.stdin]
worst = max(abs(a - b) / a for a, b in pairs)
print(f"  {sys.argv[1]}: largest relative difference of {len(pairs)} losses {worst:.1e}")
sys.exit(not (len(pairs) == 20 and worst < 1e-2))' "$way" ||
      fail "losses of \"$way\" differ by more than 1e-2"
  done
}

# compare_speed CONFIG ARGUMENTS..
compare_speed() {
  local way left
  for way in "${alternatives[@]}"; do
    left=$(seconds_left)
    if ((left < 90)); then
      echo "  $way: left out, ten minutes are nearly over"
      continue
    fi
    TRANSNORMER_OPERATORS=$(operators "$way") timeout 45 "$transnormer" bench "$@" \
      --precision bf16 --device cuda --repeat 3 --json >"$work/way-$way.json" 2>/dev/null || {
      echo "  $way: stopped or failed"
      continue
    }
    "$python" -c '
import json, sys
folder, way = sys.argv[1:]
default, own = (json.load(open(f"{folder}/way-{name}.json"))["rows"][0] for name in ("default", way))
speed, memory = own["tokens_per_s"], own["peak_memory_bytes"] / 2**30
share = speed / default["tokens_per_s"]
print(f"  {way}: {speed:,.0f} tokens/s, {share:.2f} of the default, {memory:.1f} GiB at most")
' "$work" "$way" ||
      echo "  $way: nothing to compare with"
  done
}

# measure CONFIG ARGUMENTS..: the program by itself, for the share of the peak, and then beside
# PyTorch where the time left allows it.
measure() {
  "$transnormer" bench "$@" --precision bf16 --device cuda --json >"$work/bench.json" ||
    fail "bench failed (see above)"
  "$python" -c '
import json, sys
row = json.load(open(sys.argv[1]))["rows"][0]
memory, tflops, share = row["peak_memory_bytes"] / 2**30, row["gflops"] / 1000, row["peak_share"]
print("  {tokens_per_s:,.0f} tokens/s ({tokens_per_s_median:,.0f} median)".format(**row), end="")
print(f", {memory:.1f} GiB at most, {tflops:.0f} TFLOP/s: {share:.1%} of what plain products reach")
' "$work/bench.json" || fail "the answer of bench cannot be read"
  local left
  left=$(seconds_left)
  if ((left < 60)); then
    echo "  beside PyTorch: left out, ten minutes are nearly over"
    return
  fi
  timeout "$left" "$python" scripts/bench_pytorch.py "$@" --precision bf16 --device cuda \
    --rounds 2 || {
    (($? == 124)) || fail "bench_pytorch.py failed (see above)"
    echo "  beside PyTorch: stopped, ten minutes are nearly over"
  }
}

# same_losses NAME OTHER: of two runs, update by update, to 1e-3.
same_losses() {
  paste <(numbers "$1" loss) <(numbers "$2" loss) | "$python" -c '
import sys
pairs = [tuple(map(float, line.split())) for line in sys.stdin]
worst = max(abs(a - b) / a for a, b in pairs)
print(f"  {sys.argv[1]}: largest relative difference of {len(pairs)} losses {worst:.1e}")
sys.exit(not (len(pairs) == 20 and worst < 1e-3))' "$2" ||
    fail "losses of \"$2\" differ from those of \"$1\" by more than 1e-3"
}

several=(configs/quickstart.json --device cuda --set data.train=data/fixture/train.txt
  --set data.valid=data/fixture/valid.txt --set data.test=data/fixture/test.txt
  --set validation.every=0 --set checkpoint.every=0 --set log.grad_stats_every=0)

# equal_ranks GPUS: the same losses from 1, 2 and all ranks, and by the other ways to share the work.
equal_ranks() {
  local ranks
  local options=("${several[@]}" --precision fp32 --set train.steps=20 --set log.every=1
    --set train.global_batch_size=$((8 * $1)))
  for ranks in $(printf '%s\n' 1 2 "$1" | uniq); do
    train "ranks-$ranks" "${options[@]}" --nproc "$ranks"
    ((ranks == 1)) || same_losses ranks-1 "ranks-$ranks"
  done
  train sharded-optimizer "${options[@]}" --nproc 2 --set distributed.shard_optimizer=true
  same_losses ranks-1 sharded-optimizer
  train sequence-parallel "${options[@]}" --nproc 2 --set distributed.sequence_parallel=2
  same_losses ranks-1 sequence-parallel
}

# end_by_kill GPUS: kill -9 of one rank ends all within ten seconds, by one line.
end_by_kill() {
  local job began status=0
  "$transnormer" train "${several[@]}" --nproc "$1" --run-dir "$work/killed" \
    --set data.cache_dir="$work/cache" --set train.steps=1000000 --set log.every=1 \
    --set train.global_batch_size=$((8 * $1)) >"$work/killed.log" 2>&1 &
  job=$!
  for _ in {1..120}; do
    grep -qs '"kind":"train"' "$work/killed/metrics.jsonl" && break
    sleep 0.5
  done
  began=$(date +%s)
  kill -9 "$(pgrep -P "$job" | tail -n 1)" || fail "no rank of the run is there to be killed"
  wait "$job" || status=$?
  echo "  status $status after $(($(date +%s) - began)) s: $(tail -n 1 "$work/killed.log")"
  (($(date +%s) - began <= 10 && status == 1)) ||
    fail "the ranks must end within 10 s, by status 1"
  (($(grep -c "killed or lost" "$work/killed.log") == 1)) || {
    cat "$work/killed.log" >&2
    fail "one line must name the lost rank (see above)"
  }
}

# scaling GPUS: tokens/s in bf16 of a model that is some work, 32 samples a GPU.
scaling() {
  local ranks
  for ranks in 1 "$1"; do
    if ((SECONDS - several_began > 75)); then
      echo "  speed: left out, it would take too long"
      return
    fi
    train "speed-$ranks" "${several[@]}" --precision bf16 --nproc "$ranks" --set model.dim=1024 \
      --set model.heads=8 --set model.layers=12 --set data.tokens_per_sample=512 \
      --set train.steps=30 --set log.every=10 --set train.global_batch_size=$((32 * ranks))
  done
  paste <(numbers speed-1 tokens_per_s) <(numbers "speed-$1" tokens_per_s) | "$python" -c '
import sys
one, all_ = map(float, sys.stdin.readlines()[-1].split())
ranks = int(sys.argv[1])
print(f"  1 GPU {one:,.0f}, {ranks} GPUs {all_:,.0f} tokens/s: {all_ / one / ranks:.2f} of {ranks} times")
' "$1"
}

# Some two minutes.
check_several() {
  local gpus=$1 status=0
  if ((gpus == 1)); then
    "$transnormer" train "${several[@]}" --nproc 2 --run-dir "$work/crowded" \
      --set data.cache_dir="$work/cache" >"$work/crowded.log" 2>&1 || status=$?
    sed 's/^/  /' "$work/crowded.log"
    ((status == 2 && $(grep -c "needs one of its own" "$work/crowded.log") == 1)) ||
      fail "two processes on one GPU must be refused by one line, with status 2"
    return
  fi
  several_began=$SECONDS
  equal_ranks "$gpus"
  end_by_kill "$gpus"
  scaling "$gpus"
}

if [[ -n ${CUDA_VISIBLE_DEVICES:-} ]]; then
  gpus=$(tr ',' '\n' <<<"$CUDA_VISIBLE_DEVICES" | wc -l)
else
  gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader | wc -l)
fi

say "GPU: $gpu"
if ((build)); then
  scripts/build.sh transnormer ops_cuda_test train_cuda_test
fi
[[ -e build/libtransnormer_cuda.so ]] ||
  say "Built without a CUDA compiler: LibTorch's operations do the work of our kernels"
say "The kernels by themselves"
check_kernels
say "Tests"
run_tests
say "configs/tiny.json in fp32: GPU against CPU"
compare_with_cpu
say "Resuming under train.deterministic: equal bits"
compare_resumed
say "A hundred updates of the quickstart's model"
train_a_while
say "configs/tiny.json in bf16 by other ways to the same results"
compare_losses
say "Several processes, $gpus GPU(s)"
check_several "$gpus"
say "The ways by speed: 1,365 wide, 50,265 words in bf16, 16 x 512 tokens"
compare_speed configs/wikitext103_sp_t2.json --batch-size 16 --set model.vocab_size=50265
say "The published model in bf16, 32 x 512 tokens"
measure configs/wikitext103_t2.json --batch-size 32
say "256 wide, 4 heads, 8,000 words in bf16, 64 x 512 tokens"
measure configs/wikitext103_t2.json --batch-size 64 --set model.dim=256 --set model.heads=4 \
  --set model.vocab_size=8000
say "All checks passed on $gpu"
