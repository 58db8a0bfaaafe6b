"""Programs and expressions as stable text, for people, golden files and hashes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from searchlab.ir.expr import (
    TRUE,
    And,
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Lookup,
    Poly,
    Select,
    Var,
    layers,
)
from searchlab.ir.loopkind import LoopKind
from searchlab.ir.stmt import (
    Alloc,
    Barrier,
    Block,
    Buffer,
    If,
    Loop,
    Prefetch,
    Seq,
    Stmt,
    Store,
    Tensorized,
)
from searchlab.ir.thread_stmt import AsyncCopy, Shuffle
from searchlab.ir.visitor import Visitor

if TYPE_CHECKING:
    from searchlab.ir.program import Program

_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%"}
_LEVEL = {"add": 1, "sub": 1, "mul": 2, "div": 2, "floordiv": 2, "mod": 2}
_COMPARE = {"lt": "<", "le": "<=", "eq": "==", "ne": "!="}


def expr_text(e: Expr, level: int = 0) -> str:
    """The expression, in brackets if it binds weaker than `level`."""
    return _TEXTS[type(e)](e, level)


def _binary_text(e: Binary, level: int) -> str:
    if e.op in ("min", "max"):
        return f"{e.op}({expr_text(e.a)}, {expr_text(e.b)})"
    own = _LEVEL[e.op]
    return _brackets(f"{expr_text(e.a, own)} {_SIGNS[e.op]} {expr_text(e.b, own + 1)}", own, level)


def _brackets(text: str, own: int, level: int) -> str:
    return f"({text})" if own < level else text


def _const_text(e: Const, level: int) -> str:
    if e.type == "bool":
        return "true" if e.value else "false"
    return repr(e.value)


def _poly_text(e: Poly, level: int) -> str:
    text = ""
    for monomial, coefficient in e.terms:
        factors = [expr_text(atom, 3) for atom in monomial]
        if abs(coefficient) != 1 or not factors:
            factors.append(str(abs(coefficient)))
        sign = ("-" if coefficient < 0 else "") if not text else (" - " if coefficient < 0 else " + ")
        text += sign + "*".join(factors)
    return _brackets(text, 1 if len(e.terms) > 1 or e.terms[0][1] < 0 else 2, level)


def _element(buffer: str, indices: tuple[Expr, ...]) -> str:
    return f"{buffer}[{', '.join(map(expr_text, indices))}]"


_TEXTS: dict[type[Expr], Callable[[Any, int], str]] = {
    Const: _const_text,
    Var: lambda e, level: e.name,
    Poly: _poly_text,
    Binary: _binary_text,
    Load: lambda e, level: _element(e.buffer, e.indices),
    Lookup: lambda e, level: f"at({', '.join(map(expr_text, (e.load, e.below, e.expected)))})",
    Compare: lambda e, level: _brackets(f"{expr_text(e.a)} {_COMPARE[e.op]} {expr_text(e.b)}", 0, level),
    And: lambda e, level: _brackets(" and ".join(expr_text(c, 1) for c in e.args), 0, level),
    Select: lambda e, level: f"select({expr_text(e.condition)}, {expr_text(e.a)}, {expr_text(e.b)})",
    Cast: lambda e, level: f"{e.type}({expr_text(e.a)})",
    Call: lambda e, level: f"{e.function}({', '.join(map(expr_text, e.args))})",
}
layers.text = expr_text


def buffer_text(b: Buffer) -> str:
    """name: dtype[shape]"""
    return f"{b.name}: {b.dtype}[{', '.join(map(expr_text, b.shape))}]"


def program_text(p: Program) -> str:
    """The whole program: signature, internal buffers, assumptions, loops."""
    inputs = ", ".join(buffer_text(p.buffers[n]) for n in p.inputs)
    outputs = ", ".join(buffer_text(p.buffers[n]) + " updated" * (n in p.updates) for n in p.outputs)
    lines = [f"program {p.name}({inputs}) -> {outputs}:"]
    lines += [f"  size {name}" for name in p.sizes]
    for la in p.layouts:
        source = ", ".join(map(expr_text, la.source))
        where = "" if la.predicate == TRUE else f" where {expr_text(la.predicate)}"
        iters = ", ".join(v.name for v in la.iters)
        lines.append(f"  layout {la.buffer}[{iters}] = {buffer_text(la.original)}[{source}]{where}")
    for b in sorted(p.buffers.values(), key=lambda b: b.name):
        if b.name not in p.inputs and b.name not in p.outputs:
            lines.append(f"  buffer {buffer_text(b)}{'' if b.scope == 'global' else ' in ' + b.scope}")
    lines += [f"  assume {expr_text(a)}" for a in p.assumptions]
    return "\n".join([*lines, *stmt_lines(p.body, "  ")]) + "\n"


def _notes(annotations: tuple[tuple[str, object], ...]) -> str:
    return "".join(f" @{key}={value}" for key, value in annotations)


def stmt_lines(s: Stmt, indent: str = "") -> Iterator[str]:
    """The lines of a statement."""
    return _LINES.visit(s, indent)


class _Lines(Visitor[[str], Iterator[str]]):
    """The lines of each kind of statement, each beginning with `indent`."""

    def visit_store(self, s: Store, indent: str) -> Iterator[str]:
        yield f"{indent}{_element(s.buffer, s.indices)} = {expr_text(s.value)}"

    def visit_asynccopy(self, s: AsyncCopy, indent: str) -> Iterator[str]:
        yield f"{next(self.visit_store(s, indent))} asynchronously"

    def visit_shuffle(self, s: Shuffle, indent: str) -> Iterator[str]:
        yield f"{indent}{_element(s.buffer, s.indices)} = {expr_text(s.value)} of lane ^ {s.mask}"

    def visit_barrier(self, s: Barrier, indent: str) -> Iterator[str]:
        yield f"{indent}barrier"

    def visit_prefetch(self, s: Prefetch, indent: str) -> Iterator[str]:
        yield f"{indent}prefetch {_element(s.buffer, s.indices)}"

    def visit_seq(self, s: Seq, indent: str) -> Iterator[str]:
        for part in s.body:
            yield from self.visit(part, indent)

    def visit_loop(self, s: Loop, indent: str) -> Iterator[str]:
        kind = "" if s.kind == LoopKind.SERIAL else f" {s.kind}"
        yield f"{indent}for {s.name} in {expr_text(s.extent)}{kind}{_notes(s.annotations)}:"
        yield from self.visit(s.body, indent + "  ")

    def visit_if(self, s: If, indent: str) -> Iterator[str]:
        yield f"{indent}if {expr_text(s.condition)}:"
        yield from self.visit(s.body, indent + "  ")

    def visit_alloc(self, s: Alloc, indent: str) -> Iterator[str]:
        yield f"{indent}alloc {buffer_text(s.buffer)} in {s.buffer.scope}"
        yield from self.visit(s.body, indent)

    def visit_tensorized(self, s: Tensorized, indent: str) -> Iterator[str]:
        yield f"{indent}tensorized {s.intrinsic}:"
        yield from self.visit(s.body, indent + "  ")

    def visit_block(self, b: Block, indent: str) -> Iterator[str]:
        bound = [
            (it, f"{it.var.name}<{expr_text(it.extent)} = {expr_text(x)}")
            for it, x in zip(b.iters, b.bindings, strict=True)
        ]
        space = ", ".join(t for it, t in bound if it.kind == "space")
        reduce = ", ".join(t for it, t in bound if it.kind == "reduce")
        signature = space + (f"; {reduce}" if reduce else "")
        where = "" if b.predicate == TRUE else f" where {expr_text(b.predicate)}"
        yield f"{indent}block {b.name}({signature}){where}{_notes(b.annotations)}:"
        if b.init is not None:
            yield f"{indent}  init {next(self.visit_store(b.init, ''))}"
        yield from self.visit(b.body, indent + "  ")


_LINES = _Lines()
