"""Fusion of programs: a function that stands for a group of operators becomes one tensor program.

Its programs are composed, and what one hands to the next is computed where it is read: all that follows a product is
one expression of one stage, as in the fused operators of `workloads`.  What a reduction reads several times stays a
stage, which schedules compute a row at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from searchlab.errors import GraphError
from searchlab.graph.annotations import TensorType, TupleType
from searchlab.graph.calls import Extents, FunctionCall, ItemCall, OperatorCall, ProgramCall, Scalar
from searchlab.graph.deduction import TypeScope, scope_of
from searchlab.graph.functions import Binding, GraphFunction, GraphModule
from searchlab.graph.legalising import OperatorPrograms
from searchlab.graph.passes.operator_fusion import FUSED
from searchlab.graph.unification import Unification
from searchlab.ir.compose import Port, composed
from searchlab.ir.expr import Expr, Var
from searchlab.ir.program import Program
from searchlab.ir.rename import Renaming, rename
from searchlab.ir.statement_tree import swap
from searchlab.ir.stmt import Block
from searchlab.ir.walk import loads, walk
from searchlab.schedule import compute_inline
from searchlab.schedule.primitive import consumers

_LONGEST = 600  # parts of an expression that a value is still put into


def fuse_programs(module: GraphModule) -> GraphModule:
    """The module with one program for every function of a group, called in its place; the functions stay as references.

    A program has the name of its function, without the number of it: equal programs of other modules are equal.
    """
    made = OperatorPrograms()
    programs = dict(module.programs)
    for function in module:
        if function.name.startswith(FUSED) and function.name not in programs:
            programs[function.name] = fused_program(module, function, made)
    module = replace(module, programs=programs)
    for function in module:
        if function.name not in programs:
            module = module.with_function(_calling_programs(module, function))
    return module


def fused_program(module: GraphModule, function: GraphFunction, made: OperatorPrograms | None = None) -> Program:
    """One program that computes a function of operators and programs; its inputs are the tensors among the parameters.

    They are in the order of the parameters, and its sizes are symbols of the function.
    """
    parts = GroupParts.of(module, function, made or OperatorPrograms())
    name = function.name.rstrip("0123456789").removesuffix("_") if function.name[-1:].isdigit() else function.name
    symbols = {v.name for p in parts.programs for v in p.symbols}
    whole = composed(name, parts.programs, parts.feeds, parts.outputs, shared=symbols)
    handed = {whole.names[port] for port in parts.feeds.values()}
    return tidied(inlined(whole.program, handed))


@dataclass(frozen=True)
class GroupParts:
    """The programs of a group in order, the ports that feed inputs, and the ports that are its outputs.

    `values` are the names that the function has for what is found at a port.
    """

    programs: tuple[Program, ...]
    feeds: Mapping[Port, Port]
    outputs: tuple[Port, ...]
    values: Mapping[Port, str]

    @staticmethod
    def of(module: GraphModule, function: GraphFunction, made: OperatorPrograms) -> GroupParts:
        """The parts of a function, whose calls all have programs."""
        scope = scope_of(module, function)
        programs: list[Program] = []
        feeds: dict[Port, Port] = {}
        ports: dict[str, tuple[Port, ...]] = {}  # where values are found; a parameter, where it is read first
        for b in function.bindings:
            if isinstance(b.call, ItemCall):
                ports[b.name] = (ports[str(b.call.value)][b.call.index],)
            else:
                program = _program(module, made, scope, b, function)
                number = len(programs)
                operands = [o for o in b.call.operands() if not isinstance(o, Scalar)]
                for operand, name in zip(operands, program.inputs, strict=True):
                    if str(operand) in ports:
                        feeds[number, name] = ports[str(operand)][0]
                    ports.setdefault(str(operand), ((number, name),))
                programs.append(program)
                ports[b.name] = tuple((number, name) for name in program.outputs)
            scope.define(b.name, b.annotation)
        values = {
            port: name if len(found) == 1 else f"{name}_part{number}"
            for name, found in ports.items()
            for number, port in enumerate(found)
        }
        return GroupParts(tuple(programs), feeds, ports[function.result], values)

    def origin(self, port: Port) -> Port:
        """The port at which the value of a port is made, or first read."""
        while port in self.feeds:
            port = self.feeds[port]
        return port

    def before(self, ports: Iterable[Port], stop: int | None = None) -> list[int]:
        """The programs that make values of ports, directly or not, in order; without `stop` and what leads to it."""
        found: set[int] = set()
        left = [self.origin(p) for p in ports]
        while left:
            number, name = left.pop()
            if number != stop and number not in found and name in self.programs[number].outputs:
                found.add(number)
                left += [self.origin((number, n)) for n in self.programs[number].inputs]
        return sorted(found)

    def part(self, name: str, numbers: Sequence[int], outputs: Sequence[Port]) -> Program:
        """Some of the programs as one, whose inputs and outputs have the names of values of the function."""
        place = {number: n for n, number in enumerate(numbers)}
        feeds: dict[Port, Port] = {}
        first: dict[Port, Port] = {}  # where values from elsewhere are read
        for number in numbers:
            for own in self.programs[number].inputs:
                port, origin = (place[number], own), self.origin((number, own))
                if origin[0] in place and origin[1] in self.programs[origin[0]].outputs:
                    feeds[port] = place[origin[0]], origin[1]
                elif first.setdefault(origin, port) != port:
                    feeds[port] = first[origin]
        programs = [self.programs[number] for number in numbers]
        symbols = {v.name for p in programs for v in p.symbols}
        whole = composed(name, programs, feeds, [(place[n], out) for n, out in outputs], symbols)
        names = {whole.names[port]: self.values[origin] for origin, port in first.items()}
        names |= {whole.names[place[n], out]: self.values[n, out] for n, out in outputs}
        return rename(whole.program, Renaming(names, names))


def _program(
    module: GraphModule, made: OperatorPrograms, scope: TypeScope, b: Binding, function: GraphFunction
) -> Program:
    """The program of a call, in the symbols of the function."""
    if isinstance(b.call, ProgramCall):
        sizes = {Var(name, "size"): value for name, value in b.call.sizes}
        return module.program(b.call.program).with_symbols(sizes)
    program = made.of(b.call, scope) if isinstance(b.call, OperatorCall) else None
    if program is None:
        raise GraphError(f"{function.name}: {b.name}: there is no program for {b.call.callee}, so it cannot be fused")
    return program


# --- the program ------------------------------------------------------------------------------------------------------


def inlined(program: Program, handed: Collection[str]) -> Program:
    """The program with the stages that make the `handed` buffers put into their readers, where that suits schedules."""
    for block in list(program.blocks.values()):
        if block.store.buffer in handed and _is_put_in(program, program.blocks[block.name]):
            program = compute_inline(program, block.name)
    return replace(_without_unread(program), trace=())


def _without_unread(program: Program) -> Program:
    """The program without stages that nothing reads, such as parts of a tensor that nobody takes."""
    for block in reversed(program.blocks.values()):
        buffer = block.store.buffer
        if buffer not in program.outputs and not consumers(program, buffer):
            body = swap(program.body, program.blocks[block.name], None)
            assert body is not None
            program = program.with_body(body, buffers={n: b for n, b in program.buffers.items() if n != buffer})
    return program


def _is_put_in(program: Program, block: Block) -> bool:
    """Whether a stage becomes part of its readers.

    A reduction takes it if it reads it once, and is not mistaken for a product with it; all others take it unless
    their expressions become too long.
    """
    buffer = block.store.buffer
    if block.reduces or buffer in program.outputs:
        return False
    readers = consumers(program, buffer)
    for reader in readers:
        reads = [ld for ld in loads(reader.store.value) if ld.buffer == buffer]
        if reader.reduces and (len(readers) > 1 or len(reads) > 1 or _looks_like_product(reader, block)):
            return False
        if _length(reader.store.value) + len(reads) * _length(block.store.value) > _LONGEST:
            return False
    return bool(readers)


def _looks_like_product(reader: Block, block: Block) -> bool:
    """Whether a reduction would be taken for a product: several reads are reduced to at least two axes."""
    read = {ld.buffer for b in (reader, block) for ld in loads(b.store.value)} - {
        b.store.buffer for b in (reader, block)
    }
    return len(read) > 1 and sum(it.kind == "space" for it in reader.iters) > 1


def _length(e: Expr) -> int:
    return sum(1 for _ in walk(e))


def tidied(program: Program) -> Program:
    """The program without the numbers in names that are not needed any more."""

    def shorter(names: Iterable[str]) -> dict[str, str]:
        taken, found = set(names), {}
        for name in names:
            base, _, number = name.rpartition("_")
            if number.isdigit() and base and base not in taken:
                found[name] = base
                taken.add(base)
        return found

    buffers = shorter(program.buffers)
    blocks = shorter(program.blocks)
    return rename(program, Renaming(buffers, blocks, shorter(program.loops)))


# --- calls ------------------------------------------------------------------------------------------------------------


def _calling_programs(module: GraphModule, function: GraphFunction) -> GraphFunction:
    """The function with calls of programs in place of those of functions that programs compute."""
    scope = scope_of(module, function)
    bindings = []
    for b in function.bindings:
        call = b.call
        if isinstance(call, FunctionCall) and call.function in module.programs:
            outputs = b.annotation.parts if isinstance(b.annotation, TupleType) else (b.annotation,)
            tensors = tuple(o for o in outputs if isinstance(o, TensorType))
            args = tuple(o for o in call.args if not isinstance(o, Extents))
            call = ProgramCall(args, tensors, call.function, _sizes(module, scope, call))
        bindings.append(scope.bind(b.name, call))
    return replace(function, bindings=tuple(bindings))


def _sizes(module: GraphModule, scope: TypeScope, call: FunctionCall) -> tuple[tuple[str, Expr], ...]:
    """The sizes of the program of a function, as the operands of a call determine them."""
    solution = Unification(scope.facts)
    for p, operand in zip(module[call.function].parameters, call.args, strict=True):
        solution.match(p.name, p.annotation, scope.annotation(operand))
    put = solution.finish()
    return tuple((name, put(Var(name, "size"))) for name in module.program(call.function).sizes)
