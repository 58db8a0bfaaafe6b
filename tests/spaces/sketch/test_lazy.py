"""Laziness: points are drawn from knobs alone, and programs and features are made for what is looked at."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.attention import masked_attention
from searchlab.ir.verify import _Verifier
from searchlab.lab.study import Study
from searchlab.schedule import Schedule
from searchlab.search import Deferred, Sketch, Space, SpaceError, Task, menu, space
from searchlab.search.progress import listening
from searchlab.search.reach import AT_FIRST, EACH_BATCH, MOST_AT_ONCE
from searchlab.targets import parse as target
from searchlab.workloads import operators, parse
from spaces.sketch import SketchSpace
from spaces.sketch.annotate import _finish, _placements, _variants, annotate
from spaces.sketch.plan import plan

TASK = Task(masked_attention(heads=2, seq=32, dim=16), target("x86-64-v3"))


@pytest.fixture(scope="module")
def attention() -> tuple[Space, list[str], int]:
    """The space, what was said while it was made, and how many of its programs were visited as a whole."""
    visited: list[Any] = []
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patch, listening(said.append):
        run = _Verifier.run
        patch.setattr(_Verifier, "run", lambda self: visited.append(self) or run(self))
        found = space("sketch", TASK)
    return found, said, len(visited)


def made(found: Space) -> int:
    return sum("program" in s.__dict__ for s in found.sketches)


def test_programs_are_made_when_they_are_needed(attention: tuple[Space, list[str], int]) -> None:
    found, said, visited = attention
    assert len(found.sketches) == 540 and all(isinstance(s, Deferred) for s in found.sketches)
    assert made(found) == 0
    points = found.sample(64, np.random.default_rng(0))
    found.mutate(points, np.random.default_rng(1))
    assert found.size.exact and found.valid(points).all() and made(found) == 0
    assert said[0] == "building the search space" and said[-1] == "building the search space (540 structures so far)"
    assert visited < 540, "statements remember what was verified: only a refused step is looked at as a whole"


def test_a_first_batch_looks_at_a_few_structures(attention: tuple[Space, list[str], int]) -> None:
    found = attention[0]
    how = {"seed": 0, "start": "random", "measurer": object()}
    study = Study(TASK, Given(found), "gbt", "evolutionary", **how)  # type: ignore[arg-type]
    said: list[str] = []
    with listening(said.append):
        first = study.ask(16)
    compiled = sum(s.compiled("summary", TASK.target) for s in found.sketches)
    assert len(first) == 16 and compiled <= AT_FIRST + 16 and made(found) <= AT_FIRST + 16
    assert said[0].startswith("compiling features (0 of ")
    again = Study(TASK, Given(found), "gbt", "evolutionary", **how)  # type: ignore[arg-type]
    with listening(said.append):
        said.clear()
        assert [c.key for c in again.ask(16)] == [c.key for c in first]
    assert not said, "what one study has compiled serves the next"


class Given(SketchSpace):
    """A generator whose space is there already."""

    def __init__(self, found: Space) -> None:
        super().__init__()
        self._found = found

    def space(self, task: Task) -> Space:
        return self._found


def test_every_batch_sees_more(attention: tuple[Space, list[str], int]) -> None:
    study = Study(TASK, Given(attention[0]), None, "random", measurer=object())  # type: ignore[arg-type]
    seen: set[int] = set()
    for batch in range(20):
        part = study._reach.space(batch)
        drawn = set(part.sample(4096, np.random.default_rng(batch)).sketch.tolist())
        count = AT_FIRST + batch * EACH_BATCH
        assert len(drawn) <= min(count, 540)
        seen |= drawn
        moved = part.mutate(part.sample(256, np.random.default_rng(1)), np.random.default_rng(2), structure=1.0)
        assert part is attention[0] or len(set(moved.sketch.tolist())) <= count
    assert len(seen) > 300 and study._reach.space(20) is attention[0]


def test_a_space_of_ordinary_size_is_searched_as_a_whole() -> None:
    found = space("sketch", Task(parse("conv2d:ci=8,co=8,h=8,w=8,k=3,padding=1"), target("x86-64-v3")))
    study = Study(TASK, Given(found), None, "random", measurer=object())  # type: ignore[arg-type]
    assert len(found.sketches) <= MOST_AT_ONCE and study._reach.space(0) is found


def eager(task: Task) -> Iterator[Sketch]:
    """The sketches, each finished as soon as it is found."""
    for state in SketchSpace().derived(task):
        yield from (sketch for placed in _variants(_placements(state)) if (sketch := _finish(placed)) is not None)


@pytest.mark.parametrize("name", sorted(n for n in operators() if n != "masked_attention"))
def test_plans_come_true(name: str) -> None:
    task = Task(parse(name), target("x86-64-v3"))
    lazy, whole = space("sketch", task), Space(list(eager(task)), "sketch", SketchSpace.version, task.target)
    assert [s.name for s in lazy.sketches] == [s.name for s in whole.sketches]
    for a, b in zip(lazy.sketches, whole.sketches, strict=True):
        assert [(type(p), p.at, p.count) for p in a.parts] == [(type(p), p.at, p.count) for p in b.parts]
    points = lazy.sample(40, np.random.default_rng(0))
    assert points == whole.sample(40, np.random.default_rng(0)) and lazy.size == whole.size
    assert lazy.mutate(points, np.random.default_rng(1)) == whole.mutate(points, np.random.default_rng(1))
    assert lazy.hash == whole.hash


def test_a_structure_that_is_refused_is_left_out_at_once() -> None:
    """A loop that is unrolled cannot be in vectors: there is no sketch, rather than one that fails when it is drawn."""
    states = SketchSpace().derived(Task(parse("matmul:m=16,n=16,k=16"), target("x86-64-v3")))
    state = next(s for s in states if s.tiled)
    assert plan(state) is not None and list(annotate(state))
    schedule = Schedule(state.program)
    assert state.tiled[0].vector is not None
    schedule.unroll(state.tiled[0].vector)
    refused = replace(state, program=schedule.program)
    assert plan(refused) is None and list(annotate(refused)) == []


def test_a_plan_that_does_not_come_true_is_told() -> None:
    other = Sketch("s", (menu("a", [1, 2]),))
    wrong = Deferred("s", (menu("a", [1, 2, 3]),), (), lambda: other)
    with pytest.raises(SpaceError, match=r"sketch 's' was to have the knobs \['a'\], its program has \['a'\]"):
        wrong.substitute({"a": 1})
