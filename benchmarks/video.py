"""Video: streams beside our own compiled graph, torch and onnxruntime, and what errors and searches do; 2 threads.

python -m benchmarks.video --json                     every row: case, metric, value, target
python -m benchmarks.video --only static-1            one case
python -m benchmarks.video --clips FOLDER             where static, moving and handheld.npy.xz are
python -m benchmarks.video --only static-1 --records FOLDER --trials 100   a search that goes on where it was

Every timed case takes a few minutes; a search whose records are kept can be made in pieces. Contenders run the same
frames in turns, pass by pass; a figure is the ratio of fastest passes, and `median` that of medians.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.claim_rows import Row, claim_row
from benchmarks.video_accounts import SMALL, accelerator_rows, bits_rows, exact_rows, growth_rows, work_rows
from benchmarks.video_benches import FRAMES, THREADS, bench_of, searched
from searchlab.backend import compile as compile_program
from searchlab.defaults import default_schedule
from searchlab.intrinsics import intrinsics
from searchlab.intrinsics.bit_dots import DEPTH, WORD
from searchlab.ir import Builder, Program, total
from searchlab.ir.bits import differing
from searchlab.schedule import Schedule
from searchlab.targets import CpuTarget, detect
from searchlab.timing.race import race
from searchlab.timing.turns import alternating, take_turns
from searchlab.video import StreamOptions, relative_error
from searchlab.video.stream_bench import StreamBench
from searchlab.video.stream_space import StreamChoice
from searchlab.workloads import workload

Run = Callable[[], Any]
ROUNDS = 5
TRIALS = 100
FALLBACK = StreamOptions(dense_above=0.9)
CLIPS = Path(os.environ.get("SEARCHLAB_CLIPS", Path(__file__).resolve().parents[2] / "shared" / "data" / "video"))


@dataclass(frozen=True)
class Bound:
    """A clip with the error that is accepted, and how much faster than dense a stream should be."""

    clip: str
    error: float
    target: float
    enlarge: int = 1
    model: str = "resnet18"


def libraries(bench: StreamBench) -> dict[str, Run]:
    """The network by torch and by onnxruntime, on one frame."""
    import torch

    from benchmarks.networks import onnx_bytes, onnx_session
    from experiments.models import examples

    torch.set_num_threads(THREADS)
    made, _ = getattr(examples, bench.settings.model.partition(":")[0])()
    module = made.eval()
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
    return time.perf_counter()


def _ms(times: Mapping[str, tuple[float, float]]) -> dict[str, list[float]]:
    return {n: [round(1e3 * t, 2) for t in pair] for n, pair in times.items()}


def bound_rows(
    clips: Path, case: str, bound: Bound, trials: int = TRIALS, records: Path | None = None
) -> Iterator[Row]:
    """A stream within a bound, searched, beside dense, the libraries, and one level for all layers.

    The level is the largest within the bound, in float32 as the plain graph, with a fallback to that or without one,
    whichever is faster; and again in other formats of products.

    A bound that the output of the first frame meets on all others says nothing, so its error is reported.  In static-3
    it does: the output is sums over a pooled map, most of which never changes.  features-* bound the last map itself.
    """
    bench = bench_of(clips, bound.clip, bound.error, bound.enlarge, model=bound.model)
    found = searched(bench, trials, None if records is None else records / f"{case}.jsonl")
    plain, *formats = bench.plans
    alike = {"one level": bench.one_level(), "one level, falling back": bench.one_level(options=FALLBACK)}
    in_floats = list(alike)
    alike |= {f"one level {name.removeprefix(plain).strip()}": bench.one_level(rule=name) for name in formats}
    others = libraries(bench)
    times = in_turns(bench, {"searched": found} | alike, others)
    best = min(others, key=lambda n: times[n][0])
    check, first = bench.check(found), bench.check(StreamChoice.single(plain, bench.plans[plain], 1e6))
    errors = {"error": round(check.error, 5), "error of the first output": round(first.error, 5)}
    about = {"ms": _ms(times), **errors, "work": round(check.work, 4), "best": best, "trials": trials}
    for metric, rival in (("dense / stream", "dense"), (f"{best} / stream", best)):
        ratio, middle = (times[rival][n] / times["searched"][n] for n in (0, 1))
        yield claim_row(case, metric, ratio, bound.target, at_most=False, median=round(middle, 3), **about)
    best_level = min(in_floats, key=lambda n: times[n][0])
    for name in alike:
        one, target = bench.check(alike[name]), 1.2 if name == best_level and first.error > bound.error else None
        ratio, middle = (times[name][n] / times["searched"][n] for n in (0, 1))
        level = {"level": round(max(alike[name].shares.values()), 4), "error": round(one.error, 5)}
        level |= {"work": round(one.work, 4), "searched in": found.rule, "shares": _rounded(found.shares)}
        yield claim_row(case, f"{name} / searched", ratio, target, at_most=False, median=round(middle, 3), **level)


def _rounded(shares: Mapping[str, float]) -> list[float]:
    return [round(s, 3) for s in shares.values()]


def fallback_rows(clips: Path, case: str) -> Iterator[Row]:
    """Streams of a camera that moves fall back to the plain graph, at a level that a still camera would have."""
    bench = bench_of(clips, case, 0.01, frames=48, products=("float32", "int16"))
    plain, steps = bench.plans
    choices = {
        "stream": StreamChoice.single(plain, bench.plans[plain], 0.2, FALLBACK),
        "in int16": StreamChoice.single(steps, bench.plans[steps], 0.2, FALLBACK),
    }
    others = libraries(bench)
    times = in_turns(bench, choices, others)
    for name, choice in choices.items():
        check = bench.check(choice)
        ratio, middle = (times["dense"][n] / times[name][n] for n in (0, 1))
        frames = {why or "changes": check.dense.count(why) for why in sorted(set(check.dense))}
        about = {"ms": _ms(times), "frames": frames, "error": round(check.error, 5)}
        metric = "dense / stream" if name == "stream" else f"dense / stream {name}"
        yield claim_row(case, metric, ratio, 0.95, at_most=False, median=round(middle, 3), **about)


def byte_rows(clips: Path) -> Iterator[Row]:
    """ResNet-18 quantised to bytes, on the static clip: its stream beside itself as a whole and beside float32.

    Without thresholds the stream gives the bits of the whole network; at a level it is the one that float32 has within
    1 %.  Errors are against the network of float32, so that those of quantising are part of them.
    """
    bench = bench_of(clips, "static", 0.01, products=("float32", "bfloat16", "int8"))
    plain, half, whole = bench.plans
    model, alike = bench.model(whole), bench.one_level()
    level = max(alike.shares.values())
    exact = bench.stream(StreamChoice.single(whole, bench.plans[whole], 0.0, StreamOptions(cut=None)))
    if not all(np.array_equal(exact.frame(frame), model.dense(frame[None])) for frame in bench.clip):
        raise SystemExit("a stream of bytes does not give the bits of its network")
    choices = {"float32 stream": alike, "bfloat16 stream": StreamChoice.single(half, bench.plans[half], level)}
    for name, share in (("int8 stream without thresholds", 0.0), ("int8 stream", level)):
        choices[name] = StreamChoice.single(whole, bench.plans[whole], share)
    frame = np.ascontiguousarray(bench.clip[:1])
    times = in_turns(bench, choices, {"int8 dense": lambda: model.dense(frame)})
    checks = {name: bench.check(choice) for name, choice in choices.items()}
    dense = [relative_error(model.dense(f[None]), wanted) for f, wanted in zip(bench.clip, bench.dense_outputs)]
    errors = {name: round(check.error, 5) for name, check in checks.items()} | {"int8 dense": round(max(dense), 5)}
    work = {name: round(check.work, 4) for name, check in checks.items()}
    about = {"ms": _ms(times), "error": errors, "work": work, "level": round(level, 4)}
    for slow, fast in (
        ("int8 dense", "int8 stream without thresholds"), ("int8 dense", "int8 stream"),
        ("float32 stream", "int8 stream"), ("bfloat16 stream", "int8 stream"), ("dense", "int8 dense"),
    ):  # fmt: skip
        ratio, middle = (times[slow][n] / times[fast][n] for n in (0, 1))
        yield claim_row("bytes", f"{slow} / {fast}", ratio, None, median=round(middle, 3), **about)
        about = {}


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


def signs_rows(clips: Path) -> Iterator[Row]:
    """A layer of signs (3x3, 128 to 128 channels, 28x28) by bits, beside the same layer in float32; one thread."""
    target = detect().with_threads(1)
    rows, columns, depth = 784, 128, 1152
    rng = np.random.default_rng(0)
    a, b = rng.choice([-1, 1], (rows, depth)), rng.choice([-1, 1], (depth, columns))
    words = [np.packbits(x > 0, axis=-1, bitorder="little").view("<i4") for x in (a, np.ascontiguousarray(b.T))]
    bits = compile_program(sign_schedule(rows, columns, depth // WORD, target), target)
    floats = compile_program(default_schedule(matmul(rows, columns, depth), target, ("B",)), target)
    packed = (np.ascontiguousarray(words[0]), np.ascontiguousarray(words[1].T))
    plain = (a.astype(np.float32), b.astype(np.float32))
    if not np.array_equal(depth - 2 * bits(*packed).astype(int), floats(*plain).astype(int)):
        raise SystemExit("products of signs are not those of numbers")
    times = race({"bits": lambda: bits(*packed), "float32": lambda: floats(*plain)}, 1.0, 8)
    ratio, middle = times["float32"].min / times["bits"].min, times["float32"].median / times["bits"].median
    yield claim_row("signs", "float32 / bits", ratio, 2.0, at_most=False, median=round(middle, 3))


def matmul(m: int, n: int, k: int) -> Program:
    """A product of float32."""
    return workload("matmul", m=m, n=n, k=k).program


def sign_schedule(m: int, n: int, words: int, target: CpuTarget) -> Program:
    """A product of packed signs, in tiles of four rows and two vectors of calls."""
    b = Builder("signs")
    x, w = b.input("A", (m, words), "int32"), b.input("B", (words, n), "int32")
    k_axis = b.axis("k", words)
    out = b.compute("C", (m, n), lambda i, j: total(differing(x[i, k_axis], w[k_axis, j]), k_axis))
    known = [i for i in intrinsics().values() if "_bits_" in i.name and not i.needs.missing(target)]
    lanes = int(known[0].name.split("_")[-1].partition("x")[0])
    s = Schedule(b.program(out))
    i, j, k = s.loops("C")
    i_outer, i_inner = s.split(i, [None, 4])
    j_outer, j_middle, j_inner = s.split(j, [None, 2, lanes])
    k_outer, k_inner = s.split(k, [None, DEPTH])
    s.reorder(i_outer, j_outer, k_outer, i_inner, j_middle, j_inner, k_inner)
    s.unroll(i_inner)
    s.unroll(j_middle)
    s.tensorize(j_inner, known[0].name)
    return s.program


BOUNDS = {
    "static-1": Bound("static", 0.01, 1.5),
    "static-3": Bound("static", 0.03, 2.0),
    "static-448": Bound("static", 0.01, 1.5, enlarge=2),
    "features-1": Bound("static", 0.01, 1.5, model="resnet18_features"),
    "features-3": Bound("static", 0.03, 2.0, model="resnet18_features"),
    "features-448": Bound("static", 0.01, 1.5, enlarge=2, model="resnet18_features"),
}
CASES: dict[str, Callable[[Path], Iterator[Row]]] = {
    **{f"exact-{name}": partial(exact_rows, name=name) for name in SMALL},
    "growth": growth_rows,
    "whole": cut_rows,
    "moving": lambda clips: fallback_rows(clips, "moving"),
    "handheld": lambda clips: fallback_rows(clips, "handheld"),
    "work": work_rows,
    "bits": bits_rows,
    "bytes": byte_rows,
    "signs": signs_rows,
    "accelerator": accelerator_rows,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object per row")
    parser.add_argument("--only", choices=[*BOUNDS, *CASES], metavar="CASE", help=", ".join([*BOUNDS, *CASES]))
    parser.add_argument("--clips", type=Path, default=CLIPS, metavar="FOLDER", help="recorded clips")
    parser.add_argument("--trials", type=int, metavar="N", help="of searches; 100, and 24 on enlarged clips")
    parser.add_argument("--records", type=Path, metavar="FOLDER", help="where searches leave their trials")
    options = parser.parse_args()
    if options.records is not None:
        options.records.mkdir(parents=True, exist_ok=True)

    def bounded(name: str, bound: Bound) -> Iterator[Row]:
        trials = options.trials or (TRIALS if bound.enlarge == 1 else 24)
        return bound_rows(options.clips, name, bound, trials, options.records)

    cases = {name: partial(bounded, name, bound) for name, bound in BOUNDS.items()}
    cases |= {name: partial(rows, options.clips) for name, rows in CASES.items()}
    for name, rows in cases.items():
        if options.only in (None, name):
            for row in rows():
                print(json.dumps(row) if options.json else _line(row), flush=True)


def _line(row: Row) -> str:
    held = (
        "" if row["held"] is None else f"  ({row['relation']} {row['target']}: {'held' if row['held'] else 'NOT held'})"
    )
    more = {k: v for k, v in row.items() if k not in ("case", "metric", "value", "relation", "target", "held")}
    return f"{row['case']:16s} {row['metric']:24s} {row['value']}{held}  {more or ''}"


if __name__ == "__main__":
    main()
