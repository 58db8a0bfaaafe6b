"""Compiled models: graphs as native code that is called with arrays, profiled, saved and exported."""

from searchlab.graph.model.compiled_model import CompiledModel, RunnableModel
from searchlab.graph.model.compiling import compile
from searchlab.graph.model.options import CompileOptions

__all__ = ["CompileOptions", "CompiledModel", "RunnableModel", "compile"]
