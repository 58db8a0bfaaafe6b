"""An object file that holds data and nothing else: constants become part of a library without an assembler."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import IO

from searchlab.errors import ExportError

_MACHINES = {"x86_64": 62, "aarch64": 183}
_HEADER, _SECTION, _SYMBOL = 64, 64, 24  # bytes of the file header, of a section header, of a symbol
_PROGBITS, _SYMTAB, _STRTAB = 1, 2, 3
_READ, _GLOBAL_OBJECT, _HIDDEN = 2, 0x11, 2
_NAMES = b"\0.rodata\0.symtab\0.strtab\0.note.GNU-stack\0"
ALIGNMENT = 64


def rounded(size: int) -> int:
    """The bytes that a constant occupies: the next begins on a cache line."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def write_data_object(file: IO[bytes], arch: str, symbol: str, blocks: Iterable[memoryview]) -> None:
    """Writes an ELF file with a read-only symbol for these blocks, each of which begins on a cache line."""
    if arch not in _MACHINES:
        raise ExportError(f"constants for {arch} cannot be put into a library; known: {', '.join(_MACHINES)}")
    file.write(bytes(_HEADER))  # filled in at the end
    size = 0
    for block in blocks:
        file.write(block)
        file.write(bytes(rounded(len(block)) - len(block)))
        size += rounded(len(block))
    strings = b"\0" + symbol.encode() + b"\0"
    symbols = bytes(_SYMBOL) + struct.pack("<IBBHQQ", 1, _GLOBAL_OBJECT, _HIDDEN, 1, 0, size)
    symbols_at = _HEADER + size
    strings_at = symbols_at + len(symbols)
    names_at = strings_at + len(strings)
    headers_at = -(-(names_at + len(_NAMES)) // 8) * 8
    file.write(symbols + strings + _NAMES + bytes(headers_at - names_at - len(_NAMES)))
    sections = [
        (0, 0, 0, 0, 0, 0, 0, 0, 0),
        (_named(".rodata"), _PROGBITS, _READ, _HEADER, size, 0, 0, ALIGNMENT, 0),
        (_named(".symtab"), _SYMTAB, 0, symbols_at, len(symbols), 3, 1, 8, _SYMBOL),
        (_named(".strtab"), _STRTAB, 0, strings_at, len(strings), 0, 0, 1, 0),
        (_named(".strtab"), _STRTAB, 0, names_at, len(_NAMES), 0, 0, 1, 0),
        (_named(".note.GNU-stack"), _PROGBITS, 0, names_at, 0, 0, 0, 1, 0),  # no executable stack
    ]
    for name, kind, flags, at, length, link, info, align, entry in sections:
        file.write(struct.pack("<IIQQQQIIQQ", name, kind, flags, 0, at, length, link, info, align, entry))
    file.seek(0)
    identity = b"\x7fELF" + bytes([2, 1, 1, 0]) + bytes(8)
    machine = _MACHINES[arch]
    file.write(
        identity
        + struct.pack("<HHIQQQIHHHHHH", 1, machine, 1, 0, 0, headers_at, 0, _HEADER, 0, 0, _SECTION, len(sections), 4)
    )


def _named(section: str) -> int:
    return _NAMES.index(section.encode() + b"\0")
