"""Compares runs in a Markdown table: best validation, test perplexity, speed, size, and the settings
that differ among them.

usage: compare.py RUN.. [--csv FILE] [--sort COLUMN]

RUN is a run directory, finished or in progress. Runs that differ in their seed only (and in names,
places, log, checkpoints, and in how the work is split and how long it may take) are one row: the
mean, the standard deviation over the seeds, and how many they are. The test perplexity is what
`transnormer eval RUN` said last of the best checkpoint (else of the last, which is said), of the
run's own window where it said so; it is blank where that was not asked yet. Figures that were
measured differently are named.
"""

import argparse
import csv
import io
import json
import math
import os
import pathlib
import statistics
import sys

from eval_figures import tell_differences, test_line
from run_files import RunError, differing_keys, grouped, number, open_runs, parameters, refuse

# Column, heading, how a value is written. Higher is better for tokens_per_s alone.
FIGURES = [
    ("valid_loss", "valid loss", "{:,.4f}"),
    ("valid_perplexity", "valid perplexity", "{:,.2f}"),
    ("best_step", "best step", "{:,.0f}"),
    ("test_word_perplexity", "test word perplexity", "{:,.2f}"),
    ("test_token_perplexity", "test token perplexity", "{:,.2f}"),
    ("tokens_per_s", "tokens/s", "{:,.0f}"),
    ("parameters", "parameters", "{:,.0f}"),
    ("steps", "steps", "{:,.0f}"),
]
COUNTS = {"best_step", "parameters", "steps"}  # told as a range, not as a mean
DESCENDING = {"tokens_per_s"}
CSV_BEGIN = "run,runs,n,"


def figures_of(run, test):
    """By column, with what eval said on the test split; not-a-number where it is not known."""
    best = run.best() or {}
    speeds = [speed for line in run.train if (speed := number(line.get("tokens_per_s"))) > 0]
    count = parameters(run.folder)
    return {
        "valid_loss": number(best.get("loss")),
        "valid_perplexity": number(best.get("perplexity")),
        "best_step": number(best.get("step")),
        "test_word_perplexity": number(test.get("word_perplexity")),
        "test_token_perplexity": number(test.get("token_perplexity")),
        "tokens_per_s": statistics.median(speeds) if speeds else math.nan,
        "parameters": math.nan if count is None else count,
        "steps": run.steps(),
    }


def rows_of(groups, settings):
    """One a group: its label, its runs, the known values of each figure, the values of the settings.
    Tells where the test figures among them are no equals."""
    rows, tests = [], []
    for group in groups:
        found = [test_line(run, (run.best() or {}).get("step")) for run in group.runs]
        tests += [(run.name, test) for run, test in zip(group.runs, found)]
        figures = [figures_of(run, test) for run, test in zip(group.runs, found)]
        rows.append({
            "run": group.label,
            "runs": [run.name for run in group.runs],
            "values": {column: [known[column] for known in figures if math.isfinite(known[column])]
                       for column, _, _ in FIGURES},
            "ended": joined(run.ended() or "unfinished" for run in group.runs),
            "settings": {key: joined(setting(run.config, key) for run in group.runs)
                         for key in settings},
        })
    tell_differences(tests)
    return rows


def setting(config, key):
    if config is None:
        return "?"
    if key not in config:
        return ""
    value = config[key]
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value if isinstance(value, str) else json.dumps(value)


def joined(words):
    return ", ".join(dict.fromkeys(words))


def spread(values):
    """The standard deviation over runs; none of one."""
    return statistics.stdev(values) if len(values) > 1 else math.nan


def cell(row, column, form):
    values = row["values"][column]
    if not values:
        return ""
    if column in COUNTS:
        ends = dict.fromkeys(form.format(value) for value in (min(values), max(values)))
        return " to ".join(ends)
    text = form.format(statistics.fmean(values))
    if len(values) > 1:
        text += " ± " + form.format(spread(values))
    missing = len(row["runs"]) - len(values)
    return text + (f" (of {len(values)})" if missing else "")


def sort_key(column):
    """What is not known comes last."""
    def key(row):
        if column in row["values"]:
            values = row["values"][column]
            mean = statistics.fmean(values) if values else math.inf
            return (0 if values else 1, -mean if column in DESCENDING else mean, "")
        text = row["settings"][column] if column in row["settings"] else str(row[column])
        try:
            return (0, float(text), "")
        except ValueError:
            return (1 if text else 2, 0.0, text)
    return key


def markdown(rows, settings):
    shown = [figure for figure in FIGURES if any(row["values"][figure[0]] for row in rows)]
    several = any(len(row["runs"]) > 1 for row in rows)
    heads = ["run"] + ["n"] * several + [head for _, head, _ in shown] + ["ended"] + list(settings)
    lines = [heads, ["---"] + ["---:"] * (several + len(shown)) + ["---"] * (1 + len(settings))]
    for row in rows:
        lines.append([row["run"]] + [str(len(row["runs"]))] * several
                     + [cell(row, column, form) for column, _, form in shown]
                     + [row["ended"]] + list(row["settings"].values()))
    return "\n".join("| " + " | ".join(escaped(text) for text in line) + " |" for line in lines)


def escaped(text):
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")


def table(rows, settings):
    """The same as CSV, unrounded: of each figure the mean, and its standard deviation."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    heads = [head for column, _, _ in FIGURES for head in (column, column + "_std")]
    writer.writerow(["run", "runs", "n", *heads, "ended", *settings])
    for row in rows:
        cells = []
        for column, _, _ in FIGURES:
            values = row["values"][column]
            cells += [repr(float(statistics.fmean(values))) if values else "",
                      repr(spread(values)) if len(values) > 1 else ""]
        writer.writerow([row["run"], " ".join(row["runs"]), len(row["runs"]), *cells, row["ended"],
                         *row["settings"].values()])
    return text.getvalue()


def write_csv(file, text):
    """Appears whole or not at all, and takes the place of an earlier table only."""
    try:
        if file.exists() and (not file.is_file() or not is_table(file)):
            refuse(f"{file}: exists and is no table of this script, so it is not replaced; name another "
                   "file")
        unfinished = file.with_name(f".{file.name}.part")
        unfinished.write_text(text, encoding="utf-8")
        os.replace(unfinished, file)
    except OSError as error:
        refuse(f"{file}: {error.strerror}")


def is_table(file):
    with open(file, "rb") as opened:
        begin = opened.read(len(CSV_BEGIN))
    return begin in (b"", CSV_BEGIN.encode())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run directory")
    parser.add_argument("--csv", type=pathlib.Path, metavar="FILE",
                        help="also write the table there, unrounded")
    parser.add_argument("--sort", default="valid_loss", metavar="COLUMN",
                        help="run, n, ended, a column of the CSV or a key of the config (default: "
                             "valid_loss); the best first")
    arguments = parser.parse_args()
    try:
        groups = grouped(open_runs(arguments.runs))
    except RunError as error:
        refuse(error)
    settings = differing_keys([run.config for group in groups for run in group.runs])
    rows = rows_of(groups, settings)
    for row in rows:
        row["n"] = len(row["runs"])
    columns = ["run", "n", "ended", *[column for column, _, _ in FIGURES], *settings]
    if arguments.sort not in columns:
        refuse(f"--sort {arguments.sort}: no column; one of {', '.join(columns)}")
    rows.sort(key=sort_key(arguments.sort))
    if arguments.csv:
        write_csv(arguments.csv, table(rows, settings))
    print(markdown(rows, settings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
