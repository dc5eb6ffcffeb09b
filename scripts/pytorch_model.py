"""TransNormer in plain PyTorch: the opponent of scripts/bench_pytorch.py.

Written as a user of PyTorch would write it who wants it fast: built from torch.nn, no kernels of its
own, no loop over tokens or chunks. It reads the "model" section of a resolved config
(`transnormer config show CONFIG --json`), and its tensors have the names of a checkpoint, so that
load_state_dict() takes a model.safetensors.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from pytorch_attentions import make_attention
from pytorch_parts import Place, make_norm, single

ACTIVATIONS = {"silu": F.silu, "relu": F.relu, "gelu": F.gelu, "none": lambda x: x}


def sinusoids(length, dim):
    """[length, dim]: sine half, cosine half; the first position is number 2."""
    half = dim // 2
    frequency = torch.exp(torch.arange(half).double() * (-math.log(10000) / max(half - 1, 1)))
    angle = (torch.arange(length).double() + 2)[:, None] * frequency
    table = torch.cat([angle.sin(), angle.cos()], 1).to(torch.get_default_dtype())
    return F.pad(table, (0, dim % 2))


class Ffn(nn.Module):
    def __init__(self, model):
        super().__init__()
        dim, width = model["dim"], model["ffn_dim"]
        self.activation = ACTIVATIONS[model["ffn_activation"]]
        self.gated = model["ffn"] == "glu"
        if self.gated:
            width = width or int(8 * dim / 3)
            self.gate_proj = nn.Linear(dim, width)
            self.up_proj = nn.Linear(dim, width)
            self.down_proj = nn.Linear(width, dim)
        else:
            width = width or 4 * dim
            self.fc1 = nn.Linear(dim, width)
            self.fc2 = nn.Linear(width, dim)

    def forward(self, x):
        if self.gated:
            return self.down_proj(self.activation(self.gate_proj(x)) * self.up_proj(x))
        return self.fc2(self.activation(self.fc1(x)))


class Layer(nn.Module):
    def __init__(self, model, index, length, linear_attention, compute):
        super().__init__()
        early = model["early_layers"] if model["early_layers"] >= 0 else model["layers"] // 2
        settings = model["early"] if index < early else model["late"]
        self.attn = make_attention(Place(model, index, length, linear_attention), settings)
        if self.attn.whole_layer:
            return
        self.ffn = Ffn(model)
        self.attn_norm = make_norm(model["norm"], model["dim"], model["norm_eps"])
        self.ffn_norm = make_norm(model["norm"], model["dim"], model["norm_eps"])
        self.dropout = nn.Dropout(model["dropout"])
        self.pre = model["norm_placement"] == "pre"
        self.compute = compute

    def forward(self, x):
        if self.attn.whole_layer:
            return x + self.attn(x)
        return self.around((self.attn, self.ffn), x)

    def step(self, x, state, position):
        return self.around((lambda y: self.attn.step(y, state, position), self.ffn), x)

    def around(self, parts, x):
        for part, norm in zip(parts, (self.attn_norm, self.ffn_norm)):
            # Cast once here; autocast would do it anew for each of the part's matrices.
            if self.pre:
                x = x + self.dropout(part(norm(x).to(self.compute)))
            else:
                x = norm(x + self.dropout(part(x.to(self.compute))))
        return x


class TransNormer(nn.Module):
    """model: a resolved config's section. length: the most tokens of a sequence. compute: the type
    that autocast gives to matrix products."""

    def __init__(self, model, vocab_size, length, linear_attention="chunked", compute=torch.float32):
        super().__init__()
        dim, eps = model["dim"], model["norm_eps"]
        self.scale, self.compute = math.sqrt(dim), compute
        self.embed = nn.Embedding(vocab_size, dim)
        nn.init.normal_(self.embed.weight, std=dim**-0.5)
        self.position = None
        if model["position"] == "learned":
            self.position = nn.Embedding(length, dim)
            nn.init.normal_(self.position.weight, std=dim**-0.5)
        elif model["position"] == "sinusoidal":
            self.register_buffer("sinusoids", sinusoids(length, dim), persistent=False)
        self.sinusoidal = model["position"] == "sinusoidal"
        post = model["norm_placement"] == "post"
        embed_norm = model.get("embed_norm", "auto")
        if embed_norm == "auto":
            embed_norm = model["norm"] if post else "none"
        self.embed_norm = None if embed_norm == "none" else make_norm(embed_norm, dim, eps)
        self.dropout = nn.Dropout(model["dropout"])
        self.layers = nn.ModuleList(Layer(model, index, length, linear_attention, compute)
                                    for index in range(model["layers"]))
        self.final_norm = None if post else make_norm(model["norm"], dim, eps)
        self.output, self.tied = nn.Module(), model["tie_embeddings"]
        if not self.tied:
            self.output.weight = nn.Parameter(torch.randn(vocab_size, dim) * dim**-0.5)
        bias = nn.Parameter(torch.zeros(vocab_size)) if model.get("output_bias") else None
        self.output.register_parameter("bias", bias)

    def forward(self, tokens):
        """tokens: [batch, time] -> logits [batch, time, vocab_size]."""
        x = self.embedded(tokens, slice(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.logits(x)

    def start(self, batch, length):
        """What decoding of up to `length` tokens remembers, before the first."""
        return [layer.attn.start(batch, length, self.compute) for layer in self.layers]

    def step(self, tokens, states, position):
        """tokens: [batch, 1], those at this position -> logits [batch, 1, vocab_size]. Weights of
        products are of type self.compute (to_compute())."""
        x = self.embedded(tokens, slice(position, position + 1))
        for layer, state in zip(self.layers, states):
            x = layer.step(x, state, position)
        return self.logits(x)

    def redraw(self):
        """Fresh random directions, for the next update in training."""
        for module in self.modules():
            if hasattr(module, "redraw") and module is not self:
                module.redraw()

    def to_compute(self):
        """Weights of products in their type, so that none is cast anew for each token."""
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                module.to(self.compute)
        self.output.to(self.compute)
        return self

    def embedded(self, tokens, positions):
        x = single(self.embed(tokens)) * self.scale
        if self.sinusoidal:
            x = x + self.sinusoids[positions]
        elif self.position is not None:
            x = x + self.position.weight[positions]
        if self.embed_norm is not None:
            x = self.embed_norm(x)
        return self.dropout(x)

    def logits(self, x):
        if self.final_norm is not None:
            x = self.final_norm(x)
        table = self.embed if self.tied else self.output
        return F.linear(x.to(self.compute), table.weight, self.output.bias)

    def loss(self, tokens, targets, reduction="mean"):
        """In fp32, which is what autocast makes of it."""
        return F.cross_entropy(self(tokens).flatten(0, 1), targets.flatten(), reduction=reduction)
