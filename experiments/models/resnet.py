"""ResNet-18 and ResNet-50 (He et al. 2016); the stride of a bottleneck is in its 3x3 convolution, as is usual now."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from experiments.models.weights import seeded

STAGES = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}


class Unit(nn.Module):
    """Two 3x3 convolutions, or one between 1x1 convolutions (a bottleneck), normalised and added to their input."""

    def __init__(self, given: int, channels: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        wide = 4 * channels if bottleneck else channels
        kernels = ((1, 1), (3, stride), (1, 1)) if bottleneck else ((3, stride), (3, 1))
        widths = [given, *[channels] * (len(kernels) - 1), wide]
        self.convs = nn.ModuleList(
            nn.Conv2d(a, b, k, s, padding=k // 2, bias=False) for a, b, (k, s) in zip(widths, widths[1:], kernels)
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(b) for b in widths[1:])
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or given != wide:
            self.shortcut = nn.Sequential(nn.Conv2d(given, wide, 1, stride, bias=False), nn.BatchNorm2d(wide))
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for number, (conv, norm) in enumerate(zip(self.convs, self.norms)):
            y = norm(conv(self.relu(y) if number else y))
        return self.relu(y + self.shortcut(x))


class ResNet(nn.Module):
    """A convolution and pooling, four stages of units, average pooling and a classifier."""

    def __init__(self, units: tuple[int, ...], bottleneck: bool, width: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, padding=3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, padding=1),
        )
        stages, given = [], width
        for stage, count in enumerate(units):
            channels = width << stage
            for unit in range(count):
                stages.append(Unit(given, channels, 2 if stage and not unit else 1, bottleneck))
                given = 4 * channels if bottleneck else channels
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(given, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(torch.flatten(self.pool(self.stages(self.stem(x))), 1))


def make(
    depth: int = 18, width: int = 64, classes: int = 1000, units: tuple[int, ...] | None = None, seed: int = 0
) -> ResNet:
    """The network of 18 or 50 layers; `units` changes the number of units of each stage."""
    return seeded(lambda: ResNet(units or STAGES[depth], depth >= 50, width, classes), seed)


def example_inputs(batch: int = 2, size: int = 224, seed: int = 0) -> tuple[Tensor]:
    """Images of `size` x `size` pixels."""
    return (torch.randn(batch, 3, size, size, generator=torch.Generator().manual_seed(seed)),)


def dynamic_shapes() -> dict[str, Any]:
    """Any number of images."""
    return {"x": {0: Dim("batch", min=1, max=64)}}
