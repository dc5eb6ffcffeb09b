"""The attention `transformer_ls` in plain PyTorch: see pytorch_attentions.py."""

import math

import torch
from torch import nn

from pytorch_parts import Attention, block_positions, cut, joined, single, with_neighbours


class TransformerLsAttention(Attention):
    """A window, and summaries of what is farther off, under one softmax. Causal: `rank` summaries of
    each closed chunk, with relative distances. Both ways: `rank` of the sequence, without."""

    encodes = False

    def __init__(self, place, settings):
        super().__init__(place, settings)
        dim, inner, eps = place.model["dim"], place.inner_dim, place.model["norm_eps"]
        self.window, self.chunk = settings["window"], settings["chunk"]
        self.rank = settings["rank"] or (1 if self.causal else 32)
        self.compress_proj = nn.Linear(dim, self.heads * self.rank)
        self.summary_norm, self.window_norm = (nn.LayerNorm(inner, eps=eps) for _ in range(2))
        if self.causal:
            self.distance_proj, self.chunk_distance_proj = (nn.Linear(inner, inner)
                                                            for _ in range(2))
            self.key_bias, self.distance_bias = (
                nn.Parameter(torch.randn(inner) * 0.02) for _ in range(2))

    def normalised(self, norm, x):
        """A norm over all heads of [batch, time, heads, head_dim]."""
        return norm(x.flatten(2)).view(x.shape)

    def relative(self, projection, count, like):
        """[heads, count, head_dim]: of the distances from 0 on."""
        width = projection.in_features
        frequency = 10000 ** (-torch.arange(0, width, 2, device=like.device) / width)
        angle = torch.arange(count, device=like.device)[:, None].to(single(like).dtype) * frequency
        table = torch.cat((angle.sin(), angle.cos()), -1)[:, :width].to(like.dtype)
        return projection(table).unflatten(-1, (self.heads, -1)).transpose(0, 1)

    def attend(self, q, k, v, x):
        q = q * self.head_dim**-0.5
        weights = self.compress_proj(x).unflatten(-1, (self.heads, self.rank))
        if self.causal:
            return self.attend_causal(q, k, v, weights)
        return self.attend_both_ways(q, k, v, weights)

    def under_one_softmax(self, near, near_v, far, far_v):
        """Blocks of window scores and values, and those of the summaries."""
        scores = torch.cat((near, far), -1)
        weights = self.dropped(single(scores).softmax(-1).to(near_v.dtype))
        near, far = weights.split((near.shape[-1], far.shape[-1]), -1)
        return near @ near_v + far @ far_v

    def attend_causal(self, q, k, v, weights):
        time, window = q.shape[1], self.window
        closed = time // self.chunk  # the last chunk, if short, is never seen

        def summary(y):
            """[batch, chunks * rank, heads, head_dim], by shares within the chunk."""
            share = weights[:, :closed * self.chunk].unflatten(1, (closed, self.chunk)).softmax(2)
            y = y[:, :closed * self.chunk].unflatten(1, (closed, self.chunk))
            y = torch.einsum("bcshr,bcshd->bcrhd", share.to(y.dtype), y).flatten(1, 2)
            return self.normalised(self.summary_norm, y)

        queries, keys, exists = block_positions(time, window, 1, 0, q.device)
        distance = queries - keys
        seen = exists & (distance >= 0) & (distance < window)
        near_k, near_v = (with_neighbours(cut(self.normalised(self.window_norm, y), window), 1, 0)
                          for y in (k, v))
        by_distance = cut(q + self.distance_bias.view(self.heads, -1), window) @ \
            self.relative(self.distance_proj, window, q).mT
        near = cut(q + self.key_bias.view(self.heads, -1), window) @ near_k.mT + by_distance.gather(
            -1, distance.clamp(0, window - 1)[:, None].expand(*by_distance.shape[:-1], -1))
        seen = seen | (queries >= time)  # padding sees anything rather than nothing
        near = near.masked_fill(~seen[:, None], -math.inf)

        far_k, far_v = (summary(y).transpose(1, 2)[:, None] for y in (k, v))
        own = queries // self.chunk  # [blocks, window, 1]
        between = own - 1 - torch.arange(closed, device=q.device).repeat_interleave(self.rank)
        q = cut(q, window)
        far = q @ far_k.mT
        if closed:
            count = max(-(-time // self.chunk), 1)
            by_chunk = q @ self.relative(self.chunk_distance_proj, count, q).mT
            far = far + by_chunk.gather(
                -1, between.clamp(0, count - 1)[:, None].expand(*by_chunk.shape[:-1], -1))
        far = far.masked_fill((between < 0)[:, None], -math.inf)
        return joined(self.under_one_softmax(near, near_v, far, far_v), time)

    def attend_both_ways(self, q, k, v, weights):
        """Groups of `window` tokens see themselves and half a window to each side."""
        time, window = q.shape[1], self.window
        k, v = (self.normalised(self.window_norm, y) for y in (k, v))
        share = weights.softmax(1)
        far_k, far_v = (self.normalised(self.summary_norm, torch.einsum(
            "bthr,bthd->brhd", share.to(y.dtype), y)).transpose(1, 2)[:, None] for y in (k, v))
        queries, keys, exists = block_positions(time, window, 1, 1, q.device)
        start = queries[:, :1]
        near_by = exists & (keys >= start - window // 2) & (keys < start + window + window // 2)
        near_k, near_v = (with_neighbours(cut(y, window), 1, 1) for y in (k, v))
        q = cut(q, window)
        near = (q @ near_k.mT).masked_fill(~near_by[:, None], -math.inf)
        return joined(self.under_one_softmax(near, near_v, q @ far_k.mT, far_v), time)


# A layer in one.
