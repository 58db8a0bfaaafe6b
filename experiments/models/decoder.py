"""A decoder in the manner of Llama (Touvron et al. 2023): RMSNorm, rotary positions, SwiGLU, cached keys and values.

The cache comes in and goes out explicitly: a tensor (batch, heads, past, head width) of keys and one of values for
every layer, in the order keys, values, keys, ...  Without a cache the tokens are a prompt. So there are two graphs of
one module: a prompt of any length, and tokens behind a past of any length; for one token that is a step of decoding.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

from experiments.models.weights import seeded

Cache = tuple[Tensor, ...]


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Channel i and channel i + half of every head as a point in the plane, turned by the angle of its position."""
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-b, a], dim=-1) * sin


class CachedAttention(nn.Module):
    """Attention of the new positions to themselves and to the past."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.output = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None, past: Cache | None
    ) -> tuple[Tensor, Cache]:
        q, k, v = (
            part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        if past is not None:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=past is None)
        return self.output(y.transpose(1, 2).flatten(2)), (k, v)


class DecoderLayer(nn.Module):
    """Attention and a gated dense layer, each on normalised input and added to it."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.attention = CachedAttention(width, heads)
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None, past: Cache | None
    ) -> tuple[Tensor, Cache]:
        y, cache = self.attention(self.norm1(x), cos, sin, mask, past)
        x = x + y
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y)), cache


class Decoder(nn.Module):
    """Tokens and the cache of their past to logits and the cache with these tokens."""

    def __init__(self, layers: int, width: int, heads: int, hidden: int, vocabulary: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(DecoderLayer(width, heads, hidden) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.head = nn.Linear(width, vocabulary, bias=False)
        half = width // heads // 2
        self.register_buffer("frequencies", 10000.0 ** (-torch.arange(half) / half))

    def forward(self, tokens: Tensor, cache: Cache | None = None) -> tuple[Tensor, Cache]:
        length = tokens.shape[1]
        past = 0 if cache is None else cache[0].shape[2]
        places = torch.arange(past, past + length, device=tokens.device)
        angles = places[:, None] * self.frequencies
        cos, sin = (torch.cat([f(angles)] * 2, dim=-1) for f in (torch.cos, torch.sin))
        mask = None
        if cache is not None and length > 1:
            mask = torch.arange(past + length, device=tokens.device)[None, :] <= places[:, None]
        x, made = self.tokens(tokens), []
        for number, layer in enumerate(self.layers):
            x, pair = layer(x, cos, sin, mask, None if cache is None else cache[2 * number : 2 * number + 2])
            made += pair
        return self.head(self.norm(x)), tuple(made)


def make(
    layers: int = 8, width: int = 512, heads: int = 8, hidden: int = 1376, vocabulary: int = 32000, seed: int = 0
) -> Decoder:
    """The decoder; tokens are int64."""
    return seeded(lambda: Decoder(layers, width, heads, hidden, vocabulary), seed)


def example_inputs(
    batch: int = 2,
    length: int = 16,
    past: int | None = None,
    layers: int = 8,
    width: int = 512,
    heads: int = 8,
    vocabulary: int = 32000,
    seed: int = 0,
) -> tuple[Tensor] | tuple[Tensor, Cache]:
    """A prompt of random tokens, or tokens behind a random past."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(vocabulary, (batch, length), generator=generator)
    if past is None:
        return (tokens,)
    size = (batch, heads, past, width // heads)
    return tokens, tuple(torch.randn(size, generator=generator) for _ in range(2 * layers))


def dynamic_shapes(
    length: int = 16, past: int | None = None, layers: int = 8, longest: int = 2048, sequences: int | None = None
) -> dict[str, Any]:
    """Any number of sequences, or as many as are given; any length, but one token is a size of its own to torch."""
    batch = Dim("batch", min=1, max=64) if sequences is None else sequences
    tokens: dict[int, Any] = {0: batch} | ({1: Dim("length", min=1, max=longest)} if length > 1 else {})
    if past is None:
        return {"tokens": tokens}
    entry = {0: batch, 2: Dim("past", min=1, max=longest)}
    return {"tokens": tokens, "cache": tuple(dict(entry) for _ in range(2 * layers))}
