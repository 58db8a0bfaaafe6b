"""BERT-base (Devlin et al. 2019): an encoder with learned positions, normalised after additions, and its pooler."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

from experiments.models.weights import seeded


class SelfAttention(nn.Module):
    """Attention of all positions to those that the mask allows."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (
            part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.output(y.transpose(1, 2).flatten(2))


class EncoderLayer(nn.Module):
    """Attention and two dense layers, each added to its input and normalised."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.attention = SelfAttention(width, heads)
        self.norm1 = nn.LayerNorm(width, eps=1e-12)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.norm2 = nn.LayerNorm(width, eps=1e-12)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.norm1(x + self.attention(x, mask))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class Bert(nn.Module):
    """Embeddings of tokens, positions and segments, the layers, and the pooled first position."""

    def __init__(self, layers: int, width: int, heads: int, hidden: int, vocabulary: int, positions: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(positions, width)
        self.segments = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList(EncoderLayer(width, heads, hidden) for _ in range(layers))
        self.pooler = nn.Linear(width, width)

    def forward(self, tokens: Tensor, segments: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.norm(self.tokens(tokens) + self.positions(places) + self.segments(segments))
        # what is masked gets the least number of the type, as padding has it in most implementations
        bias = (1.0 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        for layer in self.layers:
            x = layer(x, bias)
        return x, torch.tanh(self.pooler(x[:, 0]))


def make(
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    hidden: int = 3072,
    vocabulary: int = 30522,
    positions: int = 512,
    seed: int = 0,
) -> Bert:
    """The encoder; its inputs are tokens, segments (0 or 1) and a mask that is 0 for padding, all int64."""
    return seeded(lambda: Bert(layers, width, heads, hidden, vocabulary, positions), seed)


def example_inputs(
    batch: int = 2, length: int = 128, vocabulary: int = 30522, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Sentences of random tokens; all but the first one end with padding."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(vocabulary, (batch, length), generator=generator)
    segments = (torch.arange(length) >= length // 2).long().repeat(batch, 1)
    ends = length - torch.arange(batch) % max(length // 2, 1)
    return tokens, segments, (torch.arange(length) < ends[:, None]).long()


def dynamic_shapes(positions: int = 512) -> dict[str, Any]:
    """Any number of sentences of any length that has positions."""
    batch, length = Dim("batch", min=1, max=64), Dim("length", min=1, max=positions)
    return {name: {0: batch, 1: length} for name in ("tokens", "segments", "mask")}
