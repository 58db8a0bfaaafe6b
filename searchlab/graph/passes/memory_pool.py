"""The pool of memory that compiled graphs acquire storages from, and the exact log of what a plan acquires.

`MemoryPool` holds no memory itself: it decides which block serves a request, and whoever runs a graph keeps an array
for each block.  So what happens at run time can be computed without running anything (`allocation_log`).
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from searchlab.errors import GraphError
from searchlab.graph.passes.arena import rounded_up
from searchlab.graph.passes.memory_plan import MemoryPlan, Storage
from searchlab.ir.evaluate import evaluate
from searchlab.ir.walk import variables

Happening = Literal["allocate", "reuse", "release", "free"]


@dataclass(frozen=True, slots=True)
class PoolBlock:
    """A block of memory of a pool; `number` identifies it."""

    number: int
    size: int


class MemoryPool:
    """Blocks that are handed out again after they were released; memory is never given back.

    A request is rounded up to whole cache lines.  It is served by the smallest free block that is large enough and not
    more than `slack` times as large, of equal ones that with the lowest number; otherwise by a new block of exactly its
    size.  With a slack of 1 blocks are reused for equal sizes only.
    """

    def __init__(self, slack: float = 2.0) -> None:
        if slack < 1:
            raise GraphError(
                f"a slack of {slack}: a block cannot be smaller than what it holds; at least 1 is accepted"
            )
        self.slack = slack
        self.blocks: list[PoolBlock] = []
        self._free: list[tuple[int, int]] = []  # (size, number), sorted

    @property
    def held(self) -> int:
        """The bytes of all blocks, free ones included."""
        return sum(b.size for b in self.blocks)

    def acquire(self, size: int) -> tuple[PoolBlock, bool]:
        """A block of at least `size` bytes, and whether it is new."""
        wanted = rounded_up(size)
        at = bisect.bisect_left(self._free, (wanted, -1))
        if at < len(self._free) and self._free[at][0] <= wanted * self.slack:
            return self.blocks[self._free.pop(at)[1]], False
        self.blocks.append(PoolBlock(len(self.blocks), wanted))
        return self.blocks[-1], True

    def release(self, block: PoolBlock) -> None:
        """Makes a block available again."""
        entry = block.size, block.number
        at = bisect.bisect_left(self._free, entry)
        if at < len(self._free) and self._free[at] == entry:
            raise GraphError(f"block {block.number} of {block.size} bytes is released twice")
        self._free.insert(at, entry)


@dataclass(frozen=True, slots=True)
class AllocationEvent:
    """What happened to a storage: new memory, a block of the pool again, back to the pool, or freed; and its bytes."""

    event: Happening
    storage: str
    bytes: int


@dataclass(frozen=True)
class AllocationLog:
    """Everything that a series of calls acquired and released, in order."""

    events: tuple[AllocationEvent, ...]

    @property
    def peak(self) -> int:
        """The most bytes that were held at once, whether in use or not."""
        held = most = 0
        for e in self.events:
            held += {"allocate": e.bytes, "free": -e.bytes}.get(e.event, 0)
            most = max(most, held)
        return most

    @property
    def total(self) -> int:
        """The bytes of all memory that was newly allocated."""
        return sum(e.bytes for e in self.events if e.event == "allocate")

    @property
    def allocations(self) -> int:
        """How often new memory was needed."""
        return sum(e.event == "allocate" for e in self.events)


Sizes = Mapping[str, int]


def allocation_log(plan: MemoryPlan, sizes: Sizes | Sequence[Sizes], pool: MemoryPool | None = None) -> AllocationLog:
    """What one call, or a series of calls with these values of the symbols by name, allocates and releases.

    The policy `none` allocates and frees directly; all others acquire their storages from a pool, by default a new one.
    """
    series = [sizes] if isinstance(sizes, Mapping) else list(sizes)
    ledger = AllocationLedger(plan.policy, pool)
    for values in series:
        for binding in range(plan.length):
            for s in plan.acquired_before(binding):
                ledger.acquire(s.name, storage_bytes(s, values))
            ledger.release(s.name for s in plan.released_after(binding))
        ledger.release(s.name for s in plan.released_after(plan.length))
    return ledger.log


def storage_bytes(storage: Storage, sizes: Sizes) -> int:
    """The bytes of a storage at given values of the symbols."""
    missing = sorted(v.name for v in variables(storage.size) if v.name not in sizes)
    if missing:
        raise GraphError(f"the size of {storage.name} is {storage.size}, and no value is given for {missing[0]}")
    return int(evaluate(storage.size, dict(sizes)))


class AllocationLedger:
    """Acquires storages under a policy and writes down what happens; runs of graphs use it for their own log."""

    def __init__(self, policy: str, pool: MemoryPool | None = None) -> None:
        self.pool = None if policy == "none" else (pool or MemoryPool())
        self.events: list[AllocationEvent] = []
        self._held: dict[str, PoolBlock] = {}

    @property
    def log(self) -> AllocationLog:
        """What has happened so far."""
        return AllocationLog(tuple(self.events))

    def acquire(self, storage: str, size: int) -> PoolBlock:
        """A block for a storage."""
        if self.pool is None:
            block, new = PoolBlock(-1, rounded_up(size)), True
        else:
            block, new = self.pool.acquire(size)
        self._held[storage] = block
        self.events.append(AllocationEvent("allocate" if new else "reuse", storage, block.size))
        return block

    def release(self, storages: Iterable[str]) -> None:
        """Gives the blocks of storages back."""
        for storage in storages:
            block = self._held.pop(storage)
            if self.pool is not None:
                self.pool.release(block)
            self.events.append(AllocationEvent("free" if self.pool is None else "release", storage, block.size))
