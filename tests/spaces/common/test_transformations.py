"""Transformations: the loops they make, and what the programs compute."""

import numpy as np
import pytest

import searchlab as sl
from searchlab.errors import SpaceError
from searchlab.ir import interpret
from searchlab.ir.expr import index
from searchlab.schedule import Schedule
from searchlab.workloads import Workload
from spaces import common


def whole(axis: str, extent: int, parts: int) -> list[int | None]:
    """Factors that leave to the innermost loop the smallest divisor, and the rest to the outermost."""
    return [None, *([1] * (parts - 2)), next(d for d in range(2, extent + 1) if extent % d == 0)]


def right(workload: Workload, s: Schedule) -> None:
    inputs = workload.inputs(seed=1)
    assert workload.check(interpret(s.program, inputs), inputs) is None


def test_levels_of_a_matmul() -> None:
    w = sl.workload("matmul", m=8, n=12, k=6)
    s = Schedule(w.program)
    tiles = common.tile(s, "C", "SSRSRS", whole)
    assert "".join(s.loops("C")) == "i_0j_0i_1j_1k_0i_2j_2k_1i_3j_3"
    assert tiles.levels[2] == ("k_0",) and tiles.vector == "j_3" and tiles.end(1) == "j_1"
    assert [tiles.space_level(n) for n in (1, 2, 3, 4)] == [0, 1, 3, 5]
    right(w, s)


def test_another_axis_in_vectors_and_axes_of_one_iteration() -> None:
    w = sl.workload("conv2d", n=1, ci=4, co=6, h=6, w=8, k=1)
    s = Schedule(w.program)
    tiles = common.tile(s, "Y", "SRS", whole, vector_axis=1)
    assert tiles.levels == (("n", "h_0", "w_0", "c_0"), ("ci", "kh", "kw"), ("h_1", "w_1", "c_1"))
    tiles = common.parallel_outer(s, tiles)
    assert tiles.levels[0] == ("n", "h_0_w_0_c_0") and s.program.loops["h_0_w_0_c_0"].kind == "parallel"
    right(w, s)


def test_packing_ahead_of_time_and_within() -> None:
    w = sl.workload("matmul", m=8, n=12, k=6)
    panel = common.panel(w.program, "C")
    assert panel is not None
    for ahead in (True, False):
        s = Schedule(w.program)
        tiles = common.tile(s, "C", "SSRSRS", whole)
        copy = common.pack(s, tiles, panel, ahead)
        assert [la.buffer for la in s.program.layouts] == (["B"] if ahead else [])
        if copy is not None:
            s.compute_at(copy, tiles.end(0))
            common.read_rows_as_they_lie(s, copy, panel)
            right(w, s)
        inputs = w.inputs(seed=0)
        assert w.check(sl.compile(s.program, sl.detect())(*inputs.values()), inputs) is None


def test_pixels_in_one_axis() -> None:
    w = sl.workload("conv2d", ci=4, co=6, h=6, w=4, k=1)
    found = common.trailing(w.program, "Y")
    assert found == common.Trailing("X", 2)
    s = Schedule(w.program)
    copy, panel = common.collapse(s, "Y", found)
    tiles = common.parallel_outer(s, common.tile(s, "Y", "SSRSRS", whole, panel.axis))
    common.lay_in_panels(s, tiles, copy, panel.dimension)
    s.compute_at(copy, tiles.end(0))
    right(w, s)
    for other in ({"k": 3}, {"k": 1, "stride": 2}):
        assert common.trailing(sl.workload("conv2d", ci=4, co=6, h=6, w=4, **other).program, "Y") is None


@pytest.mark.parametrize("part", ["outer", "inner"])
@pytest.mark.parametrize("spec", [{"batch": 1, "rows": 6, "cols": 4}, {"batch": 3, "rows": 5, "cols": 6}])
def test_partial_results(part: str, spec: dict[str, int]) -> None:
    w = sl.workload("l2_norm", **spec)
    s = Schedule(w.program)
    made = common.rfactor(s, "S", part, whole)  # type: ignore[arg-type]
    for block in (made, "S"):
        common.finish_untiled(s, block, whole, jobs=4)
    assert s.program.blocks[made].store.buffer == "S_rf"
    right(w, s)


def test_places_of_padding() -> None:
    w = sl.workload("conv2d", ci=4, co=6, h=6, w=6, k=3, padding=1)
    s = Schedule(w.program)
    tiles = common.tile(s, "Y", "SSRSRS", whole)
    found = common.locations(s, "P", [tiles])
    assert [x.label for x in found] == ["root", "Y0", "Y1", "Y2", "inline"]
    for location in found:
        again = Schedule(s.program)
        common.place(again, "P", location)
        right(w, again)


def test_dear_stages_are_not_computed_again() -> None:
    s = Schedule(sl.workload("softmax", rows=4, cols=8).program)
    assert [x.label for x in common.locations(s, "S", [])] == ["root", "Y_i"]
    assert [x.label for x in common.locations(s, "E", [])] == ["root"]  # one of its readers stands elsewhere


def test_unrolling_counts_vectors_once() -> None:
    w = sl.workload("matmul", m=8, n=32, k=4)
    s = Schedule(w.program)
    common.vectorize_tile(s, common.tile(s, "C", "SRS", lambda axis, extent, parts: [None, 8]))
    common.unroll_up_to(s, "C", 16)
    assert dict(s.program.blocks["C"].annotations)["unroll_up_to"] == index(128)


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
