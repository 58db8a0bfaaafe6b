"""What every space must hold to."""

from __future__ import annotations

import json

import numpy as np

from searchlab.codegen.kernel import compile
from searchlab.ir.program import Program
from searchlab.ir.verify import verify
from searchlab.schedule import replay, trace_json
from searchlab.search import Points, Space, SpaceGenerator, Task
from searchlab.search.sketch import Sketch


def check_space(generator: SpaceGenerator, task: Task, points: int = 16, seed: int = 0) -> Space:
    """A generator on a task: the space is sound, its moves stay inside, and `points` random programs are right."""
    space = generator.space(task)
    again = type(generator).space(generator, task)
    assert space.name and space.version, f"{generator!r} does not say its name and version"
    assert space.hash == again.hash, f"{space.name}: two calls of sketches() gave different spaces"
    check_moves(space, seed)
    sample = space.sample_new(points, np.random.default_rng(seed)).points
    for point in sample:
        check_point(space, point, task, seed)
    return space


def check_moves(space: Space, seed: int = 0, count: int = 64) -> None:
    """Samples, mutants, children and neighbours are valid points; the same seed gives the same; ids are their own."""
    rng = np.random.default_rng(seed)
    sample = space.sample(count, rng)
    _inside(space, sample, "sample")
    assert sample == space.sample(count, np.random.default_rng(seed)), f"{space.name}: the same seed, another sample"
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


def _inside(space: Space, points: Points, move: str) -> None:
    bad = np.flatnonzero(~space.valid(points))
    assert not len(bad), f"{space.name}: {move} left the space: {points[bad[:1]].rows()}"


def check_point(space: Space, point: Points, task: Task, seed: int = 0) -> Program:
    """One point: described and found again, rebuilt from its trace, well-formed, and equal to the reference."""
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
    """The steps that made the sketch make it again from JSON; a program that was written, not scheduled, has none."""
    assert sketch.program is not None, f"{where}: a sketch without a program"
    if not sketch.program.trace:
        return
    rebuilt = replay(task.program, trace_json(sketch.program))
    assert rebuilt.hash == sketch.program.hash, f"{where}: its trace gives another program"
    values = {s: int(v[0]) for s, v in sketch.values(point.options[:, : len(sketch.knobs)]).items()}
    assert Sketch(sketch.name, sketch.knobs, (), rebuilt).substitute(values).hash == program.hash, f"{where}: replay"
