"""Workspaces: scratch memory that kernels need during a call becomes memory that the caller plans.

A schedule may keep partial sums or packed panels in scratch memory, which only the compiled kernel knows.  Stated in
the call, it is a value of the call like any other, needed by it alone, so calls one after the other share it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from searchlab.graph.calls import ProgramCall
from searchlab.graph.functions import Binding, GraphFunction, GraphModule
from searchlab.ir.expr import ZERO, Expr, Var
from searchlab.ir.walk import Substitution
from searchlab.llvm.abi import scratch_bytes


class ScratchUser(Protocol):
    """A compiled kernel: the bytes of scratch memory that all threads share, and those of each, in its sizes."""

    @property
    def shared(self) -> Expr:
        """Bytes for all threads."""

    @property
    def private(self) -> Expr:
        """Bytes for each thread."""


def workspace_bytes(kernel: ScratchUser, threads: int) -> Expr:
    """The bytes of scratch memory that a call of a kernel needs, in terms of its run-time sizes."""
    return scratch_bytes(kernel.shared, kernel.private, threads)


def lift_workspaces(module: GraphModule, bytes_of: Callable[[ProgramCall], Expr]) -> GraphModule:
    """The module whose calls of programs state their scratch memory.

    `bytes_of` gives the `workspace_bytes` of the kernel of a call; calls that need none are left as they are.
    """
    for function in module:
        module = module.with_function(_lifted(function, bytes_of))
    return module


def _lifted(function: GraphFunction, bytes_of: Callable[[ProgramCall], Expr]) -> GraphFunction:
    bindings = []
    for b in function.bindings:
        call = b.call
        if isinstance(call, ProgramCall) and (size := bytes_of(call)) != ZERO:
            put = Substitution({Var(name, "size"): value for name, value in call.sizes})
            call = replace(call, workspace=function.facts.simplify(put(size)))
        bindings.append(Binding(b.name, call, b.annotation))
    return replace(function, bindings=tuple(bindings))
