"""scripts/pytorch_model.py is the model that the baselines define: a fair opponent is the same one."""

import pathlib
import sys
import unittest

import torch
from safetensors.torch import load_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import pytorch_model  # noqa: E402
import pytorch_parts  # noqa: E402

BLOCK = 8  # of the baselines
COMMON = {"layers": 3, "dim": 20, "heads": 2, "ffn_dim": 0, "early_layers": -1, "norm_eps": 1e-6,
          "norm_placement": "pre", "position": "sinusoidal", "dropout": 0.0,
          "attention_dropout": 0.0, "tie_embeddings": True}
LINEAR = {**COMMON, "ffn": "glu", "ffn_activation": "silu", "norm": "srms", "lrpe": True}
MODELS = {
    "t1": {**LINEAR,
           "early": {"attention": "diag", "score": "relu", "block": BLOCK, "output_norm": "srms"},
           "late": {"attention": "norm", "kernel": "elu", "output_norm": "srms"}},
    "t2": {**LINEAR,
           "early": {"attention": "diag", "score": "softmax", "block": BLOCK, "output_norm": "none"},
           "late": {"attention": "norm", "kernel": "elu1", "output_norm": "srms"}},
    "transformer": {**COMMON, "ffn": "mlp", "ffn_activation": "relu", "norm": "layer", "lrpe": False,
                    "early": {"attention": "softmax"}, "late": {"attention": "softmax"}},
}


def part(baseline, kind):
    return {name.removeprefix(kind): value for name, value in baseline.items()
            if name.startswith(kind)}


class TheModel(unittest.TestCase):
    def setUp(self):
        self.addCleanup(setattr, pytorch_parts, "CHUNK", pytorch_parts.CHUNK)
        pytorch_parts.CHUNK = BLOCK  # so that the baselines reach over several

    def models(self):
        """(name, baseline, model) in each form of linear attention."""
        for name, settings in MODELS.items():
            baseline = load_file(ROOT / f"tests/model/baselines/{name}.safetensors")
            for form in pytorch_parts.FORMS:
                model = pytorch_model.TransNormer(settings, 41, 64, form)
                model.load_state_dict(part(baseline, "weight/"))
                yield f"{name}, {form}", baseline, model

    def test_has_the_logits_and_losses_of_the_baselines(self):
        for name, baseline, model in self.models():
            for case in ("odd", "whole"):
                with self.subTest(model=name, case=case):
                    tokens, targets = baseline[f"{case}/tokens"], baseline[f"{case}/targets"]
                    torch.testing.assert_close(model(tokens), baseline[f"{case}/logits"],
                                               rtol=1e-5, atol=1e-5)
                    self.assertAlmostEqual(model.loss(tokens, targets).item(),
                                           baseline[f"{case}/loss"].item(), 5)

    def test_decodes_the_logits_of_the_baselines_token_by_token(self):
        for name, baseline, model in self.models():
            with self.subTest(model=name), torch.no_grad():
                tokens = baseline["odd/tokens"]
                states = model.start(*tokens.shape)
                logits = [model.step(column, states, position)
                          for position, column in enumerate(tokens.split(1, 1))]
                torch.testing.assert_close(torch.cat(logits, 1), baseline["odd/logits"],
                                           rtol=1e-4, atol=1e-4)

    def test_decodes_in_half_precision_but_for_rounding(self):
        for name in MODELS:
            with self.subTest(model=name), torch.no_grad():
                torch.manual_seed(1)
                whole = pytorch_model.TransNormer(MODELS[name], 41, 64)
                half = pytorch_model.TransNormer(MODELS[name], 41, 64, compute=torch.bfloat16)
                half.load_state_dict(whole.state_dict())
                states, tokens = half.to_compute().start(1, 40), torch.arange(40)[None]
                logits = torch.cat([half.step(column, states, position)
                                    for position, column in enumerate(tokens.split(1, 1))], 1)
                self.assertEqual(logits.dtype, torch.bfloat16)
                error = (logits - whole(tokens)).norm() / whole(tokens).norm()
                self.assertLess(error.item(), 0.03)

    def test_has_the_gradients_of_the_baselines(self):
        for name, baseline, model in self.models():
            model.loss(baseline["odd/tokens"], baseline["odd/targets"]).backward()
            gradients = {name: value.grad for name, value in model.named_parameters()}
            with self.subTest(model=name):
                torch.testing.assert_close(gradients, part(baseline, "gradient/"),
                                           rtol=1e-4, atol=1e-6)

    def test_drops_out_only_in_training(self):
        model = pytorch_model.TransNormer({**MODELS["t2"], "dropout": 0.5}, 41, 64)
        tokens = torch.arange(30)[None]
        self.assertFalse(torch.equal(model(tokens), model(tokens)))
        model.eval()
        self.assertTrue(torch.equal(model(tokens), model(tokens)))

    def test_is_the_same_in_half_precision_but_for_rounding(self):
        for name in MODELS:
            for form in pytorch_parts.FORMS:
                with self.subTest(model=name, form=form):
                    torch.manual_seed(1)
                    whole = pytorch_model.TransNormer(MODELS[name], 41, 64, form)
                    half = pytorch_model.TransNormer(MODELS[name], 41, 64, form, torch.bfloat16)
                    half.load_state_dict(whole.state_dict())
                    tokens = torch.arange(40)[None]
                    with torch.autocast("cpu", torch.bfloat16):
                        logits = half(tokens)
                    self.assertEqual(logits.dtype, torch.bfloat16)
                    error = (logits - whole(tokens)).norm() / whole(tokens).norm()
                    self.assertLess(error.item(), 0.03)


if __name__ == "__main__":
    unittest.main()
