"""The view `code`: how much code a candidate becomes, which its build time is proportional to."""

from __future__ import annotations

from searchlab.analysis.access import AccessColumns
from searchlab.analysis.columns import Schema
from searchlab.analysis.graph import Node
from searchlab.analysis.nest import CalledLoops, LoopColumns, Nest, Statement
from searchlab.ir.expr import Compare, Expr, Select, Var
from searchlab.ir.walk import Substitution, variables, walk
from searchlab.targets import CudaTarget, Target

_VECTOR = 32  # bytes, on an ordinary machine
# what code generation does, in `llvm.module` and `lower.flatten`
_CHUNKS = 8  # a vectorised loop that spans more registers becomes a loop over registers
_MOST_COPIES = 1024  # of a statement, beyond which a loop is not unrolled

SCHEMA = Schema("code", 1, ("instructions",))


def columns(nest: Nest, target: Target | None) -> list[Node]:
    """Operations and accesses of all statements, as often as vectors, unrolling and conditions have them written."""
    return [nest.graph.total(_instructions(nest, s, target) for s in nest.statements)]


def _instructions(nest: Nest, s: Statement, target: Target | None) -> Node:
    g = nest.graph
    lanes = max(1, (_VECTOR if target is None else 4 * target.lanes("float32")) // s.accesses[0].bytes)
    around = s.loops if s.called is None else s.loops[: s.called.depth]
    copies = g.one
    for lp in reversed(around):
        more = copies * (1 + (lp.extent - 1) * lp.kinds["unrolled"])
        copies = g.choose(more.at_most(_MOST_COPIES), more, copies)
    vectors = g.product(_registers(lp, lanes) for lp in around)
    computing = s.flops if s.called is None else _of_call(s.called)
    rows = _rows(nest, s, lanes)
    tiles = 1 - rows.at_most(1) if s.called is None else g.one
    parts = g.one if isinstance(target, CudaTarget) else _parts(nest, s, tiles)  # threads have predicates instead
    return copies * rows * vectors * parts * (computing + sum(len(a.indices) for a in s.accesses))


def _of_call(called: CalledLoops) -> float:
    """Instructions of a call: two for every cycle that it takes; one if it does not say."""
    pace = called.intrinsic.pace
    return 1.0 if pace is None else max(2 * pace.cycles, 1.0)


def _registers(lp: LoopColumns, lanes: int) -> Node:
    """How often the body of a loop is written for its vectors: full registers, and the rest in smaller pieces."""
    full = lp.extent // lanes
    written = full.graph.choose(full.at_most(_CHUNKS), full, full.graph.one)
    return 1 + lp.kinds["vectorized"] * (written + (lp.extent - full * lanes).least(2) - 1)


def _rows(nest: Nest, s: Statement, lanes: int) -> Node:
    """How many rows are written where lanes read columns, which are taken in squares (`lower.transposes`)."""
    g = nest.graph
    found = g.one
    for a in s.accesses if s.called is None and not s.block.reduces else ():
        read = AccessColumns(nest, s, a)
        for lane in s.loops:
            jumps = lane.kinds["vectorized"] * (1 - read.stride(lane).at_most(1))
            for lp in s.loops[: lane.depth] if jumps is not g.zero else ():
                along = jumps * lp.kinds["serial"] * read.stride(lp).equals(1)
                found = found.most(1 + along * (lp.extent.least(lanes) - 1))
    return found


def _parts(nest: Nest, s: Statement, tiles: Node) -> Node:
    """How many parts conditions cut the loops around a statement into: on every level, the middle and both ends.

    Whole `tiles`, of calls or of squares, stand in the program once, and what does not fill one is a loop beside them.
    """
    found = nest.graph.one
    for cut, fails in _conditions(nest, s).items():
        loops = (lp for lp in s.loops if lp.var in cut)
        levels = nest.graph.total(lp.alive * (lp.kinds["serial"] + lp.kinds["parallel"]) for lp in loops)
        found = found * (1 + fails * nest.graph.choose(tiles, levels.least(1), 2 * levels))
    return found


def _conditions(nest: Nest, s: Statement) -> dict[frozenset[Var], Node]:
    """The loop variables of comparisons in the predicate of a statement and in the value that it stores.

    With a mask of where one of the comparisons may fail: a tail of an extent that its tile divides does not exist.
    """
    found: dict[frozenset[Var], Node] = {}
    put = Substitution({it.var: e for it, e in zip(s.block.iters, s.bindings, strict=True)})
    asked: list[Expr] = [e.condition for e in walk(s.block.store.value) if isinstance(e, Select)]
    for condition in (s.block.predicate, *asked):
        for e in walk(condition):
            if isinstance(e, Compare):
                cut = frozenset(variables(put(e)))
                fails = nest.graph.one
                if e.op in ("lt", "le"):
                    _, most = nest.ranges.of(put(e.a - e.b), s.running(0))
                    fails = 1 - most.at_most(-1 if e.op == "lt" else 0)
                found[cut] = found.get(cut, nest.graph.zero).most(fails)
    return found
