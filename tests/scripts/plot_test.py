"""scripts/plot.py reads what runs leave behind, whole or not, and draws it."""

import argparse
import contextlib
import io
import json
import math
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import plot  # noqa: E402


def train_line(step, loss, layers=2):
    groups = ["all"] + [f"layers.{i}" for i in range(layers)]
    groups += [f"layers.{i}.{part}" for i in range(layers) for part in plot.PARTS]
    return {"kind": "train", "step": step, "tokens": step * 100, "loss": loss, "lr": 1e-3 / step,
            "grad_norm": 1.0 + step,
            "gradients": {g: {"norm": 0.5, "zero_share": 0.0, "mean": 0.5, "relative_std": 0.25}
                          for g in groups}}


class ARunDirectory(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.folder = pathlib.Path(directory.name) / "first"
        self.folder.mkdir()

    def write(self, lines, tail=""):
        text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
        (self.folder / "metrics.jsonl").write_text(text + tail)

    def picture(self, *extra):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            sys.argv = ["plot.py", str(self.folder), *map(str, extra)]
            self.assertEqual(plot.main(), 0)
        return pathlib.Path(said.getvalue().strip())

    def assert_png(self, path):
        self.assertEqual(path.read_bytes()[:8], b"\x89PNG\r\n\x1a\n")

    def test_is_read_by_kind_and_in_order(self):
        self.write([{"kind": "event", "step": 0, "name": "started", "message": ""},
                    train_line(1, 5.0), train_line(2, 4.5),
                    {"kind": "valid", "step": 2, "loss": 4.75}])
        run = plot.Run(self.folder)
        self.assertEqual([list(x) for x in run.column("train", "loss")], [[1, 2], [5.0, 4.5]])
        self.assertEqual([list(x) for x in run.column("valid", "loss")], [[2], [4.75]])
        self.assertEqual([list(x) for x in run.gradient("layers.1.q_proj", "relative_std")],
                         [[1, 2], [0.25, 0.25]])
        self.assertEqual(run.layers(), [0, 1])

    def test_may_end_in_a_torn_line(self):
        self.write([train_line(1, 5.0)], tail='{"kind": "train", "st')
        with contextlib.redirect_stderr(io.StringIO()) as complaints:
            self.assertEqual(len(plot.Run(self.folder).train), 1)
        self.assertEqual(complaints.getvalue(), "")

    def test_loses_only_a_damaged_line_and_says_so(self):
        self.write([train_line(1, 5.0), "{oops", train_line(3, 4.0)])
        with contextlib.redirect_stderr(io.StringIO()) as complaints:
            self.assertEqual([line["step"] for line in plot.Run(self.folder).train], [1, 3])
        self.assertIn("metrics.jsonl:2: not a JSON object", complaints.getvalue())

    def test_keeps_null_as_a_gap(self):
        self.write([train_line(1, 5.0), train_line(2, None), train_line(3, 3.0)])
        loss = plot.Run(self.folder).column("train", "loss")[1]
        self.assertTrue(math.isnan(loss[1]))
        self.assertEqual(list(plot.smoothed(loss, 3)), [5.0, 4.0, 3.0])
        self.assert_png(self.picture())

    def test_gets_its_picture_beside_the_metrics(self):
        self.write([train_line(step, 5.0 - step / 10) for step in range(1, 20)])
        self.assertEqual(self.picture(), self.folder / "plot.png")
        self.assert_png(self.folder / "plot.png")
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["metrics.jsonl", "plot.png"])

    def test_needs_no_gradients_and_no_validation(self):
        line = train_line(1, 5.0)
        del line["gradients"]
        self.write([line])
        self.assert_png(self.picture())

    def test_is_laid_over_others(self):
        self.write([train_line(step, 5.0) for step in range(1, 5)])
        second = self.folder.parent / "second"
        second.mkdir()
        (second / "metrics.jsonl").write_text(json.dumps(train_line(1, 4.0, layers=3)) + "\n")
        out = self.folder.parent / "both.png"
        self.assertEqual(self.picture(second, "--out", out), out)
        self.assert_png(out)

    def test_takes_the_place_of_a_picture_only(self):
        self.write([train_line(1, 4.0)])
        out = self.folder / "mine.txt"
        out.write_text("mine")
        with self.assertRaisesRegex(SystemExit, "mine.txt exists and is no PNG"):
            self.picture("--out", out)
        self.assertEqual(out.read_text(), "mine")
        out.write_text("")
        self.picture("--out", out)
        self.picture("--out", out)
        self.assert_png(out)

    def test_without_a_step_is_refused_by_name(self):
        self.write([{"kind": "event", "step": 0, "name": "started", "message": ""}])
        self.assertIn("metrics.jsonl holds no training or validation step yet", self.refused())
        self.assertIn("elsewhere: No such file", self.refused(self.folder / "elsewhere"))

    def refused(self, *extra):
        """What is said, in one line, with status 2."""
        with contextlib.redirect_stderr(io.StringIO()) as complaints, \
                self.assertRaises(SystemExit) as ended:
            self.picture(*extra)
        self.assertEqual(ended.exception.code, 2)
        self.assertEqual(complaints.getvalue().count("\n"), 1)
        return complaints.getvalue()


class SeveralRuns(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.folder = pathlib.Path(directory.name)

    def run_of(self, name, losses, seed=1, dim=8, first=10, lines=()):
        """A run that logged these losses at steps 10, 20, .."""
        folder = self.folder / name
        folder.mkdir()
        config = {"run_name": name, "model": {"dim": dim}, "train": {"seed": seed}}
        (folder / "config.json").write_text(json.dumps(config))
        steps = range(first, first + 10 * len(losses), 10)
        lines = [train_line(step, loss) for step, loss in zip(steps, losses)] + list(lines)
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return folder

    def drawn(self, *folders, log="", window=1):
        """The panels by name, as matplotlib has them."""
        groups = plot.grouped(plot.open_runs(folders))
        options = argparse.Namespace(log=log, window=window)
        figures = []
        with mock.patch.object(plot, "save_picture", lambda figure, out: figures.append(figure)):
            plot.draw(groups, pathlib.Path("unused.png"), options)
        self.addCleanup(plot.plt.close, figures[0])
        return {axes.get_title(loc="left"): axes for axes in figures[0].axes
                if axes.get_title(loc="left")}, figures[0]

    def legend(self, axes):
        return [text.get_text() for text in axes.get_legend().get_texts()]

    def test_of_several_seeds_are_one_line_in_a_band(self):
        panels, figure = self.drawn(self.run_of("a-1", [5.0, 4.0, 3.0], seed=1),
                                    self.run_of("a-2", [5.5, 4.5, 3.2], seed=2),
                                    self.run_of("b", [5.0, 4.8, 4.6], dim=16))
        loss = panels["Loss"]
        self.assertEqual(self.legend(loss), ["a (n = 2)", "b"])
        mean = next(line for line in loss.lines if line.get_label() == "a (n = 2)")
        self.assertEqual(list(mean.get_xdata()), [10, 20, 30])
        np.testing.assert_allclose(mean.get_ydata(), [5.25, 4.25, 3.1])
        self.assertEqual(len(loss.collections), 1)  # the one group that has a spread
        band = loss.collections[0].get_paths()[0].vertices
        np.testing.assert_allclose([band[:, 1].min(), band[:, 1].max()], [3.0, 5.5])
        self.assertEqual(figure.get_suptitle(), "a (n = 2) and b")

    def test_that_go_on_alone_do_not_move_the_mean(self):
        panels, _ = self.drawn(self.run_of("a-1", [5.0, 4.0], seed=1),
                               self.run_of("a-2", [5.0, 5.0, 9.0, 9.0], seed=2))
        lines = panels["Loss"].lines
        mean = next(line for line in lines if line.get_label() == "a (n = 2)")
        self.assertEqual(list(mean.get_ydata()), [5.0, 4.5])
        alone = [list(line.get_ydata()) for line in lines if line is not mean]
        self.assertEqual(alone, [[5.0, 9.0, 9.0]])

    def test_of_one_seed_twice_are_told(self):
        folders = self.run_of("a-1", [5.0]), self.run_of("a-2", [5.0])
        with contextlib.redirect_stderr(io.StringIO()) as complaints:
            plot.grouped(plot.open_runs(folders))
        self.assertIn("not all of different seeds", complaints.getvalue())

    def test_show_the_loss_after_the_first_steps(self):
        losses = [10.0] * 2 + [4.0 - step / 100 for step in range(98)]
        panels, _ = self.drawn(self.run_of("a", losses))
        low, high = panels["Loss"].get_ylim()
        self.assertLess(high, 4.5)
        self.assertLess(low, 3.03)
        panels, _ = self.drawn(self.run_of("b", [10.0, None]))  # nothing else to show
        self.assertLess(panels["Loss"].get_ylim()[0], 10.0)

    def test_have_logarithmic_axes_where_asked(self):
        folder = self.run_of("a", [5.0, 4.0, 3.0])
        for log, scales in (("", ("linear", "linear")), ("loss", ("linear", "log")),
                            ("steps", ("log", "linear")), ("both", ("log", "log"))):
            loss = self.drawn(folder, log=log)[0]["Loss"]
            self.assertEqual((loss.get_xscale(), loss.get_yscale()), scales)

    def test_have_no_panel_for_what_was_logged_once(self):
        panels, _ = self.drawn(self.run_of("a", [5.0]))
        self.assertEqual(list(panels), ["Loss"])
        (line,) = [line for line in panels["Loss"].lines if len(line.get_ydata())]
        self.assertEqual((list(line.get_ydata()), line.get_marker()), ([5.0], "o"))
        panels, _ = self.drawn(self.run_of("b", [5.0, 4.0]))  # one relative std that means anything
        self.assertEqual(list(panels), ["Loss", "Learning rate", "Gradient norm, before clipping",
                                        "Relative std by part, at the end"])
        panels, _ = self.drawn(self.run_of("c", [5.0, 4.0, 3.0]))
        self.assertIn("Gradient norm, relative std over the steps", panels)

    def test_in_great_number_have_a_legend_below(self):
        folders = [self.run_of(f"settings-{'x' * 50}-{i}", [5.0, 4.0 + i], dim=i) for i in range(12)]
        panels, figure = self.drawn(*folders)
        self.assertIsNone(panels["Loss"].get_legend())
        labels = [text.get_text() for text in figure.legends[0].get_texts()]
        self.assertEqual(len(set(labels)), 12)
        self.assertLessEqual(max(map(len, labels)), plot.LONGEST_LABEL)
        self.assertEqual(figure.get_suptitle(), "12 runs")


if __name__ == "__main__":
    unittest.main()
