"""Whole networks exported to ONNX by torch, imported once and compared with torch at other sizes."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from experiments.models import bert, decoder, mobilenet_v2, resnet, unet
from searchlab.graph import GraphModule, evaluate_graph, from_onnx, verify_graph
from searchlab.ir import size

pytest.importorskip("onnx")

TOLERANCE = 2e-5  # relative to the largest element, as for modules that are imported without a file between
LLM = {"layers": 2, "width": 32, "heads": 4, "vocabulary": 50}
BERT = {"layers": 2, "width": 32, "heads": 4, "hidden": 64, "vocabulary": 50, "positions": 64}


def exported(model: nn.Module, inputs: tuple[Any, ...], axes: dict[str, dict[int, str]], opset: int) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter of TorchScript announces its end; it needs no further package
        options = dict(dynamo=False, opset_version=opset, input_names=list(axes), dynamic_axes=axes)
        torch.onnx.export(model, inputs, file, **options)
    return file.getvalue()


@dataclass(frozen=True)
class OnnxNetwork:
    """A network: how to make it and its inputs, the axes that are free by the names of inputs, and sizes."""

    make: Callable[[], nn.Module]
    inputs: Callable[..., tuple[Any, ...]]
    axes: dict[str, dict[int, str]]
    exported: tuple[int, ...]
    tried: tuple[tuple[int, ...], ...]
    opset: int = 17
    sizes: dict[str, Any] | None = None

    def module(self) -> GraphModule:
        data = exported(self.make().eval(), self.inputs(*self.exported), self.axes, self.opset)
        return from_onnx(data, sizes=self.sizes)


class RootMeanSquare(nn.Module):
    """What nn.RMSNorm computes, in operators that every exporter has."""

    def __init__(self, norm: nn.RMSNorm) -> None:
        super().__init__()
        self.weight, self.eps = norm.weight, norm.eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def written_out(model: nn.Module) -> nn.Module:
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.RMSNorm):
                setattr(parent, name, RootMeanSquare(child))
    return model


BATCH = {"x": {0: "batch"}}
TINY = {
    "resnet18": OnnxNetwork(
        lambda: resnet.make(18, width=8, classes=10),
        lambda batch: resnet.example_inputs(batch, 32),
        BATCH,
        (4,),
        ((1,), (3,)),
    ),
    "resnet50": OnnxNetwork(
        lambda: resnet.make(50, width=8, classes=10, units=(1, 1, 2, 1)),
        lambda batch: resnet.example_inputs(batch, 32),
        BATCH,
        (4,),
        ((1,), (2,)),
        opset=11,
    ),
    "mobilenet_v2": OnnxNetwork(
        lambda: mobilenet_v2.make(((1, 8, 1, 1), (6, 12, 2, 2)), stem=8, last=32, classes=10),
        lambda batch: mobilenet_v2.example_inputs(batch, 32),
        BATCH,
        (4,),
        ((1,), (3,)),
    ),
    "unet": OnnxNetwork(
        lambda: unet.make(width=4, depth=2),
        unet.example_inputs,
        {"x": {0: "batch", 2: "height", 3: "width"}},
        (2, 16, 32),
        ((1, 32, 16), (3, 24, 40)),
        sizes={"height": size("rows") * 4, "width": size("columns") * 4},
    ),
    "bert": OnnxNetwork(
        lambda: bert.make(**BERT),
        lambda *sizes: bert.example_inputs(*sizes, vocabulary=50),
        {name: {0: "batch", 1: "length"} for name in ("tokens", "segments", "mask")},
        (2, 16),
        ((1, 5), (3, 33)),
        sizes={"length": (1, 64)},
    ),
    "prompt": OnnxNetwork(
        lambda: written_out(decoder.make(hidden=64, **LLM)),
        lambda *sizes: decoder.example_inputs(*sizes, **LLM),
        {"tokens": {0: "batch", 1: "length"}},
        (2, 16),
        ((1, 5), (3, 37)),
    ),
    "step": OnnxNetwork(
        lambda: written_out(decoder.make(hidden=64, **LLM)),
        lambda batch, past: decoder.example_inputs(batch, 1, past, **LLM),
        {"tokens": {0: "batch"}} | {f"past{n}": {0: "batch", 2: "past"} for n in range(2 * LLM["layers"])},
        (2, 16),
        ((1, 1), (3, 37)),
    ),
}


def flat(values: Any) -> list[Any]:
    return [v for part in values for v in flat(part)] if isinstance(values, (tuple, list)) else [values]


@pytest.mark.parametrize("name", TINY)
def test_a_network_gives_what_torch_gives(name: str) -> None:
    network = TINY[name]
    module, model = network.module(), network.make().eval()
    verify_graph(module)
    for sizes in network.tried:
        inputs = network.inputs(*sizes)
        with torch.no_grad():
            wanted = [y.numpy() for y in flat(model(*inputs))]
        found = evaluate_graph(module, *(x.numpy() for x in flat(inputs)))
        for got, want in zip(found if isinstance(found, tuple) else (found,), wanted, strict=True):
            assert got.shape == want.shape
            assert np.abs(got - want).max() <= TOLERANCE * np.abs(want).max()
