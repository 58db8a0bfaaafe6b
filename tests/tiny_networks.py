"""Networks of `experiments/models` at small sizes, imported once: what whole graphs are tested on."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from torch import nn

from experiments.models import bert, decoder, mobilenet_v2, resnet, unet
from searchlab.graph import GraphModule, from_torch

LLM = {"layers": 2, "width": 32, "heads": 4, "vocabulary": 50}
BERT = {"layers": 2, "width": 32, "heads": 4, "hidden": 64, "vocabulary": 50, "positions": 64}


@dataclass(frozen=True)
class Network:
    """A network: how to make it and inputs for some sizes, the sizes it is exported with, and those it is tried at."""

    make: Callable[[], nn.Module]
    inputs: Callable[..., tuple[Any, ...]]
    free: Callable[[], dict[str, Any]]
    exported: tuple[int, ...]
    tried: tuple[tuple[int, ...], ...]
    symbols: tuple[str, ...]


def tokens(*sizes: int) -> tuple[Any, ...]:
    return decoder.example_inputs(*sizes, **LLM)


TINY = {
    "resnet18": Network(
        lambda: resnet.make(18, width=8, classes=10),
        lambda batch: resnet.example_inputs(batch, 32),
        resnet.dynamic_shapes,
        (4,),
        ((1,), (2,), (7,)),
        ("batch",),
    ),
    "resnet50": Network(
        lambda: resnet.make(50, width=8, classes=10, units=(1, 1, 2, 1)),
        lambda batch: resnet.example_inputs(batch, 32),
        resnet.dynamic_shapes,
        (4,),
        ((1,), (2,), (5,)),
        ("batch",),
    ),
    "mobilenet_v2": Network(
        lambda: mobilenet_v2.make(mobilenet_v2.STAGES[:4], stem=8, last=32, classes=10),
        lambda batch: mobilenet_v2.example_inputs(batch, 32),
        mobilenet_v2.dynamic_shapes,
        (4,),
        ((1,), (2,), (5,)),
        ("batch",),
    ),
    "unet": Network(
        lambda: unet.make(width=4, depth=2),
        lambda batch, rows, columns: unet.example_inputs(batch, 4 * rows, 4 * columns),
        lambda: unet.dynamic_shapes(2),
        (4, 5, 6),
        ((1, 2, 3), (2, 7, 2), (3, 4, 5)),
        ("batch", "columns", "rows"),
    ),
    "bert": Network(
        lambda: bert.make(**BERT),
        lambda batch, length: bert.example_inputs(batch, length, vocabulary=50),
        lambda: bert.dynamic_shapes(64),
        (4, 6),
        ((1, 9), (3, 1), (2, 17)),
        ("batch", "length"),
    ),
    "prompt": Network(
        lambda: decoder.make(hidden=48, **LLM),
        tokens,
        lambda: decoder.dynamic_shapes(layers=2),
        (4, 6),
        ((1, 9), (3, 1), (2, 17)),
        ("batch", "length"),
    ),
    "extension": Network(
        lambda: decoder.make(hidden=48, **LLM),
        tokens,
        lambda: decoder.dynamic_shapes(past=1, layers=2),
        (4, 6, 5),
        ((1, 3, 1), (2, 9, 7), (3, 2, 16)),
        ("batch", "length", "past"),
    ),
}


def flat(value: Any) -> list[Any]:
    """The tensors or arrays in nested tuples, in order."""
    return [part for inner in value for part in flat(inner)] if isinstance(value, (tuple, list)) else [value]


def imported(network: Network) -> GraphModule:
    return from_torch(network.make(), network.inputs(*network.exported), network.free())


@cache
def tiny(name: str) -> GraphModule:
    return imported(TINY[name])


def arrays(inputs: tuple[Any, ...]) -> list[np.ndarray]:
    return [tensor.numpy() for tensor in flat(inputs)]
