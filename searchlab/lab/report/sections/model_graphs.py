"""Whole models from inside: the fused graph with the times of its calls, the memory in use, and who computes what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from searchlab.lab.report.blocks import Block, Column, Figure, Section, TableBlock, TableCell, Words
from searchlab.lab.report.drawing import Axis, Drawing, EntryStyle, GraphBox, Series, layered_graph, line_chart
from searchlab.lab.report.material import Material
from searchlab.lab.report.words import count, digits, seconds, share
from searchlab.lab.tuning.model_result import CallRecord, ModelResult, model_results

_MOST = 32  # boxes of a drawing; of longer graphs the calls that take most time are shown, and the others folded
_KINDS = {"own": ("p1", "own kernels"), "library": ("p5", "library functions"), "other": ("p9", "several calls")}


def section(material: Material) -> Section | None:
    """The section; None if no run knows the calls of a model."""
    found = [result for run in material.runs if run.folder for result in model_results(run.folder) if result.calls]
    if not found:
        return None
    lead = (
        "Operators that follow each other are fused, so the graph that runs has fewer calls than its model operators. "
        "The time of a call is the median of several runs of the tuned model."
    )
    blocks: list[Block] = [Words(lead)]
    for number, result in enumerate(found, 1):
        blocks += [_graph(result, number), _memory(result, number), _table(result, number)]
    return Section("graphs", "Inside the models", tuple(blocks))


# --- the graph --------------------------------------------------------------------------------------------------------


def _graph(result: ModelResult, number: int) -> Figure:
    shown = folded(result.calls)
    hidden = len(result.calls) - sum(box.kind != "other" for box in shown)
    caption = "A box is a call below those whose results it reads; the bar in it is its share of the time of all calls."
    if len(shown) < len(result.calls):
        caption += f" {count(hidden, 'call')} of little time are folded."
    boxes = [_box(call, result.calls) for call in shown]
    kinds = [_KINDS[kind] for kind in _KINDS if any(call.kind == kind for call in shown)]

    def draw(width: float) -> Drawing:
        return layered_graph(boxes, kinds, width)

    return Figure(f"model-{number}-graph", f"{result.name}: the graph that runs", caption, draw)


def folded(calls: Sequence[CallRecord], most: int = _MOST) -> tuple[CallRecord, ...]:
    """At most about `most` calls: those that take longest, and what lies between two of them in order as one.

    Calls are in an order in which all follow what they read, so what was folded does, too.
    """
    if len(calls) <= most:
        return tuple(calls)
    kept = {c.name for c in sorted(calls, key=lambda c: -c.seconds)[: most // 2]}
    found: list[CallRecord] = []
    inside: dict[str, str] = {}
    for keep, run in groupby(calls, lambda c: c.name in kept):
        members = list(run)
        for group in [[c] for c in members] if keep else [members]:
            inside |= {c.name: group[0].name for c in group}
            found.append(group[0] if len(group) == 1 else _joined(group))
    return tuple(replace(c, reads=_outside(c, inside)) for c in found)


def _joined(group: Sequence[CallRecord]) -> CallRecord:
    """Several calls as one, under the name of the first."""
    reads = tuple(dict.fromkeys(read for c in group for read in c.reads))
    total, most = sum(c.seconds for c in group), max(c.live for c in group)
    return CallRecord(group[0].name, count(len(group), "call"), "other", total, None, reads, most)


def _outside(call: CallRecord, inside: dict[str, str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(inside[r] for r in call.reads if r in inside and inside[r] != call.name))


def _box(call: CallRecord, calls: Sequence[CallRecord]) -> GraphBox:
    whole = sum(c.seconds for c in calls) or 1.0
    part = call.seconds / whole
    hint = f"{call.name}: {call.callee}, {seconds(call.seconds)}, {share(part, 1)} of the time"
    kind, _ = _KINDS[call.kind]
    return GraphBox(call.name, call.callee, seconds(call.seconds), kind, part, call.reads, hint)


# --- memory -----------------------------------------------------------------------------------------------------------


def _memory(result: ModelResult, number: int) -> Figure:
    live = np.array([c.live for c in result.calls] + [result.calls[-1].live], float) / 2**20
    x = np.arange(len(live), dtype=float)
    held = result.held / 2**20
    series = [
        Series(EntryStyle("in use", 0), x, live),
        Series(EntryStyle("held", 6), x, np.full(len(live), held)),
    ]
    policy = result.options.get("memory", "bounds")
    caption = (
        f"Intermediate results and workspaces that are needed while a call runs: at most {digits(live.max())} MiB. The "
        f"plan ({policy}) holds {digits(held)} MiB. Inputs, weights and results are not counted."
    )
    top = 1.05 * max(held, float(live.max()), 1e-6)

    def draw(width: float) -> Drawing:
        return line_chart(series, Axis("call"), Axis("MiB", 0.0, top), width, step=True)

    return Figure(f"model-{number}-memory", f"{result.name}: memory over the calls of a run", caption, draw)


# --- calls ------------------------------------------------------------------------------------------------------------


def _table(result: ModelResult, number: int) -> TableBlock:
    columns = (
        Column("call"),
        Column("code", False, "an own kernel, or a function of a library"),
        Column("calls", True),
        Column("time", True, "of all these calls in one run"),
        Column("share", True),
        Column("GFLOP/s", True),
    )
    whole = sum(c.seconds for c in result.calls) or 1.0
    groups: dict[tuple[str, str], list[CallRecord]] = {}
    for call in result.calls:
        groups.setdefault((call.callee, call.kind), []).append(call)
    ordered = sorted(groups.items(), key=lambda item: -sum(c.seconds for c in item[1]))
    rows = tuple(_row(callee, kind, calls, whole) for (callee, kind), calls in ordered)
    by_library = sum(c.seconds for c in result.calls if c.kind == "library")
    note = f"All calls take {seconds(whole)}, those of library functions {share(by_library / whole)} of it."
    return TableBlock(f"model-{number}-calls", f"{result.name}: own and library calls", columns, rows, note)


def _row(callee: str, kind: str, calls: Sequence[CallRecord], whole: float) -> tuple[TableCell, ...]:
    total = sum(c.seconds for c in calls)
    flops = sum(c.flops or 0 for c in calls)
    speed = flops / total / 1e9 if flops and total > 0 else None
    return (
        TableCell(callee),
        TableCell(kind),
        TableCell(str(len(calls)), len(calls)),
        TableCell(seconds(total), total),
        TableCell(share(total / whole, 1), total / whole),
        TableCell("–" if speed is None else digits(speed), speed),
    )
