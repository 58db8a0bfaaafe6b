"""Workspaces: scratch memory that kernels need during a call becomes memory that the caller plans.

A schedule may keep partial sums or packed panels in scratch memory, which only the compiled kernel knows.  Stated in
the call, it is a value of the call like any other, needed by it alone, so calls one after the other share it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from searchlab.backend import Artifact
from searchlab.graph.calls import ProgramCall
from searchlab.graph.functions import Binding, GraphFunction, GraphModule
from searchlab.ir.expr import ZERO, Expr, Var
from searchlab.ir.walk import Substitution


def workspace_bytes(artifact: Artifact, call: ProgramCall | None = None) -> Expr | None:
    """The bytes of scratch memory of a kernel, in its own sizes or those of a call; None if it needs none."""
    if artifact.workspace == ZERO:
        return None
    sizes = () if call is None else call.sizes
    return Substitution({Var(name, "size"): value for name, value in sizes})(artifact.workspace)


def lift_workspaces(module: GraphModule, kernels: Mapping[str, Artifact]) -> GraphModule:
    """The module whose calls of programs state the scratch memory of these kernels, which are known by program."""
    for function in module:
        module = module.with_function(_lifted(function, kernels))
    return module


def _lifted(function: GraphFunction, kernels: Mapping[str, Artifact]) -> GraphFunction:
    bindings = []
    for b in function.bindings:
        call = b.call
        if isinstance(call, ProgramCall) and call.program in kernels:
            size = workspace_bytes(kernels[call.program], call)
            call = replace(call, workspace=None if size is None else function.facts.simplify(size))
        bindings.append(Binding(b.name, call, b.annotation))
    return replace(function, bindings=tuple(bindings))
