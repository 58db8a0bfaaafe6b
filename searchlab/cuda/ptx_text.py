"""PTX text as instructions: what the emulator reads of it.  Directives that it does not know are an error."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property

from searchlab.errors import BuildError

_INSTRUCTION = re.compile(r"(?:@(!?)(%p\d+)\s+)?([\w.]+)\s*(.*?);$")
_OPERANDS = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*")
_ARRAY = re.compile(r"\.(shared|local) \.align (\d+) \.b8 (\w+)\[(\d*)\];$")
_REGISTERS = re.compile(r"\.reg \.(\w+)\s+(.*);$")
_REGISTER = re.compile(r"%\w+")
_WIDTHS = {"pred": 1, "b16": 16, "b32": 32, "b64": 64}


@dataclass(frozen=True)
class PtxInstruction:
    """One instruction: `parts` is its name cut at dots, `guard` the predicate under which it runs."""

    parts: tuple[str, ...]
    operands: tuple[str, ...]
    guard: str = ""
    negated: bool = False
    line: str = ""


@dataclass
class PtxText:
    """The only kernel of a PTX module.

    `widths` are the bits of registers by the letters of their names, `arrays` offsets of arrays in their memory; one
    whose size the launch decides is empty here.
    """

    entry: str
    parameters: tuple[str, ...]
    instructions: list[PtxInstruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    widths: dict[str, int] = field(default_factory=dict)
    arrays: dict[str, tuple[str, int]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=lambda: {"shared": 0, "local": 0})

    @cached_property
    def mentions(self) -> Counter[str]:
        """How often registers are named."""
        return Counter(name for i in self.instructions for x in (*i.operands, i.guard) for name in _REGISTER.findall(x))

    def read_of(self, registers: list[str]) -> list[str]:
        """The registers of a vector without the last ones if nothing reads them: three elements are loaded as four."""
        while len(registers) > 1 and self.mentions[registers[-1]] < 2:
            registers = registers[:-1]
        return registers

    def add(self, line: str) -> None:
        """Reads a line of the body, or a declaration before it."""
        if found := _ARRAY.match(line):
            space, align, name, size = found[1], int(found[2]), found[3], int(found[4] or 0)
            at = -(-self.sizes[space] // align) * align
            self.arrays[name] = (space, at)
            self.sizes[space] = at + size
        elif found := _REGISTERS.match(line):
            for name in found[2].split(","):
                self.widths[name.strip().partition("<")[0]] = _WIDTHS[found[1]]
        elif line.endswith(":"):
            self.labels[line[:-1]] = len(self.instructions)
        elif not line.startswith((".loc", ".pragma")):
            self.instructions.append(_instruction(line))


def read_ptx(text: str) -> PtxText:
    """The kernel in a PTX module as `ptx` writes them."""
    head = re.search(r"\.visible \.entry (\w+)\((.*?)\)", text, re.S)
    if head is None:
        raise BuildError("PTX without a kernel (.visible .entry)")
    parameters = tuple(re.findall(r"(\w+)\s*(?:,|$)", head[2].strip()))
    found = PtxText(head[1], parameters)
    start = text.index("{", head.end())
    for line in text[: head.start()].splitlines():
        if _ARRAY.match(bare := _bare(line)):
            found.add(bare)
    begun = ""
    for line in text[start + 1 : text.rindex("}")].splitlines():
        begun = f"{begun} {_bare(line)}".strip()
        if begun.endswith((";", ":", "}")) or begun.startswith("."):  # long instructions take several lines
            found.add(begun)
            begun = ""
    return found


def _bare(line: str) -> str:
    """The line without comments, indentation, and what it says of linkage."""
    return " ".join(line.split("//")[0].split()).removeprefix(".visible ").removeprefix(".extern ")


def _instruction(line: str) -> PtxInstruction:
    found = _INSTRUCTION.match(line)
    if found is None:
        raise BuildError(f"cannot read this line of PTX: {line}")
    operands = tuple(x.strip() for x in _OPERANDS.findall(found[4]))
    return PtxInstruction(tuple(found[3].split(".")), operands, found[2] or "", bool(found[1]), line)
