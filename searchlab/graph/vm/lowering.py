"""From a planned function of a graph to byte code: arguments checked, symbols bound, memory acquired, calls made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from searchlab.dtype import DTYPES
from searchlab.errors import GraphError
from searchlab.graph.annotations import Annotation, ShapeType, TensorType, TupleType
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
from searchlab.graph.functions import Binding, GraphModule
from searchlab.graph.listing import call_text
from searchlab.graph.ops.index_ops import INDICES
from searchlab.graph.ops.operand_rules import axis_of
from searchlab.graph.passes.memory_plan import MemoryPlan
from searchlab.graph.size_table import SizeTable
from searchlab.graph.vm.bytecode import ByteCode, Check, CodeWriter, Reference
from searchlab.graph.vm.call_sites import (
    ArraySpec,
    CallFacts,
    KernelSite,
    LibrarySite,
    NumberSpec,
    ShapeSpec,
    Spec,
    arithmetic_of,
    without_expressions,
    words_in,
)
from searchlab.graph.vm.frame_memory import FrameMemory, HeldStorage, clean_up
from searchlab.graph.vm.machine import DTYPE_NUMBERS, LINE, MOST_AXES, SHAPE_NUMBER
from searchlab.graph.vm.run_values import ExtentsAt, RunValue, TensorAt, result_roots
from searchlab.graph.vm.size_registers import SizeRegisters
from searchlab.ir.expr import Expr, Var, value_of
from searchlab.ir.walk import Substitution


@dataclass(frozen=True)
class LoweredFunction:
    """The code of a function, and what its words mean outside the machine.

    `storages` are numbered as the log does, `symbols` are registers, and `calls` are what is stamped, in order.
    """

    name: str
    code: ByteCode
    parameters: tuple[tuple[str, Annotation], ...]
    result: Annotation
    storages: tuple[str, ...]
    libraries: tuple[LibrarySite, ...]
    symbols: Mapping[str, int]
    calls: tuple[CallFacts, ...]


KernelSites = SizeTable[KernelSite]  # the kernels of a call; which of them runs depends on a size of their program


@dataclass(frozen=True)
class LoweredWhole:
    """What the functions of one code share: plans and kernels by function, and what has been written so far."""

    module: GraphModule
    plans: Mapping[str, MemoryPlan]
    sites: Mapping[str, Mapping[str, KernelSites]]
    code: CodeWriter = field(default_factory=CodeWriter)
    calls: list[CallFacts] = field(default_factory=list)
    libraries: list[LibrarySite] = field(default_factory=list)
    held: list[HeldStorage] = field(default_factory=list)


def lower_function(
    module: GraphModule, name: str, plans: Mapping[str, MemoryPlan], sites: Mapping[str, Mapping[str, KernelSites]]
) -> LoweredFunction:
    """The byte code of a function whose calls are programs, library functions, views, and branches to such functions.

    `plans` and `sites` have its memory and its kernels, and those of the functions that branches call.
    """
    whole = LoweredWhole(module, plans, sites)
    lowering, function, code = _Lowering(whole, name), module[name], whole.code
    lowering.enter()
    lowering.body()
    code.call("stamp", code.word(len(whole.calls)))
    code.leave()
    return LoweredFunction(
        name,
        code.code(clean_up(code, whole.held, len(result_roots(function)))),
        tuple((p.name, p.annotation) for p in function.parameters),
        function.annotations.get(function.result) or module.constants[function.result].annotation,
        tuple(s.name for s in whole.held),
        tuple(whole.libraries),
        {v.name: register for v, register in lowering.sizes.symbols.items()},
        tuple(whole.calls),
    )


class _Lowering:
    """Writes one function; `values` are those defined so far."""

    def __init__(self, whole: LoweredWhole, name: str, given: Sequence[int] | None = None) -> None:
        self.whole, self.module, self.code = whole, whole.module, whole.code
        self.function, self.sites, self.libraries = whole.module[name], whole.sites[name], whole.libraries
        self.sizes = SizeRegisters(self.code, self.function.facts)
        roots = result_roots(self.function)
        self.memory = FrameMemory(name, self.sizes, whole.plans[name], roots, whole.held, given)
        self.values: dict[str, RunValue] = {}

    def body(self) -> None:
        """All calls in order, then the result."""
        bindings = self.function.bindings
        for at, b in enumerate(bindings):
            self.code.call("stamp", self.code.word(len(self.whole.calls)))
            self.whole.calls.append(self.about(b))
            self.memory.before(at)
            try:
                self.values[b.name] = _RULES[type(b.call)](self, b, b.call)
            except GraphError as e:
                raise GraphError(f"{self.where(b)}: {e}") from e
            self.memory.after(at)
        self.memory.hand_over(self.value(self.function.result))
        self.memory.after(len(bindings))

    def about(self, b: Binding) -> CallFacts:
        """A call, for profiles."""
        if not isinstance(b.call, ProgramCall):
            return CallFacts(b.name, b.call.callee)
        put = Substitution({Var(name, "size"): e for name, e in b.call.sizes})
        return CallFacts(b.name, b.call.callee, put(arithmetic_of(self.module.program(b.call.program))))

    def where(self, b: Binding) -> str:
        """A call, for messages."""
        return f"{self.function.name}: {b.name} = {call_text(b.call)}"

    def value(self, operand: Operand) -> RunValue:
        """The value of an operand."""
        if isinstance(operand, Extents):
            return ExtentsAt(tuple(map(self.sizes.register, operand.dims)), operand.dims)
        if isinstance(operand, Scalar):
            raise GraphError(f"the number {operand.value} is an operand, which has no address")
        if operand in self.values:
            return self.values[operand]
        constant = self.module.constants[operand].annotation
        return TensorAt(self.code.word(Reference("constant", operand)), str(constant.dtype), constant.shape)

    # --- arguments ----------------------------------------------------------------------------------------------------

    def enter(self) -> None:
        """Takes the arguments: all symbols are bound before any extent is compared, since one may need another's."""
        number = 0
        for p in self.function.parameters:
            self.values[p.name], number = self.argument(f"{self.function.name}: {p.name}", p.annotation, number)
        self.sizes.settle()

    def argument(self, where: str, annotation: Annotation, number: int) -> tuple[RunValue, int]:
        """The value of a parameter whose first tensor is the input `number`, and the number of the next."""
        if isinstance(annotation, TupleType):
            parts = []
            for n, part in enumerate(annotation.parts):
                value, number = self.argument(f"{where}[{n}]", part, number)
                parts.append(value)
            return tuple(parts), number
        kind, rank = _expected(where, annotation)
        word = self.code.word
        self.code.call("check_dtype", word(number), word(kind), check=Check(where, "dtype"))
        self.code.call("check_rank", word(number), word(rank), check=Check(where, "rank"))
        extents = tuple(self.code.value("extent", word(number), word(axis)) for axis in range(rank))
        known = annotation.extents if isinstance(annotation, ShapeType) else getattr(annotation, "shape", None)
        if known is not None:
            self.sizes.match(where, known, extents, None)
        else:
            for axis, extent in enumerate(extents):
                self.sizes.limit(f"{where}: extent {axis}", extent)
        if isinstance(annotation, TensorType):
            address = self.code.value("data", word(number))
            return TensorAt(address, str(annotation.dtype), known, extents), number + 1
        return ExtentsAt(extents, known), number + 1

    # --- calls --------------------------------------------------------------------------------------------------------

    def outputs(self, b: Binding, outputs: tuple[TensorType, ...]) -> list[TensorAt]:
        """Memory for what a call writes."""
        if not isinstance(b.annotation, TupleType):
            return [self.memory.room(b.name, outputs[0])]
        return [self.memory.room(f"{b.name}.{n}", part) for n, part in enumerate(outputs)]

    def program(self, b: Binding, call: ProgramCall) -> RunValue:
        """A call of a kernel; of several, branches choose one by a size."""
        sites, limits = self.possible(self.sites[b.name], dict(call.sizes))
        made = self.outputs(b, call.outputs)
        workspace = self.memory.workspace(b.name)
        # All registers are filled before the first branch: what is computed in one arm is not known in another.
        operands = [self.kernel_operands(site, call, made, workspace) for site in sites]
        conditions = tuple(map(self.sizes.condition, limits))
        ends = []
        for number, registers in enumerate(operands):
            otherwise = self.code.branch(conditions[number]) if number < len(conditions) else None
            self.code.call("kernel", *registers, check=Check(f"{self.where(b)}: scratch memory"))
            if otherwise is not None:
                ends.append(self.code.jump())
                self.code.land(otherwise)
        self.code.land(*ends)
        about = self.whole.calls[-1]
        self.whole.calls[-1] = replace(about, kernels=tuple(s.symbol for s in sites), chosen_by=conditions)
        return made[0] if len(made) == 1 else tuple(made)

    def possible(self, table: KernelSites, sizes: Mapping[str, Expr]) -> tuple[list[KernelSite], list[Expr]]:
        """The kernels that a call may need, and the conditions by which each but the last is chosen."""
        sites: list[KernelSite] = []
        limits: list[Expr] = []
        for site, last in zip(table.entries, table.last, strict=False):
            fits = sizes[table.size] <= last
            if self.sizes.facts.proves(fits):
                return [*sites, site], limits
            if not self.sizes.facts.proves(sizes[table.size] > last):
                sites.append(site)
                limits.append(fits)
        return [*sites, table.entries[-1]], limits

    def kernel_operands(
        self, site: KernelSite, call: ProgramCall, made: Sequence[TensorAt], workspace: int
    ) -> tuple[int, ...]:
        """The registers that a kernel is called with."""
        put, given = Substitution({Var(name, "size"): e for name, e in call.sizes}), dict(call.sizes)
        operands = (
            self.value(operand).address if constant is None else self.code.word(Reference("constant", constant))
            for operand, constant in zip(call.args, site.constants, strict=True)
        )
        arrays = [*operands, *(t.address for t in made)]
        own = put(site.private)
        stride = own if value_of(own) == 0 else own + LINE  # a line between the areas of threads
        return (
            self.code.word(Reference("kernel", site.symbol)),
            workspace,
            self.sizes.register(put(site.shared)),
            self.sizes.register(stride),
            self.code.word(len(arrays)),
            *arrays,
            *(self.sizes.register(given[name]) for name in site.sizes),
        )

    def library(self, b: Binding, call: LibraryCall) -> RunValue:
        """A call of a function outside the machine, unless the machine has it."""
        if call.function == "take" and self.takes_by_itself(call):
            return self.take(b, call)
        registers: list[int] = []
        inputs = tuple(self.passed(operand, registers) for operand in call.args)
        made = self.outputs(b, call.outputs)
        outputs = tuple(self.array(t, registers) for t in made)
        registers += [self.sizes.register(e) for _, value in call.attributes for e in words_in(value)]
        attributes = tuple((name, without_expressions(value)) for name, value in call.attributes)
        number = self.code.word(len(self.libraries))
        self.libraries.append(LibrarySite(self.where(b), call.function, inputs, outputs, attributes))
        self.code.call("library", number, *registers, check=Check(self.where(b)))
        return made[0] if len(made) == 1 else tuple(made)

    def takes_by_itself(self, call: LibraryCall) -> bool:
        """Whether a look-up is one that the machine has: of tensors, by indices that it reads, without a cast."""
        if not all(isinstance(operand, str) for operand in call.args):
            return False
        table, indices = (self.value(operand) for operand in call.args)
        tensors = isinstance(table, TensorAt) and isinstance(indices, TensorAt)
        return tensors and indices.dtype in INDICES and [t.dtype for t in call.outputs] == [table.dtype]

    def take(self, b: Binding, call: LibraryCall) -> RunValue:
        """A look-up at indices, whose values are checked, as is the size of the result that the graph states."""
        table, indices = (self.value(operand) for operand in call.args)
        axes = self.axes(table)
        attributes: dict[str, Any] = dict(call.attributes)
        axis = axis_of(attributes.get("axis", 0), len(axes))
        (made,) = self.outputs(b, call.outputs)
        extent = f"(extent {axis})" if table.shape is None else table.shape[axis]
        size, width = (self.code.word(DTYPES[t.dtype].bytes) for t in (table, indices))
        outer, count, inner = map(self.sizes.product, (axes[:axis], self.axes(indices), (*axes[axis + 1 :], size)))
        room = self.sizes.product((*self.axes(made), size))
        stated = Check(f"{self.where(b)}: bytes of the result", "number")
        self.code.call("check_equal", room, self.sizes.product((outer, count, inner)), check=stated)
        check = Check(f"{self.where(b)}: index", "range", f"-{extent} <= index < {extent}")
        operands = (table.address, indices.address, width, made.address, outer, axes[axis], count, inner)
        self.code.call("take", *operands, check=check)
        return made

    def passed(self, operand: Operand, registers: list[int]) -> Spec:
        """An operand of a library function; its words are added to the registers."""
        if isinstance(operand, Scalar):
            if isinstance(operand.value, Expr):
                registers.append(self.sizes.register(operand.value))
            return NumberSpec(operand.dtype, without_expressions(operand.value))
        value = self.value(operand)
        if isinstance(value, ExtentsAt):
            registers += value.registers
            return ShapeSpec(len(value.registers))
        if not isinstance(value, TensorAt):
            raise GraphError(f"{operand} is a tuple; library functions take tensors and shapes")
        return self.array(value, registers)

    def array(self, value: TensorAt, registers: list[int]) -> ArraySpec:
        """An array of a library function."""
        registers += [value.address, *self.axes(value)]
        return ArraySpec(value.dtype, len(self.axes(value)))

    def axes(self, value: RunValue) -> tuple[int, ...]:
        """The registers of the extents of a value."""
        if isinstance(value, ExtentsAt):
            return value.registers
        if value.shape is not None:
            return tuple(map(self.sizes.register, value.shape))
        assert isinstance(value, TensorAt)
        return value.extents

    def view(self, b: Binding, call: OperatorCall) -> RunValue:
        """The same memory with another shape."""
        if not call.operator.is_view or not isinstance(b.annotation, TensorType):
            raise GraphError(f"the operator {call.callee} has not been lowered to a program or a library function")
        value = self.value(call.args[0])
        return TensorAt(value.address, value.dtype, b.annotation.shape)

    def match_cast(self, b: Binding, call: MatchCast) -> RunValue:
        """A value whose annotation is checked here; its extents may determine symbols."""
        value = self.cast(self.where(b), call.annotation, self.value(call.value))
        self.sizes.settle()
        return value

    def cast(self, where: str, annotation: Annotation, value: RunValue) -> RunValue:
        """A value with a finer annotation; what it says about extents is noted."""
        if isinstance(annotation, TupleType):
            parts = zip(annotation.parts, value, strict=True)
            return tuple(self.cast(f"{where}[{n}]", part, item) for n, (part, item) in enumerate(parts))
        if not isinstance(annotation, (TensorType, ShapeType)):
            return value
        axes = self.axes(value)
        if annotation.rank not in (None, len(axes)):
            raise GraphError(f"the value has rank {len(axes)}, expected {annotation}")
        if isinstance(annotation, ShapeType):
            if annotation.extents is not None:
                self.sizes.match(where, annotation.extents, axes, value.known)
            return ExtentsAt(axes, annotation.extents or value.known)
        if annotation.dtype not in (None, value.dtype):
            raise GraphError(f"the value holds {value.dtype}, expected {annotation}")
        if annotation.shape is None:
            return value
        self.sizes.match(where, annotation.shape, axes, value.shape)
        return TensorAt(value.address, value.dtype, annotation.shape)

    def branch(self, b: Binding, call: BranchCall) -> RunValue:
        """One of two functions, both of which write to the same memory."""
        parts = b.annotation.parts if isinstance(b.annotation, TupleType) else (b.annotation,)
        whole = tuple(part for part in parts if isinstance(part, TensorType) and part.is_whole)
        if len(whole) != len(parts):
            raise GraphError(f"a branch returns tensors whose shapes are known before it, not {b.annotation}")
        made = self.outputs(b, whole)
        passed = [self.opaque(self.value(operand)) for operand in call.args]
        otherwise = self.code.branch(self.sizes.condition(call.condition))
        self.half(call.then, passed, made)
        end = self.code.jump()
        self.code.land(otherwise)
        self.half(call.otherwise, passed, made)
        self.code.land(end)
        return made[0] if len(made) == 1 else tuple(made)

    def half(self, name: str, passed: Sequence[RunValue], made: Sequence[TensorAt]) -> None:
        """The body of a function in place, on these values."""
        inner = _Lowering(self.whole, name, [t.address for t in made])
        for p, value in zip(inner.function.parameters, passed, strict=True):
            inner.values[p.name] = inner.cast(f"{name}: {p.name}", p.annotation, value)
        inner.sizes.settle()
        inner.body()

    def opaque(self, value: RunValue) -> RunValue:
        """A value whose extents are in registers: expressions in symbols mean nothing to another function."""
        if isinstance(value, tuple):
            return tuple(map(self.opaque, value))
        axes = self.axes(value)
        return (
            ExtentsAt(axes, None) if isinstance(value, ExtentsAt) else TensorAt(value.address, value.dtype, None, axes)
        )

    def function_call(self, b: Binding, call: FunctionCall) -> RunValue:
        """Functions are inlined before this."""
        raise GraphError(f"the call of {call.function} has not been inlined")


def _expected(where: str, annotation: Annotation) -> tuple[int, int]:
    """The number of the dtype and the rank of an argument."""
    if not isinstance(annotation, (TensorType, ShapeType)) or annotation.rank is None:
        raise GraphError(f"{where} is {annotation}: a compiled function must know the rank of its arguments")
    if annotation.rank > MOST_AXES:
        raise GraphError(f"{where} has {annotation.rank} axes, of which there may be {MOST_AXES}")
    if isinstance(annotation, ShapeType):
        return SHAPE_NUMBER, annotation.rank
    if annotation.dtype is None:
        raise GraphError(f"{where} is {annotation}: a compiled function must know the dtype of its arguments")
    return DTYPE_NUMBERS[annotation.dtype], annotation.rank


_RULES: dict[type[GraphCall], Callable[[_Lowering, Binding, Any], RunValue]] = {
    OperatorCall: _Lowering.view,
    ProgramCall: _Lowering.program,
    LibraryCall: _Lowering.library,
    FunctionCall: _Lowering.function_call,
    BranchCall: _Lowering.branch,
    MatchCast: _Lowering.match_cast,
    TupleCall: lambda run, b, call: tuple(map(run.value, call.args)),
    ItemCall: lambda run, b, call: run.value(call.value)[call.index],
}
