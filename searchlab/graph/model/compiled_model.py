"""CompiledModel: the functions of a graph as native code, called with arrays."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.errors import GraphError
from searchlab.graph.functions import GraphModule
from searchlab.graph.model.c_export import export_model
from searchlab.graph.model.model_function import ModelFunction
from searchlab.graph.model.model_parts import ModelParts, facts_of
from searchlab.graph.model.profile import ModelProfile
from searchlab.graph.model.shared_library import write_library
from searchlab.graph.vm.bytecode import ByteCode, Reference
from searchlab.graph.vm.lowering import LoweredFunction
from searchlab.graph.vm.machine import GraphMachine, machine
from searchlab.llvm.jit import LoadedObject
from searchlab.registry import nearest
from searchlab.runtime.memory import placed_together
from searchlab.runtime.threadpool import parallel_for_address

Array = npt.NDArray[Any]
MAIN = "main"


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

    def profile(self, *inputs: Any, repeats: int = 5) -> ModelProfile:
        """The time of every call: the median of several runs.  It prints as a table."""
        return self.entry.profile(*inputs, repeats=repeats)


class CompiledModel(RunnableModel):
    """A model in the process that compiled it; `lowered` is the graph of kernels that it runs, without constants."""

    def __init__(self, parts: ModelParts, lowered: GraphModule) -> None:
        parts = replace(parts, constants=placed_together(parts.constants))
        self.parts, self.lowered = parts, lowered
        threads = parts.target.threads
        self._objects = {name: LoadedObject(k.code, parts.target) for name, k in parts.kernels.items()}
        pool = parallel_for_address(threads) if parts.parallel else 0
        loaded, self._builtins = machine()
        self.functions = {
            name: self._function(function, loaded, pool, threads) for name, function in parts.functions.items()
        }

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the model to one file, which `load_model` reads without anything that compiles."""
        write_library(self.parts, Path(path), "model")
        return Path(path)

    def export_c(self, folder: str | os.PathLike[str], name: str = "model") -> Path:
        """Writes a shared library with a header and a README, by which C programs run the model."""
        return export_model(self.parts, Path(folder), name)

    def _function(self, function: LoweredFunction, loaded: GraphMachine, pool: int, threads: int) -> ModelFunction:
        image = _Image(function.code, [self._address(w) for w in function.code.registers], pool)
        return ModelFunction(
            facts_of(function), loaded, image.address, threads, (self._objects, self.parts.constants, image)
        )

    def kernel_address(self, symbol: str) -> int:
        """Where the code of a kernel is, as long as the model exists."""
        return self._objects[symbol].address(symbol)

    def _address(self, word: int | Reference) -> int:
        if isinstance(word, int):
            return word
        if word.kind == "builtin":
            return self._builtins[word.name]
        if word.kind == "kernel":
            return self.kernel_address(word.name)
        return int(self.parts.constants[word.name].ctypes.data)


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
