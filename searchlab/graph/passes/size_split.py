"""Two functions for two ranges of a size, and a branch between them: what is best for one row is not best for many.

    function main(x: float32[n, 8]) -> float32[n, 4]:
      result: float32[n, 4] = call (main_below if n < 16 else main_from)(x)
      return result

Each half knows more of the size than the whole, so passes that depend on proofs decide differently in each.
"""

from __future__ import annotations

from dataclasses import replace

from searchlab.errors import GraphError
from searchlab.graph.calls import BranchCall
from searchlab.graph.deduction import deduced, scope_of
from searchlab.graph.functions import GraphFunction, GraphModule
from searchlab.graph.symbols import SizeRange
from searchlab.ir.expr import Var


def split_by_size(module: GraphModule, symbol: Var, at: int, function: str = "main") -> GraphModule:
    """The module whose function calls one copy of itself where a size is below a number, and another one elsewhere."""
    whole = module[function]
    known = whole.ranges.get(symbol, SizeRange())
    if symbol not in whole.symbols:
        symbols = ", ".join(sorted(v.name for v in whole.symbols)) or "none"
        raise GraphError(f"{function}: no parameter determines {symbol}, so nothing can depend on it; known: {symbols}")
    if not known.low < at or (known.high is not None and at > known.high):
        raise GraphError(f"{function}: {symbol} is {known}, which {at} does not divide in two")
    halves = {"below": SizeRange(known.low, at - 1), "from": SizeRange(at, known.high)}
    names = []
    for half, limits in halves.items():
        names.append(_free(module, f"{function}_{half}"))
        module = module.with_function(_within(module, whole, names[-1], symbol, limits))
    call = BranchCall(tuple(p.name for p in whole.parameters), symbol < at, *names)
    scope = scope_of(module, whole)
    result = "result"
    while result in scope.annotations or result in module.constants:
        result += "_"
    return module.with_function(replace(whole, bindings=(scope.bind(result, call),), result=result))


def _within(module: GraphModule, whole: GraphFunction, name: str, symbol: Var, limits: SizeRange) -> GraphFunction:
    """A copy of a function for a part of the range of a symbol."""
    return deduced(module, replace(whole, name=name, ranges={**whole.ranges, symbol: limits}))


def _free(module: GraphModule, name: str) -> str:
    made, number = name, 0
    while made in module.functions:
        number += 1
        made = f"{name}_{number}"
    return made
