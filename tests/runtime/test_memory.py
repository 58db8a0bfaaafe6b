"""Memory for arrays: aligned, and in huge pages where it lasts."""

import re
from pathlib import Path

import numpy as np
import pytest

from searchlab.runtime.memory import aligned, lasting, placed, placed_together

MIB = 1 << 20


@pytest.mark.parametrize("shape", [(), (3,), (0, 4), (7, 300), (1024, 513)])
@pytest.mark.parametrize("dtype", ["float32", "int8", "float64"])
def test_arrays_begin_on_a_cache_line_and_can_be_written(shape: tuple[int, ...], dtype: str) -> None:
    for make in (aligned, lasting):
        x = make(shape, dtype)
        assert x.shape == shape and x.dtype == dtype and x.flags.c_contiguous and x.flags.writeable
        assert x.size == 0 or x.ctypes.data % 64 == 0
        x[...] = 1
        assert (x == 1).all()


def test_large_arrays_that_last_begin_on_a_huge_page() -> None:
    assert lasting((MIB,), "float32").ctypes.data % (2 * MIB) == 0


def test_memory_outlives_what_it_was_taken_from() -> None:
    rows = lasting((512, 1024), "float32")[3:5]
    rows[...] = 7.0
    others = [lasting((512, 1024), "float32") for _ in range(4)]
    for x in others:
        x[...] = 0.0
    assert (rows == 7.0).all()


def test_a_copy_is_equal_and_apart() -> None:
    x = np.arange(200_000, dtype="int32").reshape(400, 500)
    y = placed(x)
    y[0, 0] = -1
    assert x[0, 0] == 0 and np.array_equal(x[1:], y[1:])


def test_arrays_placed_together() -> None:
    given = {"a": np.arange(5, dtype="int8"), "none": np.zeros((0, 3)), "b": np.array(2.5), "c": np.eye(9)}
    placed = placed_together(given)
    for name, array in placed.items():
        assert array.ctypes.data % 64 == 0
        assert array.dtype == given[name].dtype
        np.testing.assert_array_equal(array, given[name])
    assert placed_together({}) == {}


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the system does not tell about its memory")
def test_large_arrays_that_last_may_have_huge_pages() -> None:
    array = lasting((4 * MIB,), "uint8")
    flags = _flags(array.ctypes.data)
    assert "hg" in flags  # advised
    assert "sh" not in flags  # shared memory has none on most systems


def _flags(address: int) -> list[str]:
    """What the system notes about the memory at an address."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if found := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(found[1], 16) <= address < int(found[2], 16)
        elif inside and line.startswith("VmFlags:"):
            return line.split()[1:]
    return []
