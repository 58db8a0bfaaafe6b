"""The memory of emulated kernels: every byte knows who wrote and read it, so that races and stray accesses show.

Two accesses of a byte race if different threads make them, one of them writes, and no barrier is between them: in one
block that is the same *epoch* (number of barriers passed), and between blocks there is no barrier at all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from searchlab.errors import KernelError

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]
_WORD = 4  # bytes
_NO_VALUE = 0xFF  # bytes of a NaN of any type, which shows in whatever is computed with it


class PtxFault(KernelError):
    """What an emulated kernel does wrong; on a device it would go unnoticed, or end the process."""


@dataclass(frozen=True)
class Who:
    """The threads that make an access, by their numbers in the whole grid, with their blocks and epochs."""

    thread: Ints
    block: Ints
    epoch: Ints


class TrackedMemory:
    """Bytes with the last writer and the readers since; `written` says that all of them have values."""

    def __init__(self, name: str, data: Bytes, *, written: bool, writable: bool = True) -> None:
        self.name = name
        self.data = data
        self.writable = writable
        self._unwritten = None if written else np.ones(len(data), bool)
        if writable:
            self._writer, self._reader = (np.full(len(data), -1) for _ in range(2))
            self._writer_block, self._reader_block = (np.full(len(data), -1) for _ in range(2))
            self._writer_epoch, self._reader_epoch = (np.full(len(data), -1) for _ in range(2))
            self._several, self._blocks = (np.zeros(len(data), bool) for _ in range(2))

    def launch(self) -> None:
        """Begins a kernel: all accesses of earlier ones are over."""
        if self.writable:
            for marks in (self._writer, self._reader):
                marks.fill(-1)
            for flags in (self._several, self._blocks):
                flags.fill(False)

    def load(self, at: Ints, size: int, who: Who) -> tuple[Bytes, Bools | None]:
        """The bytes at these addresses, one row for each thread; and which of them nobody has written, if any.

        Such bytes may be read, since LLVM joins what a condition guards with what is always loaded, or loads it
        without asking; but nothing may come of them.  A word that has some bytes with values counts as written.
        """
        cells = at[:, None] + np.arange(size)
        nothing = None if self._unwritten is None else _without_values(self._unwritten[cells])
        if self.writable:
            self._check_writers(cells, who, "reads what another writes")
            self._note_readers(cells, who)
        found: Bytes = self.data[cells]
        if nothing is None or not nothing.any():
            return found, None
        found[nothing] = _NO_VALUE
        return found, nothing

    def store(self, at: Ints, values: Bytes, who: Who, unset: Bools | None = None) -> None:
        """Writes a row of bytes for each thread; rows that are `unset` have no value still."""
        if not self.writable:
            raise PtxFault(f"out of bounds: a thread writes to the input {self.name}")
        cells = at[:, None] + np.arange(values.shape[1])
        self._check_writers(cells, who, "writes what another writes")
        self._check_readers(cells, who)
        thread = np.broadcast_to(who.thread[:, None], cells.shape)
        self._writer[cells] = thread
        if (self._writer[cells] != thread).any():
            raise PtxFault(f"race: two threads write one element of {self.name} at once")
        self._writer_block[cells], self._writer_epoch[cells] = who.block[:, None], who.epoch[:, None]
        self.data[cells] = values
        if self._unwritten is not None:
            self._unwritten[cells] = False if unset is None else unset[:, None]

    def begin(self, at: Ints, size: int, who: Who) -> None:
        """Begins to copy to these addresses: nobody may read them until the copy is complete, and `store` says so."""
        self.store(at, np.full((len(at), size), 0xAB, np.uint8), who)
        if self._unwritten is not None:
            self._unwritten[at[:, None] + np.arange(size)] = True

    def _check_writers(self, cells: Ints, who: Who, what: str) -> None:
        other = (self._writer[cells] != who.thread[:, None]) & (self._writer[cells] >= 0)
        near = self._writer_block[cells] == who.block[:, None]
        if (other & near & (self._writer_epoch[cells] == who.epoch[:, None])).any():
            raise PtxFault(f"race: a thread {what} in {self.name}, with no barrier between")
        if (other & ~near).any():
            raise PtxFault(f"race: a thread of one block {what} in {self.name}, in another block")

    def _check_readers(self, cells: Ints, who: Who) -> None:
        reader, near = self._reader[cells], self._reader_block[cells] == who.block[:, None]
        now = self._reader_epoch[cells] == who.epoch[:, None]
        other = (reader >= 0) & ((reader != who.thread[:, None]) | self._several[cells])
        if (other & near & now).any():
            raise PtxFault(f"race: a thread writes what another reads in {self.name}, with no barrier between")
        if (self._blocks[cells] | ((reader >= 0) & ~near)).any():
            raise PtxFault(f"race: a thread of one block writes what another block reads in {self.name}")

    def _note_readers(self, cells: Ints, who: Who) -> None:
        thread, block, epoch = (np.broadcast_to(x[:, None], cells.shape) for x in (who.thread, who.block, who.epoch))
        before, near = self._reader[cells], self._reader_block[cells] == block
        self._blocks[cells[(before >= 0) & ~near]] = True
        again = near & (self._reader_epoch[cells] == epoch)
        self._several[cells[~again]] = False
        self._several[cells[again & (before != thread)]] = True
        self._reader[cells], self._reader_block[cells], self._reader_epoch[cells] = thread, block, epoch
        lost = self._reader[cells] != thread  # several threads read it at once, and only one is remembered
        self._several[cells[lost]] = True
        self._blocks[cells[self._reader_block[cells] != block]] = True


class PtxMemory:
    """All memory that a kernel can reach, by addresses: arrays of the host far apart, shared and local memory."""

    SPAN = 1 << 40  # between arrays, so that no index out of one ends in another
    SHARED, LOCAL = 1 << 60, 1 << 61

    def __init__(self, arrays: list[TrackedMemory], shared: TrackedMemory, local: Bytes, sizes: dict[str, int]) -> None:
        self.arrays, self.shared, self.local, self.sizes = arrays, shared, local, sizes

    @staticmethod
    def address(number: int) -> int:
        """Where an array begins."""
        return (number + 1) * PtxMemory.SPAN

    def load(self, address: Ints, size: int, who: Who, slot: Ints, row: Ints, space: str) -> tuple[Bytes, Bools | None]:
        """The bytes at addresses, and which have no values; `slot` is the number of the block's shared memory, `row`
        that of the thread."""
        found, at = self._find(address, size, slot, row, space)
        return (self.local[at[:, None] + np.arange(size)], None) if found is None else found.load(at, size, who)

    def store(
        self, address: Ints, values: Bytes, who: Who, slot: Ints, row: Ints, space: str, unset: Bools | None = None
    ) -> None:
        """Writes bytes at addresses; rows that are `unset` came of what has no value, and may not leave."""
        found, at = self._find(address, values.shape[1], slot, row, space)
        if found is None:
            self.local[at[:, None] + np.arange(values.shape[1])] = values
            return
        if unset is not None and unset.any() and found is not self.shared:
            raise PtxFault(f"uninitialised: a thread writes to {found.name} what comes of something without a value")
        found.store(at, values, who, unset)

    def begin(self, address: Ints, size: int, who: Who, slot: Ints, row: Ints) -> None:
        """Begins a copy to addresses in shared memory."""
        found, at = self._find(address, size, slot, row, "shared")
        assert found is not None
        found.begin(at, size, who)

    def _find(self, address: Ints, size: int, slot: Ints, row: Ints, space: str) -> tuple[TrackedMemory | None, Ints]:
        """The memory of an access and the positions in it; None is local memory."""
        unit = size & -size  # of a vector whose last elements nobody wants, a part
        if (address % unit).any():
            raise PtxFault(f"misaligned: an access of {size} bytes at an address that is no multiple of it")
        first = int(address[0])
        kind = "local" if first >= self.LOCAL else "shared" if first >= self.SHARED else "global"
        if space not in ("", kind):
            raise PtxFault(f"out of bounds: an access to {space} memory with an address of {kind} memory")
        if kind != "global":
            base = self.LOCAL if kind == "local" else self.SHARED
            at = self._within(address - base, size, self.sizes[kind], f"{kind} memory")
            return (None, row * self.sizes[kind] + at) if kind == "local" else (
                self.shared, slot * self.sizes[kind] + at
            )  # fmt: skip
        number = (first + self.SPAN // 2) // self.SPAN - 1
        if not 0 <= number < len(self.arrays):
            raise PtxFault(f"out of bounds: an access at {first:#x}, where there is no array")
        array = self.arrays[number]
        return array, self._within(address - self.address(number), size, len(array.data), array.name)

    def _within(self, at: Ints, size: int, end: int, name: str) -> Ints:
        if (at < 0).any() or (at + size > end).any():
            worst = int(at.min()) if (at < 0).any() else int(at.max())
            raise PtxFault(f"out of bounds: {size} bytes at {worst} of {name}, which has {end}")
        return at


def _without_values(unwritten: Bools) -> Bools:
    """The bytes of words that nobody wrote a byte of, since bytes are loaded by words; shorter loads are one word."""
    rows, size = unwritten.shape
    if size % _WORD:
        return np.broadcast_to(unwritten.any(axis=1, keepdims=True), unwritten.shape)
    return np.repeat(unwritten.reshape(rows, -1, _WORD).all(axis=2), _WORD, axis=1)
