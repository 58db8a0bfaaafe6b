"""Instructions: the steps of a trace, with handles and symbols where a schedule had names and numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from searchlab.errors import IRError, TraceError
from searchlab.ir.expr import Expr, Var
from searchlab.ir.jsonform import decode, encode
from searchlab.ir.walk import variables

GET_BLOCK, GET_LOOPS = "get_block", "get_loops"
TILE, ROUNDED_TILE = "sample_perfect_tile", "sample_rounded_tile"
CATEGORICAL, LOCATION = "sample_categorical", "sample_compute_location"
NOTE, REQUIRE, POSTPROCESS = "note", "require", "enter_postprocessing"
_DRAWN_WITH = {  # attributes that a draw must have
    TILE: {"n", "max_innermost", "name"},
    ROUNDED_TILE: {"n", "max_innermost", "name"},
    CATEGORICAL: {"candidates", "probs", "name"},
    LOCATION: {"inline", "name"},
}
SAMPLING = tuple(_DRAWN_WITH)
PURE = (GET_BLOCK, GET_LOOPS, *SAMPLING)  # of no use unless something takes what they give

Pairs = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Handle:
    """A loop, block or buffer that an earlier instruction found or made; its name is known when the trace runs."""

    number: int


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome of a draw: factors, the number of an option, or a place.

    `among` lists the legal places; of factors that may round up it holds the extent that they cover.
    """

    value: int | tuple[int, ...]
    among: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Instruction:
    """One step: `inputs` hold handles and symbols, `attributes` plain data; outputs are handles or symbols."""

    kind: str
    inputs: Pairs = ()
    attributes: Pairs = ()
    outputs: tuple[Handle | Var, ...] = ()

    @property
    def arguments(self) -> dict[str, Any]:
        """Inputs and attributes together, by name."""
        return {**dict(self.inputs), **dict(self.attributes)}

    @property
    def name(self) -> str:
        """The name of a draw, which its decision goes by."""
        return str(dict(self.attributes)["name"])

    @property
    def samples(self) -> bool:
        """Whether it draws."""
        return self.kind in SAMPLING

    @property
    def tiles(self) -> bool:
        """Whether it draws factors."""
        return self.kind in (TILE, ROUNDED_TILE)

    @property
    def rounds_up(self) -> bool:
        """Whether the factors that it draws may make more than the extent."""
        return self.kind == ROUNDED_TILE

    @property
    def structural(self) -> bool:
        """Whether what it gives decides the shape of the program, not a number in it."""
        return self.kind == LOCATION or (self.kind == CATEGORICAL and not self.outputs)

    def uses(self) -> set[Handle | Var]:
        """The handles and symbols that it takes."""
        found: set[Handle | Var] = set()
        _collect(self.inputs, found)
        return found

    def renumbered(self, number: Callable[[Handle], Handle]) -> Instruction:
        """The same with other handles."""
        outputs = tuple(number(x) if isinstance(x, Handle) else x for x in self.outputs)
        return replace(self, inputs=_renumbered(self.inputs, number), outputs=outputs)


def _collect(value: Any, found: set[Handle | Var]) -> None:
    if isinstance(value, Handle):
        found.add(value)
    elif isinstance(value, Expr):
        found |= {v for v in variables(value) if v.role == "knob"}
    elif isinstance(value, tuple):
        for v in value:
            _collect(v, found)


def _renumbered(value: Any, number: Callable[[Handle], Handle]) -> Any:
    if isinstance(value, Handle):
        return number(value)
    return tuple(_renumbered(v, number) for v in value) if isinstance(value, tuple) else value


# --- JSON -------------------------------------------------------------------------------------------------------------


def to_data(instruction: Instruction) -> list[Any]:
    """An instruction as plain JSON data."""
    fields = (instruction.inputs, instruction.attributes, instruction.outputs)
    return [instruction.kind, *(_pack(f) for f in fields)]


def from_data(data: Any) -> Instruction:
    """The instruction that `to_data` wrote."""
    try:
        kind, inputs, attributes, outputs = data
        read = Instruction(str(kind), _unpack(inputs), _unpack(attributes), _unpack(outputs))
        missing = _DRAWN_WITH.get(read.kind, set()) - dict(read.attributes).keys()
    except (ValueError, TypeError, KeyError, IRError) as e:
        raise TraceError(f"not an instruction: {data!r} ({e})") from e
    if missing:
        raise TraceError(f"{read.kind} does not say its {', '.join(sorted(missing))}: {data!r}")
    return read


def _pack(value: Any) -> Any:
    if isinstance(value, Handle):
        return {"%": value.number}
    if isinstance(value, (tuple, list)):
        return ["tuple", *(_pack(v) for v in value)]
    return encode(value)


def _unpack(data: Any) -> Any:
    if isinstance(data, dict) and "%" in data:
        return Handle(int(data["%"]))
    if isinstance(data, list) and data[:1] == ["tuple"]:
        return tuple(_unpack(v) for v in data[1:])
    return decode(data)
