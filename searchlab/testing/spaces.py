"""The conformance suite of spaces."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import numpy as np

from searchlab.analysis import schema
from searchlab.analysis.extractor import VIEWS
from searchlab.backend import compile
from searchlab.ir.program import Program
from searchlab.ir.verify import verify
from searchlab.schedule import replay, trace_json
from searchlab.search import Points, Space, SpaceGenerator, Task
from searchlab.search.generator import seeds
from searchlab.search.knob import Floats
from searchlab.search.sketch import Sketch
from searchlab.targets import CudaTarget, cpu_of

MOST_SEEDS = 16


def check_space(generator: SpaceGenerator, task: Task, points: int = 16, seed: int = 0) -> Space:
    """Check a generator on a task: the space is sound, moves stay inside it, features describe the task's machine, and
    its seeds are a few valid points, always the same.

    `points` random programs are compiled and compared with the reference.
    """
    space = generator.space(task)
    again = type(generator).space(generator, task)
    assert space.name and space.version, f"{generator!r} has no name or no version"
    assert space.hash == again.hash, f"{space.name}: two calls of sketches() gave different spaces"
    check_moves(space, seed)
    check_seeds(generator, task, space)
    sample = space.sample_new(points, np.random.default_rng(seed)).points
    check_features(space, sample[:2], task)
    for point in sample:
        check_point(space, point, task, seed)
    return space


def check_seeds(generator: SpaceGenerator, task: Task, space: Space) -> Points:
    """Check that the seeds are few, valid, distinct and the same for every call."""
    found = seeds(generator, task, space)
    assert len(found) <= MOST_SEEDS, f"{space.name}: {len(found)} seeds are too many; at most {MOST_SEEDS}"
    assert found == generator.seeds(task, space), f"{space.name}: two calls of seeds() gave different points"
    return found


def check_moves(space: Space, seed: int = 0, count: int = 64) -> None:
    """Check that samples, mutants, children and neighbours are valid, repeatable for a seed, and have unique keys."""
    rng = np.random.default_rng(seed)
    sample = space.sample(count, rng)
    _inside(space, sample, "sample")
    assert sample == space.sample(count, np.random.default_rng(seed)), (
        f"{space.name}: the same seed gave a different sample"
    )
    _inside(space, space.mutate(sample, rng), "mutate")
    _inside(space, space.crossover(sample, space.sample(count, rng), rng), "crossover")
    near = space.neighbours(sample[0])
    _inside(space, near, "neighbours")
    assert sample[0].rows()[0] not in near.rows(), f"{space.name}: a point is its own neighbour"
    assert space.at(space.index(sample)) == sample, f"{space.name}: index and at do not agree"
    different = {tuple(row) for row in sample.rows()}
    assert len(set(space.key(sample).tolist())) == len(different), f"{space.name}: two points share a key"
    encoded = space.encode(sample)
    assert encoded.shape == (count, len(space.columns)) and np.isfinite(encoded).all(), f"{space.name}: encoding"


def check_features(space: Space, points: Points, task: Task) -> None:
    """Check that all views give finite features of the right shape, and machine features are those of the target."""
    assert space.target == task.target, f"{space.name}: made for {space.target}, but the task is for {task.target}"
    for view in VIEWS:
        rows = _rows(space, points, view)
        assert rows.shape[1:] == (schema(view).width,), f"{space.name}: features of view '{view}' are {rows.shape}"
        assert np.isfinite(rows).all(), f"{space.name}: features of view '{view}' are not all finite"
    here = _summary(space, points)
    if isinstance(task.target, CudaTarget):
        _check_gpu_features(space, points, task.target, here)
        return
    rounds = np.ceil(np.round(here["main_parallel"]) / task.target.threads)
    assert np.allclose(here["main_parallel_rounds"], rounds, 1e-3), f"{space.name}: features are for other threads"
    for field in ("vector_registers", "vector_bits"):
        wider = copy.copy(space)
        wider.target = replace(cpu_of(task.target), **{field: 2 * getattr(task.target, field)})
        halved = _summary(wider, points)["main_tile_registers"]
        assert np.allclose(2 * halved, here["main_tile_registers"], 1e-3), f"{space.name}: features ignore {field}"


def _check_gpu_features(space: Space, points: Points, target: CudaTarget, here: dict[str, Floats]) -> None:
    """Check that occupancy is that of the target for the registers and the shared memory that features tell."""
    for n in range(len(points)):
        threads, registers, shared = (
            round(float(here[f"gpu_{c}"][n])) for c in ("threads", "registers", "shared_bytes")
        )
        expected = max(1, target.resident_blocks(threads, registers, shared))
        assert round(float(here["gpu_resident"][n])) == expected, f"{space.name}: features are for other limits"


def _rows(space: Space, points: Points, view: str) -> Floats:
    """The concatenated rows of all points, at least one per point."""
    found = space.features(points, view)
    if view == "tree":
        numbers = np.concatenate([rows for rows, _ in found])
        rows = np.concatenate([np.concatenate(tree.features) for _, tree in found])
    elif view == "statements":
        numbers, rows = found.segments, found.rows
    else:
        numbers, rows = np.arange(len(found)), found
    covered = len(np.unique(numbers))
    assert covered == len(points), f"{space.name}: features of view '{view}' for {covered} of {len(points)} points"
    return np.asarray(rows)


def _summary(space: Space, points: Points) -> dict[str, Floats]:
    """The columns of view `summary`, keyed by name, with their logarithm undone."""
    return dict(zip(schema("summary").columns, np.exp2(space.features(points, "summary").T) - 1, strict=True))


def _inside(space: Space, points: Points, move: str) -> None:
    bad = np.flatnonzero(~space.valid(points))
    assert not len(bad), f"{space.name}: {move} left the space: {points[bad[:1]].rows()}"


def check_point(space: Space, point: Points, task: Task, seed: int = 0) -> Program:
    """Check one point: its description round-trips, its trace replays, its program is well-formed and correct."""
    where = f"{space.name}: {space.text(point)}"
    choice = json.loads(json.dumps(space.choice(point)))
    assert space.chosen(choice) == point, f"{where}: its description leads to another point"
    program = space.program(point)
    assert not program.knobs, f"{where}: symbols without a value: {', '.join(program.knobs)}"
    verify(program)
    sketch = space.sketches[int(point.sketch[0])]
    _check_replay(sketch, point, program, task, where)
    inputs = task.workload.inputs(seed)
    kernel = compile(program, task.target)
    wrong = task.workload.check(kernel(*inputs.values()), inputs)
    assert wrong is None, f"{where}: {wrong}\n{program}"
    return program


def _check_replay(sketch: Sketch, point: Points, program: Program, task: Task, where: str) -> None:
    """Check that the trace of a sketch replays from JSON; a program that was not made by a schedule has no trace."""
    assert sketch.program is not None, f"{where}: a sketch without a program"
    if not sketch.program.trace:
        return
    rebuilt = replay(task.program, trace_json(sketch.program))
    assert rebuilt.hash == sketch.program.hash, f"{where}: its trace gives another program"
    values = {s: int(v[0]) for s, v in sketch.values(point.options[:, : len(sketch.knobs)]).items()}
    assert Sketch(sketch.name, sketch.knobs, (), rebuilt).substitute(values).hash == program.hash, f"{where}: replay"
