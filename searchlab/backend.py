"""Back ends: the interface through which programs are compiled, loaded and timed on one kind of machine.

    artifact = backend_of(target).build(program, target)     # plain data, made in any process
    kernel = backend_of(target).load(artifact)               # in a process that can run it
    c = kernel(a, b)

Measurement, exports and benchmarks use only these classes.  Those for CPUs are in `runtime`; others are found by the
`backend` attribute of their kind of target.
"""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import numpy.typing as npt

from searchlab.errors import BuildError, ExportError, MeasureError
from searchlab.ir.evaluate import evaluate
from searchlab.ir.program import Layout, Program
from searchlab.ir.stmt import Buffer
from searchlab.lower.passes import Lowered
from searchlab.named import Named
from searchlab.targets import Target, detect

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]
# Maps a number of bytes to an address and the object that keeps the memory alive.
Allocate = Callable[[int], tuple[int, object]]
# The notes that `Kernel.notes` may have, in the order in which people read them.
CODE_NOTES = ("registers", "spills", "shared memory", "occupancy", "device", "clocks", "temperature")


@dataclass(frozen=True)
class Artifact:
    """A compiled program: plain data that can be pickled and sent to another process."""

    program: Program
    target: Target

    @property
    def name(self) -> str:
        """The name of the program."""
        return self.program.name

    @property
    def size(self) -> int | None:
        """Bytes of the code; None where the back end does not tell."""
        return None

    @property
    def inputs(self) -> tuple[Buffer, ...]:
        """The arrays that it reads, in the layouts chosen by the schedule."""
        return tuple(self.program.buffers[n] for n in self.program.inputs)

    @property
    def outputs(self) -> tuple[Buffer, ...]:
        """The arrays that it writes."""
        return tuple(self.program.buffers[n] for n in self.program.outputs)

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """The packing of inputs whose layout the schedule has changed."""
        return self.program.layouts


class Runs(ABC):
    """A kernel prepared for one set of arrays: `runs(n)` runs it n times and returns when all runs are done."""

    @abstractmethod
    def __call__(self, count: int = 1) -> float | None:
        """Runs the kernel `count` times in sequence; returns its seconds by a clock of the machine, if it has one."""

    def read_back(self) -> None:
        """Copies the results of the last run to the output arrays, which need not hold them earlier."""
        return  # nothing to do for kernels that work in host memory


class Kernel(ABC):
    """A program loaded into this process, callable on arrays."""

    artifact: Artifact

    @property
    def program(self) -> Program:
        """The program it was made from."""
        return self.artifact.program

    def __call__(self, *arrays: Any, out: Any = None) -> Any:
        """The outputs: one array, or a tuple of several."""
        run, outputs = self.prepare(*arrays, out=out)
        run()
        return outputs[0] if len(outputs) == 1 else outputs

    def notes(self) -> dict[str, str]:
        """What is known about the code and the machine besides times, for records: some of CODE_NOTES."""
        return {}

    @abstractmethod
    def bind(self, **constants: Any) -> Self:
        """The kernel with constant inputs fixed: they are packed now, and left out of later calls."""

    @abstractmethod
    def prepare(self, *arrays: Any, out: Any = None) -> tuple[Callable[[], None], tuple[Array, ...]]:
        """A function without arguments that runs the kernel on these arrays, and the outputs it fills.

        All checking, packing and allocation happens here, so that timing the function times the kernel.
        """

    @abstractmethod
    def pack(self, inputs: Arrays) -> dict[str, Array]:
        """Those inputs that can be packed ahead of time, in the layout that the code expects."""

    @abstractmethod
    def ready(self, inputs: Arrays, packed: Arrays, outputs: Arrays, allocate: Allocate) -> Runs:
        """Runs on these arrays, for measurement.

        `packed` came from `pack` and takes precedence over `inputs`.  Scratch memory of the host comes from `allocate`,
        so that the measurer controls it.
        """


@dataclass(frozen=True)
class Argument:
    """An array of an exported function; `packed` is the shape that the kernel expects, if it differs.

    `held` is the type of the elements of a packed array.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    packed: tuple[int, ...] | None = None
    held: str | None = None


@dataclass(frozen=True)
class Standalone(ABC):
    """A program for a target as a C function `name` that runs without searchlab."""

    name: str
    program: Program
    target: Target

    def __post_init__(self) -> None:
        if sizes := self.program.sizes:
            raise ExportError(f"{self.program.name} has sizes known only at run time ({', '.join(sizes)}): fix them")
        if not re.fullmatch(r"[A-Za-z_]\w*", self.name, re.ASCII):
            raise ExportError(f"'{self.name}' is not a C identifier: use letters, digits and underscores")

    @cached_property
    def inputs(self) -> tuple[Argument, ...]:
        """The arrays it reads, in order."""
        packed = {la.buffer: la for la in self.program.layouts}
        return tuple(self._argument(n, packed.get(n)) for n in self.program.inputs)

    @cached_property
    def outputs(self) -> tuple[Argument, ...]:
        """The arrays it writes, after the inputs."""
        return tuple(self._argument(n, None) for n in self.program.outputs)

    def _argument(self, name: str, layout: Layout | None) -> Argument:
        buffer = self.program.buffers[name]
        if layout is None:
            return Argument(name, buffer.dtype, _shape(buffer))
        return Argument(name, layout.original.dtype, _shape(layout.original), _shape(buffer), buffer.dtype)

    @property
    @abstractmethod
    def architecture(self) -> str:
        """The instruction set of the code."""

    @property
    @abstractmethod
    def platform(self) -> str:
        """The architecture and operating system of the code, as linkers name them."""

    @property
    @abstractmethod
    def needs(self) -> list[str]:
        """Features of the machine that its loader checks, as /proc/cpuinfo names them."""

    @property
    def permission(self) -> str:
        """What a process must be permitted to use, which the code asks for when it is loaded; empty: nothing.

        If it is not empty there is a C function `NAME_permitted`: 0, or the error that `NAME` returns as well.
        """
        return ""

    @property
    @abstractmethod
    def linkable(self) -> str:
        """Empty if this machine can link the object file, else the reason why not."""

    @property
    @abstractmethod
    def parallel(self) -> bool:
        """Whether it has parallel loops."""

    @property
    def threads(self) -> int:
        """The default number of threads."""
        return self.target.threads if self.parallel else 1

    @property
    @abstractmethod
    def scratch(self) -> tuple[int, int]:
        """Bytes of scratch memory: shared by all threads, and private to each."""

    @property
    @abstractmethod
    def object(self) -> bytes:
        """An object file, ready for a linker."""

    @property
    @abstractmethod
    def listings(self) -> Mapping[str, str]:
        """Human-readable listings of the code, by file name."""


@dataclass(frozen=True)
class Package:
    """A program as files that run elsewhere, for machines whose code is no C library.

    `about` says what each file holds, `usage` how they are used, and `description` is for loaders.  `missing` is the
    reason why a file is not there.
    """

    name: str
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    files: Mapping[str, str | bytes]
    about: Mapping[str, str]
    usage: str
    description: Mapping[str, Any] = field(default_factory=dict)
    missing: str = ""


class ObjectCode(Protocol):
    """Object code that is loaded into this process."""

    def address(self, symbol: str) -> int:
        """The address of a function."""

    def keep(self) -> None:
        """Leaves the code in memory until the process ends."""


class Backend(ABC):
    """Builds, loads and times programs on machines of one kind; `forms` are the kinds of listings it can produce."""

    forms: ClassVar[tuple[str, ...]] = ()

    @property
    def emulated(self) -> bool:
        """Whether kernels run in an emulator: results are those of the target, times are not."""
        return False

    @abstractmethod
    def lower(self, program: Program, target: Target) -> Lowered:
        """The plain loops that code is generated from."""

    @abstractmethod
    def build(self, program: Program, target: Target) -> Artifact:
        """Compiles a program whose knobs are all numbers; raises BuildError if that is impossible."""

    def examined(self, artifact: Artifact) -> Artifact:
        """The artifact with what tools say about its code, before it is measured; ConstraintError refuses it."""
        return artifact

    @abstractmethod
    def load(self, artifact: Artifact) -> Kernel:
        """The kernel of an artifact, in this process."""

    @abstractmethod
    def require(self, target: Target) -> None:
        """Raises BuildError unless this machine can run code for `target`."""

    def sources(self) -> tuple[Path, ...]:
        """Files and folders that determine the generated code; measurements are comparable only if they match."""
        return Path(__file__).parent / "lower", Path(inspect.getfile(type(self)))

    def versions(self) -> dict[str, str]:
        """Versions, by name, of the libraries that affect the generated code."""
        return {}

    def listing(self, program: Program, target: Target, form: str) -> str:
        """A readable listing of a program's code in one of `forms`; the target need not be this machine."""
        raise BuildError(f"no listings of code for {target.name}: {form}")

    def standalone(self, name: str, program: Program, target: Target) -> Standalone:
        """The program as a C function `name`, for exports."""
        raise ExportError(f"programs for {target.name} cannot be exported")

    def package(self, name: str, program: Program, target: Target, title: str) -> Package | None:
        """The program as files that run elsewhere, where exports are not C libraries; None where they are."""
        return None

    def open_standalone(self, code: bytes, target: Target) -> ObjectCode:
        """The object file of an export, loaded into this process."""
        raise ExportError(f"exports for {target.name} cannot be loaded from object files")

    # --- timing -------------------------------------------------------------------------------------------------------

    def warm_up(self, target: Target) -> None:
        """Loads what all kernels for `target` share, before processes that measure them are forked from this one."""
        return  # by default kernels share nothing

    def open_device(self, target: Target) -> None:
        """Opens the device of kernels in a process that measures them; its memory does not count as a candidate's."""
        return  # by default kernels run in the process itself

    @property
    def device_kind(self) -> str:
        """What kernels run on besides the cores of the host, which others must not use meanwhile; empty: nothing."""
        return ""

    def clock_probe(self) -> Callable[[], float] | None:
        """A function that times the clock probe, in seconds; None if the clock of the machine is stable."""
        return None

    def evictor(self, target: Target) -> Callable[[], None]:
        """A function that evicts the caches, for measurements with cold caches."""
        raise MeasureError(f"{target.name}: its caches cannot be emptied; measure with cache: warm")


def _shape(buffer: Buffer) -> tuple[int, ...]:
    return tuple(int(evaluate(e, {})) for e in buffer.shape)


def backend_of(target: Target) -> Backend:
    """The back end for the kind of machine that a target is."""
    return _backend(type(target).backend, target.kind)


@cache
def _backend(path: str, kind: str) -> Backend:
    return Named(path, f"back end of {kind} targets", BuildError).subclass(Backend)()  # type: ignore[type-abstract]


def build(program: Program, target: Target | None = None) -> Artifact:
    """Compiles a program whose knobs are all numbers, for this machine unless a target is given."""
    wanted = target or detect()
    return backend_of(wanted).build(program, wanted)


def load(artifact: Artifact) -> Kernel:
    """The kernel of an artifact, in this process."""
    return backend_of(artifact.target).load(artifact)


def compile(program: Program, target: Target | None = None) -> Kernel:
    """Compiles and loads a program whose knobs are all numbers."""
    return load(build(program, target))
