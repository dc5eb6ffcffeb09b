#!/usr/bin/env bash
# From a fresh machine to a trained language model: set-up, build, real English text, training, and
# what came of it. Can be repeated: what is done is not done again, a stopped training goes on.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

run=runs/quickstart
transnormer=build/transnormer

train() {
  local status=0
  "$transnormer" train configs/quickstart.json --run-dir "$run" || status=$?
  case $status in
    0) ;;
    130 | 143)
      say "Stopped, and saved. To go on from there: scripts/quickstart.sh"
      exit "$status"
      ;;
    *)
      echo "quickstart.sh: the training ended with status $status (see above)" >&2
      exit "$status"
      ;;
  esac
}

# Reads the answer of `eval --json` and says what it means.
explain_evaluation() {
  .venv/bin/python -c '
import json, sys
result = json.load(sys.stdin)
perplexity, unigram = result["token_perplexity"], result["unigram_perplexity"]
print(f"""
  perplexity          {perplexity:8.1f}   on {result["tokens"]:,} tokens of books it has never seen
  of word frequencies {unigram:8.1f}   the same text, guessed by how frequent each word is

  At each word the model hesitates as if between {perplexity:.0f} equally likely words;
  one that knows only their frequencies, between {unigram:.0f}.
""")'
}

say "1/6 Set-up and build"
scripts/build.sh

say "2/6 Text: the King James Bible, whole books held out (data/bible/)"
.venv/bin/python scripts/get_bible.py

say "3/6 Training a small TransNormer (configs/quickstart.json) in $run"
echo "  loss is in nats a token, perplexity its exponential: both should fall. Ctrl-C stops and saves."
train

say "4/6 Held-out perplexity: the test split, which training never looks at"
answer=$("$transnormer" eval "$run" --json)
explain_evaluation <<<"$answer"

say "5/6 A sample: the prompt is \"And it came to pass\", the rest is the model's"
echo
"$transnormer" generate "$run" --prompt "And it came to pass" --max-tokens 120 \
  --temperature 0.8 --top-k 40 --seed 1
echo

say "6/6 Plot"
.venv/bin/python scripts/plot.py "$run" --out "$run/plot.png" >/dev/null
say "Done. Loss, learning rate and gradients: $run/plot.png"

cat <<END

What next
  Another sample         $transnormer generate $run --prompt "The LORD said" --temperature 1
  Train for longer       $transnormer train configs/quickstart.json --set train.steps=1200 --run-dir $run
  Another model          $transnormer train configs/quickstart.json --set model.variant=t1 --run-dir runs/t1
  Compare the two        .venv/bin/python scripts/plot.py $run runs/t1 --out runs/compare.png
  Your own text          $transnormer train configs/quickstart.json --run-dir runs/mine \\
                           --set data.train=train.txt --set data.valid=valid.txt --set data.test=test.txt
  What can be set        $transnormer config show configs/quickstart.json
END
