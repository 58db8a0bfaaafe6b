"""Statements of an experiment held against what came out: held, not held, or not to be decided."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from searchlab.lab.config import matches
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
    """A statement, what became of it, and the figures behind that."""

    claim: str
    result: str
    figures: str
    note: str = ""


def check(material: Material) -> tuple[JudgedClaim, ...]:
    """All statements of all runs, in their order."""
    found = []
    for run in material.runs:
        expected = run.config.get("expect") or ()
        found += [_checked(material, claim) for claim in expected if isinstance(claim, Mapping)]
    return tuple(found)


def _checked(material: Material, claim: Mapping[str, Any]) -> JudgedClaim:
    better = "better" in claim
    ours, theirs = (claim.get("better"), claim.get("than")) if better else (claim.get("same"), claim.get("as"))
    cells = [c for c in material.ended if fnmatchcase(c.task, str(claim.get("tasks", "*")))]
    found = _compared(material, cells, ours, theirs, str(claim.get("on", "final")))
    text, note = _text(claim, ours, theirs, better), str(claim.get("note", ""))
    if not found:
        return JudgedClaim(text, OPEN, "no cells exist for both sides", note)
    limit = float(claim.get("by", 1.0)) if better else float(claim.get("within", 1.05))
    judged = [(_better if better else _same)(p, limit) for p in found]
    result = REFUTED if REFUTED in judged else OPEN if OPEN in judged else HELD
    return JudgedClaim(text, result, "; ".join(_figures(p, len(found) > 1) for p in found), note)


def _compared(material: Material, cells: Sequence[CellResult], ours: Any, theirs: Any, metric: str) -> list[Pair]:
    """Each entry of one side against each of the other; sides named by the same factors are paired as wholes."""
    rows = _rows(cells, metric, material.target)
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping) and ours.keys() == theirs.keys():
        sides = [
            [(c, r) for c, r in zip(cells, rows, strict=True) if matches(s, c.entry, c.factors)] for s in (ours, theirs)
        ]
        first, second = ([c for c, _ in side] for side in sides)
        common = _common(first, second, ours)
        sided = [
            replace(row, entry=_name(name), context=", ".join(f"{k}={c.factors.get(k)}" for k in common))
            for name, side in zip((ours, theirs), sides, strict=True)
            for c, row in side
        ]
        return _against(material, _name(ours), sided)
    left = dict.fromkeys(c.entry for c in cells if matches(ours, c.entry, c.factors))
    right = [e for e in dict.fromkeys(c.entry for c in cells if matches(theirs, c.entry, c.factors)) if e not in left]
    return [p for a in left for p in _against(material, a, [r for r in rows if r.entry == a or r.entry in right])]


def _against(material: Material, entry: str, rows: Sequence[Score]) -> list[Pair]:
    """The entry against each of the others, where both have something in common."""
    if len({r.entry for r in rows}) < 2:
        return []
    found = pairs(rows, material.rng(), band=material.tie, alpha=material.alpha, control=entry)
    return [p for p in found if p.blocks]


def _common(ours: Sequence[CellResult], theirs: Sequence[CellResult], named: Mapping[str, Any]) -> list[str]:
    """The other factors in which like is compared with like: not those that always change along with the named ones."""
    factors = sorted({k for c in (*ours, *theirs) for k in c.factors} - named.keys())
    return [k for k in factors if {c.factors.get(k) for c in ours} & {c.factors.get(k) for c in theirs}]


def _rows(cells: Sequence[CellResult], metric: str, target: float) -> tuple[Score, ...]:
    """One row per cell, with the metric where times are: smaller is better."""
    if metric == "auc":
        return tuple(replace(r, seconds=1 / r.score if r.score > 0 else math.inf) for r in areas(cells))
    rows = scores(cells)
    if metric != "trials-to-target":
        return rows
    bests = trial_bests(cells)
    costs = [cost(c, bests[c.task], target, "trials") for c in cells]
    return tuple(replace(r, seconds=n if there else math.inf) for r, (n, there) in zip(rows, costs, strict=True))


def _better(pair: Pair, by: float) -> str:
    """A factor is held only if its whole interval is beyond it; means leave out failures, so ours must have none."""
    s = pair.speedup
    if pair.verdict is Verdict.SLOWER or (s is not None and s.high is not None and s.high < by):
        return REFUTED
    if by == 1:
        return HELD if pair.verdict is Verdict.FASTER else OPEN
    sure = s is not None and s.low is not None and s.low >= by and not pair.failed_a
    return HELD if pair.verdict is Verdict.FASTER and sure else OPEN


def _same(pair: Pair, within: float) -> str:
    """Held only if the whole interval is inside, and no failure is hidden behind the mean."""
    s = pair.speedup
    if s is None or s.low is None or s.high is None:
        return OPEN
    if s.high < 1 / within or s.low > within:
        return REFUTED
    inside = s.low >= 1 / within and s.high <= within
    return HELD if inside and not pair.failed_a and not pair.failed_b else OPEN


def _text(claim: Mapping[str, Any], ours: Any, theirs: Any, better: bool) -> str:
    metric = _METRICS.get(str(claim.get("on", "final")), str(claim.get("on")))
    by, within = float(claim.get("by", 1.0)), float(claim.get("within", 1.05))
    much = f"at least {by:g} times better" if by > 1 else "better"
    said = f"{much} than" if better else f"the same (within {within:g} times) as"
    where = f" on {claim['tasks']}" if claim.get("tasks", "*") != "*" else ""
    return f"{_name(ours)} is {said} {_name(theirs)}{where} ({metric})"


def _name(selector: Any) -> str:
    if isinstance(selector, Mapping):
        return ", ".join(f"{k} {v}" for k, v in selector.items())
    return str(selector)


def _figures(pair: Pair, named: bool) -> str:
    s = pair.speedup
    ends = f" ({digits(s.low)}–{digits(s.high)})" if s and s.low is not None and s.high is not None else ""
    factor = f"{digits(s.value)} times{ends}" if s else "no pair in which both succeeded"
    who = f"{pair.a} against {pair.b}: " if named else ""
    return f"{who}{factor}, {p_value(pair.p_holm)}, {pair.blocks} pairs: {wording.cell(pair)}"
