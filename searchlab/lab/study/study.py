"""Study: a search on one subject: propose, measure, learn, until the budget is used.

    study = searchlab.Study(task, space="sketch", model="gbt", strategy="evolutionary", seed=0)
    study.optimize(trials=256)
    study.best.kernel(a, b)

The study owns what every strategy would otherwise have to get right by itself: the budget, deduplication of programs,
re-measurement of incumbents, seeds, records, and the time breakdown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Literal, Self, TypedDict, Unpack, get_args

import numpy as np

from searchlab.errors import SpaceError
from searchlab.lab.auto import AUTO
from searchlab.lab.records import Record, RecordStore, SearchPlace
from searchlab.lab.study import resolve
from searchlab.lab.study.best import Best
from searchlab.lab.study.finish import Finish
from searchlab.lab.study.incumbent import Incumbent, IncumbentLook
from searchlab.lab.study.ledger import WORK, Ledger
from searchlab.lab.study.loop import Round, search_loop
from searchlab.lab.study.quality import judge
from searchlab.lab.study.seeds import Seeds
from searchlab.lab.study.subject import Candidate, SpaceSubject
from searchlab.lab.study.subject import subject as subject_of
from searchlab.lab.study.trial_log import TrialLog
from searchlab.measure import Limits, Measurer, Outcome, Protocol
from searchlab.measure.confirm import confirm
from searchlab.measure.recorded.tables import Table
from searchlab.registry import Component
from searchlab.search import CostModel, History, Points, Scorer, SpaceGenerator, Task, Trials
from searchlab.search.build_time import THRIFT, Thrifty
from searchlab.search.knob import Floats
from searchlab.search.reach import Reach
from searchlab.search.returned import predicted, proposed
from searchlab.timing.protocol import Figure

_FINALISTS, _TRIALS_EACH = (3, 10), 10  # minimum and maximum in the final race; one more for this many trials
_TRIES = 8  # requests for new programs before the rest of a batch is drawn at random
_SEEDS = 8  # the most seeds of a space that are measured
_OLD = 4096  # consecutive draws of known programs after which a space counts as exhausted

Callback = Callable[["Study", Round], object]
Start = Literal["seeds", "random"]


class StudyOptions(TypedDict, total=False):
    """The options of a study as keywords; `StudySettings` documents them and has their defaults."""

    seed: int
    batch: int
    start: Start
    thrift: float
    measurer: Measurer[Any] | None
    protocol: Protocol | None
    limits: Limits | None
    figure: Figure | None
    confirm: bool
    history: Sequence[Trials]
    callbacks: Iterable[Callback]
    store: RecordStore | None
    cell: str
    looks: Iterable[IncumbentLook]
    ledger: Ledger | None


@dataclass(frozen=True, kw_only=True)
class StudySettings:
    """How a study searches.

    seed       starts a generator for every component
    batch      candidates that are proposed and measured together
    start      "seeds": the first candidates are what the space knows to be fast (`Space.seeds`), at most half a batch
               of them at a time; "random": the strategy begins with nothing
    thrift     how much faster a candidate with a long build must promise to be (see `search.build_time`); 0: no matter
    measurer   a local one unless given
    protocol   how candidates of a task are timed, and the `limits` of their phases
    figure     the figure that is minimised: the fastest repeat of a candidate, which is far steadier on shared
               machines, or the median, as in recorded tables
    confirm    whether a new best is re-measured beside the old one
    history    trials of other tasks, for models that transfer
    callbacks  are called with the study and every round
    store      keeps every measurement.  With a `cell`, a study that is created again with the same seed takes its
               earlier measurements from the store and resumes where it was; `looks` are the re-measurements of
               incumbents of that earlier run
    ledger     the time breakdown; the studies of a network share one
    """

    seed: int = 0
    batch: int = 16
    start: Start = "seeds"
    thrift: float = THRIFT
    measurer: Measurer[Any] | None = None
    protocol: Protocol | None = None
    limits: Limits | None = None
    figure: Figure | None = None
    confirm: bool = True
    history: Sequence[Trials] = ()
    callbacks: Iterable[Callback] = ()
    store: RecordStore | None = None
    cell: str = ""
    looks: Iterable[IncumbentLook] = ()
    ledger: Ledger | None = None

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise SpaceError(f"a batch holds at least one trial, not {self.batch}")
        if self.start not in get_args(Start):
            raise SpaceError(f"unknown start '{self.start}'; accepted: {', '.join(get_args(Start))}")
        if not self.thrift >= 0:
            raise SpaceError(f"thrift is 0 or more, not {self.thrift}")


class Study:
    """A search on one subject: a task on hardware, or a recorded table.

    space, model and strategy are names, {name: {options}}, "module:Class" or objects; `model` None means none, and
    "auto" the model and strategy that suit the subject.  Keywords are the fields of `StudySettings`, such as `seed`,
    `batch`, `measurer` and `store`.
    """

    def __init__(
        self,
        subject: Task | Table | SpaceSubject,
        space: Component | SpaceGenerator = "sketch",
        model: Component | CostModel | None = AUTO,
        strategy: Component = AUTO,
        **options: Unpack[StudyOptions],
    ) -> None:
        self.settings = given = StudySettings(**options)
        self.batch, self.callbacks = given.batch, list(given.callbacks)
        self.ledger = given.ledger or Ledger()
        self.seeds = Seeds(given.seed)
        self.subject = subject_of(subject, space, given.protocol, given.limits)
        self.space = self.subject.space
        self.model = resolve.model(model, self.subject, self.seeds)
        self.strategy = resolve.strategy(strategy, self.subject, self.model, self.seeds)
        self.figure: Figure = given.figure or self.subject.figure
        self.rounds: list[Round] = []
        self.reason = ""  # why the last `optimize` ended
        self._log = TrialLog(self.subject)
        look = self._look if given.confirm and self.subject.confirmed else None
        self._incumbent = Incumbent(self.subject, self._log, look, self._lowered, given.looks)
        self._reach = Reach(self.space, self.seeds.generator("reach"))
        self._measurer = given.measurer
        self._twins: dict[str, Points] = {}  # points with the same program as another point of the batch
        self._seeds: Points | None = None  # those of the space that have not been proposed, once they are known
        self._pending: dict[int, Candidate] = {}
        self._seen: set[int] = set()  # keys of all points proposed or told
        self._draws = self.seeds.generator("draws")
        self.others: tuple[Study, ...] = ()  # studies of other tasks, from whose trials the model learns as well
        self._fitted = 0
        self._final: Finish | None = None
        self._recorded = self._read_cell()

    # --- the loop -----------------------------------------------------------------------------------------------------

    def optimize(self, trials: int | None = None, seconds: float | None = None) -> Best:
        """Searches until the study has `trials` trials, `seconds` have passed, or the space is exhausted."""
        if trials is None and seconds is None:
            raise SpaceError("optimize needs a budget: trials=, seconds= or both")
        until = math.inf if seconds is None else self.ledger.wall + seconds
        self.reason = "trials"

        def left() -> int:
            count = self.batch if trials is None else trials - len(self.trials)
            if count > 0 and self.ledger.wall >= until:
                self.reason = "seconds"
                return 0
            return count

        if not search_loop(self, left):
            self.reason = "exhausted"
        return self.best

    def ask(self, count: int | None = None) -> list[Candidate]:
        """Candidates to measure next, all with new programs; fewer if the space is exhausted.

        The first batch is seeds alone, if the space has any, so that all others learn from them.  A strategy that
        proposes known programs is asked again a few times; the rest of the batch is drawn at random.
        """
        wanted = self.batch if count is None else count
        score = self._scorer()
        found = self._seeded(wanted, score)
        if found and not self.rounds:
            return found
        wish = self._thrifty(score)
        self.strategy.space = self._reach.space(len(self.rounds))
        for _ in range(_TRIES):
            with self.ledger.phase("propose"):
                points = proposed(self.strategy, self.strategy.ask(wanted - len(found), wish), wanted - len(found))
            if not len(points):
                break
            found += self._new(points, score)
            if len(found) >= wanted:
                break
        return found + self._drawn(wanted - len(found), score)

    def measure(self, candidates: Sequence[Candidate]) -> list[Outcome]:
        """The outcomes of candidates, in their order; each is stored as soon as it is known."""
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
        """Updates the strategy, the model and the incumbent with a measured batch."""
        if not candidates:
            raise SpaceError("a batch that is told holds at least one candidate")
        points = Points.concat([c.point for c in candidates])
        seconds = np.array([o.figure(self.figure) for o in outcomes])
        for c in candidates:
            self._pending.pop(c.key, None)
            self._seen.add(c.key)
        self._log.add(candidates, points, seconds)
        with self.ledger.phase("propose"):
            self.strategy.tell(points, seconds)
            for c, s in zip(candidates, seconds.tolist(), strict=True):
                if (twins := self._twins.pop(c.digest, None)) is not None:
                    self.strategy.tell(twins, np.full(len(twins), s))
        self._incumbent.update()
        guesses = np.array([c.predicted for c in candidates if c.predicted is not None])
        quality = judge(guesses, seconds) if len(guesses) == len(seconds) else None
        looks = self._incumbent.looks()
        done = Round(len(self.rounds), points, seconds, self.best_s, len(self.trials), quality, looks)
        self.rounds.append(done)
        for callback in self.callbacks:
            callback(self, done)
        return done

    # --- results ------------------------------------------------------------------------------------------------------

    @property
    def studies(self) -> tuple[Study, ...]:
        """The study itself; a joint study has several."""
        return (self,)

    @property
    def trials(self) -> Trials:
        """All trials, with the times that count."""
        return self._log.trials

    @property
    def best_s(self) -> float:
        """The time of the incumbent; infinite if nothing has worked."""
        return self._incumbent.seconds

    @property
    def incumbent(self) -> Best:
        """The best of the search: its point, program and kernel."""
        if (point := self._incumbent.point) is None:
            raise SpaceError(f"{self.subject.name}: none of {len(self.trials)} candidates worked")
        return Best(self.subject, point, self._incumbent.seconds)

    @property
    def best(self) -> Best:
        """What to take home: the incumbent, or the default schedule where it won the final race (`finish`)."""
        found, final = self.incumbent, self._final
        if final is None or final.origin == "search" or found.seconds < final.taken_s:
            return found
        return replace(found, seconds=final.taken_s, origin=final.origin)

    def finish(self, finalists: int | None = None, seconds: float = 1.0, most: float = 2.5) -> Finish:
        """Races the best few, confirmed or not; the winner takes the lead, and meets the default and the libraries.

        A default schedule that beats the winner becomes the `best` of the study, never its `incumbent`.

        Each of the two races takes `seconds`, and up to `most` while its times are not steady.  By default there are
        three `finalists`, and more after many trials: the more trials, the more lucky measurements among the fastest.
        A recorded table returns the noise-free time of its incumbent instead.
        """
        best = self.incumbent
        if finalists is None:
            finalists = min(_FINALISTS[0] + len(self.trials) // _TRIALS_EACH, _FINALISTS[1])
        self.close()  # the race needs the cores of the study's measurer
        points = self._fastest(best.point, finalists)
        with self.ledger.phase("finish"):
            found = self.subject.final(points, best.seconds, seconds, most)
        self._incumbent.put(points[found.winner], found.seconds)
        self._final = found
        return found

    def fastest(self, count: int) -> list[Points]:
        """The incumbent followed by the fastest other trials, at most `count` in total."""
        return self._fastest(self.incumbent.point, count)

    def _fastest(self, leader: Points, count: int) -> list[Points]:
        seconds, key = self.trials.seconds, int(self.space.key(leader)[0])
        order = np.argsort(seconds, kind="stable")[:count]
        others = [self.trials.points[int(n)] for n in order if math.isfinite(seconds[n])]
        return [leader, *(p for p in others if int(self.space.key(p)[0]) != key)][:count]

    @property
    def measurer(self) -> Measurer[Any]:
        """The measurer; a local one is started when it is first needed."""
        if self._measurer is None:
            self._measurer = self.subject.measurer()
        return self._measurer

    def close(self) -> None:
        """Closes the measurer if the study started it."""
        if self.settings.measurer is None and self._measurer is not None:
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
        """The model bound to the space, updated with new trials; None while there is nothing to learn from."""
        model = self.model
        if model is None:
            return None
        history = [*self.settings.history, *(other.trials for other in self.others)]
        total = len(self.trials) + sum(len(t) for t in history)
        if total > self._fitted:
            with self.ledger.phase("fit"):
                model.fit(History.of([*history, self.trials]))
            self._fitted = total
        if not model.ready:
            return None

        def score(points: Points) -> Floats:
            with self.ledger.phase("predict"):
                return predicted(model, model.predict(self.space, points), len(points))

        return score

    def _seeded(self, wanted: int, score: Scorer | None) -> list[Candidate]:
        """The next seeds of the space, at most half of what is wanted."""
        if self.settings.start != "seeds":
            return []
        if self._seeds is None:
            with self.ledger.phase("propose"):
                self._seeds = self.space.seeds[:_SEEDS]
        count = max(1, wanted // 2)
        now, self._seeds = self._seeds[:count], self._seeds[count:]
        return [replace(c, seed=True) for c in self._new(now, score)] if len(now) else []

    def _thrifty(self, score: Scorer | None) -> Scorer | None:
        """The scores that a strategy goes by, which take build times into account."""
        if score is None or not self.settings.thrift or not self.subject.builds:
            return score
        return Thrifty(self.space, score, self.settings.thrift)

    def _new(self, points: Points, score: Scorer | None) -> list[Candidate]:
        """Candidates for the points whose programs are new; they are pending from now on.

        For the other points, the strategy is told the times of their programs as soon as these are known.
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
                if (known := self._log.of_program(c.digest)) is not None:
                    self.strategy.tell(point, np.array([known]))
                elif c.digest in digests:
                    self._twins[c.digest] = Points.concat([self._twins.get(c.digest, point[:0]), point])
                else:
                    digests.add(c.digest)
                    c = c if predicted is None else replace(c, predicted=float(predicted[n]))
                    self._pending[key] = c
                    found.append(c)
        return found

    def _drawn(self, count: int, score: Scorer | None) -> list[Candidate]:
        """Random candidates from points not yet proposed; fewer if the space is exhausted."""
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

    def _look(self, rival: Candidate, leader: Candidate) -> IncumbentLook:
        """Measures both, interleaved."""
        with self.ledger.phase("confirm"):
            seen = confirm(self.measurer, rival.job, leader.job)
        return IncumbentLook(rival.key, leader.key, seen.confirmed, seen.seconds, seen.incumbent_seconds)

    def _lowered(self, candidate: Candidate, seconds: float) -> None:
        self.strategy.tell(candidate.point, np.array([seconds]))

    def _store(self, candidate: Candidate, outcome: Outcome) -> None:
        if (store := self.settings.store) is None:
            return
        place = SearchPlace(len(self.rounds), candidate.predicted, candidate.seed)
        with self.ledger.phase("record"):
            store.append(self.subject.record(candidate, outcome, self.settings.cell, place))

    def _read_cell(self) -> dict[str, Record]:
        """The records of this study before it was interrupted, by job."""
        store, cell = self.settings.store, self.settings.cell
        if store is None or not cell:
            return {}
        return {r.job: r for r in store.records(self.subject.name) if r.cell == cell}
