"""An export as one of transformers' models, and with sentencepiece. Needs scripts/export_venv.sh."""

import os
import pathlib
import sys
import unittest


def python_with_transformers():
    """Goes on in the environment that has transformers; exit status 77: skipped."""
    try:
        import transformers  # noqa: F401
        return
    except ImportError:
        python = os.environ.get("TRANSNORMER_EXPORT_PYTHON", "")
        if os.access(python, os.X_OK) and "TRANSNORMER_IN_EXPORT_PYTHON" not in os.environ:
            os.environ["TRANSNORMER_IN_EXPORT_PYTHON"] = "1"
            os.execv(python, [python, *sys.argv])
        print("skipped: transformers is not installed; scripts/export_venv.sh installs it into "
              "build/export-venv")
        sys.exit(77)


python_with_transformers()

import torch  # noqa: E402
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer  # noqa: E402

import exported  # noqa: E402

os.environ["HF_HUB_OFFLINE"] = "1"
BYTE_PAIRS = pathlib.Path(__file__).resolve().parents[1] / "tokenizer/bpe/tokenizer.json"


class Exports(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)
        cls.workspace = exported.Workspace()
        os.environ["HF_MODULES_CACHE"] = str(cls.workspace.path / "modules")
        cls.runs = {
            "words": cls.workspace.train("words", **exported.LEARNED),
            "pieces": cls.workspace.train(
                "pieces", tokenizer={"type": "sentencepiece", "vocab_size": 280},
                model={"tie_embeddings": False, "output_bias": True, "norm": "layer"},
                **exported.LEARNED),
            "byte_pairs": cls.workspace.train(
                "pairs", tokenizer={"type": "bpe", "path": str(BYTE_PAIRS)}, **exported.LEARNED),
        }
        cls.exports = {name: cls.workspace.export(run, f"exports/{name}")
                       for name, run in cls.runs.items()}
        cls.models = {name: AutoModelForCausalLM.from_pretrained(path, trust_remote_code=True).eval()
                      for name, path in cls.exports.items()}
        cls.tokenizers = {name: AutoTokenizer.from_pretrained(path, trust_remote_code=True)
                          for name, path in cls.exports.items()}
        cls.plain = {name: exported.modeling_of(path).load(path)
                     for name, path in cls.exports.items()}

    def test_the_config_has_the_names_of_others_too(self):
        config = AutoConfig.from_pretrained(self.exports["words"], trust_remote_code=True)
        self.assertEqual((config.dim, config.hidden_size, config.num_hidden_layers), (16, 16, 2))

    def test_logits_are_those_of_the_plain_model(self):
        for name, model in self.models.items():
            ids = torch.arange(60).view(2, 30) % 12
            with torch.no_grad():
                self.assertTrue(torch.equal(model(ids).logits, self.plain[name](ids)), name)

    def test_losses_are_those_of_eval(self):
        for name, model in self.models.items():
            lines = self.workspace.losses(self.runs[name])[:24]
            ids = torch.tensor([[model.config.bos_token_id, *(line["id"] for line in lines)]])
            with torch.no_grad():
                loss = model(ids, labels=ids).loss.item()
            self.assertAlmostEqual(loss, sum(line["nll"] for line in lines) / len(lines), delta=1e-5)

    def test_texts_have_the_ids_that_the_program_scores(self):
        text = (self.workspace.path / "test.txt").read_text()
        for name, tokenizer in self.tokenizers.items():
            ids = [line["id"] for line in self.workspace.losses(self.runs[name])]
            self.assertEqual(tokenizer(text).input_ids, [self.models[name].config.bos_token_id, *ids])
            self.assertEqual(self.plain[name].encode(text), ids)
            self.assertEqual(tokenizer.decode(ids), text)

    def test_the_most_likely_continuation_is_that_of_generate(self):
        for name, model in self.models.items():
            for prompt in ("the river", "sang to\nstones"):
                inputs = self.tokenizers[name](prompt, return_tensors="pt")
                ids = model.generate(**inputs, max_new_tokens=40, do_sample=False)[0, 1:]
                self.assertEqual(self.tokenizers[name].decode(ids),
                                 self.workspace.greedy(self.runs[name], prompt, 40), name)

    def test_beams_and_batches_of_unlike_lengths_generate(self):
        model, tokenizer = self.models["words"], self.tokenizers["words"]
        prompts = ["the river", "sang to hill at dawn . stones", "over"]
        for side in ("left", "right"):
            tokenizer.padding_side = side
            batch = tokenizer(prompts, return_tensors="pt", padding=True)
            logits = model(**batch).logits
            for row, prompt in enumerate(prompts):
                alone = model(**tokenizer(prompt, return_tensors="pt")).logits[0]
                kept = logits[row][batch.attention_mask[row].bool()]
                self.assertLess((kept - alone).abs().max(), 1e-5)
        tokenizer.padding_side = "left"
        batch = tokenizer(prompts, return_tensors="pt", padding=True)
        new = model.generate(**batch, max_new_tokens=10, do_sample=False)[:, -10:]
        beams = model.generate(**batch, max_new_tokens=10, num_beams=3, do_sample=False)
        self.assertEqual(beams.shape[0], 3)
        for row, prompt in zip(new, prompts):
            self.assertEqual((prompt + " " + tokenizer.decode(row)).replace(" \n", "\n"),
                             self.workspace.greedy(self.runs["words"], prompt, 10))

    def test_a_mask_with_holes_is_refused(self):
        with self.assertRaisesRegex(ValueError, "attention_mask"):
            self.models["words"](torch.tensor([[2, 5, 6]]),
                                 attention_mask=torch.tensor([[1, 0, 1]]))

    def test_the_lines_of_the_readme_run(self):
        code = exported.readme_code(self.exports["words"])
        names = {}
        exec(code, names)
        self.assertEqual(names["tokenizer"]("the river").input_ids[0], names["model"].config.bos_token_id)

    def test_what_transformers_saves_loads_again(self):
        path = self.workspace.path / "again"
        self.models["pieces"].save_pretrained(path)
        self.tokenizers["pieces"].save_pretrained(path)
        again = AutoModelForCausalLM.from_pretrained(path, trust_remote_code=True).eval()
        ids = AutoTokenizer.from_pretrained(path, trust_remote_code=True)("sang to", return_tensors="pt")
        with torch.no_grad():
            self.assertTrue(torch.equal(again(**ids).logits, self.models["pieces"](**ids).logits))


if __name__ == "__main__":
    unittest.main()
