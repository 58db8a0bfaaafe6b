"""Structures of Winograd's convolution: its stages only make sense together, so no rule looks at one of them alone."""

from __future__ import annotations

from collections.abc import Iterator

from searchlab.ir.expr import Like, index, value_of
from searchlab.schedule import Schedule
from searchlab.search import Points, Sketch, Space, Task
from searchlab.search.wishes import Wish, nearest
from searchlab.tactics import space_axes
from searchlab.tactics.winograd_tiles import (
    WinogradStages,
    WinogradTiles,
    suitable_tiles,
    tile_winograd,
    winograd_stages,
)
from spaces.common import KnobFactors

# Structures by name: whether threads go by channels first, and whether patches are transformed band by band.
_STRUCTURES = {"winograd": (False, False), "winograd-bands": (False, True), "winograd-channels": (True, False)}
_MOST = (14, 28, 4)  # rows of tiles in a band, pixels and blocks in registers


def winograd_sketches(task: Task) -> Iterator[Sketch]:
    """The structures of a program that is Winograd's convolution; none for others."""
    stages = winograd_stages(task.program)
    if stages is None:
        return
    for name, (channels_first, by_bands) in _STRUCTURES.items():
        factors = KnobFactors()
        band, pixels, blocks = (index(factors.menu(knob, menu)) for knob, menu in _menus(task, stages).items())
        s = Schedule(task.program)
        tile_winograd(s, stages, WinogradTiles(band, pixels, blocks, channels_first, by_bands), task.target)
        fits = pixels * blocks + blocks < task.target.vector_registers  # one more for a pixel
        yield Sketch(name, tuple(factors.knobs), (fits,), s.program)


def winograd_seeds(task: Task, space: Space) -> Points:
    """The tiles of the default schedule in all structures, and others near them."""
    stages = winograd_stages(task.program)
    assert stages is not None
    tiles = suitable_tiles(task.program, stages, task.target)
    known = {"pixels": _number(tiles.pixels), "blocks": _number(tiles.blocks)}
    wishes = [Wish(name, known | {"band": band}) for band in (_number(tiles.band), 1, 2) for name in _STRUCTURES]
    return nearest(space, wishes, len(wishes))


def _number(given: Like) -> int:
    assert isinstance(given, int)
    return given


def _menus(task: Task, stages: WinogradStages) -> dict[str, list[int]]:
    """The values of knobs: any rows and pixels, and blocks that divide all."""
    axes = space_axes(task.program.blocks[stages.products])
    rows, pixels, blocks = (value_of(axes[n].extent) or 1 for n in (3, 4, 5))
    most = dict(zip(("band", "pixels", "blocks"), zip((rows, pixels, blocks), _MOST, strict=True), strict=True))
    found = {knob: list(range(1, min(limits) + 1)) for knob, limits in most.items()}
    return found | {"blocks": [n for n in found["blocks"] if blocks % n == 0]}
