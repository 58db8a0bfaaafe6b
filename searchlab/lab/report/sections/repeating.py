"""Everything needed to repeat an experiment: commands, settings, machine, versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from searchlab.lab.report.blocks import Block, CodeBlock, FactList, Section
from searchlab.lab.report.material import Material
from searchlab.lab.results import Run


def section(material: Material) -> Section:
    """The section; one set of blocks per run."""
    blocks: list[Block] = []
    for run in material.runs:
        prefix = f"{run.name}: " if len(material.runs) > 1 else ""
        if run.command:
            blocks.append(CodeBlock(f"{prefix}command", run.command, unfolded=True))
        if run.source:
            blocks.append(CodeBlock(f"{prefix}experiment as written", run.source))
        if run.config:
            blocks.append(CodeBlock(f"{prefix}experiment, every setting resolved", resolved(run)))
        blocks += [
            FactList(f"{prefix}machine", _facts(run.machine)),
            FactList(f"{prefix}versions", _facts(_versions(run))),
        ]
    return Section("repeat", "Repeat it", tuple(blocks))


def resolved(run: Run) -> str:
    """The resolved settings as YAML."""
    import yaml

    return str(yaml.safe_dump(dict(run.config), sort_keys=False, allow_unicode=True, width=100))


def _versions(run: Run) -> dict[str, Any]:
    return {"started": run.started, **run.versions}


def _facts(values: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((str(k), str(v)) for k, v in values.items() if v not in ("", None, [], {}))
