"""scripts/compare.py tells what runs came to from their files alone, whole or torn."""

import csv
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts/compare.py"
PROGRAM = os.environ.get("TRANSNORMER_PROGRAM", str(ROOT / "build/transnormer"))


def train(step, speed=1000.0, loss=4.0):
    return {"kind": "train", "step": step, "loss": loss, "tokens_per_s": speed}


def valid(step, loss, best=True):
    return {"kind": "valid", "step": step, "loss": loss, "best": best,
            "perplexity": None if loss is None else 10 * loss}


def event(name, step=0):
    return {"kind": "event", "step": step, "event": name, "message": ""}


def rows_of(markdown):
    """The rows of a Markdown table as dictionaries by heading."""
    lines = [[cell.strip() for cell in line.strip("| \n").split(" |")]
             for line in markdown.strip().split("\n")]
    return [dict(zip(lines[0], line)) for line in lines[2:]]


class WithRuns(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.folder = pathlib.Path(directory.name)

    def run_of(self, name, lines, evals=None, tail="", **settings):
        """A run directory; settings by section."""
        folder = self.folder / name
        folder.mkdir(parents=True)
        config = {"run_name": name, "model": {"dim": 8}, "train": {"seed": 1}}
        for section, values in settings.items():
            config[section] = config.get(section, {}) | values
        (folder / "config.json").write_text(json.dumps(config))
        self.write(folder / "metrics.jsonl", lines, tail)
        if evals is not None:
            self.write(folder / "evals.jsonl", evals, '{"split": "te')
        return folder

    def write(self, file, lines, tail=""):
        file.write_text("".join(json.dumps(line) + "\n" for line in lines) + tail)

    def compare(self, *words, status=0):
        """(stdout, stderr)."""
        done = subprocess.run([sys.executable, str(SCRIPT), *map(str, words)], capture_output=True,
                              text=True, cwd=self.folder)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout, done.stderr

    def rows(self, *words):
        said, complained = self.compare(*words)
        self.assertEqual(complained, "")
        return rows_of(said)


class Runs(WithRuns):
    def test_are_told_with_their_best_validation_speed_steps_and_what_differs(self):
        self.run_of("wide", [event("started"), train(5, 900.0), train(10, 1000.0), train(15, 5000.0),
                             valid(10, 3.0), valid(20, 3.5, best=False), event("done")],
                    model={"dim": 16, "heads": 2}, train={"steps": 20})
        self.run_of("narrow", [event("started"), train(10, 2000.0), valid(10, 4.0)],
                    model={"heads": 2}, train={"steps": 20})
        self.assertEqual(self.rows("narrow", "wide"), [
            {"run": "wide", "valid loss": "3.0000", "valid perplexity": "30.00", "best step": "10",
             "tokens/s": "1,000", "steps": "20", "ended": "done", "model.dim": "16"},
            {"run": "narrow", "valid loss": "4.0000", "valid perplexity": "40.00", "best step": "10",
             "tokens/s": "2,000", "steps": "10", "ended": "unfinished", "model.dim": "8"}])

    def test_take_the_best_that_the_run_itself_named(self):
        # On another validation text the best starts anew.
        self.run_of("a", [valid(10, 1.0), valid(20, 3.0), valid(30, 3.5, best=False)])
        self.assertEqual(self.rows("a")[0]["best step"], "20")
        self.run_of("b", [valid(10, 5.0, best=False), valid(20, 4.0, best=False)])  # of a fork
        self.assertEqual(self.rows("b")[0]["best step"], "20")

    def test_tell_the_test_split_of_the_best_checkpoint_else_of_the_last(self):
        def answer(step, perplexity, split="test"):
            return {"split": split, "step": step, "word_perplexity": perplexity,
                    "token_perplexity": perplexity / 2}
        lines = [valid(10, 3.0), valid(20, 3.5, best=False)]
        self.run_of("best", lines, [answer(10, 90.0), answer(10, 80.0), answer(20, 70.0),
                                    answer(10, 60.0, "valid")], model={"dim": 1})
        self.run_of("last", lines, [answer(5, 50.0), answer(20, 70.0)], model={"dim": 2})
        self.run_of("other", lines, [answer(5, 50.0)], model={"dim": 3})
        self.run_of("null", lines, [answer(10, 50.0) | {"word_perplexity": None}], model={"dim": 4})
        said, complained = self.compare("best", "last", "other", "null")
        told = {row["run"]: (row["test word perplexity"], row["test token perplexity"])
                for row in rows_of(said)}
        self.assertEqual(told, {"best": ("80.00", "40.00"), "last": ("70.00", "35.00"),
                                "other": ("", ""), "null": ("", "25.00")})
        self.assertEqual(complained, "compare.py: last: the test perplexity is that of step 20, not of "
                                     "the best\n")

    def test_count_the_parameters_of_the_newest_whole_checkpoint(self):
        folder = self.run_of("a", [valid(10, 3.0)])
        for step, names in ((10, {"embed.weight": [100, 8], "layers.0.attn.features": [4, 4]}),
                            (20, None)):
            checkpoint = folder / f"checkpoints/step-{step:08d}"
            checkpoint.mkdir(parents=True)
            header = json.dumps({name: {"shape": shape} for name, shape in (names or {}).items()})
            whole = struct.pack("<Q", len(header)) + header.encode()
            (checkpoint / "model.safetensors").write_bytes(whole if names else whole[:4])
        self.assertEqual(self.rows("a")[0]["parameters"], "800")

    def test_may_be_torn_or_have_null_for_numbers(self):
        self.run_of("a", [train(5, None), valid(10, None, best=False)], tail='{"kind": "valid", "st')
        self.run_of("b", [], tail='{"kind"', model={"dim": 16})
        (self.folder / "c").mkdir()
        self.write(self.folder / "c/metrics.jsonl", [valid(10, 3.0)])  # no config.json
        rows = self.rows("a", "b", "c")
        self.assertEqual([row["run"] for row in rows], ["c", "a", "b"])
        self.assertEqual([row["steps"] for row in rows], ["10", "10", "0"])

    def test_without_metrics_yet_are_there(self):
        folder = self.run_of("a", [])
        (folder / "metrics.jsonl").unlink()
        self.assertEqual(self.rows("a")[0]["ended"], "unfinished")

    def test_that_are_none_are_refused_by_name(self):
        self.run_of("a", [valid(10, 3.0)])
        (self.folder / "cache").mkdir()
        said, complained = self.compare("a", "cache", "nowhere", status=2)
        self.assertEqual(said, "")
        self.assertEqual(complained.split("\n")[:-1], [
            "compare.py: cache: is no run directory: it has no metrics.jsonl",
            "compare.py: nowhere: No such file or directory"])

    def test_are_told_once_however_often_they_are_named(self):
        self.run_of("x/a", [valid(10, 3.0)])
        self.run_of("y/a", [valid(10, 4.0)], model={"dim": 16})
        self.assertEqual([row["run"] for row in self.rows("x/a", "y/a", "x/../x/a/")], ["x/a", "y/a"])

    def test_name_settings_that_not_all_configs_know(self):
        self.run_of("old", [valid(10, 3.0)])
        self.run_of("new", [valid(10, 4.0)], optimizer={"ema": 0.0})
        said, complained = self.compare("old", "new")
        self.assertNotIn("optimizer.ema", said)
        self.assertIn("not every run's config has them: optimizer.ema\n", complained)

    def test_that_differ_in_a_choice_are_told_apart_by_it_alone(self):
        self.run_of("a", [valid(10, 3.0)], model={"early": {"attention": "diag", "block": 8}})
        self.run_of("b", [valid(10, 4.0)], model={"early": {"attention": "sparse", "window": 8}})
        heads = list(self.rows("a", "b")[0])
        self.assertEqual([head for head in heads if "." in head], ["model.early.attention"])

    def test_are_sorted_as_asked(self):
        self.run_of("a", [train(1, 100.0), valid(10, 3.0)], model={"dim": 128})
        self.run_of("b", [train(1, 300.0), valid(10, 4.0)], model={"dim": 16})
        self.run_of("c", [train(1, 200.0)], model={"dim": 64})

        def order(*words):
            return "".join(row["run"] for row in self.rows("c", "b", "a", *words))
        self.assertEqual(order(), "abc")
        self.assertEqual(order("--sort", "tokens_per_s"), "bca")
        self.assertEqual(order("--sort", "model.dim"), "bca")
        self.assertEqual(order("--sort", "run"), "abc")
        _, complained = self.compare("a", "--sort", "speed", status=2)
        self.assertRegex(complained, "--sort speed: no column; one of run, n, ended, valid_loss")


class TestFigures(WithRuns):
    """Which line of evals.jsonl is taken, and what is told of it."""

    OWN = {"data": {"tokens_per_sample": 64}, "validation": {"context_window": 8}}

    def answer(self, perplexity, step=10, **others):
        return {"step": step, "checkpoint": f"step-{step:08d}", "model_sha256": "now",
                "weights": "raw", "split": "test", "text_digest": "0123456789abcdef",
                "precision": "fp32", "word_perplexity": perplexity, "token_perplexity": perplexity,
                "window": 64, "context_window": 8} | others

    def run_with(self, name, *answers, lines=(valid(10, 3.0),), **settings):
        return self.run_of(name, list(lines), answers, **self.OWN, **settings)

    def save(self, folder, step, digest):
        checkpoint = folder / f"checkpoints/step-{step:08d}"
        checkpoint.mkdir(parents=True)
        (checkpoint / "manifest.json").write_text(json.dumps(
            {"format": 1, "step": step, "files": {"model.safetensors": {"size": 1, "sha256": digest}}}))

    def told(self, *words):
        """(test word perplexity by run, stderr)."""
        said, complained = self.compare(*words)
        return {row["run"]: row.get("test word perplexity") for row in rows_of(said)}, complained

    def test_are_of_the_trained_weights_of_one_checkpoint(self):
        of_no_weights = self.answer(60.0)
        del of_no_weights["weights"]
        self.run_with("raw", self.answer(80.0), self.answer(70.0, weights="ema"),
                      self.answer(50.0, checkpoint="average"))
        self.run_with("older", self.answer(80.0), of_no_weights, model={"dim": 1})
        self.run_with("ema", self.answer(70.0, weights="ema"), model={"dim": 2})
        self.assertEqual(self.told("raw", "older", "ema"),
                         ({"raw": "80.00", "older": "60.00", "ema": ""}, ""))

    def test_are_the_newest_of_the_runs_own_window_where_there_are_such(self):
        self.run_with("a", self.answer(90.0), self.answer(80.0), self.answer(70.0, window=512),
                      self.answer(60.0, context_window=32))
        self.assertEqual(self.told("a"), ({"a": "80.00"}, ""))
        self.run_with("b", self.answer(70.0, window=512), self.answer(60.0, context_window=32))
        self.assertEqual(self.told("b"), ({"b": "60.00"}, ""))

    def test_that_were_measured_otherwise_are_told_by_run(self):
        self.run_with("a", self.answer(90.0))
        self.run_with("b", self.answer(80.0, window=512, context_window=0), model={"dim": 1})
        self.run_with("c", self.answer(70.0, precision="bf16", text_digest="f" * 64),
                      model={"dim": 2})
        unshown = self.answer(None, precision="fp16")
        self.run_with("d", unshown, model={"dim": 3})
        self.run_with("e", model={"dim": 4})
        figures, complained = self.told("a", "b", "c", "d", "e")
        self.assertEqual(figures, {"a": "90.00", "b": "80.00", "c": "70.00", "d": "", "e": ""})
        begin = "compare.py: the test perplexities are of different "
        self.assertEqual(complained.split("\n")[:-1], [
            begin + "windows: 64: a, c; 512: b",
            begin + "context windows: 8: a, c; 0: b",
            begin + "precisions: fp32: a, b; bf16: c",
            begin + "texts or tokenizers (text_digest): 0123456789ab: a, b; ffffffffffff: c"])

    def test_that_do_not_record_it_are_told_beside_those_that_do(self):
        older = {key: value for key, value in self.answer(80.0).items() if key != "precision"}
        self.run_with("a", self.answer(90.0))
        self.run_with("b", older, train={"seed": 2})  # in one row, too
        _, complained = self.told("a", "b")
        self.assertEqual(complained, "compare.py: the test perplexities are of different precisions: "
                                     "fp32: a; not recorded: b\n")

    def test_from_before_a_rewind_are_left_out(self):
        folder = self.run_with("a", self.answer(90.0, model_sha256="now"),
                               self.answer(50.0, model_sha256="before"))
        self.assertEqual(self.told("a"), ({"a": "50.00"}, ""))  # no checkpoint that says otherwise
        self.save(folder, 10, "now")
        self.assertEqual(self.told("a"), ({"a": "90.00"}, ""))

    def test_that_are_all_from_before_a_rewind_are_told(self):
        folder = self.run_with("a", self.answer(50.0, model_sha256="before"), self.answer(70.0, 20),
                               lines=[valid(10, 3.0), valid(20, 3.5, best=False)])
        self.save(folder, 10, "now")
        self.save(folder, 20, "now")
        self.assertEqual(self.told("a"), ({"a": "70.00"}, (
            "compare.py: a: eval's answers about step 10 are of other weights than that checkpoint has "
            "now, so they are left out; run eval again\n"
            "compare.py: a: the test perplexity is that of step 20, not of the best\n")))

    def test_are_there_beside_a_manifest_that_says_nothing(self):
        folder = self.run_with("a", self.answer(90.0))
        self.save(folder, 10, "now")
        manifest = folder / "checkpoints/step-00000010/manifest.json"
        for text in ("", "[]", '{"files": null}', '{"files": {}}'):
            manifest.write_text(text)
            self.assertEqual(self.told("a"), ({"a": "90.00"}, ""), text)


class Seeds(WithRuns):
    def three(self):
        for seed, loss in ((1, 3.0), (2, 4.0), (3, 5.0)):
            # Names, places, log and checkpoints make no other experiment.
            self.run_of(f"norm-seed{seed}", [valid(10 * seed, loss)], train={"seed": seed},
                        log={"every": seed}, data={"cache_dir": f"cache{seed}"})
        self.run_of("other", [valid(10, 4.5)], model={"dim": 16}, log={"every": 1},
                    data={"cache_dir": "c"})
        return ["norm-seed1", "norm-seed2", "norm-seed3", "other"]

    def test_of_one_setting_are_a_row_with_mean_and_deviation(self):
        self.assertEqual(self.rows(*self.three()), [
            {"run": "norm", "n": "3", "valid loss": "4.0000 ± 1.0000",
             "valid perplexity": "40.00 ± 10.00", "best step": "10 to 30", "steps": "10 to 30",
             "ended": "unfinished", "model.dim": "8", "train.seed": "1, 2, 3"},
            {"run": "other", "n": "1", "valid loss": "4.5000", "valid perplexity": "45.00",
             "best step": "10", "steps": "10", "ended": "unfinished", "model.dim": "16",
             "train.seed": "1"}])

    def heads_beside(self, **settings):
        """The columns of settings in the single row of two seeds, of which one has these settings."""
        defaults = {"train": {"seed": 1, "max_hours": 0, "threads": 0, "micro_batch_size": 0},
                    "validation": {"prompts": [], "batch_size": 0, "every": 10},
                    "checkpoint": {"every": 10},
                    "distributed": {"backend": "auto", "timeout_s": 600, "shard_optimizer": False,
                                    "gradient_precision": "fp32"}}
        number = len(list(self.folder.iterdir()))
        pair = [f"{number}-{seed}" for seed in (1, 2)]
        self.run_of(pair[0], [valid(10, 3.0)], **defaults)
        other = {section: values | settings.get(section, {}) for section, values in defaults.items()}
        self.run_of(pair[1], [valid(10, 4.0)], **other | {"train": other["train"] | {"seed": 2}})
        rows = self.rows(*pair)
        return len(rows), [head for head in rows[0] if "." in head and head != "train.seed"]

    def test_are_a_row_whatever_makes_no_other_experiment(self):
        self.assertEqual(self.heads_beside(
            train={"max_hours": 2}, checkpoint={"every": 5}, distributed={"timeout_s": 60},
            validation={"prompts": ["In the beginning"], "batch_size": 4}), (1, []))

    def test_are_a_row_that_shows_what_their_speed_depends_on(self):
        self.assertEqual(self.heads_beside(
            train={"threads": 1, "micro_batch_size": 2},
            distributed={"backend": "gloo", "shard_optimizer": True}),
            (1, ["train.threads", "train.micro_batch_size", "distributed.backend",
                 "distributed.shard_optimizer"]))

    def test_are_two_rows_where_the_results_depend_on_it(self):
        self.assertEqual(self.heads_beside(validation={"every": 5}), (2, ["validation.every"]))
        self.assertEqual(self.heads_beside(distributed={"gradient_precision": "bf16"}),
                         (2, ["distributed.gradient_precision"]))

    def test_without_a_figure_are_told_in_the_mean(self):
        self.run_of("a-1", [valid(10, 3.0)], train={"seed": 1})
        self.run_of("a-2", [valid(10, 4.0)], train={"seed": 2})
        self.run_of("a-3", [event("diverged")], train={"seed": 3})
        row = self.rows("a-1", "a-2", "a-3")[0]
        self.assertEqual(row["valid loss"], "3.5000 ± 0.7071 (of 2)")
        self.assertEqual((row["n"], row["ended"]), ("3", "unfinished, diverged"))

    def test_that_are_the_same_are_warned_of(self):
        self.run_of("a-1", [valid(10, 3.0)])
        self.run_of("a-2", [valid(10, 3.0)])
        _, complained = self.compare("a-1", "a-2")
        self.assertIn("a-1, a-2: the same settings, and not all of different seeds", complained)

    def test_are_in_the_csv_unrounded(self):
        self.compare(*self.three(), "--csv", "table.csv")
        with open(self.folder / "table.csv", newline="") as file:
            first, second = csv.DictReader(file)
        self.assertEqual((first["run"], first["runs"], first["n"]),
                         ("norm", "norm-seed1 norm-seed2 norm-seed3", "3"))
        self.assertEqual((first["valid_loss"], first["valid_loss_std"]), ("4.0", "1.0"))
        self.assertEqual((second["valid_loss"], second["valid_loss_std"]), ("4.5", ""))
        self.assertEqual((second["model.dim"], second["tokens_per_s"]), ("16", ""))
        self.compare("other", "--csv", "table.csv")  # takes the place of the former one
        self.assertEqual(len((self.folder / "table.csv").read_text().splitlines()), 2)

    def test_never_replace_what_is_no_table(self):
        self.three()
        mine = self.folder / "other/metrics.jsonl"
        before = mine.read_text()
        _, complained = self.compare("other", "--csv", mine, status=2)
        self.assertIn("is no table of this script, so it is not replaced", complained)
        self.assertEqual(mine.read_text(), before)
        _, complained = self.compare("other", "--csv", "nowhere/table.csv", status=2)
        self.assertIn("nowhere/table.csv: No such file or directory", complained)


class RealRuns(WithRuns):
    def test_of_the_program_are_read(self):
        for seed in (1, 2):
            subprocess.run([PROGRAM, "train", str(ROOT / "configs/tiny.json"), "--run-dir",
                            str(self.folder / f"tiny-{seed}"), "--set", f"train.seed={seed}", "--set",
                            "train.steps=10", "--set", f"data.cache_dir={self.folder / 'cache'}"],
                           check=True, capture_output=True)
        row = self.rows("tiny-1", "tiny-2")[0]
        told = json.loads(subprocess.run([PROGRAM, "inspect", str(self.folder / "tiny-1"), "--json"],
                                         check=True, capture_output=True).stdout)
        self.assertEqual(row["parameters"], f"{told['parameters']:,}")
        self.assertEqual((row["run"], row["n"], row["steps"], row["ended"], row["train.seed"]),
                         ("tiny", "2", "10", "done", "1, 2"))
        self.assertRegex(row["valid loss"], r"^\d\.\d{4} ± \d\.\d{4}$")
        self.assertRegex(row["tokens/s"], r"^[\d,]+ ± [\d,]+$")


if __name__ == "__main__":
    unittest.main()
