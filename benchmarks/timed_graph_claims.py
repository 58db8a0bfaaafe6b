"""Claims of Relax and Hidet about graphs that take a clock: groups of `benchmarks.graph_claims`, each under a minute.

Models are compiled with default schedules, checked against each other, and timed in turns (`searchlab.timing.race`); a
figure is a ratio of fastest runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.claim_rows import Row, claim_row
from benchmarks.graph_models import LONGEST, N, decoded, product_with_tail, transformer_layers
from searchlab.bench.library_threads import threads
from searchlab.graph import CompiledModel, GraphBuilder, GraphModule, compile, quantise_weights
from searchlab.targets import detect
from searchlab.timing.race import race

Array = npt.NDArray[Any]
_CLOSE = 1e-3


def _seconds(
    models: Mapping[str, CompiledModel], inputs: tuple[Array, ...], seconds: float = 0.6, close: float = _CLOSE
) -> dict[str, float]:
    """The fastest runs of models that give the same results, in turns."""
    made = [np.asarray(model(*inputs), np.float64) for model in models.values()]
    scale = float(np.max(np.abs(made[0])))
    for name, y in zip(models, made, strict=True):
        if not float(np.max(np.abs(y - made[0]))) <= close * scale:
            raise SystemExit(f"results of '{name}' are not those of '{next(iter(models))}'")
    return _raced(models, {name: inputs for name in models}, seconds)


def _raced(
    models: Mapping[str, CompiledModel], inputs: Mapping[str, tuple[Array, ...]], seconds: float
) -> dict[str, float]:
    """The fastest runs of models in turns, each on its inputs."""
    count = max(model.parts.target.threads for model in models.values())
    runs: dict[str, Callable[[], Any]] = {n: (lambda m=m, x=inputs[n]: m(*x)) for n, m in models.items()}  # type: ignore[misc]
    with threads(count):
        return {name: t.min for name, t in race(runs, seconds, 4, count).items()}


def _us(times: Mapping[str, float]) -> dict[str, float]:
    return {f"{name}_us": round(1e6 * t, 1) for name, t in times.items()}


def _compiled(module: GraphModule, count: int, **options: Any) -> CompiledModel:
    return compile(module, detect().with_threads(count), options=options)


def _normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def _mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


# --- fusion -----------------------------------------------------------------------------------------------------------


def tail_rows() -> Iterator[Row]:
    """Times without fusion, divided by those with it, on one thread."""
    rows = 1024
    whole = (np.random.default_rng(1).integers(-8, 8, (256, 256)).astype(np.int8), _normal(256, 1, seed=2))
    cases: dict[str, tuple[GraphModule, tuple[Array, ...], float | None]] = {
        "elementwise chain": (_chain(), (_normal(rows, 1024), _normal(rows, 1024, seed=1)), 1.5),
        "product with a tail": (product_with_tail(), (_normal(rows, 256), _normal(rows, 256, seed=1)), 1.05),
        "bytes as weights": (decoded(), (_normal(1, 256), whole[1], whole[0]), 1.05),
    }
    for case, (module, inputs, goal) in cases.items():
        models = {f"{fuse}": _compiled(module, 1, fuse=fuse) for fuse in ("before", "never")}
        times = _seconds(models, inputs)
        yield claim_row(case, "never / fused", times["never"] / times["before"], goal, at_most=False, **_us(times))


def _chain() -> GraphModule:
    """Additions, products and maxima, which do nothing but wait for memory."""
    b = GraphBuilder("main", ranges={N: (1, LONGEST)})
    x, y = b.input("x", (N, 1024)), b.input("y", (N, 1024))
    return b.build(b.relu(b.relu(x + y) * 0.5 + x) * y)


def quantised_rows() -> Iterator[Row]:
    """Products with weights of float32, divided by those with 4 bits that are decoded in the product; two threads."""
    for side, count, goal in ((4096, 1, 1.5), (4096, 16, None), (768, 1, None)):
        b = GraphBuilder("main")
        w = b.constant("w", _normal(side, side, seed=1) / np.float32(math.sqrt(side)))
        module = b.build(b.linear(b.input("x", (count, side)), w))
        models = {"float32": _compiled(module, 2), "q4": _compiled(quantise_weights(module), 2)}
        times = _seconds(models, (_normal(count, side),), close=0.2)  # 4 bits are not 24
        case = f"{count} x {side} x {side}"
        yield claim_row(case, "float32 / 4 bits", times["float32"] / times["q4"], goal, at_most=False, **_us(times))


# --- libraries --------------------------------------------------------------------------------------------------------


def library_rows() -> Iterator[Row]:
    """A layer of 768 x 768 for any number of rows: numpy's BLAS divided by own kernels.

    One thread: with two, times of numpy were up to twenty times as long, probably as two thread pools share the cores.
    """
    m = N
    b = GraphBuilder("main", ranges={m: (1, 512)})
    w, c = b.constant("w", _normal(768, 768, seed=1)), b.constant("c", _normal(768, seed=2))
    module = b.build(b.relu(b.linear(b.input("x", (m, 768)), w, c)))
    models = {"own": _compiled(module, 1), "library": _compiled(module, 1, libraries=({"numpy": {"rows": 1}},))}
    counts, ratios = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512], []
    for rows in counts:
        times = _seconds(models, (_normal(rows, 768),), 0.5)
        ratios.append(times["library"] / times["own"])
        goal = 1.0 if rows == 1 else None
        yield claim_row(f"{rows} rows", "library / own", ratios[-1], goal, at_most=False, **_us(times))
    ahead = [rows for rows, ratio in zip(counts, ratios, strict=True) if ratio < 1]
    yield claim_row("1 to 512 rows", "row counts at which the library is ahead", len(ahead), ahead=ahead)


# --- fusion before and after scheduling -------------------------------------------------------------------------------

CONVS = (  # of ResNet-50: channels in, channels out, side of the input, window, stride, whether a shortcut is added
    (64, 64, 56, 3, 1, False),
    (64, 256, 56, 1, 1, True),
    (256, 64, 56, 1, 1, False),
    (128, 128, 56, 3, 2, False),
    (128, 512, 28, 1, 1, True),
    (256, 256, 14, 3, 1, False),
    (256, 1024, 14, 1, 1, True),
    (512, 512, 7, 3, 1, False),
)


def order_rows() -> Iterator[Row]:
    """Times of groups that are fused after their product was scheduled, and of those that are not fused."""
    made = {_conv_name(c): _conv_block(*c) for c in CONVS} | {"product, reshaped": _reshaped()}
    found: dict[str, list[float]] = {"after / before": [], "never / after": []}
    for case, (module, inputs) in made.items():
        models = {fuse: _compiled(module, 2, fuse=fuse) for fuse in ("before", "after", "never")}
        times = _seconds(models, inputs, 0.9)
        for metric, values in found.items():
            above, below = metric.split(" / ")
            values.append(times[above] / times[below])
            yield claim_row(case, metric, values[-1], **_us(times))
    yield claim_row("geometric mean", "after / before", _mean(found["after / before"]), 1.05)
    yield claim_row("geometric mean", "never / after", _mean(found["never / after"]), 1.0, at_most=False)


def _conv_name(block: tuple[int, int, int, int, int, bool]) -> str:
    given, made, side, k, stride, added = block
    return f"{k}x{k} {given}-{made} at {side}" + f", stride {stride}" * (stride > 1) + ", added" * added


def _conv_block(
    given: int, made: int, side: int, k: int, stride: int, added: bool
) -> tuple[GraphModule, tuple[Array, ...]]:
    b = GraphBuilder("main")
    x = b.input("x", (1, given, side, side))
    w = b.constant("w", _normal(made, given, k, k, seed=1) / np.float32(k * math.sqrt(given)))
    c = b.constant("c", _normal(made, seed=2))
    y = b.conv2d(x, w, c, stride=(stride, stride), padding=(k // 2, k // 2))
    inputs = [_normal(1, given, side, side)]
    if added:
        y = y + b.input("shortcut", (1, made, side // stride, side // stride))
        inputs.append(_normal(1, made, side // stride, side // stride, seed=3))
    return b.build(b.relu(y)), tuple(inputs)


def _reshaped() -> tuple[GraphModule, tuple[Array, ...]]:
    """A layer whose result is divided among heads, as in a transformer."""
    b = GraphBuilder("main")
    w, c = b.constant("w", _normal(768, 768, seed=1)), b.constant("c", _normal(768, seed=2))
    y = b.relu(b.linear(b.input("x", (128, 768)), w, c))
    return b.build(b.permute(b.reshape(y, shape=(128, 12, 64)), axes=(1, 0, 2))), (_normal(128, 768),)


# --- sizes of inputs --------------------------------------------------------------------------------------------------


def image_rows() -> Iterator[Row]:
    """The speed of a small ResNet-18 on images of odd sizes, divided by that on images of 224 x 224; two threads."""
    from experiments.models import resnet
    from searchlab.graph import from_torch

    network = resnet.make(18, width=32)
    given = {str(size): (resnet.example_inputs(1, size)[0],) for size in (224, 223, 211, 199, 192)}
    models = {size: _compiled(from_torch(network, x), 2) for size, x in given.items()}
    inputs = {size: (x.numpy(),) for size, (x,) in given.items()}
    times = _raced(models, inputs, 6.0)
    speeds = {size: _flops(models[size], inputs[size]) / time / 1e9 for size, time in times.items()}
    for size, speed in speeds.items():
        goal = None if size == "224" else 1 / 1.2
        more = {"gflops": round(speed, 1), "ms": round(1e3 * times[size], 3)}
        yield claim_row(f"{size} x {size}", "GFLOP/s / at 224", speed / speeds["224"], goal, at_most=False, **more)


def _flops(model: CompiledModel, inputs: tuple[Array, ...]) -> int:
    return sum(call.flops or 0 for call in model.profile(*inputs, repeats=1).calls)


def length_rows() -> Iterator[Row]:
    """An encoder that was compiled once for all lengths, against those compiled for one length each; two threads."""
    shape = {"width": 256, "layers": 4, "heads": 4, "whole": True}
    once, found = _compiled(transformer_layers(longest=256, **shape), 2), []
    for length in (128, 127, 131, 64, 61, 16, 1):
        models = {"each": _compiled(transformer_layers(length=length, **shape), 2), "once": once}
        times = _seconds(models, (_normal(length, 256),))
        found.append(times["once"] / times["each"])
        goal = 1.2 if length in (128, 127, 131) else None
        yield claim_row(f"{length} vectors", "once / for each", found[-1], goal, **_us(times))
    yield claim_row("geometric mean", "once / for each", _mean(found))
