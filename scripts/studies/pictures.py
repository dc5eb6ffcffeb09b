"""The PNGs of a study, in the manner of scripts/plot.py."""

import statistics

import numpy as np

from plot import STYLE, add_perplexity_axis, colours, number, plt, save_picture, shortened, smoothed
from plot_bench import draw as draw_bench
from plot_bench import read_rows
from studies.results import answer, metrics_of
from studies.runs import write_record


def draw_all(results, out):
    """Draws what there is to draw; the files, in the order they are to be shown."""
    study = results.study
    done = [each for each in results.outcomes if each.figures]
    if not done:
        return []
    plt.rcParams.update(STYLE)
    if study.measure == "speed":
        return [draw_speed(results, done, mode, out / f"{mode}.png") for mode in study.bench.modes
                if any(each.job.mode == mode for each in done)]
    pictures = [draw_figures(results, out / "figures.png")]
    if study.measure == "gradients":
        pictures.append(draw_curves(results, out / "gradients.png", gradient_curve,
                                    "Gradient norm, relative std over the updates so far", "update"))
    if study.measure == "dilution":
        pictures.append(draw_curves(results, out / "dilution.png", dilution_curve,
                                    "Attention inside a window around each token",
                                    "length of the window, as a share of the sequence"))
    return [*pictures, draw_curves(results, out / "training.png", loss_curve,
                                   "Training loss, nats a token", "update")]


def draw_figures(results, out):
    """Each row's mean, spread and seeds in the first column, beside what is published."""
    study, column = results.study, results.columns[0]
    rows = list(study.rows)[::-1]
    published = any(is_figure(row.published.get(column.key)) for row in rows)
    figure, panels = plt.subplots(1, 2 if published else 1, sharey=True, squeeze=False,
                                  figsize=(11 if published else 7, 1.6 + 0.5 * len(rows)),
                                  layout="constrained")
    figure.suptitle(study.title, fontsize=13, fontweight="bold")
    here = panels[0][0]
    here.set_title(f"{column.label}, here")
    here.set_yticks(range(len(rows)), [row.label for row in rows])
    here.set_ylim(-0.6, len(rows) - 0.4)
    for place, row in enumerate(rows):
        draw_row(here, place, results.cells[row.name, column.key], colour_of(study, row))
    if published:
        draw_published(panels[0][1], rows, column, study)
    for axes in panels[0]:
        axes.set_xlabel(f"{column.better} is better")
    save_picture(figure, out)
    return out


def draw_row(axes, place, cell, colour):
    if cell.mean is None:
        words = cell.reason or "not run"
        axes.text(0.5, place, words, transform=axes.get_yaxis_transform(), va="center",
                  ha="center", color="#888888")
        return
    axes.plot(cell.values, [place] * len(cell.values), "o", color=colour, ms=4, alpha=0.45)
    axes.errorbar(cell.mean, place, xerr=cell.spread, fmt="D", color=colour, ms=6, capsize=4)


def draw_published(axes, rows, column, study):
    axes.set_title(f"{study.published['source']}, published")
    for place, row in enumerate(rows):
        value = row.published.get(column.key)
        if is_figure(value):
            axes.plot(value, place, "D", color=colour_of(study, row), ms=6)
    values = [row.published[column.key] for row in rows
              if is_figure(row.published.get(column.key))]
    if max(values) > 5 * min(values):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(shortened)
        axes.xaxis.set_minor_formatter(shortened)


def is_figure(value):
    return isinstance(value, (int, float))


def colour_of(study, row):
    return colours(len(study.rows))[study.rows.index(row)]


def draw_curves(results, out, curve, title, across):
    """One line a row: the mean over the seeds, the shade from the least to the greatest."""
    study = results.study
    figure, axes = plt.subplots(figsize=(8.5, 5.2), layout="constrained")
    axes.set_title(title)
    axes.set_xlabel(across)
    for row in study.rows:
        mine = [curve(each.job) for each in results.outcomes if each.job.row is row and each.figures]
        if mine:
            draw_curve(axes, mine, colour_of(study, row), row.label)
    if curve is loss_curve:
        leave_out_the_start(axes)
        add_perplexity_axis(axes)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    save_picture(figure, out)
    return out


def leave_out_the_start(axes):
    """The fall of the first updates would leave no room for what tells the rows apart."""
    lines = [line.get_ydata() for line in axes.lines]
    top, bottom = max(line[len(line) // 10] for line in lines), min(min(line) for line in lines)
    room = 0.05 * (top - bottom)
    if room > 0:
        axes.set_ylim(bottom - room, top + room)


def draw_curve(axes, curves, colour, label):
    points = min(len(values) for _, values in curves)
    across = curves[0][0][:points]
    columns = list(zip(*(values[:points] for _, values in curves)))
    axes.plot(across, [sum(column) / len(column) for column in columns], color=colour, lw=1.6,
              label=label)
    if len(curves) > 1:
        axes.fill_between(across, [min(column) for column in columns],
                          [max(column) for column in columns], color=colour, alpha=0.15, lw=0)


def loss_curve(job):
    lines = metrics_of(job)
    loss = np.array([number(line.get("loss")) for line in lines])
    return [line["step"] for line in lines], list(smoothed(loss, max(1, len(loss) // 40)))


def gradient_curve(job):
    lines = [line for line in metrics_of(job) if line.get("gradients")]
    return ([line["step"] for line in lines],
            [number(line["gradients"]["all"]["relative_std"]) for line in lines])


def dilution_curve(job):
    found = answer(job, "dilution")
    return found["shares"], found["mean"]["curve"]


def draw_speed(results, done, mode, out):
    """As plot_bench.py draws it, from an answer of bench that is kept beside the picture."""
    rows = []
    for row in results.study.rows:
        for length in results.study.bench.lengths:
            rounds = [each for each in done if each.job.row is row and each.job.mode == mode
                      and each.job.length == length]
            if rounds:
                rows.append(bench_row(row, mode, length, rounds, results.study.bench.batch_size))
    file = out.with_suffix(".json")
    write_record(file, {"rows": rows})
    draw_bench(read_rows(file), out)
    return out


def bench_row(row, mode, length, rounds, batch_size):
    """The best round and the median one, in the terms of bench."""
    key = f"{mode} {length}"
    speeds = sorted(each.figures[key] * length * batch_size for each in rounds)
    memory = min(each.figures[f"{key} memory"] for each in rounds)
    return {"attention": row.label, "length": length, "batch_size": batch_size, "mode": mode,
            "precision": rounds[0].facts["precision"], "tokens_per_s": speeds[-1],
            "tokens_per_s_median": statistics.median(speeds),
            "peak_memory_bytes": round(memory * 2**20)}
