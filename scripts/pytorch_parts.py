"""What the attentions and the model of the PyTorch side share: norms, LRPE, the cutting of sequences,
the forms of linear attention, projections into heads. Built from torch.nn, no kernels of its own.

Types follow the weights: in double precision where those are (scripts/make_attention_baselines.py),
otherwise what needs it is in single precision, whatever the products are in.
"""

import dataclasses
import math

import torch
import torch.nn.functional as F
from torch import nn

CHUNK = 64  # tokens of a chunk of linear attention


def single(x):
    """At least single precision."""
    return x if x.dtype == torch.float64 else x.float()


class SimpleRmsNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps), in single precision, with a gain where told."""

    def __init__(self, dim, eps, gain=False):
        super().__init__()
        self.dim, self.eps = dim, eps
        self.weight = nn.Parameter(torch.ones(dim)) if gain else None

    def forward(self, x):
        if x.is_cuda:
            return F.rms_norm(single(x), (self.dim,), self.weight, self.eps)
        # F.rms_norm is no fused kernel on a CPU; this takes fewer passes, there and back.
        dtype = torch.promote_types(x.dtype, torch.float32)
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=dtype)
        y = x * torch.rsqrt(norm.square() / self.dim + self.eps)
        return y if self.weight is None else y * self.weight


def make_norm(kind, dim, eps):
    if kind == "none":
        return nn.Identity()
    return nn.LayerNorm(dim, eps=eps) if kind == "layer" else SimpleRmsNorm(dim, eps, kind == "rms")


# Blocks of sequences. Whole sequences are [batch, time, heads, head_dim] throughout.

def cut(x, size):
    """[batch, time, heads, head_dim] -> [batch, time / size, heads, size, head_dim], zeros behind."""
    if missing := -x.shape[1] % size:
        x = F.pad(x, (0, 0, 0, 0, 0, missing))
    return x.unflatten(1, (-1, size)).transpose(2, 3)


def joined(x, time):
    """What cut() took apart."""
    return x.transpose(2, 3).flatten(1, 2)[:, :time]


def with_neighbours(blocks, before, after):
    """[batch, blocks, heads, size, head_dim]: each block between as many whole ones from before it
    and from after it, zeros where there are none."""
    count, size = blocks.shape[1], blocks.shape[3]
    blocks = F.pad(blocks, (0, 0, 0, 0, 0, 0, before, after))
    return torch.cat([blocks[:, i:i + count] for i in range(before + 1 + after)], 3)


def block_positions(time, size, before, after, device):
    """Positions of the queries of each block, [blocks, size, 1], and of the keys that
    with_neighbours() gives it, [blocks, 1, keys], and whether such a key exists."""
    start = torch.arange(0, time, size, device=device)[:, None, None]
    queries = start + torch.arange(size, device=device)[:, None]
    keys = start + torch.arange(-before * size, (1 + after) * size, device=device)
    return queries, keys, (keys >= 0) & (keys < time)


# Linear attention: the sum over the tokens j that i sees of (q_i k_j) decay^|i-j| v_j.

def decays(decay, distance):
    """[heads, *distance]: decay^distance, where decay is [heads]."""
    return decay.view(-1, *(1,) * distance.dim()) ** distance.clamp(min=0)


def quadratic_linear_attention(q, k, v, causal=True, decay=None, window=0):
    """As the published code trains, by all of Q K^T. All are [batch, time, heads, head_dim]."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    scores = q @ k.mT
    if decay is None and not window:
        return ((scores.tril() if causal else scores) @ v).transpose(1, 2)
    time = torch.arange(q.shape[2], device=q.device)
    distance = time[:, None] - time
    if decay is not None:
        scores = scores * decays(decay, distance.abs()).to(scores.dtype)
    seen = distance >= 0 if causal else distance == distance
    if window:
        seen = seen & (distance.abs() < window)
    return (scores.masked_fill(~seen, 0) @ v).transpose(1, 2)


def chunked_linear_attention(q, k, v, causal=True, decay=None, window=0):
    """The same in time linear in the length: inside each chunk as above, and from the chunks before
    by the running sum of their K^T V, kept in fp32."""
    if window:
        return windowed_linear_attention(q, k, v, causal, decay, window)
    if decay is not None:
        return decaying_linear_attention(q, k, v, causal, decay)
    if not causal:
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return (q @ (k.mT @ v)).transpose(1, 2)
    time = q.shape[1]
    q, k, v = (cut(x, CHUNK).contiguous() for x in (q, k, v))
    sums = single(k.mT @ v)
    before = F.pad(sums[:, :-1].cumsum(1), (0, 0, 0, 0, 0, 0, 1, 0)).to(q.dtype)
    return joined((q @ k.mT).tril() @ v + q @ before, time)


def decaying_linear_attention(q, k, v, causal, decay):
    """Chunks' sums reach later chunks by the decay between them."""
    if not causal:  # there, and back; oneself is met twice
        there, back = (decaying_linear_attention(*parts, True, decay)
                       for parts in ((q, k, v), (x.flip(1) for x in (q, k, v))))
        return there + back.flip(1) - (q * k).sum(-1, keepdim=True) * v
    time = q.shape[1]
    q, k, v = (cut(x, CHUNK) for x in (q, k, v))
    place = torch.arange(CHUNK, device=q.device)
    inside = decays(decay, place[:, None] - place).tril().to(q.dtype)
    to_end, from_start = (decays(decay, x)[..., None].to(q.dtype)
                          for x in (CHUNK - 1 - place, place + 1))
    sums = single((k * to_end).mT @ v)
    chunk = torch.arange(q.shape[1], device=q.device)
    between = decays(decay, CHUNK * (chunk[:, None] - chunk - 1)).tril(-1).to(sums.dtype)
    before = torch.einsum("hce,behkv->bchkv", between, sums).to(q.dtype)
    return joined((q @ k.mT * inside) @ v + (q * from_start) @ before, time)


def windowed_linear_attention(q, k, v, causal, decay, window):
    """|i - j| < window: blocks as long as the window see their neighbours."""
    time, after = q.shape[1], 0 if causal else 1
    queries, keys, exists = block_positions(time, window, 1, after, q.device)
    distance = queries - keys
    seen = exists & (distance.abs() < window)
    if causal:
        seen = seen & (distance >= 0)
    q, k, v = (cut(x, window) for x in (q, k, v))
    k, v = (with_neighbours(x, 1, after) for x in (k, v))
    scores = (q @ k.mT).masked_fill(~seen[:, None], 0)
    if decay is not None:
        scores = scores * decays(decay, distance.abs()).transpose(0, 1).to(scores.dtype)
    return joined(scores @ v, time)


FORMS = {"quadratic": quadratic_linear_attention, "chunked": chunked_linear_attention}


class Lrpe(nn.Module):
    """A frozen reflection, then a rotation of pairs by learned angles; for q and k of all heads."""

    def __init__(self, head_dim, length, period=0):
        super().__init__()
        exponent = torch.arange(head_dim // 2) * (-2 / head_dim)
        self.theta = nn.Parameter((10000**exponent).to(torch.get_default_dtype()))
        self.register_buffer("reflect", F.normalize(torch.randn(head_dim), dim=0))
        positions = torch.arange(length) % period if period else torch.arange(length)
        self.register_buffer("positions", positions.to(self.theta.dtype), persistent=False)
        self.kept = None

    def forward(self, q, k):
        """q, k: [batch, time, heads, head_dim]. The first of all pairs come out first, then the
        second ones: the order does not matter to q k^T, and halves are faster than pairs."""
        return self.encoded(q, k, *self.matrices(slice(q.shape[1]), q.dtype))

    def in_pairs(self, x):
        """One of forward's results in the order of its definition, pair by pair."""
        return torch.stack(x.chunk(2, -1), -1).flatten(-2)

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
        mirror = torch.cat([mirror[:, 0::2], mirror[:, 1::2]], 1)
        return angle.cos().to(dtype), angle.sin().to(dtype), mirror.to(dtype)

    def encoded(self, q, k, cos, sin, mirror):
        return self.rotated(q @ mirror, cos, sin), self.rotated(k @ mirror, cos, sin)

    @staticmethod
    def rotated(x, cos, sin):
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


@dataclasses.dataclass(frozen=True)
class Place:
    """Where in a model an attention stands."""

    model: dict  # a resolved config's section
    layer: int  # of model["layers"]
    length: int  # the most tokens of a sequence, data.tokens_per_sample
    linear_attention: str = "chunked"
    inner: int = 0  # of all heads together; 0: the model's width

    @property
    def inner_dim(self):
        return self.inner or self.model["dim"]

    @property
    def causal(self):
        return self.model.get("causal", True)


class Attention(nn.Module):
    """out_proj(norm(attend(q, k, v))): the projections that most kinds share. `settings` is the
    config's model.early or model.late."""

    can_be_causal = True
    whole_layer = False  # stands for norm, attention and feed-forward together
    encodes = True  # has LRPE where the model has
    gain = 0.5**0.5  # of the initial q, k and v

    def __init__(self, place, settings, key_dim_factor=1):
        super().__init__()
        model = place.model
        self.place, self.settings, self.causal = place, settings, place.causal
        dim, inner, self.heads = model["dim"], place.inner_dim, model["heads"]
        self.head_dim, self.key_dim = inner // self.heads, key_dim_factor * inner // self.heads
        self.dropout = model["attention_dropout"]
        for name, rows in (("q_proj", key_dim_factor * inner), ("k_proj", key_dim_factor * inner),
                           ("v_proj", inner)):
            self.add_module(name, nn.Linear(dim, rows))
            nn.init.xavier_uniform_(self.get_submodule(name).weight, self.gain)
        self.out_proj = nn.Linear(inner, dim)
        nn.init.xavier_uniform_(self.out_proj.weight)
        nn.init.zeros_(self.out_proj.bias)
        self.lrpe = None
        if model["lrpe"] and self.encodes:
            self.lrpe = Lrpe(self.key_dim, place.length, settings.get("block", 0))
        self.output_norm = make_norm(settings.get("output_norm", "none"), inner, model["norm_eps"])

    def feature_map(self, x):
        """Of q and k, before LRPE."""
        return x

    def projected(self, x, queries):
        q, k, v = (projection(y).unflatten(-1, (self.heads, -1)) for projection, y in
                   ((self.q_proj, queries), (self.k_proj, x), (self.v_proj, x)))
        return self.feature_map(q), self.feature_map(k), v

    def encoded(self, q, k):
        return (q, k) if self.lrpe is None else self.lrpe(q, k)

    def finish(self, merged, x):
        """merged: [batch, time, inner], what the heads give; its norm and gate."""
        return self.output_norm(merged)

    def finished(self, y, x):
        # The norm's result is in single precision, the projection may be in half.
        return self.out_proj(self.finish(y.flatten(2), x).to(x.dtype))

    def forward(self, x, queries=None):
        """x: [batch, time, dim]. queries: what q is made of, where that is not x."""
        q, k, v = self.projected(x, x if queries is None else queries)
        return self.finished(self.attend(*self.encoded(q, k), v, x), x)

    def dropped(self, weights):
        return F.dropout(weights, self.dropout) if self.training and self.dropout else weights

    def fused(self, q, k, v, mask=None, causal=False):
        """Softmax attention by PyTorch's own."""
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return F.scaled_dot_product_attention(
            q, k, v, mask, is_causal=causal, dropout_p=self.dropout if self.training else 0.0
        ).transpose(1, 2)

    # Decoding: those that have start() and attend_step().

    def step(self, x, state, position):
        """x: [batch, 1, dim], the token at this position; brings the state up to date."""
        q, k, v = self.projected(x, x)
        if self.lrpe is not None:
            q, k = self.lrpe.step(q, k, position)
        q, k, v = (y.transpose(1, 2) for y in (q, k, v))
        return self.finished(self.attend_step(q, k, v, state, position).transpose(1, 2), x)

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


def decay_rates(place, heads):
    """[heads], the decay of a layer: exp(-s (1 - layer / (layers - 1) + 1e-5)), s = 2^(-8 h / heads)."""
    layers = place.model["layers"]
    factor = 1 + 1e-5 - (place.layer / (layers - 1) if layers > 1 else 0)
    return torch.tensor([math.exp(-factor * 2 ** (-8 * h / heads)) for h in range(1, heads + 1)])


class LinearFamily(Attention):
    """Those whose weights are products of features: linear attention in one of its forms."""

    window = 0

    def __init__(self, place, settings, key_dim_factor=1):
        super().__init__(place, settings, key_dim_factor)
        decays = settings.get("decay", "none") != "none"
        self.register_buffer("decay", decay_rates(place, self.heads) if decays else None,
                             persistent=False)

    def sums(self, q, k, v):
        form = FORMS[self.place.linear_attention]
        if q.dtype == torch.float16 or torch.is_autocast_enabled(q.device.type) and \
                torch.get_autocast_dtype(q.device.type) == torch.float16:
            # Sums over the tokens would overflow.
            with torch.autocast(q.device.type, enabled=False):
                return form(q.float(), k.float(), v.float(), self.causal, self.decay, self.window)
        return form(q, k, v, self.causal, self.decay, self.window)

    def means(self, q, k, v, floor=None, encoded=None):
        """sums() over the sum of the weights, which is at least `floor`. encoded: the features of
        the numerator, where they are others."""
        ones = torch.ones_like(v[..., :1])
        if encoded is None:
            both = self.sums(q, k, torch.cat((v, ones), -1))
            numerator, denominator = both[..., :-1], both[..., -1:]
        else:
            numerator, denominator = self.sums(*encoded, v), self.sums(q, k, ones)
        denominator = single(denominator)
        return numerator / (denominator if floor is None else denominator.clamp(min=floor))
