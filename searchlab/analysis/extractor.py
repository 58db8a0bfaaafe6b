"""extractor: a program with symbols in, a function from their values to features out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.analysis import code_view, curve_view, estimate_view, loop_view, statement_view, summary_view, tree_view
from searchlab.analysis.columns import Floats, Schema, Tree
from searchlab.analysis.compiled import ColumnFunction
from searchlab.analysis.graph import Node
from searchlab.analysis.nest import Nest
from searchlab.errors import IRError
from searchlab.ir.program import Program
from searchlab.targets import Target


@dataclass(frozen=True)
class View:
    """A kind of features: its schema, and how its columns are made; `rows` of them for one candidate."""

    schema: Schema
    columns: Callable[[Nest, Target | None], list[Node]]
    plain: frozenset[str] = frozenset()  # columns without the logarithm
    rows: Callable[[Nest], int] | None = None


VIEWS = {
    "statements": View(
        statement_view.SCHEMA, lambda nest, _: statement_view.columns(nest), rows=lambda n: len(n.statements)
    ),
    "loops": View(loop_view.SCHEMA, lambda nest, _: loop_view.columns(nest), loop_view.PLAIN),
    "curves": View(curve_view.SCHEMA, lambda nest, _: curve_view.columns(nest), curve_view.PLAIN),
    "tree": View(tree_view.SCHEMA, lambda nest, _: tree_view.columns(nest), rows=lambda n: len(tree_view.nodes(n))),
    "summary": View(summary_view.SCHEMA, summary_view.columns),
    "estimate": View(estimate_view.SCHEMA, estimate_view.columns),
    "code": View(code_view.SCHEMA, code_view.columns),
}


def schema(view: str) -> Schema:
    """The columns of a view."""
    return _view(view).schema


def extractor(program: Program, view: str, target: Target | None = None) -> Extractor:
    """The function that gives the features of a view for all values of a program's symbols.

    `target` says how large caches and registers are, for the views that ask; without it, those of an ordinary machine.
    """
    return Extractor(program, view, target)


class Extractor:
    """Features of a population: (candidates, width), (candidates, rows, width) or a Tree, as the view has it."""

    def __init__(self, program: Program, view: str, target: Target | None = None) -> None:
        found = _view(view)
        nest = Nest(program)
        self.schema = found.schema
        self.rows = None if found.rows is None else found.rows(nest)
        names = found.schema.columns * (self.rows or 1)
        self.function = ColumnFunction(
            found.columns(nest, target), frozenset(n for n, c in enumerate(names) if c in found.plain)
        )
        self._topology = tree_view.topology(nest) if view == "tree" else None

    def __call__(self, values: Mapping[str, Any], dtype: npt.DTypeLike = np.float32) -> Any:
        """The features of all candidates; `values` maps every symbol to their integers."""
        found = self.function(values, dtype)
        if self.rows is None:
            return found
        shaped: Floats = found.reshape(len(found), self.rows, self.schema.width)
        return shaped if self._topology is None else Tree(*self._topology, shaped)


def _view(name: str) -> View:
    if name not in VIEWS:
        raise IRError(f"unknown view '{name}'; known: {', '.join(VIEWS)}")
    return VIEWS[name]
