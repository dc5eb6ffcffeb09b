#!/usr/bin/env python3
"""Training by several processes beside training by one, in turns on the same machine.

One process uses all processors; N processes share them. Each side trains some updates of the same
model on random words; its best logged speed over all rounds counts, and the least share of an
update's time that went by waiting for other ranks.

  .venv/bin/python scripts/bench_ranks.py --nproc 2 --precision bf16
"""

import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--program", default=str(ROOT / "build" / "transnormer"))
    parser.add_argument("--nproc", type=int, default=2, help="processes of the second side")
    parser.add_argument("--precision", default="fp32", choices=("fp32", "bf16"))
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--words", type=int, default=8000, help="rows of the embedding")
    parser.add_argument("--sequences", type=int, default=8, help="of an update, over all ranks")
    parser.add_argument("--length", type=int, default=512, help="tokens of a sequence")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], help="a setting for both sides")
    return parser.parse_args()


def write_run(directory, options):
    """A config and a text of random words, as many tokens as four updates have."""
    draw = random.Random(1)
    words = [f"w{i}" for i in range(options.words - 8)]
    tokens = 4 * options.sequences * options.length
    text = words + [draw.choice(words) for _ in range(tokens)]
    lines = [" ".join(text[i : i + 31]) for i in range(0, len(text), 31)]
    (directory / "text.txt").write_text("\n".join(lines) + "\n")
    config = {
        "model": {"layers": options.layers, "dim": options.dim, "heads": options.heads},
        "data": {
            "train": str(directory / "text.txt"),
            "cache_dir": str(directory / "cache"),
            "tokens_per_sample": options.length,
        },
        "train": {"steps": 16, "global_batch_size": options.sequences},
        "schedule": {"warmup_steps": 4},
        "checkpoint": {"every": 0},
        "log": {"every": 4, "grad_stats_every": 0, "tensorboard": False},
    }
    (directory / "bench.json").write_text(json.dumps(config))


def train(directory, run, options, arguments):
    """The train lines of one run."""
    command = [options.program, "train", "bench.json", "--run-dir", run]
    command += ["--precision", options.precision, *arguments]
    for setting in options.set:
        command += ["--set", setting]
    environment = dict(os.environ, OMP_WAIT_POLICY="passive")
    done = subprocess.run(
        command, cwd=directory, env=environment, stderr=subprocess.PIPE, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(f"bench_ranks: {' '.join(command)} gave {done.returncode}: {done.stderr[-500:]}")
    lines = (directory / run / "metrics.jsonl").read_text().splitlines()
    return [line for line in map(json.loads, lines) if line["kind"] == "train"]


def main():
    options = parse_arguments()
    alone, together, waits = [], [], []
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        write_run(directory, options)
        for index in range(options.rounds):
            one = train(directory, f"one{index}", options, [])
            many = train(directory, f"many{index}", options, ["--nproc", str(options.nproc)])
            alone.append(max(line["tokens_per_s"] for line in one))
            together.append(max(line["tokens_per_s"] for line in many))
            waits.append(min(line["ranks_wait_share"] for line in many))
            print(
                f"round {index + 1}: one process {alone[-1]:,.0f} tokens/s, "
                f"{options.nproc} processes {together[-1]:,.0f}, ratio "
                f"{together[-1] / alone[-1]:.2f}, waiting {100 * waits[-1]:.1f} %",
                flush=True,
            )
    print(
        f"best: one process {max(alone):,.0f} tokens/s, {options.nproc} processes "
        f"{max(together):,.0f}, ratio {max(together) / max(alone):.2f}, "
        f"waiting {100 * min(waits):.1f} %"
    )


if __name__ == "__main__":
    main()
