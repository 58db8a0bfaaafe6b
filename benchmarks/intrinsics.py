"""Schedules with tensor intrinsics: python -m benchmarks.intrinsics [--json] [--only CASE] [--seconds S].

Products of bytes by their default schedules, with weights packed ahead, exact, in interleaved races on one and two
threads; above 1 we are faster.

`over-onnxruntime`  the time of onnxruntime's operator on bytes, divided by ours
`...-small`         the same for weights that are declared to be in -64..63, on machines without VNNI: instructions
                    that saturate are exact then
`over-float32`      the time of our own default schedule on float32, for the same shape, divided by ours
`over-libraries`    float32: the best time of numpy, torch and onnxruntime, divided by that of a product by the outer
                    products of `searchlab.intrinsics`, with B packed ahead, as onnxruntime packs it

Targets depend on whether the machine has VNNI.  On a machine limited by SEARCHLAB_CPU the libraries are limited, too,
except onnxruntime, which cannot be and does not count.  Where onnxruntime saturates, as without VNNI, its row says so.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.quality import CAPS
from searchlab import tactics
from searchlab.backend import compile
from searchlab.bench import LIBRARIES, ContestRow, OtherLoad, contest, prepare, prepare_program, race
from searchlab.bench.contests import Maker
from searchlab.intrinsics import Intrinsic, intrinsics
from searchlab.ir import Program
from searchlab.runtime.memory import lasting, placed
from searchlab.schedule import Schedule
from searchlab.targets import CpuTarget, cap, cpu_of, detect
from searchlab.timing.race import Contender
from searchlab.workloads import Workload, parse

OURS, FLOATS = "searchlab", "searchlab float32"


@dataclass(frozen=True)
class Case:
    """A product of bytes, and the same shape in float32."""

    name: str
    workload: str
    floats: str


def _product(m: int, n: int, k: int) -> Case:
    return Case(f"u8s8-{m}x{n}x{k}", f"matmul:m={m},n={n},k={k},dtype=uint8", f"matmul:m={m},n={n},k={k}")


def _convolution(channels: int, side: int) -> Case:
    shape = f"ci={channels},co={channels},h={side},w={side},k=3,padding=1"
    return Case(f"qconv2d-{channels}x{side}", f"qconv2d:{shape},zero=128,out_zero=128", f"conv2d:{shape}")


CASES = (
    _product(512, 512, 512),
    _product(1024, 1024, 1024),
    _product(128, 3072, 768),
    _convolution(64, 56),
    _convolution(256, 14),
)
FLOAT_CASES = {
    "f32-512": "matmul:m=512,n=512,k=512",
    "f32-1024": "matmul:m=1024,n=1024,k=1024",
    "f32-384x640x1536": "matmul:m=384,n=640,k=1536",
}


def _vnni(target: CpuTarget) -> bool:
    return not intrinsics()["vnni_u8s8_8x4"].needs.missing(target)


def _row(case: str, metric: str, value: float, goal: float, row: ContestRow, **more: Any) -> dict[str, Any]:
    times = {f"{name}_ms": round(1e3 * t.min, 4) for name, t in row.times.items()}
    load = {"other_load": round(row.other_load, 2)}
    return {"case": case, "metric": metric, "value": round(value, 3), "target": goal, **more, **load, **times}


# --- bytes ------------------------------------------------------------------------------------------------------------


def _prepared(w: Workload, target: CpuTarget) -> Contender:
    """The default schedule on memory that is laid out like that of every race."""
    inputs = {name: placed(x) for name, x in w.inputs().items()}
    expected = w.reference(inputs)
    out = [lasting(expected[name].shape, expected[name].dtype) for name in w.program.outputs]
    return prepare(w, inputs, target, True, out)[0]


def _small(w: Workload) -> Workload:
    """The workload with weights that are declared to be small."""
    function, small = w.operator.function, {w.weights[0]: (-64, 63)}
    made = replace(w.operator, function=lambda **p: replace(function(**p), ranges=small), _made={})
    return made(**dict(w.params))


def measure(case: Case, target: CpuTarget, seconds: float, small: bool = False) -> Iterator[dict[str, Any]]:
    """The rows of a product of bytes on one number of threads."""
    w, count = parse(case.workload), target.threads
    goals = (1.0, 2.8) if _vnni(target) else (0.8, 1.6)
    if small:
        w, goals, case = _small(w), (1.0, 1.8), replace(case, name=f"{case.name}-small")
    row = contest(w, target, {OURS: lambda inputs, out: prepare(w, inputs, target, True, out)}, None, seconds)
    if OURS not in row.times:
        raise SystemExit(f"{case.name}: {row.wrong[OURS]}")
    ours = row.times[OURS].min
    if "onnxruntime" in row.times and not cap():
        exact = {} if "onnxruntime" not in row.inexact else {"inexact": row.inexact["onnxruntime"]}
        ratio = row.times["onnxruntime"].min / ours
        yield _row(case.name, f"over-onnxruntime-{count}t", ratio, goals[0], row, **exact)
    pair = {OURS: _prepared(w, target), FLOATS: _prepared(parse(case.floats), target)}
    with OtherLoad() as others:
        times = race(pair, seconds)  # both run on our threads: single samples in turns
    row = ContestRow(case.name, w, count, times, other_load=others.share)
    yield _row(case.name, f"over-float32-{count}t", times[FLOATS].min / times[OURS].min, goals[1], row)


# --- float32 ----------------------------------------------------------------------------------------------------------


def outer_product(program: Program, target: CpuTarget, intrinsic: Intrinsic) -> Program:
    """C = A B by outer products in a tile of registers: each of the packed panels of B meets all rows of A."""
    s = Schedule(program)
    view = tactics.intrinsic_view(program, "C", intrinsic)
    assert view is not None
    tactics.lay_for_calls(s, view, ahead=True)
    loops = tactics.split_for_calls(s, view, 1, 1)
    s.reorder(loops.columns, loops.rows, *loops.sums, loops.row, loops.vector, *loops.call)
    if target.threads > 1:
        s.parallel(loops.columns)
    tactics.insert_calls(s, view, loops)
    return s.program


def _outer_products(target: CpuTarget) -> list[Intrinsic]:
    """Those of the target's widest vectors."""
    usable = [x for n, x in intrinsics().items() if "_f32_" in n and not x.needs.missing(target)]
    family = "avx512" if any(x.name.startswith("avx512") for x in usable) else "avx2"
    return [x for x in usable if x.name.startswith(family)] or usable


def measure_floats(name: str, target: CpuTarget, seconds: float) -> dict[str, Any]:
    """The row of a product of floats: the best of the tiles that there are, side by side with the libraries."""
    w = parse(FLOAT_CASES[name])
    makers: dict[str, Maker] = {x.name: _maker(w, target, x) for x in _outer_products(target)}
    row = contest(w, target, makers, None, seconds)
    ours = min((n for n in makers if n in row.times), key=lambda n: row.times[n].min)
    rivals = {n: row.times[n].min for n in LIBRARIES if n in row.times and not (cap() and n == "onnxruntime")}
    best = min(rivals, key=rivals.__getitem__)
    ratio = rivals[best] / row.times[ours].min
    return _row(name, f"over-libraries-{target.threads}t", ratio, 1.0, row, ours=ours, library=best)


def _maker(w: Workload, target: CpuTarget, intrinsic: Intrinsic) -> Maker:
    kernel = outer_product(w.program, target, intrinsic)
    compile(kernel, target)
    return lambda inputs, out: prepare_program(kernel, w, inputs, target, w.weights, out)


# --- all of them ------------------------------------------------------------------------------------------------------


def rows(only: str | None, machine: CpuTarget, seconds: float) -> Iterator[dict[str, Any]]:
    """The rows of all cases, or of one, on one and on two threads."""
    for target in (machine.with_threads(count) for count in (1, 2) if count <= machine.cores):
        for case in CASES:
            if only in (None, case.name):
                yield from measure(case, target, seconds)
                if not _vnni(target):
                    yield from measure(case, target, seconds, small=True)
        for name in FLOAT_CASES:
            if only in (None, name):
                yield measure_floats(name, target, seconds)


def _line(row: dict[str, Any]) -> str:
    verdict = "ok  " if row["value"] >= row["target"] else "MISS"
    head = f"{row['case']:24s} {row['metric']:20s} {row['value']:7.3f}  target {row['target']:<4g} {verdict}"
    times = "  ".join(f"{k[:-3]} {v:.3f}" for k, v in row.items() if k.endswith("_ms"))
    return f"{head}  {times}" + (f"  inexact: {row['inexact']}" if "inexact" in row else "")


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a row for every case and metric."""
    known = [*(c.name for c in CASES), *FLOAT_CASES]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object for each row")
    parser.add_argument("--only", choices=known, help="one case")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each race")
    options = parser.parse_args(arguments)
    if cap() and not CAPS.items() <= os.environ.items():  # the libraries read these as they are loaded
        os.execve(sys.executable, [sys.executable, "-m", "benchmarks.intrinsics", *sys.argv[1:]], os.environ | CAPS)
    for row in rows(options.only, cpu_of(detect()), options.seconds):
        print(json.dumps(row) if options.json else _line(row), flush=True)


if __name__ == "__main__":
    main()
