"""Draws tokens a second and peak memory against the length of sequences into one PNG.

usage: plot_bench.py FILE.. [--out FILE]

FILE is an answer of `transnormer bench --json` or `--csv`, or of `bench_pytorch.py --json`. Each
attention, or side of a comparison, is a line over the lengths of all files; what tells lines apart
(precision, mode, file) is named where it differs. The shade reaches from the median to the best
repeat. A side that failed at a length has no point there.
"""

import argparse
import csv
import io
import json
import math
import pathlib
import sys

from plot import STYLE, colours, number, plt, save_picture, shortened
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator


def fail(text):
    raise SystemExit(f"plot_bench.py: {text}")


def read_rows(file):
    """The rows of an answer, as dictionaries."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        fail(f"{file}: {error.strerror}")
    except UnicodeDecodeError:
        fail(f"{file}: not text")
    try:
        if text.lstrip().startswith("{"):
            rows = json.loads(text)["rows"]
        else:
            rows = list(csv.DictReader(io.StringIO(text)))
        return [point(row, file) for row in rows]
    except (ValueError, KeyError, TypeError):
        fail(f"{file}: not an answer of bench (--json or --csv) or bench_pytorch.py (--json)")


def point(row, file):
    """One row in the terms of the picture."""
    name = row["side"] if "side" in row else row["attention"]
    if row.get("linear_attention"):
        name += f", {row['linear_attention']}"
    return {"name": name, "mode": row["mode"], "precision": row["precision"], "file": str(file),
            "length": int(row["length"]), "best": figure(row["tokens_per_s"]),
            "median": figure(row["tokens_per_s_median"]),
            "memory": figure(row["peak_memory_bytes"])}


def figure(value):
    """Not-a-number where a side failed."""
    if isinstance(value, str):
        value = None if value in ("", "null") else float(value)
    return number(value)


def lines_of(points):
    """{label: points by length}. A line is told from another by as few words as do."""
    keys = ["name"]
    keys += [key for key in ("precision", "mode") if len({point[key] for point in points}) > 1]
    places = {tuple(point[key] for key in [*keys, "length"]) for point in points}
    if len(places) < len(points):
        keys.append("file")
    lines = {}
    for point in sorted(points, key=lambda point: point["length"]):
        lines.setdefault(", ".join(point[key] for key in keys), []).append(point)
    # In the order of the files.
    order = [", ".join(point[key] for key in keys) for point in points]
    return {label: lines[label] for label in dict.fromkeys(order)}


def draw_speed(axes, line, colour, label):
    lengths = [point["length"] for point in line]
    best = [point["best"] for point in line]
    axes.plot(lengths, best, "o-", color=colour, ms=4, lw=1.6, label=label)
    axes.fill_between(lengths, [point["median"] for point in line], best, color=colour, alpha=0.15,
                      lw=0)


def draw_memory(axes, line, colour, label):
    axes.plot([point["length"] for point in line], [point["memory"] for point in line], "o-",
              color=colour, ms=4, lw=1.6, label=label)


def memory_words(count, _=None):
    """2**30 -> 1 GiB."""
    for size, unit in ((2**30, "GiB"), (2**20, "MiB")):
        if count >= size:
            return f"{count / size:g} {unit}"
    return f"{count / 2**10:g} KiB"


def finish(axes, title, words, base, lengths):
    axes.set_title(title)
    axes.set_xlabel("tokens a sequence")
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, [f"{length:,}" for length in lengths],
                    rotation=45 if len(lengths) > 7 else 0)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_yscale("log", base=base)
    axes.yaxis.set_major_locator(LogLocator(base, subs=(1, 2, 5) if base == 10 else (1,)))
    low, high = (math.log2(limit) for limit in axes.dataLim.intervaly)
    axes.set_ylim(2 ** math.floor(low - 0.1), 2 ** math.ceil(high + 0.1))  # so that a mark is there
    axes.yaxis.set_major_formatter(words)
    axes.yaxis.set_minor_formatter(NullFormatter())


def draw(points, out):
    plt.rcParams.update(STYLE)
    figure, (speed, memory) = plt.subplots(1, 2, figsize=(13, 5), layout="constrained")
    lines = lines_of(points)
    for (label, line), colour in zip(lines.items(), colours(len(lines))):
        draw_speed(speed, line, colour, label)
        draw_memory(memory, line, colour, label)
    lengths = sorted({point["length"] for point in points})
    finish(speed, "Tokens a second", shortened, 10, lengths)
    finish(memory, "Peak memory", memory_words, 2, lengths)
    common = [next(iter(values)) for key in ("mode", "precision")
              if len(values := {point[key] for point in points}) == 1]
    figure.suptitle("   ·   ".join(["bench", *common]), fontsize=13, fontweight="bold")
    handles, labels = speed.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 4))
    save_picture(figure, out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="+", type=pathlib.Path, metavar="FILE",
                        help="answer of bench (--json or --csv) or of bench_pytorch.py (--json)")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("bench.png"),
                        help="the PNG (default: bench.png)")
    arguments = parser.parse_args()
    points = [point for file in arguments.files for point in read_rows(file)]
    if all(math.isnan(point["best"]) for point in points):
        fail("no figures to draw: every side failed" if points else "no rows to draw")
    try:
        draw(points, arguments.out)
    except OSError as error:
        fail(f"{arguments.out}: {error.strerror}")
    print(arguments.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
