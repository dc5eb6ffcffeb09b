"""Every attention that a config can name, as a user of PyTorch would write it plainly: for
scripts/make_attention_baselines.py, whose results the tests of the C++ code compare with, and for
scripts/bench_pytorch.py. Written from the definitions, not from that code; what they have in common
is names of tensors and settings.

Linear attentions have a quadratic and a chunked form (pytorch_parts.py); the others take what time
is usual for them in PyTorch: by blocks where a window is all that is seen, n^2 otherwise.
"""

import dataclasses
import math

import torch
import torch.nn.functional as F
from torch import nn

from pytorch_long_short import TransformerLsAttention
from pytorch_parts import (Attention, LinearFamily, SimpleRmsNorm, block_positions, cut, joined,
                           single, with_neighbours)

KERNELS = {"elu1": lambda x: F.elu(x) + 1, "elu": F.elu, "relu": F.relu, "silu": F.silu,
           "exp": torch.exp}
GATES = {"linear": lambda x: x, "silu": F.silu, "sigmoid": torch.sigmoid}


def distances(time, device):
    """[time, time]: i - j."""
    place = torch.arange(time, device=device)
    return place[:, None] - place


# Softmax and what is like it.

class SoftmaxAttention(Attention):
    """softmax(q k / sqrt(dh)) v."""

    def start(self, batch, length, dtype):
        return self.cache(batch, length, dtype)

    def attend_step(self, q, k, v, state, position):
        return F.scaled_dot_product_attention(q, *self.remember(k, v, state, position))

    def attend(self, q, k, v, x):
        return self.fused(q, k, v, causal=self.causal)


class DiagAttention(Attention):
    """Attention inside blocks of `block` tokens."""

    gain = 1

    def __init__(self, place, settings):
        super().__init__(place, settings)
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

    def attend(self, q, k, v, x):
        time = q.shape[1]
        blocks = [cut(y, self.block) for y in (q, k, v)]
        if self.causal:
            y = self.attend_in_blocks(*(y.flatten(0, 2) for y in blocks))
        else:
            y = self.attend_both_ways(*blocks, time)
        return joined(y.view(blocks[0].shape), time)

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
        return self.dropped(scores) @ v

    def attend_both_ways(self, q, k, v, time):
        """All are [batch, blocks, heads, block, head_dim]."""
        scores = q @ k.mT * self.scale
        if self.score == "softmax":
            exists = block_positions(time, self.block, 0, 0, q.device)[2]
            scores = scores.masked_fill(~exists[:, None], -math.inf).softmax(-1)
        else:
            scores = F.relu(scores)
        return self.dropped(scores) @ v


class RelaAttention(Attention):
    """relu(q k / sqrt(dh)) v; then scale * norm(y) * sigmoid(gate * y) over the merged heads."""

    gain = 1

    def __init__(self, place, settings):
        super().__init__(place, settings)
        inner = place.inner_dim
        self.scale = nn.Parameter(torch.ones(inner))
        self.gate = nn.Parameter(torch.ones(inner)) if settings["gated"] else None
        self.norm = SimpleRmsNorm(inner, place.model["norm_eps"])

    def attend(self, q, k, v, x):
        q, k, v = (y.transpose(1, 2) for y in (q, k, v))
        scores = F.relu(q @ k.mT * self.head_dim**-0.5)
        return (self.dropped(scores.tril() if self.causal else scores) @ v).transpose(1, 2)

    def finish(self, merged, x):
        y = self.scale * self.norm(merged)
        return y if self.gate is None else y * torch.sigmoid(self.gate * merged)


class SparseAttention(Attention):
    """Softmax over the nearest `window` tokens and every `stride`-th one."""

    def attend(self, q, k, v, x):
        distance = distances(q.shape[1], q.device)
        seen = (distance.abs() < self.settings["window"]) | \
            (distance % self.settings["stride"] == 0)
        if self.causal:
            seen &= distance >= 0
        return self.fused(q, k, v, seen)


class PooledAttention(Attention):
    """Softmax over means of `stride` neighbouring keys and values."""

    can_be_causal = encodes = False

    def attend(self, q, k, v, x):
        stride, time = self.settings["stride"], k.shape[1]
        sizes = torch.full((-(-time // stride),), stride, device=k.device)
        sizes[-1] -= -time % stride
        k, v = (cut(y, stride).sum(3) / sizes[:, None, None].to(y.dtype) for y in (k, v))
        return self.fused(q, k, v)


# Linear attention.

class NormAttention(LinearFamily):
    """Linear attention without a denominator, its output normalised; with a fixed decay, and a gate
    of the layer's input, where told."""

    def __init__(self, place, settings):
        super().__init__(place, settings)
        self.feature_map = KERNELS[settings["kernel"]]
        self.gate_proj = None
        if settings.get("gate", "none") != "none":
            self.gate_proj = nn.Linear(place.model["dim"], place.inner_dim)

    def attend(self, q, k, v, x):
        return self.sums(q, k, v)

    def finish(self, merged, x):
        y = self.output_norm(merged)
        return y if self.gate_proj is None else y * GATES[self.settings["gate"]](self.gate_proj(x))

    def start(self, batch, length, dtype):
        """The sum of k^T v, in single precision."""
        shape = batch, self.heads, self.head_dim, self.head_dim
        return torch.zeros(shape, device=self.out_proj.weight.device)

    def attend_step(self, q, k, v, state, position):
        if self.decay is not None:
            state *= self.decay[:, None, None]
        state.flatten(0, 1).baddbmm_(k.flatten(0, 1).mT.float(), v.flatten(0, 1).float())
        return (q.float() @ state).to(q.dtype)


class LinearAttention(LinearFamily):
    """phi(q) (sum phi(k) v^T) / phi(q) sum phi(k); LRPE acts on the numerator alone."""

    def __init__(self, place, settings):
        super().__init__(place, settings, settings["key_dim_factor"])
        self.kernel, self.window = KERNELS[settings["kernel"]], settings["window"]

    def encoded(self, q, k):
        return q, k

    def attend(self, q, k, v, x):
        divided = self.settings["denominator"]
        exponential = divided and self.settings["kernel"] == "exp"
        if exponential:  # what is subtracted cancels out
            q = q - q.detach().amax(-1, keepdim=True)
            k = k - k.detach().amax((1, 3), keepdim=True)
        q, k = self.kernel(q), self.kernel(k)
        encoded = None if self.lrpe is None else self.lrpe(q, k)
        if not divided:
            return self.sums(*(encoded or (q, k)), v)
        return self.means(q, k, v, None if exponential else 1e-6, encoded)


class TaylorAttention(LinearFamily):
    """Weights 1 + cos(q, k)."""

    def attend(self, q, k, v, x):
        q, k = (F.pad(F.normalize(y, dim=-1), (1, 0), value=1.0) for y in (q, k))
        return self.means(q, k, v, 1e-6)


class EfficientAttention(LinearFamily):
    """softmax of q over its features, times softmax of each feature of k over the tokens seen."""

    encodes = False

    def attend(self, q, k, v, x):
        q, k = single(q).softmax(-1), single(k)
        most = k.detach().amax(1, keepdim=True)
        sums = k.logcumsumexp(1) if self.causal else k.logsumexp(1, keepdim=True)
        return self.sums(q * (most - sums).exp(), (k - most).exp(), v)


class CosformerAttention(LinearFamily):
    """relu(q) relu(k) cos(pi/2 (i - j) / horizon)."""

    encodes = False

    def attend(self, q, k, v, x):
        horizon = self.settings["horizon"] or self.place.length
        angle = torch.arange(q.shape[1], device=q.device).to(single(q).dtype) * \
            (math.pi / 2 / horizon)
        cos, sin = (y[:, None, None].to(q.dtype) for y in (angle.cos(), angle.sin()))
        q, k = (torch.cat((y * cos, y * sin), -1) for y in (F.relu(q), F.relu(k)))
        return self.means(q, k, v, 1e-6)


class RandomFeatureAttention(LinearFamily):
    """Features of random directions, [heads, rows, head_dim]: one fixed set, saved with the model,
    and in training, where told, the set that redraw() makes for each update."""

    def __init__(self, place, settings):
        super().__init__(place, settings)
        self.register_buffer("features", self.draw())
        self.register_buffer("fresh", self.draw(), persistent=False)

    def normal(self, *shape):
        return torch.randn(self.heads, *shape, device=self.out_proj.weight.device)

    def draw(self):
        return self.normal(self.settings["features"], self.head_dim)

    def redraw(self):
        if self.settings["redraw"]:
            self.fresh.copy_(self.draw())

    def encoded(self, q, k):
        if self.lrpe is None:
            return q, k
        return tuple(self.lrpe.in_pairs(y) for y in self.lrpe(q, k))

    def directed(self, x):
        """[batch, time, heads, rows]."""
        fresh = self.training and self.settings["redraw"]
        return torch.einsum("bthd,hfd->bthf", x, (self.fresh if fresh else self.features).to(x.dtype))


class PerformerAttention(RandomFeatureAttention):
    """exp(q k / sqrt(dh)) estimated by positive features exp(W y - |y|^2 / 2), y = x dh^-1/4."""

    def draw(self):
        """Rows orthogonal in blocks of head_dim, as long as those of normal numbers."""
        count = self.settings["features"]
        blocks = -(-count // self.head_dim)
        q, r = torch.linalg.qr(self.normal(blocks, self.head_dim, self.head_dim))
        # Signs are the factorisation's choice: these make all directions alike.
        q = q * r.diagonal(dim1=-2, dim2=-1).sign()[..., None, :]
        rows = q.mT.flatten(1, 2)[:, :count]
        return rows * self.normal(count, self.head_dim).norm(dim=-1, keepdim=True)

    def exponent(self, x):
        y = x * self.head_dim**-0.25
        return single(self.directed(y)) - single(y).square().sum(-1, keepdim=True) / 2

    def attend(self, q, k, v, x):
        q, k = self.exponent(q), self.exponent(k)
        # What is subtracted cancels out.
        q = (q - q.detach().amax(-1, keepdim=True)).exp()
        k = (k - k.detach().amax((1, 3), keepdim=True)).exp()
        return self.means(q, k, v)


class RfaAttention(RandomFeatureAttention):
    """Sine and cosine of random directions of x / (|x| + 1e-3), scaled by a learned sigma."""

    def __init__(self, place, settings):
        super().__init__(place, settings)
        self.sigma = nn.Parameter(torch.ones(self.heads, self.head_dim))

    def phi(self, x):
        x = x / (x.norm(dim=-1, keepdim=True) + 1e-3) * self.sigma
        angle = single(self.directed(x))
        return torch.cat((angle.sin(), angle.cos()), -1) * self.settings["features"]**-0.5

    def attend(self, q, k, v, x):
        return self.means(self.phi(q), self.phi(k), v, 1e-2)


# Those that look for, project or gather what they see.

class LinformerAttention(Attention):
    """Keys and values projected along the length, [heads, rank, length]."""

    can_be_causal = encodes = False

    def __init__(self, place, settings):
        super().__init__(place, settings)
        self.projection = nn.Parameter(
            torch.randn(self.heads, settings["rank"], place.length) * 0.02)

    def attend(self, q, k, v, x):
        projection = self.projection[:, :, :k.shape[1]]
        k, v = (torch.einsum("hrt,bthd->brhd", projection, y) for y in (k, v))
        return self.fused(q, k, v)


class NystromformerAttention(Attention):
    """softmax(q kl) pinv(softmax(ql kl)) softmax(ql k) v, ql and kl means of segments."""

    can_be_causal = encodes = False

    def __init__(self, place, settings):
        super().__init__(place, settings)
        self.landmark_conv = None
        if size := settings["conv"]:
            self.landmark_conv = nn.Conv2d(self.heads, self.heads, (size, 1), bias=False,
                                           padding=(size // 2, 0), groups=self.heads)

    def landmarks(self, x):
        """[batch, heads, time, head_dim] -> the means of its segments."""
        time = x.shape[2]
        count = min(self.settings["landmarks"], time)
        segment = torch.arange(time, device=x.device) * count // time
        member = F.one_hot(segment, count).to(x.dtype).T
        return (member / member.sum(1, keepdim=True)) @ x

    @staticmethod
    def pseudo_inverse(a):
        """Six steps from a start scaled by each matrix's own largest sums."""
        a = single(a)
        most = a.abs().sum(-2).amax(-1) * a.abs().sum(-1).amax(-1)
        z = a.mT / most[..., None, None]
        one = torch.eye(a.shape[-1], device=a.device, dtype=a.dtype)
        for _ in range(6):
            az = a @ z
            z = z / 4 @ (13 * one - az @ (15 * one - az @ (7 * one - az)))
        return z

    def attend(self, q, k, v, x):
        scale = self.head_dim**-0.25
        q, k, v = q.transpose(1, 2) * scale, k.transpose(1, 2) * scale, v.transpose(1, 2)
        few_q, few_k = self.landmarks(q), self.landmarks(k)
        near, core, far = ((a @ b.mT).softmax(-1) for a, b in
                           ((q, few_k), (few_q, few_k), (few_q, k)))
        y = self.dropped(near) @ (self.pseudo_inverse(core).to(near.dtype) @ (self.dropped(far) @ v))
        if self.landmark_conv is not None:
            y = y + self.landmark_conv(v)
        return y.transpose(1, 2)


class ReformerAttention(Attention):
    """Shared queries and keys, sorted into buckets by random rotations; each of some rounds attends
    among neighbours of the sorted order, and the rounds are joined by their weight."""

    encodes = False
    ONESELF = -1e5  # the score of oneself: it counts where there is nothing else

    def __init__(self, place, settings):
        super().__init__(place, settings)
        self.chunk, self.hashes = settings["chunk"], settings["hashes"]
        self.buckets = max(2, 2 ** int(math.log2(max(2 * place.length / self.chunk, 1))))
        self.register_buffer("features", self.draw())
        self.register_buffer("fresh", self.draw(), persistent=False)

    def projected(self, x, queries):
        # As published, without the biases, which are idle like the projection of the keys.
        q, v = (F.linear(x, projection.weight).unflatten(-1, (self.heads, -1))
                for projection in (self.q_proj, self.v_proj))
        return q, q, v

    def draw(self):
        return torch.randn(self.heads, self.hashes * self.buckets // 2, self.head_dim,
                           device=self.out_proj.weight.device)

    def redraw(self):
        self.fresh.copy_(self.draw())

    def hashed(self, q):
        """[batch, heads, hashes, time]: the bucket of each token."""
        rotations = (self.fresh if self.training else self.features).unflatten(1, (self.hashes, -1))
        turned = torch.einsum("bthd,hrkd->bhrtk", q.detach(), rotations.to(q.dtype))
        return torch.cat((turned, -turned), -1).argmax(-1)

    def attend(self, q, k, v, x):
        batch, time = q.shape[:2]
        bucket = self.hashed(q)
        order = bucket.sort(dim=-1, stable=True).indices
        q, v = q.transpose(1, 2), v.transpose(1, 2)
        k = F.normalize(q, dim=-1)

        def in_order(y):  # [batch, heads, time, width] -> [batch * heads, rounds, time, width]
            picked = y[:, :, None].expand(-1, -1, self.hashes, -1, -1).gather(
                3, order[..., None].expand(-1, -1, -1, -1, y.shape[-1]))
            return picked.flatten(0, 1)

        place, bucket = order.flatten(0, 1), bucket.gather(-1, order).flatten(0, 1)
        within = self.causal_round if self.causal else self.chunked_rounds
        y, weight = within(in_order(q), in_order(k), in_order(v), place, bucket)
        back = place.argsort(-1)
        y = y.gather(2, back[..., None].expand_as(y))
        share = weight.gather(2, back).softmax(1)[..., None]
        y = (y * share.to(y.dtype)).sum(1)
        return y.view(batch, self.heads, time, -1).transpose(1, 2)

    def weighted(self, scores, v):
        """(scores softmax v, logsumexp of the scores)."""
        weight = single(scores).logsumexp(-1, keepdim=True)
        return self.dropped((scores - weight).exp().to(v.dtype)) @ v, weight

    def causal_round(self, q, k, v, place, bucket):
        """The newest `chunk` earlier ones of one's own bucket, oneself where there is none. Sorted
        by bucket and then by time, these are the ones just before."""
        shape = v.shape
        queries, keys, exists = block_positions(shape[2], self.chunk, 1, 0, q.device)
        q, k, v, bucket = (cut(y.flatten(0, 1)[:, :, None], self.chunk)
                           for y in (q, k, v, bucket[..., None]))
        k, v, others = (with_neighbours(y, 1, 0) for y in (k, v, bucket))
        distance = queries - keys
        near = (exists & (distance >= 0) & (distance <= self.chunk))[:, None]
        scores = (q @ k.mT).masked_fill(~(near & (bucket == others.mT)), -math.inf)
        scores = scores.masked_fill((distance == 0)[:, None], self.ONESELF)
        y, weight = self.weighted(scores, v)
        return (joined(y, shape[2])[:, :, 0].view(shape),
                joined(weight, shape[2])[:, :, 0, 0].view(shape[:3]))

    def chunked_rounds(self, q, k, v, place, bucket):
        """Each chunk of the sorted order sees itself and the one before, the first of a round the
        last of the round before, in a circle."""
        shape = v.shape
        padding = -shape[2] % self.chunk

        def chunks(y, fill=0):
            y = F.pad(y, (0, 0, 0, padding), value=fill)
            return y.flatten(1, 2).unflatten(1, (-1, self.chunk))

        q, k, v, place = chunks(q), chunks(k), chunks(v), chunks(place[..., None], -1)
        k, v, others = (torch.cat((y.roll(1, 1), y), 2) for y in (k, v, place))
        scores = q @ k.mT
        scores = scores.masked_fill(place == others.mT, self.ONESELF)
        scores = scores.masked_fill(others.mT < 0, -1e9)
        y, weight = self.weighted(scores, v)
        whole = (shape[0], self.hashes, shape[2] + padding, shape[3])
        return (y.flatten(1, 2).view(whole)[:, :, :shape[2]],
                weight.flatten(1, 2).view(whole[:3])[:, :, :shape[2]])


class GatedAttentionUnit(nn.Module):
    """flash_quad: x + out((u * A v)), A = relu(q k / P + offset)^2, u, v and q, k of norm(x)."""

    can_be_causal = whole_layer = True
    PAIRS = ("query", "key")

    def __init__(self, place, settings):
        super().__init__()
        dim, key_dim = place.model["dim"], settings["key_dim"]
        wide = settings["expansion"] * dim
        self.place, self.settings, self.causal = place, settings, place.causal
        self.eps = place.model["norm_eps"]
        self.u_proj, self.v_proj = nn.Linear(dim, wide), nn.Linear(dim, wide)
        self.z_proj, self.out_proj = nn.Linear(dim, key_dim), nn.Linear(wide, dim)
        self.norm_scale = nn.Parameter(torch.ones(1))
        for name in (*self.PAIRS, "unused"):
            self.register_parameter(f"{name}_scale", nn.Parameter(torch.randn(key_dim) * 0.02))
            self.register_parameter(f"{name}_offset", nn.Parameter(torch.zeros(key_dim)))
        self.offset_bias = nn.Parameter(torch.randn(2 * place.length - 1) * 0.02)

    def rotated(self, x):
        """Pairs (i, i + key_dim / 2), by position * 10000^(-2i / key_dim)."""
        half = x.shape[-1] // 2
        frequency = 10000 ** (-torch.arange(half, device=x.device) / half)
        angle = torch.arange(x.shape[1], device=x.device).to(single(x).dtype)[:, None] * frequency
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)

    def offsets(self, distance):
        """Of j - i; longer distances take the table's last entry."""
        last = self.place.length - 1
        return self.offset_bias[(distance + last).clamp(0, 2 * last)]

    def forward(self, x):
        y = self.norm_scale * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)
        u, v, z = (F.silu(projection(y)) for projection in (self.u_proj, self.v_proj, self.z_proj))
        parts = [self.rotated(z * self.get_parameter(f"{name}_scale") +
                              self.get_parameter(f"{name}_offset")) for name in self.PAIRS]
        return self.out_proj(u * self.attend(*parts, v))

    def attend(self, q, k, v):
        distance = -distances(q.shape[1], q.device)
        scores = F.relu(q @ k.mT / self.place.length + self.offsets(distance)).square()
        return (scores.tril() if self.causal else scores).to(v.dtype) @ v


class Flash(GatedAttentionUnit):
    """The same inside chunks, and linear attention across them."""

    PAIRS = ("query", "key", "global_query", "global_key")

    def attend(self, q, k, far_q, far_k, v):
        """All are [batch, time, width]."""
        time, chunk = q.shape[1], self.settings["chunk"]
        exists = block_positions(time, chunk, 0, 0, q.device)[2]
        q, k, far_q, far_k, v = (cut(y[:, :, None], chunk)[:, :, 0] for y in (q, k, far_q, far_k, v))
        distance = -distances(chunk, q.device)
        scores = F.relu(q @ k.mT / chunk + self.offsets(distance)).square()
        scores = (scores.tril() if self.causal else scores).masked_fill(~exists, 0)
        sums = single(far_k.mT @ v) / chunk
        if self.causal:
            sums = F.pad(sums[:, :-1].cumsum(1), (0, 0, 0, 0, 1, 0))
        else:
            sums = sums.sum(1, keepdim=True)
        y = scores.to(v.dtype) @ v + far_q @ sums.to(v.dtype)
        return y.flatten(1, 2)[:, :time]


# Two in one.

class Mix(nn.Module):
    """Two attentions with heads of half the width: (a + b) / 2, or the second with queries made of
    the first's output."""

    whole_layer = False

    def __init__(self, place, settings):
        super().__init__()
        part = dataclasses.replace(place, inner=place.model["dim"] // 2)
        self.first, self.second = (make_attention(part, settings[name])
                                   for name in ("first", "second"))
        self.sequential = settings["mode"] == "sequential"

    def forward(self, x):
        if self.sequential:
            return self.second(x, self.first(x))
        return (self.first(x) + self.second(x)) / 2


ATTENTIONS = {
    "softmax": SoftmaxAttention, "rela": RelaAttention, "linear": LinearAttention,
    "taylor": TaylorAttention, "efficient": EfficientAttention, "performer": PerformerAttention,
    "rfa": RfaAttention, "cosformer": CosformerAttention, "sparse": SparseAttention,
    "reformer": ReformerAttention, "linformer": LinformerAttention,
    "nystromformer": NystromformerAttention, "pooled": PooledAttention,
    "transformer_ls": TransformerLsAttention, "flash": Flash, "flash_quad": GatedAttentionUnit,
    "diag": DiagAttention, "norm": NormAttention, "mix": Mix,
}


def make_attention(place, settings):
    """settings: an attention's part of a resolved config."""
    return ATTENTIONS[settings["attention"]](place, settings)


def can_be_causal(settings):
    if settings["attention"] == "mix":
        return all(can_be_causal(settings[name]) for name in ("first", "second"))
    return ATTENTIONS[settings["attention"]].can_be_causal


def is_linear(settings):
    """Whether it has the two forms of linear attention."""
    if settings["attention"] == "mix":
        return any(is_linear(settings[name]) for name in ("first", "second"))
    return issubclass(ATTENTIONS[settings["attention"]], LinearFamily)
