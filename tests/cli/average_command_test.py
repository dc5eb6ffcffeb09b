"""average: against numpy, what may be done with the result, and what is refused without a trace."""

import json
import pathlib
import shutil
import sys
import unittest

import numpy
from safetensors.numpy import load_file, save_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "export"))
import exported  # noqa: E402


def content(path):
    """Every file below with its bytes, but for caches and locks."""
    return {p: p.read_bytes() for p in sorted(path.rglob("*"))
            if p.is_file() and "cache" not in p.parts and p.suffix != ".lock"}


def spoil(checkpoint, workspace, name, change):
    """A copy of a checkpoint with other weights, whole by its manifest."""
    import hashlib
    path = workspace.path / name
    shutil.copytree(checkpoint.resolve(), path)
    weights = load_file(path / "model.safetensors")
    change(weights)
    save_file(weights, path / "model.safetensors")
    manifest = json.loads((path / "manifest.json").read_text())
    data = (path / "model.safetensors").read_bytes()
    manifest["files"]["model.safetensors"] = {"size": len(data),
                                              "sha256": hashlib.sha256(data).hexdigest()}
    (path / "manifest.json").write_text(json.dumps(manifest))
    return name


class Average(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.workspace = exported.Workspace()
        cls.run_dir = cls.workspace.train("run", checkpoint={"every": 2, "keep_last": 3},
                                          validation={"every": 2})
        cls.steps = [cls.run_dir / f"checkpoints/step-{step:08}" for step in (2, 4, 6)]

    def weights(self, path):
        return load_file(path / "model.safetensors")

    def refuse(self, *arguments, words):
        before = content(self.workspace.path)
        faults = self.workspace.run(*arguments, status=2).splitlines(keepends=True)
        fault = "".join(line for line in faults if " info  " not in line)
        self.assertEqual(fault.count("\n"), 1, fault)
        for word in words:
            self.assertIn(word, fault)
        self.assertEqual(before, content(self.workspace.path))
        left = [p.name for p in self.workspace.path.rglob(".tmp-*")]
        self.assertEqual(left, [])

    def test_it_is_the_mean_in_double_of_each_tensor_and_keeps_what_is_frozen(self):
        self.workspace.run("average", *map(str, self.steps), "--out", "means/three")
        path = self.workspace.path / "means/three"
        mean, sources = self.weights(path), [self.weights(step) for step in self.steps]
        self.assertEqual(set(mean), set(sources[0]))
        for name, values in mean.items():
            total = sum(source[name].astype(numpy.float64) for source in sources)
            expected = sources[0][name] if name.endswith("reflect") else total / 3
            numpy.testing.assert_array_equal(values, expected.astype(numpy.float32), err_msg=name)
        self.assertFalse((sources[0]["embed.weight"] == sources[2]["embed.weight"]).all())
        files = {p.name for p in path.iterdir()}
        self.assertEqual(files, {"manifest.json", "model.safetensors", "config.json", "state.json",
                                 "tokenizer.txt", "unigram.bin"})

    def test_the_last_ones_of_a_run_are_taken(self):
        self.workspace.run("average", "--last", "2", "run", "--out", "means/last")
        self.workspace.run("average", *map(str, self.steps[1:]), "--out", "means/named")
        last, named = (self.workspace.path / "means" / name for name in ("last", "named"))
        self.assertEqual((last / "model.safetensors").read_bytes(),
                         (named / "model.safetensors").read_bytes())

    def test_inspect_tells_what_was_averaged_and_others_take_it(self):
        self.workspace.run("average", *map(str, self.steps), "--out", "means/taken")
        answer = json.loads(self.workspace.run("inspect", "means/taken", "--json"))
        self.assertEqual([source["step"] for source in answer["averaged"]], [2, 4, 6])
        self.assertEqual(answer["step"], 6)
        self.assertIn("average of 3 checkpoints, of updates 2, 4, 6",
                      self.workspace.run("inspect", "means/taken"))
        self.assertNotIn("average", self.workspace.run("inspect", "run"))
        nll = json.loads(self.workspace.run("eval", "means/taken", "--json"))["nll"]
        self.assertGreater(nll, 0)
        self.workspace.run("generate", "means/taken", "--max-tokens", "3")
        self.workspace.run("average", "means/taken", str(self.steps[0]), "--out", "means/again")

    def test_no_training_goes_on_from_it(self):
        self.workspace.run("average", *map(str, self.steps), "--out", "means/end")
        self.refuse("train", "run.json", "--run-dir", "new", "--resume", "means/end",
                    words=["means/end", "average", "--init-from"])

    def test_an_older_average_is_replaced_and_what_others_put_there_stays(self):
        self.workspace.run("average", str(self.steps[0]), "--out", "means/old")
        path = self.workspace.path / "means/old"
        (path / "notes.txt").write_text("mine")
        self.workspace.run("average", str(self.steps[2]), "--out", "means/old")
        self.assertEqual((path / "notes.txt").read_text(), "mine")
        numpy.testing.assert_array_equal(self.weights(path)["embed.weight"],
                                         self.weights(self.steps[2])["embed.weight"])
        self.assertEqual(list(path.parent.glob(".*")), [])

    def test_what_a_killed_one_left_goes(self):
        left = self.workspace.path / "means/.tmp-killed.4194304"  # the number of no process
        left.mkdir(parents=True)
        (left / "model.safetensors").write_text("half")
        others = self.workspace.path / "means/.tmp-killed.mine"
        others.mkdir()
        self.workspace.run("average", str(self.steps[0]), "--out", "means/killed")
        self.assertFalse(left.exists())
        self.assertTrue(others.exists())
        others.rmdir()

    def test_nothing_else_is_overwritten(self):
        first = str(self.steps[0])
        folder = self.workspace.path / "mine"
        folder.mkdir(exist_ok=True)
        (folder / "model.safetensors").write_text("mine")
        self.refuse("average", first, "--out", "mine", words=["--out", "mine", "not an average"])
        self.refuse("average", first, "--out", "train.txt", words=["--out", "train.txt"])
        self.refuse("average", first, "--out", "run", words=["--out", "run"])
        self.refuse("average", first, "--out", "run/checkpoints/step-00000009",
                    words=["--out", "inside the run"])
        self.refuse("average", first, "--out", "run/mean", words=["--out", "inside the run"])
        copy = self.workspace.path / "copy"
        shutil.copytree(self.steps[0], copy, dirs_exist_ok=True)
        self.refuse("average", first, "--out", "copy", words=["--out", "copy is not an average"])
        self.refuse("average", first, "--out", "copy/mean", words=["--out", "inside the checkpoint"])
        self.workspace.run("average", first, "--out", "means/changed")
        (self.workspace.path / "means/changed/config.json").write_text("{}")
        self.refuse("average", first, "--out", "means/changed", words=["--out", "was changed"])

    def test_other_models_are_told_by_the_key(self):
        self.workspace.train("wide", model={"dim": 24})
        self.refuse("average", "run", "wide", "--out", "no", words=["model.dim: 16", "24"])
        self.workspace.train("words", tokenizer={"min_count": 4, "vocab_size": 9, "pad_to_multiple": 1},
                             model={"vocab_size": 0})
        self.refuse("average", "run", "words", "--out", "no", words=["tokenizer"])
        self.workspace.train("seed", train={**exported.CONFIG["train"], "seed": 7})
        self.refuse("average", "run", "seed", "--out", "no", words=["train.seed", "lrpe.reflect"])
        self.workspace.train("dropped", model={"dropout": 0.3})
        self.workspace.run("average", "run", "dropped", "--out", "means/dropped")

    def test_what_is_asked_wrongly_is_refused(self):
        first = str(self.steps[0])
        self.refuse("average", first, first, "--out", "no", words=["given twice"])
        self.refuse("average", "--last", "4", "run", "--out", "no", words=["--last", "at most 3"])
        self.refuse("average", "--last", "0", "run", "--out", "no", words=["--last"])
        self.refuse("average", "--last", "2", "run", first, "--out", "no", words=["--last", "2 paths"])
        self.refuse("average", "--last", "2", first, "--out", "no", words=["--last", "no run"])
        self.refuse("average", first, words=["--out"])
        self.refuse("average", first, "", "--out", "no", words=["the name is empty"])
        self.refuse("average", first, "nowhere", "--out", "no", words=["nowhere"])

    def test_weights_that_are_not_finite_are_refused(self):
        def break_one(weights):
            weights["embed.weight"][3, 2] = numpy.inf
        broken = spoil(self.steps[0], self.workspace, "broken", break_one)
        self.refuse("average", str(self.steps[1]), broken, "--out", "no",
                    words=["broken", "embed.weight", "not finite"])


if __name__ == "__main__":
    unittest.main()
