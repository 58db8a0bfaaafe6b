"""Functions of statements with a method for each kind that they treat specially."""

from __future__ import annotations

from typing import Any, ClassVar, Generic, ParamSpec, TypeVar

from searchlab.errors import IRError
from searchlab.ir.stmt import KINDS, Stmt

P = ParamSpec("P")
R = TypeVar("R")


class Visitor(Generic[P, R]):
    """Calls the method for the kind of a statement: `visit_loop` for a Loop.

    A kind without a method is treated as the kind that it derives from (an Update as a Store); `other` is called for
    those that have none at all.
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
        """What the method for the kind of the statement returns."""
        return self._methods[type(s)](self, s, *args, **kwargs)  # type: ignore[no-any-return]

    def other(self, s: Stmt, *args: P.args, **kwargs: P.kwargs) -> R:
        """Called for the kinds that have no method of their own."""
        raise IRError(f"{type(self).__name__} does not handle a {type(s).__name__.lower()}")


class Rewriter(Visitor[P, Stmt | None]):
    """A visitor that makes statements of statements; kinds without a method are kept around what is inside them."""

    def other(self, s: Stmt, *args: P.args, **kwargs: P.kwargs) -> Stmt | None:
        """The statement with those inside it rewritten."""
        return s.map_children(lambda child: self.visit(child, *args, **kwargs))
