"""The loop: no program twice, an exact budget, an incumbent that is never lost, the same trace for the same seed."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab.errors import ComponentError, SpaceError
from searchlab.lab.records import RecordStore
from searchlab.lab.study import Candidate, Finish, IncumbentLook, Ledger, Study, TableSubject, TaskSubject, judge
from searchlab.measure.job import Job, Measurer, Outcome
from searchlab.measure.recorded.replayer import ReplayMeasurer
from searchlab.measure.recorded.tables import Table, load
from searchlab.search import CostModel, History, Points, RecordedSpace, Scorer, Space, Strategy, Task, menu
from searchlab.search.knob import Floats
from searchlab.targets import detect
from searchlab.targets import parse as parse_target
from searchlab.workloads import parse as parse_workload


class Plain(Strategy):
    """New points at random; with a model, the best of many."""

    name = "plain"

    def ask(self, count: int, score: Scorer | None = None) -> Points:
        if score is None:
            return self.draw(count)
        pool = self.space.sample_new(8 * count, self.rng, self.known).points
        chosen = pool[np.argsort(score(pool), kind="stable")[:count]] if len(pool) else pool
        self.exclude(chosen)
        return chosen


class Nearest(CostModel):
    """A point takes as long as the nearest one that was measured."""

    name = "nearest"

    def fit(self, history: History) -> None:
        trials = list(history)[-1]
        good = np.isfinite(trials.seconds)
        self.known, self.seconds = trials.space.encode(trials.points)[good], trials.seconds[good]

    def predict(self, space: Space, points: Points) -> Floats:
        distance = np.abs(space.encode(points)[:, None] - self.known[None]).sum(axis=2)
        return np.asarray(self.seconds[distance.argmin(axis=1)])

    @property
    def ready(self) -> bool:
        return hasattr(self, "known") and len(self.known) > 0


def table(seconds: list[float]) -> Table:
    """A small table; infinite times are failures."""
    space = RecordedSpace.of([menu("t", range(1, len(seconds) + 1))], np.arange(len(seconds)).reshape(-1, 1), "small")
    zeros = np.zeros(len(seconds))
    status = tuple("ok" if math.isfinite(s) else "run" for s in seconds)
    return Table(space, status, np.array(seconds), zeros, zeros, zeros, zeros)


def study(subject: Table | TableSubject, **options: object) -> Study:
    path = f"{__name__}:Plain"
    return Study(subject, strategy=path, **{"model": None, **options})  # type: ignore[arg-type]


@settings(max_examples=40, deadline=None)
@given(
    seconds=st.lists(st.one_of(st.floats(1e-3, 10), st.just(math.inf)), min_size=1, max_size=40),
    trials=st.integers(1, 50),
    batch=st.integers(1, 16),
    seed=st.integers(0, 99),
)
def test_budget_incumbent_and_uniqueness(seconds: list[float], trials: int, batch: int, seed: int) -> None:
    s = study(table(seconds), batch=batch, seed=seed)
    if all(map(math.isinf, seconds)):
        with pytest.raises(SpaceError, match="none of"):
            s.optimize(trials=trials)
    else:
        seen: list[float] = []
        s.callbacks.append(lambda study, done: seen.append(done.best_s))
        try:
            assert s.optimize(trials=trials).seconds == s.trials.seconds.min()
        except SpaceError:
            assert np.isinf(s.trials.seconds).all()
        assert seen == sorted(seen, reverse=True)
    assert len(s.trials) == min(trials, len(seconds))
    assert s.reason == ("trials" if trials <= len(seconds) else "exhausted")
    assert len(set(s.space.key(s.trials.points).tolist())) == len(s.trials)


@pytest.mark.parametrize("model", [None, f"{__name__}:Nearest"])
def test_the_same_seed_gives_the_same_trace(model: str | None) -> None:
    subject = load("softmax-128x1024")
    first, again, other = (study(subject, model=model, seed=n, batch=8) for n in (3, 3, 4))
    for s in (first, again, other):
        s.optimize(trials=48)
    assert first.trials.points == again.trials.points
    assert (first.trials.seconds == again.trials.seconds).all()
    assert first.trials.points != other.trials.points


def test_a_model_that_knows_something_helps() -> None:
    subject = load("matmul-256")
    best = {}
    for model in (None, f"{__name__}:Nearest"):
        found = [study(subject, model=model, seed=n, batch=8).optimize(trials=40).seconds for n in range(10)]
        best[model] = float(np.mean(found))
    assert best[f"{__name__}:Nearest"] < best[None]


def test_model_quality_is_watched() -> None:
    s = study(load("matmul-256"), model=f"{__name__}:Nearest", batch=16)
    s.optimize(trials=64)
    assert s.rounds[0].quality is None  # nothing had been learnt
    assert all(r.quality is not None and 0 <= r.quality.pairwise <= 1 for r in s.rounds[1:])


def test_an_interrupted_study_goes_on_where_it_was(tmp_path: Path) -> None:
    subject = load("softmax-128x1024")
    whole = study(
        subject, model=f"{__name__}:Nearest", seed=5, batch=8, store=RecordStore(tmp_path / "whole.jsonl"), cell="c"
    )
    whole.optimize(trials=40)

    class Stops(ReplayMeasurer):
        left = 19

        def measure(self, jobs):  # type: ignore[no-untyped-def]
            for outcome in super().measure(jobs):
                if not self.left:
                    raise KeyboardInterrupt
                self.left -= 1
                yield outcome

    part = RecordStore(tmp_path / "part.jsonl")
    options = {"model": f"{__name__}:Nearest", "seed": 5, "batch": 8, "store": part, "cell": "c"}
    with pytest.raises(KeyboardInterrupt):
        study(subject, measurer=Stops(subject), **options).optimize(trials=40)
    assert len(part) == 19
    resumed = study(subject, **options)
    resumed.optimize(trials=40)
    assert len(part) == 40
    assert resumed.trials.points == whole.trials.points
    stored = [
        {r.job: r.times for r in RecordStore(tmp_path / name).records()} for name in ("whole.jsonl", "part.jsonl")
    ]
    assert stored[0] == stored[1]


def test_the_ledger_adds_up() -> None:
    s = study(load("matmul-256"), model=f"{__name__}:Nearest", batch=16)
    s.optimize(trials=64)
    before, seconds, after = s.ledger.wall, s.ledger.seconds, s.ledger.wall
    assert before <= sum(seconds.values()) + 1e-9 and sum(seconds.values()) <= after + 1e-9
    assert min(seconds["propose"], seconds["predict"], seconds["fit"]) > 0


def test_the_ledger_takes_inner_phases_out_of_outer_ones() -> None:
    now = [0.0]
    ledger = Ledger(lambda: now[0])
    with ledger.phase("propose"):
        now[0] += 1
        with ledger.phase("predict"):
            now[0] += 2
        now[0] += 4
    with ledger.waiting({"build": 3.0, "run": 1.0}):
        now[0] += 8
    found = ledger.seconds
    assert (found["propose"], found["predict"], found["build"], found["run"]) == (5, 2, 3, 1)
    assert sum(found.values()) == ledger.wall == 15


def test_what_is_not_chosen_fits_the_subject() -> None:
    subject = load("softmax-128x1024")
    task = Task(parse_workload("matmul:m=16,n=16,k=16"), parse_target("x86-64-v3"))
    chosen = [Study(subject), Study(subject, model=f"{__name__}:Nearest"), Study(task, "template"),
              Study(task, "template", None)]  # fmt: skip
    names = [(None if s.model is None else s.model.name, s.strategy.name) for s in chosen]
    assert names == [(None, "bayesian"), ("nearest", "evolutionary"), ("gbt", "evolutionary"), (None, "evolutionary")]
    assert [s.strategy.expects_model for s in chosen] == [False, True, True, False]
    assert Study(subject, model="none").model is None


def test_evolution_goes_on_without_a_model() -> None:
    """It learns from what was measured: taking the model away does not leave random search."""
    subject = load("matmul-256")
    means = []
    for strategy in ("random", {"evolutionary": {"breadth": 0}}):
        runs = [Study(subject, model="none", strategy=strategy, seed=n, batch=8) for n in range(16)]
        for s in runs:
            s.optimize(trials=96)
        means.append(np.mean([subject.best / np.minimum.accumulate(s.trials.seconds)[16:] for s in runs]))
    assert means[1] > means[0] + 0.03


def test_what_is_refused() -> None:
    with pytest.raises(SpaceError, match="needs a budget"):
        study(table([1.0])).optimize()
    with pytest.raises(SpaceError, match="at least one trial"):
        study(table([1.0]), batch=0)
    with pytest.raises(ComponentError, match="unknown cost model 'xgb'"):
        study(table([1.0]), model="xgb")


def test_quality_of_predictions() -> None:
    times = np.array([4.0, 1.0, 3.0, math.inf, 2.0])
    perfect = judge(times, times)
    assert perfect is not None and (perfect.pairwise, perfect.recall, perfect.regret) == (1.0, 1.0, 0.0)
    upside_down = judge(-np.array([4.0, 1.0, 3.0, 5.0, 2.0]), times)
    assert upside_down is not None and upside_down.pairwise == 0.0 and upside_down.regret == math.inf
    blind = judge(np.zeros(5), times)
    assert blind is not None and blind.pairwise == 0.5 and blind.correlation == 0.0
    assert judge(np.zeros(2), np.array([1.0, math.inf])) is None


def test_told_by_hand() -> None:
    s = study(table([3.0, 1.0, 2.0]), batch=2)
    asked = s.ask()
    s.tell(asked, [Outcome(c.job.id, "ok", (float(n + 1),)) for n, c in enumerate(asked)])
    assert len(s.trials) == 2 and s.best_s == 1.0
    assert len(s.ask()) == 1 and not s.ask()


# --- strategies that repeat themselves --------------------------------------------------------------------------------


class Stuck(Strategy):
    """Proposes one and the same point, as often as it is asked for one, and more than that."""

    name = "stuck"

    def ask(self, count: int, score: Scorer | None = None) -> Points:
        return self.space.enumerate()[[0] * (count + 1)]


class Silent(Strategy):
    """Proposes nothing."""

    name = "silent"

    def ask(self, count: int, score: Scorer | None = None) -> Points:
        return Points.empty(self.space.width)


@pytest.mark.parametrize("strategy", ["Stuck", "Silent"])
@pytest.mark.parametrize("model", [None, f"{__name__}:Nearest"])
def test_what_a_strategy_does_not_come_up_with_is_drawn(strategy: str, model: str | None, tmp_path: Path) -> None:
    store = RecordStore(tmp_path / "records.jsonl")
    s = study(table([3.0, 1.0, 2.0, *range(4, 24)]), batch=4, model=model, store=store, cell="c")
    s.strategy = {"Stuck": Stuck, "Silent": Silent}[strategy](s.space, np.random.default_rng(0))
    s.optimize(trials=16)
    keys = s.space.key(s.trials.points).tolist()
    assert len(keys) == len(set(keys)) == len(store) == 16 and s.reason == "trials"
    assert [len(r.seconds) for r in s.rounds] == [4] * 4
    s.optimize(trials=40)
    assert len(s.trials) == len(set(s.space.key(s.trials.points).tolist())) == 23 and s.reason == "exhausted"


def test_no_program_twice_in_a_batch_that_was_asked_for_in_parts() -> None:
    """Two points that are one program, proposed in two asks for one batch."""

    class Twins(Strategy):
        name = "twins"

        def ask(self, count: int, score: Scorer | None = None) -> Points:
            return self.take(self.space.enumerate(), 1)

    class Halved(TableSubject):
        def candidate(self, point: Points, best_s: float | None) -> Candidate:
            found = super().candidate(point, best_s)
            return replace(found, digest=str(point.rows()[0][-1] // 2))

    s = study(Halved(table([1.0, 1.0, 2.0, 2.0, 3.0, 3.0])), batch=3)
    s.strategy = Twins(s.space, np.random.default_rng(0))
    asked = s.ask()
    assert sorted(c.digest for c in asked) == ["0", "1", "2"]
    s.tell(asked, s.measure(asked))
    assert len(s.strategy.seconds) == 5 and not s.ask()  # twins were told, too; the last point is one as well


# --- second looks -----------------------------------------------------------------------------------------------------


class Unsteady(Measurer[Job]):
    """Times that scatter and fall; counts what it is asked."""

    def __init__(self, seed: int) -> None:
        self.rng, self.asked = np.random.default_rng(seed), 0

    def measure(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        for job in jobs:
            self.asked += 1
            times = self.rng.uniform(1.0, 2.0, 3) / (100 + self.asked)
            yield Outcome(job.id, "ok", tuple(times.tolist()), number=1)


def test_second_looks_that_are_known_are_not_taken_again(tmp_path: Path) -> None:
    task = Task(parse_workload("matmul:m=32,n=32,k=32"), detect(1))

    def made(looks: Sequence[IncumbentLook], seed: int) -> tuple[Study, Unsteady]:
        measurer = Unsteady(seed)
        with RecordStore(tmp_path / "records.jsonl") as store:
            s = Study(task, "template", None, "random", measurer=measurer, store=store, cell="c", batch=8, looks=looks)
            s.optimize(trials=32)
        return s, measurer

    first, asked = made((), 0)
    looks = [look for r in first.rounds for look in r.looks]
    assert looks and asked.asked > 32
    again, nothing = made(looks, 1)
    assert nothing.asked == 0
    assert again.best_s == first.best_s and np.array_equal(again.trials.seconds, first.trials.seconds)


# --- the end ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("trials", "asked", "expected"), [(8, None, 3), (32, None, 6), (192, None, 10), (64, 2, 2)])
def test_the_final_race(trials: int, asked: int | None, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The best trials race, the incumbent among them; more of them after many trials; the winner leads."""
    raced: list[Points] = []

    def race(self: object, finalists: Sequence[Points], best_s: float, seconds: float, most: float) -> Finish:
        raced.extend(finalists)
        return Finish(len(finalists) - 1, 1e-6)

    monkeypatch.setattr(TaskSubject, "final", race)
    task = Task(parse_workload("matmul:m=32,n=32,k=32"), detect(1))
    s = Study(task, "template", None, "random", measurer=Unsteady(0), batch=32)
    s.optimize(trials=trials)
    leader, cut = int(s.space.key(s.best.point)[0]), np.sort(s.trials.seconds)[expected - 1]
    s.finish(asked)
    keys = [int(s.space.key(p)[0]) for p in raced]
    assert len(set(keys)) == len(keys) == expected and keys[0] == leader
    times = dict(zip(s.space.key(s.trials.points).tolist(), s.trials.seconds, strict=True))
    assert all(times[k] <= cut for k in keys[1:])
    assert (s.best.point == raced[-1]) and s.best_s == 1e-6
