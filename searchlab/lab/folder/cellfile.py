"""Results of cells as JSON; infinite times and figures are written as null."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from searchlab.jsonfile import plain
from searchlab.lab.manifest import Cell
from searchlab.lab.results import CellResult, Floats, PartWinner, RoundSummary, Winner
from searchlab.lab.study import (
    AnySizeProgram,
    Fallback,
    FamilyTable,
    IncumbentLook,
    Quality,
    SizeInterval,
    SizeTimes,
)

FORMAT = 1


def to_json(result: CellResult) -> dict[str, Any]:
    """A result as plain values."""
    return {"format": FORMAT, **plain(data(result))}


def data(result: CellResult) -> dict[str, Any]:
    """A result as dictionaries and lists, with the names that identify its cell."""
    return {
        "id": result.id,
        "entry": result.entry,
        "task": result.task,
        "seed": result.seed,
        "factors": dict(result.factors),
        "state": result.state,
        "seconds": result.seconds,
        "elapsed": result.elapsed,
        "status": result.status,
        "rounds": [_round_data(r) for r in result.rounds],
        "ledger": result.ledger,
        "best": None if result.best is None else _winner_data(result.best),
        "baselines": result.baselines,
        "optimum_s": result.optimum_s,
        "error": result.error,
    }


def from_json(given: Mapping[str, Any], cell: Cell) -> CellResult:
    """The result of a cell, restored from data of the form `file_forms.CellFile`."""
    return CellResult(
        cell=cell,
        state=given["state"],
        seconds=_times(given["seconds"]),
        elapsed=_times(given["elapsed"]),
        status=tuple(given["status"]),
        rounds=tuple(map(_round, given["rounds"])),
        ledger=given["ledger"],
        best=None if given["best"] is None else _winner(given["best"]),
        baselines=given["baselines"],
        optimum_s=given["optimum_s"],
        error=given["error"],
    )


def looks(result: CellResult | None, part: int | None = None) -> list[IncumbentLook]:
    """The re-measurements of a cell, or of one task of a network, in order."""
    rounds = () if result is None else result.rounds
    return [look for r in rounds if r.part == part for look in r.looks]


# --- rounds -----------------------------------------------------------------------------------------------------------


def _round_data(done: RoundSummary) -> dict[str, Any]:
    """A round as plain data; keys of points are strings, since not every reader has 64-bit integers."""
    found: dict[str, Any] = {"number": done.number, "trials": done.trials, "best_s": done.best_s}
    found["quality"] = asdict(done.quality) if done.quality is not None else {}
    if done.part is not None:
        found["part"] = done.part
    if done.looks:
        found["looks"] = [asdict(x) | {"rival": f"{x.rival:x}", "leader": f"{x.leader:x}"} for x in done.looks]
    return found


def _round(given: Mapping[str, Any]) -> RoundSummary:
    return RoundSummary(
        given["number"],
        given["trials"],
        _infinite(given["best_s"]),
        _quality(given["quality"]),
        given.get("part"),
        tuple(map(_look, given.get("looks", ()))),
    )


def _quality(given: Mapping[str, Any]) -> Quality | None:
    """The figures that this version knows; those missing from older files are NaN."""
    if not given:
        return None
    figures = {f.name: _infinite(given.get(f.name, math.nan)) for f in fields(Quality) if f.name != "count"}
    return Quality(given.get("count", 0), **figures)


def _look(given: Mapping[str, Any]) -> IncumbentLook:
    times = {name: _infinite(given[name]) for name in ("rival_s", "leader_s")}
    return IncumbentLook(int(given["rival"], 16), int(given["leader"], 16), given["confirmed"], **times)


# --- what was found ---------------------------------------------------------------------------------------------------


def _winner_data(best: Winner) -> dict[str, Any]:
    found = {"trial": best.trial, "knobs": best.knobs, "point": best.point, "seconds": best.seconds}
    if best.fallback is not None:
        found["fallback"] = asdict(best.fallback)
    if best.table is not None:
        found["table"] = asdict(best.table)
    return {**found, "parts": [_part_data(p) for p in best.parts]} if best.parts else found


def _part_data(part: PartWinner) -> dict[str, Any]:
    return {"task": part.task, "weight": part.weight, **_winner_data(part.best), "baselines": part.baselines}


def _winner(given: Mapping[str, Any]) -> Winner:
    parts = tuple(PartWinner(p["task"], p["weight"], _winner(p), p["baselines"]) for p in given.get("parts") or ())
    known = given.get("fallback")  # files of earlier versions have none
    fallback = None if known is None else Fallback(known["program"], known["seconds"], known["kept"])
    table = None if given.get("table") is None else _table(given["table"])
    return Winner(given["trial"], given["knobs"], given["point"], given["seconds"], parts, fallback, table)


def _table(given: Mapping[str, Any]) -> FamilyTable:
    return FamilyTable(
        given["size"],
        tuple(AnySizeProgram(p["found_at"], p["point"], p["knobs"], p["hash"]) for p in given["programs"]),
        tuple(SizeInterval(i["low"], i["high"], i["program"]) for i in given["intervals"]),
        tuple(SizeTimes(*(t[f.name] for f in fields(SizeTimes))) for t in given["times"]),
        tuple(given["refused"]),
    )


# --- numbers ----------------------------------------------------------------------------------------------------------


def _times(values: Iterable[float | None]) -> Floats:
    return np.array([_infinite(v) for v in values], dtype=np.float64)


def _infinite(value: float | None) -> float:
    return math.inf if value is None else value
