"""The final race: the best of the search is chosen, and the default schedule is taken home where it was faster."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchlab.bench import DEFAULT, LIBRARIES, ContestRow, Times
from searchlab.bench.contests import Maker
from searchlab.defaults import default_schedule
from searchlab.errors import SpaceError
from searchlab.lab.study import Fallback, Finish, JointStudy, Study, TaskSubject
from searchlab.lab.study import finish as finish_module
from searchlab.lab.study.finish import final_race
from searchlab.measure import Job, Measurer, Outcome
from searchlab.search import Task
from searchlab.targets import detect
from searchlab.workloads import parse

TARGET = detect(1)
WORKLOAD = parse("matmul:m=32,n=32,k=32")
DEFAULT_PROGRAM = default_schedule(WORKLOAD.program, TARGET)


class Steady(Measurer[Job]):
    """Times that depend on the program alone."""

    def measure(self, jobs: list[Job]):  # type: ignore[no-untyped-def]
        for job in jobs:
            seconds = 1e-4 + int(job.program.hash[:6], 16) / 1e12
            yield Outcome(job.id, "ok", (seconds,) * 3, number=1)


def study(trials: int = 16) -> Study:
    found = Study(Task(WORKLOAD, TARGET), "template", None, "random", measurer=Steady(), batch=8, confirm=False)
    found.optimize(trials=trials)
    return found


def ended(monkeypatch: pytest.MonkeyPatch, default_s: float, kept: bool) -> Callable[..., Finish]:
    """A race that the default schedule ends with a given time."""

    def final(self: TaskSubject, finalists: object, best_s: float, *_: float) -> Finish:
        fallback = Fallback(self.default.hash, default_s, kept)
        return Finish(0, best_s, {DEFAULT: default_s}, fallback=fallback)

    monkeypatch.setattr(TaskSubject, "final", final)
    return final


# --- the race ---------------------------------------------------------------------------------------------------------


def raced(monkeypatch: pytest.MonkeyPatch, times: Mapping[str, Times], wrong: Mapping[str, str] = {}) -> Finish:
    def contest(workload: object, target: object, makers: Mapping[str, Maker], *_: object, rivals: bool) -> ContestRow:
        here = {name: t for name, t in times.items() if name in makers or (rivals and name in LIBRARIES)}
        return ContestRow("case", WORKLOAD, 1, here, {name: why for name, why in wrong.items() if name in makers})

    monkeypatch.setattr(finish_module, "contest", contest)
    return final_race(WORKLOAD, TARGET, [WORKLOAD.program] * 3, DEFAULT_PROGRAM, 0.1, 0.1)


seconds = st.floats(1e-6, 1e-2)
spreads = st.floats(0, 0.5)


@given(best=seconds, other=seconds, default=seconds, noise=st.tuples(spreads, spreads, spreads), library=seconds)
def test_the_default_schedule_is_kept_where_it_wins_beyond_the_noise(
    best: float, other: float, default: float, noise: tuple[float, float, float], library: float
) -> None:
    row = {
        "0": Times(other, other, 9, noise[0]),
        "2": Times(best, best, 9, noise[1]),
        DEFAULT: Times(default, default, 9, noise[2]),
        "numpy": Times(library, library, 9, 9.0),  # the noise of libraries decides nothing
    }
    with pytest.MonkeyPatch.context() as patch:
        found = raced(patch, row)
    fastest, spread = min((other, noise[0]), (best, noise[1]), key=lambda pair: pair[0])
    assert found.seconds == fastest and found.winner in (0, 2)
    assert found.baselines == {DEFAULT: default, "numpy": library}
    assert found.fallback is not None and found.fallback.program == DEFAULT_PROGRAM.hash
    assert (found.origin == "default") == (default * (1 + min(max(spread, noise[2]), 0.01)) < fastest)
    assert found.taken_s == (default if found.origin == "default" else fastest)
    assert found.taken_s <= found.seconds


def test_a_tie_goes_to_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    same = Times(1e-4, 1e-4, 9, 0.0)
    assert raced(monkeypatch, {"1": same, DEFAULT: same}).origin == "search"


def test_a_default_schedule_that_does_not_work_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    found = raced(monkeypatch, {"1": Times(1e-4, 1e-4, 9)}, {DEFAULT: "BuildError: no"})
    assert found.fallback is None and found.origin == "search" and found.taken_s == 1e-4


def test_finalists_that_do_not_work_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SpaceError, match="BuildError: no"):
        raced(monkeypatch, {DEFAULT: Times(1e-4, 1e-4, 9)}, {"0": "BuildError: no"})


def test_finalists_race_without_the_libraries_and_the_winner_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[list[str], bool]] = []
    heat = {"0": Times(3e-4, 3e-4, 9), "1": Times(1e-4, 1e-4, 9), "2": Times(2e-4, 2e-4, 9)}
    last = {"1": Times(4e-4, 4e-4, 9), DEFAULT: Times(5e-4, 5e-4, 9), "numpy": Times(6e-4, 6e-4, 9)}

    def contest(*given: Any, rivals: bool) -> ContestRow:
        asked.append((list(given[2]), rivals))
        return ContestRow("case", WORKLOAD, 1, last if rivals else heat)

    monkeypatch.setattr(finish_module, "contest", contest)
    found = final_race(WORKLOAD, TARGET, [WORKLOAD.program] * 3, DEFAULT_PROGRAM, 0.1, 0.1)
    assert asked == [(["0", "1", "2"], False), (["1", DEFAULT], True)]
    assert (found.winner, found.seconds, found.baselines) == (1, 4e-4, {DEFAULT: 5e-4, "numpy": 6e-4})


def test_a_real_race_times_the_default_schedule() -> None:
    found = final_race(WORKLOAD, TARGET, [DEFAULT_PROGRAM], DEFAULT_PROGRAM, 0.01, 0.01)
    assert found.fallback is not None and found.fallback.seconds == found.baselines[DEFAULT]


# --- what is taken home -----------------------------------------------------------------------------------------------


def test_the_default_schedule_can_be_the_best_of_a_study(monkeypatch: pytest.MonkeyPatch) -> None:
    ended(monkeypatch, 5e-5, kept=True)
    s = study()
    before = s.best
    s.finish()
    assert s.best.origin == "default" and s.best.seconds == 5e-5 and str(s.best).startswith("default schedule: ")
    assert s.best.program.hash == DEFAULT_PROGRAM.hash
    inputs = WORKLOAD.inputs(seed=1)
    assert WORKLOAD.check(s.best.kernel(*inputs.values()), inputs) is None
    # what the search found is still there
    assert s.incumbent.origin == "search" and s.incumbent.seconds == s.best_s == before.seconds
    assert s.incumbent.point == before.point and s.incumbent.program.hash == before.program.hash


def test_the_search_is_taken_home_unless_it_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    ended(monkeypatch, 5e-5, kept=False)
    s = study()
    s.finish()
    assert s.best.origin == "search" and s.best.seconds == s.best_s and s.best.program.hash == s.incumbent.program.hash


def test_a_search_that_goes_on_can_beat_the_default_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    ended(monkeypatch, 5e-5, kept=True)
    s = study()
    s.finish()
    candidates = s.ask(1)
    s.tell(candidates, [Outcome(candidates[0].job.id, "ok", (1e-5,) * 3, number=1)])
    assert s.best.origin == "search" and s.best.point == candidates[0].point


def test_networks_take_the_faster_program_of_each_task(monkeypatch: pytest.MonkeyPatch) -> None:
    ended(monkeypatch, 5e-5, kept=True)
    studies = [study(), study()]
    network = JointStudy(studies, (3.0, 1.0))
    original = TaskSubject.final

    def final(self: TaskSubject, *rest: object) -> Finish:
        found = original(self, *rest)  # type: ignore[arg-type]
        return found if self is studies[0].subject else Finish(0, found.seconds, found.baselines)

    monkeypatch.setattr(TaskSubject, "final", final)
    found = network.finish()
    best = [s.best_s for s in studies]
    assert found.seconds == pytest.approx(3 * best[0] + best[1])
    assert found.taken_s == pytest.approx(3 * 5e-5 + best[1]) and np.isfinite(found.taken_s)
    assert [s.best.origin for s in studies] == ["default", "search"]
