"""Alpha-equivalence: equality of programs or statements up to renaming variables, buffers and blocks.

A renaming is a bijection: distinct names in one program map to distinct names in the other.  Variables bound by loops
and blocks are matched at their binders.  Symbols and buffers are free: they are matched where they occur alone, and
sums and products in which several candidates are interchangeable are deferred until all other matches are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from itertools import permutations
from typing import Any

from searchlab.ir.expr import Const, Expr, Monomial, Poly, Var
from searchlab.ir.program import Program
from searchlab.ir.rename import RenamedExpression, Renaming
from searchlab.ir.statement_tree import statements
from searchlab.ir.stmt import Ahead, Block, Buffer, Iter, Loop, Stmt
from searchlab.ir.walk import loads, variables

Scope = Mapping[Var, Var]


@dataclass(frozen=True)
class Difference:
    """A readable reason why two programs or statements differ; it is falsy."""

    words: str

    def __bool__(self) -> bool:
        return False


def same_up_to_names(a: Program | Stmt, b: Program | Stmt) -> Renaming | Difference:
    """The renaming that makes `a` the same as `b`, or the first difference that no renaming removes.

    Program names and traces are ignored; the order of operands, loops and statements matters.
    """
    matching = _Matching()
    try:
        if isinstance(a, Program) and isinstance(b, Program):
            matching.programs(a, b)
        else:
            matching.values(a, b, "the statement", {})
        matching.settle()
    except _Different as e:
        return Difference(str(e))
    return matching.renaming()


def matches(pattern: Stmt, s: Stmt) -> Iterator[tuple[Stmt, Renaming]]:
    """The statements inside `s` that equal the pattern up to names, in program order, each with its renaming."""
    for candidate in statements(s):
        found = same_up_to_names(pattern, candidate)
        if isinstance(found, Renaming):
            yield candidate, found


class _Different(Exception):
    """Raised at the first difference that no renaming removes."""


@dataclass(frozen=True)
class _Pairs:
    """A bijection of names, extended during the comparison."""

    what: str
    there: dict[Any, Any] = field(default_factory=dict)
    back: dict[Any, Any] = field(default_factory=dict)

    def join(self, a: Any, b: Any, where: str) -> None:
        if self.there.setdefault(a, b) != b:
            raise _Different(f"{where}: {self.what} '{a}' is '{self.there[a]}' elsewhere, not '{b}'")
        if self.back.setdefault(b, a) != a:
            raise _Different(f"{where}: {self.what} '{b}' is '{self.back[b]}' elsewhere, not '{a}'")


@dataclass
class _Matching:
    buffers: _Pairs = field(default_factory=lambda: _Pairs("buffer"))
    blocks: _Pairs = field(default_factory=lambda: _Pairs("block"))
    loops: _Pairs = field(default_factory=lambda: _Pairs("loop"))
    free: _Pairs = field(default_factory=lambda: _Pairs("symbol"))
    later: list[tuple[Poly, Poly, str, Scope]] = field(default_factory=list)

    def renaming(self) -> Renaming:
        symbols = {v.name: w.name for v, w in self.free.there.items()}
        return Renaming(self.buffers.there, self.blocks.there, self.loops.there, symbols)

    # --- programs and statements --------------------------------------------------------------------------------------

    def programs(self, a: Program, b: Program) -> None:
        roles = (("input", a.inputs, b.inputs), ("output", a.outputs, b.outputs), ("update", a.updates, b.updates))
        for role, ours, theirs in roles:
            self.length(ours, theirs, f"the {role}s")
            for n, (x, y) in enumerate(zip(ours, theirs, strict=True)):
                self.buffers.join(x, y, f"{role} {n}")
        self.values(a.body, b.body, "the body", {})
        self.length(a.buffers, b.buffers, "the buffers")
        for name, buffer in a.buffers.items():
            other = self.buffers.there.get(name)
            if other is None:
                raise _Different(f"buffer '{name}' is not used")
            self.values(buffer, b.buffers[other], f"buffer '{name}'", {})
        self.values(a.assumptions, b.assumptions, "the assumptions", {})
        self.length(a.layouts, b.layouts, "the layouts")
        for la, lb in zip(a.layouts, b.layouts, strict=True):
            scope = dict(zip(la.iters, lb.iters, strict=False))
            where = f"the layout of '{la.buffer}'"
            self.length(la.iters, lb.iters, where)
            self.buffers.join(la.buffer, lb.buffer, where)
            self.values(la.original.shape, lb.original.shape, where, {})
            self.values(la.original.dtype, lb.original.dtype, where, {})
            self.values((la.source, la.predicate), (lb.source, lb.predicate), where, scope)

    def length(self, a: Any, b: Any, where: str) -> None:
        if len(a) != len(b):
            raise _Different(f"{where}: {len(a)} here, {len(b)} there")

    def values(self, a: Any, b: Any, where: str, scope: Scope) -> None:
        """Compares two field values of any type that occurs in programs."""
        if isinstance(a, Expr) and isinstance(b, Expr):
            self.expressions(a, b, where, scope)
        elif type(a) is not type(b):
            raise _Different(f"{where}: a {type(a).__name__.lower()} here, a {type(b).__name__.lower()} there")
        elif isinstance(a, tuple):
            self.length(a, b, where)
            for x, y in zip(a, b, strict=True):
                self.values(x, y, where, scope)
        elif isinstance(a, (Stmt, Buffer, Iter, Ahead)):
            self.parts(a, b, where, scope)
        elif a != b:
            raise _Different(f"{where}: {a} here, {b} there")

    def parts(self, a: Any, b: Any, where: str, scope: Scope) -> None:
        """Compares two values of the same class field by field, starting with the variables they bind."""
        where = f"{type(a).__name__.lower()} '{a.name}'" if isinstance(a, (Block, Loop)) else where
        inner = scope
        if isinstance(a, Loop):
            self.loops.join(a.name, b.name, where)
            inner = _bound(scope, ((a.var, b.var),))
        elif isinstance(a, Block):
            self.length(a.iters, b.iters, where)
            inner = _bound(scope, ((x.var, y.var) for x, y in zip(a.iters, b.iters, strict=True)))
        for part in fields(a):
            if part.name == "var":  # bound above
                continue
            inside = part.name in ("body", "init")
            x, y = getattr(a, part.name), getattr(b, part.name)
            names = self.names(a, part.name, x)
            if names is not None:
                names.join(x, y, where)
            else:
                self.values(x, y, where, inner if inside else scope)

    def names(self, owner: Any, part: str, value: Any) -> _Pairs | None:
        """The bijection that a field belongs to, if the field is a name."""
        if not isinstance(value, str):
            return None
        if part == "buffer" or (part == "name" and isinstance(owner, Buffer)):
            return self.buffers
        if part == "loop":
            return self.loops
        return self.blocks if part == "name" else None

    # --- expressions --------------------------------------------------------------------------------------------------

    def expressions(self, a: Expr, b: Expr, where: str, scope: Scope) -> None:
        renamed = self.renamed(a, scope)
        if renamed is None:
            self.unify(a, b, where, scope)
        elif renamed != b:
            raise _Different(f"{where}: '{a}' here, '{b}' there")

    def renamed(self, e: Expr, scope: Scope) -> Expr | None:
        """The expression in the names of the other program, if all of them are known."""
        known = scope.keys() | self.free.there.keys()
        if not variables(e) <= known or any(ld.buffer not in self.buffers.there for ld in loads(e)):
            return None

        return RenamedExpression({**self.free.there, **scope}, self.buffers.there)(e)

    def unify(self, a: Expr, b: Expr, where: str, scope: Scope) -> None:
        """Matches the unknown names of two expressions by their positions."""
        if type(a) is not type(b):
            raise _Different(f"{where}: '{a}' here, '{b}' there")
        if isinstance(a, Var) and isinstance(b, Var):
            if a.role != b.role or a in scope or b in scope.values():
                raise _Different(f"{where}: '{a}' here, '{b}' there")
            self.free.join(a, b, where)
        elif isinstance(a, Poly) and isinstance(b, Poly):
            self.polynomials(a, b, where, scope)
        else:
            for part in fields(a):
                x, y = getattr(a, part.name), getattr(b, part.name)
                if part.name == "buffer":
                    self.buffers.join(x, y, where)
                else:
                    self.values(x, y, where, scope)

    def polynomials(self, a: Poly, b: Poly, where: str, scope: Scope) -> None:
        """Matches terms of the same shape; defers the comparison if several terms, or factors of one, look alike."""
        bound = {w: w for w in (*scope.values(), *self.free.back)}
        here, there = _by_looks(a, {**self.free.there, **scope}), _by_looks(b, bound)
        if {look: len(terms) for look, terms in here.items()} != {look: len(terms) for look, terms in there.items()}:
            raise _Different(f"{where}: '{a}' here, '{b}' there")
        if any(len(terms) > 1 or len(set(looks)) < len(set(terms[0])) for (_, *looks), terms in here.items()):
            self.later.append((a, b, where, scope))
            return
        for look in here:
            for x, y in zip(here[look][0], there[look][0], strict=True):
                self.expressions(x, y, where, scope)

    # --- deferred comparisons -----------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Repeats the deferred comparisons while they make progress, then enumerates what remains."""
        while self.later:
            todo, self.later = self.later, []
            for a, b, where, scope in todo:
                self.expressions(a, b, where, scope)
            if len(self.later) == len(todo):
                self.guess()
                return

    def guess(self) -> None:
        """Tries all assignments of the unknown names of one deferred polynomial."""
        a, b, where, scope = self.later[0]
        ours = sorted(variables(a) - scope.keys() - self.free.there.keys(), key=str)
        theirs = sorted(variables(b) - set(scope.values()) - self.free.back.keys(), key=str)
        last = _Different(f"{where}: '{a}' here, '{b}' there")
        for order in permutations(theirs) if len(ours) == len(theirs) else ():
            state = (dict(self.free.there), dict(self.free.back), list(self.later))
            try:
                for x, y in zip(ours, order, strict=True):
                    self.unify(x, y, where, scope)
                self.settle()
                return
            except _Different as e:
                last = e
                self.free = _Pairs("symbol", state[0], state[1])
                self.later = state[2]
        raise last


def _bound(scope: Scope, pairs: Iterable[tuple[Var, Var]]) -> dict[Var, Var]:
    """The scope extended by bound variables, which shadow outer ones of the same name."""
    found = dict(scope)
    for ours, theirs in pairs:
        found = {v: w for v, w in found.items() if w != theirs}
        found[ours] = theirs
    return found


def _by_looks(e: Poly, known: Scope) -> dict[tuple[int | str, ...], list[Monomial]]:
    """The monomials of a polynomial by coefficient and shape (the sorted shapes of their factors)."""
    found: dict[tuple[int | str, ...], list[Monomial]] = {}
    for monomial, coefficient in e.terms:
        factors = sorted(((_look(atom, known), atom) for atom in monomial), key=lambda factor: factor[0])
        looks: tuple[int | str, ...] = (coefficient, *(look for look, _ in factors))
        found.setdefault(looks, []).append(tuple(atom for _, atom in factors))
    return found


def _look(e: Expr, known: Scope) -> str:
    """The shape of an expression: its text with unknown names blanked out."""
    if isinstance(e, Var):
        return f"{known[e]}" if e in known else f"any {e.role}"
    if isinstance(e, Const):
        return repr(e.value)
    return f"{type(e).__name__} {getattr(e, 'op', '')} {sorted(_look(child, known) for child in e.children())}"
