"""An emulator of PTX: runs a kernel on arrays of the host, all threads of many blocks at a time, and watches them.

It finds races, accesses out of bounds or misaligned, results of what was never written, and barriers that only some
threads of a block reach.  Its times say nothing about a device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.cuda.ptx_memory import Bools, Bytes, Ints, PtxFault, PtxMemory, TrackedMemory, Who
from searchlab.cuda.ptx_operations import COMPARISONS, OPERATIONS, TYPES, Values, converted
from searchlab.cuda.ptx_products import products
from searchlab.cuda.ptx_text import PtxInstruction, PtxText
from searchlab.errors import BuildError
from searchlab.targets.cuda import WARP

MOST_THREADS = 8192  # that run at a time: blocks beyond wait for their turn
MOST_STEPS = 5_000_000
_SPACES = ("global", "shared", "local", "param", "const")
_LENGTHS = {"v2": 2, "v4": 4}
Shape = tuple[int, int, int]


def run_kernel(text: PtxText, grid: Shape, block: Shape, arrays: Sequence[TrackedMemory], dynamic: int = 0) -> int:
    """Runs a kernel on arrays, which are its parameters in order; returns the number of steps.

    `dynamic` are the bytes of shared memory that the launch asks for.
    """
    if len(arrays) != len(text.parameters):
        raise BuildError(f"{text.entry} has {len(text.parameters)} parameters, {len(arrays)} arrays are given")
    threads, blocks = prod(block), prod(grid)
    at_once, steps = max(1, MOST_THREADS // threads), 0
    for first in range(0, blocks, at_once):
        numbers = np.arange(first, min(blocks, first + at_once))
        steps += _Wave(text, grid, block, numbers, list(arrays), dynamic).run()
    return steps


class _Wave:
    """Some blocks that run together, in step as long as their threads agree."""

    def __init__(
        self, text: PtxText, grid: Shape, block: Shape, blocks: Ints, arrays: list[TrackedMemory], dynamic: int
    ) -> None:
        self.text = text
        sizes = text.sizes | {"shared": -(-(text.sizes["shared"] + dynamic) // 16) * 16}  # as devices give it out
        threads = prod(block)
        self.count = len(blocks) * threads
        self.slot = np.repeat(np.arange(len(blocks)), threads)
        self.row = np.arange(self.count)
        self.block = np.repeat(blocks, threads)
        self.thread = self.block * threads + self.row % threads
        self.lane = self.row % threads % WARP
        self.warp = self.slot * -(-threads // WARP) + self.row % threads // WARP
        self.epoch = np.zeros(self.count, np.int64)
        self.special = _special(grid, block, self.block, self.row % threads)
        shared = np.full(len(blocks) * sizes["shared"], 0xAB, np.uint8)
        local = np.full(self.count * text.sizes["local"], 0xAB, np.uint8)
        self.memory = PtxMemory(arrays, TrackedMemory("shared memory", shared, written=False), local, sizes)
        self.registers: dict[str, Values] = {}
        self.unset: dict[str, Bools] = {}  # of registers, the threads in which they hold what has no value
        self.reads_unset: Bools | None = None  # whether the operands of an instruction do, in each of its threads
        self.copies: list[tuple[Ints, Ints, Bytes]] = []  # begun and not yet complete
        self.pc = np.zeros(self.count, np.int64)
        self.alive = np.ones(self.count, bool)
        self.waiting = np.zeros(self.count, bool)  # for all threads of the block
        self.gathering = np.zeros(self.count, bool)  # for all threads of the warp

    def run(self) -> int:
        """Runs all threads to their ends: those that are furthest behind go first, so that branches meet again."""
        steps = 0
        with np.errstate(all="ignore"):
            while self.alive.any():
                ready = self.alive & ~self.waiting & ~self.gathering
                if not ready.any():
                    self._release()
                    continue
                at = int(self.pc[ready].min())
                self._step(self.text.instructions[at], at, np.flatnonzero(ready & (self.pc == at)))
                steps += 1
                if steps > MOST_STEPS:
                    raise PtxFault(f"{self.text.entry} does not end within {MOST_STEPS} steps")
        return steps

    def _release(self) -> None:
        """Lets the threads go on that wait at a barrier: all of their block, at the same one."""
        if self.gathering.any():
            raise PtxFault(f"divergent shuffle: not all threads of a warp of {self.text.entry} reach it")
        for slot in np.unique(self.slot[self.alive]):
            mine = self.slot == slot
            if not self.alive[mine].all() or len(np.unique(self.pc[mine])) > 1:
                raise PtxFault(f"divergent barrier: not all threads of a block of {self.text.entry} reach it")
        self.epoch[self.alive] += 1
        self.pc[self.alive] += 1
        self.waiting[:] = False

    def _step(self, ins: PtxInstruction, at: int, who: Ints) -> None:
        go, self.reads_unset = who, None
        if ins.guard:
            held = self.get(ins.guard, "pred", who)
            self._must_be_set(f"a condition of {self.text.entry}")
            go = who[~held if ins.negated else held]
        self.pc[who] = at + 1
        name = ins.parts[0]
        if name == "bra":
            self.pc[go] = self.text.labels[ins.operands[0]]
        elif name in ("ret", "exit"):
            self.alive[go] = False
        elif name in ("bar", "barrier"):
            self.waiting[go], self.pc[go] = True, at
        elif len(go):
            _EXECUTE.get(name, _Wave.arithmetic)(self, ins, go)

    # --- operands -----------------------------------------------------------------------------------------------------

    def get(self, operand: str, type_: str, who: Ints) -> Values:
        """The values of an operand, as a type."""
        dtype = np.dtype(TYPES[type_])
        if operand in self.special:
            return self.special[operand][who].astype(dtype)
        if operand.startswith("%"):
            held = self.registers.get(operand)
            if held is None:  # it may still be what `selp` does not choose
                self.reads_unset = np.ones(len(who), bool)
                return np.zeros(len(who), dtype)
            if operand in self.unset:
                marks = self.unset[operand][who]
                self.reads_unset = marks if self.reads_unset is None else self.reads_unset | marks
            return _viewed(held[who], dtype)
        return np.full(len(who), self.constant(operand, dtype))

    def constant(self, operand: str, dtype: np.dtype[Any]) -> Any:
        """A number, or the address of an array."""
        if operand in self.text.arrays:
            space, at = self.text.arrays[operand]
            return np.int64((PtxMemory.SHARED if space == "shared" else PtxMemory.LOCAL) + at).astype(dtype)
        if operand.startswith("0f"):
            return np.uint32(int(operand[2:], 16)).view(np.float32).astype(dtype) if dtype.kind == "f" else np.uint32(
                int(operand[2:], 16)
            ).astype(dtype)  # fmt: skip
        if operand.startswith("0d"):
            bits = np.uint64(int(operand[2:], 16))
            return bits.view(np.float64).astype(dtype) if dtype.kind == "f" else bits.astype(dtype)
        if dtype.kind == "b":
            return bool(int(operand, 0))
        return np.array(int(operand.removesuffix("U"), 0) & ((1 << 64) - 1), np.uint64).astype(dtype)

    def put(self, register: str, value: Values, who: Ints) -> None:
        """Writes a register; narrower values are extended by their signs or zeros."""
        if register == "_":
            return
        width = self.text.widths[register.rstrip("0123456789")]
        dtype = np.dtype(bool if width == 1 else f"u{width // 8}")
        if register not in self.registers:
            self.registers[register] = np.zeros(self.count, dtype)
        if value.dtype.kind == "f":
            value = value.view(f"u{value.dtype.itemsize}")
        self.registers[register][who] = value.astype(dtype)
        if self.reads_unset is not None:
            self.unset.setdefault(register, np.zeros(self.count, bool))[who] = self.reads_unset
        elif register in self.unset:
            self.unset[register][who] = False

    def _must_be_set(self, what: str) -> None:
        if self.reads_unset is not None and self.reads_unset.any():
            raise PtxFault(f"uninitialised: {what} depends on what has no value")
        self.reads_unset = None

    # --- instructions -------------------------------------------------------------------------------------------------

    def arithmetic(self, ins: PtxInstruction, who: Ints) -> None:
        """An operation on operands of one type, the last part of its name."""
        name, *modifiers, type_ = ins.parts
        operation = OPERATIONS.get("mul.hi" if name == "mul" and "hi" in modifiers else name)
        if operation is None or type_ not in TYPES:
            raise BuildError(f"the emulator does not know this instruction: {ins.line}")
        types = [type_] * (len(ins.operands) - 1)
        if name in ("shl", "shr", "bfe"):
            types[1:] = ["u32"] * (len(types) - 1)
        if "wide" in modifiers:
            self.put(ins.operands[0], self.widened(ins, type_, who), who)
            return
        values = [self.get(x, t, who) for x, t in zip(ins.operands[1:], types, strict=True)]
        self.put(ins.operands[0], np.asarray(operation(*values)).astype(TYPES[type_]), who)

    def widened(self, ins: PtxInstruction, type_: str, who: Ints) -> Values:
        """A product of twice the bits, plus a number of as many."""
        double = f"{type_[0]}{2 * int(type_[1:])}"
        a, b = (self.get(x, type_, who).astype(TYPES[double]) for x in ins.operands[1:3])
        product: Values = a * b
        return product + self.get(ins.operands[3], double, who) if len(ins.operands) > 3 else product

    def move(self, ins: PtxInstruction, who: Ints) -> None:
        """`mov` and `cvta`: a copy; addresses are the same in all spaces here."""
        target, source = ins.operands
        if target.startswith("{"):
            names = _listed(target)
            whole = self.get(source, ins.parts[-1], who)
            bits = whole.dtype.itemsize * 8 // len(names)
            for n, name in enumerate(names):
                self.put(name, (whole >> whole.dtype.type(n * bits)).astype(f"u{bits // 8}"), who)
        elif source.startswith("{"):
            names = _listed(source)
            bits = int(ins.parts[-1][1:]) // len(names)
            total = np.zeros(len(who), np.uint64)
            for n, name in enumerate(names):
                total |= self.get(name, f"b{bits}", who).astype(np.uint64) << np.uint64(n * bits)
            self.put(target, total.astype(TYPES[ins.parts[-1]]), who)
        else:
            self.put(target, self.get(source, ins.parts[-1], who), who)

    def compare(self, ins: PtxInstruction, who: Ints) -> None:
        """`setp`, with a condition that it is joined with if there is a fourth operand."""
        test = COMPARISONS.get(ins.parts[1])
        if test is None or len(ins.operands) != 3:
            raise BuildError(f"the emulator does not know this instruction: {ins.line}")
        a, b = (self.get(x, ins.parts[-1], who) for x in ins.operands[1:])
        self.put(ins.operands[0], test(a, b), who)

    def choose(self, ins: PtxInstruction, who: Ints) -> None:
        """`selp`: one of two values."""
        target, a, b, p = ins.operands
        first = self.get(p, "pred", who)
        self._must_be_set(f"a choice of {self.text.entry}")
        chosen, unset = [], []
        for operand in (a, b):
            self.reads_unset = None
            chosen.append(self.get(operand, ins.parts[-1], who))
            unset.append(self.reads_unset if self.reads_unset is not None else np.zeros(len(who), bool))
        self.reads_unset = np.where(first, unset[0], unset[1]) if unset[0].any() or unset[1].any() else None
        self.put(target, np.where(first, *chosen), who)

    def convert(self, ins: PtxInstruction, who: Ints) -> None:
        """`cvt`: from the last type to the one before it; two numbers become one register, the first its high half."""
        *modifiers, target, source = ins.parts[1:]
        if (target, source, modifiers) == ("f16x2", "f32", ["rn"]):
            high, low = (self.get(x, source, who).astype(np.float16).view(np.uint16) for x in ins.operands[1:])
            self.put(ins.operands[0], high.astype(np.uint32) << np.uint32(16) | low, who)
            return
        if target not in TYPES or source not in TYPES or "sat" in modifiers:
            raise BuildError(f"the emulator does not know this instruction: {ins.line}")
        self.put(ins.operands[0], converted(self.get(ins.operands[1], source, who), target, tuple(modifiers)), who)

    def load(self, ins: PtxInstruction, who: Ints) -> None:
        """`ld`: one value or a vector, which must be aligned as a whole."""
        space, length, dtype = _access(ins)
        if space == "param":
            number = self.text.parameters.index(ins.operands[1].strip("[]"))
            self.put(ins.operands[0], np.full(len(who), PtxMemory.address(number), np.uint64), who)
            return
        registers = self.text.read_of(_listed(ins.operands[0]))
        size, address = dtype.itemsize * len(registers), self.address(ins.operands[1], who)
        if (address % (dtype.itemsize * length)).any():
            whole = dtype.itemsize * length
            raise PtxFault(f"misaligned: an access of {whole} bytes at an address that is no multiple of it")
        rows, unset = self.memory.load(address, size, self.who(who), self.slot[who], self.row[who], space)
        values = np.ascontiguousarray(rows).view(dtype)
        for n, register in enumerate(registers):
            if unset is not None:
                self.reads_unset = np.asarray(unset[:, n * dtype.itemsize : (n + 1) * dtype.itemsize].all(axis=1))
            self.put(register, np.ascontiguousarray(values[:, n]), who)

    def exchange(self, ins: PtxInstruction, who: Ints) -> None:
        """`shfl.sync.bfly`: the value of the lane whose number differs in some bits, which must have come here."""
        if ins.parts != ("shfl", "sync", "bfly", "b32") or len(ins.operands) != 5 or ins.operands[3:] != ("31", "-1"):
            raise BuildError(f"the emulator does not know this instruction: {ins.line}")
        who = self.gathered(who)
        if not len(who):
            return
        target, source, mask = ins.operands[:3]
        partner = who - self.lane[who] + (self.lane[who] ^ self.get(mask, "b32", who).astype(np.int64))
        here = np.minimum(np.searchsorted(who, partner), len(who) - 1)
        if (who[here] != partner).any() or (self.slot[who[here]] != self.slot[who]).any():
            raise PtxFault(f"divergent shuffle: a thread of {self.text.entry} takes a value of one that is not there")
        value = self.get(source, "b32", who)
        self.reads_unset = None if self.reads_unset is None else self.reads_unset[here]
        self.put(target, value[here], who)

    def multiply(self, ins: PtxInstruction, who: Ints) -> None:
        """`mma`: products of tiles by whole warps."""
        who = self.gathered(who)
        if not len(who):
            return
        if len(who) % WARP or (self.lane[who].reshape(-1, WARP) != np.arange(WARP)).any():
            raise PtxFault(f"divergent product: a warp of {self.text.entry} without all its lanes multiplies")
        a, b, c = (
            np.stack([self.get(x, "b32", who).reshape(-1, WARP) for x in _listed(operand)], axis=2)
            for operand in ins.operands[1:]
        )
        found = products(ins.parts[3:], a, b, c) if ins.parts[:3] == ("mma", "sync", "aligned") else None
        if found is None:
            raise BuildError(f"the emulator does not know this instruction: {ins.line}")
        self.reads_unset = None  # what has no value is no number, and shows in the results that it is part of
        for n, register in enumerate(_listed(ins.operands[0])):
            self.put(register, np.ascontiguousarray(found[:, :, n]).ravel(), who)

    def gathered(self, who: Ints) -> Ints:
        """The warps all of whose threads have come to an instruction; those of others wait there."""
        at = int(self.pc[who[0]])  # that of the next instruction
        self.pc[who], self.gathering[who] = at - 1, True
        come = self.alive & self.gathering & (self.pc == at - 1)
        missing = np.bincount(self.warp[self.alive & ~come], minlength=self.warp[-1] + 1)
        whole = np.flatnonzero(come & (missing[self.warp] == 0))
        self.pc[whole], self.gathering[whole] = at, False
        return whole

    def copy(self, ins: PtxInstruction, who: Ints) -> None:
        """`cp.async`: values are read at once, and written when the thread waits for its copies."""
        if ins.parts[:3] == ("cp", "async", "wait_all"):
            self.complete(who)
            return
        if ins.parts[2] not in ("ca", "cg") or ins.parts[3:] != ("shared", "global") or len(ins.operands) != 3:
            raise BuildError(f"the emulator does not know this instruction: {ins.line}")
        size = int(ins.operands[2])
        there, here = self.address(ins.operands[1], who), self.address(ins.operands[0], who)
        rows, _ = self.memory.load(there, size, self.who(who), self.slot[who], self.row[who], "global")
        self.memory.begin(here, size, self.who(who), self.slot[who], self.row[who])
        self.copies.append((who, here, rows))

    def complete(self, who: Ints) -> None:
        """Ends the copies that threads have begun."""
        left = []
        for threads, here, rows in self.copies:
            mine = np.isin(threads, who)
            done = threads[mine]
            if len(done):
                self.memory.store(here[mine], rows[mine], self.who(done), self.slot[done], self.row[done], "shared")
            if not mine.all():
                left.append((threads[~mine], here[~mine], rows[~mine]))
        self.copies = left

    def store(self, ins: PtxInstruction, who: Ints) -> None:
        """`st`: one value or a vector."""
        space, _, dtype = _access(ins)
        values = [self.get(x, ins.parts[-1], who) for x in _listed(ins.operands[1])]
        rows = np.ascontiguousarray(np.stack(values, axis=1)).view(np.uint8).reshape(len(who), -1)
        unset, self.reads_unset = self.reads_unset, None
        address = self.address(ins.operands[0], who)
        self.memory.store(address, rows, self.who(who), self.slot[who], self.row[who], space, unset)

    def address(self, operand: str, who: Ints) -> Ints:
        """The addresses of an operand `[base+offset]`."""
        base, _, offset = operand.strip("[]").partition("+")
        found = self.get(base.strip(), "u64", who).astype(np.int64) + int(offset or 0)
        self._must_be_set(f"an address of {self.text.entry}")
        return found

    def who(self, who: Ints) -> Who:
        """The threads as memory knows them."""
        return Who(self.thread[who], self.block[who], self.epoch[who])


_EXECUTE: dict[str, Callable[[_Wave, PtxInstruction, Ints], None]] = {
    "ld": _Wave.load,
    "st": _Wave.store,
    "mov": _Wave.move,
    "cvta": _Wave.move,
    "setp": _Wave.compare,
    "selp": _Wave.choose,
    "cvt": _Wave.convert,
    "cp": _Wave.copy,
    "shfl": _Wave.exchange,
    "mma": _Wave.multiply,
}


def _access(ins: PtxInstruction) -> tuple[str, int, np.dtype[Any]]:
    """The space of an access ("": any), the number of values and their type."""
    *modifiers, type_ = ins.parts[1:]
    space, length = "", 1
    for m in modifiers:
        if m in _SPACES:
            space = m
        elif m in _LENGTHS:
            length = _LENGTHS[m]
        elif m != "nc":
            raise BuildError(f"the emulator does not know this instruction: {ins.line}")
    return space, length, np.dtype(TYPES[type_])


def _listed(operand: str) -> list[str]:
    return [x.strip() for x in operand.strip("{}").split(",")]


def _viewed(held: npt.NDArray[Any], dtype: np.dtype[Any]) -> Values:
    """The bits of a register as a type; of a wider register, the low ones."""
    if dtype.kind == "b" or held.dtype == bool:
        return held.astype(dtype)
    return held.astype(f"u{dtype.itemsize}").view(dtype)


def _special(grid: Shape, block: Shape, number: Ints, thread: Ints) -> dict[str, Ints]:
    found: dict[str, Ints] = {}
    for name, shape, at in (("tid", block, thread), ("ctaid", grid, number)):
        x, y, _ = shape
        found |= {f"%{name}.x": at % x, f"%{name}.y": at // x % y, f"%{name}.z": at // (x * y)}
    for name, shape in (("ntid", block), ("nctaid", grid)):
        found |= {f"%{name}.{axis}": np.full(len(thread), n) for axis, n in zip("xyz", shape, strict=True)}
    return found
