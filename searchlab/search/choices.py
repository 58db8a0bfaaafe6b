"""Single points as text and as plain data: the name of a sketch, and the chosen value of every knob."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from searchlab.errors import SpaceError
from searchlab.registry import nearest
from searchlab.search.sketch import Sketch


def text_of(sketch: Sketch, options: Sequence[int]) -> str:
    """A point in readable form: `packed(i=64x4, j=2x128, unroll=4)`."""
    chosen = (f"{k.name}={k.label(o)}" for k, o in zip(sketch.knobs, options, strict=True))
    return f"{sketch.name}({', '.join(chosen)})"


def choice_in(text: str, sketches: Sequence[Sketch]) -> dict[str, Any]:
    """Parses a text written by `text_of` into a choice."""
    inside = text.strip().removesuffix(")")
    # names may contain brackets themselves, so the known names are tried first
    known = [s.name for s in sketches if inside.startswith(f"{s.name}(")]
    head = max(known, key=len, default=inside.partition("(")[0])
    rest = inside[len(head) + 1 :]
    pairs = [part.partition("=") for part in re.split(r",\s*(?=[^,=]+=)", rest) if part]
    sketch = next((s for s in sketches if s.name == head), None)
    knobs = {k.name: k for k in sketch.knobs} if sketch is not None else {}
    given = {k.strip(): v.strip() for k, _, v in pairs}
    return {"sketch": head, "knobs": {k: knobs[k].read(v) if k in knobs else v for k, v in given.items()}}


def choice_of(sketch: Sketch, options: Sequence[int]) -> dict[str, Any]:
    """A point as plain data for records."""
    pairs = zip(sketch.knobs, options, strict=True)
    return {"sketch": sketch.name, "knobs": {k.name: k.value(o) for k, o in pairs}}


def row_of(choice: Mapping[str, Any], sketches: Sequence[Sketch], space: str) -> list[int]:
    """The number of a choice's sketch, then its options; `space` is used in error messages."""
    names = [s.name for s in sketches]
    name, values = choice.get("sketch"), choice.get("knobs", {})
    if name not in names:
        raise SpaceError(f"space '{space}' has no sketch '{name}'{nearest(str(name), names)}")
    if not isinstance(values, Mapping):
        raise SpaceError(f"space '{space}', sketch '{name}': knobs are names with values, not {values!r}")
    sketch = sketches[names.index(name)]
    row = [names.index(name)]
    for k in sketch.knobs:
        if k.name not in values:
            raise SpaceError(f"space '{space}', sketch '{name}': no value for knob '{k.name}'")
        row.append(k.option(values[k.name]))
    if unknown := [v for v in values if v not in {k.name for k in sketch.knobs}]:
        known = nearest(unknown[0], [k.name for k in sketch.knobs])
        raise SpaceError(f"space '{space}', sketch '{name}': unknown knob '{unknown[0]}'{known}")
    return row
