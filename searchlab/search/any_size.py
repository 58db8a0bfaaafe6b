"""AnySize: the programs of a space's points for every size, not only the one that the space was made for.

A sketch is transferred once, with its knobs as symbols; its points are then substitution, as everywhere.
"""

from __future__ import annotations

from searchlab.errors import ScheduleError, SpaceError
from searchlab.ir.program import Program
from searchlab.schedule.transfer import transfer
from searchlab.search.points import Points
from searchlab.search.sketch import Sketch
from searchlab.search.space import Space


class AnySize:
    """The points of a space, made for one size, as programs whose size is known only at run time.

    `plain` is the workload's program with the run-time size.
    """

    def __init__(self, space: Space, plain: Program) -> None:
        self.space, self._plain = space, plain
        self._sketches: dict[int, Sketch | str] = {}  # by number; the reason, where there is none

    def program(self, point: Points) -> Program:
        """The program of a point; raises SpaceError if its schedule cannot be used for every size."""
        number = int(point.sketch[0])
        found = self._sketch(number)
        if isinstance(found, str):
            name = self.space.sketches[number].name
            raise SpaceError(f"space '{self.space.name}': '{name}' cannot be used for every size: {found}")
        values = {s: int(v[0]) for s, v in self.space.values(point).items() if s in found.symbols}
        try:
            return found.substitute(values)
        except ScheduleError as e:
            raise SpaceError(f"space '{self.space.name}': {self.space.text(point)}: {e}") from e

    def require(self) -> None:
        """Raises SpaceError, with the reason, if none of the structures can be used for every size."""
        reasons = []
        for number in range(len(self.space.sketches)):
            found = self._sketch(number)
            if not isinstance(found, str):
                return
            reasons.append(found)
        raise SpaceError(f"space '{self.space.name}' has no structure that can be used for every size: {reasons[0]}")

    def _sketch(self, number: int) -> Sketch | str:
        if number not in self._sketches:
            self._sketches[number] = self._transferred(self.space.sketches[number])
        return self._sketches[number]

    def _transferred(self, sketch: Sketch) -> Sketch | str:
        if sketch.program is None:
            return "its points are recorded, not built"
        try:
            program = transfer(sketch.program, self._plain)
        except ScheduleError as e:
            return str(e)
        return Sketch(sketch.name, sketch.knobs, sketch.constraints, program)
