"""The inputs that candidates of a workload get, and what must come out; kept for as long as there is room."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from searchlab.errors import MeasureError
from searchlab.ir.expr import Expr, value_of
from searchlab.measure.workers.guard import Array, Guarded, mark
from searchlab.runtime.memory import placed
from searchlab.workloads import Workload

Arrays = Mapping[str, Array]
KEPT_BYTES = 1 << 30
KEPT_FAILURES = 64


@dataclass(frozen=True)
class DataKey:
    """What inputs and outputs depend on; those that are not checked need no reference."""

    workload: Workload
    seed: int
    check: bool


@dataclass(frozen=True)
class JobData:
    """The inputs of a workload and what its outputs should be.

    `guarded` and `outputs` are what a candidate is checked on: they lie between guard pages and are shared with its
    process, so that the process which holds the reference, and not the candidate's, judges them.
    """

    key: DataKey
    inputs: Arrays
    expected: Arrays | None
    guarded: Mapping[str, Guarded]
    outputs: Mapping[str, Guarded]

    @staticmethod
    def of(key: DataKey, inputs: Arrays, expected: Arrays | None) -> JobData:
        """Places inputs and expected outputs where candidates are checked and timed on them."""
        ready = {n: placed(x) for n, x in inputs.items()}
        if expected is None:
            return JobData(key, ready, None, {}, {})
        guarded = {n: Guarded.of(f"input '{n}'", x) for n, x in inputs.items()}
        outputs = {n: Guarded(f"output '{n}'", y.shape, y.dtype) for n, y in expected.items()}
        return JobData(key, ready, expected, guarded, outputs)

    @cached_property
    def nbytes(self) -> int:
        """The memory that it occupies."""
        shared = [g.array for g in (*self.guarded.values(), *self.outputs.values())]
        return sum(x.nbytes for x in (*self.inputs.values(), *(self.expected or {}).values(), *shared))

    @cached_property
    def forms(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Shape and dtype of every output."""
        program = self.key.workload.program
        buffers = {n: program.buffers[n] for n in program.outputs}
        return {n: (tuple(_number(e) for e in b.shape), b.dtype) for n, b in buffers.items()}

    def expect(self) -> None:
        """Makes ready for the next candidate."""
        self.damage()
        for g in self.outputs.values():
            mark(g.array)

    def damage(self) -> str | None:
        """What the last candidate wrote where it should not have; repaired on the way."""
        inputs = [g.damage(self.inputs[n]) for n, g in self.guarded.items()]
        outputs = [g.damage() for g in self.outputs.values()]
        return next((d for d in (*inputs, *outputs) if d is not None), None)

    def compare(self, outputs: Arrays) -> str | None:
        """What is wrong with these outputs."""
        return self.key.workload.check(outputs, self.inputs, self.expected)


def make_data(key: DataKey) -> tuple[Arrays, Arrays | None]:
    """Inputs and, if they are wanted, the outputs that belong to them."""
    inputs = {n: np.ascontiguousarray(x) for n, x in key.workload.inputs(key.seed).items()}
    return inputs, key.workload.reference(inputs) if key.check else None


class Kept:
    """The data of the workloads used last, as many as fit; also why data could not be made, so as not to try again."""

    def __init__(self) -> None:
        self._data: OrderedDict[DataKey, JobData] = OrderedDict()
        self._failures: OrderedDict[DataKey, str] = OrderedDict()

    def get(self, key: DataKey) -> JobData | str | None:
        """The data, or why there is none, or None if that is not known."""
        if key in self._data:
            self._data.move_to_end(key)
            return self._data[key]
        return self._failures.get(key)

    def put(self, data: JobData) -> None:
        """Keeps data, and drops what was used longest ago if there is no room."""
        self._data[data.key] = data
        while len(self._data) > 1 and sum(d.nbytes for d in self._data.values()) > KEPT_BYTES:
            self._data.popitem(last=False)

    def refuse(self, key: DataKey, why: str) -> None:
        """Takes note of why data cannot be made."""
        self._failures[key] = why
        while len(self._failures) > KEPT_FAILURES:
            self._failures.popitem(last=False)


def _number(extent: Expr) -> int:
    found = value_of(extent)
    if found is None:
        raise MeasureError(f"the size {extent} is not fixed; measure the workload at some sizes (workload.at)")
    return found
