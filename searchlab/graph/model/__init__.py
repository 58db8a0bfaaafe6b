"""Compiled models: graphs as native code that is called with arrays, profiled, saved and exported."""

from searchlab.graph.model.compiled_model import CompiledModel, RunnableModel
from searchlab.graph.model.compiling import compile
from searchlab.graph.model.options import CompileOptions
from searchlab.graph.model.saved_model import LoadedModel, load_model

__all__ = ["CompileOptions", "CompiledModel", "LoadedModel", "RunnableModel", "compile", "load_model"]
