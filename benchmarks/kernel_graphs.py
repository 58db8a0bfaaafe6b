"""Kernels of transformers as small graphs, for `benchmarks.model_kernels`: one program each, and a rival in torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.backend import compile
from searchlab.defaults import default_schedule
from searchlab.graph import GraphBuilder, GraphModule, ProgramCall, legalise
from searchlab.ir import Program, size
from searchlab.ir.compose import Port, compose
from searchlab.runtime.memory import placed
from searchlab.targets import Target

Array = npt.NDArray[Any]
n = size("n")  # tokens, or the length of a past
RANGES = {n: (1, 2048)}


@dataclass(frozen=True)
class GraphCase:
    """A kernel of several operators: a function that builds them on named inputs, and the same in torch.

    Shapes may contain `n`, which is `length` when the kernel runs; inputs among `weights` are bound ahead.
    """

    name: str
    shapes: Mapping[str, tuple[Any, ...]]
    build: Callable[..., Any]
    rival: Callable[..., Any]
    weights: tuple[str, ...] = ()
    length: int = 1
    count: int = 1

    def arrays(self) -> dict[str, Array]:
        """Random inputs."""
        rng = np.random.default_rng(0)
        known = {k: tuple(e if isinstance(e, int) else self.length for e in s) for k, s in self.shapes.items()}
        return {k: placed(rng.standard_normal(s, np.float32) / 8) for k, s in known.items()}

    def contenders(self, target: Target) -> dict[str, Callable[[], Any]]:
        """The default schedule, checked against torch, as `ours`, and torch."""
        import torch

        arrays = self.arrays()
        program, values = self.program()
        bound = {own: arrays[v] for own, v in zip(program.inputs, values, strict=True) if v in self.weights}
        kernel = compile(default_schedule(program, target, tuple(bound)), target).bind(**bound)
        run, outputs = kernel.prepare(*(arrays[v] for v in values if v not in self.weights))
        run()
        tensors = {k: torch.from_numpy(x) for k, x in arrays.items()}
        with torch.inference_mode():
            wanted = self.rival(**tensors).numpy()
        np.testing.assert_allclose(outputs[0], wanted, rtol=1e-3, atol=1e-3, err_msg=self.name)
        return {"ours": run, "torch": lambda: self.rival(**tensors)}

    def program(self) -> tuple[Program, list[str]]:
        """All operators as one program, and which values are its inputs, in order."""
        b = GraphBuilder("main", ranges=RANGES)
        values = {k: b.input(k, s) for k, s in self.shapes.items()}
        return one_program(legalise(b.build(self.build(b, **values))))

    @property
    def work(self) -> tuple[float, float]:
        """Floating-point operations of products with weights, and bytes of the inputs."""
        arrays = self.arrays()
        data = next(x for k, x in arrays.items() if k not in self.weights)
        rows = data.size // data.shape[-1]
        flops = 2.0 * rows * sum(arrays[w].size for w in self.weights if arrays[w].ndim == 2)
        return flops, float(sum(x.nbytes for x in arrays.values()))


def one_program(module: GraphModule) -> tuple[Program, list[str]]:
    """The calls of a legalised function composed, and the values that are the inputs of the program."""
    parts: list[Program] = []
    feeds: dict[Port, Port] = {}
    made: dict[str, Port] = {}
    wanted: list[str] = []
    for b in module["main"].bindings:
        assert isinstance(b.call, ProgramCall), f"{b.name} is no program"
        program = module.program(b.call.program)
        for own, operand in zip(program.inputs, b.call.args, strict=True):
            assert isinstance(operand, str)
            if operand in made:
                feeds[len(parts), own] = made[operand]
            else:
                wanted.append(operand)
        made[b.name] = (len(parts), program.outputs[0])
        parts.append(program)
    return compose("fused", parts, feeds), wanted


# --- the kernels ------------------------------------------------------------------------------------------------------


def _functional() -> Any:
    import torch.nn.functional

    return torch.nn.functional


def _linear(name: str, rows: Any, k: int, m: int, then: str = "", length: int = 1, count: int = 1) -> GraphCase:
    """A layer on (1, rows, k); `then` is one of gelu, tanh, add (a residual) or empty; with a bias unless then is -."""
    shapes: dict[str, tuple[Any, ...]] = {"x": (1, rows, k), "w": (m, k)}
    if then != "-":
        shapes["bias"] = (m,)
    if then == "add":
        shapes["r"] = (1, rows, m)

    def build(b: GraphBuilder, x: Any, w: Any, bias: Any = None, r: Any = None) -> Any:
        y = b.linear(x, w) if bias is None else b.linear(x, w, bias)
        return b.op(then, y) if then in ("gelu", "tanh") else y + r if then == "add" else y

    def rival(x: Any, w: Any, bias: Any = None, r: Any = None) -> Any:
        f = _functional()
        y = f.linear(x, w, bias)
        return f.gelu(y) if then == "gelu" else y.tanh() if then == "tanh" else y if r is None else y.add_(r)

    return GraphCase(name, shapes, build, rival, ("w", "bias") if then != "-" else ("w",), length, count)


def _attention(
    name: str, heads: int, queries: Any, keys: Any, causal: bool = False, mask: bool = False, **more: Any
) -> GraphCase:
    """Attention of heads of 64 channels."""
    shapes: dict[str, tuple[Any, ...]] = {
        "q": (1, heads, queries, 64),
        "k": (1, heads, keys, 64),
        "v": (1, heads, keys, 64),
    }
    if mask:
        shapes["mask"] = (1, 1, 1, keys)

    def build(b: GraphBuilder, q: Any, k: Any, v: Any, **given: Any) -> Any:
        return b.attention(q, k, v, *given.values(), causal=causal)

    def rival(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        return _functional().scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)

    return GraphCase(name, shapes, build, rival, (), **more)


def _norm(name: str, rows: Any, width: int, kind: str = "layer_norm", **more: Any) -> GraphCase:
    shapes: dict[str, tuple[Any, ...]] = {"x": (1, rows, width), "g": (width,)}
    if kind == "layer_norm":
        shapes["shift"] = (width,)

    def rival(x: Any, g: Any, shift: Any = None) -> Any:
        f = _functional()
        return f.rms_norm(x, (width,), g, 1e-6) if shift is None else f.layer_norm(x, (width,), g, shift)

    def build(b: GraphBuilder, **given: Any) -> Any:
        return b.op(kind, *given.values())

    return GraphCase(name, shapes, build, rival, tuple(shapes)[1:], **more)


def _heads(name: str, rows: Any, heads: int, **more: Any) -> GraphCase:
    """Channels of every token divided into heads, and the heads before the tokens."""

    def build(b: GraphBuilder, x: Any) -> Any:
        return b.permute(x, axes=(0, 2, 1, 3))

    return GraphCase(name, {"x": (1, rows, heads, 64)}, build, lambda x: x.transpose(1, 2).contiguous(), (), **more)


def _rope(name: str, rows: Any, heads: int, **more: Any) -> GraphCase:
    """Rotated positions."""

    def build(b: GraphBuilder, x: Any, c: Any, s: Any) -> Any:
        left, right = (b.slice(x, axis=3, start=at, stop=at + 32) for at in (0, 32))
        return x * c + b.concat(-right, left, axis=3) * s

    def rival(x: Any, c: Any, s: Any) -> Any:
        import torch

        left, right = x.chunk(2, dim=-1)
        return x * c + torch.cat([-right, left], dim=-1) * s

    shapes = {"x": (1, heads, rows, 64), "c": (rows, 64), "s": (rows, 64)}
    return GraphCase(name, shapes, build, rival, (), **more)


def _gated(name: str, rows: Any, width: int, **more: Any) -> GraphCase:
    """The product of a silu and another half of a gated layer."""

    def build(b: GraphBuilder, x: Any, y: Any) -> Any:
        return b.silu(x) * y

    shapes = {"x": (1, rows, width), "y": (1, rows, width)}
    return GraphCase(name, shapes, build, lambda x, y: _functional().silu(x).mul_(y), (), **more)


def _longer(name: str, heads: int, **more: Any) -> GraphCase:
    """A cache with one more entry."""

    def rival(x: Any, y: Any) -> Any:
        import torch

        return torch.cat([x, y], dim=2)

    def build(b: GraphBuilder, x: Any, y: Any) -> Any:
        return b.concat(x, y, axis=2)

    return GraphCase(name, {"x": (1, heads, n, 64), "y": (1, heads, 1, 64)}, build, rival, (), **more)


BERT = (
    _linear("bert/768-768", 128, 768, 768, count=36),
    _linear("bert/768-768-add", 128, 768, 768, "add", count=12),
    _linear("bert/768-3072-gelu", 128, 768, 3072, "gelu", count=12),
    _linear("bert/3072-768-add", 128, 3072, 768, "add", count=12),
    _attention("bert/attention", 12, 128, 128, mask=True, count=12),
    _norm("bert/layer-norm", 128, 768, count=25),
    _heads("bert/heads", 128, 12, count=48),
    _linear("bert/pooler", 1, 768, 768, "tanh"),
    _linear("bert-n/768-768", n, 768, 768, length=128, count=36),
    _linear("bert-n/768-768-add", n, 768, 768, "add", length=128, count=12),
    _linear("bert-n/768-3072-gelu", n, 768, 3072, "gelu", length=128, count=12),
    _linear("bert-n/3072-768-add", n, 3072, 768, "add", length=128, count=12),
    _attention("bert-n/attention", 12, n, n, mask=True, length=128, count=12),
    _norm("bert-n/layer-norm", n, 768, length=128, count=25),
    _heads("bert-n/heads", n, 12, length=128, count=48),
)
DECODER = (
    _linear("step/512-512", 1, 512, 512, "-", count=32),
    _linear("step/512-1376", 1, 512, 1376, "-", count=16),
    _linear("step/1376-512", 1, 1376, 512, "-", count=8),
    _linear("step/512-32000", 1, 512, 32000, "-"),
    _norm("step/rms-norm", 1, 512, "rms_norm", count=17),
    _rope("step/rope", 1, 8, count=16),
    _longer("step/cache", 8, length=137, count=16),
    _attention("step/attention", 8, 1, n, length=137, count=8),
    _gated("step/gated", 1, 1376, count=8),
    _linear("prompt/512-512", n, 512, 512, "-", length=100, count=32),
    _linear("prompt/512-1376", n, 512, 1376, "-", length=100, count=16),
    _linear("prompt/1376-512", n, 1376, 512, "-", length=100, count=8),
    _linear("prompt/512-32000", n, 512, 32000, "-", length=100),
    _norm("prompt/rms-norm", n, 512, "rms_norm", length=100, count=17),
    _heads("prompt/heads", n, 8, length=100, count=32),
    _attention("prompt/attention", 8, n, n, causal=True, length=100, count=8),
    _gated("prompt/gated", n, 1376, length=100, count=8),
)
