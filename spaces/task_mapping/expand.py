"""A mapping on a symbolic worker: repeats open loops, spatials become arithmetic on the worker's number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from searchlab.ir.bounds import Facts
from searchlab.ir.expr import ONE, ZERO, Expr, Var, index
from spaces.task_mapping.mapping import Atom, Called, Custom, Index, Projection, Repeat, Spatial, by_rank, product


@dataclass(frozen=True)
class Expansion:
    """Where loops are opened: what is known there, how a loop is begun, and who is told that a loop begins a call."""

    facts: Callable[[], Facts]
    loop: Callable[[Expr, str], AbstractContextManager[Var]]
    called: Callable[[Var, str], None]

    def tasks(self, atoms: Sequence[Atom], worker: Expr) -> Iterator[Index]:
        """The task of a worker, once per copy of the body; what happens until the next step is inside the loops."""
        first, rest = atoms[0], atoms[1:]
        workers = product(a.workers for a in rest)
        scale = tuple(product(a.shape[d] for a in rest) for d in range(len(first.shape)))
        facts = self.facts()
        for outer in self._atom(first, facts.simplify(worker // workers)):
            if not rest:
                yield outer
                continue
            for inner in self.tasks(rest, facts.simplify(worker % workers)):
                yield tuple(o * s + i for o, s, i in zip(outer, scale, inner, strict=True))

    def _atom(self, atom: Atom, worker: Expr) -> Iterator[Index]:
        if isinstance(atom, Spatial):
            yield tuple(map(self.facts().simplify, atom.place(worker)))
        elif isinstance(atom, Custom):
            yield from atom.listed(worker)
        elif isinstance(atom, Projection):
            for task in self.tasks(atom.inner.atoms, worker):
                yield tuple(ZERO if d in atom.dims else i for d, i in enumerate(task))
        elif isinstance(atom, Repeat):
            yield from self._repeat(atom, by_rank(atom.ranks), {})
        elif isinstance(atom, Called):
            yield from self._call(atom, ())

    def _call(self, atom: Called, opened: tuple[Var, ...]) -> Iterator[Index]:
        if len(opened) == len(atom.loops):
            self.called(opened[0], atom.intrinsic)
            found: list[Expr] = [ZERO] * len(atom.shape)
            for (d, n), var in zip(atom.loops, opened, strict=True):
                found[d] = found[d] * n + var
            yield tuple(found)
            return
        with self.loop(index(atom.loops[len(opened)][1]), "serial") as var:
            yield from self._call(atom, (*opened, var))

    def _repeat(self, atom: Repeat, order: list[int], place: dict[int, Expr]) -> Iterator[Index]:
        left = [d for d in order if d not in place]
        if not left:
            yield tuple(place[d] for d in range(len(order)))
        elif atom.shape[left[0]] == ONE:
            yield from self._repeat(atom, order, {**place, left[0]: ZERO})
        else:
            with self.loop(atom.shape[left[0]], atom.kind) as var:
                yield from self._repeat(atom, order, {**place, left[0]: var})
