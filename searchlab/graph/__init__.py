"""Graphs: immutable functions of calls with symbolic shapes, above tensor programs and below the laboratory.

    b = GraphBuilder("main")
    x = b.input("x", (size("n"), 8))
    module = b.build(b.softmax(x))
    evaluate_graph(module, array)

`docs/graphs.md` explains the concepts, and how to add an operator.
"""

from searchlab.graph import ops
from searchlab.graph.annotations import Annotation, ObjectType, ShapeType, TensorType, TupleType, tensor
from searchlab.graph.building import GraphBuilder, GraphValue
from searchlab.graph.calls import (
    BranchCall,
    Extents,
    FunctionCall,
    GraphCall,
    ItemCall,
    LibraryCall,
    MatchCast,
    Operand,
    OperatorCall,
    ProgramCall,
    Scalar,
    TupleCall,
)
from searchlab.graph.deduction import TypeScope, deduced, scope_of
from searchlab.graph.evaluation import evaluate_graph
from searchlab.graph.functions import Binding, Constant, GraphFunction, GraphModule, GraphParameter
from searchlab.graph.graph_json import graph_from_json, graph_to_json, load_graph, save_graph
from searchlab.graph.legalising import legalise, operator_program
from searchlab.graph.library import GRAPH_LIBRARIES, GraphLibrary, library, library_function, library_functions
from searchlab.graph.model import CompiledModel, CompileOptions, LoadedModel, RunnableModel, compile, load_model
from searchlab.graph.model_source import ExampleCall, ModelSource, model_source
from searchlab.graph.onnx_import import from_onnx
from searchlab.graph.operator import (
    Dim,
    Dims,
    GraphOperator,
    Ints,
    Number,
    graph_operator,
    graph_operators,
    operator_named,
)
from searchlab.graph.ops.pointwise_op import PointwiseOp
from searchlab.graph.passes import numpy_library, torch_library
from searchlab.graph.passes.library_dispatch import LibraryPattern, PatternMatch, dispatch_libraries
from searchlab.graph.passes.quantising import quantise_weights
from searchlab.graph.passes.size_split import split_by_size
from searchlab.graph.symbols import SizeFacts, SizeRange
from searchlab.graph.tasks import GraphTask, graph_tasks, model_tasks
from searchlab.graph.torch_import import from_torch
from searchlab.graph.wellformed import verify_graph

__all__ = [
    "Annotation", "Binding", "BranchCall", "CompileOptions", "CompiledModel", "Constant", "Dim", "Dims",
    "ExampleCall", "Extents", "FunctionCall", "GRAPH_LIBRARIES", "GraphBuilder", "GraphCall", "GraphFunction",
    "GraphLibrary", "GraphModule", "GraphOperator", "GraphParameter", "GraphTask", "GraphValue", "Ints", "ItemCall",
    "LibraryCall", "LibraryPattern", "LoadedModel", "MatchCast", "ModelSource", "Number", "ObjectType", "Operand",
    "OperatorCall", "PatternMatch", "PointwiseOp", "ProgramCall", "RunnableModel", "Scalar", "ShapeType", "SizeFacts",
    "SizeRange", "TensorType", "TupleCall", "TupleType", "TypeScope", "compile", "deduced", "dispatch_libraries",
    "evaluate_graph", "from_onnx", "from_torch", "graph_from_json", "graph_operator", "graph_operators",
    "graph_tasks", "graph_to_json", "legalise", "library", "library_function", "library_functions", "load_graph",
    "load_model", "model_source", "model_tasks", "numpy_library", "operator_named", "operator_program", "ops",
    "quantise_weights", "save_graph", "scope_of", "split_by_size", "tensor", "torch_library", "verify_graph",
]  # fmt: skip
