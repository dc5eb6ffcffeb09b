"""What `transnormer eval` found on the test split, as RUN/evals.jsonl records it: which of its lines
is a run's figure, and whether the figures of several runs are of one measurement."""

import json
import math

from run_files import complain, number, read_lines

FIGURES = ("word_perplexity", "token_perplexity")
# Keys of a line and what they are called. Figures that differ in one do not compare as they stand.
MEASUREMENT = {"window": "windows", "context_window": "context windows", "precision": "precisions",
               "text_digest": "texts or tokenizers (text_digest)"}
DIGEST = 12  # letters shown


def test_line(run, best_step):
    """The answer about the trained weights of the best checkpoint, else of the last, which is told;
    the latest one, of the run's own window where one is."""
    file = run.folder / "evals.jsonl"
    if not file.is_file():
        return {}
    lines = [line for line in read_lines(file) if line.get("split") == "test" and is_own(line)]
    for step in dict.fromkeys((best_step, run.steps())):
        if step is None:
            continue
        of_step = [line for line in lines if line.get("step") == step]
        now = [line for line in of_step if is_of_these_weights(run, step, line)]
        if of_step and not now:
            complain(f"{run.name}: eval's answers about step {step} are of other weights than that "
                     "checkpoint has now, so they are left out; run eval again")
        if now:
            if step != best_step:
                complain(f"{run.name}: the test perplexity is that of step {step}, not of the best")
            return ([line for line in now if has_own_window(run, line)] or now)[-1]
    return {}


def is_own(line):
    """Of the trained weights of a checkpoint of the run: neither their running mean nor an average of
    several checkpoints, which has the step of one of them."""
    step = line.get("step")
    return (isinstance(step, int) and line.get("checkpoint", name_of(step)) == name_of(step)
            and line.get("weights", "raw") == "raw")


def name_of(step):
    return f"step-{step:08d}"


def is_of_these_weights(run, step, line):
    """False where training went back and came to this step again, with other weights; true where
    that is not known."""
    manifest = run.folder / "checkpoints" / name_of(step) / "manifest.json"
    try:
        now = json.loads(manifest.read_text(encoding="utf-8"))["files"]["model.safetensors"]["sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        return True
    return line.get("model_sha256", now) == now


def has_own_window(run, line):
    config = run.config or {}
    return (line.get("window") == config.get("data.tokens_per_sample")
            and line.get("context_window") == config.get("validation.context_window"))


def tell_differences(tests):
    """To the user, by (name of a run, its line): which runs' figures were measured otherwise."""
    shown = [(name, line) for name, line in tests
             if any(math.isfinite(number(line.get(figure))) for figure in FIGURES)]
    for key, title in MEASUREMENT.items():
        runs = {}
        for name, line in shown:
            runs.setdefault(written(line.get(key)), []).append(name)
        if len(runs) > 1:
            complain(f"the test perplexities are of different {title}: "
                     + "; ".join(f"{value}: {', '.join(names)}" for value, names in runs.items()))


def written(value):
    if value is None:
        return "not recorded"
    return value[:DIGEST] if isinstance(value, str) else json.dumps(value)
