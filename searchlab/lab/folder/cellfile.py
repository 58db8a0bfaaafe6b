"""Results of cells as JSON; a time that is infinite, or a figure that is, is written as null."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from searchlab.lab.records.text import plain
from searchlab.lab.results import CellResult, Floats
from searchlab.lab.study import IncumbentLook, Round

FORMAT = 1
_BESIDE = ("code", "earlier")  # of the run as a whole: its manifest has them
_FIELDS = tuple(f.name for f in fields(CellResult) if f.name not in _BESIDE)


def to_json(result: CellResult) -> dict[str, Any]:
    """A result as plain values."""
    found: dict[str, Any] = {name: _finite(getattr(result, name)) for name in _FIELDS}
    return {"format": FORMAT, **plain(found, f"cell {result.id}")}


def from_json(data: Mapping[str, Any]) -> CellResult:
    """The result again, from data of the form `forms.CellFile`."""
    values = {name: data[name] for name in _FIELDS if name in data}
    values["seconds"], values["elapsed"] = _times(data["seconds"]), _times(data["elapsed"])
    values["status"] = tuple(data["status"])
    values["rounds"] = tuple(_round(r) for r in data["rounds"])
    return CellResult(**values)


def waiting(id: str, entry: str, task: str, seed: int, factors: Mapping[str, str]) -> CellResult:
    """A cell that has not begun."""
    return CellResult(id, entry, task, seed, dict(factors), "waiting", _times(()), _times(()), ())


def round_data(done: Round) -> dict[str, Any]:
    """A round of a study as plain values; keys of points are texts, since not every reader has integers of 64 bits."""
    found: dict[str, Any] = {"number": done.number, "trials": done.trials, "best_s": done.best_s}
    found["quality"] = asdict(done.quality) if done.quality is not None else {}
    if done.part is not None:
        found["part"] = done.part
    if done.looks:
        found["looks"] = [asdict(x) | {"rival": f"{x.rival:x}", "leader": f"{x.leader:x}"} for x in done.looks]
    return found


def looks(result: CellResult | None, part: int | None = None) -> list[IncumbentLook]:
    """The second looks that a cell has taken, or at one task of a network, in their order."""
    rounds = [r for r in (result.rounds if result is not None else ()) if r.get("part") == part]
    given = [look for r in rounds for look in r.get("looks", ())]
    return [IncumbentLook(**{**x, "rival": int(x["rival"], 16), "leader": int(x["leader"], 16)}) for x in given]


def _round(data: Mapping[str, Any]) -> dict[str, Any]:
    found = {
        **data,
        "best_s": _infinite(data["best_s"]),
        "quality": {name: _infinite(value) for name, value in data["quality"].items()},
    }
    if "looks" in data:
        times = ("rival_s", "leader_s")
        found["looks"] = [{**x, **{name: _infinite(x[name]) for name in times}} for x in data["looks"]]
    return found


def _times(values: Iterable[float | None]) -> Floats:
    return np.array([_infinite(v) for v in values], dtype=np.float64)


def _finite(value: Any) -> Any:
    """The value with None for what JSON has no number for."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, np.ndarray):
        return [_finite(v) for v in value.tolist()]
    if isinstance(value, Mapping):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value


def _infinite(value: float | None) -> float:
    return math.inf if value is None else value
