"""Records small spaces exhaustively on this machine, for replay: searchlab/data/recorded/*.

    python tools/record_space.py [name ...] [--out FOLDER] [--core N] [--dry-run]

Every valid point is built, checked and timed, in random order, so that disturbances of the machine are independent of
the knobs.  Rows whose repeats disagree are re-measured; a reference row that is measured at intervals shows how steady
the machine was, which the header records.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path

import llvmlite.binding
import numpy as np

import searchlab as sl
from searchlab.ir import Program
from searchlab.measure import Job, Limits, LocalMeasurer, Outcome, Protocol
from searchlab.measure.recorded.tables import save
from searchlab.search import RecordedSpace, Sketch, Space, menu, split_knob
from searchlab.timing.race import OtherLoad
from searchlab.workloads import Workload, parse

ROOT = Path(__file__).resolve().parents[1]
# Every row has all its repeats, however slow it is.
PROTOCOL = Protocol(warmup=4, repeats=9, early_stop=None, beaten=None)
LIMITS = Limits(build_s=30.0, run_s=30.0)
UNSTEADY = 0.10  # spread of the repeats above which a row is measured again
REFERENCE_EVERY = 40
CONFIRMATIONS = 3

# --- the spaces -------------------------------------------------------------------------------------------------------

I1, J1, J2, K1 = (sl.knob(s) for s in ("i1", "j1", "j2", "k1"))


def matmul() -> tuple[str, list[Sketch]]:
    """Columns tiled at two levels, depth at one, and a register tile; B read in place, or packed into panels first."""
    spec = "matmul:m=256,n=256,k=256"

    def program(packed: bool) -> Program:
        s = sl.Schedule(parse(spec).program)
        i, j, k = s.loops("C")
        if packed:
            panels = s.cache_read("C", "B")
            s.transform_layout(panels, lambda k, j: (j // J2, k, j % J2))
        i0, i1 = s.split(i, [None, I1])
        j0, j1, j2 = s.split(j, [None, J1, J2])
        k0, k1 = s.split(k, [None, K1])
        s.reorder(j0, k0, i0, j1, k1, i1, j2)
        if packed:
            s.compute_at(panels, k0)
            s.vectorize(s.loops(panels)[-1])
        s.unroll(i1)
        s.vectorize(j2)
        return s.program

    knobs = (split_knob("i", 256, 2, 16), split_knob("j", 256, 3, 64), split_knob("k", 256, 2))
    limits = (J2 >= 16, I1 * J2 <= 1024, K1 >= 16)
    return spec, [Sketch(n, knobs, limits, program(n == "packed")) for n in ("direct", "packed")]


def conv2d() -> tuple[str, list[Sketch]]:
    """Vectors along output channels with packed weights, or along the columns of a row with weights in place."""
    spec = "conv2d:ci=32,co=32,h=28,w=28,k=3,padding=1"
    h1, w1, c1, r1 = (sl.knob(s) for s in ("h1", "w1", "c1", "r1"))

    def channels() -> Program:
        s = sl.Schedule(parse(spec).program)
        n, co, h, w, ci, kh, kw = s.loops("Y")
        weights = s.cache_read("Y", "W")
        s.transform_layout(weights, lambda o, i, y, x: (o // c1, i, y, x, o % c1))
        co0, co1 = s.split(co, [None, c1])
        ho, hi = s.split(h, [None, h1])
        wo, wi = s.split(w, [None, w1])
        ro, ri = s.split(ci, [None, r1])
        s.reorder(n, ho, co0, ro, hi, wo, ri, kh, kw, wi, co1)
        s.unroll(wi)
        s.vectorize(co1)
        s.vectorize(s.loops(weights)[-1])
        return s.program

    def columns() -> Program:
        s = sl.Schedule(parse(spec).program)
        n, co, h, w, ci, kh, kw = s.loops("Y")
        co0, co1 = s.split(co, [None, c1])
        ho, hi = s.split(h, [None, h1])
        wo, wi = s.split(w, [None, w1])
        ro, ri = s.split(ci, [None, r1])
        s.reorder(n, ho, co0, ro, hi, wo, ri, kh, kw, co1, wi)
        s.unroll(co1)
        s.vectorize(wi)
        return s.program

    knobs = (split_knob("c", 32, 2), split_knob("h", 28, 2), split_knob("w", 28, 2), split_knob("r", 32, 2))
    return spec, [
        Sketch("channels", knobs, (c1 >= 8, w1 * c1 <= 448, r1 >= 8), channels()),
        Sketch("columns", knobs, (c1 <= 8, w1 >= 7, h1 <= 7, r1 >= 8), columns()),
    ]


def softmax() -> tuple[str, list[Sketch]]:
    """The vector length of every stage; all stages fused over a few rows at a time, or each on all rows."""
    spec = "softmax:rows=128,cols=1024"
    rows = sl.knob("rows1")

    def program(fused: bool) -> Program:
        s = sl.Schedule(parse(spec).program)
        if fused:
            i, _ = s.loops("Y")
            i0, i1 = s.split(i, [None, rows])
            for stage in ("S", "E", "M"):
                s.compute_at(stage, i0)
        for stage, symbol in (("M", "m1"), ("E", "e1"), ("S", "s1"), ("Y", "y1")):
            s.vectorize(s.split(s.loops(stage)[-1], [None, sl.knob(symbol)])[1])
        return s.program

    lengths = tuple(menu(n, [16, 32, 64], f"{n}1") for n in ("m", "e", "s", "y"))
    return spec, [
        Sketch("fused", (*lengths, menu("rows", [1, 4, 16], "rows1")), program=program(True)),
        Sketch("apart", lengths, program=program(False)),
    ]


SPACES: dict[str, Callable[[], tuple[str, list[Sketch]]]] = {
    "matmul-256": matmul,
    "conv2d-32x28x28": conv2d,
    "softmax-128x1024": softmax,
}

# --- recording --------------------------------------------------------------------------------------------------------


class Recorder:
    """Measures the points of one space, one after the other, on one core."""

    def __init__(self, space: Space, workload: Workload, target: sl.Target, core: int) -> None:
        self._space, self._workload, self._target = space, workload, target
        self._points = space.enumerate()
        self._measurer = LocalMeasurer(cores=[core])

    def measure(self, n: int) -> Outcome:
        """The outcome of point n."""
        program = self._space.program(self._points[n])
        job = Job(str(n), self._workload, self._target, program, limits=LIMITS, protocol=PROTOCOL)
        (outcome,) = self._measurer.measure([job])
        return outcome

    def close(self) -> None:
        """Ends the processes that measure."""
        self._measurer.close()

    def all(self) -> tuple[list[Outcome], list[float], list[float]]:
        """The outcomes of all points, the seconds of each beyond its phases, and times of the reference row."""
        count = len(self._points)
        outcomes: dict[int, Outcome] = {}
        overhead, reference = [0.0] * count, []
        self.measure(0)  # starts the workers, which is not to be charged to a point
        for done, n in enumerate(np.random.default_rng(0).permutation(count).tolist()):
            if done % REFERENCE_EVERY == 0:
                reference.append(self.measure(count // 2).seconds)
            start = time.perf_counter()
            o = outcomes[n] = self.measure(n)
            overhead[n] = max(0.0, time.perf_counter() - start - o.build_s - o.check_s - o.run_s)
        for n, o in outcomes.items():
            if o.ok and spread(o.times) > UNSTEADY:
                again = self.measure(n)
                if again.ok and spread(again.times) < spread(o.times):
                    outcomes[n] = replace(again, build_s=o.build_s)  # it was not built again
        return self.confirm([outcomes[n] for n in range(count)]), overhead, reference

    def confirm(self, outcomes: Sequence[Outcome]) -> list[Outcome]:
        """The outcomes after re-measuring the fastest, since the best of many is biased by selection."""
        found = list(outcomes)
        for _ in range(CONFIRMATIONS):
            order = sorted(range(len(found)), key=lambda n: found[n].seconds)
            for n in order[: len(found) // 10]:
                again = self.measure(n)
                if found[n].ok and again.ok:
                    found[n] = replace(found[n], times=found[n].times + again.times)
        return found


def spread(times: Sequence[float]) -> float:
    """Half the interquartile range, relative to the median."""
    low, middle, high = np.percentile(times, [25, 50, 75])
    return float((high - low) / 2 / middle)


def record(name: str, out: Path, core: int) -> str:
    spec, sketches = SPACES[name]()
    space, workload, target = Space(sketches, name), parse(spec), sl.detect(threads=1)
    points = space.enumerate()
    start = time.perf_counter()
    with closing(Recorder(space, workload, target, core)) as recorder, OtherLoad() as load:
        outcomes, overhead, reference = recorder.all()
    seconds = time.perf_counter() - start
    rows = [points.options[points.sketch == n, : len(s.knobs)] for n, s in enumerate(sketches)]
    recorded = RecordedSpace(
        [Sketch(s.name, s.knobs, rows=r) for s, r in zip(sketches, rows, strict=True)], name, space.version
    )
    about = {
        "workload": workload.spec,
        "flops": workload.flops,
        "machine": machine(target),
        "toolchain": toolchain(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "protocol": protocol(),
        "noise": noise(outcomes, reference, load.share),
        "recording_s": round(seconds, 1),
    }
    save(out, recorded, outcomes, about, overhead)
    best = min(o.seconds for o in outcomes)
    failed = sum(not o.ok for o in outcomes)
    return f"{name}: {len(outcomes)} rows ({failed} failed) in {seconds:.0f} s, best {best:.3g} s, {about['noise']}"


def machine(target: sl.Target) -> dict[str, object]:
    names = [ln for ln in Path("/proc/cpuinfo").read_text().splitlines() if ln.startswith("model name")]
    model = names[0].partition(":")[2].strip() if names else platform.processor()
    return {"cpu": model, "system": platform.system(), "target": target.to_dict()}


def toolchain() -> dict[str, str]:
    llvm = ".".join(map(str, llvmlite.binding.llvm_version_info))
    python = platform.python_version()
    return {"searchlab": sl.__version__, "llvm": llvm, "llvmlite": version("llvmlite"), "python": python}


def protocol() -> dict[str, object]:
    """The protocol as the header of a table has it."""
    return {
        **asdict(PROTOCOL), "limits": asdict(LIMITS), "seconds": "median of the repeats", "order": "shuffled",
        "measured_again": f"rows whose repeats spread by more than {UNSTEADY:.0%}; the steadier result is kept",
        "confirmed": f"{CONFIRMATIONS} times, the tenth that was the fastest by then; all repeats count",
        "cost": "build_s, check_s and run_s are wall times of the phases, overhead_s of the rest of the call",
    }  # fmt: skip


def noise(outcomes: Sequence[Outcome], reference: Sequence[float], load: float) -> dict[str, object]:
    spreads = [spread(o.times) for o in outcomes if o.ok]
    middle = statistics.median(reference)
    return {
        "machine_shared": True,
        "cpu_busy": round(load, 3),  # of all cores, with the processes that measure
        "spread_of_repeats_median": round(statistics.median(spreads), 4),
        "spread_of_repeats_p95": round(float(np.percentile(spreads, 95)), 4),
        "reference_runs": len(reference),
        "reference_spread": round(spread(reference), 4),
        "reference_worst": round(max(reference) / middle - 1, 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(SPACES)}; all, if none is given")
    parser.add_argument("--out", type=Path, default=ROOT / "searchlab" / "data" / "recorded")
    parser.add_argument("--core", type=int, default=0, help="the core that times")
    parser.add_argument("--dry-run", action="store_true", help="only tell how many points there are")
    given = parser.parse_args()
    for name in given.names or SPACES:
        if given.dry_run:
            print(Space(SPACES[name]()[1], name))
        else:
            print(record(name, given.out, given.core), flush=True)


if __name__ == "__main__":
    main()
