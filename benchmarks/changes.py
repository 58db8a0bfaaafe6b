"""Layers on changes beside the same layers on whole maps: 3x3 convolutions of which 90 % of all blocks are skipped.

python -m benchmarks.changes --json                   every row: case, metric, value, target
python -m benchmarks.changes --only conv-64           one case

A layer on changes is everything that a frame costs it: comparing pixels with what was seen, lists, products, sums in
place, and the list for the next layer.  `overhead` is what is left of it where no pixel of a map that has changed
everywhere passes the threshold.  `csr` multiplies the changed elements alone, as a sparse matrix whose making is not
counted.  `winograd` is the whole layer with fewer products than the others, as compiled networks have it, on images in
blocks of channels.  Contenders run in turns; a figure is the ratio of fastest times, and `median` that of medians.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.claim_rows import Row, claim_row
from searchlab.backend import compile as compile_program
from searchlab.defaults import default_schedule
from searchlab.graph import GraphBuilder, GraphModule, operator_named, tensor
from searchlab.graph.symbols import SizeFacts
from searchlab.runtime.memory import placed
from searchlab.targets import CpuTarget, detect
from searchlab.timing.race import race
from searchlab.video import ResidualModel, ResidualOptions
from searchlab.video.following import Following
from searchlab.workloads import workload

Array = npt.NDArray[Any]
Run = Callable[[], Any]
THREADS = 2
MOST = 0.13  # small maps have no tenth of their blocks; more than this share is reported only
ALL, NONE = -1.0, np.inf  # thresholds that every pixel passes, whatever its change, and that none does


@dataclass(frozen=True)
class Layer:
    """A 3x3 convolution with as many output as input channels."""

    channels: int
    side: int

    def weight(self) -> Array:
        """Random weights."""
        shape = (self.channels, self.channels, 3, 3)
        return np.random.default_rng(1).normal(0, 0.05, shape).astype("float32")

    def graph(self) -> GraphModule:
        """The layer after another one, since the first layer of a network reads a frame."""
        b = GraphBuilder("main")
        x = b.input("x", (1, 3, self.side, self.side))
        first = np.random.default_rng(0).normal(0, 0.5, (self.channels, 3, 1, 1)).astype("float32")
        h = b.relu(b.conv2d(x, b.constant("first", first)))
        return b.build(b.conv2d(h, b.constant("weight", self.weight()), padding=(1, 1)))

    def dense(self, target: CpuTarget) -> Run:
        """The whole layer, by the default schedule with its weights bound."""
        c, side = self.channels, self.side
        program = workload("conv2d", n=1, ci=c, co=c, h=side, w=side, k=3, padding=1).program
        data, weight = program.inputs
        kernel = compile_program(default_schedule(program, target, (weight,)), target).bind(**{weight: self.weight()})
        image = placed(np.random.default_rng(2).random((1, c, side, side), np.float32))
        run, _ = kernel.prepare(image)
        return run

    def winograd(self, target: CpuTarget) -> Run:
        """The whole layer by Winograd's algorithm, with its weights transformed ahead."""
        c, side, b = self.channels, self.side, target.lanes("float32")
        image = placed(np.random.default_rng(2).random((1, c // b, side, side, b), np.float32))
        weights = self.weight().reshape(c // b, b, c // b, b, 3, 3).transpose(0, 2, 4, 5, 3, 1)
        transformed = operator_named("winograd_weights_packed").reference(weights).astype("float32")
        operator = operator_named("winograd_conv2d_packed", padding=(1, 1))
        program = operator.program(SizeFacts(), tensor(image.shape), tensor(transformed.shape))
        assert program is not None
        return compile_program(default_schedule(program, target, ("U",)), target).prepare(image, placed(transformed))[0]

    def following(self, target: CpuTarget) -> tuple[Following, str]:
        """A stream of the graph, and the name of the layer."""
        model = ResidualModel(self.graph(), ResidualOptions(kernel="skip", granularity="pixel"), target)
        frame = np.random.default_rng(3).random((1, 3, self.side, self.side), np.float32)
        _, state = model.first(frame)
        *_, state = model.step(frame, model.plan.thresholds(0.0), state)
        following = state.following  # type: ignore[attr-defined]
        return following, list(model.plan.skipping)[-1]

    def blocks(self, share: float, side: int, rng: np.random.Generator) -> Array:
        """The pixels of a share of all blocks of so many pixels squared."""
        across = -(-self.side // side)
        chosen = np.zeros(across * across, bool)
        chosen[rng.permutation(across * across)[: max(1, round(share * across * across))]] = True
        mask = chosen.reshape(across, across).repeat(side, 0).repeat(side, 1)[: self.side, : self.side]
        return np.flatnonzero(mask).astype(np.int32)


def on_changes(layer: Layer, pixels: Array, target: CpuTarget, threshold: float = ALL) -> Run:
    """A layer where these pixels may have changed."""
    following, name = layer.following(target)
    step = following.model.programs.layers[name]
    following.memory.list_pixels(step.value.maps[0], pixels)
    following.memory.points[step.layer.point].threshold[0] = threshold
    return following.steps.of(name)


def csr(layer: Layer, pixels: Array) -> Run:
    """The products of changed elements alone, by scipy: windows of the change as a sparse matrix, times weights."""
    from numpy.lib.stride_tricks import sliding_window_view
    from scipy.sparse import csr_matrix

    side, channels = layer.side, layer.channels
    change = np.zeros((side * side, channels), np.float32)
    change[pixels] = np.random.default_rng(4).normal(size=(len(pixels), channels))
    padded = np.pad(change.reshape(side, side, channels), ((1, 1), (1, 1), (0, 0)))
    windows = sliding_window_view(padded, (3, 3), (0, 1)).transpose(0, 1, 3, 4, 2).reshape(side * side, -1)
    sparse, weight = (
        csr_matrix(windows),
        np.ascontiguousarray(layer.weight().transpose(2, 3, 1, 0)).reshape(-1, channels),
    )
    sums = np.zeros((side * side, channels), np.float32)

    def run() -> None:
        sums.__iadd__(sparse @ weight)

    return run


def layer_rows(case: str, layer: Layer, seconds: float) -> Iterator[Row]:
    """A layer with a tenth of its blocks changed, or of its pixels, beside the whole layer."""
    target = detect().with_threads(min(THREADS, detect().cores))
    rng = np.random.default_rng(5)
    pixels = {f"{side}x{side}": layer.blocks(0.1, side, rng) for side in (1, 4, 8) if side < layer.side}
    every = np.arange(layer.side**2, dtype=np.int32)
    runs: dict[str, Run] = {"dense": layer.dense(target), "winograd": layer.winograd(target)}
    runs |= {name: on_changes(layer, chosen, target) for name, chosen in pixels.items()}
    runs |= {"all": on_changes(layer, every, target), "none": on_changes(layer, every, target, NONE)}
    runs["csr"] = csr(layer, pixels["4x4"])
    times = {name: (t.min, t.median) for name, t in race(runs, seconds, threads=THREADS).items()}
    us = {name: [round(1e6 * s, 1) for s in pair] for name, pair in times.items()}

    def ratio(name: str, whole: str = "dense") -> tuple[float, float]:
        return times[whole][0] / times[name][0], times[whole][1] / times[name][1]

    for name, chosen in pixels.items():
        (fast, middle), share = ratio(name), len(chosen) / layer.side**2
        target_ratio = 5.0 if share < MOST else None
        more = {"median": round(middle, 3), "pixels": round(share, 4), "us": us}
        yield claim_row(case, f"dense / {name}", fast, target_ratio, at_most=False, **more)
        fast, middle = ratio(name, "winograd")
        yield claim_row(case, f"winograd / {name}", fast, None, median=round(middle, 3))
    yield claim_row(case, "dense / all", *ratio("all")[:1], None, median=round(ratio("all")[1], 3))
    over = [1 / r for r in ratio("none")]
    yield claim_row(case, "overhead", over[0], 0.05, median=round(over[1], 4))
    yield claim_row(case, "dense / csr", *ratio("csr")[:1], None, median=round(ratio("csr")[1], 3))


LAYERS = {f"conv-{c}": Layer(c, side) for c, side in ((64, 56), (128, 28), (256, 14), (512, 7))}


def main() -> None:
    """Prints the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one object for every row")
    parser.add_argument("--only", choices=LAYERS, help="one case")
    parser.add_argument("--seconds", type=float, default=6.0, help="of racing for each case")
    given = parser.parse_args()
    for case, layer in LAYERS.items():
        if given.only in (None, case):
            for row in layer_rows(case, layer, given.seconds):
                shown = {k: v for k, v in row.items() if v is not None}
                print(json.dumps(row) if given.json else "  ".join(f"{k}={v}" for k, v in shown.items()), flush=True)


if __name__ == "__main__":
    main()
