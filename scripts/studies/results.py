"""What the runs gave: figures by row, seed and column, their mean and spread, and whether the order
that the paper has holds. Reads the files of the runs, runs nothing."""

import dataclasses
import json
import math
import statistics

from studies.plan import OUT_OF_MEMORY, StudyError
from studies.runs import RECORD, read_record, record_of

HOLDS, FAILS, WITHIN = "holds", "does not hold", "within the spread"
DIVERGED = "diverged"


@dataclasses.dataclass(frozen=True)
class Column:
    key: str
    label: str
    better: str        # "lower" or "higher"
    digits: int = 2
    group: str = ""     # columns of a group make one table
    quantity: str = ""  # what is measured, where `label` says something else

    def cost(self, value):
        """The lower the better; a published "out of memory" is worse than any figure."""
        if value == OUT_OF_MEMORY:
            return math.inf
        return value if self.better == "lower" else -value


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One job that is done: its figures by column, or why there are none."""
    job: object
    ended: str
    figures: dict
    facts: dict  # parameters, tokens, seconds, machine, date, program


@dataclasses.dataclass(frozen=True)
class Cell:
    """A row's figure in a column over the seeds; no mean where a seed gave none."""
    values: tuple      # by seed; None where it ended without a figure
    reason: str = ""   # why there is no mean: DIVERGED or OUT_OF_MEMORY

    @property
    def mean(self):
        return None if self.reason or not self.values else statistics.fmean(self.values)

    @property
    def spread(self):
        """The standard deviation over the seeds; none where there is one seed."""
        return None if self.mean is None or len(self.values) < 2 else statistics.stdev(self.values)


@dataclasses.dataclass(frozen=True)
class Order:
    """Two rows that the paper orders in a column, and whether they are so here."""
    column: Column
    better: object
    worse: object
    published: tuple    # the two figures; empty where the paper tells the order in words
    unconfirmed: bool
    source: str
    cells: tuple
    verdict: str        # HOLDS, FAILS, WITHIN, or why there is none


def columns_of(study):
    if study.measure == "perplexity":
        return [Column("valid", "valid perplexity", "lower"),
                Column("test", "test perplexity", "lower")]
    if study.measure == "gradients":
        return [Column("relative_std", "gradients' relative std", "lower", 3),
                Column("relative_std_qk", "of q and k alone", "lower", 3),
                Column("valid", "valid perplexity", "lower")]
    if study.measure == "dilution":
        return [Column("area", "area under the curve", "higher", 3),
                Column("valid", "valid perplexity", "lower")]
    return [speed_column(mode, length, quantity) for quantity in SPEED_QUANTITIES
            for mode in study.bench.modes for length in study.bench.lengths]


SPEED_QUANTITIES = {"steps a second": ("", "higher", 2), "peak memory in MiB": (" memory", "lower", 0)}
MODES = {"train": "training", "infer": "inference", "decode": "decoding"}


def speed_column(mode, length, quantity):
    suffix, better, digits = SPEED_QUANTITIES[quantity]
    return Column(f"{mode} {length}{suffix}", f"{length:,} tokens", better, digits,
                  f"{MODES[mode]}, {quantity}", quantity)


def outcome_of(job, study):
    """What a finished job gave; nothing where it is not finished."""
    record = record_of(job)
    if record is None:
        return None
    facts = {key: record[key] for key in ("date", "machine", "program", "parameters")}
    if job.mode:
        facts |= {"seconds": record["seconds"], "tokens": None,
                  "precision": record["row"].get("precision")}
        return Outcome(job, record["ended"], speed_figures(job, record), facts)
    lines = metrics_of(job)
    facts |= {"tokens": lines[-1]["tokens"], "updates": lines[-1]["step"],
              "seconds": lines[-1]["elapsed_s"]}
    if record["ended"] == "diverged":
        return Outcome(job, DIVERGED, {}, facts)
    return Outcome(job, "finished", run_figures(job, study, lines), facts)


def answer(job, name):
    found = read_record(job.folder / f"{name}.json")
    if found is None:
        raise StudyError(f"{job.folder}: {name}.json is missing; remove {RECORD} there and run the "
                         "study again to have it made")
    return found


def metrics_of(job, kind="train"):
    """The lines of a kind in a run's metrics."""
    file = job.folder / "metrics.jsonl"
    try:
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise StudyError(f"{file}: cannot be read ({error})")
    found = [line for line in lines if line.get("kind") == kind]
    if not found:
        raise StudyError(f"{file}: holds no line of training")
    return found


def run_figures(job, study, lines):
    figures = {split: answer(job, split)["token_perplexity"] for split in ("valid", "test")}
    if study.measure == "gradients":
        figures |= gradient_figures(job, lines)
    if study.measure == "dilution":
        figures["area"] = answer(job, "dilution")["mean"]["area"]
    return figures


def gradient_figures(job, lines):
    """Standard deviation over mean of the gradient's norm, over the updates."""
    last = [line["gradients"] for line in lines if line.get("gradients")]
    if not last:
        raise StudyError(f"{job.folder}: has no gradient statistics (log.grad_stats_every)")
    parts = [stats["relative_std"] for group, stats in last[-1].items()
             if group.endswith((".q_proj", ".k_proj"))]
    return {"relative_std": last[-1]["all"]["relative_std"],
            "relative_std_qk": statistics.fmean(parts)}


def speed_figures(job, record):
    key = f"{job.mode} {job.length}"
    if record["ended"] == OUT_OF_MEMORY:
        return {}
    row = record["row"]
    return {key: row["tokens_per_s"] / (row["length"] * row["batch_size"]),
            f"{key} memory": row["peak_memory_bytes"] / 2**20}


def cell_of(row, column, outcomes):
    """The figures of a row in a column, over the seeds that are done."""
    mine = [each for each in outcomes if each.job.row is row and concerns(each.job, column)]
    values = tuple(each.figures.get(column.key) for each in mine)
    failed = [each.ended for each in mine if column.key not in each.figures]
    return Cell(values, failed[0] if failed else "")


def concerns(job, column):
    return not job.mode or column.key.startswith(f"{job.mode} {job.length}") and (
        column.key.removeprefix(f"{job.mode} {job.length}") in ("", " memory"))


def verdict(column, better, worse):
    """Whether `better` is better than `worse` in a column: by the means, told apart from "within the
    spread", where the intervals of mean and standard deviation touch."""
    known = [cell for cell in (better, worse) if cell.values]
    if len(known) < 2:
        return "not run"
    if better.reason or worse.reason:
        if better.reason and worse.reason:
            return f"no verdict: both {worse.reason}"
        return FAILS if better.reason else HOLDS
    gain = column.cost(worse.mean) - column.cost(better.mean)
    if better.spread is not None and worse.spread is not None:
        if abs(gain) <= better.spread + worse.spread:
            return WITHIN
    return HOLDS if gain > 0 else FAILS


def orders_of(study, columns, cells):
    """Every pair that the paper orders, by figures and then by words."""
    orders = []
    for column in columns:
        rows = sorted((row for row in study.rows if column.key in row.published),
                      key=lambda row: column.cost(row.published[column.key]))
        for index, better in enumerate(rows):
            for worse in rows[index + 1:]:
                pair = (better.published[column.key], worse.published[column.key])
                if column.cost(pair[0]) < column.cost(pair[1]):
                    orders.append(order_of(study, column, better, worse, pair, cells))
    by_key = {column.key: column for column in columns}
    for told in study.expected:
        for key in told["columns"]:
            if key in by_key:
                rows = [study.row(told[side]) for side in ("better", "worse")]
                orders.append(order_of(study, by_key[key], *rows, (), cells, told["source"]))
    return orders


def order_of(study, column, better, worse, published, cells, source=""):
    pair = tuple(cells[row.name, column.key] for row in (better, worse))
    unconfirmed = bool(published) and any(column.key in row.unconfirmed for row in (better, worse))
    return Order(column, better, worse, published, unconfirmed,
                 source or study.published.get("source", ""), pair, verdict(column, *pair))


@dataclasses.dataclass(frozen=True)
class Results:
    study: object
    seeds: int
    jobs: list
    outcomes: list
    columns: list
    cells: dict       # by (row's name, column's key)
    orders: list

    @property
    def unfinished(self):
        return len(self.jobs) - len(self.outcomes)

    def facts(self, key):
        """The different values of a fact, in the order they were met."""
        return list(dict.fromkeys(each.facts[key] for each in self.outcomes
                                  if each.facts.get(key) is not None))

    def parameters(self, row):
        return next((each.facts["parameters"] for each in self.outcomes
                     if each.job.row is row and each.facts["parameters"]), None)


def gather(study, jobs, seeds):
    outcomes = [found for job in jobs if (found := outcome_of(job, study))]
    columns = columns_of(study)
    known = {column.key for column in columns}
    for row in study.rows:
        strange = set(row.published) - known
        if strange and study.measure != "speed":  # lengths differ by scale
            raise StudyError(f"{study.name}, row {row.name}: publishes {', '.join(strange)}; columns "
                             f"are {', '.join(known)}")
    cells = {(row.name, column.key): cell_of(row, column, outcomes)
             for row in study.rows for column in columns}
    require_equal_budgets(study, outcomes)
    return Results(study, seeds, jobs, outcomes, columns, cells, orders_of(study, columns, cells))


def require_equal_budgets(study, outcomes):
    """By the runs' own files: of one seed, every row that ended well had as many updates and tokens.
    (Between seeds tokens differ a little where the text ends in a short sample.)"""
    budgets = {}
    for each in outcomes:
        if each.ended == "finished":
            budgets.setdefault(each.job.seed, set()).add((each.facts.get("updates"),
                                                          each.facts["tokens"]))
    for seed, found in budgets.items():
        if len(found) > 1:
            raise StudyError(f"{study.name}: the runs of seed {seed} differ in their budgets (updates, "
                             f"tokens): {', '.join(map(str, sorted(found)))}")
