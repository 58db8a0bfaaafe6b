"""The best known programs of the cases of `benchmarks.quality`, in best_known.json: by case, then instruction set.

Programs are kept whole, so that they can be built again whatever becomes of the spaces that they were found in.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from searchlab.errors import SearchLabError
from searchlab.ir import Program, from_json, to_json
from searchlab.targets import CpuTarget

PATH = Path(__file__).with_name("best_known.json")
_KEPT, _CLOSE = 2, 1.05  # programs for a case and instruction set, none slower than this many times the best
_SETS = {"avx512f": "avx512", "avx2": "avx2", "avx": "avx", "sse2": "sse2", "neon": "neon"}  # by the feature they need


@dataclass(frozen=True)
class KnownProgram:
    """A program as plain data, its time when it was last raced, the search that found it, and the point there."""

    ms: float
    found_by: str
    point: str
    hash: str
    program: Mapping[str, Any]

    @staticmethod
    def of(program: Program, found_by: str, point: str = "", ms: float = 0.0) -> KnownProgram:
        """A program that was found."""
        return KnownProgram(ms, found_by, point, program.hash, json.loads(to_json(program)))

    def made(self) -> Program:
        """The program."""
        return from_json(json.dumps(self.program))


Known = dict[str, dict[str, list[KnownProgram]]]


def instruction_set(target: CpuTarget) -> str:
    """The name under which programs for a machine are kept."""
    return next((name for feature, name in _SETS.items() if feature in target.enabled_features()), target.arch)


def read(path: Path = PATH) -> Known:
    """All known programs."""
    found = json.loads(path.read_text()) if path.exists() else {}
    return {case: {s: [KnownProgram(**e) for e in entries] for s, entries in by.items()} for case, by in found.items()}


def write(known: Known, path: Path = PATH) -> None:
    """Replaces the file, a line for each program."""
    path.write_text("{\n" + ",\n".join(_lines(case, by) for case, by in sorted(known.items())) + "\n}\n")


def _lines(case: str, by: Mapping[str, Sequence[KnownProgram]]) -> str:
    sets = (f" {json.dumps(s)}: [\n" + ",\n".join(map(_line, entries)) + "\n ]" for s, entries in sorted(by.items()))
    return f"{json.dumps(case)}: {{\n" + ",\n".join(sets) + "\n}"


def _line(entry: KnownProgram) -> str:
    return "  " + json.dumps(vars(entry), separators=(",", ":"))


def usable(entries: Sequence[KnownProgram]) -> dict[str, Program]:
    """The programs that can still be read, by their hashes; the others are named on stderr."""
    found: dict[str, Program] = {}
    for entry in entries:
        try:
            program = entry.made()
        except SearchLabError as e:
            print(f"skipping {entry.point}, found by {entry.found_by}: {e}", file=sys.stderr)
        else:
            found[program.hash] = program
    return found


def better(entries: Sequence[KnownProgram]) -> list[KnownProgram]:
    """The best few of some programs that were raced side by side, each once."""
    order = sorted({e.hash: e for e in entries}.values(), key=lambda e: e.ms)
    return [e for e in order[:_KEPT] if e.ms <= _CLOSE * order[0].ms]
