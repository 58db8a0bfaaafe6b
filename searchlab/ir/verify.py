"""The verifier: what a well-formed program is, checked after every schedule primitive.

Checked: names are defined once and before use; bindings are made of loop variables; accesses have the buffer's rank and
dtype; every read follows a write; reductions do not run in parallel.  (Bounds are proved where the facts allow; the
interpreter and the code generator rely on block predicates for the rest.)
"""

from __future__ import annotations

from dataclasses import dataclass, field

from searchlab.errors import IRError
from searchlab.ir.expr import BOOL, INDEX, Expr, Load, Var, variables, walk
from searchlab.ir.program import (
    LOOP_KINDS,
    THREAD_AXES,
    Block,
    Loop,
    Program,
    Stmt,
    Store,
    children,
    own_expressions,
    read,
    written,
)


def verify(program: Program) -> None:
    """Raises IRError if the program is not well formed."""
    _Verifier(program).run()


@dataclass
class _Verifier:
    program: Program
    loops: set[str] = field(default_factory=set)
    blocks: set[str] = field(default_factory=set)
    ready: set[str] = field(default_factory=set)

    def run(self) -> None:
        p = self.program
        for name in (*p.inputs, *p.outputs):
            if name not in p.buffers:
                self.fail(f"parameter '{name}' is not a buffer")
            if (*p.inputs, *p.outputs).count(name) > 1:
                self.fail(f"parameter '{name}' is named twice")
        self.ready = set(p.inputs)
        self.visit(p.body, {}, {})
        for name in p.outputs:
            if name not in self.ready:
                self.fail(f"output '{name}' is never written")

    def fail(self, message: str) -> None:
        raise IRError(f"{self.program.name}: {message}")

    def visit(self, s: Stmt, scope: dict[Var, str], loops: dict[Var, Loop]) -> None:
        for e in own_expressions(s):
            inner = set(scope) | ({it.var for it in s.iters} if isinstance(s, Block) else set())
            self.check(e, inner, s)
        if isinstance(s, Loop):
            self.check_loop(s)
            self.visit(s.body, {**scope, s.var: "loop"}, {**loops, s.var: s})
        elif isinstance(s, Block):
            self.check_block(s, scope, loops)
            self.visit(s.body, {**{v: k for v, k in scope.items()}, **{it.var: "block" for it in s.iters}}, loops)
            self.ready |= set(written(s))
        elif isinstance(s, Store):
            self.check_store(s)
        else:
            for child in children(s):
                self.visit(child, scope, loops)

    def check_loop(self, loop: Loop) -> None:
        if loop.name in self.loops:
            self.fail(f"two loops are called '{loop.name}'")
        self.loops.add(loop.name)
        for kind in (loop.kind, *loop.kinds):
            if kind not in LOOP_KINDS and kind not in THREAD_AXES:
                self.fail(f"loop '{loop.name}' has unknown kind '{kind}'; known: {', '.join(LOOP_KINDS + THREAD_AXES)}")

    def check_block(self, b: Block, scope: dict[Var, str], loops: dict[Var, Loop]) -> None:
        if b.name in self.blocks:
            self.fail(f"two blocks are called '{b.name}'")
        self.blocks.add(b.name)
        if len(b.iters) != len(b.bindings):
            self.fail(f"block '{b.name}' has {len(b.iters)} iteration variables and {len(b.bindings)} bindings")
        if b.init is not None:
            self.check_store(b.init)
        for note in b.ahead:
            if note.loop not in {lp.name for lp in loops.values()}:
                self.fail(f"block '{b.name}' prefetches along loop '{note.loop}', which is not around it")
            if note.buffer not in read(b) or note.buffer in written(b):
                self.fail(f"block '{b.name}' prefetches '{note.buffer}', which it does not read")
        for it, binding in zip(b.iters, b.bindings, strict=True):
            if it.kind == "reduce":
                for v in variables(binding):
                    if v in loops and any(k == "parallel" or k.startswith("blockIdx") for k in loops[v].kinds):
                        self.fail(
                            f"block '{b.name}': reduction '{it.var}' is bound to parallel loop '{v}'; use rfactor first"
                        )

    def check_store(self, s: Store) -> None:
        buffer = self.program.buffers.get(s.buffer)
        if buffer is None:
            self.fail(f"store to unknown buffer '{s.buffer}'")
            return
        if s.buffer in self.program.inputs:
            self.fail(f"store to input '{s.buffer}'")
        if len(s.indices) != len(buffer.shape):
            self.fail(f"'{s.buffer}' has {len(buffer.shape)} dimensions, stored with {len(s.indices)} indices")
        if s.value.dtype != buffer.dtype:
            self.fail(f"'{s.buffer}' holds {buffer.dtype}, the stored value '{s.value}' is {s.value.dtype}")
        self.ready.add(s.buffer)

    def check(self, e: Expr, scope: set[Var], s: Stmt) -> None:
        own = set(written(s)) if isinstance(s, (Block, Store)) else set()
        for x in walk(e):
            if isinstance(x, Var) and x.role == "iter" and x not in scope:
                self.fail(f"'{x}' is used outside the loop or block that defines it, in {_where(s)}")
            if isinstance(x, Load):
                self.check_load(x, own, s)

    def check_load(self, ld: Load, own: set[str], s: Stmt) -> None:
        buffer = self.program.buffers.get(ld.buffer)
        if buffer is None:
            self.fail(f"load from unknown buffer '{ld.buffer}' in {_where(s)}")
            return
        if len(ld.indices) != len(buffer.shape) or ld.type != buffer.dtype:
            self.fail(f"'{ld}' does not fit '{ld.buffer}' ({len(buffer.shape)} dimensions of {buffer.dtype})")
        if any(i.dtype not in (INDEX, BOOL) for i in ld.indices):
            self.fail(f"'{ld}' is indexed with a value that is no index")
        if ld.buffer not in self.ready and ld.buffer not in own:
            self.fail(f"'{ld.buffer}' is read in {_where(s)} before anything writes it")


def _where(s: Stmt) -> str:
    if isinstance(s, Block):
        return f"block '{s.name}'"
    if isinstance(s, Loop):
        return f"loop '{s.name}'"
    return f"a store to '{s.buffer}'" if isinstance(s, Store) else f"a {type(s).__name__.lower()}"
