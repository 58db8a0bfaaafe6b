"""How good searches are on this machine: rows for `python -m benchmarks.search --quality`.

Searches of 64 trials with the defaults (sketch, gbt, evolutionary, 2 threads) run on 16 cases, each with several seeds.
All programs of a case are then raced side by side: what each search had after 16 and after 64 trials, the default
schedule, the best known programs (`benchmarks.best_known`) and the libraries.

`best16_of_known`      the speed of the best program after 16 trials, relative to the best known program
`best64_of_known`      the same after 64 trials
`best64_over_default`  the speed of what is taken home (the best found, or the default schedule where it won the final
                       race), relative to the default schedule; `found64_over_default` is that of the best found
`best64_over_library`  the same relative to the fastest library
`wall_s`, `build_share`  the wall time of 64 trials without the final race, and the share of it spent building

Values are medians over seeds; `min` and `all` show the others.  The best known program is the fastest of all that are
raced, so no share exceeds one; `known` says how many came from the file.  On a machine limited by SEARCHLAB_CPU the
libraries are limited, too, except onnxruntime, which cannot be and does not count.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from statistics import geometric_mean, median
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks import best_known
from benchmarks.best_known import KnownProgram
from searchlab.backend import build
from searchlab.bench import EVERY_LIBRARY, LIBRARIES, Steady, contest, prepare_program
from searchlab.bench.contests import Maker
from searchlab.defaults import default_schedule
from searchlab.errors import SpaceError
from searchlab.ir import Program
from searchlab.lab.folder.provenance import revision
from searchlab.lab.study import Study
from searchlab.search import Points, Task
from searchlab.search import space as make_space
from searchlab.targets import cap, detect
from searchlab.workloads import parse

EARLY, TRIALS, THREADS = 16, 64, 2
WITHIN = 0.9  # of the best space, after a long search
LONG, SPACES = 256, ("template", "sketch", "task-mapping", "probabilistic")  # of searches for the best known programs
_EACH_S, _MOST_S, _ROUNDS, _STEADY, _COPIES = 0.1, 0.4, 5, 0.01, 2  # of a race, the first two for each program
CAPS = {
    "OPENBLAS_CORETYPE": "Haswell",
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}
ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Case:
    """A workload to search on."""

    name: str
    spec: str

    @cached_property
    def task(self) -> Task:
        """The workload on this machine."""
        return Task(parse(self.spec), detect(THREADS))


def _cases(specs: Mapping[str, str]) -> dict[str, Case]:
    return {name: Case(name, spec) for name, spec in specs.items()}


CASES = _cases(
    {
        "matmul-512": "matmul:m=512,n=512,k=512",
        "matmul-384x640x1536": "matmul:m=384,n=640,k=1536",
        "matmul-509": "matmul:m=509,n=509,k=509",
        "matmul-128x3072x768": "matmul:m=128,n=3072,k=768",
        "matmul-1024": "matmul:m=1024,n=1024,k=1024",
        "batch-matmul": "batch_matmul:batch=12,m=128,n=128,k=64",
        "dense-gelu": "dense:m=64,n=4096,k=1024,activation=gelu",
        "conv-64": "conv2d:ci=64,co=64,h=56,w=56,k=3,padding=1",
        "conv-256": "conv2d:ci=256,co=256,h=14,w=14,k=3,padding=1",
        "conv-1x1": "conv2d:ci=256,co=64,h=56,w=56,k=1",
        "conv-7x7": "conv2d:ci=3,co=64,h=224,w=224,k=7,stride=2,padding=3",
        "depthwise": "depthwise_conv2d:c=144,h=56,w=56,k=3,padding=1",
        "conv-transposed": "conv2d_transpose:ci=256,co=128,h=8,w=8,k=4,stride=2,padding=1",
        "softmax": "softmax:rows=128,cols=4096",
        "layer-norm": "layer_norm:rows=512,cols=768",
        "l2-norm": "l2_norm:rows=1024,cols=1024",
    }
)
# Other shapes of the same operators, on which nothing was tuned or trained.
OTHER = _cases(
    {
        "matmul-300x1100x450": "matmul:m=300,n=1100,k=450",
        "matmul-96x2304x512": "matmul:m=96,n=2304,k=512",
        "matmul-661": "matmul:m=661,n=661,k=661",
        "batch-matmul-16x80": "batch_matmul:batch=16,m=80,n=112,k=48",
        "dense-gelu-40": "dense:m=40,n=1500,k=900,activation=gelu",
        "conv-96": "conv2d:ci=96,co=80,h=30,w=30,k=3,padding=1",
        "conv-320": "conv2d:ci=320,co=192,h=10,w=10,k=3,padding=1",
        "conv-1x1-96": "conv2d:ci=96,co=224,h=37,w=37,k=1",
        "conv-5x5": "conv2d:ci=3,co=48,h=150,w=150,k=5,stride=2,padding=2",
        "depthwise-5x5": "depthwise_conv2d:c=120,h=40,w=40,k=5,stride=2,padding=2",
        "conv-transposed-96": "conv2d_transpose:ci=96,co=72,h=14,w=14,k=4,stride=2,padding=1",
        "softmax-700": "softmax:rows=700,cols=600",
        "layer-norm-300": "layer_norm:rows=300,cols=1280",
        "l2-norm-600": "l2_norm:rows=600,cols=1500",
    }
)


# --- results that are kept --------------------------------------------------------------------------------------------


class Results:
    """Finished searches and races, one JSON line each; those of other code or of another machine are not used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        machine = detect(THREADS)  # a limited one has its own caches still, but the name of the limit
        self.origin = {"commit": commit(), "cpu": machine.name, "machine": machine.fingerprint()}
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        mine = [line for line in lines if self.origin.items() <= line.items()]
        if len(mine) < len(lines):
            _say(f"{path}: {len(lines) - len(mine)} of {len(lines)} lines are of other code or machines, and not used")
        self._found: dict[str, dict[str, Any]] = {json.dumps(line["key"]): line["result"] for line in mine}

    def searches(self, case: Case) -> list[dict[str, Any]]:
        """The results of all searches on a case."""
        return [r for key, r in self._found.items() if json.loads(key)[:2] == ["search", case.name]]

    def of(self, key: Sequence[Any], make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The result under a key, made unless it is there."""
        text = json.dumps(list(key))
        if text not in self._found:
            start = perf_counter()
            self._found[text] = result = make()
            with self.path.open("a") as file:
                file.write(json.dumps({**self.origin, "key": list(key), "result": result}) + "\n")
            _say(
                f"{' '.join(str(part) for part in key if isinstance(part, str | int))}: {perf_counter() - start:.1f} s"
            )
        return self._found[text]


def commit() -> str:
    """The commit of the tree, with a digest of what differs from it in code that searches run."""
    found = revision(ROOT).removesuffix("+")
    code = ("searchlab", "spaces", "costmodels", "benchmarks/quality.py")
    changes = subprocess.run(["git", "diff", "HEAD", "--", *code], cwd=ROOT, capture_output=True).stdout
    return f"{found}+{hashlib.sha256(changes).hexdigest()[:8]}" if changes else found


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# --- searches and races -----------------------------------------------------------------------------------------------


def searched(case: Case, seed: int, space: str = "sketch", trials: int = TRIALS) -> dict[str, Any]:
    """One search with its final race: programs, wall time, and what is taken home."""
    start = perf_counter()
    with Study(case.task, space, "gbt", "evolutionary", seed=seed) as study:
        study.optimize(trials=trials)
        wall = perf_counter() - start
        building = study.ledger.seconds["build"]
        final = study.finish()
    found_by = f"{space}, {trials} trials, seed {seed}"

    def stored(point: Points, ms: float) -> dict[str, Any]:
        return asdict(KnownProgram.of(study.space.program(point), found_by, study.space.text(point), ms))

    early = _early(study)
    return {
        "wall_s": round(wall, 2),
        "build_share": round(building / wall, 3),
        "origin": final.origin,
        "early": None if early is None else stored(early, 0.0),
        "best": stored(study.incumbent.point, round(1e3 * final.seconds, 4)),
    }


def _early(study: Study) -> Points | None:
    """The fastest of the first trials as they were measured; None if none of them worked."""
    points = Points.concat([r.points for r in study.rounds])[:EARLY]
    seconds = np.concatenate([r.seconds for r in study.rounds])[:EARLY]
    return points[int(np.argmin(seconds))] if np.isfinite(seconds).any() else None


def raced(case: Case, programs: Mapping[str, Program]) -> dict[str, Any]:
    """The best times of programs, the default schedule and the libraries in one race, in milliseconds."""
    workload, target = case.task.workload, case.task.target

    def maker(program: Program) -> Maker:
        built = build(program, target)
        return lambda inputs, out: prepare_program(built, workload, inputs, target, out=out)

    default = default_schedule(workload.program, target)
    makers = {name: maker(program) for name, program in {**programs, default.hash: default}.items()}
    size = len(makers) + len(LIBRARIES)
    steady = Steady(_STEADY, _MOST_S * size)
    row = contest(workload, target, makers, None, _EACH_S * size, _ROUNDS, steady, _COPIES)
    for name, problem in row.wrong.items():
        _say(f"{case.name}: {name} is wrong: {problem}")
    times = {name: round(1e3 * t.min, 5) for name, t in row.times.items()}
    return {"default": default.hash, "ms": times, "other_load": round(row.other_load, 3)}


# --- figures ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Figures:
    """The figures of a case, a number for each seed; `library` is the fastest one, `known` the programs of the file."""

    case: str
    by_metric: Mapping[str, Sequence[float]]
    library: str
    known: int
    ms: Mapping[str, Any]


# The metrics with the target of the mean over cases and that of the worst case.
TARGETS: Mapping[str, tuple[float, float] | None] = {
    "best16_of_known": (0.85, 0.6),
    "best64_of_known": (0.95, 0.85),
    "best64_over_default": (1.1, 0.97),
    "found64_over_default": None,
    "best64_over_library": (1.15, 0.9),
    "found64_over_library": None,
    "wall_s": (10.0, 20.0),
    "build_share": None,
}


def figures(case: Case, runs: Sequence[Mapping[str, Any]], race: Mapping[str, Any], known: Sequence[str]) -> Figures:
    """The figures of a case from its searches and the race of their programs."""
    ms, default = race["ms"], race["ms"][race["default"]]
    rivals = {n: ms[n] for n in LIBRARIES if n in ms and not (cap() and n == "onnxruntime")}
    library = min(rivals, key=rivals.__getitem__)
    best = min(t for name, t in ms.items() if name not in EVERY_LIBRARY)
    early, found = ([ms.get((r[k] or {}).get("hash"), np.inf) for r in runs] for k in ("early", "best"))
    home = [default if r["origin"] == "default" else t for r, t in zip(runs, found, strict=True)]
    values = {
        "best16_of_known": [best / t for t in early],
        "best64_of_known": [best / t for t in found],
        "best64_over_default": [default / t for t in home],
        "found64_over_default": [default / t for t in found],
        "best64_over_library": [rivals[library] / t for t in home],
        "found64_over_library": [rivals[library] / t for t in found],
        "wall_s": [r["wall_s"] for r in runs],
        "build_share": [r["build_share"] for r in runs],
    }
    shown = {"known": best, "default": default, **rivals, "early": early, "found": found}
    return Figures(case.name, values, library, len([h for h in known if h in ms]), shown)


def rows(cases: Sequence[Case], seeds: int, path: Path) -> Iterator[dict[str, Any]]:
    """A row for every case and metric as they are known, then the mean and the worst case of every metric."""
    results, known = Results(path), best_known.read()
    every = []
    for case in cases:
        runs = [results.of(("search", case.name, s), partial(searched, case, s)) for s in range(seeds)]
        mine = best_known.usable(known.get(case.name, {}).get(best_known.instruction_set(detect()), []))
        found = {e["hash"]: KnownProgram(**e).made() for r in runs for e in (r["early"], r["best"]) if e is not None}
        key = ("race", case.name, sorted({**mine, **found}))
        race = results.of(key, partial(raced, case, {**mine, **found}))
        every.append(figures(case, runs, race, list(mine)))
        yield from _rows(every[-1], race["other_load"])
    if len(every) > 1:
        for metric, targets in TARGETS.items():
            yield from _summary(metric, every, targets)


def _rows(of: Figures, load: float) -> Iterator[dict[str, Any]]:
    for metric, targets in TARGETS.items():
        values = of.by_metric[metric]
        worst = max(values) if metric == "wall_s" else min(values)
        row = {"case": of.case, "metric": metric, "value": _short(median(values)), "target": targets and targets[1]}
        row |= {"max" if metric == "wall_s" else "min": _short(worst), "all": [_short(v) for v in values]}
        if metric.endswith("_known"):
            row["known"] = of.known or "none: the best of this run"
        elif metric.endswith("_library"):
            row["library"] = of.library
        yield row
    yield {"case": of.case, "metric": "ms", "value": min(of.ms["found"]), "target": None, **of.ms, "load": load}


def _summary(metric: str, every: Sequence[Figures], targets: tuple[float, float] | None) -> Iterator[dict[str, Any]]:
    typical, worst = targets or (None, None)
    medians = {of.case: median(of.by_metric[metric]) for of in every}
    if metric == "wall_s":
        last = max(every, key=lambda of: max(of.by_metric[metric]))
        yield _row("median", metric, median(medians.values()), typical)
        yield _row("worst", metric, max(last.by_metric[metric]), worst, of=last.case)
        return
    by_seed = [_mean(values) for values in zip(*(of.by_metric[metric] for of in every), strict=True)]
    yield _row("mean", metric, _mean(list(medians.values())), typical, all=[_short(v) for v in by_seed])
    last_case = min(medians, key=medians.__getitem__)
    yield _row(
        "worst",
        metric,
        medians[last_case],
        worst,
        of=last_case,
        min=_short(min(min(of.by_metric[metric]) for of in every)),
    )


def _row(case: str, metric: str, value: float, target: float | None, **more: Any) -> dict[str, Any]:
    return {"case": case, "metric": metric, "value": _short(value), "target": target, **more}


def _mean(values: Sequence[float]) -> float:
    return geometric_mean(values) if min(values) > 0 else 0.0


def _short(value: float) -> float:
    return round(float(value), 3)


# --- the best known programs ------------------------------------------------------------------------------------------


def learn(cases: Sequence[Case], spaces: Sequence[str], trials: int, path: Path) -> Iterator[dict[str, Any]]:
    """Searches long in some spaces, races all that was found with what is known, and keeps the best in the file.

    Also says how far each space is behind the best of them.
    """
    results, machine = Results(path), best_known.instruction_set(detect())
    for case in cases:
        claiming = [space for space in spaces if _claims(space, case)]
        own = {
            space: results.of(("search", case.name, 0, space, trials), partial(searched, case, 0, space, trials))
            for space in claiming
        }
        found = [KnownProgram(**run["best"]) for run in results.searches(case)]
        known = best_known.read()
        before = known.get(case.name, {}).get(machine, [])
        candidates = {e.hash: e for e in (*found, *before)}
        default = default_schedule(case.task.program, case.task.target)
        candidates.setdefault(default.hash, KnownProgram.of(default, "the default schedule"))
        programs = best_known.usable(list(candidates.values()))
        ms = results.of(("race", case.name, sorted(programs)), partial(raced, case, programs))["ms"]
        timed = [KnownProgram(**{**vars(e), "ms": ms[h]}) for h, e in candidates.items() if h in ms]
        known.setdefault(case.name, {})[machine] = best = best_known.better(timed)
        best_known.write(known)
        row = {"case": case.name, "metric": "known_ms", "value": best[0].ms, "target": None}
        yield row | {"found_by": best[0].found_by, "before": [e.ms for e in before]}
        yield from _compared(case, own, ms)


def _compared(case: Case, own: Mapping[str, Mapping[str, Any]], ms: Mapping[str, float]) -> Iterator[dict[str, Any]]:
    """The speed of what was found in each space, relative to the best of these spaces."""
    times = {space: ms[run["best"]["hash"]] for space, run in own.items() if run["best"]["hash"] in ms}
    for space, time in times.items():
        yield _row(case.name, f"{space}_of_best", min(times.values()) / time, WITHIN, ms=time)


def _claims(space: str, case: Case) -> bool:
    """Whether a space has programs for a case; templates do not for all operators."""
    try:
        make_space(space, case.task)
    except SpaceError as e:
        _say(f"{case.name}: {e}")
        return False
    return True


def cap_libraries() -> None:
    """Starts this process anew with limits for numpy and torch, if SEARCHLAB_CPU limits searchlab but not them."""
    if cap() and not CAPS.items() <= os.environ.items():
        command = [sys.executable, "-m", "benchmarks.search", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, **CAPS})
