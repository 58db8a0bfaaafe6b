"""Random weights that keep the values of deep networks in range, so that comparisons of results mean something.

Modules of torch start with statistics 0 and 1 and with biases 0, which would hide errors in how these are used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

M = TypeVar("M", bound=nn.Module)


def seeded(make: Callable[[], M], seed: int) -> M:
    """A module in evaluation mode whose weights are determined by the seed; torch's own generator is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = make()
        for part in module.modules():
            _fill(part)
    return module.eval()


@torch.no_grad()
def _fill(part: nn.Module) -> None:
    if isinstance(part, nn.Conv2d | nn.ConvTranspose2d | nn.Linear):
        terms = part.weight.shape[0] if isinstance(part, nn.ConvTranspose2d) else part.weight[0].numel()
        part.weight.normal_(std=terms**-0.5)
        if part.bias is not None:
            part.bias.normal_(std=0.1)
    elif isinstance(part, nn.Embedding):
        part.weight.normal_(std=0.5)
    elif isinstance(part, nn.BatchNorm2d):
        part.running_mean.normal_(std=0.1)
        part.running_var.uniform_(0.3, 0.5)  # about what relu and the weights leave
    if isinstance(part, nn.BatchNorm2d | nn.LayerNorm | nn.RMSNorm):
        part.weight.uniform_(0.5, 1.0)
    if isinstance(part, nn.BatchNorm2d | nn.LayerNorm):
        part.bias.normal_(std=0.1)
