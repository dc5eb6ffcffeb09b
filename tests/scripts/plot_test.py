"""scripts/plot.py reads what runs leave behind, whole or not, and draws it."""

import contextlib
import io
import json
import math
import pathlib
import sys
import tempfile
import unittest

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
        with self.assertRaisesRegex(SystemExit, "holds no training or validation step yet"):
            plot.Run(self.folder)
        with self.assertRaisesRegex(SystemExit, "No such file"):
            plot.Run(self.folder / "elsewhere")


if __name__ == "__main__":
    unittest.main()
