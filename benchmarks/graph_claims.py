"""Claims of Relax and Hidet about graphs: python -m benchmarks.graph_claims [--timed] [--only GROUP] [--json|--table].

These are exact, or nearly so, and take some seconds together; no figure but that of `deduction` depends on the machine:

`memory`     bytes that four layers of a transformer hold over a series of lengths, by policy of memory: the arena of
             the policy `bounds`, divided by what a pool holds.  A pool of equal sizes reuses a block for the size that
             it was made for only, as that of Relax's virtual machine does; searchlab's for smaller ones, too.
`unknown`    the same layers with dimensions that are symbols, and with unknown ones: the share of values that use
             memory again (`reuse`), and of operators that become programs (`programs`)
`fusion`     bytes of all intermediate results after fusion, divided by those before
`deduction`  the exponent with which the time to deduce all annotations grows with the number of calls
`workspace`  bytes of the workspaces of two products in parts, divided by what both would take apart

These are timed (`--timed`, or one by `--only`), on an idle machine and under a minute each:

`tails`      the time without fusion, divided by that with it, where memory is the limit
`quantised`  the time with weights of float32, divided by that with weights of 4 bits
`libraries`  the time of numpy's BLAS, divided by that of kernels made for any number of rows
`order`      fusion after scheduling, before it, and none, on convolutions of ResNet-50 and a layer
`images`     the speed of a network on images of odd sizes, divided by that on images of 224 x 224
`lengths`    the time of an encoder compiled once for all lengths, divided by that of one compiled for each
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.claim_rows import Row, claim_row
from benchmarks.graph_models import LONGEST, N, decoded, product_with_tail, split_k, transformer_layers
from benchmarks.timed_graph_claims import image_rows, length_rows, library_rows, order_rows, quantised_rows, tail_rows
from searchlab.backend import build
from searchlab.errors import GraphError
from searchlab.graph import (
    GraphBuilder,
    GraphModule,
    OperatorCall,
    ProgramCall,
    compile,
    deduced,
    legalise,
    operator_program,
    scope_of,
)
from searchlab.graph.passes import fuse_operators, fuse_programs
from searchlab.graph.passes.lifetimes import lifetimes
from searchlab.graph.passes.memory_plan import POLICIES, plan_memory
from searchlab.graph.passes.memory_pool import MemoryPool, allocation_log
from searchlab.graph.passes.workspaces import lift_workspaces, workspace_bytes
from searchlab.ir.evaluate import evaluate
from searchlab.ir.expr import ZERO, Expr
from searchlab.targets import parse

SERIES: dict[str, list[int]] = {
    "up": [128, 256, 512, 1024],
    "down": [1024, 512, 256, 128],
    "shuffled": [512, 128, 1024, 256],
    "random": [int(v) for v in np.random.default_rng(0).integers(64, LONGEST + 1, 32)],
    "short": [64] * 4,  # far below the bound, where planning for it loses
}


# --- memory -----------------------------------------------------------------------------------------------------------


def memory_rows() -> Iterator[Row]:
    """Peaks by policy and series, for scores that are held in memory and for attention as one operator.

    Compiled, operators are fused, attention is found where it is written out, and kernels have scratch memory.
    """
    for width in (128, 256):
        for whole in (False, True):
            module = transformer_layers(width, whole=whole)
            name = f"{width}{'-attention' if whole else '-scores'}"
            yield from _series_rows(name, module)
        compiled = compile(transformer_layers(width), parse("x86-64-v3:threads=2"))
        yield from _series_rows(f"{width}-compiled", compiled.lowered)


def _series_rows(name: str, module: GraphModule) -> Iterator[Row]:
    plans = {policy: plan_memory(module, "main", policy) for policy in POLICIES}
    totals = set()
    for series, lengths in SERIES.items():
        sizes = [{N.name: length} for length in lengths]
        logs = {policy: allocation_log(plan, sizes) for policy, plan in plans.items()}
        exact = allocation_log(plans["pool"], sizes, MemoryPool(slack=1))
        totals.add(logs["bounds"].total)
        peaks = {f"{policy}_bytes": log.peak for policy, log in logs.items()}
        case, goal = f"{name}/{series}", 0.7 if series != "short" else None
        yield claim_row(
            case, "bounds / pool of equal sizes", logs["bounds"].peak / exact.peak, goal, pool_bytes=exact.peak
        )
        yield claim_row(case, "bounds / pool", logs["bounds"].peak / logs["pool"].peak, goal, **peaks)
        yield claim_row(case, "symbolic / none", logs["symbolic"].peak / logs["none"].peak)
    yield claim_row(name, "totals of bounds over all series", len(totals), 1)


# --- symbols and unknown dimensions -----------------------------------------------------------------------------------


def unknown_rows() -> Iterator[Row]:
    """What symbolic dimensions make possible."""
    for known in (True, False):
        module = transformer_layers(known=known)
        found, plan = lifetimes(module, module["main"]), plan_memory(module, "main", "symbolic")
        first_uses = len(plan.storages) + len(found.values) - len(plan.places)
        reuse = 1 - first_uses / len(found.values)
        calls = [c for c in module["main"].calls.values() if isinstance(c, OperatorCall)]
        programs = sum(_has_program(module, c) for c in calls) / len(calls)
        case, (low, high) = ("symbols", (0.5, 1.0)) if known else ("unknown", (0.05, 0.0))
        yield claim_row(case, "reuse", reuse, low, at_most=not known, values=len(found.values))
        yield claim_row(case, "programs", programs, high, at_most=not known, calls=len(calls))


def _has_program(module: GraphModule, call: OperatorCall) -> bool:
    scope = scope_of(module, module["main"])
    scope.annotations.update(module["main"].annotations)
    try:
        return operator_program(call, scope) is not None
    except GraphError:
        return False


# --- fusion -----------------------------------------------------------------------------------------------------------


def fusion_rows() -> Iterator[Row]:
    """Intermediate results of graphs that are bound by memory, and of the transformer."""
    made = {"tail": product_with_tail(), "quantised weights": decoded(), "transformer": transformer_layers(whole=True)}
    for case, module in made.items():
        fused = fuse_programs(legalise(fuse_operators(module)))
        before, after = (intermediate_bytes(m, 256) for m in (legalise(module), fused))
        goal = None if case == "transformer" else 0.7
        yield claim_row(case, "bytes", after / before, goal, before_bytes=before, after_bytes=after)


def intermediate_bytes(module: GraphModule, length: int) -> int:
    """The bytes of everything that calls of `main` write, results aside."""
    found = lifetimes(module, module["main"]).values
    return sum(int(evaluate(v.size, {N.name: length})) for v in found if v.size is not None)


# --- deduction --------------------------------------------------------------------------------------------------------


def deduction_rows() -> Iterator[Row]:
    """The slope of time over calls in logarithms: 1 is linear."""
    counts = [100, 316, 1000, 3162, 10000]
    seconds = [_deduction_seconds(count) for count in counts]
    slope = float(np.polyfit(np.log(counts), np.log(seconds), 1)[0])
    times = {"ms": [round(1e3 * s, 2) for s in seconds]}
    yield claim_row("10^2 to 10^4 calls", "slope", slope, 1.1, **times)
    yield claim_row("10^2 to 10^4 calls", "slope", slope, 0.9, at_most=False, **times)


def _deduction_seconds(count: int, repeats: int = 5) -> float:
    b = GraphBuilder("main", ranges={N: (1, LONGEST)})
    x = b.input("x", (N, 8))
    steps: list[Callable[[Any], Any]] = [b.relu, lambda x: x + x, b.softmax, lambda x: b.permute(x, axes=(1, 0))]
    for number in range(count):
        x = steps[number % len(steps)](x)
    module = b.build(x)
    return min(_timed(lambda: deduced(module, module["main"])) for _ in range(repeats))


def _timed(run: Callable[[], Any]) -> float:
    begin = time.process_time()
    run()
    return time.process_time() - begin


# --- workspaces -------------------------------------------------------------------------------------------------------


def workspace_rows() -> Iterator[Row]:
    """Two products whose sums are split in eight parts."""
    b = GraphBuilder("main", ranges={N: (1, 64)})
    x = b.input("x", (N, 256))
    for name in ("w", "v"):
        x = b.matmul(x, b.constant(name, np.ones((256, 256), "float32")))
    module, machine = legalise(b.build(b.relu(x))), parse("x86-64-v3")
    kernels = {name: build(split_k(p, 8), machine) for name, p in module.programs.items() if name.startswith("matmul")}

    def bytes_of(call: ProgramCall) -> Expr:
        return workspace_bytes(kernels[call.program], 1) if call.program in kernels else ZERO

    lifted = lift_workspaces(module, bytes_of)
    plan = plan_memory(lifted, "main", "bounds")
    spaces = [v for v in plan.values if v.name.endswith(".workspace")]
    apart = sum(int(evaluate(v.size, {N.name: 64})) for v in spaces if v.size is not None)
    begins = {plan.offset_of(v.name) for v in spaces}
    shared = apart * len(begins) // len(spaces)
    yield claim_row("two products in parts", "bytes", shared / apart, 0.5, workspaces=len(begins), calls=len(spaces))


EXACT: dict[str, Callable[[], Iterator[Row]]] = {
    "memory": memory_rows,
    "unknown": unknown_rows,
    "fusion": fusion_rows,
    "deduction": deduction_rows,
    "workspace": workspace_rows,
}
TIMED: dict[str, Callable[[], Iterator[Row]]] = {
    "tails": tail_rows,
    "quantised": quantised_rows,
    "libraries": library_rows,
    "order": order_rows,
    "images": image_rows,
    "lengths": length_rows,
}
GROUPS = EXACT | TIMED


def rows(groups: Sequence[str]) -> Iterator[Row]:
    """The rows of some groups, each with the name of its group."""
    for group in groups:
        for row in GROUPS[group]():
            yield {"group": group, **row}


def _line(row: Row) -> str:
    verdict = {True: "ok", False: "MISS", None: ""}[row["held"]]
    goal = "" if row["target"] is None else f"{row['relation']} {row['target']:g}"
    more = "  ".join(f"{k} {v}" for k, v in row.items() if k not in _SHOWN)
    head = f"{row['group']:10s} {row['case']:22s} {row['metric']:32s} {row['value']:9.4f}  {goal:13s} {verdict:5s}"
    return f"{head} {more}".rstrip()


def table_row(row: Row) -> str:
    """A row of a table in Markdown: the statement, the figure, and whether it held."""
    verdict = {True: "**held**", False: "not held", None: "–"}[row["held"]]
    goal = "" if row["target"] is None else f", {row['relation']} {row['target']:.3g}"
    return f"| {row['group']} | {row['case']} | {row['metric']}{goal} | {row['value']:.3g} | {verdict} |"


_SHOWN = {"group", "case", "metric", "value", "relation", "target", "held"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a row for every claim."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--timed", action="store_true", help="the groups that are timed, instead of the exact ones")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object for each row")
    form.add_argument("--table", action="store_true", help="the rows of a table in Markdown")
    parser.add_argument("--only", choices=list(GROUPS), help="one group")
    options = parser.parse_args(arguments)
    shown = json.dumps if options.json else table_row if options.table else _line
    for row in rows([options.only] if options.only else list(TIMED if options.timed else EXACT)):
        print(shown(row), flush=True)


if __name__ == "__main__":
    main()
