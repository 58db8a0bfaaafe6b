"""Statements of threads that work together; they exist only in lowered programs, as barriers do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from searchlab.ir.expr import Expr
from searchlab.ir.stmt import Place, Stmt, Store


def _same(s: Stmt) -> Stmt:
    return s


@dataclass(frozen=True, slots=True)
class AsyncCopy(Store):
    """A store of what is loaded from elsewhere, done at any time before the next barrier."""

    def rebuild(self, f: Callable[[Expr], Expr], inside: Callable[[Stmt], Stmt] = _same) -> AsyncCopy:
        """Indices and value rewritten."""
        return AsyncCopy(self.buffer, tuple(map(f, self.indices)), f(self.value))


@dataclass(frozen=True, slots=True)
class Shuffle(Stmt):
    """buffer[indices] = what `value` is in the thread of the warp whose number differs in the bits of `mask`."""

    buffer: str
    indices: tuple[Expr, ...]
    value: Expr
    mask: int

    def own_expressions(self) -> tuple[Expr, ...]:
        """Indices and value."""
        return (*self.indices, self.value)

    def own_stores(self) -> tuple[Store, ...]:
        """A store of the thread's own value, whose place is the same."""
        return (Store(self.buffer, self.indices, self.value),)

    def rebuild(self, f: Callable[[Expr], Expr], inside: Callable[[Stmt], Stmt] = _same) -> Shuffle:
        """Indices and value rewritten."""
        return Shuffle(self.buffer, tuple(map(f, self.indices)), f(self.value), self.mask)

    def map_places(self, f: Callable[[Place], Place]) -> Shuffle:
        """The target element mapped."""
        buffer, indices = f((self.buffer, self.indices))
        return replace(self, buffer=buffer, indices=indices)
