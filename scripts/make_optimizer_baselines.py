#!/usr/bin/env python3
"""Makes tests/model/baselines/optimizers/muon.safetensors: parameters before and after 50 updates by
PyTorch's Muon (matrices of layers) and AdamW (the rest), at made-up gradients.

PyTorch's Newton-Schulz iteration is in bf16; here it is written plainly in single precision in its
place.  .venv/bin/python scripts/make_optimizer_baselines.py
"""

import math
import pathlib

import torch
import torch.optim._muon as torch_muon
from safetensors.torch import save_file

UPDATES = 50
SHAPES = {"embed.weight": (5, 3), "layers.0.attn.q_proj.weight": (6, 6),
          "layers.0.ffn.down_proj.bias": (7,), "layers.0.ffn.up_proj.weight": (9, 4),
          "layers.1.ffn.down_proj.weight": (4, 9)}
OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/model/baselines/optimizers"


def newton_schulz(matrix, coefficients, steps, eps):
    a, b, c = coefficients
    x = matrix / max(matrix.norm().item(), eps)
    if len(x) > len(x[0]):
        return newton_schulz(matrix.T, coefficients, steps, eps).T
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


def start_of(shape):
    return torch.tensor([math.cos(0.9 * i) for i in range(math.prod(shape))]).view(shape)


def gradient_of(update, shape):
    return torch.tensor([math.sin(1.7 * update + 0.37 * (i + 1) ** 2)
                         for i in range(math.prod(shape))]).view(shape)


def trained(nesterov):
    weights = {name: torch.nn.Parameter(start_of(shape)) for name, shape in SHAPES.items()}
    matrices = [weight for name, weight in weights.items()
                if name.startswith("layers.") and weight.dim() == 2]
    others = [weight for weight in weights.values() if all(weight is not m for m in matrices)]
    optimizers = [torch.optim.Muon(matrices, weight_decay=0.1, nesterov=nesterov,
                                   adjust_lr_fn="match_rms_adamw"),
                  torch.optim.AdamW(others, betas=(0.9, 0.98), eps=1e-8, weight_decay=0.1)]
    for update in range(UPDATES):
        for weight in weights.values():
            weight.grad = gradient_of(update, weight.shape)
        for optimizer in optimizers:
            optimizer.param_groups[0]["lr"] = 1e-2 / (1 + update)
            optimizer.step()
    return {name: weight.detach().contiguous() for name, weight in weights.items()}


def main():
    torch_muon._zeropower_via_newtonschulz = newton_schulz
    tensors = {f"start.{name}": start_of(shape) for name, shape in SHAPES.items()}
    for kind, nesterov in (("nesterov", True), ("plain", False)):
        tensors |= {f"{kind}.{name}": weight for name, weight in trained(nesterov).items()}
    OUT.mkdir(parents=True, exist_ok=True)
    save_file(tensors, OUT / "muon.safetensors")


if __name__ == "__main__":
    main()
