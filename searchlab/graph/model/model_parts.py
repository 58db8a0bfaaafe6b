"""What a model consists of, as data that is loaded, saved or exported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from searchlab.graph.model.model_function import FunctionFacts
from searchlab.graph.vm.lowering import LoweredFunction
from searchlab.runtime.kernel import CpuArtifact
from searchlab.targets import CpuTarget


@dataclass(frozen=True)
class ModelParts:
    """Byte code of functions by name, kernels by symbol, and constants as kernels read them."""

    target: CpuTarget
    functions: Mapping[str, LoweredFunction]
    kernels: Mapping[str, CpuArtifact]
    constants: Mapping[str, npt.NDArray[Any]]

    @property
    def parallel(self) -> bool:
        """Whether a kernel has parallel loops."""
        return any(k.parallel for k in self.kernels.values())


def facts_of(f: LoweredFunction) -> FunctionFacts:
    """What callers of a function see."""
    return FunctionFacts(f.name, f.parameters, f.result, f.storages, f.libraries, f.symbols, f.calls, f.code.checks)
