"""`searchlab show WORKLOAD --space NAME`: the sketches of a search space, their knobs, and the program of a point."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import numpy as np

from searchlab.cli.output import OutputForm, err, hint, out, print_program, print_rows, print_table, table

if TYPE_CHECKING:
    from searchlab.registry import Component
    from searchlab.search import Knob, Points, Sketch, Space
    from searchlab.workloads import Workload

_FEW = 6


def show_space(workload: Workload, name: str, point: str | None, target: str, form: OutputForm | None) -> None:
    """The space of a workload, or one of its points."""
    from searchlab import targets
    from searchlab.search import Task, space
    from searchlab.search.progress import listening

    with err.status("") as status, listening(lambda text: status.update(f"[dim]{text}[/]")):
        found = space(_component(name), Task(workload, targets.parse(target)))
    if point is not None:
        _show_point(found, found.read(point), form)
    elif form:
        print_rows((_fields(workload, found, sketch) for sketch in found.sketches), form)
    else:
        _show_sketches(workload, name, found)


def _component(text: str) -> Component:
    """A space as experiments name it: a name, module:Class, or either with options."""
    if not text.lstrip().startswith("{"):
        return text
    from searchlab.lab.config.text.reading import read
    from searchlab.lab.config.text.tree import Place, unplaced

    found: Component = unplaced(read(text, "--space", Place("--space")))
    return found


def _show_point(found: Space, point: Points, form: OutputForm | None) -> None:
    program = found.program(point)
    if form:
        named = {"case": found.text(point), "index": found.index(point)[0]}
        print_rows([{**named, **found.choice(point), "program": str(program)}], form)
        return
    from rich.markup import escape

    out.print(f"[bold]{escape(found.text(point))}[/]   [dim]index {found.index(point)[0]}[/]\n", soft_wrap=True)
    print_program(str(program))


def _fields(workload: Workload, found: Space, sketch: Sketch) -> dict[str, object]:
    return {
        "case": f"{workload.label} {found.name}/{sketch.name}",
        "metric": "points",
        "value": sketch.count,
        "exact": sketch.exact,
        "cartesian": sketch.cartesian,
        "space": found.name,
        "version": found.version,
        "sketch": sketch.name,
        "knobs": {k.name: {"kind": k.kind, "options": len(k), "symbols": list(k.symbols)} for k in sketch.knobs},
        "constraints": [str(c) for c in sketch.constraints],
    }


def _show_sketches(workload: Workload, name: str, found: Space) -> None:
    from rich.markup import escape

    size = found.size
    share = "" if size.valid == size.cartesian else f", {_percent(size.share)} of all combinations"
    out.print(f"[bold]{escape(workload.label)}[/]   space {found.name}, version {found.version}")
    out.print(f"{'' if size.exact else 'about '}{size.valid:,} valid points{share}\n")
    right = ("knobs", "valid points", "share")
    made = table("sketch", *right, right=right)
    for s in found.sketches:
        made.add_row(escape(s.name), str(len(s.knobs)), f"{s.count:,}", _percent(s.count / s.cartesian))
    print_table(made)
    example = found.sample(1, np.random.default_rng(0))
    sketch = found.sketches[int(example.sketch[0])]
    _show_knobs(sketch)
    out.print(f"[bold]One point:[/] {escape(found.text(example))}\n", soft_wrap=True)
    print_program(str(found.program(example)))
    out.print()
    command = f"searchlab show {shlex.quote(workload.spec)} --space {shlex.quote(name)}"
    hint(f"{escape(command)} --point {found.index(example)[0]}   [dim]any other point, by index or text[/]")


def _show_knobs(sketch: Sketch) -> None:
    from rich.markup import escape

    made = table("knob", "kind", "symbols", "options", "values", right=("options",), title=f"Knobs of {sketch.name}")
    for k in sketch.knobs:
        made.add_row(escape(k.name), k.kind, ", ".join(k.symbols), f"{len(k):,}", escape(_values(k)))
    print_table(made)
    for c in sketch.constraints:
        out.print(f"[dim]where[/] {escape(str(c))}", soft_wrap=True)
    if sketch.constraints:
        out.print()


def _values(k: Knob) -> str:
    if len(k) <= _FEW:
        return ", ".join(k.label(n) for n in range(len(k)))
    return f"{k.label(0)}, {k.label(1)}, ... {k.label(len(k) - 1)}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
