"""Kernel: a compiled program, callable on numpy arrays and on anything that speaks dlpack.

kernel = compile(program)              # or Kernel(artifact) for object code that came from elsewhere
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
import numpy.typing as npt

from searchlab.errors import KernelError
from searchlab.ir.evaluate import evaluate
from searchlab.ir.expr import Const, Expr, Var, variables
from searchlab.ir.program import Buffer, Layout, Program
from searchlab.llvm import abi, jit
from searchlab.llvm.module import generate
from searchlab.lower.passes import Lowered, lower
from searchlab.runtime.memory import aligned
from searchlab.targets import CpuTarget, Target, cpu_of, detect

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Artifact:
    """Object code and all that is needed to call it: plain data that can be pickled and sent to another process."""

    name: str
    code: bytes
    entry: str
    target: CpuTarget
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    layouts: tuple[Layout, ...]
    sizes: tuple[str, ...]
    shared: Expr
    private: Expr
    parallel: bool
    program: Program


def build(program: Program, target: Target | None = None) -> Artifact:
    """Object code of a program whose knobs have become numbers."""
    cpu = cpu_of(target or detect())
    code = generate(lower(program, cpu), cpu)
    return Artifact(
        program.name,
        jit.compile_ir(code.ir, cpu),
        code.entry,
        cpu,
        tuple(program.buffers[n] for n in program.inputs),
        tuple(program.buffers[n] for n in program.outputs),
        program.layouts,
        code.sizes,
        code.shared,
        code.private,
        code.parallel,
        program,
    )


def compile(program: Program, target: Target | None = None) -> Kernel:
    """A callable kernel for a program whose knobs have become numbers."""
    return Kernel(build(program, target))


class Kernel:
    """A compiled program, loaded into this process."""

    def __init__(
        self, artifact: Artifact, constants: Mapping[str, Array] | None = None, sizes: Mapping[str, int] | None = None
    ) -> None:
        self.artifact = artifact
        self._object = jit.LoadedObject(artifact.code, artifact.target)
        self._call = abi.SIGNATURE(self._object.address(artifact.entry))
        self._layouts = {la.buffer: la for la in artifact.layouts}
        self._constants = dict(constants or {})
        self._sizes = dict(sizes or {})  # run-time sizes that the constants have settled
        self._scratch: list[Array] = []

    def __repr__(self) -> str:
        a = self.artifact
        return f"<kernel {a.name} for {a.target.cpu}, {a.target.threads} thread{'s' * (a.target.threads > 1)}>"

    # --- what it is made of -------------------------------------------------------------------------------------------

    @property
    def program(self) -> Program:
        return self.artifact.program

    @cached_property
    def lowered(self) -> Lowered:
        """The plain loops the code was made from."""
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

    def bind(self, **constants: Any) -> Kernel:
        """The kernel with constant inputs fixed: they are packed now, and left out of later calls."""
        known = {b.name: b for b in self.artifact.inputs}
        packed, sizes = dict(self._constants), dict(self._sizes)
        for name, array in constants.items():
            if name not in known:
                raise KernelError(f"{self.artifact.name} has no input '{name}'; inputs: {', '.join(known)}")
            packed[name] = self._accept(known[name], array, sizes)
        return Kernel(self.artifact, packed, sizes)

    def __call__(self, *arrays: Any, out: Any = None) -> Any:
        """The outputs: one array, or a tuple of several."""
        run, outputs = self.prepare(*arrays, out=out)
        run()
        return outputs[0] if len(outputs) == 1 else outputs

    def prepare(self, *arrays: Any, out: Any = None) -> tuple[Callable[[], None], tuple[Array, ...]]:
        """A function without arguments that runs the kernel on these arrays, and the outputs it fills.

        All checking, packing and allocation happens here, so that timing the function times the kernel.
        """
        a = self.artifact
        given = [b for b in a.inputs if b.name not in self._constants]
        if len(arrays) != len(given):
            names = ", ".join(_describe(b) for b in given)
            raise KernelError(f"{a.name} takes {len(given)} inputs ({names}), got {len(arrays)}")
        sizes = dict(self._sizes)
        accepted = dict(self._constants)
        # first the inputs whose shapes are plain sizes: others may be expressions of those
        order = sorted(zip(given, arrays, strict=True), key=lambda pair: not _is_plain(pair[0]))
        for b, x in order:
            accepted[b.name] = self._accept(b, x, sizes)
        outputs = self._outputs(out, sizes)
        values = [accepted[b.name] for b in a.inputs]
        _check_overlap(a, values, outputs)
        pointers = (ctypes.c_void_p * (len(values) + len(outputs)))(*(x.ctypes.data for x in (*values, *outputs)))
        self._check_known(sizes)
        numbers = (ctypes.c_int64 * max(1, len(a.sizes)))(*(sizes[s] for s in a.sizes))
        return self._runner(pointers, numbers, sizes, (values, outputs)), tuple(outputs)

    def _runner(self, pointers: Any, numbers: Any, sizes: Mapping[str, int], keep: Any) -> Callable[[], None]:
        a, call = self.artifact, self._call
        layout, threads, scratch = abi.ScratchLayout.of(a.shared, a.private, sizes), a.target.threads, self._scratch
        pool = _pool_address(threads) if a.parallel else 0
        need, at, here = layout.total(threads), ctypes.addressof(pointers), ctypes.addressof(numbers)

        def run() -> None:
            # a call takes a piece of scratch memory of its own, so that several threads may use one kernel
            try:
                memory = scratch.pop()
            except IndexError:
                memory = None
            if memory is None or memory.nbytes != need:
                memory = aligned((need,), np.uint8)
            call(*layout.words(at, here, memory.ctypes.data, pool, threads))
            scratch.append(memory)

        run.keep = (self, pointers, numbers, keep)  # type: ignore[attr-defined]
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
            # on cache lines, so that no vector is stored across two of them
            shapes = [tuple(int(evaluate(e, sizes)) for e in b.shape) for b in a.outputs]
            return [aligned(shape, b.dtype) for shape, b in zip(shapes, a.outputs, strict=True)]
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
    """An input in the layout that the schedule gave it, zero where it has no element."""
    shape = tuple(int(evaluate(e, sizes or {})) for e in buffer.shape)
    grid = np.ix_(*(np.arange(n) for n in shape))
    env = {v.name: g for v, g in zip(layout.iters, grid, strict=True)}
    indices = [evaluate(e, {**env, **(sizes or {})}) for e in layout.source]
    inside = [np.minimum(i, n - 1) for i, n in zip(indices, array.shape, strict=True)]
    packed = aligned(shape, array.dtype)
    packed[...] = np.broadcast_to(array[tuple(np.broadcast_arrays(*inside))], shape) if inside else array
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
    if array.dtype != np.dtype(buffer.dtype):
        raise KernelError(f"{where} has dtype {array.dtype}, expected {buffer.dtype}")
    if array.ndim != len(buffer.shape):
        raise KernelError(f"{where} has shape {array.shape}, expected {_describe(buffer)}")
    for extent, got in zip(buffer.shape, array.shape, strict=True):
        if isinstance(extent, Var) and extent.name not in sizes:
            if got < 1:
                raise KernelError(f"{where} has shape {array.shape}; {extent.name} must be at least 1")
            sizes[extent.name] = got
    for extent, got in zip(buffer.shape, array.shape, strict=True):
        missing = sorted(v.name for v in variables(extent) if v.name not in sizes)
        if missing:
            raise KernelError(f"{where} has shape {_describe(buffer)}, but no input determines {', '.join(missing)}")
        want = int(evaluate(extent, sizes))
        if want != got:
            given = ", ".join(f"{k}={v}" for k, v in sizes.items())
            raise KernelError(
                f"{where} has shape {array.shape}, expected {_describe(buffer)}" + (f" with {given}" if given else "")
            )
    if not array.flags.c_contiguous:
        raise KernelError(
            f"{where} has strides {array.strides}; it must be contiguous (numpy.ascontiguousarray makes it so)"
        )
    if array.ctypes.data % array.itemsize:
        raise KernelError(f"{where} does not begin at a multiple of its element size")


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


def _pool_address(threads: int) -> int:
    from searchlab.runtime.threadpool import parallel_for_address

    return parallel_for_address(threads)
