"""What tests of runs share: small experiments, and everything a run leaves that must not depend on chance."""

from pathlib import Path
from typing import Any

from searchlab.lab.config import Experiment, from_data
from searchlab.lab.folder import file_forms
from searchlab.lab.folder.atomic import known_json
from searchlab.lab.run import Folder

STRATEGIES = "lab.run.made_strategies"


def replay(**changes: Any) -> Experiment:
    """A sweep over recorded tables that takes a fraction of a second."""
    plain = {
        "name": "small",
        "workloads": [{"table": "matmul-256"}, {"table": "softmax-128x1024"}],
        "model": "none",
        "sweep": {"strategy": ["random", "annealing"]},
        "budget": {"trials": 12, "batch": 4},
        "seeds": [0, 1],
    }
    return from_data({**plain, **changes})


def one(strategy: Any, **changes: Any) -> Experiment:
    """A cell for each seed, all with one strategy."""
    name = {f"{STRATEGIES}:{n}": options for n, options in strategy.items()} if isinstance(strategy, dict) else strategy
    return replay(**{"workloads": [{"table": "softmax-128x1024"}], "sweep": {}, "strategy": name, **changes})


def content(path: Path) -> dict[str, Any]:
    """Records byte by byte and results of all cells; where the wall time went is another one each time."""
    folder = Folder(path)
    found: dict[str, Any] = {}
    for cell in folder.manifest().cells:
        result = known_json(path / "cells" / f"{cell.id}.json", file_forms.CellFile, "")
        records = folder.records_path(cell.id)
        found[cell.id] = (
            records.read_bytes() if records.exists() else b"",
            {k: v for k, v in result.items() if k != "ledger"} if result is not None else None,
        )
    return found


def lines(path: Path) -> int:
    """How many measurements there are."""
    return sum(_text(file).count("\n") for file in path.glob("records/*.jsonl"))


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except FileNotFoundError:  # a cell just begins anew
        return ""
