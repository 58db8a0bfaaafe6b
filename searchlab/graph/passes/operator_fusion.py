"""Fusion of operators: groups of calls become functions of the module, each of which `fuse_programs` makes one program.

    linear: float32[n, 128] = linear(x, w1, b1)
    relu: float32[n, 128] = relu(linear)            =>    relu: float32[n, 128] = call fused_linear_relu(x, w1, b1)

Which calls are grouped follows from their programs (`pattern_kinds`) and their post-dominators (`fusion_graph`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Any

from searchlab.graph.annotations import Annotation, ShapeType, TensorType, TupleType
from searchlab.graph.calls import Extents, FunctionCall, GraphCall, ItemCall, Operand, OperatorCall, Scalar
from searchlab.graph.deduction import TypeScope, scope_of
from searchlab.graph.functions import Binding, GraphFunction, GraphModule, GraphParameter
from searchlab.graph.legalising import OperatorPrograms
from searchlab.graph.passes.fusion_graph import MOST, FusionEdge, FusionNode, fused_groups
from searchlab.graph.passes.pattern_kinds import PatternKind, adds_products, input_kind, pattern_kind
from searchlab.graph.symbols import determined, undetermined
from searchlab.ir.expr import ONE, Binary, Call, Expr, Load, Var, value_of
from searchlab.ir.program import Program
from searchlab.ir.stmt import Block
from searchlab.ir.walk import loads, variables, walk

FUSED = "fused_"  # how the names of functions begin that stand for one program
_SHOWN = 6  # operators whose names a function has


def fuse_operators(module: GraphModule, most: int = MOST) -> GraphModule:
    """The module with groups of at most `most` operators as functions of their own; equal groups share one."""
    made = _FusedFunctions(module)
    for function in module:
        if not function.name.startswith(FUSED):
            changed = _fused(made, function, most)
            made.module = made.module.with_function(changed)
    return made.module


def _fused(made: _FusedFunctions, function: GraphFunction, most: int) -> GraphFunction:
    groups = _groups(made.module, function, most)
    replaced = {group[-1]: group for group in groups}
    gone = {number for group in groups for number in group[:-1]}
    scope = scope_of(made.module, function)
    bindings = []
    for number, b in enumerate(function.bindings):
        if number in gone:
            continue
        call = b.call
        if number in replaced:
            call = made.call(function, [function.bindings[n] for n in replaced[number]])
        scope.module = made.module
        bindings.append(scope.bind(b.name, call))
    return replace(function, bindings=tuple(bindings))


# --- groups -----------------------------------------------------------------------------------------------------------


def _groups(module: GraphModule, function: GraphFunction, most: int) -> list[list[int]]:
    """The bindings of every group of several operators, in order; views at its ends are left out."""
    nodes = _Analysis(module, function).nodes
    found = []
    for group in fused_groups(nodes, most).members():
        kept = _without_views(function, group)
        if sum(isinstance(function.bindings[n].call, OperatorCall) for n in kept) > 1:
            found.append(kept)
    return found


def _without_views(function: GraphFunction, group: list[int]) -> list[int]:
    """The group without the views that it begins and ends with: outside of it, they cost nothing."""
    kept = list(group)
    while kept and _is_view(function.bindings[kept[-1]].call):
        kept.pop()
    for number in list(kept):
        inside = {function.bindings[n].name for n in kept}
        call = function.bindings[number].call
        if (_is_view(call) or isinstance(call, ItemCall)) and inside.isdisjoint(call.names()):
            kept.remove(number)
    return kept


def _is_view(call: GraphCall) -> bool:
    return isinstance(call, OperatorCall) and call.operator.is_view


class _Analysis:
    """The calls of a function as nodes of the graph that fusion is decided on."""

    def __init__(self, module: GraphModule, function: GraphFunction) -> None:
        self.function = function
        self.numbers = {b.name: number for number, b in enumerate(function.bindings)}
        self.programs: list[Program | None] = []
        made, scope = OperatorPrograms(), scope_of(module, function)
        for b in function.bindings:
            self.programs.append(_fusable(made, b, scope))
            scope.define(b.name, b.annotation)
        numbers = self.numbers
        uses: list[list[FusionEdge]] = [[] for _ in numbers]
        for number, b in enumerate(function.bindings):
            for place, operand in enumerate(o for o in b.call.operands() if not isinstance(o, Scalar)):
                if isinstance(operand, str) and operand in numbers:
                    uses[numbers[operand]].append(self._edge(numbers[operand], number, place))
        self.nodes = [self._node(number, tuple(edges)) for number, edges in enumerate(uses)]

    def _node(self, number: int, edges: tuple[FusionEdge, ...]) -> FusionNode:
        b, program = self.function.bindings[number], self.programs[number]
        escapes = b.name == self.function.result
        if program is None:
            kind = PatternKind.ELEMENTWISE if self._picks(b.call) else PatternKind.OPAQUE
            return FusionNode(kind, edges, escapes)
        kind = pattern_kind(program)
        if _is_view(b.call) and _takes_apart(program):
            kind = PatternKind.OPAQUE  # indices with quotients would cost more than the view, which is free
        sums = any(adds_products(block) for block in program.blocks.values())
        return FusionNode(kind, edges, escapes, _is_costly(program), sums)

    def _picks(self, call: GraphCall) -> bool:
        """Whether a call takes one of several results of an operator with a program."""
        source = self.numbers.get(str(call.value)) if isinstance(call, ItemCall) else None
        return source is not None and self.programs[source] is not None

    def _edge(self, source: int, user: int, place: int) -> FusionEdge:
        program = self.programs[user]
        if program is None:
            picks = self._picks(self.function.bindings[user].call)
            return FusionEdge(user, PatternKind.ELEMENTWISE if picks else PatternKind.OPAQUE)
        name = program.inputs[place]
        kind = input_kind(program, name)
        if kind > PatternKind.INJECTIVE:
            plain = all(_reads_once(block, name) for block in program.blocks.values())
            return FusionEdge(user, kind if plain else PatternKind.OPAQUE)
        if kind is PatternKind.ELEMENTWISE:
            return FusionEdge(user, kind)
        reads = [(b, ld) for b in program.blocks.values() for ld in loads(b.store.value) if ld.buffer == name]
        uses = self.function.bindings[user].call.operands().count(self.function.bindings[source].name)
        apart = uses == 1 and all(_reads_apart(*read) for read in reads)
        free = len(reads) == 1 and (apart or not _grows(program, name))
        return FusionEdge(user, kind, free=free)


def _fusable(made: OperatorPrograms, b: Binding, scope: TypeScope) -> Program | None:
    """The program of a call, if it has one and its shapes are written as the annotations are."""
    if not isinstance(b.call, OperatorCall):
        return None
    known = [scope.annotation(o) for o in b.call.args if not isinstance(o, Scalar)]
    outputs: Sequence[Annotation] = b.annotation.parts if isinstance(b.annotation, TupleType) else [b.annotation]
    if not all(isinstance(a, TensorType) and a.is_whole for a in (*known, *outputs)):
        return None
    program = made.of(b.call, scope)
    if program is None:
        return None
    shapes = [tuple(a.dims()) for a in (*known, *outputs)]
    return program if shapes == [program.buffers[n].shape for n in (*program.inputs, *program.outputs)] else None


def _takes_apart(program: Program) -> bool:
    """Whether it reads at quotients or remainders of indices."""
    indices = (i for b in program.blocks.values() for ld in loads(b.store.value) for i in ld.indices)
    return any(isinstance(e, Binary) and e.op in ("floordiv", "mod") for i in indices for e in walk(i))


def _is_costly(program: Program) -> bool:
    return any(isinstance(e, Call) for b in program.blocks.values() for e in walk(b.store.value))


def _reads_once(block: Block, name: str) -> bool:
    """Whether a stage reads an input, if at all, once for each element."""
    found = {ld.indices for ld in loads(block.store.value) if ld.buffer == name}
    return all(sorted(map(str, at)) == sorted(str(it.var) for it in block.iters) for at in found)


def _reads_apart(block: Block, load: Load) -> bool:
    """Whether no two elements of a result read the same place: each index is a variable of its own, moved or not.

    So an operand of a concatenation is read once, though the result has more elements.
    """
    seen: list[Var] = []
    for i in load.indices:
        own = [v for v in variables(i) if v.role == "iter"]
        if len(own) != 1 or own[0] in variables(i - own[0]):
            return False
        seen += own
    return sorted(v.name for v in seen) == sorted(it.var.name for it in block.iters)


def _grows(program: Program, name: str) -> bool:
    """Whether the result may have more elements than an input."""
    (output, *others) = program.outputs
    before, after = _count(program.buffers[name].shape), _count(program.buffers[output].shape)
    known = value_of(before), value_of(after)
    if others or before == after:
        return bool(others)
    return known[0] is None or known[1] is None or known[1] > known[0]


def _count(shape: Sequence[Expr]) -> Expr:
    count: Expr = ONE
    for e in shape:
        count = count * e
    return count


# --- functions --------------------------------------------------------------------------------------------------------


class _FusedFunctions:
    """A module that receives functions for groups, each of which is held once."""

    def __init__(self, module: GraphModule) -> None:
        self.module = module
        self._names: dict[Any, str] = {}
        for function in module:
            if function.name.startswith(FUSED):
                self._names[_content(function)] = function.name

    def call(self, owner: GraphFunction, group: Sequence[Binding]) -> FunctionCall:
        """A call of the function that computes a group."""
        function, operands = _function(self.module, owner, group)
        key = _content(function)
        if key not in self._names:
            base = FUSED + "_".join(_words(group))
            name, number = base, 0
            while name in self.module.functions or name in self.module.programs:
                number += 1
                name = f"{base}_{number}"
            self._names[key] = name
            self.module = self.module.with_function(replace(function, name=name))
        return FunctionCall(operands, self._names[key])


def _content(function: GraphFunction) -> tuple[Any, ...]:
    """What makes functions equal, whatever they are called."""
    return function.parameters, function.bindings, function.result, tuple(sorted(function.ranges.items(), key=str))


def _words(group: Sequence[Binding]) -> list[str]:
    """The names of the operators that compute, as far as a name should be long."""
    names = [b.call.callee for b in group if isinstance(b.call, OperatorCall) and not b.call.operator.is_view]
    return names if len(names) <= _SHOWN else [*names[:_SHOWN], f"and_{len(names) - _SHOWN}_more"]


def _function(
    module: GraphModule, owner: GraphFunction, group: Sequence[Binding]
) -> tuple[GraphFunction, tuple[Operand, ...]]:
    """The function that computes a group, and the operands that it is called on.

    Its names are those of operators, numbered, so that equal groups become equal functions.
    """
    inside = {b.name for b in group}
    given = list(dict.fromkeys(name for b in group for name in b.call.names() if name not in inside))
    names = _FreeNames(module.constants)
    called: dict[str, Operand] = {name: names.new("p") for name in given}
    known = {name: c.annotation for name, c in module.constants.items()} | owner.annotations
    parameters = [GraphParameter(str(called[name]), known[name]) for name in given]
    operands: list[Operand] = list(given)
    bindings = []
    for b in group:
        bindings.append(Binding(names.new(b.call.callee), b.call.renamed(called), b.annotation))
        called[b.name] = bindings[-1].name
    dims = [e for b in bindings for e in (*b.call.dims(), *b.annotation.dims())]
    dims += [e for p in parameters for e in p.annotation.dims()]
    missing = undetermined(dims, determined(e for p in parameters for e in p.annotation.dims()))
    if missing:
        parameters.append(GraphParameter(names.new("sizes"), ShapeType(tuple(missing))))
        operands.append(Extents(tuple(missing)))
    used = frozenset[Var]().union(*(p.annotation.symbols for p in parameters))
    ranges = {symbol: bounds for symbol, bounds in owner.ranges.items() if symbol in used}
    made = GraphFunction("", tuple(parameters), tuple(bindings), bindings[-1].name, ranges)
    return made, tuple(operands)


class _FreeNames:
    """Names for the values of a function: words, numbered from the second on, that are not those of constants."""

    def __init__(self, taken: Container[str]) -> None:
        self._taken = taken
        self._numbers: Counter[str] = Counter()

    def new(self, word: str) -> str:
        """The next name for a word."""
        while True:
            number = self._numbers[word]
            self._numbers[word] += 1
            name = f"{word}_{number}" if number else word
            if name not in self._taken:
                return name
