"""The memory of a function while it runs: storages as planned, outputs that callers keep, and what is given back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from searchlab.errors import GraphError
from searchlab.graph.annotations import Shape, TensorType
from searchlab.graph.passes.lifetimes import WORKSPACE
from searchlab.graph.passes.memory_plan import MemoryPlan, Storage
from searchlab.graph.vm.bytecode import Check, CodeWriter
from searchlab.graph.vm.machine import DTYPE_NUMBERS, LINE, MOST_AXES, SHAPE_NUMBER
from searchlab.graph.vm.run_values import ExtentsAt, RunValue, TensorAt, bytes_of, leaves
from searchlab.graph.vm.size_registers import SizeRegisters

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HeldStorage:
    """A storage that is acquired somewhere in the code: its name, its register, and whether its block is kept."""

    name: str
    register: int
    keep: int


class FrameMemory:
    """Writes the code that acquires, places and releases; `roots` says which values are the outputs of the function.

    `held` gathers all storages of the code.  A function that is called by another one writes its outputs to the
    addresses in the registers `given`; those of others are handed to the caller of the model.
    """

    def __init__(
        self,
        where: str,
        sizes: SizeRegisters,
        plan: MemoryPlan,
        roots: list[str],
        held: list[HeldStorage],
        given: Sequence[int] | None = None,
    ) -> None:
        self.where, self.code, self.sizes, self.plan = where, sizes.code, sizes, plan
        self._held, self._given = held, given
        self._numbers: dict[str, int] = {}  # of the storages acquired so far
        self.made: dict[str, TensorAt] = {}  # what calls have filled
        self._roots = roots
        self._own: list[str] = []  # storages that the plan does not know of
        self._keep = self.code.word(int(plan.policy != "none"))
        self._direct: dict[str, int] = {}  # the outputs that calls write themselves
        for number, root in enumerate(roots):
            if root not in plan.places:
                self._direct.setdefault(root, number)
        # by call, so that every call looks at its own alone
        self._begins = _listed((s.first, s) for s in plan.storages)
        self._ends = _listed((s.last, s) for s in plan.storages)
        placed = (v for v in plan.values if v.size is not None and v.name in plan.offsets)
        self._forgotten = _listed((v.last, v) for v in placed)

    def before(self, at: int) -> None:
        """Acquires what begins at a call."""
        for storage in self._begins.get(at, ()):
            self._acquire(storage)

    def after(self, at: int) -> None:
        """Gives back what was needed up to a call."""
        for v in self._forgotten.get(at, ()):
            if v.name in self.made and v.size is not None:
                self.code.call("forget", self.made[v.name].address, self.sizes.register(v.size))
        for storage in self._ends.get(at, ()):
            self._release(storage.name)

    def room(self, name: str, annotation: TensorType) -> TensorAt:
        """Memory for a result of a call: in a storage, in an output of the function, or of its own."""
        assert annotation.dtype is not None and annotation.shape is not None
        if (placed := self._placed(name)) is not None:
            address = placed
        elif name in self._direct:
            address = self._output(self._direct[name], annotation.shape, annotation.dtype)
        else:
            self._acquire(Storage(name, bytes_of(annotation.shape, annotation.dtype), 0, 0))
            self._own.append(name)
            address = self._register(name)
        self.made[name] = TensorAt(address, annotation.dtype, annotation.shape)
        return self.made[name]

    def workspace(self, name: str) -> int:
        """The register of the scratch memory of a call; zero if the machine provides it."""
        return self._placed(f"{name}.{WORKSPACE}") or self.code.word(0)

    def _placed(self, name: str) -> int | None:
        """The register of the address at which a value is planned."""
        storage = self.plan.places.get(name)
        if storage is None:
            return None
        offset = self.plan.offsets.get(name, 0)
        if not offset:
            return self._register(storage)
        return self.code.value("add", self._register(storage), self.code.word(offset))

    def hand_over(self, result: RunValue) -> None:
        """Fills the outputs that no call has written: arguments, constants, what is returned twice, and shapes."""
        for number, (value, root) in enumerate(zip(leaves(result), self._roots, strict=True)):
            if isinstance(value, ExtentsAt):
                self._output_shape(number, value)
                continue
            if value.shape is None:
                raise GraphError(f"{self.where}: a result of unknown shape; match_cast says what it is")
            direct = root in self.made and self._direct.get(root) == number
            if direct and self.made[root].shape == value.shape:
                continue
            address = self._output(number, value.shape, value.dtype)
            if not direct:
                size = self.sizes.register(bytes_of(value.shape, value.dtype))
                self.code.call("copy", address, value.address, size)
        for name in self._own:
            self._release(name)

    def _acquire(self, storage: Storage) -> None:
        check = Check(f"{self.where}: memory for {storage.name}")
        size, number = self.sizes.register(storage.size), self.code.word(len(self._held))
        register = self.code.value("acquire", size, number, self._keep, check=check)
        self._numbers[storage.name] = len(self._held)
        self._held.append(HeldStorage(storage.name, register, self._keep))

    def _register(self, storage: str) -> int:
        return self._held[self._numbers[storage]].register

    def _release(self, storage: str) -> None:
        release(self.code, self._held, self._numbers[storage])

    def _output(self, number: int, shape: Shape, dtype: str) -> int:
        """The register of the address of an output."""
        if len(shape) > MOST_AXES:
            raise GraphError(f"{self.where}: a result has {len(shape)} axes, of which there may be {MOST_AXES}")
        if self._given is not None:
            return self._given[number]
        word = self.code.word
        size, extents = self.sizes.register(bytes_of(shape, dtype)), [self.sizes.register(e) for e in shape]
        check = Check(f"{self.where}: memory for result {number}")
        about = word(DTYPE_NUMBERS[dtype]), word(len(extents))
        return self.code.value("output", word(number), size, *about, *extents, check=check)

    def _output_shape(self, number: int, value: ExtentsAt) -> None:
        if self._given is not None:
            raise GraphError(f"{self.where}: a function that is called by a branch returns tensors, not shapes")
        word = self.code.word
        about = word(LINE), word(SHAPE_NUMBER), word(len(value.registers))
        self.code.call("output", word(number), *about, *value.registers)


def _listed(pairs: Iterable[tuple[int, T]]) -> dict[int, list[T]]:
    """What belongs to each number, in order."""
    found: dict[int, list[T]] = {}
    for number, item in pairs:
        found.setdefault(number, []).append(item)
    return found


def release(code: CodeWriter, held: Sequence[HeldStorage], number: int) -> None:
    """Gives a storage back, if it is held."""
    storage = held[number]
    code.call("release", storage.register, code.word(number), storage.keep, result=storage.register)


def clean_up(code: CodeWriter, held: Sequence[HeldStorage], outputs: int) -> int:
    """Where the code begins by which a run that fails gives back everything that it holds."""
    begin = len(code.words)
    for number in range(len(held)):
        release(code, held, number)
    for number in range(outputs):
        code.call("drop_output", code.word(number))
    code.leave()
    return begin
