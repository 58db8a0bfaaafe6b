"""TraceSpace: a space whose points are traces too."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from searchlab.errors import SpaceError
from searchlab.search import Points, Sketch, Space, Task
from searchlab.search.knob import Floats
from spaces.probabilistic.mutators import DEFAULT_MUTATORS, MutateComputeLocation, Mutator, mutate
from spaces.probabilistic.replaying import decide, perform
from spaces.probabilistic.structures import Structure
from spaces.probabilistic.trace import Trace


class TraceSpace(Space):
    """A Space of the structures of a probabilistic program; `trace` and `point_of` lead from one view to the other."""

    def __init__(
        self,
        task: Task,
        structures: Sequence[Structure],
        name: str,
        version: str,
        mutators: Sequence[Mutator] = DEFAULT_MUTATORS,
    ) -> None:
        super().__init__([s.sketch for s in structures], name, version, task.target)
        self.plain = task.program
        self.structures = tuple(structures)
        self.mutators = tuple(mutators)
        self._by_key = {s.key: n for n, s in reversed(list(enumerate(self.structures)))}

    # --- points and traces --------------------------------------------------------------------------------------------

    def trace(self, point: Points) -> Trace:
        """The whole trace of a point; replayed on the plain program it gives the program of the point."""
        found = self.structures[int(self._one(point).sketch[0])]
        return found.decided(point.options[0, : len(found.sketch.knobs)].tolist())

    def point_of(self, trace: Trace) -> Points:
        """The point of a trace with all its decisions."""
        n = self._find(trace)
        sketch = self.structures[n].sketch
        drawn = {i.name for i in self.structures[n].trace.draws()}
        row = [n]
        for k in sketch.knobs:
            if k.name not in drawn:  # the one of a structure with nothing to choose
                row.append(0)
                continue
            if k.name not in trace.decisions:
                raise SpaceError(f"space '{self.name}': the trace has no decision for '{k.name}'; complete it first")
            value = trace.decisions[k.name].value
            row.append(k.option(value) if isinstance(value, tuple) else value)
        point = Points.of([row], self.width)
        if not self.valid(point).all():
            raise SpaceError(f"space '{self.name}': the decisions of the trace break a condition of '{sketch.name}'")
        return point

    def complete(self, trace: Trace, rng: np.random.Generator | None = None) -> Trace:
        """A trace after a change: repaired, with the post-processing of its structure, and missing draws drawn."""
        short = trace.simplified()
        if short.structure not in self._by_key:
            short = Trace(short.instructions, {**trace.decisions, **perform(self.plain, short, rng).decisions})
        found = self.structures[self._find(short)]
        whole = Trace(found.trace.instructions, {**found.trace.decisions, **short.decisions})
        return decide(found.schedule, whole, rng)[0]

    def _find(self, trace: Trace) -> int:
        found = self._by_key.get(trace.simplified().structure)
        if found is None:
            raise SpaceError(f"space '{self.name}': the trace belongs to none of its {len(self.structures)} structures")
        return found

    # --- moves --------------------------------------------------------------------------------------------------------

    def mutate_trace(self, trace: Trace, rng: np.random.Generator) -> Trace | None:
        """The trace after one mutator, completed; None if nothing could be changed.

        Raises ScheduleError or SpaceError where the change leads out of the space: such a candidate is rejected.
        """
        changed = mutate(trace, self.mutators, rng)
        return None if changed is None else self.complete(changed, rng)

    def mutate(
        self,
        points: Points,
        rng: np.random.Generator,
        local: float = 0.5,
        structure: float | None = None,
        weights: Callable[[Sketch], Floats] | None = None,
    ) -> Points:
        """As for every space; which knob changes, and how often the structure, follows from the mutators' shares."""
        if structure is None:
            moving = sum(m.share for m in self.mutators if isinstance(m, MutateComputeLocation))
            structure = moving / sum(m.share for m in self.mutators)
        return super().mutate(points, rng, local, structure, weights or self._weights)

    def _weights(self, sketch: Sketch) -> Floats:
        """How often each knob changes: a mutator's share is spread evenly over the knobs that it changes."""
        weights = np.zeros(len(sketch.knobs))
        for m in self.mutators:
            mine = np.array([m.changes(k) for k in sketch.knobs])
            weights += mine * (m.share / max(mine.sum(), 1))
        return weights if weights.any() else np.ones(len(sketch.knobs))

    def log_prior(self, points: Points) -> Floats:
        """The logarithm of every point's probability under the draws of the program, as `Trace.log_prior` gives it."""
        result = np.zeros(len(points))
        for n, structure in enumerate(self.structures):
            rows = np.flatnonzero(points.sketch == n)
            if not len(rows):
                continue
            whole, tables = structure.log_priors
            own = points.options[rows]
            result[rows] = whole + sum(t[own[:, k]] for k, t in enumerate(tables))
        return result
