"""The view `statements`: for every statement the groups of features that Ansor describes, and calls of intrinsics."""

from __future__ import annotations

from collections.abc import Iterator

from searchlab.analysis.access import AccessColumns, access_columns
from searchlab.analysis.columns import Schema
from searchlab.analysis.graph import Node
from searchlab.analysis.intrinsic_calls import CALLS, calls
from searchlab.analysis.nest import Access, Nest, Statement
from searchlab.analysis.operations import COUNTS
from searchlab.analysis.position import POSITIONS, annotated
from searchlab.ir.loopkind import THREAD_AXES

BUFFERS = 5
SAMPLES = 10
_ANNOTATIONS = ("vectorized", "unrolled", "parallel")
_AXES = (*(a.value for a in THREAD_AXES if not a.is_virtual), "vthread")
_ACCESS = (
    "read", "write", "read_write", "bytes", "unique_bytes", "lines", "unique_lines", "reused_by_loop",
    "reused_by_statement", "not_reused", "reuse_iterations", "reuse_bytes", "reuse_times", "bytes_per_reuse",
    "unique_bytes_per_reuse", "lines_per_reuse", "unique_lines_per_reuse", "stride",
)  # fmt: skip
_ALLOCATION = ("bytes", "all_bytes", "outer_iterations", "inner_iterations")

SCHEMA = Schema(
    "statements",
    1,
    (
        *COUNTS,
        *(f"{a}_{c}" for a in _ANNOTATIONS for c in ("number", "product", "length", *POSITIONS)),
        "gpu",
        *_AXES,
        *(f"buffer{n}_{c}" for n in range(BUFFERS) for c in _ACCESS),
        *(f"intensity{n}" for n in range(SAMPLES)),
        *(f"allocated_{c}" for c in _ALLOCATION),
        "iterations",
        "loops",
        "unroll_up_to",
        *CALLS,
    ),
    groups=(len(CALLS),),
)


def statement_columns(nest: Nest, s: Statement) -> list[Node]:
    """One statement's columns, in the order of the schema."""
    g = nest.graph
    all_iterations = nest.iterations(s)
    found = [all_iterations * s.counts[kind] for kind in COUNTS]
    for kind in _ANNOTATIONS:
        found.extend(annotated(nest, s, kind).columns)
    found.extend(_gpu(nest, s))
    accesses = [access_columns(nest, s, a) for a in chosen(s)]
    for a in accesses:
        found.extend(_access(a))
    found.extend([g.zero] * (len(_ACCESS) * (BUFFERS - len(accesses))))
    found.append(intensity(nest, s))
    found.extend(_allocation(nest, s))
    limit = dict(s.block.annotations).get("unroll_up_to", 0)
    found.extend([all_iterations, g.total(lp.alive for lp in s.loops), nest.number(limit), *calls(nest, s)])
    return found


def columns(nest: Nest) -> list[Node]:
    """The columns of all statements, side by side."""
    return [column for s in nest.statements for column in statement_columns(nest, s)]


def chosen(s: Statement) -> list[Access]:
    """The buffers that are described: the stored one, then loaded ones; of too many those of fewest dimensions go."""
    first, *rest = s.accesses
    kept = sorted(rest, key=lambda a: -len(a.buffer.shape))[: BUFFERS - 1]
    return [first, *(a for a in rest if a in kept)]


def _gpu(nest: Nest, s: Statement) -> Iterator[Node]:
    """Lengths of the loops that are bound to threads of a GPU; 1 for an axis that is not used."""
    g = nest.graph
    bound = [(axis, lp.kinds[axis] * lp.extent) for lp in s.loops for axis in THREAD_AXES if axis in lp.kinds]
    yield g.const(bool(bound))
    for axis in _AXES:
        lengths = [extent for name, extent in bound if name.startswith(axis)]
        yield g.product(lengths) if bound else g.zero


def _access(a: AccessColumns) -> Iterator[Node]:
    g = a.nest.graph
    reads, writes = a.access.reads, a.access.writes
    yield from map(g.const, (reads and not writes, writes and not reads, reads and writes))
    sizes = (a.bytes, a.unique_bytes, a.lines, a.unique_lines)
    yield from sizes
    r = a.reuse
    yield from (r.by_loop, r.by_statement, 1 - r.by_loop - r.by_statement, r.iterations, r.bytes, r.times)
    # what is never met again costs more than what is met once
    times = r.times.most(0.5)
    yield from (x / times for x in sizes)
    yield a.innermost_stride


def intensity(nest: Nest, s: Statement) -> Node:
    """Operations per byte of the boxes touched, as the nest grows outwards, at ten equal steps of log2(operations)."""
    g = nest.graph
    steps = g.wide((n + 1) / SAMPLES for n in range(SAMPLES))
    if not s.flops:
        return steps * 0
    at, ratio = [], []
    for depth in range(len(s.loops), -1, -1):
        work = nest.iterations(s, depth) * s.flops
        at.append((work + 1).log2())
        ratio.append(work / nest.footprint(s, depth))
    found, wanted = steps * 0 + ratio[0], steps * at[-1]
    for n in range(1, len(at)):
        # a loop that runs once has no length, and nothing changes in it
        scale = g.one / (at[n] - at[n - 1]).most(1e-12)
        found = found + ((wanted - at[n - 1]) * scale).most(0).least(1) * (ratio[n] - ratio[n - 1])
    return found


def _allocation(nest: Nest, s: Statement) -> tuple[Node, ...]:
    """The memory of an intermediate buffer that is written: as small as the loops around its uses allow."""
    g = nest.graph
    buffer = s.block.store.buffer
    if buffer not in nest.intermediate:
        return (g.zero,) * 4
    depth, size = nest.allocation(buffer)
    outer = nest.iterations(s, 0, depth)
    return size, size * outer, outer, nest.iterations(s, depth)
