"""A second back end for tests: programs for "interpreted" machines run in the interpreter, with memory of their own.

Inputs are copied to the machine when runs are made ready, and outputs come back only when they are asked for, as on a
device whose memory is not the host's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from searchlab.backend import Allocate, Array, Arrays, Artifact, Backend, Kernel, Runs
from searchlab.errors import BuildError, KernelError, TargetError
from searchlab.ir.interpret import interpret
from searchlab.ir.program import Program
from searchlab.lower.passes import Lowered, lower
from searchlab.runtime.kernel import pack
from searchlab.targets import Target


@dataclass(frozen=True, slots=True)
class InterpretedTarget(Target):
    """A machine that runs programs as they are written."""

    kind: ClassVar[str] = "interpreted"
    backend: ClassVar[str] = "interpreter_backend:InterpreterBackend"

    vector_registers: int = 16
    threads: int = 1

    @property
    def name(self) -> str:
        return "interpreter"

    def lanes(self, dtype: str) -> int:
        return 4

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return ("interpreter",)

    @classmethod
    def named(cls, name: str, options: Mapping[str, Any]) -> InterpretedTarget:
        if options:
            raise TargetError(f"target {name!r} has no options")
        return cls()


class InterpretedKernel(Kernel):
    """Programs as Python loops; constants are kept in the layouts that the schedule gave them."""

    def __init__(self, artifact: Artifact, constants: Arrays | None = None) -> None:
        self.artifact = artifact
        self._constants = dict(constants or {})
        self._layouts = {la.buffer: la for la in artifact.layouts}

    def bind(self, **constants: Any) -> InterpretedKernel:
        known = {b.name for b in self.artifact.inputs}
        if unknown := set(constants) - known:
            raise KernelError(f"no input {', '.join(sorted(unknown))}")
        return InterpretedKernel(self.artifact, self._constants | {n: self._packed(n, x) for n, x in constants.items()})

    def prepare(self, *arrays: Any, out: Any = None) -> tuple[Callable[[], None], tuple[Array, ...]]:
        given = [b.name for b in self.artifact.inputs if b.name not in self._constants]
        if len(arrays) != len(given):
            raise KernelError(f"{self.artifact.name} takes {len(given)} inputs, got {len(arrays)}")
        made = [np.empty([int(str(e)) for e in b.shape], b.dtype) for b in self.artifact.outputs]
        outputs = made if out is None else list(out) if isinstance(out, (tuple, list)) else [out]
        named = dict(zip((b.name for b in self.artifact.outputs), outputs, strict=True))
        runs = self.ready(dict(zip(given, arrays, strict=True)), self._constants, named, lambda n: (0, None))

        def run() -> None:
            runs()
            runs.read_back()

        return run, tuple(outputs)

    def pack(self, inputs: Arrays) -> dict[str, Array]:
        return {name: self._packed(name, inputs[name]) for name in self._layouts}

    def ready(self, inputs: Arrays, packed: Arrays, outputs: Arrays, allocate: Allocate) -> InterpretedRuns:
        there = {n: x.copy() for n, x in packed.items()}
        there |= {n: self._packed(n, x).copy() for n, x in inputs.items() if n not in packed}
        return InterpretedRuns(self.program, there, outputs)

    def _packed(self, name: str, array: Array) -> Array:
        layout, buffer = self._layouts.get(name), self.program.buffers[name]
        given = buffer if layout is None else layout.original
        if array.dtype != given.dtype or array.shape != tuple(int(str(e)) for e in given.shape):
            raise KernelError(f"{self.artifact.name}: input '{name}' has another shape or type than it should")
        return array if layout is None else pack(layout, buffer, array)


class InterpretedRuns(Runs):
    """A program with its data on the machine."""

    def __init__(self, program: Program, inputs: Arrays, outputs: Arrays) -> None:
        self._program, self._inputs, self._outputs = program, inputs, outputs
        self._results: dict[str, Array] = {}

    def __call__(self, count: int = 1) -> None:
        for _ in range(count):
            self._results = interpret(self._program, self._inputs)

    def read_back(self) -> None:
        for name, array in self._results.items():
            self._outputs[name][...] = array


class InterpreterBackend(Backend):
    """Nothing is compiled: an artifact is the program itself."""

    def lower(self, program: Program, target: Target) -> Lowered:
        return lower(program, target)

    def build(self, program: Program, target: Target) -> Artifact:
        if program.symbols:
            raise BuildError(f"{program.name} still has symbols: {', '.join(v.name for v in program.symbols)}")
        return Artifact(program, target)

    def load(self, artifact: Artifact) -> InterpretedKernel:
        return InterpretedKernel(artifact)

    def require(self, target: Target) -> None:
        if target.kind != InterpretedTarget.kind:
            raise BuildError(f"{target.name} is not interpreted")
