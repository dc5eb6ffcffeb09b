"""export: what it refuses, and that a refusal leaves no trace."""

import json
import resource
import subprocess
import unittest

import numpy

from average_command_test import content, exported, spoil


class Export(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.workspace = exported.Workspace()
        cls.run_dir = cls.workspace.train("run")

    def refuse(self, *arguments, words, limit=None):
        before = content(self.workspace.path)
        answer = subprocess.run(
            [exported.PROGRAM, *arguments], cwd=self.workspace.path, capture_output=True, text=True,
            preexec_fn=limit and (lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))))
        self.assertEqual(answer.returncode, 2, answer.stderr)
        self.assertEqual(answer.stdout, "")
        self.assertEqual(answer.stderr.count("\n"), 1, answer.stderr)
        for word in words:
            self.assertIn(word, answer.stderr)
        self.assertEqual(before, content(self.workspace.path))
        self.assertEqual([p for p in self.workspace.path.rglob(".tmp-*")], [])

    def test_it_holds_what_others_read(self):
        path = self.workspace.export("run", "out/all")
        self.assertEqual({p.name for p in path.iterdir()},
                         {"config.json", "generation_config.json", "model.safetensors",
                          "modeling_transnormer.py", "tokenizer.txt", "tokenizer_config.json",
                          "transnormer.json"})
        manifest = json.loads((path / "transnormer.json").read_text())
        self.assertEqual(manifest["step"], 6)

    def test_an_attention_that_python_does_not_know_is_named(self):
        self.workspace.train("rfa", model={"late": {"attention": "rfa", "features": 8}})
        self.refuse("export", "rfa", "--out", "no", words=['model.late.attention: "rfa"', "softmax"])

    def test_an_average_is_exported(self):
        self.workspace.run("average", "--last", "2", "run", "--out", "mean")
        self.workspace.export("mean", "out/mean")
        self.refuse("export", "mean", "--out", "mean", words=["--out", "not an export"])

    def test_nothing_but_an_earlier_export_is_overwritten(self):
        self.refuse("export", "run", "--out", "run", words=["--out", "run"])
        self.refuse("export", "run", "--out", "run/export", words=["inside the run"])
        self.refuse("export", "run", "--out", "run/checkpoints/latest/x", words=["inside the "])
        path = self.workspace.export("run", "out/earlier")
        (path / "README.md").write_text("mine")
        self.workspace.export("run", "out/earlier")
        self.assertEqual((path / "README.md").read_text(), "mine")
        (path / "modeling_transnormer.py").write_text("changed")
        self.refuse("export", "run", "--out", "out/earlier", words=["--out", "was changed"])
        other = self.workspace.export("run", "out/other")
        (other / "tokenizer.model").write_text("mine")
        self.refuse("export", "run", "--out", "out/other", words=["tokenizer.model"])
        (self.workspace.path / "out/empty").mkdir()
        self.workspace.export("run", "out/empty")

    def test_where_there_is_no_space_an_earlier_export_stays(self):
        self.workspace.export("run", "out/full")
        self.refuse("export", "run", "--out", "out/full", limit=2000, words=["out"])
        self.refuse("export", "run", "--out", "out/new/deep", limit=2000, words=["out"])
        self.assertFalse((self.workspace.path / "out/new").exists())

    def test_weights_that_are_not_finite_are_refused(self):
        def break_one(weights):
            weights["layers.0.ffn.up_proj.weight"][0, 0] = numpy.nan
        broken = spoil(self.run_dir / "checkpoints/latest", self.workspace, "broken", break_one)
        self.refuse("export", broken, "--out", "no", words=["up_proj", "not finite"])

    def test_an_export_is_no_checkpoint(self):
        self.workspace.export("run", "out/none")
        self.refuse("eval", "out/none", words=["out/none"])


if __name__ == "__main__":
    unittest.main()
