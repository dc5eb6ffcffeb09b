#!/usr/bin/env python3
"""Makes tests/model/baselines/*.safetensors: small models written plainly in PyTorch from the
definition in the paper, O(n^2) and in double precision, with their logits, losses and gradients.

Independent of the C++ code on purpose: nothing here is shared with it but the names of tensors.
Run it again only when the definition changes:  .venv/bin/python scripts/make_baselines.py
"""

import math
import pathlib

import torch
from safetensors.torch import save_file

LAYERS, DIM, HEADS, BLOCK, WORDS = 3, 20, 2, 8, 41
HEAD_DIM = DIM // HEADS
EPS = 1e-6
MODELS = ("t1", "t2", "transformer")
OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "model" / "baselines"


def make_weights(kind, generator):
    """Random weights by name; rounded to single precision, which is what the file holds."""
    weights = {}

    def add(name, *shape, scale=None, around=0.0):
        scale = shape[-1] ** -0.5 if scale is None else scale
        value = around + scale * torch.randn(*shape, generator=generator, dtype=torch.float64)
        weights[name] = value.float().double().requires_grad_()

    add("embed.weight", WORDS, DIM)
    for i in range(LAYERS):
        layer = f"layers.{i}"
        for norm in ("attn_norm", "ffn_norm"):
            if kind == "transformer":
                add(f"{layer}.{norm}.weight", DIM, scale=0.2, around=1.0)
                add(f"{layer}.{norm}.bias", DIM, scale=0.2)
        for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
            add(f"{layer}.attn.{part}.weight", DIM, DIM)
            add(f"{layer}.attn.{part}.bias", DIM, scale=0.2)
        if kind == "transformer":
            parts = (("fc1", 4 * DIM, DIM), ("fc2", DIM, 4 * DIM))
        else:
            width = int(8 / 3 * DIM)
            parts = (("gate_proj", width, DIM), ("up_proj", width, DIM), ("down_proj", DIM, width))
            add(f"{layer}.attn.lrpe.theta", HEAD_DIM // 2, scale=0.4, around=0.3)
            add(f"{layer}.attn.lrpe.reflect", HEAD_DIM)
            reflect = weights[f"{layer}.attn.lrpe.reflect"].detach()
            weights[f"{layer}.attn.lrpe.reflect"] = (reflect / reflect.norm()).float().double()
        for part, rows, columns in parts:
            add(f"{layer}.ffn.{part}.weight", rows, columns)
            add(f"{layer}.ffn.{part}.bias", rows, scale=0.2)
    if kind == "transformer":
        add("final_norm.weight", DIM, scale=0.2, around=1.0)
        add("final_norm.bias", DIM, scale=0.2)
    return weights


def simple_rms_norm(x):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + EPS)


def layer_norm(x, gain, bias):
    centred = x - x.mean(-1, keepdim=True)
    return gain * centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + EPS) + bias


def sinusoids(length):
    """Sine half, cosine half; the first position is number 2."""
    half = DIM // 2
    frequency = torch.tensor(
        [math.pow(10000.0, -i / (half - 1)) for i in range(half)], dtype=torch.float64
    )
    angle = (torch.arange(length, dtype=torch.float64) + 2)[:, None] * frequency
    return torch.cat([angle.sin(), angle.cos()], dim=-1)


def lrpe(x, positions, theta, reflect):
    """x: [batch, head, time, head_dim]. Householder reflection, then rotary on pairs (2i, 2i+1)."""
    householder = torch.eye(HEAD_DIM, dtype=torch.float64) - 2 * torch.outer(reflect, reflect)
    x = x @ householder
    out = torch.empty_like(x)
    for i in range(HEAD_DIM // 2):
        angle = positions.double() * theta[i]
        first, second = x[..., 2 * i], x[..., 2 * i + 1]
        out[..., 2 * i] = first * angle.cos() - second * angle.sin()
        out[..., 2 * i + 1] = first * angle.sin() + second * angle.cos()
    return out


def attention(kind, layer, weights, x):
    prefix = f"layers.{layer}.attn."
    batch, length, _ = x.shape

    def project(part, value):
        return value @ weights[prefix + part + ".weight"].T + weights[prefix + part + ".bias"]

    def heads(part):
        return project(part, x).view(batch, length, HEADS, HEAD_DIM).transpose(1, 2)

    q, k, v = heads("q_proj"), heads("k_proj"), heads("v_proj")
    time = torch.arange(length)
    causal = time[:, None] >= time[None, :]
    if kind == "transformer":
        scores = (q @ k.transpose(-1, -2)) / math.sqrt(HEAD_DIM)
        y = scores.masked_fill(~causal, -math.inf).softmax(-1) @ v
    else:
        theta, reflect = weights[prefix + "lrpe.theta"], weights[prefix + "lrpe.reflect"]
        if layer < LAYERS // 2:  # DiagAttention
            q = lrpe(q / math.sqrt(HEAD_DIM), time % BLOCK, theta, reflect)
            k = lrpe(k, time % BLOCK, theta, reflect)
            scores = q @ k.transpose(-1, -2)
            seen = causal & (time[:, None] // BLOCK == time[None, :] // BLOCK)
            if kind == "t2":
                y = scores.masked_fill(~seen, -math.inf).softmax(-1) @ v
            else:
                y = scores.masked_fill(~seen, 0).relu() @ v
        else:  # NormAttention
            phi = torch.nn.functional.elu
            shift = 1 if kind == "t2" else 0
            q = lrpe(phi(q) + shift, time, theta, reflect)
            k = lrpe(phi(k) + shift, time, theta, reflect)
            y = (q @ k.transpose(-1, -2)).masked_fill(~causal, 0) @ v
    y = y.transpose(1, 2).reshape(batch, length, DIM)
    if kind != "transformer" and (kind == "t1" or layer >= LAYERS // 2):
        y = simple_rms_norm(y)
    return project("out_proj", y)


def feed_forward(kind, layer, weights, x):
    prefix = f"layers.{layer}.ffn."

    def project(part, value):
        return value @ weights[prefix + part + ".weight"].T + weights[prefix + part + ".bias"]

    if kind == "transformer":
        return project("fc2", project("fc1", x).relu())
    gate = project("gate_proj", x)
    return project("down_proj", gate * torch.sigmoid(gate) * project("up_proj", x))


def logits_of(kind, weights, tokens):
    def norm(name, x):
        if kind == "transformer":
            return layer_norm(x, weights[name + ".weight"], weights[name + ".bias"])
        return simple_rms_norm(x)

    x = weights["embed.weight"][tokens] * math.sqrt(DIM) + sinusoids(tokens.shape[1])
    for i in range(LAYERS):
        x = x + attention(kind, i, weights, norm(f"layers.{i}.attn_norm", x))
        x = x + feed_forward(kind, i, weights, norm(f"layers.{i}.ffn_norm", x))
    return norm("final_norm", x) @ weights["embed.weight"].T


def mean_loss(logits, targets):
    picked = logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0]
    return -picked.mean()


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    for number, kind in enumerate(MODELS):
        generator = torch.Generator().manual_seed(100 + number)
        weights = make_weights(kind, generator)
        held = {f"weight/{name}": value.detach().float() for name, value in weights.items()}
        for case, (batch, length) in {"odd": (2, 37), "whole": (1, 3 * BLOCK)}.items():
            tokens = torch.randint(WORDS, (batch, length), generator=generator)
            targets = torch.randint(WORDS, (batch, length), generator=generator)
            logits = logits_of(kind, weights, tokens)
            loss = mean_loss(logits, targets)
            held[f"{case}/tokens"] = tokens
            held[f"{case}/targets"] = targets
            held[f"{case}/logits"] = logits.detach().float()
            held[f"{case}/loss"] = loss.detach().reshape(1)
            if case == "odd":
                trained = {name: w for name, w in weights.items() if w.requires_grad}
                gradients = torch.autograd.grad(loss, list(trained.values()))
                for name, gradient in zip(trained, gradients):
                    held[f"gradient/{name}"] = gradient.float()
        save_file(held, OUT / f"{kind}.safetensors")
        print(f"{kind}: loss {loss.item():.6f}, {(OUT / f'{kind}.safetensors').stat().st_size} bytes")


if __name__ == "__main__":
    main()
