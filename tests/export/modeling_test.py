"""An export in PyTorch alone: text, losses and continuations are the program's."""

import json
import pathlib
import unittest

import torch
import torch.nn.functional as F

import exported


class AnExportOfWords(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)
        cls.workspace = exported.Workspace()
        cls.run_dir = cls.workspace.train("run", **exported.LEARNED)
        cls.export = cls.workspace.export("run", "exports/run")
        cls.module = exported.modeling_of(cls.export)
        cls.model = cls.module.load(cls.export)

    def test_a_text_has_the_ids_that_the_program_scores(self):
        text = (self.workspace.path / "test.txt").read_text()
        self.assertEqual(self.model.encode(text),
                         [line["id"] for line in self.workspace.losses("run")])
        self.assertEqual(self.model.decode(self.model.encode(text)), text)

    def test_losses_by_windows_are_those_of_eval(self):
        expected = self.workspace.losses("run")
        ids = [line["id"] for line in expected]
        inputs = [self.model.settings["bos_token_id"], *ids[:-1]]
        window = self.model.settings["tokens_per_sample"]
        losses = []
        with torch.no_grad():
            for begin in range(0, len(ids), window):
                logits = self.model(torch.tensor([inputs[begin:begin + window]]))[0]
                target = torch.tensor(ids[begin:begin + window])
                losses += F.cross_entropy(logits, target, reduction="none").tolist()
        for line, loss in zip(expected, losses):
            self.assertAlmostEqual(line["nll"], loss, delta=1e-5)

    def test_the_most_likely_continuation_is_that_of_generate(self):
        for prompt in ("", "the river", "sang to hill\nstones and\n", "an unknown word"):
            expected = self.workspace.greedy("run", prompt, 90)
            self.assertGreater(len(set(expected.split())), 3)
            self.assertEqual(self.model.continue_text(prompt, 90),
                             expected.replace("an unknown word", "<unk> <unk> <unk>"))

    def test_a_temperature_draws(self):
        ids = torch.tensor([[2, 5]])
        draw = [self.model.generate(ids, 20, 1.0, torch.Generator().manual_seed(seed)).tolist()
                for seed in (1, 1, 2)]
        self.assertEqual(draw[0], draw[1])
        self.assertNotEqual(draw[0], draw[2])

    def test_it_can_be_trained_on(self):
        model = self.module.load(self.export).train()
        ids = torch.tensor([[2, 5, 6, 7]])
        F.cross_entropy(model(ids)[0, :-1], ids[0, 1:]).backward()
        for name, parameter in model.named_parameters():
            self.assertTrue(parameter.grad is not None and parameter.grad.isfinite().all(), name)

    def test_it_runs_in_half_precision(self):
        model = self.module.load(self.export, dtype=torch.bfloat16)
        ids = torch.tensor([[2, 5, 6, 7, 8, 4]])
        with torch.no_grad():
            error = (model(ids) - self.model(ids)).abs().max()
        self.assertLess(error, 0.1 * self.model(ids).abs().max())

    def test_an_attention_that_it_does_not_know_is_named(self):
        config = json.loads((self.export / "config.json").read_text())
        config["late"]["attention"] = "rfa"
        with self.assertRaisesRegex(ValueError, '"rfa"'):
            self.module.TransNormer(config)

    def test_the_lines_of_the_readme_run(self):
        code = exported.readme_code(self.export)
        names = {}
        exec(code.split("from transformers")[0], names)
        self.assertEqual(names["logits"].shape[:2], names["ids"].shape)


class LinesOfText(unittest.TestCase):
    """How texts are cut, with a tokenizer that is there without packages."""

    @classmethod
    def setUpClass(cls):
        cls.workspace = exported.Workspace()
        path = cls.workspace.path / "tokenizer.txt"
        path.write_bytes("a 3\nüb 2\nb\r 1\nmad 0\n".encode() + b"\xff 0\n")
        cls.path = str(path)
        cls.module = exported.modeling_of(pathlib.Path(__file__).resolve().parents[2] / "src/export")

    def text(self, line_end="eos", strip_cr=False):
        return self.module.Text(self.path, line_end, strip_cr, end=2, unknown=3)

    def test_an_end_token_follows_lines_that_are_closed(self):
        self.assertEqual(self.text().encode("a üb\n\na"), [4, 5, 2, 2, 4])
        self.assertEqual(self.text("none").encode("a üb\n\na\n"), [4, 5, 4])

    def test_only_spaces_and_line_feeds_separate(self):
        self.assertEqual(self.text().encode(" a\ta  a\x0ba "), [3, 3])
        self.assertEqual(self.text().encode("b\r\n"), [6, 2])
        self.assertEqual(self.text(strip_cr=True).encode("a\r\na\r"), [4, 2, 4])

    def test_a_byte_order_mark_is_no_text(self):
        self.assertEqual(self.text().encode("\ufeffa"), [4])

    def test_bytes_that_are_no_text_and_ids_without_token_are_read_back(self):
        self.assertEqual(self.text().decode([8, 2, 99, 0]), "\udcff\n<unk> <s>")


if __name__ == "__main__":
    unittest.main()
