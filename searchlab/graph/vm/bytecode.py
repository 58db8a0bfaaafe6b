"""Byte code of one function: words, registers with their initial values, and what errors are called by.

Initial values are numbers, or references (`builtin`, `kernel`, `constant`) to what has an address once it is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from searchlab.graph.vm.machine import BRANCH, CALL, JUMP, RETURN

NOTHING = 0  # the register that results go to which nobody reads


@dataclass(frozen=True, slots=True)
class Reference:
    """Something with an address: a builtin of the machine, a kernel by its symbol, or a constant by its name."""

    kind: Literal["builtin", "kernel", "constant"]
    name: str


Word = int | Reference


@dataclass(frozen=True, slots=True)
class Check:
    """What a call of a builtin is about, for the error that it may end with.

    `what` names the value and the call, `wanted` the expression or range that it is compared with.
    """

    what: str
    kind: Literal["number", "dtype", "rank", "range", "memory"] = "memory"
    wanted: str = ""


@dataclass(frozen=True)
class ByteCode:
    """The code of a function, which is data: it can be kept, and runs wherever its references have addresses."""

    words: tuple[int, ...]
    registers: tuple[Word, ...]
    window: int
    cleanup: int
    checks: Mapping[int, Check] = field(default_factory=dict)

    def __str__(self) -> str:
        return "\n".join(_lines(self))


class CodeWriter:
    """Writes byte code: calls with operands in registers, each number and each address in one register."""

    def __init__(self) -> None:
        self.words: list[int] = []
        self.registers: list[Word] = [0]
        self.checks: dict[int, Check] = {}
        self.window = 0
        self._known: dict[Word, int] = {}

    def fresh(self) -> int:
        """A new register, which is zero when a run begins."""
        self.registers.append(0)
        return len(self.registers) - 1

    def word(self, value: Word) -> int:
        """The register that holds a number or an address from the beginning."""
        if value not in self._known:
            self._known[value] = self.fresh()
            self.registers[-1] = value
        return self._known[value]

    def call(self, builtin: str, *operands: int, result: int = NOTHING, check: Check | None = None) -> None:
        """Calls a builtin on registers."""
        if check is not None:
            self.checks[len(self.words)] = check
        callee = self.word(Reference("builtin", builtin))
        self.words += (CALL, callee, result, len(operands), *operands)
        self.window = max(self.window, len(operands))

    def value(self, builtin: str, *operands: int, check: Check | None = None) -> int:
        """The register with the result of a builtin."""
        made = self.fresh()
        self.call(builtin, *operands, result=made, check=check)
        return made

    def leave(self) -> None:
        """Ends a run."""
        self.words.append(RETURN)

    def jump(self) -> int:
        """A jump, to be directed by `land`."""
        self.words += (JUMP, 0)
        return len(self.words) - 1

    def branch(self, register: int) -> int:
        """A jump if a register is zero, to be directed by `land`."""
        self.words += (BRANCH, register, 0)
        return len(self.words) - 1

    def land(self, *jumps: int) -> None:
        """Directs jumps to what is written next."""
        for at in jumps:
            self.words[at] = len(self.words)

    def code(self, cleanup: int) -> ByteCode:
        """What has been written; a run that fails goes on at the word `cleanup`."""
        return ByteCode(tuple(self.words), tuple(self.registers), self.window, cleanup, dict(self.checks))


def _lines(code: ByteCode) -> Iterator[str]:
    """The code for people, a line per instruction."""
    listed = list(_instructions(code))
    computed = {words[2] for _, words in listed if words[0] == CALL}

    def shown(register: int) -> str:
        held = code.registers[register]
        if isinstance(held, Reference):
            return held.name if held.kind == "builtin" else f"{held.kind} {held.name}"
        return f"r{register}" if register in computed else str(held)

    for at, (op, *words) in listed:
        if op == CALL:
            callee, result, _, *operands = words
            target = "" if result == NOTHING else f"r{result} = "
            text = f"{target}{shown(callee)}({', '.join(map(shown, operands))})"
        else:
            text = " ".join([_NAMES[op], *(shown(w) for w in words[:-1]), *(str(w) for w in words[-1:])])
        yield f"{at:6}  {text}"


_NAMES = {RETURN: "return", JUMP: "jump", BRANCH: "branch"}
_LENGTHS = {RETURN: 1, JUMP: 2, BRANCH: 3}


def _instructions(code: ByteCode) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Every instruction with the word that it begins at."""
    at = 0
    while at < len(code.words):
        op = code.words[at]
        length = 4 + code.words[at + 3] if op == CALL else _LENGTHS[op]
        yield at, code.words[at : at + length]
        at += length
