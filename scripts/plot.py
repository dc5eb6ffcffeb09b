"""Draws loss, learning rate and gradient statistics of one or several runs into one PNG.

usage: plot.py RUN.. [--out FILE] [--smooth N] [--log AXIS]

RUN is a run directory (or its metrics.jsonl), finished or in progress. One run is drawn layer by
layer; several are laid over each other. Those that differ in their seed only are one line: their
mean, over the steps that all of them have logged, in a band from the least to the greatest; where
some go on alone, they are thin lines. Not-a-number is a gap. The loss axis shows what comes after
the first steps. What was not logged, or once only where a curve is wanted, has no panel.
"""

import argparse
import math
import os
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")  # no display is needed
import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402
from matplotlib.lines import Line2D  # noqa: E402
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator  # noqa: E402

from run_files import Group, Run, RunError, grouped, number, open_runs, refuse  # noqa: E402, F401

FEW = 5  # groups whose legend has room beside their curves
LONGEST_LABEL = 40
LEGEND_WIDTH = 190  # letters below the picture
FIRST_SHARE = 0.05  # of the steps: what the limits of the loss do not care for
PARTS = ["q_proj", "k_proj", "v_proj", "out_proj", "ffn"]
TRAIN_COLOUR, VALID_COLOUR = "#2f6db3", "#d1592a"
STYLE = {
    "font.size": 10, "axes.titlesize": 11, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True,
    "grid.color": "#e4e4e4", "legend.frameon": False, "legend.fontsize": 9, "figure.dpi": 130,
}


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
    """As many as there are runs, told apart by hue; more than 20 by shades of a spectrum."""
    if count > 20:
        return list(plt.get_cmap("turbo")(np.linspace(0.03, 0.97, count)))
    return [plt.get_cmap("tab10" if count <= 10 else "tab20")(i % 20) for i in range(count)]


def depth_colours(layers):
    """Early layers dark, late layers light."""
    return plt.get_cmap("viridis")(np.linspace(0, 0.88, max(len(layers), 1)))


def shared_steps(curves):
    """(steps, values a curve) at the steps where each has a number."""
    known = [dict(zip(steps[~np.isnan(values)], values[~np.isnan(values)])) for steps, values in curves]
    steps = sorted(set.intersection(*(set(curve) for curve in known))) if known else []
    return np.array(steps), np.array([[curve[step] for step in steps] for curve in known])


def draw_curve(axes, steps, values, **style):
    """A line; a lone point is a dot, since a line would not show it."""
    if np.count_nonzero(~np.isnan(values)) == 1:
        style = style | {"marker": "o", "ms": max(style.get("ms", 0), 4)}
    axes.plot(steps, values, **style)


def draw_group(axes, curves, colour, label=None, bars=False, **style):
    """One curve as it is; several as their mean in a band, or with bars, from the least to the
    greatest."""
    if len(curves) == 1:
        draw_curve(axes, *curves[0], color=colour, label=label, **style)
        return
    steps, values = shared_steps(curves)
    if len(steps):
        least, greatest = values.min(axis=0), values.max(axis=0)
        draw_curve(axes, steps, values.mean(axis=0), color=colour, label=label, **style)
        if bars:
            axes.vlines(steps, least, greatest, color=colour, lw=1)
        else:
            axes.fill_between(steps, least, greatest, color=colour, alpha=0.18, lw=0)
    end = steps[-1] if len(steps) else -math.inf
    for alone, value in curves:
        beyond = alone >= end
        if np.count_nonzero(beyond) > 1:
            axes.plot(alone[beyond], value[beyond], color=colour, lw=0.7, alpha=0.7,
                      label=None if len(steps) else label)
            label = label if len(steps) else None


def label_of(group):
    name = group.label
    if len(name) > LONGEST_LABEL:  # what tells names apart may stand at their end
        name = name[:LONGEST_LABEL // 2 - 1] + "…" + name[-LONGEST_LABEL // 2:]
    return name if len(group.runs) == 1 else f"{name} (n = {len(group.runs)})"


def draw_loss(axes, groups, options):
    axes.set_title("Loss")
    axes.set_ylabel("nats a token")
    window = options.window
    single = only_run(groups)
    if single:
        draw_loss_of_one(axes, single, window)
    else:
        for group, colour in zip(groups, colours(len(groups))):
            train = [smoothed_curve(run.column("train", "loss"), window) for run in group.runs]
            draw_group(axes, train, colour, label_of(group), lw=1.6)
            valid = [run.column("valid", "loss") for run in group.runs]
            draw_group(axes, valid, colour, bars=True, marker="o", ls="--", ms=4, lw=1.2)
    set_loss_limits(axes, groups, options)
    add_perplexity_axis(axes)


def draw_loss_of_one(axes, run, window):
    steps, loss = run.column("train", "loss")
    if window > 1:
        axes.plot(steps, loss, color=TRAIN_COLOUR, alpha=0.25, lw=0.8)
    label = "training" + (f" (mean of {window} points)" if window > 1 else "")
    draw_curve(axes, steps, smoothed(loss, window), color=TRAIN_COLOUR, lw=1.6, label=label)
    steps, loss = run.column("valid", "loss")
    draw_curve(axes, steps, loss, marker="o", color=VALID_COLOUR, ms=4, lw=1.2,
               label="validation" if len(steps) else None)
    if len(loss) and not np.isnan(loss[-1]):
        axes.annotate(f"perplexity {math.exp(min(loss[-1], 700)):,.1f}", (steps[-1], loss[-1]),
                      xytext=(-4, 10), textcoords="offset points", ha="right", color=VALID_COLOUR)
    axes.legend()


def smoothed_curve(curve, window):
    steps, values = curve
    return steps, smoothed(values, window)


def set_loss_limits(axes, groups, options):
    """What comes after the first steps fills the panel; they, and single peaks, may leave it."""
    if options.log in ("loss", "both"):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(shortened)
        axes.yaxis.set_minor_formatter(shortened)
    low, high = math.inf, -math.inf
    for run in (run for group in groups for run in group.runs):
        for kind in ("train", "valid"):
            steps, loss = run.column(kind, "loss")
            if kind == "train":
                loss = smoothed(loss, options.window)
            later = loss[(steps > FIRST_SHARE * run.steps()) & np.isfinite(loss)]
            later = later if len(later) > 1 else loss[np.isfinite(loss)]
            if len(later):
                low, high = min(low, later.min()), max(high, np.quantile(later, 0.95))
    if math.isfinite(low) and high > low:
        margin = 0.06 * (high - low)
        axes.set_ylim(max(low - margin, 0.5 * low), high + margin)


def add_perplexity_axis(axes):
    """The same loss, read as perplexity, on the right."""
    low, high = axes.get_ylim()
    right = axes.twinx()
    right.set_yscale(axes.get_yscale())
    right.set_ylim(low, high)
    ticks = perplexity_ticks(low, high)
    right.set_yticks([math.log(tick) for tick in ticks], [shortened(tick) for tick in ticks])
    right.yaxis.set_minor_locator(NullLocator())
    right.set_ylabel("perplexity")
    right.grid(False)
    right.spines["right"].set_visible(True)


def perplexity_ticks(low, high):
    """1, 2, 5 times powers of ten; finer where few of them are in sight."""
    for steps in ((1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9), [x / 10 for x in range(10, 100)]):
        ticks = [m * 10**e for e in range(9) for m in steps if low <= math.log(m * 10**e) <= high]
        if len(ticks) >= 3:
            return ticks[::1 + len(ticks) // 12]
    return ticks


def draw_learning_rate(axes, groups, _):
    axes.set_title("Learning rate")
    for group, colour in zip(groups, colours_of(groups)):
        draw_group(axes, [run.column("train", "lr") for run in group.runs], colour, lw=1.6)
    axes.set_ylim(bottom=0)
    axes.ticklabel_format(axis="y", style="sci", scilimits=(-3, 3))


def draw_gradient_norm(axes, groups, options):
    axes.set_title("Gradient norm, before clipping")
    window = options.window
    if run := only_run(groups):
        layers = run.layers()
        for layer, colour in zip(layers, depth_colours(layers)):
            steps, norm = run.gradient(f"layers.{layer}", "norm")
            fewer = window * len(norm) // len(run.train)  # points, over as many steps
            draw_curve(axes, steps, smoothed(norm, fewer), color=colour, lw=1.2, label=f"layer {layer}")
        steps, norm = run.column("train", "grad_norm")
        draw_curve(axes, steps, smoothed(norm, window), color="black", lw=1.8, label="whole model")
    else:
        for group, colour in zip(groups, colours(len(groups))):
            norms = [smoothed_curve(run.column("train", "grad_norm"), window) for run in group.runs]
            draw_group(axes, norms, colour, lw=1.4)
    set_log_scale(axes)


def set_log_scale(axes):
    """With as many ticks as the range needs."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high > 12 * low else range(1, 10)))
    axes.yaxis.set_major_formatter(shortened)
    axes.yaxis.set_minor_formatter(NullFormatter())


def relative_std(run, group):
    """Over the steps so far; that of the first one alone, 0, tells nothing."""
    steps, values = run.gradient(group, "relative_std")
    return steps[1:], values[1:]


def draw_relative_std(axes, groups, _):
    axes.set_title("Gradient norm, relative std over the steps")
    if run := only_run(groups):
        layers = run.layers()
        for layer, colour in zip(layers, depth_colours(layers)):
            draw_curve(axes, *relative_std(run, f"layers.{layer}"), color=colour, lw=1.2,
                       label=f"layer {layer}")
        draw_curve(axes, *relative_std(run, "all"), color="black", lw=1.8, label="whole model")
    else:
        for group, colour in zip(groups, colours(len(groups))):
            draw_group(axes, [relative_std(run, "all") for run in group.runs], colour, lw=1.4)
    axes.set_ylim(bottom=0)


def last_relative_std(run, group):
    values = relative_std(run, group)[1]
    values = values[~np.isnan(values)]
    return values[-1] if len(values) else math.nan


def draw_last_relative_std(axes, groups, _):
    """Where in the model the gradients are unsteady, at the last step."""
    if run := only_run(groups):
        draw_table_of_parts(axes, run)
        return
    axes.set_title("Relative std by layer, at the end")
    for group, colour in zip(groups, colours(len(groups))):
        curves = [(np.array(run.layers(), float), np.array([last_relative_std(run, f"layers.{layer}")
                                                           for layer in run.layers()]))
                  for run in group.runs]
        draw_group(axes, curves, colour, marker="o", lw=1.4, ms=4)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("layer")
    axes.xaxis.get_major_locator().set_params(integer=True)


def draw_table_of_parts(axes, run):
    layers = run.layers()
    axes.set_title("Relative std by part, at the end")
    table = np.array([[last_relative_std(run, f"layers.{layer}.{part}") for layer in layers]
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


def only_run(groups):
    """Whether there is but one run, which is then drawn in more detail."""
    return groups[0].runs[0] if len(groups) == 1 and len(groups[0].runs) == 1 else None


def colours_of(groups):
    return [TRAIN_COLOUR] if only_run(groups) else colours(len(groups))


def has_curve(columns):
    """Whether any of these has more than one number: what a panel over steps is worth."""
    return any(np.count_nonzero(np.isfinite(values)) > 1 for _, values in columns)


def panels_of(groups):
    """Beside the loss: what was logged often enough to be drawn."""
    runs = [run for group in groups for run in group.runs]
    panels = {}
    if has_curve(run.column("train", "lr") for run in runs):
        panels["lr"] = draw_learning_rate
    if has_curve(run.column("train", "grad_norm") for run in runs):
        panels["norm"] = draw_gradient_norm
    if has_curve(relative_std(run, "all") for run in runs):
        panels["std"] = draw_relative_std
    if any(not math.isnan(last_relative_std(run, f"layers.{layer}"))
           for run in runs for layer in run.layers()):
        panels["last"] = draw_last_relative_std
    return panels


def layout_of(panels):
    """The loss has the most room. Returns the mosaic and its size in inches."""
    others = list(panels)
    if not others:
        return [["loss"]], (9, 5.2)
    if len(others) == 1:
        return [["loss", "loss", others[0]]], (15, 5)
    if len(others) == 2:
        return [["loss", "loss", others[0]], ["loss", "loss", others[1]]], (15, 7.6)
    first = ["loss", "loss", others[0]] if len(others) == 4 else ["loss"] * 3
    return [first, others[-3:]], (15, 8.6)


def finish(axes, log):
    """Common marks of a panel over steps."""
    if axes.get_xlabel():
        return
    axes.set_xlabel("step")
    if log in ("steps", "both"):
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(shortened)


def title_of(groups):
    run = only_run(groups)
    if run is None:
        count = sum(len(group.runs) for group in groups)
        names = " and ".join(label_of(group) for group in groups)
        return names if len(groups) <= 2 else f"{count} runs" + (
            f" of {len(groups)} settings" if count > len(groups) else "")
    last = (run.train or run.valid)[-1]
    words = [run.name, f"step {last['step']:,}"]
    if isinstance(last.get("tokens"), int):
        words.append(f"{last['tokens']:,} tokens")
    return "   ·   ".join(words)


def add_legend(figure, panels, groups):
    """Layers of one run below the picture; runs inside the panel of the loss while they are few."""
    run = only_run(groups)
    if run:
        handles, labels = panels["norm"].get_legend_handles_labels() if "norm" in panels else ([], [])
        if 0 < len(run.layers()) <= 24 and handles:
            figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 13))
        return
    handles, labels = panels["loss"].get_legend_handles_labels()
    if any(run.valid for group in groups for run in group.runs):
        handles.append(Line2D([], [], color="#555555", marker="o", ms=4, ls="--"))
        labels.append("validation")
    if len(groups) <= FEW:
        panels["loss"].legend(handles, labels)
        return
    columns = max(1, min(len(labels), LEGEND_WIDTH // (4 + max(map(len, labels)))))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)


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


def draw(groups, out, options):
    plt.rcParams.update(STYLE)
    drawn = panels_of(groups)
    mosaic, size = layout_of(drawn)
    figure, panels = plt.subplot_mosaic(mosaic, figsize=size, layout="constrained")
    figure.suptitle(title_of(groups), fontsize=13, fontweight="bold")
    for name, draw_panel in {"loss": draw_loss, **drawn}.items():
        draw_panel(panels[name], groups, options)
        finish(panels[name], options.log)
    add_legend(figure, panels, groups)
    save_picture(figure, out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run directory or metrics.jsonl")
    parser.add_argument("--out", type=pathlib.Path,
                        help="the PNG (default: plot.png, in the run directory if there is one run)")
    parser.add_argument("--smooth", type=int, default=0, metavar="N",
                        help="mean of N logged points; 1 is off (default: by the run's length)")
    parser.add_argument("--log", choices=("loss", "steps", "both"), default="",
                        help="logarithmic axes")
    options = parser.parse_args()
    try:
        runs = open_runs(options.runs)
        for run in runs:
            if not run.train and not run.valid:
                raise RunError(f"{run.file} holds no training or validation step yet")
    except RunError as error:
        refuse(error)
    longest = max(len(run.train) for run in runs)
    options.window = options.smooth if options.smooth > 0 else max(1, longest // 50)
    out = options.out or (runs[0].folder if len(runs) == 1 else pathlib.Path()) / "plot.png"
    try:
        draw(grouped(runs), out, options)
    except OSError as error:
        refuse(f"{error.filename}: {error.strerror}")
    print(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
