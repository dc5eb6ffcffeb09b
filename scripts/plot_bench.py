"""Draws tokens a second and peak memory against the length of sequences into one PNG.

usage: plot_bench.py FILE.. [--out FILE]

FILE is an answer of `transnormer bench --json` or `--csv`, or of `bench_pytorch.py --json`. Each
attention, or side of a comparison, is a line over the lengths of all files; what tells lines apart
(precision, mode, batch size, file) is named where it differs. PyTorch's side of `bench_pytorch.py
--attentions` is dashed, in the attention's colour; what runs both ways rather than causal has a star
behind its name. The shade reaches from the median to the best repeat, where lines are few. A side
that failed at a length has no point there.
"""

import argparse
import csv
import io
import json
import math
import pathlib
import sys

from plot import STYLE, colours, number, plt, save_picture, shortened
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator


# As many markers as share no factor with the ten colours: no two of 130 lines look alike.
MARKERS = "osD^vPX<>*hpd"
COLOURS = 10
FEW = 6  # lines whose legend fits below, and whose shades do not hide each other


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
        return [point for row in rows for point in points_of(row, file)]
    except (ValueError, KeyError, TypeError):
        fail(f"{file}: not an answer of bench (--json or --csv) or bench_pytorch.py (--json)")


def points_of(row, file):
    """One row in the terms of the picture; PyTorch's side of it, if it has one, is another point."""
    name = row["side"] if "side" in row else row["attention"]
    if row.get("linear_attention"):
        name += f", {row['linear_attention']}"
    if row.get("causal") in (False, "false"):
        name += " *"
    common = {"name": name, "mode": row["mode"], "precision": row["precision"],
              "batch": f"batch {row['batch_size']}", "file": str(file), "length": int(row["length"])}
    prefixes = ["", "pytorch_"] if "pytorch_tokens_per_s" in row else [""]
    return [{**common, "pytorch": prefix != "", "best": figure(row[prefix + "tokens_per_s"]),
             "median": figure(row[prefix + "tokens_per_s_median"]),
             "memory": figure(row[prefix + "peak_memory_bytes"])} for prefix in prefixes]


def figure(value):
    """Not-a-number where a side failed."""
    if isinstance(value, str):
        value = None if value in ("", "null") else float(value)
    return number(value)


def lines_of(points):
    """{label: points by length}. A line is told from another by as few words as do."""
    keys = ["name"]
    keys += [key for key in ("precision", "mode", "batch")
             if len({point[key] for point in points}) > 1]
    places = {tuple(point[key] for key in [*keys, "length"]) for point in points}
    if len(places) < len(points):
        keys.append("file")
    lines = {}
    for point in sorted(points, key=lambda point: point["length"]):
        lines.setdefault(", ".join(point[key] for key in keys), []).append(point)
    # In the order of the files.
    order = [", ".join(point[key] for key in keys) for point in points]
    return {label: lines[label] for label in dict.fromkeys(order)}


def looks(count):
    """Colour and marker of each of so many lines."""
    return [{"color": colour, "marker": MARKERS[i % len(MARKERS)] if count > FEW else "o"}
            for i, colour in enumerate((colours(COLOURS) * (count // COLOURS + 1))[:count])]


def draw_line(axes, line, key, look, **more):
    axes.plot([point["length"] for point in line], [point[key] for point in line],
              ms=5 if look["marker"] != "o" else 4, lw=1.6, **look, **more)


def draw_shade(axes, line, look):
    axes.fill_between(*([point[key] for point in line] for key in ("length", "median", "best")),
                      color=look["color"], alpha=0.15, lw=0)


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
    lines = lines_of([point for point in points if not point["pytorch"]])
    beside = lines_of([point for point in points if point["pytorch"]])
    many = len(lines) > FEW
    figure, (speed, memory) = plt.subplots(1, 2, figsize=(15, 6.5) if many else (13, 5),
                                           layout="constrained")
    for (label, line), look in zip(lines.items(), looks(len(lines))):
        dashes = {"ls": "--", "alpha": 0.6, "mfc": "none"}
        for axes, key in ((speed, "best"), (memory, "memory")):
            draw_line(axes, line, key, look, label=label)
            if label in beside:
                draw_line(axes, beside[label], key, look, **dashes)
        if not many:
            draw_shade(speed, line, look)
    lengths = sorted({point["length"] for point in points})
    finish(speed, "Tokens a second", shortened, 10, lengths)
    finish(memory, "Peak memory", memory_words, 2, lengths)
    common = [next(iter(values)) for key in ("mode", "precision", "batch")
              if len(values := {point[key] for point in points}) == 1]
    figure.suptitle("   ·   ".join(["bench", *common]), fontsize=13, fontweight="bold")
    handles, labels = speed.get_legend_handles_labels()
    if beside:
        handles.append(Line2D([], [], color="0.4", ls="--"))
        labels.append("PyTorch eager")
    if many:
        figure.legend(handles, labels, loc="outside right upper")
    else:
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
