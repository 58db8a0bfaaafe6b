"""Programs: parameters, buffers and a body of statements, as immutable values.

A block isolates one computation from the loops around it by a signature: iteration variables (space or reduce), each
bound to an expression of loop variables.  Schedule primitives change loops and bindings, not the computation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from searchlab.errors import ConstraintError, IRError
from searchlab.ir.bounds import Facts
from searchlab.ir.expr import FALSE, TRUE, Const, Expr, Var
from searchlab.ir.printer import program_text
from searchlab.ir.statement_tree import expressions, statements
from searchlab.ir.stmt import Ahead, Block, Buffer, Loop, Stmt, Tensorized
from searchlab.ir.substitute import put_buffer, put_statement
from searchlab.ir.walk import Substitution, lookups, variables


@dataclass(frozen=True, slots=True)
class Layout:
    """A parameter stored in a layout other than the caller's: element `source` of the original goes to `target`.

    `source` holds one expression per original dimension in the variables `iters` of the new shape; where `predicate`
    is false, the new buffer holds zero.
    """

    buffer: str
    original: Buffer
    iters: tuple[Var, ...]
    source: tuple[Expr, ...]
    predicate: Expr = TRUE

    def substitute(self, buffer: Buffer, put: Substitution) -> Layout:
        """The layout of a buffer with symbols replaced."""
        facts = Facts(dict(zip(self.iters, buffer.shape, strict=True)))
        source = tuple(facts.simplify(put(e)) for e in self.source)
        original = put_buffer(self.original, put)
        return Layout(self.buffer, original, self.iters, source, facts.simplify(put(self.predicate)))


@dataclass(frozen=True)
class Program:
    """A function of buffers: inputs in, outputs out, loops and blocks between, with symbols anywhere in extents.

    `updates` are the outputs that are passed in as well: what a program does not write of these stays as it was.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    buffers: Mapping[str, Buffer]
    body: Stmt
    assumptions: tuple[Expr, ...] = ()
    layouts: tuple[Layout, ...] = ()
    updates: tuple[str, ...] = ()
    trace: tuple[Any, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        return program_text(self)

    @cached_property
    def hash(self) -> str:
        """A short digest that identifies the program, the same in every process."""
        return hashlib.sha256(str(self).encode()).hexdigest()[:16]

    @cached_property
    def blocks(self) -> dict[str, Block]:
        """All blocks by name, in program order."""
        return {s.name: s for s in statements(self.body) if type(s) is Block}

    @cached_property
    def loops(self) -> dict[str, Loop]:
        """All loops by name, outermost first."""
        return {s.var.name: s for s in statements(self.body) if type(s) is Loop}

    @cached_property
    def tensorized(self) -> bool:
        """Whether it calls tensor intrinsics."""
        return any(type(s) is Tensorized for s in statements(self.body))

    @cached_property
    def symbols(self) -> tuple[Var, ...]:
        """The knobs and run-time sizes that occur, sorted by name."""
        found = set(self.measures)
        for s in statements(self.body):
            for _, note in getattr(s, "annotations", ()):
                value = note.distance if isinstance(note, Ahead) else note
                found |= variables(value) if isinstance(value, Expr) else frozenset()
        return tuple(sorted((v for v in found if v.role != "iter"), key=lambda v: v.name))

    @cached_property
    def measures(self) -> frozenset[Var]:
        """The symbols in extents, indices and shapes, which are at least 1; those only in annotations may be 0."""
        found: set[Var] = set()
        for e in expressions(self.body):
            found |= variables(e)
        for b in self.buffers.values():
            for extent in b.shape:
                found |= variables(extent)
        return frozenset(v for v in found if v.role != "iter")

    @cached_property
    def lookups(self) -> dict[str, Expr]:
        """The inputs that indices are looked up in, and what all of their elements are less than."""
        return {x.load.buffer: x.below for e in expressions(self.body) for x in lookups(e)}

    @property
    def knobs(self) -> tuple[str, ...]:
        """Names of the symbols that a search chooses."""
        return tuple(v.name for v in self.symbols if v.role == "knob")

    @property
    def sizes(self) -> tuple[str, ...]:
        """Names of the sizes known at run time."""
        return tuple(v.name for v in self.symbols if v.role == "size")

    @cached_property
    def facts(self) -> Facts:
        """Extents of all loops and the assumptions of the program."""
        return Facts({lp.var: lp.extent for lp in self.loops.values()}, self.assumptions)

    def with_body(self, body: Stmt, **changes: Any) -> Program:
        """The program with another body."""
        return replace(self, body=body, **changes)

    def substitute(self, values: Mapping[str, int]) -> Program:
        """The program with integers in place of symbols; refuses values that violate what the schedule assumes."""
        mapping = self._mapping(values)
        put = Substitution(mapping)
        for assumption in self.assumptions:
            if put(assumption) == FALSE:
                names = [v.name for v in sorted(variables(assumption), key=str) if v.name in values]
                chosen = ", ".join(f"{name}={values[name]}" for name in names)
                raise ConstraintError(f"{self.name}: {chosen} breaks '{assumption}', which the schedule relies on")
        return self.with_symbols(mapping)

    def with_symbols(self, mapping: Mapping[Var, Expr]) -> Program:
        """The program with index expressions in place of symbols."""
        put = Substitution(mapping)
        left = [now for now in map(put, self.assumptions) if now != TRUE]
        buffers = {n: put_buffer(b, put) for n, b in self.buffers.items()}
        layouts = tuple(la.substitute(buffers[la.buffer], put) for la in self.layouts)
        new = replace(self, buffers=buffers, assumptions=tuple(left), layouts=layouts)
        return new.with_body(put_statement(self.body, put, new.assumptions))

    def _mapping(self, values: Mapping[str, int]) -> dict[Var, Expr]:
        known = {v.name: v for v in self.symbols}
        noted = set(self.symbols) - self.measures
        for a in self.assumptions:
            known.update({v.name: v for v in variables(a)})
        mapping: dict[Var, Expr] = {}
        for name, number in values.items():
            if name not in known:
                raise IRError(f"{self.name} has no symbol '{name}'; its symbols: {', '.join(sorted(known)) or 'none'}")
            least = 0 if known[name] in noted else 1
            if isinstance(number, bool) or not hasattr(number, "__index__") or number.__index__() < least:
                raise IRError(f"{self.name}: symbol '{name}' takes an integer >= {least}, got {number!r}")
            mapping[known[name]] = Const(number.__index__())
        return mapping
