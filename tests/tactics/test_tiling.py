"""Tiles, panels and collapsed axes: the loops they make, and what the programs compute."""

import pytest

import searchlab as sl
from searchlab import tactics
from searchlab.errors import SpaceError
from searchlab.ir import interpret
from searchlab.ir.expr import index
from searchlab.schedule import Schedule
from searchlab.targets import parse
from searchlab.workloads import Workload


def whole(axis: str, extent: int, parts: int) -> list[int | None]:
    """Factors that leave to the innermost loop the smallest divisor, and the rest to the outermost."""
    return [None, *([1] * (parts - 2)), next(d for d in range(2, extent + 1) if extent % d == 0)]


def right(workload: Workload, s: Schedule) -> None:
    inputs = workload.inputs(seed=1)
    assert workload.check(interpret(s.program, inputs), inputs) is None


def test_levels_of_a_matmul() -> None:
    w = sl.workload("matmul", m=8, n=12, k=6)
    s = Schedule(w.program)
    tiles = tactics.tile(s, "C", "SSRSRS", whole)
    assert "".join(s.loops("C")) == "i_0j_0i_1j_1k_0i_2j_2k_1i_3j_3"
    assert tiles.levels[2] == ("k_0",) and tiles.vector == "j_3" and tiles.end(1) == "j_1"
    assert [tiles.space_level(n) for n in (1, 2, 3, 4)] == [0, 1, 3, 5]
    right(w, s)


def test_another_axis_in_vectors_and_axes_of_one_iteration() -> None:
    w = sl.workload("conv2d", n=1, ci=4, co=6, h=6, w=8, k=1)
    s = Schedule(w.program)
    tiles = tactics.tile(s, "Y", "SRS", whole, vector_axis=1)
    assert tiles.levels == (("n", "h_0", "w_0", "c_0"), ("ci", "kh", "kw"), ("h_1", "w_1", "c_1"))
    tiles = tactics.parallel_outer(s, tiles)
    assert tiles.levels[0] == ("n", "h_0_w_0_c_0") and s.program.loops["h_0_w_0_c_0"].kind == "parallel"
    right(w, s)


def test_packing_ahead_of_time_and_within() -> None:
    w = sl.workload("matmul", m=8, n=12, k=6)
    panel = tactics.panel(w.program, "C")
    assert panel is not None
    for ahead in (True, False):
        s = Schedule(w.program)
        tiles = tactics.tile(s, "C", "SSRSRS", whole)
        packed = tactics.pack(s, "C", panel, tactics.vector_width(s, tiles), ahead)
        assert [la.buffer for la in s.program.layouts] == (["B"] if ahead else [])
        assert packed == ("B" if ahead else "B_local")
        if not ahead:
            s.compute_at(packed, tiles.end(0))
            tactics.read_rows_as_they_lie(s, packed, panel)
            right(w, s)
        inputs = w.inputs(seed=0)
        assert w.check(sl.compile(s.program, sl.detect())(*inputs.values()), inputs) is None


def test_pixels_in_one_axis() -> None:
    w = sl.workload("conv2d", ci=4, co=6, h=6, w=4, k=1)
    found = tactics.trailing(w.program, "Y")
    assert found == tactics.Trailing("X", 2)
    s = Schedule(w.program)
    copy, panel = tactics.collapse(s, "Y", found)
    tiles = tactics.parallel_outer(s, tactics.tile(s, "Y", "SSRSRS", whole, panel.axis))
    tactics.lay_in_panels(s, copy, panel.dimension, tactics.vector_width(s, tiles))
    s.compute_at(copy, tiles.end(0))
    right(w, s)
    for other in ({"k": 3}, {"k": 1, "stride": 2}):
        assert tactics.trailing(sl.workload("conv2d", ci=4, co=6, h=6, w=4, **other).program, "Y") is None


@pytest.mark.parametrize("part", ["outer", "inner"])
@pytest.mark.parametrize("spec", [{"batch": 1, "rows": 6, "cols": 4}, {"batch": 3, "rows": 5, "cols": 6}])
def test_partial_results(part: str, spec: dict[str, int]) -> None:
    w = sl.workload("l2_norm", **spec)
    s = Schedule(w.program)
    made = tactics.rfactor(s, "S", part, whole)  # type: ignore[arg-type]
    for block in (made, "S"):
        tactics.finish_untiled(s, block, whole, jobs=4)
    assert s.program.blocks[made].store.buffer == "S_rf"
    right(w, s)


def test_unrolling_counts_vectors_once() -> None:
    w = sl.workload("matmul", m=8, n=32, k=4)
    s = Schedule(w.program)
    tactics.vectorize_tile(s, tactics.tile(s, "C", "SRS", lambda axis, extent, parts: [None, 8]))
    tactics.unroll_up_to(s, "C", 16)
    assert dict(s.program.blocks["C"].annotations)["unroll_up_to"] == index(128)


def test_run_time_sizes_are_refused() -> None:
    s = Schedule(sl.workload("matmul", m="?", n=4, k=4).program)
    with pytest.raises(SpaceError, match="loop 'i' has the run-time size m; accepted: fixed sizes"):
        tactics.tile(s, "C", "SSRSRS", whole)


def test_a_reader_on_each_tile() -> None:
    w = sl.workload("dense", m=8, n=12, k=6)
    s = Schedule(w.program)
    reader = next(n for n, b in s.program.blocks.items() if not b.reduces)
    tiles = tactics.parallel_outer(s, tactics.tile(s, "C", "SSRSRS", whole))
    tactics.fuse_reader(s, reader, tiles, 2)
    assert tiles.end(1) in s.loops(reader)
    tactics.vectorize_tile(s, tiles)
    tactics.finish_fused(s, reader, tiles)
    assert s.program.loops[s.loops(reader)[-1]].extent == tactics.fused_width(s, reader, tiles)
    right(w, s)


def test_tiles_along_panels_of_channels_need_a_reader() -> None:
    w = sl.workload("conv2d", ci=4, co=6, h=6, w=4, k=3, padding=1)
    panel = tactics.panel(w.program, "Y")
    assert panel is not None and panel.buffer == "W"
    s = Schedule(w.program)
    assert not tactics.lies_side_by_side(s, "Y", panel)
    copy = s.cache_write("Y")
    tiles, packed = tactics.tile_along_panels(s, "Y", "SSRSRS", whole, panel, ahead=False, fused=(copy, 1))
    assert tiles.vector_axis == panel.axis and packed == "W_local"
    assert len(s.program.buffers[packed].shape) == 5 and s.program.blocks["Y"].store.buffer not in s.program.outputs
    right(w, s)


def test_tiles_of_collapsed_axes() -> None:
    w = sl.workload("conv2d", ci=4, co=6, h=6, w=4, k=1)
    s = Schedule(w.program)
    found = tactics.trailing(s.program, "Y")
    assert found is not None
    tiles, copy, panel = tactics.tile_collapsed(s, "Y", "SSRSRS", whole, found)
    assert tiles.vector_axis == panel.axis == 2 and tactics.lies_side_by_side(s, "Y", panel) is False
    right(w, s)


@pytest.mark.parametrize("machine", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("h, w, co", [(6, 4, 6), (7, 11, 5), (13, 17, 3)])
def test_collapsed_axes_read_where_they_lie(h: int, w: int, co: int, machine: str) -> None:
    """Vectors of 16 pixels cross the ends of rows, and the last one may not be full."""
    if sl.detect().arch != "x86_64" or sl.detect().vector_bits < parse(machine).vector_bits:
        pytest.skip("this machine cannot run such code")
    workload = sl.workload("conv2d", n=2, ci=4, co=co, h=h, w=w, k=1)
    s = Schedule(workload.program)
    found = tactics.trailing(s.program, "Y")
    assert found is not None

    def factors(axis: str, extent: int, parts: int) -> tuple[int | None, ...]:
        return (
            tactics.RoundedUp((None, *([1] * (parts - 2)), 16)) if axis == "h_w" else tuple(whole(axis, extent, parts))
        )

    tiles = tactics.tile_in_place(s, "Y", "SSRSRS", factors, found)
    assert tiles.vector_axis == 2 and list(s.program.blocks) == ["Y"]
    tactics.vectorize_tile(s, tiles)
    right(workload, s)
    inputs = workload.inputs(seed=1)
    assert workload.check(sl.compile(s.program, parse(machine))(*inputs.values()), inputs) is None
