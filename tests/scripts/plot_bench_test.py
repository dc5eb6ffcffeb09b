"""scripts/plot_bench.py reads the answers of bench and bench_pytorch.py, and draws them."""

import contextlib
import io
import json
import math
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import plot_bench  # noqa: E402


def row(length, speed, **more):
    return {"attention": "t2", "length": length, "batch_size": 1, "mode": "train",
            "precision": "bf16", "tokens_per_s": speed, "tokens_per_s_median": speed and speed / 2,
            "peak_memory_bytes": speed and 1 << 28, **more}


def side(length, speed, **more):
    changed = row(length, speed, side="PyTorch eager", linear_attention="chunked", **more)
    del changed["attention"]
    return changed


class Answers(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.folder = pathlib.Path(directory.name)

    def write(self, name, rows):
        path = self.folder / name
        if name.endswith(".csv"):
            lines = [rows[0].keys(), *(each.values() for each in rows)]
            text = "".join(",".join("null" if word is None else str(word) for word in line) + "\n"
                           for line in lines)
        else:
            text = json.dumps({"rows": rows})
        path.write_text(text)
        return path

    def points(self, *files):
        return [point for file in files for point in plot_bench.read_rows(file)]

    def picture(self, *files):
        out = self.folder / "out.png"
        sys.argv = ["plot_bench.py", *map(str, files), "--out", str(out)]
        with contextlib.redirect_stdout(io.StringIO()) as said:
            self.assertEqual(plot_bench.main(), 0)
        self.assertEqual(said.getvalue(), f"{out}\n")
        self.assertEqual(out.read_bytes()[:8], b"\x89PNG\r\n\x1a\n")
        self.assertFalse(list(self.folder.glob("*.part")))

    def test_say_the_same_as_json_and_as_csv(self):
        rows = [row(512, 100.5), row(1024, None)]
        as_json, as_csv = (self.points(self.write(f"bench.{kind}", rows)) for kind in ("json", "csv"))
        for points in (as_json, as_csv):
            self.assertEqual([point["length"] for point in points], [512, 1024])
            self.assertEqual((points[0]["best"], points[0]["median"], points[0]["memory"]),
                             (100.5, 50.25, 1 << 28))
            self.assertTrue(math.isnan(points[1]["best"]))

    def test_of_several_files_make_one_line_an_attention(self):
        lines = plot_bench.lines_of(self.points(self.write("long.json", [row(1024, 3.0)]),
                                                self.write("short.csv", [row(64, 2.0), row(512, 1.0)])))
        self.assertEqual({label: [point["length"] for point in line] for label, line in lines.items()},
                         {"t2": [64, 512, 1024]})

    def test_are_told_apart_by_what_differs(self):
        first = self.write("first.json", [row(64, 2.0)])
        second = self.write("second.json", [row(64, 1.0)])
        self.assertEqual(list(plot_bench.lines_of(self.points(first, second))),
                         [f"t2, {first}", f"t2, {second}"])
        mixed = self.points(self.write("mixed.json", [row(64, 2.0), row(64, 1.0, precision="fp32"),
                                                      side(64, 1.0)]))
        self.assertEqual(list(plot_bench.lines_of(mixed)),
                         ["t2, bf16", "t2, fp32", "PyTorch eager, chunked, bf16"])

    def test_of_both_sides_are_two_lines_in_one_look(self):
        points = self.points(self.write("both.json", [
            row(64, 4.0, attention="pooled", causal=False, pytorch_tokens_per_s=2.0,
                pytorch_tokens_per_s_median=1.0, pytorch_peak_memory_bytes=1 << 20)]))
        self.assertEqual([(point["name"], point["pytorch"], point["best"], point["median"],
                           point["memory"]) for point in points],
                         [("pooled *", False, 4.0, 2.0, 1 << 28),
                          ("pooled *", True, 2.0, 1.0, 1 << 20)])

    def test_of_many_attentions_look_different(self):
        for count in (3, 18, 40):
            looks = plot_bench.looks(count)
            self.assertEqual(len({tuple(look.items()) for look in looks}), count)
        # Neighbours in the legend differ in both.
        for one, other in zip(looks, looks[1:]):
            self.assertNotEqual(one["color"], other["color"])
            self.assertNotEqual(one["marker"], other["marker"])

    def test_of_many_attentions_have_their_legend_beside_the_axes(self):
        names = [f"attention {i}" for i in range(18)]
        rows = [row(length, 1e6 / (i + length / 99), attention=name, pytorch_tokens_per_s=9e5 / length,
                    pytorch_tokens_per_s_median=1.0, pytorch_peak_memory_bytes=length << 18)
                for i, name in enumerate(names) for length in (512, 1024, 2048, 4096)]
        drawn = {}

        def keep(figure, out):
            figure.canvas.draw()
            legend, = figure.legends
            drawn["texts"] = [text.get_text() for text in legend.get_texts()]
            drawn["legend"] = legend.get_window_extent()
            drawn["axes"] = [axes.get_tightbbox() for axes in figure.axes]
            drawn["scales"] = {scale for axes in figure.axes
                               for scale in (axes.get_xscale(), axes.get_yscale())}
            drawn["lines"] = [len(axes.get_lines()) for axes in figure.axes]
            drawn["figure"] = figure.bbox

        with mock.patch.object(plot_bench, "save_picture", keep):
            plot_bench.draw(self.points(self.write("many.json", rows)), self.folder / "out.png")
        self.assertEqual(drawn["texts"], [*names, "PyTorch eager"])
        self.assertEqual(drawn["scales"], {"log"})
        self.assertEqual(drawn["lines"], [36, 36])
        for axes in drawn["axes"]:
            self.assertFalse(drawn["legend"].overlaps(axes))
        self.assertGreaterEqual(drawn["legend"].y0, drawn["figure"].y0)
        self.assertLessEqual(drawn["legend"].x1, drawn["figure"].x1)

    def test_are_drawn(self):
        self.picture(self.write("bench.csv", [row(64, 5000.0), row(16384, 400.0)]),
                     self.write("sides.json", [side(64, 1000.0), side(16384, None)]))
        self.picture(self.write("one.json", [row(512, 70.0)]))

    def test_without_figures_are_refused(self):
        for rows, reason in (([], "no rows to draw"), ([row(64, None)], "every side failed")):
            with self.assertRaisesRegex(SystemExit, reason):
                self.picture(self.write("none.json", rows))

    def test_of_another_program_are_refused_by_name(self):
        for text in ('{"rows": [{"length": 3}]}', '{"loss": 3}', "{", "a,b\n1,2\n"):
            other = self.folder / "other"
            other.write_text(text)
            with self.assertRaisesRegex(SystemExit, "plot_bench.py: .*other: not an answer of bench"):
                self.picture(other)
        with self.assertRaisesRegex(SystemExit, "absent: No such file"):
            self.picture(self.folder / "absent")


if __name__ == "__main__":
    unittest.main()
