"""A function of a compiled model, callable on arrays: arguments to descriptors, a run of the machine, results back."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from struct import Struct
from typing import Any

import numpy as np

from searchlab.errors import GraphError
from searchlab.graph.annotations import Annotation, TupleType
from searchlab.graph.model.callbacks import Callbacks
from searchlab.graph.model.exchange import Passed, converter, dtype_name, flatten, passed, received
from searchlab.graph.model.profile import ModelProfile
from searchlab.graph.vm.bytecode import Check
from searchlab.graph.vm.call_sites import CallFacts, LibrarySite
from searchlab.graph.vm.machine import (
    DESCRIPTOR_WORDS,
    DIVISION,
    DTYPE_AT,
    EVENTS,
    FIELDS,
    LIBRARY_FAILED,
    MISMATCH,
    MOST_AXES,
    NO_MEMORY,
    OVERFLOW,
    RANK_AT,
    SHAPE_AT,
    GraphMachine,
)

_ENDS = tuple((0,) * (DESCRIPTOR_WORDS - SHAPE_AT - rank) for rank in range(MOST_AXES + 1))  # after the extents
_AT = {name: 8 * number for number, name in enumerate(FIELDS)}


@dataclass(frozen=True)
class FunctionFacts:
    """What callers of a function of a model see: what it takes and gives, and what its parts are called."""

    name: str
    parameters: tuple[tuple[str, Annotation], ...]
    result: Annotation
    storages: tuple[str, ...]
    libraries: tuple[LibrarySite, ...]
    symbols: Mapping[str, int]
    calls: tuple[CallFacts, ...]
    checks: Mapping[int, Check]


class _State:
    """The memory of one call at a time, and the library functions that it calls."""

    def __init__(
        self, machine: GraphMachine, model: int, threads: int, libraries: Sequence[LibrarySite], sizes: tuple[int, int]
    ) -> None:
        found = machine.create(model, threads)
        if not found:
            raise MemoryError("there is no memory for another call of the model")
        self.address = int(found)
        self.inputs, self.outputs = ((ctypes.c_int64 * size)() for size in sizes)  # descriptors
        self.callbacks = Callbacks(libraries) if libraries else None
        if self.callbacks is not None:
            self.put("library", self.callbacks.address)
        # At exit the system frees everything, and the machine may be gone.
        weakref.finalize(self, machine.destroy, self.address).atexit = False

    def put(self, field: str, value: int) -> None:
        """Sets a word of the state."""
        ctypes.c_int64.from_address(self.address + _AT[field]).value = value

    def get(self, field: str) -> int:
        """A word of the state."""
        return int(ctypes.c_int64.from_address(self.address + _AT[field]).value)

    def register(self, number: int) -> int:
        """A register, as the last run left it."""
        return int(ctypes.c_int64.from_address(self.address + 8 * (len(FIELDS) + number)).value)


@dataclass(frozen=True)
class RunRecord:
    """What was observed of one run: times in nanoseconds at which calls began, events of memory, values of symbols.

    `kernels` are those that ran, by the result of their call.
    """

    result: Any
    times: tuple[int, ...]
    events: tuple[tuple[str, str, int], ...]
    sizes: Mapping[str, int]
    kernels: Mapping[str, str]


class ModelFunction:
    """A function of a compiled model; several threads may call it at once, each in a state of its own."""

    def __init__(self, facts: FunctionFacts, machine: GraphMachine, model: int, threads: int, keep: object) -> None:
        self.facts, self.threads = facts, threads
        self._machine, self._model, self._keep = machine, model, keep
        self._states: list[_State] = []
        self._parameters = [(f"{facts.name}: {p}", annotation) for p, annotation in facts.parameters]
        counts = sum(_count(a) for _, a in facts.parameters), _count(facts.result)
        self._inputs, self._outputs = (Struct(f"{n * DESCRIPTOR_WORDS}q") for n in counts)

    def __repr__(self) -> str:
        taken = ", ".join(f"{name}: {annotation}" for name, annotation in self.facts.parameters)
        return f"<{self.facts.name}({taken}) -> {self.facts.result}>"

    def __call__(self, *args: Any) -> Any:
        """The results for arrays of numpy, of torch or with `__dlpack__`, as arrays of the same kind."""
        state = self._state()
        try:
            return self._run(state, args)
        finally:
            self._states.append(state)

    def observed(self, *args: Any, poison: bool = False) -> RunRecord:
        """A run of which times and events of memory are noted; `poison` fills memory that nobody should read."""
        return self.observed_series([args], poison)[0]

    def observed_series(self, series: Sequence[Sequence[Any]], poison: bool = False) -> list[RunRecord]:
        """Runs one after the other in one state, so that later ones use the memory of earlier ones again."""
        state = self._new_state()
        state.put("poison", int(poison))
        return [self._observe(state, args) for args in series]

    def _observe(self, state: _State, args: Sequence[Any]) -> RunRecord:
        facts = self.facts
        times = np.zeros(len(facts.calls) + 1, np.int64)
        log = np.zeros((2 * len(facts.storages) + 1, 3), np.int64)
        for field, value in (("times", times.ctypes.data), ("log", log.ctypes.data), ("logged", 0)):
            state.put(field, value)
        result = self._run(state, args)
        events = tuple((EVENTS[e], facts.storages[s], int(n)) for e, s, n in log[: state.get("logged")])
        sizes = {name: state.register(number) for name, number in facts.symbols.items()}
        ran = {c.name: _kernel(state, c) for c, t in zip(facts.calls, times, strict=False) if t and c.kernels}
        return RunRecord(result, tuple(times.tolist()), events, sizes, ran)

    def profile(self, *args: Any, repeats: int = 5) -> ModelProfile:
        """The time of every call of the function: the median of several runs."""
        state = self._new_state()
        # Results are dropped at once: who kept them all would time the faults of new pages.
        runs = [replace(self._observe(state, args), result=None) for _ in range(repeats + 1)]
        del runs[0]  # which had memory to acquire
        return ModelProfile.of(self.facts.name, self.facts.calls, runs[0].sizes, [run.times for run in runs])

    def _state(self) -> _State:
        try:
            return self._states.pop()
        except IndexError:
            return self._new_state()

    def _new_state(self) -> _State:
        sizes = self._inputs.size // 8, self._outputs.size // 8
        return _State(self._machine, self._model, self.threads, self.facts.libraries, sizes)

    def _run(self, state: _State, args: Sequence[Any]) -> Any:
        # Every line here runs with cold caches if the model is large; what can be prepared is in the constructor.
        given, first = self._arguments(args)
        words: list[int] = []
        for p in given:
            words += (p.address, p.dtype, len(p.shape), *p.shape, *_ENDS[len(p.shape)])
        self._inputs.pack_into(state.inputs, 0, *words)
        ctypes.memset(state.outputs, 0, self._outputs.size)
        status = self._machine.call(state.address, state.inputs, state.outputs)
        if status:
            raise self._error(state, status)
        convert, found, made = converter(first), self._outputs.unpack_from(state.outputs), []
        for at in range(0, len(found), DESCRIPTOR_WORDS):
            shape = found[at + SHAPE_AT : at + SHAPE_AT + found[at + RANK_AT]]
            made.append(received(found[at], found[at + DTYPE_AT], shape, convert))
        return _nested(self.facts.result, made)

    def _arguments(self, args: Sequence[Any]) -> tuple[list[Passed], Any]:
        """The arguments as the machine takes them, and the first array among them."""
        if len(self._parameters) != len(args):
            names = ", ".join(p for p, _ in self.facts.parameters)
            raise GraphError(f"{self.facts.name} takes ({names}), got {len(args)} values")
        given, first = [], None
        for (where, annotation), value in zip(self._parameters, args, strict=True):
            for place, part, item in flatten(where, annotation, value):
                made = passed(place, part, item)
                first = item if first is None and made.keep is not None else first
                given.append(made)
        return given, first

    def _error(self, state: _State, status: int) -> Exception:
        check = self.facts.checks.get(state.get("pc"), Check(self.facts.name))
        got, expected = state.get("got"), state.get("expected")
        if status == LIBRARY_FAILED and state.callbacks is not None and state.callbacks.error is not None:
            raised, state.callbacks.error = state.callbacks.error, None
            if not isinstance(raised, Exception):
                raise raised
            error = GraphError(f"{check.what}: {raised}")
            error.__cause__ = raised
            return error
        return GraphError(message(check, status, got, expected))


def message(check: Check, status: int, got: int, expected: int) -> str:
    """What was wrong with a run, where, and what would have been accepted."""
    if status == NO_MEMORY:
        return f"{check.what}: {got} bytes are not available"
    if status in (DIVISION, OVERFLOW):
        return f"{check.what} {'divides by zero' if status == DIVISION else 'is too large for 64 bits'}"
    if status != MISMATCH:
        return f"{check.what}: the machine stopped with code {status}"
    if check.kind == "dtype":
        return f"{check.what} holds {dtype_name(got)}, expected {dtype_name(expected)}"
    if check.kind == "rank":
        return f"{check.what} has {got} axes, expected {expected}"
    if check.kind == "range":
        return f"{check.what} = {got} is out of its range, {check.wanted}"
    return f"{check.what} is {got}, expected {check.wanted}{expected}"


def _kernel(state: _State, call: CallFacts) -> str:
    """The kernel of a call that ran."""
    chosen = (kernel for kernel, r in zip(call.kernels, call.chosen_by, strict=False) if state.register(r))
    return next(chosen, call.kernels[-1])


def _count(annotation: Annotation) -> int:
    return sum(map(_count, annotation.parts)) if isinstance(annotation, TupleType) else 1


def _nested(annotation: Annotation, made: Sequence[Any]) -> Any:
    """The results in the form of the annotation."""
    if not isinstance(annotation, TupleType):
        return made[0]
    if len(annotation.parts) == len(made) and not any(isinstance(p, TupleType) for p in annotation.parts):
        return tuple(made)
    ends = [0, *accumulate(map(_count, annotation.parts))]
    return tuple(_nested(p, made[a:b]) for p, (a, b) in zip(annotation.parts, pairwise(ends), strict=True))
