"""Visitors: functions of statements with one method per kind that needs special treatment."""

from __future__ import annotations

from typing import Any, ClassVar, Generic, ParamSpec, TypeVar

from searchlab.errors import IRError
from searchlab.ir.stmt import KINDS, Stmt

P = ParamSpec("P")
R = TypeVar("R")


class Visitor(Generic[P, R]):
    """Calls the method for the kind of a statement: `visit_loop` for a Loop.

    A kind without a method is treated as its base class (an Update as a Store); `other` is called if no base class has
    a method either.
    """

    _methods: ClassVar[dict[type[Stmt], Any]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._methods = {kind: cls._method(kind) for kind in KINDS}

    @classmethod
    def _method(cls, kind: type[Stmt]) -> Any:
        names = (f"visit_{base.__name__.lower()}" for base in kind.__mro__)
        return next((getattr(cls, name) for name in names if hasattr(cls, name)), cls.other)

    def visit(self, s: Stmt, *args: P.args, **kwargs: P.kwargs) -> R:
        """Dispatches to the method for the kind of the statement."""
        kind = type(s)
        if kind not in self._methods:  # of another module
            self._methods[kind] = self._method(kind)
        return self._methods[kind](self, s, *args, **kwargs)  # type: ignore[no-any-return]

    def other(self, s: Stmt, *args: P.args, **kwargs: P.kwargs) -> R:
        """The fallback for kinds without a method."""
        raise IRError(f"{type(self).__name__} does not handle a {type(s).__name__.lower()}")


class Rewriter(Visitor[P, Stmt | None]):
    """A visitor that returns statements; kinds without a method are rebuilt around their rewritten children."""

    def other(self, s: Stmt, *args: P.args, **kwargs: P.kwargs) -> Stmt | None:
        """The statement with its children rewritten."""
        return s.map_children(lambda child: self.visit(child, *args, **kwargs))
