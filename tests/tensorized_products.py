"""Matrix products of bytes with intrinsics inside, in tiles of registers."""

from collections.abc import Mapping, Sequence

import numpy as np

from searchlab.ir.expr import Like
from searchlab.schedule import Schedule
from searchlab.workloads import Workload, parse


def byte_product(m: int, n: int, k: int, dtype: str = "uint8") -> Workload:
    return parse(f"matmul:m={m},n={n},k={k},dtype={dtype}")


def tiled(
    w: Workload,
    intrinsic: str,
    lanes: int,
    rows: Like = 4,
    vectors: Like = 2,
    ranges: Mapping[str, Sequence[int]] | None = None,
) -> Schedule:
    """Rows x vectors accumulators; B is packed four by four, and what is left over in any direction is a tail."""
    s = Schedule(w.program)
    width = lanes * vectors
    s.transform_layout("B", lambda k, j: (j // width, k // 4, j % width, k % 4))
    i, j, k = s.loops("C")
    i0, i1 = s.split(i, [None, rows], tail=True)
    j0, j1, j2 = s.split(j, [None, vectors, lanes], tail=True)
    k0, k1 = s.split(k, [None, 4], tail=True)
    s.reorder(j0, i0, k0, i1, j1, j2, k1)
    s.unroll(i1)
    s.unroll(j1)
    s.tensorize(j2, intrinsic, ranges)
    return s


def extreme(dtype: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Random numbers of the whole range, with a row and a column of either end."""
    ends = np.iinfo(dtype)
    x = rng.integers(ends.min, ends.max, shape, dtype=dtype, endpoint=True)
    x[0], x[:, -1] = ends.max, ends.min
    return x


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What int32 arithmetic gives, which wraps around."""
    return (a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32)
