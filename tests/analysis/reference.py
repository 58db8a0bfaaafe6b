"""Features by definition: one concrete program, integers, and every index enumerated; slow and obvious."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from searchlab.intrinsics import find_intrinsic
from searchlab.ir.evaluate import evaluate
from searchlab.ir.expr import And as AllOf
from searchlab.ir.expr import Binary, Call, Cast, Compare, Expr, Load, Select, value_of
from searchlab.ir.program import Program
from searchlab.ir.stmt import Block, Loop, Seq, Stmt, Store, Tensorized
from searchlab.ir.walk import loads, substitute, variables, walk
from searchlab.targets import Target

SIZE = {"float32": 4, "float64": 8, "int8": 1, "uint8": 1, "int32": 4, "int64": 8}
AXES = tuple(f"{a}.{x}" for a in ("blockIdx", "threadIdx") for x in "xyz")


@dataclass(eq=False)
class Use:
    """One buffer in one statement."""

    buffer: str
    indices: list[tuple[Expr, ...]]
    reads: bool
    writes: bool


@dataclass(eq=False)
class Leaf:
    """A statement, the loops around it and what it touches, in loop variables."""

    block: Block
    loops: list[Loop]
    bindings: list[Expr]
    uses: list[Use]
    counts: Counter[str]
    call: tuple[str, int] | None = None  # an intrinsic, and how many loops are around its call

    @property
    def flops(self) -> int:
        return sum(n * (2 if k.endswith("mad") else 1) for k, n in self.counts.items() if k not in ("bool", "select"))


def extent(lp: Loop) -> int:
    found = value_of(lp.extent)
    assert found is not None
    return found


def prod(numbers: Any) -> int:
    return math.prod(numbers)


class Reference:
    def __init__(self, program: Program, target: Target | None = None, main: str = "") -> None:
        self.program = program
        self.main_name = main
        self.target = target
        self.leaves = list(self.visit(program.body, [], {}))
        self.loops = list(dict.fromkeys(lp.name for leaf in self.leaves for lp in leaf.loops))

    def visit(self, s: Stmt, around: list[Loop], env: dict[Any, Expr]) -> Any:
        if isinstance(s, Seq):
            for p in s.body:
                yield from self.visit(p, around, env)
        elif isinstance(s, Tensorized):  # as the loops inside it
            for leaf in self.visit(s.body, around, env):
                leaf.call = (s.intrinsic, len(around))
                yield leaf
        elif isinstance(s, Loop):
            yield from self.visit(s.body, [*around, s], env)
        elif isinstance(s, Block):
            bound = [substitute(e, env) for e in s.bindings]
            env = {**env, **{it.var: e for it, e in zip(s.iters, bound)}}
            if isinstance(s.body, Store):
                yield Leaf(s, around, bound, self.uses(s.body, env), count(s.body.value))
            else:
                yield from self.visit(s.body, around, env)

    def uses(self, store: Store, env: dict[Any, Expr]) -> list[Use]:
        found = {store.buffer: Use(store.buffer, [tuple(substitute(i, env) for i in store.indices)], False, True)}
        for ld in loads(store.value):
            use = found.setdefault(ld.buffer, Use(ld.buffer, [], True, False))
            use.reads = True
            at = tuple(substitute(i, env) for i in ld.indices)
            if at not in use.indices:
                use.indices.append(at)
        return list(found.values())

    # --- enumeration ---

    def values(self, e: Expr, running: list[Loop]) -> Any:
        """All values of an index while some loops run and the others stay at 0."""
        used = {v.name for v in variables(e)}
        mine = [lp for lp in running if lp.name in used]
        grid = np.meshgrid(*(np.arange(extent(lp)) for lp in mine), indexing="ij") if mine else []
        env: dict[str, Any] = dict.fromkeys(used, 0)
        env |= {lp.name: g.ravel() for lp, g in zip(mine, grid)}
        return np.atleast_1d(evaluate(e, env))

    def shape(self, buffer: str) -> list[int]:
        return [int(value_of(e)) for e in self.program.buffers[buffer].shape]  # type: ignore[arg-type]

    def box(self, use: Use, running: list[Loop]) -> list[int]:
        sides = []
        for d, whole in enumerate(self.shape(use.buffer)):
            found = np.concatenate([self.values(at[d], running) for at in use.indices])
            sides.append(min(int(found.max() - found.min()) + 1, whole))
        return sides

    def item(self, use: Use) -> int:
        return SIZE[self.program.buffers[use.buffer].dtype]

    def touched(self, use: Use, running: list[Loop]) -> int:
        return prod(self.box(use, running)) * self.item(use)

    def footprint(self, leaf: Leaf, depth: int) -> int:
        return sum(self.touched(u, leaf.loops[depth:]) for u in leaf.uses)

    def addresses(self, indices: tuple[Expr, ...], buffer: str, lp: Loop) -> Any:
        """Flat positions while one loop runs alone."""
        shape = self.shape(buffer)
        flat: Any = np.zeros(extent(lp), np.int64)
        for d, e in enumerate(indices):
            flat = flat + self.values(e, [lp]) * prod(shape[d + 1 :])
        return flat

    def moves(self, use: Use, lp: Loop) -> bool:
        return any(len(np.unique(self.values(e, [lp]))) > 1 for at in use.indices for e in at)

    def stride(self, use: Use, lp: Loop) -> int:
        if extent(lp) == 1:
            return 0
        found = (self.addresses(at, use.buffer, lp) for at in use.indices)
        return max(abs(int(a[1] - a[0])) for a in found)

    def different(self, use: Use, lp: Loop) -> int:
        every = [[np.broadcast_to(self.values(e, [lp]), extent(lp)) for e in at] for at in use.indices]
        return max(len(set(zip(*at))) for at in every)

    # --- what a use is like ---

    def innermost_stride(self, leaf: Leaf, use: Use) -> int:
        alive = [lp for lp in leaf.loops if extent(lp) > 1]
        return self.stride(use, alive[-1]) if alive else 0

    def lines(self, leaf: Leaf, use: Use) -> float:
        done = prod(map(extent, leaf.loops))
        for lp in reversed(leaf.loops):
            if self.moves(use, lp):
                return max(1.0, done * min(1.0, self.stride(use, lp) * self.item(use) / 64))
            done /= extent(lp)  # type: ignore[assignment]
        return 1.0

    def unique_lines(self, leaf: Leaf, use: Use) -> float:
        sides = self.box(use, leaf.loops)
        run = 1
        for side, whole in zip(reversed(sides), reversed(self.shape(use.buffer))):
            run *= side
            if side != whole:
                break
        return max(1.0, prod(sides) * self.item(use) / min(64, run * self.item(use)))

    def reuse(self, leaf: Leaf, use: Use) -> tuple[str, float, float, float]:
        depth_of = {}
        for other in self.leaves:
            if other is not leaf and any(u.buffer == use.buffer for u in other.uses):
                depth_of[id(other)] = sum(a is b for a, b in zip(leaf.loops, other.loops)) - 1
        shared = max(depth_of.values(), default=-1)
        for depth in range(len(leaf.loops) - 1, -1, -1):
            lp = leaf.loops[depth]
            inner = prod(map(extent, leaf.loops[depth + 1 :]))
            if extent(lp) > 1 and not self.moves(use, lp):
                return "loop", inner, self.footprint(leaf, depth + 1), extent(lp)
            if depth == shared:
                inside = [x for x in self.leaves if any(y is lp for y in x.loops)]
                between = sum(self.footprint(x, depth + 1) for x in inside)
                return "statement", inner, between, sum(d == shared for d in depth_of.values())
        return "no", 0, 0, 0

    # --- loops ---

    def kind(self, lp: Loop) -> str:
        if lp.kind != "serial":
            return lp.kind
        product, s = 1, lp
        while True:
            product *= extent(s)
            if not isinstance(s.body, Loop):
                break
            s = s.body
        limit = int(str(dict(s.body.annotations).get("unroll_up_to", 0))) if isinstance(s.body, Block) else 0
        return "unrolled" if product <= limit else "serial"

    def sort(self, leaf: Leaf, lp: Loop) -> str:
        """Whether a loop belongs to space, to the reduction, to both or neither."""
        moved = {it.kind for it, e in zip(leaf.block.iters, leaf.bindings) if len(np.unique(self.values(e, [lp]))) > 1}
        return moved.pop() if len(moved) == 1 else "mixed"

    def annotated(self, leaf: Leaf, kind: str) -> tuple[int, int, int, str]:
        alive = [lp for lp in leaf.loops if extent(lp) > 1]
        found = [lp for lp in alive if self.kind(lp) == kind]
        if not found:
            return 0, 1, 0, "nowhere"
        last = found[-1]
        sort = self.sort(leaf, last)
        if sort == "mixed":
            place = "mixed"
        else:
            same = [lp for lp in alive if self.sort(leaf, lp) == sort]
            where = "inner" if last is same[-1] else "outer" if last is same[0] else "middle"
            place = f"{where}_{sort}"
        return len(found), prod(map(extent, found)), extent(last), place

    def allocation(self, buffer: str) -> tuple[int, int]:
        users = [(leaf, u) for leaf in self.leaves for u in leaf.uses if u.buffer == buffer]
        depth = min(sum(a is b for a, b in zip(users[0][0].loops, leaf.loops)) for leaf, _ in users)
        sides = []
        for d, whole in enumerate(self.shape(buffer)):
            found = [self.values(at[d], leaf.loops[depth:]) for leaf, u in users for at in u.indices]
            every = np.concatenate(found)
            sides.append(min(int(every.max() - every.min()) + 1, whole))
        return depth, prod(sides) * SIZE[self.program.buffers[buffer].dtype]

    def intermediate(self, buffer: str) -> bool:
        return buffer not in (*self.program.inputs, *self.program.outputs)

    # --- views ---

    def statements(self) -> list[dict[str, float]]:
        return [self.statement(leaf) for leaf in self.leaves]

    def statement(self, leaf: Leaf) -> dict[str, float]:
        done = prod(map(extent, leaf.loops))
        row: dict[str, float] = {kind: done * n for kind, n in leaf.counts.items()}
        for kind in ("vectorized", "unrolled", "parallel"):
            number, product, length, place = self.annotated(leaf, kind)
            row |= {
                f"{kind}_number": number,
                f"{kind}_product": product,
                f"{kind}_length": length,
                f"{kind}_{place}": 1,
            }
        bound = [lp for lp in leaf.loops if "." in lp.kind]
        if bound:
            row["gpu"] = 1
            for axis in (*AXES, "vthread"):
                row[axis] = prod(extent(lp) for lp in bound if lp.kind.startswith(axis))
        for n, use in enumerate(self.kept(leaf)):
            row |= {f"buffer{n}_{k}": v for k, v in self.use(leaf, use).items()}
        row |= {f"intensity{n}": v for n, v in enumerate(self.intensity(leaf))}
        stored = leaf.uses[0].buffer
        if self.intermediate(stored):
            depth, size = self.allocation(stored)
            outer = prod(map(extent, leaf.loops[:depth]))
            row |= {"allocated_bytes": size, "allocated_all_bytes": size * outer}
            row |= {"allocated_outer_iterations": outer, "allocated_inner_iterations": done // outer}
        limit = int(str(dict(leaf.block.annotations).get("unroll_up_to", 0)))
        row |= {"iterations": done, "loops": sum(extent(lp) > 1 for lp in leaf.loops), "unroll_up_to": limit}
        return row | self.calls(leaf)

    def calls(self, leaf: Leaf) -> dict[str, float]:
        if leaf.call is None:
            return {}
        name, depth = leaf.call
        inside, pace = leaf.loops[depth:], find_intrinsic(name).pace
        terms, results = prod(map(extent, inside)), self.elements(leaf.uses[0], inside)
        row = {"calls": self.running(leaf) / terms, "call_terms": terms, "call_depth": terms / results}
        return row | {"call_accumulators": results, "call_cycles": pace.cycles if pace else 0}

    def running(self, leaf: Leaf) -> int:
        return min(prod(map(extent, leaf.loops)), prod(int(value_of(it.extent)) for it in leaf.block.iters))  # type: ignore[arg-type]

    def elements(self, use: Use, running: list[Loop]) -> int:
        """How many different elements are touched while some loops run."""
        grid = [g.ravel() for g in np.meshgrid(*(np.arange(extent(lp)) for lp in running), indexing="ij")]
        env = {lp.name: 0 for leaf in self.leaves for lp in leaf.loops}
        env |= {lp.name: g for lp, g in zip(running, grid)}  # type: ignore[misc]
        size = prod(map(extent, running))
        return len({p for at in use.indices for p in zip(*(np.broadcast_to(evaluate(e, env), size) for e in at))})

    def kept(self, leaf: Leaf) -> list[Use]:
        rest = leaf.uses[1:]
        while len(rest) > 4:
            fewest = min(len(self.shape(u.buffer)) for u in rest)
            rest.remove([u for u in rest if len(self.shape(u.buffer)) == fewest][-1])
        return [leaf.uses[0], *rest]

    def use(self, leaf: Leaf, use: Use) -> dict[str, float]:
        access = "read_write" if use.reads and use.writes else "read" if use.reads else "write"
        kind, iterations, between, times = self.reuse(leaf, use)
        sizes = {
            "bytes": prod(map(extent, leaf.loops)) * self.item(use),
            "unique_bytes": self.touched(use, leaf.loops),
            "lines": self.lines(leaf, use),
            "unique_lines": self.unique_lines(leaf, use),
        }
        named = {"loop": "reused_by_loop", "statement": "reused_by_statement", "no": "not_reused"}[kind]
        row: dict[str, float] = {access: 1, **sizes, named: 1}
        row |= {"reuse_iterations": iterations, "reuse_bytes": between, "reuse_times": times}
        row |= {f"{k}_per_reuse": v / times if times else 2 * v for k, v in sizes.items()}
        return row | {"stride": self.innermost_stride(leaf, use)}

    def intensity(self, leaf: Leaf) -> list[float]:
        if not leaf.flops:
            return [0.0] * 10
        work = [leaf.flops * prod(map(extent, leaf.loops[d:])) for d in range(len(leaf.loops), -1, -1)]
        ratio = [w / self.footprint(leaf, len(leaf.loops) - n) for n, w in enumerate(work)]
        at = [math.log2(1 + w) for w in work]
        keep = [n for n in range(len(at)) if n == 0 or at[n] > at[n - 1]]
        xs, ys = [at[n] for n in keep], [ratio[n] for n in keep]
        return [float(np.interp((n + 1) / 10 * xs[-1], xs, ys)) for n in range(10)]

    def loop_rows(self) -> list[dict[str, float]]:
        rows = []
        for name in self.loops:
            inside = [leaf for leaf in self.leaves if any(lp.name == name for lp in leaf.loops)]
            depth = next(n for n, lp in enumerate(inside[0].loops) if lp.name == name)
            lp = inside[0].loops[depth]
            kind = self.kind(lp)
            row: dict[str, float] = {"length": extent(lp), "level": depth, "bound" if "." in kind else kind: 1}
            row["outer"] = prod(map(extent, inside[0].loops[: depth + 1]))
            row["inner"] = max(prod(map(extent, leaf.loops[depth:])) for leaf in inside)
            for what, kinds in {"add": ("addsub", "mad"), "mul": ("mul", "mad"), "div": ("div",)}.items():
                row[what] = sum(
                    prod(map(extent, leaf.loops[depth + 1 :])) * sum(leaf.counts[f"{t}_{k}"] for k in kinds)
                    for leaf in inside
                    for t in ("float", "int")
                )
            found: dict[str, tuple[Leaf, Use]] = {}
            for writes in (True, False):
                for leaf in inside:
                    for use in leaf.uses:
                        if use.writes == writes:
                            found.setdefault(use.buffer, (leaf, use))
            for n, (leaf, use) in enumerate(list(found.values())[:5]):
                row[f"buffer{n}_stride"], row[f"buffer{n}_different"] = self.stride(use, lp), self.different(use, lp)
                row[f"buffer{n}_count"], row[f"buffer{n}_reuse"] = self.counted(leaf, use, depth)
            rows.append(row)
        return rows

    def counted(self, leaf: Leaf, use: Use, depth: int) -> tuple[int, int]:
        inner = leaf.loops[depth:]
        moving = prod(extent(lp) for lp in inner if self.moves(use, lp))
        return moving, prod(map(extent, inner)) // moving

    def curves(self) -> dict[str, float]:
        row: dict[str, float] = {}
        for n in range(5):
            points = []
            for leaf in self.leaves:
                for use in self.kept(leaf)[n : n + 1]:
                    for d in range(len(leaf.loops)):
                        count, reuse = self.counted(leaf, use, d)
                        points.append({"count": count, "reuse": reuse, "outer": prod(map(extent, leaf.loops[: d + 1]))})
            for x, y in (("count", "reuse"), ("reuse", "count"), ("count", "outer"), ("outer", "count")):
                for t in range(20):
                    row[f"buffer{n}_{y}_by_{x}{t}"] = max((p[y] for p in points if p[x] <= 2**t), default=0)
        return row

    def tree(self) -> list[tuple[str, int, dict[str, float]]]:
        """(kind, parent, features) of every node."""
        found: list[tuple[str, int, dict[str, float]]] = [("root", -1, {})]
        rows = dict(zip(self.loops, self.loop_rows()))
        at: dict[str, int] = {}
        for leaf in self.leaves:
            parent = 0
            for lp in leaf.loops:
                if lp.name not in at:
                    at[lp.name] = len(found)
                    own = {k: v for k, v in rows[lp.name].items() if not k.startswith("buffer")}
                    found.append(("loop", parent, own))
                parent = at[lp.name]
            done = prod(map(extent, leaf.loops))
            found.append(("statement", parent, {k: done * n for k, n in leaf.counts.items()} | self.calls(leaf)))
            parent = len(found) - 1
            for use in leaf.uses:
                row = self.use(leaf, use)
                kind = next(k for k in ("read", "write", "read_write") if k in row)
                names = ("stride", "bytes", "unique_bytes", "lines", "unique_lines", "reuse_iterations", "reuse_bytes")
                found.append((kind, parent, {k: row[k] for k in (*names, "reuse_times")}))
        return found

    # --- summary ---

    def summary(self) -> dict[str, float]:
        row: dict[str, float] = Counter()
        for leaf in self.leaves:
            done = prod(map(extent, leaf.loops))
            row["all_flops"] += done * leaf.flops
            row["all_iterations"] += done
            row["all_surplus_iterations"] += max(0, done - prod(int(value_of(i.extent)) for i in leaf.block.iters))  # type: ignore[arg-type]
            for use in leaf.uses:
                found = self.use(leaf, use)
                for name in ("bytes", "unique_bytes", "lines", "unique_lines"):
                    row[f"all_{name}"] += found[name]
            for n, held in enumerate(self.held(leaf), 1):
                row[f"all_traffic_l{n}"] += held[2]
            row["all_cycles"] += self.cycles(leaf)
        row["statements"] = len(self.leaves)
        row["parallel_least"] = min(self.annotated(leaf, "parallel")[1] for leaf in self.leaves)
        row["vector_least"] = min(self.annotated(leaf, "vectorized")[1] for leaf in self.leaves)
        used = {u.buffer for leaf in self.leaves for u in leaf.uses}
        row["allocated"] = sum(self.allocation(b)[1] for b in used if self.intermediate(b))
        main = next(leaf for leaf in self.leaves if leaf.block.name == self.main_name)
        found = {leaf: self.calls(leaf) for leaf in self.leaves}
        row["all_calls"] = sum(calls.get("calls", 0) for calls in found.values())
        inside = sum(prod(map(extent, leaf.loops)) * leaf.flops for leaf in self.leaves if leaf.call)
        row["called_share"] = inside / max(1, row["all_flops"])
        own = self.main(main) | found[main]
        if main.call:
            own["calls_together"] = own["tile_accumulators"] / own["call_accumulators"]
        return {**row, **{f"main_{k}": v for k, v in own.items()}}

    def cycles(self, leaf: Leaf) -> float:
        shared = min(max(1, self.annotated(leaf, "parallel")[1]), self.target.threads if self.target else 1)
        return (self.loop_cycles(leaf) if leaf.call is None else self.call_cycles(leaf)) / shared

    def call_cycles(self, leaf: Leaf) -> float:
        assert leaf.call is not None
        t, (name, depth), made = self.target, leaf.call, self.calls(leaf)
        vector, pace = t.vector_bits // 8 if t else 32, find_intrinsic(name).pace
        tile = [lp for lp in leaf.loops if self.kind(lp) in ("unrolled", "vectorized")]
        together = prod(self.box(leaf.uses[0], tile)) / made["call_accumulators"]
        products = made["call_terms"] * min(map(self.item, leaf.uses)) / vector
        cycles = pace.cycles if pace else max(1, products) / 2
        computed = made["calls"] * max(cycles, (pace.latency if pace else 4) / together)
        loads = 0.0
        for use in leaf.uses[1:]:
            one = min(self.elements(use, leaf.loops[depth:]), vector // self.item(use))
            loads += prod(self.box(use, tile)) / one
        loaded = made["calls"] * made["call_terms"] / prod(map(extent, tile)) * loads / 2
        results = made["call_accumulators"] * self.item(leaf.uses[0]) / vector  # vectors of one call
        room = together <= pace.held if pace and pace.held else together * results <= (t.vector_registers if t else 16)
        return max(computed, loaded) + (0 if room else made["calls"] * max(1, results))

    def loop_cycles(self, leaf: Leaf) -> float:
        t, flops = self.target, max(leaf.flops, 1)
        lanes = (t.vector_bits // 8 if t else 32) // self.item(leaf.uses[0])
        length = max(1, self.annotated(leaf, "vectorized")[2])
        used = length / math.ceil(length / lanes)
        vectors = prod(map(extent, leaf.loops)) / used
        tile = [lp for lp in leaf.loops if self.kind(lp) in ("unrolled", "vectorized")]
        boxes = [prod(self.box(u, tile)) for u in leaf.uses]
        sums = max(1.0, boxes[0] / used)
        waiting = 4 / min(8, sums) if any(it.kind == "reduce" for it in leaf.block.iters) else 4 / 8
        loads = sum(boxes[1:]) / prod(map(extent, tile)) / 2
        spilled = sums > (t.vector_registers if t else 16)
        return vectors * (max(max(flops / 2, 1) * waiting, loads) + spilled)

    def estimate(self) -> dict[str, float]:
        moved = sum(
            m / rate for leaf in self.leaves for (*_, m), rate in zip(self.held(leaf), (96, 48, 16), strict=True)
        )
        main = next(leaf for leaf in self.leaves if leaf.block.name == self.main_name)
        threads = self.target.threads if self.target else 1
        shared = min(max(1, self.annotated(main, "parallel")[1]), threads)
        return {"cycles": sum(map(self.cycles, self.leaves)) + moved / shared}

    def held(self, leaf: Leaf) -> list[tuple[int, int, float]]:
        t = self.target
        found = []
        for cache in (t.l1, t.l2, t.l3) if t else (32 << 10, 512 << 10, 2 << 20):
            sizes = [self.footprint(leaf, d) for d in range(len(leaf.loops) + 1)]
            fitting = [d for d in range(len(leaf.loops)) if sizes[d] <= cache]
            depth = min(fitting, default=len(leaf.loops))
            inner, outer = prod(map(extent, leaf.loops[depth:])), prod(map(extent, leaf.loops[:depth]))
            moved = sizes[depth] * outer
            if leaf.call:
                moved = moved * self.running(leaf) / (inner * outer)
            found.append((inner, sizes[depth], moved))
        return found

    def main(self, leaf: Leaf) -> dict[str, float]:
        t, alive = self.target, [lp for lp in leaf.loops if extent(lp) > 1]
        done = prod(map(extent, leaf.loops))
        lanes = (t.vector_bits // 8 if t else 32) // self.item(leaf.uses[0])
        row: dict[str, float] = {"flops": done * leaf.flops, "iterations": done, "loops": len(alive)}
        row["parallel"] = self.annotated(leaf, "parallel")[1]
        row["parallel_rounds"] = math.ceil(row["parallel"] / (t.threads if t else 1))
        _, row["vector_product"], row["vector_length"], _ = self.annotated(leaf, "vectorized")
        row["vector_loose"] = row["vector_length"] % lanes
        row["unrolled"] = self.annotated(leaf, "unrolled")[1]
        row["unrolled_body"] = row["unrolled"] * row["vector_product"]
        row["unroll_up_to"] = int(str(dict(leaf.block.annotations).get("unroll_up_to", 0)))
        tile = [lp for lp in leaf.loops if self.kind(lp) in ("unrolled", "vectorized")]
        boxes = [prod(self.box(u, tile)) for u in leaf.uses]
        row["tile_accumulators"], row["tile_operands"] = boxes[0], sum(boxes[1:])
        row["tile_registers"] = boxes[0] / (lanes * (t.vector_registers if t else 16))
        if boxes[1:]:
            row["tile_flops_per_load"] = prod(map(extent, tile)) * max(1, leaf.flops) / sum(boxes[1:])
        vectors = [lp for lp in alive if self.kind(lp) == "vectorized"]
        strides = [self.stride(u, vectors[-1]) for u in self.kept(leaf)] if vectors else []
        row["vector_stride0"], row["vector_stride1"] = strides.count(0), strides.count(1)
        row["vector_strided"] = len(strides) - strides.count(0) - strides.count(1)
        unrolled = [lp for lp in leaf.loops if self.kind(lp) == "unrolled" and extent(lp) > 1]
        row["sum_in_tile"] = prod(extent(lp) for lp in unrolled if self.reduces(leaf, lp))
        row["innermost_length"] = extent(alive[-1]) if alive else 1
        for n, (inner, size, moved) in enumerate(self.held(leaf), 1):
            row |= {f"iterations_in_l{n}": inner, f"bytes_in_l{n}": size, f"traffic_l{n}": moved}
            row[f"flops_per_byte_l{n}"] = done * leaf.flops / moved
        for n, use in enumerate(self.kept(leaf)[:4]):
            found = self.use(leaf, use)
            row |= {f"buffer{n}_{k}": found[k] for k in ("stride", "reuse_bytes", "reuse_times", "unique_lines")}
        return row

    def reduces(self, leaf: Leaf, lp: Loop) -> bool:
        pairs = zip(leaf.block.iters, leaf.bindings)
        return any(it.kind == "reduce" and len(np.unique(self.values(e, [lp]))) > 1 for it, e in pairs)


def count(value: Expr) -> Counter[str]:
    """Operations by kind: every node of the value counts once, a product inside a sum not by itself."""
    found: Counter[str] = Counter()
    inside = {id(p) for e in walk(value) for p in [_product(e)] if p is not None}
    stack = [value]
    while stack:
        e = stack.pop()
        if isinstance(e, Load) or e.dtype == "index":
            continue
        sort = "float" if e.dtype in ("float32", "float64") else "int"
        if isinstance(e, Binary) and id(e) not in inside:
            named = {"mul": "mul", "div": "div", "min": "compare", "max": "compare"}
            found[f"{sort}_{named.get(e.op) or ('mad' if _product(e) is not None else 'addsub')}"] += 1
        if isinstance(e, Call):
            found[f"{sort}_{'other' if e.function in ('abs', 'floor', 'round') else 'math'}"] += 1
        if isinstance(e, Cast):
            found[f"{sort}_other"] += 1
        if isinstance(e, Select):
            found["select"] += 1
        if isinstance(e, AllOf):
            found["bool"] += len(e.args) - 1
        if isinstance(e, Compare):
            of = e.a.dtype
            found["bool" if of in ("index", "bool") else f"{'float' if of.startswith('float') else 'int'}_compare"] += 1
        stack.extend(e.children())
    return found


def _product(e: Expr) -> Expr | None:
    """The product that an addition takes in."""
    if not isinstance(e, Binary) or e.op not in ("add", "sub") or e.dtype == "index":
        return None
    return next((x for x in (e.a, e.b) if isinstance(x, Binary) and x.op == "mul"), None)
