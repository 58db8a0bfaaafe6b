"""Claims of an experiment checked against its results: held, not held, or undecided."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from searchlab.lab.config.experiment import Claim
from searchlab.lab.config.selectors import Selector, matches
from searchlab.lab.report.material import Material
from searchlab.lab.report.words import digits, p_value
from searchlab.lab.results import CellResult
from searchlab.lab.statistics import Pair, Score, Verdict, areas, pairs, scores, wording
from searchlab.lab.statistics.anytime import trial_bests
from searchlab.lab.statistics.reaching import cost

HELD, REFUTED, OPEN = "held", "not held", "not decided"
_METRICS = {"final": "time found", "auc": "area under best so far", "trials-to-target": "trials to the target"}


@dataclass(frozen=True)
class JudgedClaim:
    """A claim, its verdict, and the figures that support the verdict."""

    claim: str
    result: str
    figures: str
    note: str = ""


def check(material: Material) -> tuple[JudgedClaim, ...]:
    """All statements of all runs, in their order."""
    expected = (claim for run in material.runs if run.experiment is not None for claim in run.experiment.expect)
    return tuple(_checked(material, claim) for claim in expected)


def _checked(material: Material, claim: Claim) -> JudgedClaim:
    cells = [c for c in material.ended if fnmatchcase(c.task, claim.tasks)]
    ours, theirs = claim.sides.values()
    found = _compared(material, cells, ours, theirs, claim.on)
    text = _text(claim, ours, theirs)
    if not found:
        return JudgedClaim(text, OPEN, "no cells exist for both sides", claim.note)
    better = claim.better is not None
    judged = [_better(p, claim.by) if better else _same(p, claim.within) for p in found]
    result = REFUTED if REFUTED in judged else OPEN if OPEN in judged else HELD
    return JudgedClaim(text, result, "; ".join(_figures(p, len(found) > 1) for p in found), claim.note)


def _compared(
    material: Material, cells: Sequence[CellResult], ours: Selector, theirs: Selector, metric: str
) -> list[Pair]:
    """Each entry of one side against each of the other; sides named by the same factors are paired as wholes."""
    rows = _rows(cells, metric, material.target)
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping) and ours.keys() == theirs.keys():
        return _against(material, _name(ours), _sided(list(zip(cells, rows, strict=True)), ours, theirs))
    left, right = _meant(cells, ours), _meant(cells, theirs)
    others = [e for e in right if e not in left]
    return [p for a in left for p in _against(material, a, [r for r in rows if r.entry == a or r.entry in others])]


def _meant(cells: Sequence[CellResult], selector: Selector) -> list[str]:
    """The entries that a side names."""
    return list(dict.fromkeys(c.entry for c in cells if matches(selector, c.entry, c.factors)))


def _sided(
    pairs: Sequence[tuple[CellResult, Score]], ours: Mapping[str, str], theirs: Mapping[str, str]
) -> list[Score]:
    """The rows of both sides, each side as one entry, in the context of the factors that they share."""
    sides = {_name(s): [(c, row) for c, row in pairs if matches(s, c.entry, c.factors)] for s in (ours, theirs)}
    first, second = ([c for c, _ in sides[_name(s)]] for s in (ours, theirs))
    common = _common(first, second, ours)
    return [
        replace(row, entry=name, context=", ".join(f"{k}={c.factors.get(k)}" for k in common))
        for name, side in sides.items()
        for c, row in side
    ]


def _against(material: Material, entry: str, rows: Sequence[Score]) -> list[Pair]:
    """The entry against each of the others with which it shares tasks and seeds."""
    if len({r.entry for r in rows}) < 2:
        return []
    found = pairs(rows, material.rng(), band=material.tie, alpha=material.alpha, control=entry)
    return [p for p in found if p.blocks]


def _common(ours: Sequence[CellResult], theirs: Sequence[CellResult], named: Mapping[str, Any]) -> list[str]:
    """The other factors to hold equal in comparisons: those that do not always change along with the named ones."""
    factors = sorted({k for c in (*ours, *theirs) for k in c.factors} - named.keys())
    return [k for k in factors if {c.factors.get(k) for c in ours} & {c.factors.get(k) for c in theirs}]


def _rows(cells: Sequence[CellResult], metric: str, target: float) -> tuple[Score, ...]:
    """One row per cell, with the metric in place of the time: smaller is better."""
    if metric == "auc":
        return tuple(replace(r, seconds=1 / r.score if r.score > 0 else math.inf) for r in areas(cells))
    rows = scores(cells)
    if metric != "trials-to-target":
        return rows
    bests = trial_bests(cells)
    costs = [cost(c, bests[c.task], target, "trials") for c in cells]
    return tuple(replace(r, seconds=n if there else math.inf) for r, (n, there) in zip(rows, costs, strict=True))


def _better(pair: Pair, by: float) -> str:
    """A factor holds only if the whole interval lies beyond it; means leave out failures, so ours must have none."""
    s = pair.speedup
    if pair.verdict is Verdict.SLOWER or (s is not None and s.high is not None and s.high < by):
        return REFUTED
    if by == 1:
        return HELD if pair.verdict is Verdict.FASTER else OPEN
    sure = s is not None and s.low is not None and s.low >= by and not pair.failed_a
    return HELD if pair.verdict is Verdict.FASTER and sure else OPEN


def _same(pair: Pair, within: float) -> str:
    """Held only if the whole interval lies inside the margin, and the mean hides no failure."""
    s = pair.speedup
    if s is None or s.low is None or s.high is None:
        return OPEN
    if s.high < 1 / within or s.low > within:
        return REFUTED
    inside = s.low >= 1 / within and s.high <= within
    return HELD if inside and not pair.failed_a and not pair.failed_b else OPEN


def _text(claim: Claim, ours: Selector, theirs: Selector) -> str:
    much = f"at least {claim.by:g} times better" if claim.by > 1 else "better"
    said = f"{much} than" if claim.better is not None else f"the same (within {claim.within:g} times) as"
    where = f" on {claim.tasks}" if claim.tasks != "*" else ""
    return f"{_name(ours)} is {said} {_name(theirs)}{where} ({_METRICS[claim.on]})"


def _name(selector: Selector) -> str:
    if isinstance(selector, Mapping):
        return ", ".join(f"{k} {v}" for k, v in selector.items())
    return str(selector)


def _figures(pair: Pair, named: bool) -> str:
    s = pair.speedup
    ends = f" ({digits(s.low)}–{digits(s.high)})" if s and s.low is not None and s.high is not None else ""
    factor = f"{digits(s.value)} times{ends}" if s else "no pair in which both succeeded"
    who = f"{pair.a} against {pair.b}: " if named else ""
    return f"{who}{factor}, {p_value(pair.p_holm)}, {pair.blocks} pairs: {wording.cell(pair)}"
