"""Whole networks beside other systems: what runs them, as functions without arguments that can be raced.

`torch` runs operator by operator, `channels_last` the same with pixels outside channels, `torch.compile` is frozen (its
weights are constants), `onnxruntime` runs what torch's exporter writes.  What cannot run a network is left out, and
the reason is kept.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from experiments.models import bert, mobilenet_v2, resnet
from searchlab.graph import GraphModule, from_torch

Run = Callable[[], Any]
TOLERANCE = 1e-4  # of the largest element


@dataclass(frozen=True)
class Network:
    """A module with inputs; targets are ratios to the best other system, without tuning and with it."""

    name: str
    make: Callable[[], nn.Module]
    inputs: Callable[[], tuple[Tensor, ...]]
    default: float
    tuned: float
    images: bool = False

    def graph(self) -> GraphModule:
        """The network as a graph."""
        return from_torch(self.make().eval(), self.inputs())


NETWORKS = {
    n.name: n
    for n in (
        Network("resnet18", resnet.make, lambda: resnet.example_inputs(1), 0.8, 1.0, images=True),
        Network("mobilenet_v2", mobilenet_v2.make, lambda: mobilenet_v2.example_inputs(1), 0.8, 1.1, images=True),
        Network("bert-128", bert.make, lambda: bert.example_inputs(1, 128), 1.0, 1.1),
    )
}


@dataclass
class Peers:
    """The other systems that run a network, and why the rest cannot."""

    runs: dict[str, Run] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, make: Callable[[], Run], expected: Any) -> None:
        """Adds a system whose results are right."""
        try:
            run = make()
            with torch.no_grad():
                found = first_of(run())
        except Exception as e:  # whatever another system fails with
            self.missing[name] = f"{type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}"
            return
        error = np.abs(np.asarray(found) - np.asarray(expected)).max() / np.abs(np.asarray(expected)).max()
        if error > TOLERANCE:
            self.missing[name] = f"its results differ by {error:.1e} of the largest one"
        else:
            self.runs[name] = run


def first_of(result: Any) -> Any:
    """The first of several results, or the only one."""
    return result[0] if isinstance(result, tuple | list) else result


def peers_of(network: Network, threads: int) -> Peers:
    """All systems that run a network here."""
    torch.set_num_threads(threads)
    module, inputs = network.make().eval(), network.inputs()
    with torch.inference_mode():
        expected = first_of(module(*inputs))
    found = Peers()
    found.add("torch", lambda: lambda: module(*inputs), expected)
    if network.images:
        found.add("channels_last", lambda: _channels_last(network), expected)
    found.add("torch.compile", lambda: _compiled(network), expected)
    found.add("onnxruntime", lambda: _onnxruntime(module, inputs, threads), expected)
    return found


def _channels_last(network: Network) -> Run:
    module = network.make().eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    inputs = [x.to(memory_format=torch.channels_last) for x in network.inputs()]
    return lambda: module(*inputs)


@contextmanager
def _frozen() -> Iterator[None]:
    from torch._inductor import config

    with config.patch(freezing=True), torch.no_grad():
        yield


def _compiled(network: Network) -> Run:
    inputs = network.inputs()
    with _frozen():
        compiled = torch.compile(network.make().eval())
        for _ in range(3):
            compiled(*inputs)

    def run() -> Any:
        with torch.no_grad():
            return compiled(*inputs)

    return run


def onnx_bytes(
    module: nn.Module, inputs: tuple[Any, ...], axes: Mapping[str, Mapping[int, str]] | None = None
) -> bytes:
    """A module as an ONNX file, by torch's exporter that needs no further package."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = {"input_names": list(axes), "dynamic_axes": axes} if axes else {}
        torch.onnx.export(module, inputs, file, dynamo=False, opset_version=17, **names)  # type: ignore[arg-type]
    return file.getvalue()


def onnx_session(data: bytes, threads: int) -> Any:
    """A session of onnxruntime with its own optimisations."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3  # of outputs whose sizes the exporter took for fixed
    return ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def _onnxruntime(module: nn.Module, inputs: tuple[Tensor, ...], threads: int) -> Run:
    session = onnx_session(onnx_bytes(module, inputs), threads)
    fed = {port.name: x.numpy() for port, x in zip(session.get_inputs(), inputs, strict=True)}
    return lambda: session.run(None, fed)
