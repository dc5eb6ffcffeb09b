"""scripts/study.py runs every row of a study once, whatever stops it, and tells what came of it from
the files of the runs alone."""

import fcntl
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts/study.py"
PROGRAM = os.environ.get("TRANSNORMER_PROGRAM", str(ROOT / "build/transnormer"))
sys.path.insert(0, str(ROOT / "scripts"))
from studies import report, results, runs  # noqa: E402
from studies.plan import StudyError, as_options, known_studies, load_study  # noqa: E402

STUDIES = ROOT / "configs/studies"
PNG = b"\x89PNG\r\n\x1a\n"


def small_study(steps=12, **changes):
    """Two rows of configs/tiny.json."""
    return {
        "title": "Small", "question": "Which first?", "measure": "perplexity",
        "published": {"source": "Table 0", "what": "perplexity"},
        "rows": [{"name": "norm", "label": "Norm", "published": {"valid": 4.1},
                  "set": {"model.early": {"attention": "norm"}}},
                 {"name": "diag", "label": "Diag", "published": {"valid": 3.8}}],
        "scales": {"cpu": {"config": str(ROOT / "configs/tiny.json"), "what": "tiny",
                           "set": {"train.steps": steps, "log.every": 2}}},
    } | changes


class WithFolder(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.folder = pathlib.Path(directory.name)
        self.out = self.folder / "out"

    def write(self, study):
        file = self.folder / "small.json"
        file.write_text(json.dumps(study))
        return file

    def command(self, name, *words):
        return [sys.executable, str(SCRIPT), str(name), "--out", str(self.out), *map(str, words)]

    def study(self, name, *words):
        """(status, stdout, stderr)."""
        done = subprocess.run(self.command(name, *words), capture_output=True, text=True,
                              cwd=self.folder, env=environment())
        return done.returncode, done.stdout, done.stderr

    def answers(self):
        return json.loads((self.out / "results.json").read_text())

    def assert_refused(self, reason, name, *words):
        """In one line, with status 2."""
        status, said, complained = self.study(name, *words)
        self.assertEqual((status, said), (2, ""), complained)
        self.assertRegex(complained, reason)
        self.assertEqual(complained.count("\n"), 1, complained)


def environment():
    return os.environ | {"TRANSNORMER_PROGRAM": PROGRAM, "OMP_WAIT_POLICY": "passive"}


class AStudy(WithFolder):
    def test_runs_every_row_and_seed_once_and_tells_what_they_gave(self):
        file = self.write(small_study())
        status, said, complained = self.study(file, "--seeds", 2)
        self.assertEqual(status, 0, complained)
        table = (self.out / "table.md").read_text()
        self.assertEqual(said, table)

        found = self.answers()
        for row in found["rows"]:
            for split in ("valid", "test"):
                figures = [json.loads((self.out / f"{row['name']}-seed{seed}/{split}.json").read_text())
                           ["token_perplexity"] for seed in (1, 2)]
                self.assertEqual(row["figures"][split]["values"], figures)
                self.assertEqual(row["figures"][split]["mean"], statistics.fmean(figures))
                self.assertEqual(row["figures"][split]["std"], statistics.stdev(figures))
                self.assertIn(f"{statistics.fmean(figures):.2f} ± {statistics.stdev(figures):.2f}", table)
            configs = [json.loads((self.out / f"{row['name']}-seed{seed}/config.json").read_text())
                       for seed in (1, 2)]
            self.assertEqual([config["train"]["seed"] for config in configs], [1, 2])
            self.assertEqual(configs[0]["model"]["early"]["attention"], row["name"])
        self.assertEqual((found["updates_a_run"], found["unfinished"]), (12, 0))
        self.assertEqual([order["verdict"] for order in found["orders"]],
                         [results.verdict(results.columns_of(load_study(file, "cpu"))[0],
                                          *(results.Cell(tuple(row["figures"]["valid"]["values"]))
                                            for row in reversed(found["rows"])))])
        for words in ("3.8, 4.1", "only in order", "12 updates", "--seeds 2", "cores"):
            self.assertIn(words, table)
        for picture in ("figures.png", "training.png"):
            self.assertEqual((self.out / picture).read_bytes()[:8], PNG)
            self.assertIn(f"({picture})", table)

        self.check_that_nothing_is_done_twice(file)
        self.check_that_the_table_is_made_of_the_files(file, table)
        self.check_that_another_study_is_refused(file)

    def check_that_nothing_is_done_twice(self, file):
        before = self.state_of_runs()
        status, _, complained = self.study(file)
        self.assertEqual(status, 0, complained)
        self.assertIn("4 of 4 are done already", complained)
        self.assertEqual(self.state_of_runs(), before)

    def state_of_runs(self):
        return {path: path.stat().st_mtime_ns for path in self.out.glob("*-seed*/**/*")}

    def check_that_the_table_is_made_of_the_files(self, file, table):
        answers = self.answers()
        for name in ("table.md", "results.json", "figures.png"):
            (self.out / name).unlink()
        before = self.state_of_runs()
        self.assertEqual(self.study(file, "--table-only")[:2], (0, table))
        self.assertEqual(self.answers(), answers)
        self.assertEqual(self.state_of_runs(), before)
        # A figure that changes in a run's file changes in the table.
        changed = self.out / "diag-seed1/valid.json"
        saved = changed.read_text()
        changed.write_text(json.dumps(json.loads(saved) | {"token_perplexity": 1234.5}))
        self.study(file, "--table-only")
        self.assertEqual(self.answers()["rows"][1]["figures"]["valid"]["values"][0], 1234.5)
        changed.write_text(saved)

    def check_that_another_study_is_refused(self, file):
        self.write(small_study(steps=14))
        self.assert_refused("norm-seed1: was made with train.steps 12, now it is 14; remove it", file)
        other = small_study()
        other["scales"]["gpu"] = other["scales"]["cpu"]
        self.write(other)
        self.assert_refused("holds small at scale cpu; name another", file, "--scale", "gpu")
        self.assert_refused("expected a whole number from 1, got \"0\"", file, "--seeds", 0)

    def test_goes_on_where_it_was_stopped_with_the_same_figures(self):
        file = self.write(small_study(steps=150))
        self.assertEqual(self.stop_in(file, "diag-seed1", signal.SIGINT),
                         (130, "stopped, and saved; the same command goes on from there"))
        finished = runs.read_record(self.out / "norm-seed1/study.json")
        self.assertEqual(finished["ended"], "finished")
        self.assertFalse((self.out / "diag-seed1/study.json").exists())
        self.assertTrue(list((self.out / "diag-seed1/checkpoints").glob("step-*/manifest.json")))
        self.assertIn("1 of 2 are done", (self.out / "table.md").read_text())
        norm = (self.out / "norm-seed1/metrics.jsonl").read_bytes()

        status, _, complained = self.study(file)
        self.assertEqual(status, 0, complained)
        self.assertEqual((self.out / "norm-seed1/metrics.jsonl").read_bytes(), norm)
        self.assertIn('"event":"resumed"', (self.out / "diag-seed1/metrics.jsonl").read_text())
        stopped = self.answers()

        self.out = self.folder / "never stopped"
        self.study(file, "--seeds", 1)
        self.assertEqual([row["figures"] for row in self.answers()["rows"]],
                         [row["figures"] for row in stopped["rows"]])

    def stop_in(self, file, run, number):
        """(status, last line) of a study that gets a signal while a run trains."""
        metrics = self.out / run / "metrics.jsonl"
        with subprocess.Popen(self.command(file, "--seeds", 1), stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, env=environment()) as process:
            limit = time.monotonic() + 300
            while not (metrics.exists() and '"kind":"train"' in metrics.read_text()):
                self.assertIsNone(process.poll(), "the study ended before it could be stopped")
                self.assertLess(time.monotonic(), limit)
                time.sleep(0.01)
            process.send_signal(number)
            complained = process.communicate()[1]
        return process.returncode, complained.strip().split("\n")[-1]

    def test_refuses_a_second_process_beside_it(self):
        file = self.write(small_study())
        self.out.mkdir()
        with open(self.out / ".lock", "w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            self.assert_refused("another process is at work on this study", file)
        self.assertEqual([path.name for path in self.out.iterdir()], [".lock"])

    def test_counts_a_row_that_diverges_as_worse_than_any(self):
        study = small_study(steps=4)
        study["rows"][0]["set"] = {"model.norm_eps": 1, "model.dropout": 0}
        file = self.write(study)
        self.assertEqual(self.study(file, "--seeds", 1)[0], 0)
        for name in ("valid.json", "test.json"):
            (self.out / f"norm-seed1/{name}").unlink()
        record = self.out / "norm-seed1/study.json"
        record.write_text(json.dumps(json.loads(record.read_text()) | {"ended": "diverged"}))
        status, table, complained = self.study(file, "--table-only")
        self.assertEqual(status, 0, complained)
        self.assertIn("| Norm | diverged | diverged |", table)
        self.assertEqual([order["verdict"] for order in self.answers()["orders"]], ["holds"])

    def test_of_speed_measures_every_length_and_round(self):
        study = small_study(measure="speed")
        study["scales"]["cpu"] |= {"bench": {"modes": ["infer"], "lengths": [8, 16], "batch_size": 2,
                                             "repeat": 1}}
        study["rows"][0]["published"] = {"infer 16": 5}
        study["rows"][1]["published"] = {"infer 16": "out of memory"}
        file = self.write(study)
        status, table, complained = self.study(file, "--seeds", 2)
        self.assertEqual(status, 0, complained)
        self.assertEqual(len(list((self.out / "bench").glob("*.json"))), 8)
        answer = json.loads((self.out / "bench/diag-infer-16-round2.json").read_text())
        self.assertEqual(answer["row"]["length"], 16)
        cell = self.answers()["rows"][1]["figures"]["infer 16"]
        self.assertEqual(cell["values"][1], answer["row"]["tokens_per_s"] / 32)
        order, = self.answers()["orders"]
        self.assertEqual((order["better"], order["worse"]), ("norm", "diag"))
        self.assertEqual((self.out / "infer.png").read_bytes()[:8], PNG)
        self.assertIn("4 are done already", self.study(file, "--seeds", 1)[2])

    def test_that_is_none_is_refused_before_anything_runs(self):
        self.assert_refused('there is no study "table99"; known are figure1, .*table12', "table99")
        self.assert_refused("absent.json: No such file", "absent.json")
        for reason, change in {
            'mesure: unknown key; did you mean "measure"': {"mesure": "speed"},
            "question: expected str, got 3": {"question": 3},
            "measure: expected one of perplexity, .* got \"taste\"": {"measure": "taste"},
            "rows: expected two or more": {"rows": []},
            "row norm: .*early.attention.*\"nrm\"":
                {"rows": [row | {"set": {"model.early": {"attention": "nrm"}}}
                          for row in small_study()["rows"]]},
            r"rows\[0\].set: train.steps would give this row another budget":
                {"rows": [row | {"set": {"train.steps": 3}} for row in small_study()["rows"]]},
        }.items():
            with self.subTest(reason):
                self.assert_refused(reason, self.write(small_study() | change))
                self.assertFalse(list(self.out.glob("*-seed*")))
        self.assert_refused("holds no study yet", self.write(small_study()), "--table-only")


LOWER = results.Column("valid", "valid", "lower")
HIGHER = results.Column("area", "area", "higher")


def cell(*values, reason=""):
    return results.Cell(values, reason)


class AVerdict(unittest.TestCase):
    def test_is_told_by_the_means_and_the_spread(self):
        for better, worse, verdict in (
                (cell(10, 11, 12), cell(20, 21, 22), "holds"),
                (cell(20, 21, 22), cell(10, 11, 12), "does not hold"),
                (cell(10, 11, 12), cell(11, 12, 13), "within the spread"),
                (cell(11, 12, 13), cell(10, 11, 12), "within the spread"),
                (cell(10.0), cell(10.1), "holds"),
                (cell(10.1), cell(10.0), "does not hold"),
                (cell(), cell(10.0), "not run"),
                (cell(10.0), cell(None, 9.0, reason="diverged"), "holds"),
                (cell(None, reason="diverged"), cell(10.0), "does not hold"),
                (cell(None, reason="diverged"), cell(None, reason="diverged"),
                 "no verdict: both diverged")):
            with self.subTest(better=better, worse=worse):
                self.assertEqual(results.verdict(LOWER, better, worse), verdict)

    def test_turns_where_higher_is_better(self):
        low, high = cell(1, 1.1), cell(2, 2.1)
        self.assertEqual(results.verdict(HIGHER, high, low), "holds")
        self.assertEqual(results.verdict(HIGHER, low, high), "does not hold")

    def test_touching_intervals_are_within_the_spread(self):
        # Standard deviation 1 each: the intervals touch up to a distance of 2.
        self.assertEqual(results.verdict(LOWER, cell(0, 1, 2), cell(2, 3, 4)), "within the spread")
        self.assertEqual(results.verdict(LOWER, cell(0, 1, 2), cell(2.1, 3.1, 4.1)), "holds")


class TheOrdersOfAPaper(WithFolder):
    def orders(self, *published, **changes):
        rows = [{"name": f"row{index}", "label": f"Row {index}"} | row
                for index, row in enumerate(published)]
        study = load_study(self.write(small_study(rows=rows, **changes)), "cpu")
        cells = {(row.name, key): cell(index + 1.0) for index, row in enumerate(study.rows)
                 for key in ("valid", "test")}
        return results.orders_of(study, results.columns_of(study), cells)

    def test_are_all_pairs_of_different_figures(self):
        orders = self.orders({"published": {"valid": 3}}, {"published": {"valid": 1}},
                             {"published": {"valid": 1}}, {"published": {"test": 5}})
        self.assertEqual([(order.better.name, order.worse.name, order.verdict) for order in orders],
                         [("row1", "row0", "does not hold"), ("row2", "row0", "does not hold")])

    def test_are_marked_where_a_figure_is_not_confirmed(self):
        orders = self.orders({"published": {"valid": 1, "test": 1}, "unconfirmed": ["test"]},
                             {"published": {"valid": 2, "test": 2}})
        self.assertEqual([(order.column.key, order.unconfirmed) for order in orders],
                         [("valid", False), ("test", True)])
        self.assertIn("1, 2?", report.order_words(orders[1], True))

    def test_may_be_told_in_words(self):
        told = [{"columns": ["valid"], "better": "row0", "worse": "row1", "source": "the text"}]
        orders = self.orders({}, {}, expected=told)
        self.assertEqual([(order.better.name, order.source, order.verdict) for order in orders],
                         [("row0", "the text", "holds")])


class EqualBudgets(unittest.TestCase):
    def test_are_held_against_the_runs(self):
        study = load_study(STUDIES / "table9.json", "cpu")
        def outcome(seed, tokens):
            job = runs.Job(study.rows[0], seed, pathlib.Path("run"), {})
            return results.Outcome(job, "finished", {}, {"updates": 10, "tokens": tokens})
        results.require_equal_budgets(study, [outcome(1, 100), outcome(1, 100), outcome(2, 99)])
        with self.assertRaisesRegex(StudyError, "runs of seed 1 differ in their budgets"):
            results.require_equal_budgets(study, [outcome(1, 100), outcome(1, 99)])


class TheShippedStudies(unittest.TestCase):
    """Every row is a sound config, and differs from the others in the model alone."""

    def resolved(self, study, row, seed=1):
        options = as_options(study.settings_of(row) | {"train.seed": seed})
        done = subprocess.run([PROGRAM, "config", "show", "--json", study.config, *options],
                              capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""), f"{study.name}, {row.name}")
        return json.loads(done.stdout)

    def test_are_those_of_the_paper(self):
        self.assertEqual(known_studies(STUDIES),
                         ["figure1", "figure2", "table1", "table2", "table3", "table4", "table7",
                          "table8", "table9", "table10", "table11", "table12"])

    def test_have_rows_that_differ_in_the_model_alone(self):
        for name in known_studies(STUDIES):
            study = load_study(STUDIES / f"{name}.json", "cpu")
            configs = [self.resolved(study, row) for row in study.rows]
            models = {json.dumps(config.pop("model")) for config in configs}
            with self.subTest(study=name):
                self.assertEqual(len(models), len(study.rows), "two rows are the same model")
                self.assertEqual(configs, [configs[0]] * len(configs))

    def test_are_sound_at_the_other_scales(self):
        for name in known_studies(STUDIES):
            file = STUDIES / f"{name}.json"
            at = [row["name"] for row in json.loads(file.read_text())["rows"] if "at" in row]
            for scale in ("gpu", "paper"):
                study = load_study(file, scale)
                # Rows set the same at every scale, but for those that say otherwise.
                for row in [study.rows[0], *(study.row(each) for each in at)]:
                    with self.subTest(study=name, scale=scale, row=row.name):
                        self.resolved(study, row)

    def test_publish_figures_only_for_columns_that_there_are(self):
        for name in known_studies(STUDIES):
            study = load_study(STUDIES / f"{name}.json", "cpu")
            columns = {column.key for column in results.columns_of(study)}
            for row in study.rows:
                self.assertLessEqual(set(row.published), columns, f"{name}, {row.name}")
            self.assertTrue(study.expected or any(row.published for row in study.rows), name)

    def test_have_the_published_sizes_at_scale_paper(self):
        study = load_study(STUDIES / "table4.json", "paper")
        counts = {"softmax": 156000256, "transformer_ls": 159461904, "flash_quad": 153514752,
                  "flash": 153519872, "linear": 156000256, "performer": 156000256,
                  "t1": 155988540, "t2": 155988540}
        for row in study.rows:
            done = subprocess.run([PROGRAM, "inspect", study.config,
                                   *as_options(study.settings_of(row)), "--json"],
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(done.stdout)["parameters"], counts[row.name], row.name)


if __name__ == "__main__":
    unittest.main()
