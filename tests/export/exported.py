"""What the tests of exports share: small texts, runs trained on them, the program's answers."""

import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

PROGRAM = os.environ.get("TRANSNORMER_PROGRAM", "build/transnormer")
WORDS = "the river ran over stones and sang to hill at dawn .".split()

CONFIG = {
    "model": {"variant": "custom", "layers": 2, "dim": 16, "heads": 2,
              "early": {"attention": "diag", "block": 8}},
    "data": {"train": "train.txt", "valid": "valid.txt", "test": "test.txt", "cache_dir": "cache",
             "tokens_per_sample": 24},
    "schedule": {"warmup_steps": 2},
    "optimizer": {"lr": 0.01},
    "train": {"steps": 6, "global_batch_size": 4, "threads": 1, "device": "cpu"},
    "validation": {"every": 3},
    "checkpoint": {"every": 3},
    "log": {"every": 1},
}


# Long enough that what is most likely is no longer one word.
LEARNED = {"train": {"steps": 80}, "validation": {"every": 40}, "checkpoint": {"every": 40}}


class Workspace:
    """A directory with texts, where the program runs."""

    def __init__(self):
        self.directory = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.directory.name)
        for seed, name in enumerate(("train", "valid", "test")):
            draw = random.Random(seed)
            lines = []
            for _ in range(60):  # words that follow each other, from anywhere on
                first, length = draw.randrange(len(WORDS)), draw.randint(3, 11)
                lines.append(" ".join((WORDS * 2)[first:first + length]))
            (self.path / f"{name}.txt").write_text("\n".join(lines) + "\n")

    def run(self, *arguments, status=0):
        answer = subprocess.run([PROGRAM, *arguments], cwd=self.path, capture_output=True, text=True)
        assert answer.returncode == status, f"{arguments}: {answer.returncode}: {answer.stderr}"
        return answer.stdout if status == 0 else answer.stderr

    def train(self, run, **sections):
        """runs of CONFIG with sections updated."""
        config = {name: {**keys, **sections.get(name, {})} for name, keys in CONFIG.items()}
        config.update({name: keys for name, keys in sections.items() if name not in CONFIG})
        (self.path / f"{run}.json").write_text(json.dumps(config))
        self.run("train", f"{run}.json", "--run-dir", run)
        return self.path / run

    def export(self, checkpoint, name):
        self.run("export", str(checkpoint), "--out", name)
        return self.path / name

    def losses(self, checkpoint, *arguments):
        """Nats of each token of the test split."""
        self.run("eval", str(checkpoint), "--per-token", "losses.jsonl", *arguments)
        lines = (self.path / "losses.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def greedy(self, checkpoint, prompt, tokens):
        return self.run("generate", str(checkpoint), "--prompt", prompt, "--max-tokens", str(tokens),
                        "--temperature", "0").removesuffix("\n")


def readme_code(export):
    """The lines of README.md on exports, for this one."""
    text = (pathlib.Path(__file__).resolve().parents[2] / "README.md").read_text()
    section = re.search(r"^## Use the weights in Python\n(.*?)^## ", text, re.S | re.M)
    code = re.search(r"^```python\n(.*?)^```", section[1], re.S | re.M)
    return code[1].replace("exports/mine", str(export))


def modeling_of(export):
    """The module that an export holds."""
    sys.path.insert(0, str(export))
    try:
        sys.modules.pop("modeling_transnormer", None)
        return __import__("modeling_transnormer")
    finally:
        sys.path.remove(str(export))
