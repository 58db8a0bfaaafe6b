"""MobileNet-V2 (Sandler et al. 2018): inverted residuals with depthwise convolutions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from experiments.models.weights import seeded

# expansion, channels, repetitions, stride of the first
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def convolution(given: int, channels: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """A convolution with batch normalisation and relu6."""
    conv = nn.Conv2d(given, channels, kernel, stride, padding=kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(channels), nn.ReLU6())


class InvertedResidual(nn.Module):
    """Channels expanded, convolved each for itself, and projected; added to the input where shapes agree."""

    def __init__(self, given: int, channels: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = given * expansion
        parts = [convolution(given, hidden, 1)] if expansion != 1 else []
        parts += [convolution(hidden, hidden, 3, stride, groups=hidden)]
        parts += [nn.Sequential(nn.Conv2d(hidden, channels, 1, bias=False), nn.BatchNorm2d(channels))]
        self.parts = nn.Sequential(*parts)
        self.residual = stride == 1 and given == channels

    def forward(self, x: Tensor) -> Tensor:
        return x + self.parts(x) if self.residual else self.parts(x)


class MobileNetV2(nn.Module):
    """A convolution, the stages, a 1x1 convolution to many channels, their means, and a classifier."""

    def __init__(self, stages: tuple[tuple[int, int, int, int], ...], stem: int, last: int, classes: int) -> None:
        super().__init__()
        parts: list[nn.Module] = [convolution(3, stem, 3, 2)]
        given = stem
        for expansion, channels, count, stride in stages:
            for unit in range(count):
                parts.append(InvertedResidual(given, channels, 1 if unit else stride, expansion))
                given = channels
        self.features = nn.Sequential(*parts, convolution(given, last, 1))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(last, classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).mean((2, 3)))


def make(
    stages: tuple[tuple[int, int, int, int], ...] = STAGES,
    stem: int = 32,
    last: int = 1280,
    classes: int = 1000,
    seed: int = 0,
) -> MobileNetV2:
    """The network; `stages` are (expansion, channels, repetitions, stride)."""
    return seeded(lambda: MobileNetV2(stages, stem, last, classes), seed)


def example_inputs(batch: int = 2, size: int = 224, seed: int = 0) -> tuple[Tensor]:
    """Images of `size` x `size` pixels."""
    return (torch.randn(batch, 3, size, size, generator=torch.Generator().manual_seed(seed)),)


def dynamic_shapes() -> dict[str, Any]:
    """Any number of images."""
    return {"x": {0: Dim("batch", min=1, max=64)}}
