"""scripts/bench_pytorch.py measures the same model on both sides, and says why where it cannot."""

import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts/bench_pytorch.py"
PROGRAM = os.environ.get("TRANSNORMER_PROGRAM", ROOT / "build/transnormer")
sys.path.insert(0, str(ROOT / "scripts"))
import bench_pytorch  # noqa: E402
import pytorch_attentions  # noqa: E402
import pytorch_model  # noqa: E402
import pytorch_parts  # noqa: E402
import pytorch_worker  # noqa: E402


def run(*arguments):
    """(exit status, what it said on stdout, and on stderr)."""
    done = subprocess.run([sys.executable, SCRIPT, *map(str, arguments)], capture_output=True,
                          text=True)
    return done.returncode, done.stdout, done.stderr


class FakeSide:
    """A side whose turns are known beforehand."""

    def __init__(self, name, *turns, linear_attention=None, precision="bf16", weight_speeds=()):
        self.name, self.turns, self.linear_attention = name, list(turns), linear_attention
        self.case = {"length": 512, "batch_size": 8, "mode": "train", "precision": precision}
        self.weight_speeds, self.closed = weight_speeds, False

    def turn(self):
        turn = self.turns.pop(0)
        if isinstance(turn, str):
            raise bench_pytorch.Fault(turn)
        return turn

    def close(self):
        self.closed = True


def measure(*sides, rounds=2):
    with contextlib.redirect_stderr(io.StringIO()) as said:
        rows = bench_pytorch.measure(sides, rounds, 64)
    return rows, said.getvalue().splitlines()


class Measuring(unittest.TestCase):
    def test_lets_the_sides_take_turns(self):
        ours, theirs = FakeSide("ours", (2, 1, 1), (2, 1, 1)), FakeSide("theirs", (1, 1, 1), (1, 1, 1))
        said = measure(ours, theirs)[1]
        self.assertEqual([line.split(": ")[1] for line in said], ["ours", "theirs"] * 2)
        self.assertTrue(ours.closed and theirs.closed)

    def test_counts_the_best_and_divides_ours_by_theirs(self):
        rows, _ = measure(FakeSide("ours", (300, 200, 7), (290, 100, 9)),
                          FakeSide("theirs", (100, 90, 5), (150, 80, 4), linear_attention="chunked"))
        self.assertEqual([rows[0][key] for key in ("tokens_per_s", "tokens_per_s_median",
                                                   "peak_memory_bytes", "ratio", "error")],
                         [300, 150, 9, None, None])
        self.assertEqual([rows[1][key] for key in ("tokens_per_s", "tokens_per_s_median", "ratio",
                                                   "linear_attention")], [150, 85, 2, "chunked"])

    def test_divides_within_a_case_and_by_the_first_of_theirs(self):
        rows, _ = measure(FakeSide("ours", (300, 1, 1)), FakeSide("theirs", (100, 1, 1)),
                          FakeSide("ours", (800, 1, 1), precision="fp32"),
                          FakeSide("theirs", (200, 1, 1), precision="fp32"), rounds=1)
        self.assertEqual([row["ratio"] for row in rows], [None, 3, None, 4])
        self.assertEqual([row["times_first"] for row in rows], [3, 1, 8, 2])

    def test_keeps_the_best_speeds_of_the_weights(self):
        speeds = [(10e9, 30e9), (20e9, 25e9)]
        rows, _ = measure(FakeSide("ours", (1, 1, 1), weight_speeds=speeds), rounds=1)
        self.assertEqual((rows[0]["products_bytes_per_s"], rows[0]["reading_bytes_per_s"]),
                         (20e9, 30e9))
        with contextlib.redirect_stdout(io.StringIO()) as said:
            bench_pytorch.show({"device": "cpu", "threads": 2, "parameters": 10, "rounds": 1,
                                "rows": rows})
        self.assertIn("products alone, bf16, batch 8: weights at 20.0 GB/s, 67% of reading "
                      "(30.0 GB/s)", said.getvalue())

    def test_goes_on_without_a_side_that_fails(self):
        failing = FakeSide("theirs", "out of memory")
        rows, said = measure(FakeSide("ours", (2, 2, 1), (2, 2, 1)), failing,
                             FakeSide("others", (1, 1, 1), (1, 1, 1)))
        self.assertEqual([row["error"] for row in rows], [None, "out of memory", None])
        self.assertEqual([row["ratio"] for row in rows], [None, None, 2])
        self.assertEqual(len(said), 5)

    def test_makes_one_row_of_both_sides_of_an_attention(self):
        rows, said = measure(FakeSide("ours", (300, 200, 7)), FakeSide("theirs", "out of memory"),
                             rounds=1)
        row = bench_pytorch.joined_row("pooled", False, *rows)
        self.assertEqual((row["attention"], row["causal"], row["tokens_per_s"], row["length"]),
                         ("pooled", False, 300, 512))
        self.assertEqual((row["pytorch_tokens_per_s"], row["ratio"], row["pytorch_error"]),
                         (None, None, "out of memory"))
        with contextlib.redirect_stdout(io.StringIO()) as said:
            bench_pytorch.show_attentions({"device": "cpu", "threads": 2, "rounds": 1, "rows": [row]})
        self.assertRegex(said.getvalue(), r"pooled \* +bf16 +512 +8 +300.0 +- +- +0 MiB +-\n"
                                          r"  PyTorch: out of memory\n\* both ways\n$")

    def test_takes_the_settings_that_the_config_has_for_an_attention(self):
        early, late = {"attention": "diag", "block": 32}, {"attention": "norm", "kernel": "elu"}
        config = {"model": {"variant": "t1", "early": early, "late": late, "layers": 3}}
        for name, expected in (("diag", early), ("norm", late), ("rfa", {"attention": "rfa"})):
            model = bench_pytorch.with_attention(config, name)["model"]
            self.assertEqual((model["early"], model["late"], model["layers"], model["variant"]),
                             (expected, expected, 3, "custom"))

    def test_knows_what_can_be_causal_and_what_is_linear(self):
        mix = {"attention": "mix", "first": {"attention": "softmax"}, "second": {"attention": "norm"}}
        for early, late, causal, linear in (
                ({"attention": "softmax"}, {"attention": "pooled"}, False, False),
                ({"attention": "diag"}, {"attention": "rfa"}, True, True), (mix, mix, True, True),
                ({"attention": "flash"}, {"attention": "flash"}, True, False)):
            self.assertEqual(pytorch_worker.description({"early": early, "late": late}),
                             {"causal": causal, "linear": linear})

    def test_shows_a_failed_side_with_its_reason_and_no_ratio(self):
        rows, _ = measure(FakeSide("ours", (2000, 2000, 1 << 30)), FakeSide("theirs", "out of memory"),
                          FakeSide("others", (1000, 800, 3 << 20)), rounds=1)
        with contextlib.redirect_stdout(io.StringIO()) as said:
            bench_pytorch.show({"device": "cpu", "threads": 2, "parameters": 10, "rounds": 1,
                                "rows": rows})
        _, _, ours, theirs, others = said.getvalue().splitlines()
        self.assertEqual(ours.split(), ["ours", "bf16", "512", "8", "2,000.0", "2,000.0", "1.00", "GiB", "2.00"])
        self.assertEqual(theirs.split(), ["theirs", "bf16", "512", "8", "out", "of", "memory", "-", "-"])
        self.assertEqual(others.split(), ["others", "bf16", "512", "8", "1,000.0", "800.0", "3", "MiB", "2.00",
                                          "1.00"])


class ChoosingAForm(unittest.TestCase):
    def test_times_both_at_the_shape_of_the_request(self):
        shapes = []

        def attention(q, k, v):
            shapes.append([list(x.shape) for x in (q, k, v)])
            return q + k + v

        forms = {form: attention for form in ("quadratic", "chunked")}
        with mock.patch.dict(pytorch_parts.FORMS, forms):
            seconds = pytorch_worker.attention_seconds(
                {"model": {"dim": 12, "heads": 2}, "batch_size": 3, "length": 50, "mode": "train",
                 "precision": "bf16", "device": "cpu", "threads": torch.get_num_threads()})
        self.assertEqual(seconds.keys(), {"quadratic", "chunked"})
        for shape in shapes:
            self.assertEqual(shape, [[3, 50, 2, 6]] * 3)


class AWorker(unittest.TestCase):
    def test_that_fails_says_why_in_a_few_words(self):
        worker = bench_pytorch.Worker({"task": "time", "device": "cpu"})
        self.addCleanup(worker.close)
        with self.assertRaisesRegex(bench_pytorch.Fault, "KeyError: 'threads'"):
            worker.hear()

    def test_that_is_killed_is_taken_to_have_run_out_of_memory(self):
        worker = bench_pytorch.Worker({"task": "choose", "device": "cpu"})
        self.addCleanup(worker.close)
        worker.process.kill()
        with self.assertRaisesRegex(bench_pytorch.Fault, "killed, most likely out of memory"):
            worker.hear()

    def test_knows_what_memory_that_is_refused_looks_like(self):
        with self.assertRaises(RuntimeError) as refused:
            torch.empty(1 << 60)
        self.assertEqual(pytorch_worker.words_for(refused.exception), "out of memory")

    def test_of_another_model_is_never_timed(self):
        worker = mock.Mock()
        worker.hear.return_value = {"tensors": {"embed.weight": [7, 4], "more": [1]}}
        case = {"length": 1, "batch_size": 1, "mode": "train", "precision": "fp32"}
        side = bench_pytorch.PyTorch({"compiled": False, "linear_attention": None, **case},
                                     {"embed.weight": [8, 4], "less": [1]})
        with mock.patch.object(bench_pytorch, "Worker", return_value=worker), \
                self.assertRaisesRegex(SystemExit, "not the same model: embed.weight, less, more"):
            side.turn()
        worker.say.assert_not_called()


class TheProgramsFaults(unittest.TestCase):
    def test_are_passed_on(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "program"
            program.write_text('#!/bin/sh\necho "model.dim: expected more" >&2\nexit 2\n')
            program.chmod(0o755)
            self.assertEqual(run("some.json", "--transnormer", program),
                             (2, "", "model.dim: expected more\n"))

    def test_say_how_to_get_it_where_it_is_missing(self):
        status, _, said = run("some.json", "--transnormer", "/nonesuch/transnormer")
        self.assertEqual(status, 1)
        self.assertRegex(said, "^bench_pytorch.py: /nonesuch/transnormer: No such file.*build.sh")


@unittest.skipUnless(pathlib.Path(PROGRAM).exists(), f"{PROGRAM} is not built")
class BesideTheProgram(unittest.TestCase):
    SMALL = ["layers=3", "dim=32", "heads=2", "vocab_size=100"]

    def test_every_kind_of_model_has_the_programs_tensors(self):
        diag_rms = '{"attention":"diag","score":"relu","output_norm":"rms"}'
        for settings in (["variant=t1"], ["variant=t2"], ["variant=transformer"],
                         ["variant=custom", "early_layers=2", f"early={diag_rms}", "norm=rms",
                          "ffn=mlp", "ffn_dim=40", "position=learned", "norm_placement=post",
                          "tie_embeddings=false"],
                         ["variant=t2", "output_bias=true", "embed_norm=layer"]):
            with self.subTest(settings=settings):
                sets = [word for setting in [*settings, *self.SMALL]
                        for word in ("--set", "model." + setting)]
                config, inspected = (
                    json.loads(subprocess.check_output([PROGRAM, *words, "--json", *sets]))
                    for words in (["config", "show", ROOT / "configs/tiny.json"],
                                  ["inspect", ROOT / "configs/tiny.json"]))
                with torch.device("meta"):
                    model = pytorch_model.TransNormer(config["model"], inspected["vocab_size"],
                                                      config["data"]["tokens_per_sample"])
                self.assertEqual(
                    {name: list(value.shape) for name, value in model.state_dict().items()},
                    {tensor["name"]: tensor["shape"] for tensor in inspected["tensors"]})

    def test_is_measured_at_each_length(self):
        sets = [word for setting in self.SMALL for word in ("--set", "model." + setting)]
        status, answer, said = run(ROOT / "configs/tiny.json", *sets, "--lengths", "16,80",
                                   "--batch-size", "2", "--precision", "bf16", "--rounds", "1",
                                   "--repeat", "1", "--no-compiled", "--linear-attention", "chunked",
                                   "--device", "cpu", "--transnormer", PROGRAM, "--json")
        self.assertEqual(status, 0, said)
        rows = json.loads(answer)["rows"]
        self.assertEqual([(row["side"], row["length"]) for row in rows],
                         [("transnormer", 16), ("PyTorch eager", 16),
                          ("transnormer", 80), ("PyTorch eager", 80)])
        for row in rows:
            self.assertIsNone(row["error"])
            self.assertEqual((row["batch_size"], row["precision"], row["mode"]), (2, "bf16", "train"))
            self.assertGreaterEqual(row["tokens_per_s"], row["tokens_per_s_median"])
            self.assertGreater(row["peak_memory_bytes"], 10 << 20)
        for ours, theirs in zip(rows[::2], rows[1::2]):
            self.assertAlmostEqual(theirs["ratio"], ours["tokens_per_s"] / theirs["tokens_per_s"])

    def test_every_attention_of_the_program_has_its_tensors(self):
        refused = set()
        own = {"linformer": {"rank": 8}}  # no more than there are tokens
        for name in pytorch_attentions.ATTENTIONS:
            for causal in ("true", "false"):
                settings = json.dumps({"attention": name} | own.get(name, {}))
                sets = [word for setting in [*self.SMALL, "variant=custom", f"early={settings}",
                                             f"late={settings}", f"causal={causal}"]
                        for word in ("--set", "model." + setting)]
                config = json.loads(subprocess.check_output(
                    [PROGRAM, "config", "show", ROOT / "configs/tiny.json", "--json", *sets],
                    stderr=subprocess.DEVNULL))
                inspect = subprocess.run(
                    [PROGRAM, "inspect", ROOT / "configs/tiny.json", "--json", *sets],
                    capture_output=True, text=True)
                if inspect.returncode:
                    self.assertIn("cannot be causal", inspect.stderr)
                    self.assertEqual(causal, "true")
                    refused.add(name)
                    continue
                inspected = json.loads(inspect.stdout)
                with self.subTest(attention=name, causal=causal), torch.device("meta"):
                    model = pytorch_model.TransNormer(config["model"], inspected["vocab_size"],
                                                      config["data"]["tokens_per_sample"])
                    self.assertEqual(
                        {name: list(value.shape) for name, value in model.state_dict().items()},
                        {tensor["name"]: tensor["shape"] for tensor in inspected["tensors"]})
        self.assertEqual(refused, {"linformer", "nystromformer", "pooled"})

    def test_attentions_are_measured_beside_eager_pytorch(self):
        sets = [word for setting in self.SMALL for word in ("--set", "model." + setting)]
        status, answer, said = run(ROOT / "configs/tiny.json", *sets, "--attentions", "norm,softmax,t2",
                                   "--lengths", "16,80", "--batch-size", "2", "--rounds", "1",
                                   "--repeat", "1", "--linear-attention", "chunked", "--device",
                                   "cpu", "--transnormer", PROGRAM, "--json")
        self.assertEqual(status, 0, said)
        rows = json.loads(answer)["rows"]
        self.assertEqual([(row["attention"], row["length"], row["pytorch_linear_attention"])
                          for row in rows],
                         [("norm", 16, "chunked"), ("norm", 80, "chunked"), ("softmax", 16, None),
                          ("softmax", 80, None), ("t2", 16, "chunked"), ("t2", 80, "chunked")])
        for row in rows:
            self.assertTrue(row["causal"])
            self.assertEqual((row["error"], row["pytorch_error"]), (None, None))
            self.assertAlmostEqual(row["ratio"], row["tokens_per_s"] / row["pytorch_tokens_per_s"])
            self.assertGreater(row["peak_memory_bytes"], 10 << 20)
            self.assertGreater(row["pytorch_peak_memory_bytes"], 10 << 20)

    def test_unknown_attentions_are_the_programs_fault_to_word(self):
        status, answer, said = run(ROOT / "configs/tiny.json", "--attentions", "nonesuch",
                                   "--transnormer", PROGRAM)
        self.assertEqual((status, answer), (2, ""))
        self.assertRegex(said, "nonesuch")

    def test_attentions_are_not_decoded(self):
        status, _, said = run(ROOT / "configs/tiny.json", "--attentions", "norm", "--mode", "decode")
        self.assertEqual(status, 2)
        self.assertIn("--attentions: expected --mode train or infer, got decode", said)

    def test_decodes_in_each_type_and_batch_in_turn(self):
        sets = [word for setting in [*self.SMALL, "position=learned"]
                for word in ("--set", "model." + setting)]
        status, answer, said = run(ROOT / "configs/tiny.json", *sets, "--mode", "decode",
                                   "--lengths", "20", "--batch-size", "1,3", "--rounds", "1",
                                   "--repeat", "1", "--device", "cpu", "--transnormer", PROGRAM,
                                   "--json")
        self.assertEqual(status, 0, said)
        rows = json.loads(answer)["rows"]
        self.assertEqual([(row["side"], row["precision"], row["batch_size"]) for row in rows],
                         [(side, precision, batch) for precision in ("fp32", "bf16")
                          for batch in (1, 3) for side in ("transnormer", "PyTorch eager")])
        for row in rows:
            self.assertIsNone(row["error"])
            self.assertEqual((row["length"], row["mode"]), (20, "decode"))
            self.assertAlmostEqual(row["times_first"],
                                   row["tokens_per_s"] / rows[1]["tokens_per_s"])
        for ours in rows[::2]:
            self.assertGreater(ours["products_bytes_per_s"], 0)
            self.assertGreater(ours["reading_bytes_per_s"], 0)


if __name__ == "__main__":
    unittest.main()
