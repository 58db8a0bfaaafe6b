"""Rows of `benchmarks.video` that take no clock: exactness, drift, counted work, bits, and cycles of an accelerator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.claim_rows import Row, claim_row
from benchmarks.video_benches import THREADS, bench_of
from searchlab.graph import GraphBuilder, GraphModule
from searchlab.graph.model_source import model_source
from searchlab.targets import detect
from searchlab.video import (
    ClipOptions,
    ResidualModel,
    ResidualOptions,
    Stream,
    StreamOptions,
    made_clip,
    relative_error,
)
from searchlab.video.quantised import quantised
from searchlab.video.residual_options import RULES

SMALL = {
    "resnet18": "resnet18:size=64,width=16",
    "mobilenet_v2": "mobilenet_v2:size=64",
    "unet": "unet:height=32,width=64",
}


def exact_rows(clips: Path, name: str, frames: int = 300) -> Iterator[Row]:
    """The largest relative error without thresholds, over a long clip with noise and drift."""
    source = model_source(SMALL[name])
    _, _, height, width = source.first.inputs[0].shape
    clip = made_clip(ClipOptions(frames, height, width, noise=0.01, drift=5e-4), np.random.default_rng(0))
    for rule in RULES:
        model = ResidualModel(source.module, ResidualOptions(rule, kernel="skip"), detect().with_threads(THREADS))
        stream = Stream(model, 0.0, StreamOptions(cut=None))
        error = max(relative_error(stream.frame(f), model.dense(f[None])) for f in clip)
        row = claim_row(f"exact {name}", rule, error, 1e-4, frames=frames)
        yield row | {"value": float(f"{error:.2g}")}


def three_layers(side: int = 48) -> GraphModule:
    """Three convolutions with random weights, as in the digest of the paper."""
    rng = np.random.default_rng(5)
    b = GraphBuilder("main")
    h = b.input("x", (1, 3, side, side))
    for number, (inputs, outputs) in enumerate(((3, 16), (16, 32), (32, 32))):
        weight = rng.normal(0, (2 / (9 * inputs)) ** 0.5, (outputs, inputs, 3, 3)).astype("float32")
        h = b.relu(b.conv2d(h, b.constant(f"w{number}", weight), padding=(1, 1)))
    return b.build(h)


def error_growth(rule: str, refresh: int | None = None, frames: int = 1000, drift: float = 2e-4) -> list[float]:
    """The error of every frame of a long clip with drift and noise, at a threshold of 0.02."""
    clip = made_clip(ClipOptions(frames, noise=0.005, drift=drift), np.random.default_rng(1))
    model = ResidualModel(three_layers(), ResidualOptions(rule), detect().with_threads(THREADS))
    stream = Stream(model, 0.02, StreamOptions(refresh, cut=None))
    return [relative_error(stream.frame(f), model.dense(f[None])) for f in clip]


def growth_rows(clips: Path) -> Iterator[Row]:
    """Errors in the last tenth of 1,000 frames, divided by those in the second tenth."""
    for rule, target, at_most in (("propagated", 1.5, True), ("previous", 2.0, False), ("truncated", None, True)):
        errors = error_growth(rule)
        early, late = float(np.mean(errors[100:200])), float(np.mean(errors[-100:]))
        ends = {"early": round(early, 5), "late": round(late, 5), "every_50": [round(e, 5) for e in errors[::50]]}
        yield claim_row("growth", rule, late / early, target, at_most, **ends)


def work_rows(clips: Path) -> Iterator[Row]:
    """The paper's measure: multiplications of all pixels divided by those of output pixels that changes reach."""
    for clip, error, target in (("static", 0.01, 2.0), ("static", 0.03, None), ("moving", 0.01, None)):
        bench = bench_of(clips, clip, error)
        choice = bench.one_level(error)
        check = bench.check(choice)
        about = {"level": round(max(choice.shares.values()), 4), "error": round(check.error, 5)}
        yield claim_row(f"work {clip}", f"fewer at {error:.0%}", 1 / check.work, target, at_most=False, **about)


def bits_rows(clips: Path) -> Iterator[Row]:
    """Multiplications of everything divided by those of changes, without thresholds, by bits of activations.

    With one bit weights are signs as well. The target is what more bits gave: gains grow as bits fall.
    """
    clip = made_clip(ClipOptions(24, noise=0.005), np.random.default_rng(0))
    target, last = detect().with_threads(THREADS), None
    for bits in (32, 8, 6, 4, 2, 1):
        module = three_layers()
        if bits < 32:
            module = quantised(module, bits, clip[:4, None], 1 if bits == 1 else None, {"threads": THREADS})
        stream = Stream(ResidualModel(module, target=target), 0.0, StreamOptions(cut=None))
        densities, errors = [], []
        for frame in clip:
            errors.append(relative_error(stream.frame(frame), stream.model.dense(frame[None])))
            densities.append(stream.account.density if stream.account else 1.0)
        gain = 1 / float(np.mean(densities[1:]))
        about = {"zeros": round(1 - 1 / gain, 4), "error": float(f"{max(errors):.2g}")}
        yield claim_row("bits", f"{bits}: fewer multiplications", gain, last, at_most=False, **about)
        last = round(gain, 4)


def accelerator_rows(clips: Path) -> Iterator[Row]:
    """Cycles of an accelerator as EIE, for dense and pruned weights: what changes save beyond zeros."""
    clip = made_clip(ClipOptions(12, noise=0.005), np.random.default_rng(0))
    for kept in (1.0, 0.3, 0.1):
        model = ResidualModel(pruned(three_layers(), kept), target=detect().with_threads(THREADS))
        stream, found = Stream(model, 0.02, StreamOptions(cut=None)), []
        for number, frame in enumerate(clip):
            stream.frame(frame)
            found += [stream.accelerator(64)] if number else []
        dense, zeros, changes = (sum(getattr(a, n) for a in found) for n in ("dense", "zeros", "changes"))
        about = {"over dense": round(dense / changes, 2), "imbalance": round(max(a.imbalance for a in found), 3)}
        yield claim_row(
            f"accelerator, {kept:.0%} of weights", "zeros / changes", zeros / changes, 2.0, at_most=False, **about
        )


def pruned(module: GraphModule, kept: float) -> GraphModule:
    """The largest weights of each constant; the others are zero."""
    from dataclasses import replace

    def largest(array: np.ndarray) -> np.ndarray:
        limit = np.quantile(np.abs(array), 1 - kept)
        return np.where(np.abs(array) >= limit, array, 0).astype(np.float32)

    constants = {n: replace(c, array=largest(c.array)) for n, c in module.constants.items()}
    return replace(module, constants=constants)
