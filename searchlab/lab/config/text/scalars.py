"""The meaning of an unquoted word in a file: text, a number, true, false or null.

Readers of YAML 1.1 and 1.2 disagree on some words.  Numbers such as 1e-3 are numbers here; words that one reader takes
for a boolean, an octal number or a time of day are refused, with what to write instead.
"""

from __future__ import annotations

import math
import re

_NULL = {"", "~", "null", "Null", "NULL"}
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_TRAPS = {"yes", "no", "on", "off"}  # "y" and "n" are names of sizes here
_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_OCTAL = re.compile(r"[-+]?0o?[0-9_]+")
_BINARY = re.compile(r"[-+]?0b[01_]+")
_GROUPED = re.compile(r"[-+]?[0-9][0-9_]*_[0-9_]*(\.[0-9_]*)?")
_SIXTIES = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?")
_SPECIAL = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_MOST = 2**63

Scalar = str | int | float | bool | None


class Trap(ValueError):
    """A word that does not mean the same to every reader, or a number that cannot be kept."""


def meaning(word: str) -> Scalar:
    """What a word without quotes means; raises Trap with what is wrong and what to write instead."""
    if word in _NULL:
        return None
    if word in _BOOL:
        return _BOOL[word]
    if word.lower() in _TRAPS:
        raise Trap(f"'{word}' is a boolean to some YAML parsers and text to others; write true or false, or \"{word}\"")
    if _INT.fullmatch(word):
        return _whole(word)
    if _HEX.fullmatch(word):
        return _whole(word, 16)
    _refuse_numbers(word)
    if _FLOAT.fullmatch(word):
        return _finite(word)
    return word


def _refuse_numbers(word: str) -> None:
    quoted = f'or "{word}" if text is meant'
    if _OCTAL.fullmatch(word):
        raise Trap(f"'{word}' is an octal number to some YAML parsers; write it without the leading 0, {quoted}")
    if _BINARY.fullmatch(word):
        raise Trap(f"'{word}' is a binary number to some YAML parsers; write a decimal number, {quoted}")
    if _GROUPED.fullmatch(word):
        raise Trap(f"'{word}' is a number only to some YAML parsers; write {word.replace('_', '')}, {quoted}")
    if _SIXTIES.fullmatch(word):
        raise Trap(f"'{word}' is a number with base 60 to some YAML parsers; write a decimal number, {quoted}")
    if _SPECIAL.fullmatch(word):
        raise Trap(f"'{word}' is not a finite number; infinities and NaN are not accepted")


def _whole(word: str, base: int = 10) -> int:
    if len(word) > 24 or abs(number := int(word, base)) >= _MOST:
        raise Trap(
            f"the number {word[:20]}{'...' if len(word) > 20 else ''} is too large; whole numbers are below 2^63"
        )
    return number


def _finite(word: str) -> float:
    number = float(word)
    if not math.isfinite(number):
        raise Trap(f"the number {word[:20]} is too large for a floating-point number")
    return number
