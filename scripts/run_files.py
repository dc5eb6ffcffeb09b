"""What runs leave in their directories, read for the scripts that show and compare them: whole or
torn, finished or in progress. Nothing here writes."""

import dataclasses
import json
import math
import os.path
import pathlib
import re
import struct
import sys

import numpy as np

SEED = "train.seed"
# Keys that make no other experiment and that no figure depends on: names, places, what is shown, what
# is kept, and the longest time of a start, where the steps made tell it. validation.every is none of
# them: the best of more validations is better.
IMMATERIAL = re.compile(r"run_name|data\.cache_dir|train\.max_hours|validation\.(prompts|batch_size)|"
                        r"distributed\.timeout_s|(log|checkpoint)\..*")
# Keys that make no other experiment, the results being the same to rounding, but another speed. Runs
# that differ in them are of one group; that they do is shown. Gradients sent as bf16 are no such thing.
SPEED = re.compile(r"train\.(threads|micro_batch_size|activation_checkpointing|deterministic)|"
                   r"distributed\.(?!gradient_precision$).*")
# Keys that name the alternative whose settings stand beside them.
TAGS = {"attention", "name"}


class RunError(Exception):
    """What is named is no run, or has nothing to show; one line."""


class Run:
    """A run directory: metrics as lists of dictionaries a kind in their order, config by dotted key."""

    def __init__(self, path):
        path = pathlib.Path(path)
        self.folder = path if path.is_dir() else path.parent
        self.path = path
        self.file = self.folder / "metrics.jsonl" if path.is_dir() else path
        if path.name == "config.json":
            self.file = self.folder / "metrics.jsonl"
        self.name = self.folder.resolve().name
        self.config = read_config(self.folder / "config.json")  # None: not known
        lines = read_lines(self.file) if self.file.exists() or self.config is None else []
        self.train = [line for line in lines if is_step(line, "train")]
        self.valid = [line for line in lines if is_step(line, "valid")]
        self.events = [line for line in lines if line.get("kind") == "event"]

    def column(self, kind, key):
        """(steps, values) of a key, not-a-number where it is null or absent."""
        lines = self.train if kind == "train" else self.valid
        return (np.array([line["step"] for line in lines], float),
                np.array([number(line.get(key)) for line in lines]))

    def gradient(self, group, key):
        """(steps, values) of a statistic of one group of parameters, where it was logged."""
        lines = [line for line in self.train if group in (line.get("gradients") or {})]
        return (np.array([line["step"] for line in lines], float),
                np.array([number(line["gradients"][group].get(key)) for line in lines]))

    def layers(self):
        """Indices of the layers whose gradients were logged."""
        groups = {group for line in self.train for group in (line.get("gradients") or {})}
        return sorted(int(match.group(1)) for group in groups
                      if (match := re.fullmatch(r"layers\.(\d+)", group)))

    def last(self, group, key):
        values = self.gradient(group, key)[1]
        values = values[~np.isnan(values)]
        return values[-1] if len(values) else math.nan

    def steps(self):
        """Updates made, as far as the log tells."""
        return max((line["step"] for line in self.train + self.valid), default=0)

    def best(self):
        """The validation line that the run itself called the best; where none was, the lowest loss."""
        known = [line for line in self.valid if math.isfinite(number(line.get("loss")))]
        named = [line for line in known if line.get("best") is True]
        return named[-1] if named else min(known, key=lambda line: line["loss"], default=None)

    def ended(self):
        """"done", "stopped", "diverged", "failed"; "" while it runs, and where it was killed."""
        ends = {"done": "done", "interrupted": "stopped", "time_limit": "stopped",
                "diverged": "diverged", "failed": "failed"}
        begins = ("started", "resumed")
        known = [line.get("event") for line in self.events if line.get("event") in (*ends, *begins)]
        return ends.get(known[-1], "") if known else ""


@dataclasses.dataclass
class Group:
    """Runs of one experiment: they differ in their seed, and in what makes no other."""
    label: str
    runs: list

    @property
    def config(self):
        return self.runs[0].config


def open_runs(paths):
    """The runs at these paths, each once, with names that tell them apart."""
    runs, faults, seen = [], [], set()
    for path in paths:
        try:
            run = Run(path)
        except RunError as error:
            faults.append(str(error))
            continue
        if run.file.resolve() not in seen:
            seen.add(run.file.resolve())
            runs.append(run)
    if faults:
        raise RunError("\n".join(faults))
    names = [run.name for run in runs]
    for run in runs:
        if names.count(run.name) > 1:
            run.name = os.path.normpath(run.folder)
    return runs


def grouped(runs):
    """Groups in the order of their first runs."""
    by_settings = {}
    for index, run in enumerate(runs):
        known = run.config is not None
        by_settings.setdefault(experiment(run.config) if known else index, []).append(run)
    groups = [Group(label_of(members), members) for members in by_settings.values()]
    labels = [group.label for group in groups]
    for group in groups:
        seeds = [run.config.get(SEED) for run in group.runs if run.config is not None]
        if len(set(seeds)) < len(seeds):
            complain(f"{', '.join(run.name for run in group.runs)}: the same settings, and not all of "
                     "different seeds, so their spread tells too little")
        if labels.count(group.label) > 1:
            group.label = ", ".join(run.name for run in group.runs)
    return groups


def experiment(config):
    """The settings that make it, but for the seed; equal where they are."""
    return json.dumps({key: value for key, value in config.items() if key != SEED
                       and not IMMATERIAL.fullmatch(key) and not SPEED.fullmatch(key)}, sort_keys=True)


def label_of(runs):
    """"norm" of norm-seed1 and norm-seed2; else the first name, and how many more."""
    if len(runs) == 1:
        return runs[0].name
    names = {re.sub(r"([-_. ]+(seed|s)?|seed)[-_. ]*\d+$", "", run.name) for run in runs}
    return names.pop() if len(names) == 1 else f"{runs[0].name} and {len(runs) - 1} more"


def differing_keys(configs):
    """Dotted keys whose values differ, in the order of the configs. A setting that only some have is
    told by the choice that it belongs to where that differs; others (of a later version) are named
    to the user, since nothing says what their absence means."""
    configs = [config for config in configs if config is not None]
    keys = [key for key in dict.fromkeys(key for config in configs for key in config)
            if not IMMATERIAL.fullmatch(key)]
    values = {key: {json.dumps(config[key]) for config in configs if key in config} for key in keys}
    differing = [key for key in keys if len(values[key]) > 1]
    choices = {key.rpartition(".")[0] for key in differing if key.rpartition(".")[2] in TAGS}
    unknown = [key for key in keys if key not in differing and key.rpartition(".")[0] not in choices
               and any(key not in config for config in configs)]
    if unknown:
        complain("not compared, since not every run's config has them: " + ", ".join(unknown))
    return differing


def parameters(folder):
    """How many the newest whole checkpoint holds; None where there is none."""
    for checkpoint in sorted((folder / "checkpoints").glob("step-*"), reverse=True):
        try:
            with open(checkpoint / "model.safetensors", "rb") as file:
                (size,) = struct.unpack("<Q", file.read(8))
                header = json.loads(file.read(min(size, 1 << 26)))
            return sum(math.prod(tensor["shape"]) for name, tensor in header.items()
                       if name != "__metadata__" and not name.endswith(".features"))
        except (OSError, ValueError, struct.error, KeyError, TypeError, AttributeError):
            continue
    return None


def read_config(file):
    """A resolved config by dotted key; None where the file is not there or is none."""
    try:
        tree = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(tree, dict) or not all(isinstance(tree.get(s), dict) for s in ("model", "train")):
        return None
    return dict(flat(tree))


def flat(tree, prefix=""):
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def read_lines(file):
    """The objects of a file of JSON lines. Its last line may be torn while a run writes it."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        if file.name == "metrics.jsonl" and file.parent.is_dir():
            raise RunError(f"{file.parent}: is no run directory: it has no metrics.jsonl") from None
        raise RunError(f"{file}: {error.strerror}") from None
    lines = []
    rows = text.split("\n")
    for index, row in enumerate(rows, 1):
        if not row.strip():
            continue
        try:
            line = json.loads(row)
            if not isinstance(line, dict):
                raise ValueError
            lines.append(line)
        except (ValueError, RecursionError):
            if index < len(rows):  # the last row ends without a line end: still being written
                complain(f"{file}:{index}: not a JSON object, left out")
    return lines


def is_step(line, kind):
    return line.get("kind") == kind and isinstance(line.get("step"), int)


def number(value):
    """Not-a-number for what is none."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number else math.nan


def script():
    return pathlib.Path(sys.argv[0]).name


def complain(text):
    print(f"{script()}: {text}", file=sys.stderr)


def refuse(text):
    """Ends the script with one line a fault and the status of a user's fault."""
    for line in str(text).split("\n"):
        complain(line)
    raise SystemExit(2)
