#!/usr/bin/env python3
"""Makes tests/model/baselines/attentions/*.safetensors: a small model of each attention, in double
precision, with its config, logits, losses and gradients, for tests/model/attention_baseline_test.cpp.

The attentions are those of scripts/pytorch_attentions.py, independent of the C++ code on purpose; the
model around them is that of scripts/pytorch_model.py, which make_baselines.py checks.
Run it again only when a definition changes:
    .venv/bin/python scripts/make_attention_baselines.py [NAME..]
"""

import json
import pathlib
import sys

import torch
from safetensors.torch import save_file

from pytorch_attentions import can_be_causal
from pytorch_model import TransNormer

WORDS, TOKENS_PER_SAMPLE = 41, 40
LENGTHS = {"odd": (2, 37), "whole": (1, 24)}
MODEL = {"variant": "custom", "layers": 3, "dim": 24, "heads": 2, "ffn": "glu", "ffn_dim": 6,
         "ffn_activation": "silu", "early_layers": 1, "norm": "srms", "norm_eps": 1e-6,
         "norm_placement": "pre", "position": "sinusoidal", "lrpe": True, "dropout": 0.0,
         "attention_dropout": 0.0, "tie_embeddings": True, "vocab_size": 0, "causal": True}
OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/model/baselines/attentions"


def linear(**settings):
    return {"attention": "linear", "kernel": "elu1", "denominator": True, "key_dim_factor": 1,
            "window": 0, "output_norm": "none", **settings}


def norm(**settings):
    return {"attention": "norm", "kernel": "elu1", "output_norm": "srms", "decay": "none",
            "gate": "none", **settings}


def diag(**settings):
    return {"attention": "diag", "score": "softmax", "block": 8, "output_norm": "none", **settings}


def attention(name, **settings):
    return {"attention": name, **settings}


def mix(mode, first, second):
    return {"attention": "mix", "mode": mode, "first": first, "second": second}


def without(settings, *keys):
    return {key: value for key, value in settings.items() if key not in keys}


# Windows, chunks and features are small, so that 37 tokens reach over several.
ATTENTIONS = {
    "softmax": attention("softmax"),
    "diag": diag(),
    "diag_relu": diag(score="relu", output_norm="srms"),
    # As a config says it that has no decay and no gate.
    "norm": without(norm(), "decay", "gate"),
    "norm_elu": without(norm(kernel="elu", output_norm="layer"), "decay", "gate"),
    "norm_decay": norm(decay="fixed"),
    "norm_gate_linear": norm(kernel="relu", gate="linear"),
    "norm_gate_sigmoid": norm(kernel="exp", gate="sigmoid"),
    "norm_decay_gate_silu": norm(kernel="silu", decay="fixed", gate="silu"),
    "rela": attention("rela", gated=True),
    "rela_ungated": attention("rela", gated=False),
    "linear": linear(),
    "linear_relu": linear(kernel="relu"),
    "linear_exp": linear(kernel="exp"),
    "linear_undivided": linear(kernel="silu", denominator=False, output_norm="srms"),
    "linear_undivided_exp": linear(kernel="exp", denominator=False, output_norm="srms"),
    "linear_wide": linear(key_dim_factor=2),
    "linear_window": linear(window=6),
    "taylor": attention("taylor"),
    "efficient": attention("efficient"),
    "performer": attention("performer", features=16, redraw=True),
    "rfa": attention("rfa", features=16, redraw=True),
    "cosformer": attention("cosformer", horizon=0),
    "cosformer_horizon": attention("cosformer", horizon=70),
    "sparse": attention("sparse", window=5, stride=7),
    "reformer": attention("reformer", chunk=12, hashes=2),
    "linformer": attention("linformer", rank=5),
    "nystromformer": attention("nystromformer", landmarks=5, conv=0),
    "nystromformer_conv": attention("nystromformer", landmarks=5, conv=3),
    "nystromformer_short": attention("nystromformer", landmarks=30, conv=0),
    "pooled": attention("pooled", stride=4),
    "transformer_ls": attention("transformer_ls", window=6, chunk=5, rank=0),
    "transformer_ls_rank": attention("transformer_ls", window=8, chunk=4, rank=3),
    "flash": attention("flash", expansion=2, key_dim=8, chunk=8),
    "flash_quad": attention("flash_quad", expansion=2, key_dim=8, chunk=8),
    "mix_parallel": mix("parallel", diag(), norm()),
    "mix_sequential": mix("sequential", diag(score="relu"), norm(gate="silu")),
    "mix_others": mix("sequential", attention("softmax"), linear()),
}
# These have a second file, NAME_bidirectional.
BOTH_WAYS = ("softmax", "diag", "diag_relu", "norm", "norm_decay", "rela", "linear", "linear_exp",
             "linear_window", "taylor", "efficient", "performer", "rfa", "cosformer", "sparse",
             "reformer", "transformer_ls", "transformer_ls_rank", "flash", "flash_quad",
             "mix_parallel", "mix_sequential")
# What differs from MODEL.
MODELS = {
    "linear_plain": ("linear", {"lrpe": False}),
    "performer_plain": ("performer", {"lrpe": False}),
    "norm_one_layer": ("norm_decay", {"layers": 1, "early_layers": 0}),
}


def cases():
    """{name: the config}."""
    result = {}
    for name, settings in ATTENTIONS.items():
        model = {**MODEL, "early": settings, "late": settings}
        result[name] = {**model, "causal": can_be_causal(settings)}
        if name in BOTH_WAYS:
            result[f"{name}_bidirectional"] = {**model, "causal": False}
    for name, (base, changes) in MODELS.items():
        result[name] = {**result[base], **changes}
    return {name: {"model": model, "data": {"tokens_per_sample": TOKENS_PER_SAMPLE}}
            for name, model in result.items()}


def random_value(name, like, generator):
    """Of sizes that are usual after some training; rounded to single precision, which is what the
    file holds."""
    normal = torch.randn(like.shape, generator=generator)
    last = name.rsplit(".", 1)[-1]
    if last == "reflect":
        value = normal / normal.norm()
    elif last == "theta":
        value = 0.3 + 0.4 * normal
    elif last == "features":
        value = normal
    elif last == "offset_bias":
        value = 0.2 + 0.3 * normal
    elif last.endswith(("scale", "gate", "sigma")) or last == "weight" and like.dim() == 1:
        value = 1 + 0.2 * normal
    elif last.endswith(("bias", "offset")):
        value = 0.2 * normal
    else:
        value = normal / like[0].numel()**0.5
    return value.float().double()


def make_model(config, seed=None):
    """In evaluation, where random features are the fixed ones; weights are random where seeded."""
    model = TransNormer(config["model"], WORDS, config["data"]["tokens_per_sample"], "quadratic",
                        torch.get_default_dtype()).eval()
    if seed is not None:
        generator = torch.Generator().manual_seed(seed)
        model.load_state_dict({name: random_value(name, value, generator)
                               for name, value in model.state_dict().items()})
    return model


def make(config, seed):
    """The tensors of a file."""
    model, generator = make_model(config, seed), torch.Generator().manual_seed(seed + 1)
    held = {f"weight/{name}": value.float() for name, value in model.state_dict().items()}
    for case, shape in LENGTHS.items():
        tokens, targets = (torch.randint(WORDS, shape, generator=generator) for _ in range(2))
        logits = model(tokens)
        loss = model.loss(tokens, targets)
        held |= {f"{case}/tokens": tokens, f"{case}/targets": targets,
                 f"{case}/logits": logits.detach().float(), f"{case}/loss": loss.detach().view(1)}
        if case == "odd":
            loss.backward()
    # Those that act on nothing have none.
    held |= {f"gradient/{name}": value.grad.float() for name, value in model.named_parameters()
             if value.grad is not None}
    return held


def main():
    torch.set_default_dtype(torch.float64)
    every = cases()
    OUT.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[1:] or every:
        held = make(every[name], 1000 + 10 * list(every).index(name))
        path = OUT / f"{name}.safetensors"
        save_file(held, path, metadata={"config": json.dumps(every[name])})
        print(f"{name}: loss {held['odd/loss'].item():.6f}, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
