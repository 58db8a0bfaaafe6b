"""U-Net (Ronneberger et al. 2015), with padded convolutions and batch normalisation, as it is mostly built now."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from experiments.models.weights import seeded


def double(given: int, channels: int) -> nn.Sequential:
    """Two 3x3 convolutions with batch normalisation and relu."""
    parts: list[nn.Module] = []
    for a in (given, channels):
        parts += [nn.Conv2d(a, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU()]
    return nn.Sequential(*parts)


class UNet(nn.Module):
    """Pooled down `depth` times with ever more channels, then up again, beside what was there before pooling."""

    def __init__(self, channels: int, width: int, depth: int, classes: int) -> None:
        super().__init__()
        widths = [width << level for level in range(depth + 1)]
        self.down = nn.ModuleList(double(a, b) for a, b in zip([channels, *widths], widths))
        self.pool = nn.MaxPool2d(2)
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, stride=2) for w in reversed(widths[:-1]))
        self.merge = nn.ModuleList(double(2 * w, w) for w in reversed(widths[:-1]))
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for level, block in enumerate(self.down):
            x = block(self.pool(x) if level else x)
            kept.append(x)
        kept.pop()
        for up, merge in zip(self.up, self.merge):
            x = merge(torch.cat([kept.pop(), up(x)], dim=1))
        return self.head(x)


def make(channels: int = 3, width: int = 64, depth: int = 4, classes: int = 2, seed: int = 0) -> UNet:
    """The network; images are halved `depth` times."""
    return seeded(lambda: UNet(channels, width, depth, classes), seed)


def example_inputs(
    batch: int = 2, height: int = 96, width: int = 160, channels: int = 3, seed: int = 0
) -> tuple[Tensor]:
    """Images, whose height and width are multiples of 2**depth."""
    return (torch.randn(batch, channels, height, width, generator=torch.Generator().manual_seed(seed)),)


def dynamic_shapes(depth: int = 4) -> dict[str, Any]:
    """Any number of images of any size that can be halved `depth` times."""
    batch, rows, columns = Dim("batch", min=1, max=64), Dim("rows", min=1, max=128), Dim("columns", min=1, max=128)
    return {"x": {0: batch, 2: 2**depth * rows, 3: 2**depth * columns}}
