"""Validation of entries: a sample of their best candidates is measured again, or looked up again."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from searchlab.errors import ResultError, SearchLabError
from searchlab.lab.export.finding import chosen
from searchlab.lab.folder.folder import Folder
from searchlab.lab.folder.found import Found
from searchlab.lab.run.runoff.runoff import results
from searchlab.measure import Job, Limits, LocalMeasurer, Measurer, Protocol
from searchlab.measure.confirm import JobTurns
from searchlab.measure.recorded.tables import load
from searchlab.timing.protocol import figure_of

HOLDS, FASTER, SLOWER, FAILED, UNCHECKED = "holds", "faster", "slower", "failed", "not checked"
ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Validation:
    """One claim and its verdict; `ratio` is the new time over the claimed one, from `low` to `high` over rounds."""

    entry: str
    task: str
    seed: int
    cell: str
    claimed_s: float
    seconds: float | None
    ratio: float | None
    low: float | None
    high: float | None
    verdict: str
    why: str = ""

    @property
    def good(self) -> bool:
        """Whether the claim held."""
        return self.verdict in (HOLDS, FASTER)


def validate(
    folder: str | os.PathLike[str],
    rng: np.random.Generator,
    *,
    sample: int = 5,
    entry: str | None = None,
    band: float = 0.02,
    rounds: int = ROUNDS,
    measurer: Callable[[], Measurer[Job]] | None = None,
) -> tuple[Validation, ...]:
    """Re-measures the best candidates of `sample` cells, drawn at random from those that found one.

    A claim holds if the new times reach it, or come within the tie band of it, in any round.
    """
    place = Folder(Path(folder))
    claims = sampled(list(_claims(place, entry)), sample, rng)
    if not claims:
        raise ResultError(f"{place.path}: no finished cell has found a program that could be checked")
    recorded = {_key(f): _looked_up(f, band) for f in claims if f.cell.recorded}
    measured = _measured([f for f in claims if not f.cell.recorded], band, rounds, rng, measurer)
    return tuple((recorded | measured)[_key(f)] for f in claims)


def _key(claim: Found) -> str:
    """The identity of a claim; the tasks of a network share a cell."""
    return f"{claim.cell.id} {claim.task}"


def sampled(claims: Sequence[Found], count: int, rng: np.random.Generator) -> list[Found]:
    """A sample of the claims, in their order; it covers as many entries as possible, then as many tasks."""
    order = [claims[n] for n in rng.permutation(len(claims))]
    kept: list[Found] = []
    for key in (lambda f: f.entry, lambda f: (f.entry, f.task), _key):
        seen = {key(f) for f in kept}
        for f in order:
            if len(kept) < count and key(f) not in seen:
                seen.add(key(f))
                kept.append(f)
    return sorted(kept, key=claims.index)


def _claims(place: Folder, entry: str | None) -> Iterator[Found]:
    for whole in chosen(results(place).values(), None, entry):
        for result in whole.searches:
            claim = Found.best(result, place)
            if claim is not None and claim.confirmed:
                yield claim


# --- recorded tables --------------------------------------------------------------------------------------------------


def _looked_up(claim: Found, band: float) -> Validation:
    try:
        table = load(claim.cell.table or claim.task)
        seconds = float(table.seconds[table.space.row(table.space.chosen(claim.choice))[0]])
    except (SearchLabError, OSError, LookupError) as e:
        return _check(claim, UNCHECKED, why=str(e))
    if not np.isfinite(seconds):
        return _check(claim, FAILED, why="it fails according to the table")
    return _judged(claim, [seconds], band)


# --- hardware ---------------------------------------------------------------------------------------------------------


def _measured(
    claims: Sequence[Found],
    band: float,
    rounds: int,
    rng: np.random.Generator,
    make: Callable[[], Measurer[Job]] | None,
) -> dict[str, Validation]:
    """Every candidate once in every round, each round in another order; the fastest repeat counts."""
    found: dict[str, Validation] = {}
    jobs: dict[str, Job] = {}
    for claim in claims:
        made = _job(claim)
        if isinstance(made, Job):
            jobs[_key(claim)] = made
        else:
            found[_key(claim)] = made
    if not jobs:
        return found

    def shuffled(names: Sequence[str], number: int) -> list[str]:
        return [names[n] for n in rng.permutation(len(names)).tolist()]

    with (make or LocalMeasurer)() as measurer:
        race = JobTurns(measurer, jobs)
        turns = race.take(lambda turns: turns.count < rounds, shuffled)
    for claim in claims:
        if (id := _key(claim)) in race.failed:
            failure = race.failed[id]
            found[id] = _check(claim, FAILED, why=f"{failure.status}: {failure.error}")
        elif id in jobs:
            found[id] = _judged(claim, [figure_of(times, "fastest") for times in turns.samples[id]], band)
    return found


def _job(claim: Found) -> Job | Validation:
    """The job that repeats the original measurement, with its result checked; or the reason why there is none."""
    try:
        program, record = claim.program, claim.record
        if record is not None and record.target != claim.target.fingerprint():
            return _check(claim, UNCHECKED, why=f"it was measured on another machine ({record.cpu})")
        protocol = _read(Protocol(), {} if record is None else record.protocol)
        limits = _read(Limits(), {} if record is None else record.limits)
    except SearchLabError as e:
        return _check(claim, UNCHECKED, why=str(e))
    timing = replace(protocol, check=True, early_stop=None)
    return Job(_key(claim), claim.workload, claim.target, program, limits=limits, protocol=timing)


def _read(default: Any, given: Mapping[str, Any]) -> Any:
    """Settings from a record; fields that this version does not know are left out."""
    return replace(default, **{k: v for k, v in given.items() if hasattr(default, k)})


# --- judging ----------------------------------------------------------------------------------------------------------


def _judged(claim: Found, times: Sequence[float], band: float) -> Validation:
    low, high = min(times) / claim.seconds, max(times) / claim.seconds
    verdict = SLOWER if low > 1 + band else FASTER if high < 1 / (1 + band) else HOLDS
    return _check(claim, verdict, statistics.median(times), low, high)


def _check(
    claim: Found,
    verdict: str,
    seconds: float | None = None,
    low: float | None = None,
    high: float | None = None,
    why: str = "",
) -> Validation:
    cell = claim.cell
    ratio = None if seconds is None else seconds / claim.seconds
    names = (cell.entry, cell.task, cell.seed, cell.id)
    return Validation(*names, claim.seconds, seconds, ratio, low, high, verdict, why)
