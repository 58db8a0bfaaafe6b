"""Several LLVM modules as one text: definitions become private to their module, declarations are merged."""

from __future__ import annotations

import re
from collections.abc import Iterable

_SYMBOL = re.compile(r"@([\w.$]+)")
_DEFINED = re.compile(r"^(?:define [^@\n]*|)@([\w.$]+)(?: =|\()", re.MULTILINE)
_DECLARED = re.compile(r"^declare [^\n]*@([\w.$]+)\([^\n]*$", re.MULTILINE)
_ATTRIBUTES = re.compile(r"^attributes #\d+ = [^\n]*$", re.MULTILINE)


def owned(ir: str, prefix: str) -> str:
    """The module with all its definitions renamed to `prefix.name` and hidden from other object files."""
    names = set(_DEFINED.findall(ir))

    def renamed(match: re.Match[str]) -> str:
        return f"@{prefix}.{match[1]}" if match[1] in names else match[0]

    hidden = re.sub(r"^define (?!internal )", "define internal ", ir, flags=re.MULTILINE)
    return _SYMBOL.sub(renamed, hidden)


def joined(parts: Iterable[str]) -> str:
    """The union of several modules whose definitions have different names."""
    declared: dict[str, str] = {}
    attributes: dict[str, None] = {}
    bodies = []
    for part in parts:
        for match in _DECLARED.finditer(part):
            declared.setdefault(match[1], match[0])
        attributes.update(dict.fromkeys(_ATTRIBUTES.findall(part)))
        bodies.append(_ATTRIBUTES.sub("", _DECLARED.sub("", part)).strip())
    return "\n\n".join(["\n".join(declared.values()), *bodies, "\n".join(attributes)]) + "\n"
