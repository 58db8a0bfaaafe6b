"""Video: streams beside our own compiled graph, torch and onnxruntime, and what errors and searches do; 2 threads.

python -m benchmarks.video --json                     every row: case, metric, value, target
python -m benchmarks.video --only static-1            one case
python -m benchmarks.video --clips FOLDER             where static, moving and handheld.npy.xz are

Every timed case is under three minutes. Its contenders run the same frames in turns, pass by pass; a figure is the
ratio of fastest passes, and `median` that of medians.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.claim_rows import Row, claim_row
from searchlab.graph import GraphBuilder, GraphModule
from searchlab.graph.model_source import model_source
from searchlab.lab.study import Study
from searchlab.lab.study.stream_subject import StreamSubject
from searchlab.targets import detect
from searchlab.timing.turns import alternating, take_turns
from searchlab.video import (
    ClipOptions,
    ResidualModel,
    ResidualOptions,
    Stream,
    StreamOptions,
    made_clip,
    relative_error,
)
from searchlab.video.residual_options import RULES
from searchlab.video.stream_bench import StreamBench
from searchlab.video.stream_space import StreamChoice
from searchlab.video.video_settings import VideoSettings

Array = npt.NDArray[Any]
Run = Callable[[], Any]
THREADS, FRAMES, ROUNDS = 2, 16, 5
TRIALS = 100
FALLBACK = StreamOptions(dense_above=0.6)
CLIPS = Path(os.environ.get("SEARCHLAB_CLIPS", Path(__file__).resolve().parents[2] / "shared" / "data" / "video"))


@dataclass(frozen=True)
class Bound:
    """A clip with the error that is accepted, and how much faster than dense a stream should be."""

    clip: str
    error: float
    target: float
    enlarge: int = 1


# --- exactness and drift, which take no clock ------------------------------------------------------------------------

SMALL = {
    "resnet18": "resnet18:size=64,width=16",
    "mobilenet_v2": "mobilenet_v2:size=64",
    "unet": "unet:height=32,width=64",
}


def exact_rows(clips: Path, frames: int = 300) -> Iterator[Row]:
    """The largest relative error without thresholds, over a long clip with noise and drift."""
    for name, text in SMALL.items():
        source = model_source(text)
        _, _, height, width = source.inputs[0].shape
        clip = made_clip(ClipOptions(frames, height, width, noise=0.01, drift=5e-4), np.random.default_rng(0))
        for rule in RULES:
            model = ResidualModel(source.module, ResidualOptions(rule, kernel="skip"), detect().with_threads(THREADS))
            stream = Stream(model, 0.0, StreamOptions(cut=None))
            error = max(relative_error(stream.frame(f), model.dense(f[None])) for f in clip)
            yield claim_row(f"exact {name}", rule, error, 1e-4, frames=frames, error=float(f"{error:.2g}"))


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


# --- streams in turns with others -------------------------------------------------------------------------------------


@cache
def bench_of(clips: Path, clip: str, error: float, enlarge: int = 1, frames: int = FRAMES) -> StreamBench:
    """A compiled ResNet-18 on a clip."""
    given = {
        "model": "resnet18" if enlarge == 1 else f"resnet18:size={224 * enlarge}",
        "clip": str(clips / f"{clip}.npy.xz"),
        "frames": frames,
        "enlarge": enlarge,
        "bound": {"relative_error": error},
    }
    return StreamBench(VideoSettings.of(given), detect().with_threads(THREADS))


def single_level(bench: StreamBench, options: StreamOptions, error: float) -> tuple[float, StreamChoice]:
    """The largest level for all layers whose error is within a bound, found by bisection."""
    rule = bench.settings.rules[0]
    low, high = 0.0, 3.0
    for _ in range(8):
        level = (low + high) / 2
        good = bench.check(StreamChoice.single(rule, bench.plans[rule], level, options)).error <= error
        low, high = (level, high) if good else (low, level)
    return low, StreamChoice.single(rule, bench.plans[rule], low, options)


@cache
def searched(clips: Path, clip: str, error: float, enlarge: int = 1, trials: int = TRIALS) -> StreamChoice:
    """What a search finds within a bound."""
    bench = bench_of(clips, clip, error, enlarge)
    with Study(StreamSubject(bench), model=None, strategy="evolutionary", seed=0) as study:
        best = study.optimize(trials=trials)
        return StreamChoice.of(study.space.choice(best.point))


def libraries(bench: StreamBench) -> dict[str, Run]:
    """The network by torch and by onnxruntime, on one frame."""
    import torch

    from benchmarks.networks import onnx_bytes, onnx_session
    from experiments.models import resnet

    torch.set_num_threads(THREADS)
    module = resnet.make(18).eval()
    frame = np.ascontiguousarray(bench.clip[:1])
    plain = torch.from_numpy(frame)
    session = onnx_session(onnx_bytes(module, (plain,)), THREADS)
    (port,) = session.get_inputs()
    last = module.to(memory_format=torch.channels_last)
    turned = plain.to(memory_format=torch.channels_last)

    def by_torch() -> Any:
        with torch.inference_mode():
            return last(turned)

    wanted = bench.dense_outputs[0]
    for found in (by_torch().numpy(), session.run(None, {port.name: frame})[0]):
        if relative_error(found, wanted) > 1e-3:
            raise SystemExit("another system gives other results")
    return {"torch": by_torch, "onnxruntime": lambda: session.run(None, {port.name: frame})}


def in_turns(bench: StreamBench, choices: Mapping[str, StreamChoice], others: Mapping[str, Run]) -> dict[str, Any]:
    """Seconds per frame of streams, of the plain graph ("dense") and of others: (fastest, median) of passes."""

    def sample(name: str) -> tuple[float, ...]:
        if name in choices:
            return (float(bench.seconds(choices[name]).mean()),)
        if name == "dense":
            return (float(bench.dense_seconds().mean()),)
        start = _clock()
        for _ in range(FRAMES):
            others[name]()
        return ((_clock() - start) / FRAMES,)

    names = [*choices, "dense", *others]
    turns = take_turns(names, sample, lambda turns: turns.count < ROUNDS, alternating)
    flat = {n: [s for row in turns.samples[n] for s in row] for n in names}
    return {n: (min(v), statistics.median(v)) for n, v in flat.items()}


def _clock() -> float:
    from time import perf_counter

    return perf_counter()


def _ms(times: Mapping[str, tuple[float, float]]) -> dict[str, list[float]]:
    return {n: [round(1e3 * t, 2) for t in pair] for n, pair in times.items()}


def bound_rows(clips: Path, case: str, bound: Bound) -> Iterator[Row]:
    """A stream within a bound, searched, beside dense and the libraries; and beside one level for all layers."""
    bench = bench_of(clips, bound.clip, bound.error, bound.enlarge)
    level, single = single_level(bench, FALLBACK, bound.error)
    found = searched(clips, bound.clip, bound.error, bound.enlarge, TRIALS if bound.enlarge == 1 else 24)
    others = libraries(bench)
    times = in_turns(bench, {"searched": found, "one level": single}, others)
    best = min(others, key=lambda n: times[n][0])
    check, alone = bench.check(found), bench.check(single)
    about = {"ms": _ms(times), "error": round(check.error, 5), "work": round(check.work, 4), "best": best}
    for metric, rival, target in (("dense / stream", "dense", bound.target), (f"{best} / stream", best, bound.target)):
        ratio, middle = (times[rival][n] / times["searched"][n] for n in (0, 1))
        yield claim_row(case, metric, ratio, target, at_most=False, median=round(middle, 3), **about)
    gain = times["one level"][0] / times["searched"][0]
    one = {"level": round(level, 4), "error_one": round(alone.error, 5), "work_one": round(alone.work, 4)}
    yield claim_row(case, "one level / searched", gain, 1.2 if case == "static-1" else None, at_most=False, **one)


def fallback_rows(clips: Path, case: str) -> Iterator[Row]:
    """Streams of a camera that moves fall back to the plain graph, at a level that a still camera would have."""
    bench = bench_of(clips, case, 0.01, frames=48)
    rule = bench.settings.rules[0]
    choice = StreamChoice.single(rule, bench.plans[rule], 0.2, FALLBACK)
    others = libraries(bench)
    times = in_turns(bench, {"stream": choice}, others)
    check = bench.check(choice)
    ratio, middle = (times["dense"][n] / times["stream"][n] for n in (0, 1))
    frames = {why or "changes": check.dense.count(why) for why in sorted(set(check.dense))}
    about = {"ms": _ms(times), "frames": frames, "error": round(check.error, 5)}
    yield claim_row(case, "dense / stream", ratio, 0.95, at_most=False, median=round(middle, 3), **about)


def cut_rows(clips: Path) -> Iterator[Row]:
    """What frames cost that are computed as a whole: with a state (first, refresh, cut) and without one (fallback)."""
    bench = bench_of(clips, "static", 0.01)
    model = bench.model("propagated")
    frame = np.ascontiguousarray(bench.clip[:1])
    runs = {"plain": lambda: model.dense(frame), "state": lambda: model.first(frame)}
    found: dict[str, list[float]] = {n: [] for n in runs}
    for _ in range(30):
        for name, run in runs.items():
            start = _clock()
            run()
            found[name].append(_clock() - start)
    ratio = min(found["state"]) / min(found["plain"])
    yield claim_row(
        "whole frames",
        "with a state / plain",
        ratio,
        None,
        ms=_ms({n: (min(v), statistics.median(v)) for n, v in found.items()}),
    )


def work_rows(clips: Path) -> Iterator[Row]:
    """The paper's measure: multiplications of all pixels divided by those of output pixels that changes reach."""
    for clip, error, target in (("static", 0.01, 2.0), ("static", 0.03, None), ("moving", 0.01, None)):
        bench = bench_of(clips, clip, error)
        level, choice = single_level(bench, StreamOptions(), error)
        check = bench.check(choice)
        about = {"level": round(level, 4), "error": round(check.error, 5)}
        yield claim_row(f"work {clip}", f"fewer at {error:.0%}", 1 / check.work, target, at_most=False, **about)


BOUNDS = {
    "static-1": Bound("static", 0.01, 1.5),
    "static-3": Bound("static", 0.03, 2.0),
    "static-448": Bound("static", 0.01, 1.5, enlarge=2),
}
CASES: dict[str, Callable[[Path], Iterator[Row]]] = {
    "exact": exact_rows,
    "growth": growth_rows,
    "whole": cut_rows,
    **{name: lambda clips, name=name, bound=bound: bound_rows(clips, name, bound) for name, bound in BOUNDS.items()},  # type: ignore[misc]
    **{name: lambda clips, name=name: fallback_rows(clips, name) for name in ("moving", "handheld")},  # type: ignore[misc]
    "work": work_rows,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object per row")
    parser.add_argument("--only", choices=list(CASES), metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--clips", type=Path, default=CLIPS, metavar="FOLDER", help="recorded clips")
    options = parser.parse_args()
    for name, rows in CASES.items():
        if options.only in (None, name):
            for row in rows(options.clips):
                print(json.dumps(row) if options.json else _line(row), flush=True)


def _line(row: Row) -> str:
    held = (
        "" if row["held"] is None else f"  ({row['relation']} {row['target']}: {'held' if row['held'] else 'NOT held'})"
    )
    more = {k: v for k, v in row.items() if k not in ("case", "metric", "value", "relation", "target", "held")}
    return f"{row['case']:16s} {row['metric']:24s} {row['value']}{held}  {more or ''}"


if __name__ == "__main__":
    main()
