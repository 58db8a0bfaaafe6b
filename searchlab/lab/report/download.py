"""The data of a report as JSON text, to be downloaded from the page."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from searchlab.lab.folder import cellfile
from searchlab.lab.report.material import Material
from searchlab.lab.results import CellResult


def data_json(material: Material) -> str:
    """All runs with all their cells; a time that is infinite is null."""
    runs = [
        {
            "name": run.name,
            "started": run.started,
            "command": run.command,
            "config": run.config,
            "machine": run.machine,
            "versions": run.versions,
            "recorded": run.recorded,
            "cells": [_cell(c) for c in run.cells],
        }
        for run in material.runs
    ]
    return json.dumps(_plain({"format": 1, "runs": runs}), separators=(",", ":"), ensure_ascii=False)


def _cell(cell: CellResult) -> dict[str, Any]:
    return {**cellfile.data(cell), "code": cell.code, "earlier": cell.earlier}


def _plain(value: Any) -> Any:
    """What JSON can write; times keep seven digits."""
    if isinstance(value, np.ndarray | list | tuple):
        return [_plain(v) for v in (value.tolist() if isinstance(value, np.ndarray) else value)]
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float):
        return float(f"{value:.7g}") if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
