"""`load_model`: a saved model, run by the code in its file; neither LLVM nor anything that compiles is needed."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from searchlab.errors import GraphError
from searchlab.graph.model.compiled_model import RunnableModel
from searchlab.graph.model.model_function import ModelFunction
from searchlab.graph.model.shared_library import facts_from_json, model_symbol, read_description
from searchlab.graph.vm.machine import GraphMachine
from searchlab.runtime.standalone.cpu_needs import cpu_flags


class LoadedModel(RunnableModel):
    """A model that was compiled elsewhere, or earlier."""

    def __init__(self, path: Path) -> None:
        about = read_description(path)
        flags = cpu_flags()
        if flags and (missing := sorted(set(about["needs"]) - flags)):
            raise GraphError(f"{path}: this CPU lacks {', '.join(missing)}, which the model was compiled for")
        name, functions, threads = about["name"], about["functions"], about["target"]["threads"]
        try:
            library = ctypes.CDLL(str(path.resolve()))
        except OSError as e:
            raise GraphError(f"{path}: cannot be loaded: {e}") from e

        def address(symbol: str) -> int:
            return ctypes.addressof(ctypes.c_char.in_dll(library, f"{name}_{symbol}"))

        machine = GraphMachine.at(address)
        self.name = name
        self.functions = {}
        for data in functions:
            facts = facts_from_json(data)
            symbol = model_symbol(name, facts.name, len(functions)).removeprefix(f"{name}_")
            self.functions[facts.name] = ModelFunction(facts, machine, address(symbol), threads, library)

    def __repr__(self) -> str:
        return f"<model {self.name}: {', '.join(map(repr, self.functions.values()))}>"


def load_model(path: str | os.PathLike[str]) -> LoadedModel:
    """The model that `save` wrote, or the library of an export."""
    return LoadedModel(Path(path))
