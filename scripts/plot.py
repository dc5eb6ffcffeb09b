"""Draws loss, learning rate and gradient statistics of one or several runs into one PNG.

usage: plot.py RUN.. [--out FILE] [--smooth N]

RUN is a run directory (or its metrics.jsonl), finished or in progress. One run is drawn layer by
layer; several are laid over each other, a colour each. Not-a-number is a gap.
"""

import argparse
import json
import math
import os
import pathlib
import re
import sys

import matplotlib

matplotlib.use("Agg")  # no display is needed
import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402
from matplotlib.lines import Line2D  # noqa: E402
from matplotlib.ticker import LogLocator, NullFormatter  # noqa: E402

PARTS = ["q_proj", "k_proj", "v_proj", "out_proj", "ffn"]
TRAIN_COLOUR, VALID_COLOUR = "#2f6db3", "#d1592a"
STYLE = {
    "font.size": 10, "axes.titlesize": 11, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True,
    "grid.color": "#e4e4e4", "legend.frameon": False, "legend.fontsize": 9, "figure.dpi": 130,
}


class Run:
    """The metrics of one run: a list of dictionaries a kind, in order of steps."""

    def __init__(self, path):
        path = pathlib.Path(path)
        self.file = path / "metrics.jsonl" if path.is_dir() else path
        self.name = self.file.resolve().parent.name
        lines = read_lines(self.file)
        self.train = [line for line in lines if line.get("kind") == "train"]
        self.valid = [line for line in lines if line.get("kind") == "valid"]
        if not self.train and not self.valid:
            raise SystemExit(f"plot.py: {self.file} holds no training or validation step yet")

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


def read_lines(file):
    """The objects of a metrics file. Its last line may be torn while a run writes it."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise SystemExit(f"plot.py: {file}: {error.strerror}")
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
        except ValueError:
            if index < len(rows):  # the last row ends without a line end: still being written
                print(f"plot.py: {file}:{index}: not a JSON object, left out", file=sys.stderr)
    return lines


def number(value):
    return float(value) if isinstance(value, (int, float)) else math.nan


def smoothed(values, window):
    """The mean over the `window` points around each, of those that are numbers."""
    window = max(1, min(window, len(values)))
    if window == 1:
        return values
    known = ~np.isnan(values)
    kernel = np.ones(window)
    total = np.convolve(np.where(known, values, 0), kernel, "same")
    count = np.convolve(known, kernel, "same")
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(count > 0, total / count, np.nan)


def shortened(value, _=None):
    """1200 -> 1.2k."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def colours(count):
    """As many as there are runs, told apart by hue."""
    return [plt.get_cmap("tab10" if count <= 10 else "tab20")(i % 20) for i in range(count)]


def depth_colours(layers):
    """Early layers dark, late layers light."""
    return plt.get_cmap("viridis")(np.linspace(0, 0.88, max(len(layers), 1)))


def draw_loss(axes, runs, window):
    axes.set_title("Loss")
    axes.set_ylabel("nats a token")
    for run, colour in zip(runs, colours(len(runs))):
        single = len(runs) == 1
        steps, loss = run.column("train", "loss")
        main = TRAIN_COLOUR if single else colour
        if single and window > 1:
            axes.plot(steps, loss, color=main, alpha=0.25, lw=0.8)
        label = "training" + (f" (mean of {window} points)" if window > 1 else "")
        axes.plot(steps, smoothed(loss, window), color=main, lw=1.6, label=label if single else run.name)
        steps, loss = run.column("valid", "loss")
        axes.plot(steps, loss, "o--" if not single else "o-", color=VALID_COLOUR if single else colour,
                  ms=4, lw=1.2, label="validation" if single and len(steps) else None)
        if single and len(loss) and not np.isnan(loss[-1]):
            axes.annotate(f"perplexity {math.exp(min(loss[-1], 700)):,.1f}", (steps[-1], loss[-1]),
                          xytext=(-4, 10), textcoords="offset points", ha="right", color=VALID_COLOUR)
    handles, labels = axes.get_legend_handles_labels()
    if len(runs) > 1:
        handles.append(Line2D([], [], color="#555555", marker="o", ms=4, ls="--"))
        labels.append("validation")
    axes.legend(handles, labels)
    add_perplexity_axis(axes)


def add_perplexity_axis(axes):
    """The same loss, read as perplexity, on the right."""
    low, high = axes.get_ylim()
    ticks = [m * 10**e for e in range(9) for m in (1, 2, 5) if low <= math.log(m * 10**e) <= high]
    right = axes.twinx()
    right.set_ylim(low, high)
    right.set_yticks([math.log(tick) for tick in ticks], [shortened(tick) for tick in ticks])
    right.set_ylabel("perplexity")
    right.grid(False)
    right.spines["right"].set_visible(True)


def draw_learning_rate(axes, runs, _):
    axes.set_title("Learning rate")
    for run, colour in zip(runs, colours(len(runs))):
        axes.plot(*run.column("train", "lr"), lw=1.6, color=TRAIN_COLOUR if len(runs) == 1 else colour)
    axes.set_ylim(bottom=0)
    axes.ticklabel_format(axis="y", style="sci", scilimits=(-3, 3))


def draw_gradient_norm(axes, runs, window):
    axes.set_title("Gradient norm, before clipping")
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(shortened)
    axes.yaxis.set_minor_formatter(NullFormatter())
    if len(runs) == 1:
        run, layers = runs[0], runs[0].layers()
        for layer, colour in zip(layers, depth_colours(layers)):
            steps, norm = run.gradient(f"layers.{layer}", "norm")
            fewer = window * len(norm) // len(run.train)  # points, over as many steps
            axes.plot(steps, smoothed(norm, fewer), color=colour, lw=1.2, label=f"layer {layer}")
        steps, norm = run.column("train", "grad_norm")
        axes.plot(steps, smoothed(norm, window), color="black", lw=1.8, label="whole model")
        return
    for run, colour in zip(runs, colours(len(runs))):
        steps, norm = run.column("train", "grad_norm")
        axes.plot(steps, smoothed(norm, window), color=colour, lw=1.4)


def draw_relative_std(axes, runs, _):
    axes.set_title("Gradient norm, relative std over the steps")
    if len(runs) == 1:
        run, layers = runs[0], runs[0].layers()
        for layer, colour in zip(layers, depth_colours(layers)):
            axes.plot(*run.gradient(f"layers.{layer}", "relative_std"), color=colour, lw=1.2,
                      label=f"layer {layer}")
        axes.plot(*run.gradient("all", "relative_std"), color="black", lw=1.8, label="whole model")
    else:
        for run, colour in zip(runs, colours(len(runs))):
            axes.plot(*run.gradient("all", "relative_std"), color=colour, lw=1.4)
    axes.set_ylim(bottom=0)


def draw_last_relative_std(axes, runs, _):
    """Where in the model the gradients are unsteady, at the last step."""
    if len(runs) > 1:
        axes.set_title("Relative std by layer, at the end")
        for run, colour in zip(runs, colours(len(runs))):
            layers = run.layers()
            axes.plot(layers, [run.last(f"layers.{layer}", "relative_std") for layer in layers],
                      "o-", color=colour, lw=1.4, ms=4)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("layer")
        axes.xaxis.get_major_locator().set_params(integer=True)
        return
    run, layers = runs[0], runs[0].layers()
    axes.set_title("Relative std by part, at the end")
    table = np.array([[run.last(f"layers.{layer}.{part}", "relative_std") for layer in layers]
                      for part in PARTS]).reshape(len(PARTS), len(layers))
    axes.grid(False)
    if not layers or np.isnan(table).all():
        return
    picture = axes.imshow(table, aspect="auto", cmap="Oranges", vmin=0)
    axes.set_yticks(range(len(PARTS)), [part.removesuffix("_proj") for part in PARTS])
    every = 1 + len(layers) // 13
    axes.set_xticks(range(0, len(layers), every), layers[::every])
    axes.set_xlabel("layer")
    if len(layers) <= 12:
        for (row, column), value in np.ndenumerate(table):
            dark = value > 0.6 * np.nanmax(table)
            axes.text(column, row, "" if np.isnan(value) else f"{value:.2f}", ha="center",
                      va="center", fontsize=8, color="white" if dark else "#333333")
    else:
        axes.figure.colorbar(picture, ax=axes)


def finish(axes):
    """Common marks of a panel over steps, and what to say where nothing was logged."""
    if not axes.get_xlabel():
        axes.set_xlabel("step")
        axes.xaxis.set_major_formatter(shortened)
    drawn = any(np.isfinite(line.get_ydata()).any() for line in axes.lines if len(line.get_ydata()))
    if not drawn and not axes.images:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "not logged", transform=axes.transAxes, ha="center", color="#888888")


def title_of(runs):
    if len(runs) > 1:
        return f"{len(runs)} runs"
    run = runs[0]
    last = (run.train or run.valid)[-1]
    words = [run.name, f"step {last['step']:,}"]
    if isinstance(last.get("tokens"), int):
        words.append(f"{last['tokens']:,} tokens")
    return "   ·   ".join(words)


def is_replaceable(out):
    """A picture takes the place of an earlier one only, never of a file named by mistake."""
    if not out.is_file() or out.stat().st_size == 0:
        return True
    with open(out, "rb") as file:
        return file.read(8) == b"\x89PNG\r\n\x1a\n"


def save_picture(figure, out):
    """Appears whole or not at all."""
    if not is_replaceable(out):
        raise SystemExit(f"{pathlib.Path(sys.argv[0]).name}: {out} exists and is no PNG, so it is not "
                         "replaced; name another file")
    unfinished = out.with_name(f".{out.name}.part")
    figure.savefig(unfinished, format="png")
    plt.close(figure)
    os.replace(unfinished, out)


def draw(runs, out, window):
    plt.rcParams.update(STYLE)
    figure, panels = plt.subplot_mosaic([["loss", "loss", "lr"], ["norm", "std", "last"]],
                                        figsize=(15, 8.6), layout="constrained")
    figure.suptitle(title_of(runs), fontsize=13, fontweight="bold")
    for name, draw_panel in (("loss", draw_loss), ("lr", draw_learning_rate),
                             ("norm", draw_gradient_norm), ("std", draw_relative_std),
                             ("last", draw_last_relative_std)):
        draw_panel(panels[name], runs, window)
        finish(panels[name])
    if len(runs) == 1 and 0 < len(runs[0].layers()) <= 24:
        handles, labels = panels["std"].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 13))
    save_picture(figure, out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run directory or metrics.jsonl")
    parser.add_argument("--out", type=pathlib.Path,
                        help="the PNG (default: plot.png, in the run directory if there is one run)")
    parser.add_argument("--smooth", type=int, default=0, metavar="N",
                        help="mean of N logged points; 1 is off (default: by the run's length)")
    arguments = parser.parse_args()
    runs = [Run(path) for path in arguments.runs]
    longest = max(len(run.train) for run in runs)
    window = arguments.smooth if arguments.smooth > 0 else max(1, longest // 50)
    out = arguments.out or (runs[0].file.parent if len(runs) == 1 else pathlib.Path()) / "plot.png"
    try:
        draw(runs, out, window)
    except OSError as error:
        raise SystemExit(f"plot.py: {error.filename}: {error.strerror}")
    print(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
