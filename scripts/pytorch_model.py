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

ACTIVATIONS = {"silu": F.silu, "relu": F.relu, "gelu": F.gelu, "none": lambda x: x}
CHUNK = 64  # tokens of a chunk of linear attention
LINEAR_ATTENTIONS = ("quadratic", "chunked")


class SimpleRmsNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps), in single precision, with a gain where told."""

    def __init__(self, dim, eps, gain=False):
        super().__init__()
        self.dim, self.eps = dim, eps
        self.weight = nn.Parameter(torch.ones(dim)) if gain else None

    def forward(self, x):
        if x.is_cuda:
            return F.rms_norm(x.float(), (self.dim,), self.weight, self.eps)
        # F.rms_norm is no fused kernel on a CPU; this takes fewer passes, there and back.
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
        y = x * torch.rsqrt(norm.square() / self.dim + self.eps)
        return y if self.weight is None else y * self.weight


def make_norm(kind, dim, eps):
    if kind == "none":
        return nn.Identity()
    return nn.LayerNorm(dim, eps=eps) if kind == "layer" else SimpleRmsNorm(dim, eps, kind == "rms")


def sinusoids(length, dim):
    """[length, dim]: sine half, cosine half; the first position is number 2."""
    half = dim // 2
    frequency = torch.exp(torch.arange(half).double() * (-math.log(10000) / max(half - 1, 1)))
    angle = (torch.arange(length).double() + 2)[:, None] * frequency
    return F.pad(torch.cat([angle.sin(), angle.cos()], 1).float(), (0, dim % 2))


def cut(x, size):
    """[batch, time, heads, head_dim] -> [batch, time / size, heads, size, head_dim], zeros behind."""
    if missing := -x.shape[1] % size:
        x = F.pad(x, (0, 0, 0, 0, 0, missing))
    return x.unflatten(1, (-1, size)).transpose(2, 3)


def joined(x, time):
    """What cut() took apart."""
    return x.transpose(2, 3).flatten(1, 2)[:, :time]


def quadratic_linear_attention(q, k, v):
    """tril(Q K^T) V, as the published code trains. All are [batch, time, heads, head_dim]."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return ((q @ k.mT).tril() @ v).transpose(1, 2)


def chunked_linear_attention(q, k, v):
    """The same in time linear in the length: inside each chunk as above, and from the chunks before
    by the running sum of their K^T V, kept in fp32."""
    time = q.shape[1]
    q, k, v = (cut(x, CHUNK).contiguous() for x in (q, k, v))
    sums = (k.mT @ v).float()
    before = F.pad(sums[:, :-1].cumsum(1), (0, 0, 0, 0, 0, 0, 1, 0)).to(q.dtype)
    return joined((q @ k.mT).tril() @ v + q @ before, time)


class Lrpe(nn.Module):
    """A frozen reflection, then a rotation of pairs by learned angles; for q and k of all heads."""

    def __init__(self, head_dim, length, period):
        super().__init__()
        exponent = torch.arange(head_dim // 2) * (-2 / head_dim)
        self.theta = nn.Parameter(10000**exponent)
        self.register_buffer("reflect", F.normalize(torch.randn(head_dim), dim=0))
        positions = torch.arange(length) % period if period else torch.arange(length)
        self.register_buffer("positions", positions.float(), persistent=False)
        self.kept = None

    def forward(self, q, k):
        """q, k: [batch, time, heads, head_dim]."""
        return self.encoded(q, k, *self.matrices(slice(q.shape[1]), q.dtype))

    def step(self, q, k, position):
        """One time, by matrices that are made once, for decoding."""
        if self.kept is None or self.kept[0].dtype != q.dtype:
            self.kept = self.matrices(slice(None), q.dtype)
        cos, sin, mirror = self.kept
        return self.encoded(q, k, cos[position], sin[position], mirror)

    def matrices(self, rows, dtype):
        angle = self.positions[rows, None, None] * self.theta
        u = self.reflect
        mirror = torch.eye(len(u), device=u.device) - 2 * torch.outer(u, u)
        # The first of all pairs, then the second: the order does not matter to q k^T, and halves are
        # faster than pairs.
        mirror = torch.cat([mirror[:, 0::2], mirror[:, 1::2]], 1)
        return angle.cos().to(dtype), angle.sin().to(dtype), mirror.to(dtype)

    def encoded(self, q, k, cos, sin, mirror):
        return self.rotated(q @ mirror, cos, sin), self.rotated(k @ mirror, cos, sin)

    @staticmethod
    def rotated(x, cos, sin):
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


class Attention(nn.Module):
    """out_proj(norm(attend(q, k, v))): the projections that all kinds share."""

    def __init__(self, model, settings, length):
        super().__init__()
        dim, self.heads = model["dim"], model["heads"]
        self.head_dim = dim // self.heads
        self.dropout = model["attention_dropout"]
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            gain = 1 if name == "out_proj" or settings["attention"] == "diag" else 0.5**0.5
            projection = nn.Linear(dim, dim)
            nn.init.xavier_uniform_(projection.weight, gain)
            self.add_module(name, projection)
        nn.init.zeros_(self.out_proj.bias)
        self.lrpe = None
        if model["lrpe"]:
            self.lrpe = Lrpe(self.head_dim, length, settings.get("block", 0))
        self.output_norm = make_norm(settings.get("output_norm", "none"), dim, model["norm_eps"])

    def features(self, x):
        return x

    def projected(self, x):
        q, k, v = (projection(x).unflatten(-1, (self.heads, self.head_dim))
                   for projection in (self.q_proj, self.k_proj, self.v_proj))
        return self.features(q), self.features(k), v

    def finished(self, y):
        # The norm's result is in single precision, the projection may be in half.
        return self.out_proj(self.output_norm(y.flatten(2)).to(y.dtype))

    def forward(self, x):
        q, k, v = self.projected(x)
        if self.lrpe is not None:
            q, k = self.lrpe(q, k)
        return self.finished(self.attend(q, k, v))

    def step(self, x, state, position):
        """x: [batch, 1, dim], the token at this position; brings the state up to date."""
        q, k, v = self.projected(x)
        if self.lrpe is not None:
            q, k = self.lrpe.step(q, k, position)
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return self.finished(self.attend_step(q, k, v, state, position).transpose(1, 2))

    def cache(self, batch, length, dtype):
        """For keys and values, [batch, heads, length, head_dim]."""
        shape = batch, self.heads, length, self.head_dim
        return [torch.zeros(shape, dtype=dtype, device=self.out_proj.weight.device)
                for _ in range(2)]

    @staticmethod
    def remember(k, v, cache, slot):
        """Keys and values up to the slot, in which the new ones are put."""
        for new, old in zip((k, v), cache):
            old[:, :, slot] = new[:, :, 0]
        return (old[:, :, :slot + 1] for old in cache)


class SoftmaxAttention(Attention):
    def start(self, batch, length, dtype):
        return self.cache(batch, length, dtype)

    def attend_step(self, q, k, v, state, position):
        return F.scaled_dot_product_attention(q, *self.remember(k, v, state, position))

    def attend(self, q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return F.scaled_dot_product_attention(
            q, k, v, is_causal=True, dropout_p=self.dropout if self.training else 0.0
        ).transpose(1, 2)


class DiagAttention(Attention):
    """Attention inside blocks of `block` tokens."""

    def __init__(self, model, settings, length):
        super().__init__(model, settings, length)
        self.block, self.score = settings["block"], settings["score"]
        self.scale = self.head_dim**-0.5
        later = torch.ones(self.block, self.block).triu(1).bool()
        self.register_buffer("mask", torch.zeros(self.block, self.block).masked_fill(
            later, -math.inf), persistent=False)

    def start(self, batch, length, dtype):
        return self.cache(batch, self.block, dtype)

    def attend_step(self, q, k, v, state, position):
        keys, values = self.remember(k, v, state, position % self.block)
        if self.score == "softmax":
            return F.scaled_dot_product_attention(q, keys, values)
        return F.relu(q @ keys.mT * self.scale) @ values

    def attend(self, q, k, v):
        blocks = [cut(x, self.block) for x in (q, k, v)]
        y = self.attend_in_blocks(*(x.flatten(0, 2) for x in blocks))
        return joined(y.view(blocks[0].shape), q.shape[1])

    def attend_in_blocks(self, q, k, v):
        """All are [batch * blocks * heads, block, head_dim]."""
        dropout = self.dropout if self.training else 0.0
        if self.score == "softmax" and q.is_cuda:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout)
        # On a CPU, products of whole blocks are faster than the fused attention.
        if self.score == "softmax":
            scores = torch.baddbmm(self.mask.to(q.dtype), q, k.mT, alpha=self.scale).softmax(-1)
        else:
            scores = F.relu(q @ k.mT * self.scale).tril()
        return (F.dropout(scores, dropout) if dropout else scores) @ v


class NormAttention(Attention):
    """Linear attention without a denominator, its output normalised."""

    def __init__(self, model, settings, length, linear_attention):
        super().__init__(model, settings, length)
        self.shift = 1 if settings["kernel"] == "elu1" else 0
        self.linear_attention = (quadratic_linear_attention if linear_attention == "quadratic"
                                 else chunked_linear_attention)

    def features(self, x):
        return F.elu(x) + self.shift if self.shift else F.elu(x)

    def start(self, batch, length, dtype):
        """The sum of k^T v, in single precision."""
        shape = batch, self.heads, self.head_dim, self.head_dim
        return torch.zeros(shape, device=self.out_proj.weight.device)

    def attend_step(self, q, k, v, state, position):
        state.flatten(0, 1).baddbmm_(k.flatten(0, 1).mT.float(), v.flatten(0, 1).float())
        return (q.float() @ state).to(q.dtype)

    def attend(self, q, k, v):
        if q.dtype == torch.float16:  # sums over the tokens would overflow
            with torch.autocast(q.device.type, enabled=False):
                return self.linear_attention(q.float(), k.float(), v.float())
        return self.linear_attention(q, k, v)


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
        kinds = {"diag": DiagAttention, "softmax": SoftmaxAttention}
        if settings["attention"] == "norm":
            self.attn = NormAttention(model, settings, length, linear_attention)
        else:
            self.attn = kinds[settings["attention"]](model, settings, length)
        self.ffn = Ffn(model)
        self.attn_norm = make_norm(model["norm"], model["dim"], model["norm_eps"])
        self.ffn_norm = make_norm(model["norm"], model["dim"], model["norm_eps"])
        self.dropout = nn.Dropout(model["dropout"])
        self.pre = model["norm_placement"] == "pre"
        self.compute = compute

    def forward(self, x):
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
        self.embed_norm = make_norm(model["norm"], dim, eps) if post else None
        self.dropout = nn.Dropout(model["dropout"])
        self.layers = nn.ModuleList(Layer(model, index, length, linear_attention, compute)
                                    for index in range(model["layers"]))
        self.final_norm = None if post else make_norm(model["norm"], dim, eps)
        self.output = None
        if not model["tie_embeddings"]:
            self.output = nn.Embedding(vocab_size, dim)
            nn.init.normal_(self.output.weight, std=dim**-0.5)

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

    def to_compute(self):
        """Weights of products in their type, so that none is cast anew for each token."""
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                module.to(self.compute)
        return self

    def embedded(self, tokens, positions):
        x = self.embed(tokens).float() * self.scale
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
        return F.linear(x.to(self.compute), (self.output or self.embed).weight)

    def loss(self, tokens, targets, reduction="mean"):
        """In fp32, which is what autocast makes of it."""
        return F.cross_entropy(self(tokens).flatten(0, 1), targets.flatten(), reduction=reduction)
