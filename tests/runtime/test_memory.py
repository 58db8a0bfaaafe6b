"""Memory for arrays: aligned, and in huge pages where it lasts."""

import numpy as np
import pytest

from searchlab.runtime.memory import aligned, lasting, placed

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
