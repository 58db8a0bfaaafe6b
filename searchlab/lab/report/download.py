"""The data of a report as JSON text, for download from the page."""

from __future__ import annotations

import json
from typing import Any

from searchlab.jsonfile import plain
from searchlab.lab.folder import cellfile
from searchlab.lab.report.material import Material
from searchlab.lab.results import CellResult

_DIGITS = 7  # of times


def data_json(material: Material) -> str:
    """All runs with all their cells; infinite times become null."""
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
    return json.dumps(plain({"format": 1, "runs": runs}, _DIGITS), separators=(",", ":"), ensure_ascii=False)


def _cell(cell: CellResult) -> dict[str, Any]:
    return {**cellfile.data(cell), "code": cell.code, "earlier": cell.earlier}
