"""Study: the one loop of searchlab: propose, measure, learn, until the budget is used.

    study = searchlab.Study(task, space="sketch", model="gbt", strategy="evolutionary", seed=0)
    study.optimize(trials=256)
    study.best.kernel(a, b)

The study owns what every strategy would otherwise have to get right by itself: the budget, no program measured twice,
the confirmation of what looks best, seeds, records, and where the time went.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np

from searchlab.errors import SpaceError
from searchlab.lab.auto import AUTO
from searchlab.lab.records import Record, RecordStore
from searchlab.lab.study import resolve
from searchlab.lab.study.best import Best
from searchlab.lab.study.finish import Finish, final_race
from searchlab.lab.study.ledger import WORK, Ledger
from searchlab.lab.study.quality import Quality, judge
from searchlab.lab.study.seeds import Seeds
from searchlab.lab.study.subject import Candidate, Subject, TaskSubject
from searchlab.measure import Limits, Measurer, Outcome, Protocol
from searchlab.measure.recorded.tables import Table
from searchlab.registry import Component
from searchlab.search import CostModel, History, Points, Scorer, SpaceGenerator, Task, Trials
from searchlab.search.knob import Floats
from searchlab.search.reach import Reach
from searchlab.search.returned import predicted, proposed

_FINALISTS, _TRIALS_EACH = (3, 8), 64  # at least and at most in the race at the end; one more for so many trials
_LOOKS = 2  # second looks at would-be incumbents after a batch
_TRIES = 8  # asks for programs that are new, before the rest of a batch is drawn at random
_OLD = 4096  # points drawn in a row whose programs are all known, after which a space counts as exhausted


@dataclass(frozen=True)
class IncumbentLook:
    """A second look at a would-be incumbent beside the old one: keys of both, who won, and their times in it."""

    rival: int
    leader: int
    confirmed: bool
    rival_s: float
    leader_s: float


@dataclass(frozen=True)
class Round:
    """What one batch gave: its points and times, second looks, the best so far, and how well the model had known."""

    number: int
    points: Points
    seconds: Floats
    best_s: float
    trials: int
    quality: Quality | None = None
    looks: tuple[IncumbentLook, ...] = ()
    part: int | None = None  # of a network: which of its tasks


Figure = Literal["fastest", "median"]
Callback = Callable[["Study", Round], object]


class Study:
    """A search on one subject: a task on hardware, or a recorded table.

    space, model and strategy are names, {name: {options}}, "module:Class" or objects; `model` None means none, and
    "auto" the model and strategy that suit the subject.
    `measurer` is a local one unless given; `store` keeps every measurement; `history` holds trials of other tasks for
    models that transfer.  `figure` is what is minimised: the fastest repeat of a candidate, which on shared machines is
    far steadier, or the median, as recorded tables have it.  With a `store` and a `cell`, a study that is made anew
    with the same seed takes its own earlier measurements from the store and goes on where it was; `looks` are the
    second looks that it took then.  Studies that take turns share a `ledger`.
    """

    def __init__(
        self,
        subject: Task | Table | Subject,
        space: Component | SpaceGenerator = "sketch",
        model: Component | CostModel | None = AUTO,
        strategy: Component = AUTO,
        *,
        measurer: Measurer[Any] | None = None,
        seed: int = 0,
        batch: int = 16,
        protocol: Protocol | None = None,
        limits: Limits | None = None,
        store: RecordStore | None = None,
        cell: str = "",
        history: Sequence[Trials] = (),
        confirm: bool = True,
        figure: Figure | None = None,
        looks: Iterable[IncumbentLook] = (),
        ledger: Ledger | None = None,
        callbacks: Iterable[Callback] = (),
    ) -> None:
        if batch < 1:
            raise SpaceError(f"a batch holds at least one trial, not {batch}")
        self.ledger = ledger or Ledger()
        self.seeds = Seeds(seed)
        self.subject = resolve.subject(subject, space, protocol, limits)
        self.space = self.subject.space
        self.model = resolve.model(model, self.subject, self.seeds)
        self.strategy = resolve.strategy(strategy, self.subject, self.model, self.seeds)
        self._reach = Reach(self.space, self.seeds.generator("reach"))
        self.batch, self.store, self.cell = batch, store, cell
        self.trials = Trials(self.subject.name, self.space, Points.empty(self.space.width), np.empty(0))
        self.history = tuple(history)
        self.rounds: list[Round] = []
        self.callbacks = list(callbacks)
        self.confirming = confirm
        self.figure: Figure = figure or ("fastest" if isinstance(self.subject, TaskSubject) else "median")
        self.reason = ""  # why the last `optimize` ended
        self._measurer, self._own_measurer = measurer, measurer is None
        self._by_program: dict[str, float] = {}
        self._twins: dict[str, Points] = {}  # points whose program another one of the batch has
        self._pending: dict[int, Candidate] = {}
        self._seen: set[int] = set()  # keys of all points proposed or told
        self._draws = self.seeds.generator("draws")
        self._leader: tuple[Candidate, float] | None = None
        self._beaten: set[int] = set()  # keys of those that lost against the incumbent in a second look
        self._fitted = 0
        self._recorded = self._read_cell()
        self._looked = list(looks)
        self._looks: list[IncumbentLook] = []  # since the last round

    # --- the loop -----------------------------------------------------------------------------------------------------

    def optimize(self, trials: int | None = None, seconds: float | None = None) -> Best:
        """Measures until so many trials of this study are done, or so many seconds have passed, or nothing is left."""
        if trials is None and seconds is None:
            raise SpaceError("optimize needs a budget: trials=, seconds= or both")
        until = math.inf if seconds is None else self.ledger.wall + seconds
        while True:
            left = self.batch if trials is None else min(self.batch, trials - len(self.trials))
            if left <= 0 or self.ledger.wall >= until:
                self.reason = "trials" if left <= 0 else "seconds"
                break
            candidates = self.ask(left)
            if not candidates:
                self.reason = "exhausted"
                break
            self.tell(candidates, self.measure(candidates))
        return self.best

    def ask(self, count: int | None = None) -> list[Candidate]:
        """Candidates to measure next: none twice, none whose program was measured; fewer when the space is exhausted.

        A strategy that proposes what is known is asked again, a few times; what is missing then is drawn at random.
        """
        wanted = self.batch if count is None else count
        score = self._scorer()
        self.strategy.space = self._reach.space(len(self.rounds))
        found: list[Candidate] = []
        for _ in range(_TRIES):
            with self.ledger.phase("propose"):
                points = proposed(self.strategy, self.strategy.ask(wanted - len(found), score), wanted - len(found))
            if not len(points):
                break
            found += self._new(points, score)
            if len(found) >= wanted:
                break
        return found + self._drawn(wanted - len(found), score)

    def measure(self, candidates: Sequence[Candidate]) -> list[Outcome]:
        """What measuring the candidates gave, in their order; each is stored as soon as it is known."""
        found: dict[str, Outcome] = {}
        asked = {c.job.id: c for c in candidates}
        for c in candidates:
            if (record := self._recorded.get(c.job.id)) is not None:
                found[c.job.id] = record.outcome(c.job.id)
        missing = [c.job for c in candidates if c.job.id not in found]
        work = dict.fromkeys(WORK, 0.0)
        with self.ledger.waiting(work):
            for outcome in self.measurer.measure(missing) if missing else ():
                for name in WORK:
                    work[name] += getattr(outcome, f"{name}_s")
                found[outcome.id] = outcome
                self._store(asked[outcome.id], outcome)
        return [found[c.job.id] for c in candidates]

    def tell(self, candidates: Sequence[Candidate], outcomes: Sequence[Outcome]) -> Round:
        """Learns from a measured batch: the strategy, the model, and what is best."""
        if not candidates:
            raise SpaceError("a batch that is told holds at least one candidate")
        points = Points.concat([c.point for c in candidates])
        seconds = np.array([o.fastest if self.figure == "fastest" else o.seconds for o in outcomes])
        for c, s in zip(candidates, seconds.tolist(), strict=True):
            self._pending.pop(c.key, None)
            self._seen.add(c.key)
            self._by_program[c.digest] = s
        self.trials = self.trials.extended(points, seconds)
        with self.ledger.phase("propose"):
            self.strategy.tell(points, seconds)
            for c, s in zip(candidates, seconds.tolist(), strict=True):
                if (twins := self._twins.pop(c.digest, None)) is not None:
                    self.strategy.tell(twins, np.full(len(twins), s))
        self._lead()
        guesses = [c.predicted for c in candidates]
        known = np.array([g for g in guesses if g is not None])
        quality = judge(known, seconds) if len(known) == len(seconds) else None
        looks, self._looks = tuple(self._looks), []
        done = Round(len(self.rounds), points, seconds, self.best_s, len(self.trials), quality, looks)
        self.rounds.append(done)
        for callback in self.callbacks:
            callback(self, done)
        return done

    # --- results ------------------------------------------------------------------------------------------------------

    @property
    def best_s(self) -> float:
        """The time of the incumbent, infinite if nothing has worked."""
        return math.inf if self._leader is None else self._leader[1]

    @property
    def best(self) -> Best:
        """The incumbent: its point, program and kernel."""
        if self._leader is None:
            raise SpaceError(f"{self.subject.name}: none of {len(self.trials)} candidates worked")
        candidate, seconds = self._leader
        return Best(self.subject, candidate.point, seconds)

    def finish(self, finalists: int | None = None, seconds: float = 1.0, most: float = 2.5) -> Finish:
        """Times the best few, confirmed or not, beside the default schedule and the libraries; the winner leads.

        The race takes `seconds`, and up to `most` while its times are not steady.  There are three `finalists` unless
        told otherwise, and more after many trials: the more trials, the more of them were only lucky.
        """
        best = self.best
        if finalists is None:
            finalists = min(_FINALISTS[0] + len(self.trials) // _TRIALS_EACH, _FINALISTS[1])
        if not isinstance(self.subject, TaskSubject):
            return Finish(0, best.seconds)
        if self._own_measurer:
            self.close()  # its cores are needed
        order = np.argsort(self.trials.seconds, kind="stable")[:finalists]
        others = [self.trials.points[int(n)] for n in order if math.isfinite(self.trials.seconds[n])]
        leader = int(self.space.key(best.point)[0])
        points = [best.point, *(p for p in others if int(self.space.key(p)[0]) != leader)]
        with self.ledger.phase("finish"):
            found = final_race(self.subject, points[:finalists], seconds, most)
        self._leader = (self.subject.candidate(points[found.winner], None), found.seconds)
        return found

    @property
    def measurer(self) -> Measurer[Any]:
        """What measures; a local one is started when it is first needed."""
        if self._measurer is None:
            self._measurer = resolve.measurer(self.subject)
        return self._measurer

    def close(self) -> None:
        """Ends the measurer that the study started."""
        if self._own_measurer and self._measurer is not None:
            self._measurer.close()
            self._measurer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- inside -------------------------------------------------------------------------------------------------------

    def _scorer(self) -> Scorer | None:
        """The model bound to the space, after it has learnt from what is new; None while there is nothing to learn."""
        model = self.model
        if model is None:
            return None
        total = len(self.trials) + sum(len(t) for t in self.history)
        if total > self._fitted:
            with self.ledger.phase("fit"):
                model.fit(History.of([*self.history, self.trials]))
            self._fitted = total
        if not model.ready:
            return None

        def score(points: Points) -> Floats:
            with self.ledger.phase("predict"):
                return predicted(model, model.predict(self.space, points), len(points))

        return score

    def _new(self, points: Points, score: Scorer | None) -> list[Candidate]:
        """Candidates of points whose programs are new, which are pending from now on.

        The strategy is told what the programs of the others took, as soon as it is known.
        """
        predicted = score(points) if score is not None else None
        with self.ledger.phase("programs"):
            best = self.best_s
            found: list[Candidate] = []
            digests = {c.digest for c in self._pending.values()}
            for n, (point, key) in enumerate(zip(points, self.space.key(points).tolist(), strict=True)):
                if key in self._pending:
                    continue
                self._seen.add(key)
                c = self.subject.candidate(point, best)
                if c.digest in self._by_program:
                    self.strategy.tell(point, np.array([self._by_program[c.digest]]))
                elif c.digest in digests:
                    self._twins[c.digest] = Points.concat([self._twins.get(c.digest, point[:0]), point])
                else:
                    digests.add(c.digest)
                    c = c if predicted is None else replace(c, predicted=float(predicted[n]))
                    self._pending[key] = c
                    found.append(c)
        return found

    def _drawn(self, count: int, score: Scorer | None) -> list[Candidate]:
        """Candidates at random of points that nobody has proposed; fewer when the space is exhausted."""
        found: list[Candidate] = []
        old = 0
        while len(found) < count and old < _OLD:
            with self.ledger.phase("propose"):
                points = self.space.sample_new(count - len(found), self._draws, self._seen).points
            if not len(points):
                break
            new = self._new(points, score)
            old = 0 if new else old + len(points)
            found += new
        return found

    def _lead(self) -> None:
        """The fastest trial becomes the incumbent if it holds in a second look beside the old one.

        In that look both are measured in turns, in the same moments of the machine, and decided by them alone: a first
        impression may be from a slow moment.
        """
        for _ in range(_LOOKS):
            rival = self._rival()
            if rival is None:
                return
            held = self._leader is None or not self.confirming or not isinstance(self.subject, TaskSubject)
            if held or self._second_look(rival):
                self._leader = (rival, self._label(rival))
                self._beaten.clear()
            if held:
                return

    def _rival(self) -> Candidate | None:
        """The fastest trial that is faster than the incumbent and has not lost against it."""
        seconds = self.trials.seconds
        for row in np.argsort(seconds, kind="stable").tolist():
            if seconds[row] >= self.best_s or not math.isfinite(seconds[row]):
                return None
            point = self.trials.points[row]
            key = int(self.space.key(point)[0])
            if key not in self._beaten and (self._leader is None or key != self._leader[0].key):
                return self.subject.candidate(point, None)
        return None

    def _second_look(self, rival: Candidate) -> bool:
        assert self._leader is not None
        leader = self._leader[0]
        pair = (rival.key, leader.key)
        look = next((known for known in self._looked if (known.rival, known.leader) == pair), None)
        if look is not None:
            self._looked.remove(look)
        else:
            look = self._look(rival, leader)
        self._looks.append(look)
        if not look.confirmed:
            self._beaten.add(rival.key)
        for candidate, seconds in ((rival, look.rival_s), (leader, look.leader_s)):
            if math.isfinite(seconds):
                self._relabel(candidate, seconds)
        self._leader = (leader, self._label(leader))
        return look.confirmed

    def _look(self, rival: Candidate, leader: Candidate) -> IncumbentLook:
        from searchlab.measure.confirm import confirm

        with self.ledger.phase("confirm"):
            seen = confirm(self.measurer, rival.job, leader.job)
        return IncumbentLook(rival.key, leader.key, seen.confirmed, seen.seconds, seen.incumbent_seconds)

    def _label(self, candidate: Candidate) -> float:
        return self._by_program[candidate.digest]

    def _relabel(self, candidate: Candidate, seconds: float) -> None:
        """A faster time than before counts, for the model and for the strategy; a slower one is a slow moment's."""
        if seconds >= self._label(candidate):
            return
        self._by_program[candidate.digest] = seconds
        rows = self.space.key(self.trials.points) == candidate.key
        self.trials = replace(self.trials, seconds=np.where(rows, seconds, self.trials.seconds))
        self.strategy.tell(candidate.point, np.array([seconds]))

    def _store(self, candidate: Candidate, outcome: Outcome) -> None:
        if self.store is None:
            return
        notes = {"round": str(len(self.rounds))}
        if candidate.predicted is not None:
            notes["predicted"] = repr(candidate.predicted)
        with self.ledger.phase("record"):
            self.store.append(self.subject.record(candidate, outcome, self.cell, notes))

    def _read_cell(self) -> dict[str, Record]:
        """What this study measured before it was interrupted, by job."""
        if self.store is None or not self.cell:
            return {}
        return {r.job: r for r in self.store.records(self.subject.name) if r.cell == self.cell}
