"""CompiledModel: the functions of a graph as native code, called with arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.errors import GraphError
from searchlab.graph.model.model_function import FunctionFacts, ModelFunction
from searchlab.graph.vm.bytecode import ByteCode, Reference
from searchlab.graph.vm.lowering import LoweredFunction
from searchlab.graph.vm.machine import GraphMachine, machine
from searchlab.llvm.jit import LoadedObject
from searchlab.registry import nearest
from searchlab.runtime.kernel import CpuArtifact
from searchlab.runtime.memory import placed
from searchlab.runtime.threadpool import parallel_for_address
from searchlab.targets import CpuTarget

Array = npt.NDArray[Any]
MAIN = "main"


@dataclass(frozen=True)
class ModelParts:
    """What a model consists of, as data: byte code of functions, kernels by symbol, constants as kernels read them."""

    target: CpuTarget
    functions: Mapping[str, LoweredFunction]
    kernels: Mapping[str, CpuArtifact]
    constants: Mapping[str, Array]


class RunnableModel:
    """Functions by name; calling a model calls `main`, or its only function."""

    functions: Mapping[str, ModelFunction]

    def __getitem__(self, name: str) -> ModelFunction:
        if name not in self.functions:
            raise GraphError(f"the model has no function '{name}'{nearest(name, self.functions, 'its functions')}")
        return self.functions[name]

    @cached_property
    def entry(self) -> ModelFunction:
        """The function that is meant if none is named."""
        if len(self.functions) == 1:
            return next(iter(self.functions.values()))
        return self[MAIN]

    def __call__(self, *inputs: Any) -> Any:
        """The results for arrays of numpy, of torch or with `__dlpack__`, as arrays of the same kind."""
        return self.entry(*inputs)


class CompiledModel(RunnableModel):
    """A model in the process that compiled it."""

    def __init__(self, parts: ModelParts) -> None:
        self.parts = parts
        threads = parts.target.threads
        self._objects = {name: LoadedObject(k.code, parts.target) for name, k in parts.kernels.items()}
        self._constants = {n: a if a.ctypes.data % 64 == 0 else placed(a) for n, a in parts.constants.items()}
        parallel = any(k.parallel for k in parts.kernels.values())
        pool = parallel_for_address(threads) if parallel else 0
        loaded = machine()
        self.functions = {
            name: self._function(function, loaded, pool, threads) for name, function in parts.functions.items()
        }

    def _function(self, function: LoweredFunction, loaded: GraphMachine, pool: int, threads: int) -> ModelFunction:
        image = _Image(function.code, [self._address(loaded, w) for w in function.code.registers], pool)
        return ModelFunction(
            facts_of(function), loaded, image.address, threads, (self._objects, self._constants, image)
        )

    def _address(self, loaded: GraphMachine, word: int | Reference) -> int:
        if isinstance(word, int):
            return word
        if word.kind == "builtin":
            return loaded.builtins[word.name]
        if word.kind == "kernel":
            return self._objects[word.name].address(word.name)
        return int(self._constants[word.name].ctypes.data)


def facts_of(f: LoweredFunction) -> FunctionFacts:
    """What callers of a function see."""
    return FunctionFacts(f.name, f.parameters, f.result, f.storages, f.libraries, f.symbols, f.calls, f.code.checks)


class _Image:
    """Byte code in memory, as the machine reads it."""

    def __init__(self, code: ByteCode, registers: list[int], pool: int) -> None:
        self._code = np.array(code.words, np.int64)
        self._template = np.array(registers, np.int64)
        self._model = np.array(
            [self._code.ctypes.data, self._template.ctypes.data, len(registers), code.window, code.cleanup, pool],
            np.int64,
        )

    @property
    def address(self) -> int:
        """Where the machine finds it."""
        return int(self._model.ctypes.data)
