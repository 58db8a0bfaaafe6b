"""Places of stages, factors as knobs, and structures that are refused."""

import numpy as np
import pytest

import searchlab as sl
from searchlab.errors import SpaceError
from searchlab.ir import interpret
from searchlab.schedule import Schedule
from searchlab.tactics import tile
from spaces import common


def test_places_of_padding() -> None:
    w = sl.workload("conv2d", ci=4, co=6, h=6, w=6, k=3, padding=1)
    s = Schedule(w.program)
    tiles = tile(s, "Y", "SSRSRS", lambda axis, extent, parts: [None, *[1] * (parts - 2), 2 if extent % 2 == 0 else 3])
    found = common.locations(s, "P", [tiles])
    assert [x.label for x in found] == ["root", "Y0", "Y1", "Y2", "inline"]
    inputs = w.inputs(seed=1)
    for location in found:
        again = Schedule(s.program)
        common.place(again, "P", location)
        assert w.check(interpret(again.program, inputs), inputs) is None


def test_dear_stages_are_not_computed_again() -> None:
    s = Schedule(sl.workload("softmax", rows=4, cols=8).program)
    assert [x.label for x in common.locations(s, "S", [])] == ["root", "Y_i"]
    assert [x.label for x in common.locations(s, "E", [])] == ["root"]  # one of its readers stands elsewhere


def test_knobs_are_collected() -> None:
    factors = common.KnobFactors(max_inner=4)
    assert [str(f) for f in factors("i", 24, 3)] == ["None", "i1", "i2"]
    factors.menu("unroll", [1, 16])
    assert [k.name for k in factors.knobs] == ["i", "unroll"]
    assert factors.knobs[0].options[:, -1].max() == 4 and np.all(factors.knobs[0].options.prod(axis=1) == 24)


@pytest.mark.parametrize("structure", ["", "RS", "SSXS", "SSS"])
def test_structures_that_are_none(structure: str) -> None:
    with pytest.raises(SpaceError, match="not a word of S"):
        common.check_structure(structure)
