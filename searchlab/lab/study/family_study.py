"""FamilyStudy: a family is searched at a few sizes, and what is found there becomes programs for every size.

The studies of the sizes share one budget, as those of a network do.  The best few of each are then transferred to the
run-time size and measured at all of the sizes, and of these programs a table is made: the smallest set that is as fast
as all of them together, with the intervals of sizes in which each is run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from searchlab.bench import DEFAULT, Steady, prepare_program
from searchlab.defaults import default_schedule
from searchlab.errors import SpaceError
from searchlab.ir.program import Program
from searchlab.lab.study.finish import Finish
from searchlab.lab.study.joint import JointStudy
from searchlab.lab.study.scheduler import Policy
from searchlab.lab.study.size_dispatch import AnySizeProgram, FamilyTable, SizeTimes
from searchlab.lab.study.study import Study
from searchlab.lab.study.subject import TaskSubject
from searchlab.lab.study.table_choice import AnySizeRival, TableChoice, choose_table
from searchlab.measure import Job
from searchlab.runtime.memory import placed
from searchlab.search.any_size import AnySize
from searchlab.timing.race import race
from searchlab.workloads import Family

_EACH, _TRIALS_EACH = 3, 16  # of a size that are transferred at most; one more for this many trials
_ROUNDS, _STEADY = 5, 0.03  # minimum number of rounds of the race; noise above which it continues


class FamilyStudy(JointStudy):
    """The studies of a family's representative sizes, in their order.

    A space none of whose structures can be used for every size is refused at once.
    """

    def __init__(
        self,
        family: Family,
        studies: Sequence[Study],
        scheduler: Policy = "gradient",
        seed: int = 0,
        share_model: bool = False,
    ) -> None:
        weights = [weight for _, weight in family.representatives]
        super().__init__(studies, weights, scheduler, seed=seed, share_model=share_model)
        self.family = family
        self._any = [AnySize(study.space, family.workload.program) for study in studies]
        for any_size in self._any:
            any_size.require()
        self._chosen: TableChoice | None = None
        self._table: FamilyTable | None = None

    # --- results ------------------------------------------------------------------------------------------------------

    @property
    def table(self) -> FamilyTable:
        """The programs to take home, and which is run for which sizes; known after `finish`."""
        if self._table is None:
            raise SpaceError(f"{self.family.label}: there is no table yet; finish() makes it")
        return self._table

    @property
    def programs(self) -> tuple[Program, ...]:
        """The scheduled programs of the table, in its order."""
        assert self._chosen is not None
        return self._chosen.programs

    def finish(self, seconds: float = 1.0, most: float = 2.5) -> Finish:
        """Races what was found at each size, then the table with it; the time is the mean time of a call."""
        chosen = self.compare()
        found = super().finish(seconds, most)
        with self.ledger.phase("finish"):
            times = [self._raced(n, chosen, seconds, most) for n in range(len(self.studies))]
        self._table = FamilyTable(self.family.size, chosen.origins, chosen.ranges, tuple(times), chosen.refused)
        others = {**found.baselines, DEFAULT: self._table.default_s}  # a default for each size is not to be had
        return replace(found, seconds=self._table.seconds, baselines=others, table=self._table)

    # --- programs for every size --------------------------------------------------------------------------------------

    def compare(self) -> TableChoice:
        """Measures the best few of every size at all sizes and chooses the programs of the table; done once."""
        if self._chosen is None:
            self._chosen = choose_table(self.family, *self._rivals(), self._outcomes)
        return self._chosen

    def _rivals(self) -> tuple[tuple[AnySizeRival, ...], list[str]]:
        """The default schedule and the best few of every size, as programs for any size, each once."""
        default = default_schedule(self.family.workload.program, self._subject(0).task.target)
        found = {default.hash: AnySizeRival(AnySizeProgram(0, "default schedule", hash=default.hash), default)}
        refused: list[str] = []
        for (size, _), study, any_size in zip(self.family.representatives, self.studies, self._any, strict=True):
            for point in study.fastest(min(_EACH, 1 + len(study.trials) // _TRIALS_EACH)):
                try:
                    program = any_size.program(point)
                except SpaceError as e:
                    refused.append(f"{self.family.size}={size}: {e}")
                    continue
                origin = AnySizeProgram(size, study.space.text(point), study.space.choice(point), program.hash)
                found.setdefault(program.hash, AnySizeRival(origin, program))
        return tuple(found.values()), refused

    def _outcomes(self, programs: Sequence[Program], size: int) -> list[tuple[float, str]]:
        """The time of each program at a size, and the error of those that have none."""
        sizes = [known for known, _ in self.family.representatives]
        study = self.studies[sizes.index(size) if size in sizes else 0]
        subject = _task_subject(study)
        workload = self.family.at(size)
        jobs = [
            Job(
                f"{program.hash}:{size}",
                workload,
                subject.task.target,
                program,
                seed=subject.seed,
                limits=subject.limits,
                protocol=subject.protocol,
                best_s=study.best_s,
            )
            for program in programs
        ]
        with self.ledger.phase("finish"):
            found = {o.id: o for o in study.measurer.measure(jobs)}
        return [(found[job.id].figure(study.figure), found[job.id].error) for job in jobs]

    # --- the race -----------------------------------------------------------------------------------------------------

    def _raced(self, part: int, chosen: TableChoice, seconds: float, most: float) -> SizeTimes:
        """The table at one size beside what was found at this size alone, and the default schedule for any size."""
        size, weight = self.family.representatives[part]
        study, subject, number = self.studies[part], self._subject(part), chosen.per_size[part]
        if not subject.raced:
            return SizeTimes(size, weight, chosen.times[number, part], study.best_s, chosen.times[0, part])
        workload, target = self.family.at(size), subject.task.target
        inputs = {name: placed(x) for name, x in workload.inputs().items()}
        entrants = {"table": chosen.rivals[number].program, "alone": study.best.program}
        entrants["default"] = chosen.rivals[0].program
        runs = {name: prepare_program(program, workload, inputs, target)[0] for name, program in entrants.items()}
        found = race(runs, seconds, _ROUNDS, target.threads, Steady(_STEADY, most))
        return SizeTimes(size, weight, *(found[name].min for name in ("table", "alone", "default")))

    def _subject(self, part: int) -> TaskSubject:
        return _task_subject(self.studies[part])


def _task_subject(study: Study) -> TaskSubject:
    if not isinstance(study.subject, TaskSubject):
        raise SpaceError(f"{study.subject.name}: a family is made of workloads, not of tables")
    return study.subject
