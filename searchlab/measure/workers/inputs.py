"""Inputs and expected outputs of workloads, cached within a memory bound."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from searchlab.dtype import DTYPES
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
    """Everything that inputs and outputs depend on; jobs that are not checked need no reference."""

    workload: Workload
    seed: int
    check: bool


@dataclass(frozen=True)
class JobData:
    """The inputs of a workload and its expected outputs.

    A candidate is checked on `guarded` and `outputs`, which lie between guard pages and are shared with its process, so
    that the process that holds the reference, not the candidate's, judges them.
    """

    key: DataKey
    inputs: Arrays
    expected: Arrays | None
    guarded: Mapping[str, Guarded]
    outputs: Mapping[str, Guarded]

    @staticmethod
    def of(key: DataKey, inputs: Arrays, expected: Arrays | None) -> JobData:
        """Copies inputs and expected outputs to the memory on which candidates are checked and timed."""
        ready = {n: placed(x) for n, x in inputs.items()}
        if expected is None:
            return JobData(key, ready, None, {}, {})
        guarded = {n: Guarded.of(f"input '{n}'", x) for n, x in inputs.items()}
        outputs = {n: Guarded(f"output '{n}'", y.shape, y.dtype) for n, y in expected.items()}
        return JobData(key, ready, expected, guarded, outputs)

    @cached_property
    def nbytes(self) -> int:
        """Its memory in bytes."""
        shared = [g.array for g in (*self.guarded.values(), *self.outputs.values())]
        return sum(x.nbytes for x in (*self.inputs.values(), *(self.expected or {}).values(), *shared))

    @cached_property
    def forms(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Shape and numpy dtype of every output."""
        program = self.key.workload.program
        buffers = {n: program.buffers[n] for n in program.outputs}
        return {n: (tuple(_number(e) for e in b.shape), DTYPES[b.dtype].storage) for n, b in buffers.items()}

    def expect(self) -> None:
        """Resets the outputs for the next candidate."""
        self.damage()
        for g in self.outputs.values():
            mark(g.array)

    def damage(self) -> str | None:
        """A description of the last candidate's illegal writes, which are repaired; None if there were none."""
        inputs = [g.damage(self.inputs[n]) for n, g in self.guarded.items()]
        outputs = [g.damage() for g in self.outputs.values()]
        return next((d for d in (*inputs, *outputs) if d is not None), None)

    def compare(self, outputs: Arrays) -> str | None:
        """A description of the first error in these outputs; None if they are right."""
        return self.key.workload.check(outputs, self.inputs, self.expected)


def make_data(key: DataKey) -> tuple[Arrays, Arrays | None]:
    """The inputs and, if requested, the expected outputs."""
    inputs = {n: np.ascontiguousarray(x) for n, x in key.workload.inputs(key.seed).items()}
    return inputs, key.workload.reference(inputs) if key.check else None


class Kept:
    """An LRU cache of the data of workloads; it also keeps the errors of data that could not be made."""

    def __init__(self) -> None:
        self._data: OrderedDict[DataKey, JobData] = OrderedDict()
        self._failures: OrderedDict[DataKey, str] = OrderedDict()

    def get(self, key: DataKey) -> JobData | str | None:
        """The data, or the error that prevents it, or None if neither is cached."""
        if key in self._data:
            self._data.move_to_end(key)
            return self._data[key]
        return self._failures.get(key)

    def put(self, data: JobData) -> None:
        """Adds data, and evicts the least recently used if there is no room."""
        self._data[data.key] = data
        while len(self._data) > 1 and sum(d.nbytes for d in self._data.values()) > KEPT_BYTES:
            self._data.popitem(last=False)

    def refuse(self, key: DataKey, why: str) -> None:
        """Records why data cannot be made."""
        self._failures[key] = why
        while len(self._failures) > KEPT_FAILURES:
            self._failures.popitem(last=False)


def _number(extent: Expr) -> int:
    found = value_of(extent)
    if found is None:
        raise MeasureError(f"the size {extent} is not fixed; measure the workload at some sizes (workload.at)")
    return found
