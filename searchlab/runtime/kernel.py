"""CPU kernels: compiled programs, callable on numpy arrays and on anything that supports DLPack.

kernel = compile(program)              # or load(artifact) for object code that came from elsewhere
c = kernel(a, b)                       # allocates the output
kernel(a, b, out=c)                    # writes into the given array
fast = kernel.bind(B=weights)          # constant inputs are packed once, ahead of time
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from searchlab.backend import Allocate, Array, Arrays, Artifact, Kernel
from searchlab.dtype import DTYPES
from searchlab.errors import IRError, KernelError
from searchlab.ir.bfloat16 import numbers, stored
from searchlab.ir.evaluate import evaluate
from searchlab.ir.expr import Const, Expr, Var
from searchlab.ir.interpret import check_lookups
from searchlab.ir.program import Layout
from searchlab.ir.stmt import Buffer
from searchlab.ir.walk import variables
from searchlab.llvm import abi, jit
from searchlab.llvm.module import generate
from searchlab.lower.passes import Lowered, lower
from searchlab.runtime.memory import aligned
from searchlab.runtime.runs import CpuRuns
from searchlab.runtime.threadpool import parallel_for_address
from searchlab.targets import CpuTarget


@dataclass(frozen=True)
class CpuArtifact(Artifact):
    """Object code and the metadata needed to call it.

    `sizes` are the run-time sizes in the order of the arguments; `shared` and `private` are bytes of scratch memory,
    in terms of these.
    """

    target: CpuTarget
    code: bytes
    entry: str
    sizes: tuple[str, ...]
    shared: Expr
    private: Expr
    parallel: bool

    @property
    def size(self) -> int:
        """Bytes of object code."""
        return len(self.code)


@dataclass(frozen=True)
class _Arguments:
    """The arguments of a call: addresses of the arrays, run-time sizes, and the objects that keep both alive."""

    pointers: Any
    numbers: Any
    sizes: Mapping[str, int]
    inputs: Sequence[Array]
    outputs: Sequence[Array]


class CpuKernel(Kernel):
    """A compiled program, loaded into this process."""

    def __init__(
        self, artifact: CpuArtifact, constants: Arrays | None = None, sizes: Mapping[str, int] | None = None
    ) -> None:
        self.artifact: CpuArtifact = artifact
        self._object = jit.LoadedObject(artifact.code, artifact.target)
        self._call = abi.SIGNATURE(self._object.address(artifact.entry))
        self._layouts = {la.buffer: la for la in artifact.layouts}
        self._constants = dict(constants or {})
        self._sizes = dict(sizes or {})  # run-time sizes determined by the constants
        self._scratch: list[Array] = []

    def __repr__(self) -> str:
        a = self.artifact
        return f"<kernel {a.name} for {a.target.cpu}, {a.target.threads} thread{'s' * (a.target.threads > 1)}>"

    # --- inspection ---------------------------------------------------------------------------------------------------

    @cached_property
    def lowered(self) -> Lowered:
        """The plain loops the code was generated from."""
        return lower(self.artifact.program, self.artifact.target)

    @cached_property
    def llvm_ir(self) -> str:
        """The LLVM IR after optimisation."""
        return jit.optimized_ir(generate(self.lowered, self.artifact.target).ir, self.artifact.target)

    @cached_property
    def assembly(self) -> str:
        """The machine code as text."""
        return jit.assembly(generate(self.lowered, self.artifact.target).ir, self.artifact.target)

    # --- calling ------------------------------------------------------------------------------------------------------

    def bind(self, **constants: Any) -> CpuKernel:
        """The kernel with constant inputs fixed: they are packed now, and left out of later calls."""
        known = {b.name: b for b in self.artifact.inputs}
        packed, sizes = dict(self._constants), dict(self._sizes)
        for name, array in constants.items():
            if name not in known:
                raise KernelError(f"{self.artifact.name} has no input '{name}'; inputs: {', '.join(known)}")
            packed[name] = self._accept(known[name], array, sizes)
        return CpuKernel(self.artifact, packed, sizes)

    def prepare(self, *arrays: Any, out: Any = None) -> tuple[Callable[[], None], tuple[Array, ...]]:
        """A function without arguments that runs the kernel on these arrays, and the outputs it fills.

        All checking, packing and allocation happens here, so that timing the function times the kernel.
        """
        arguments = self._arguments(arrays, self._constants, out)
        return self._runner(arguments), tuple(arguments.outputs)

    def pack(self, inputs: Arrays) -> dict[str, Array]:
        """Inputs in the layout chosen by the schedule; with run-time sizes, packing is left to the call."""
        if self.artifact.sizes:
            return {}
        buffers = {b.name: b for b in self.artifact.inputs}
        layouts = [la for la in self.artifact.layouts if la.buffer in buffers]
        return {la.buffer: pack(la, buffers[la.buffer], inputs[la.buffer]) for la in layouts}

    def ready(self, inputs: Arrays, packed: Arrays, outputs: Arrays, allocate: Allocate) -> CpuRuns:
        """Runs on these arrays, with scratch memory from `allocate`."""
        a = self.artifact
        given = [inputs[b.name] for b in a.inputs if b.name not in packed]
        arguments = self._arguments(given, packed, [outputs[b.name] for b in a.outputs])
        layout, threads = abi.ScratchLayout.of(a.shared, a.private, arguments.sizes), a.target.threads
        base, scratch = allocate(layout.total(threads))
        pool = parallel_for_address(threads) if a.parallel else 0
        at, here = ctypes.addressof(arguments.pointers), ctypes.addressof(arguments.numbers)
        words = layout.words(at, here, base, pool, threads)
        return CpuRuns(self._object.address(a.entry), words, (self, arguments, scratch))

    def _arguments(self, arrays: Sequence[Any], constants: Arrays, out: Any) -> _Arguments:
        a = self.artifact
        given = [b for b in a.inputs if b.name not in constants]
        if len(arrays) != len(given):
            names = ", ".join(_describe(b) for b in given)
            raise KernelError(f"{a.name} takes {len(given)} inputs ({names}), got {len(arrays)}")
        sizes = dict(self._sizes)
        accepted = dict(constants)
        # first the inputs whose shapes are plain sizes: others may be expressions of those
        order = sorted(zip(given, arrays, strict=True), key=lambda pair: not _is_plain(pair[0]))
        for b, x in order:
            accepted[b.name] = self._accept(b, x, sizes)
        outputs = self._outputs(out, sizes)
        values = [accepted[b.name] for b in a.inputs]
        _check_overlap(a, values, outputs)
        pointers = (ctypes.c_void_p * (len(values) + len(outputs)))(*(x.ctypes.data for x in (*values, *outputs)))
        self._check_known(sizes)
        try:
            check_lookups(a.program, accepted, sizes)
        except IRError as e:
            raise KernelError(str(e)) from None
        numbers = (ctypes.c_int64 * max(1, len(a.sizes)))(*(sizes[s] for s in a.sizes))
        return _Arguments(pointers, numbers, sizes, values, outputs)

    def _runner(self, arguments: _Arguments) -> Callable[[], None]:
        a, call, scratch, threads = self.artifact, self._call, self._scratch, self.artifact.target.threads
        layout = abi.ScratchLayout.of(a.shared, a.private, arguments.sizes)
        pool = parallel_for_address(threads) if a.parallel else 0
        need = layout.total(threads)
        at, here = ctypes.addressof(arguments.pointers), ctypes.addressof(arguments.numbers)

        def run() -> None:
            # each call allocates its own scratch memory, so that several threads may use one kernel
            try:
                memory = scratch.pop()
            except IndexError:
                memory = None
            if memory is None or memory.nbytes != need:
                memory = aligned((need,), np.uint8)
            call(*layout.words(at, here, memory.ctypes.data, pool, threads))
            scratch.append(memory)

        run.keep = (self, arguments)  # type: ignore[attr-defined]
        return run

    def _accept(self, buffer: Buffer, x: Any, sizes: dict[str, int]) -> Array:
        """An input as an array the code can read: checked, and packed if the schedule changed its layout."""
        layout = self._layouts.get(buffer.name)
        expected = layout.original if layout is not None else buffer
        array = _as_array(x, f"{self.artifact.name}: input '{buffer.name}'")
        _check(array, expected, f"{self.artifact.name}: input '{buffer.name}'", sizes)
        return array if layout is None else pack(layout, buffer, array, sizes)

    def _check_known(self, sizes: Mapping[str, int]) -> None:
        missing = [s for s in self.artifact.sizes if s not in sizes]
        if missing:
            raise KernelError(f"{self.artifact.name}: the inputs do not determine {', '.join(missing)}")

    def _outputs(self, out: Any, sizes: dict[str, int]) -> list[Array]:
        a = self.artifact
        if out is None:
            self._check_known(sizes)
            if a.program.updates:
                raise KernelError(f"{a.name} updates {', '.join(a.program.updates)}: pass all outputs as `out`")
            # aligned to cache lines, so that no vector store crosses a line
            shapes = [tuple(int(evaluate(e, sizes)) for e in b.shape) for b in a.outputs]
            return [aligned(shape, DTYPES[b.dtype].storage) for shape, b in zip(shapes, a.outputs, strict=True)]
        given = list(out) if isinstance(out, (tuple, list)) else [out]
        if len(given) != len(a.outputs):
            raise KernelError(f"{a.name} has {len(a.outputs)} outputs, `out` has {len(given)}")
        arrays = []
        for b, x in zip(a.outputs, given, strict=True):
            where = f"{a.name}: output '{b.name}'"
            array = _as_array(x, where)
            _check(array, b, where, sizes)
            if not array.flags.writeable:
                raise KernelError(f"{where} is read-only")
            arrays.append(array)
        return arrays


def pack(layout: Layout, buffer: Buffer, array: Array, sizes: Mapping[str, int] | None = None) -> Array:
    """An input in the layout chosen by the schedule, zero in the padding."""
    shape = tuple(int(evaluate(e, sizes or {})) for e in buffer.shape)
    grid = np.ix_(*(np.arange(n) for n in shape))
    env = {v.name: g for v, g in zip(layout.iters, grid, strict=True)}
    indices = [evaluate(e, {**env, **(sizes or {})}) for e in layout.source]
    inside = [np.minimum(i, n - 1) for i, n in zip(indices, array.shape, strict=True)]
    found = np.broadcast_to(array[tuple(np.broadcast_arrays(*inside))], shape) if inside else array
    packed = aligned(shape, np.dtype(DTYPES[buffer.dtype].storage))
    same = buffer.dtype == layout.original.dtype
    packed[...] = found if same else stored(numbers(found, layout.original.dtype), buffer.dtype)
    keep = evaluate(layout.predicate, {**env, **(sizes or {})})
    if not np.all(keep):
        packed[~np.broadcast_to(keep, shape)] = 0
    return packed


def _as_array(x: Any, where: str) -> Array:
    if isinstance(x, np.ndarray):
        return x
    if hasattr(x, "__dlpack__"):
        try:
            return np.from_dlpack(x)
        except (TypeError, BufferError, RuntimeError, ValueError) as e:
            raise KernelError(f"{where}: cannot be read through dlpack: {e}") from e
    raise KernelError(f"{where}: expected a numpy array or an object with __dlpack__, got {type(x).__name__}")


def _check(array: Array, buffer: Buffer, where: str, sizes: dict[str, int]) -> None:
    """Refuses an array that the code cannot accept; infers run-time sizes from its shape."""
    dtype = DTYPES[buffer.dtype]
    if array.dtype != np.dtype(dtype.storage):
        raise KernelError(f"{where} has dtype {array.dtype}, expected {dtype.described}")
    if array.ndim != len(buffer.shape):
        raise KernelError(f"{where} has shape {array.shape}, expected {_describe(buffer)}")
    _settle_sizes(array, buffer, where, sizes)
    _check_shape(array, buffer, where, sizes)
    if not array.flags.c_contiguous:
        raise KernelError(
            f"{where} has strides {array.strides}; it must be contiguous (numpy.ascontiguousarray makes it so)"
        )
    if array.ctypes.data % array.itemsize:
        raise KernelError(f"{where} does not begin at a multiple of its element size")


def _settle_sizes(array: Array, buffer: Buffer, where: str, sizes: dict[str, int]) -> None:
    for extent, got in zip(buffer.shape, array.shape, strict=True):
        if isinstance(extent, Var) and extent.name not in sizes:
            if got < 1:
                raise KernelError(f"{where} has shape {array.shape}; {extent.name} must be at least 1")
            sizes[extent.name] = got


def _check_shape(array: Array, buffer: Buffer, where: str, sizes: Mapping[str, int]) -> None:
    for extent, got in zip(buffer.shape, array.shape, strict=True):
        missing = sorted(v.name for v in variables(extent) if v.name not in sizes)
        if missing:
            raise KernelError(f"{where} has shape {_describe(buffer)}, but no input determines {', '.join(missing)}")
        if int(evaluate(extent, sizes)) != got:
            given = ", ".join(f"{k}={v}" for k, v in sizes.items())
            known = f" with {given}" if given else ""
            raise KernelError(f"{where} has shape {array.shape}, expected {_describe(buffer)}{known}")


def _check_overlap(a: Artifact, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    everything = [
        *((b.name, x) for b, x in zip(a.inputs, inputs, strict=True)),
        *zip((b.name for b in a.outputs), outputs, strict=True),
    ]
    for n, y in zip((b.name for b in a.outputs), outputs, strict=True):
        for m, x in everything:
            if m != n and np.may_share_memory(x, y):
                raise KernelError(f"{a.name}: output '{n}' overlaps '{m}' in memory; they must be apart")


def _is_plain(b: Buffer) -> bool:
    return all(isinstance(e, (Const, Var)) for e in b.shape)


def _describe(b: Buffer) -> str:
    return f"{b.name}: {b.dtype}[{', '.join(map(str, b.shape))}]"
