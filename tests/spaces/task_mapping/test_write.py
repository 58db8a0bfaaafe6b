"""Programs written with mappings: they verify, interpret and compile to the same results, with symbols for sizes."""

from collections.abc import Callable

import numpy as np
import pytest

import searchlab as sl
from searchlab.errors import SpaceError
from searchlab.ir import Program
from searchlab.ir.algebra import ceildiv
from searchlab.ir.expr import Like, cast, knob, maximum
from searchlab.ir.interpret import interpret
from searchlab.ir.verify import verify
from spaces.task_mapping import Writer, auto_map, call, custom, projection, repeat, spatial

M, N, K = 13, 37, 11


def matmul(rows: Like, vectors: Like, lanes: int = 8) -> Program:
    """Panels of B per core, register tiles of rows x vectors, both cut off at the edges."""
    columns = vectors * lanes
    with Writer("matmul") as p:
        A, B, C = p.input("A", (M, K)), p.input("B", (K, N)), p.output("C", (M, N))
        blocks = ceildiv(N, columns)
        panel, tile = p.local("panel", (blocks, K, columns)), p.local("tile", (M, N), init=0)
        with p.cores(blocks) as core, p.lanes(lanes) as lane:
            for J, k, v in (spatial(blocks, 1, 1) * repeat(1, K, vectors)).on(core):
                panel[J, k, v * lanes + lane] = B.get(k, J * columns + v * lanes + lane)
            for I, J in (spatial(1, blocks) * repeat(ceildiv(M, rows), 1)).on(core):
                registers = repeat(rows, vectors, kind="unrolled") * spatial(1, lanes)
                for (k,) in repeat(K).on():
                    for i, j in registers.on(lane, inside=(I, J), bound=(M, N)):
                        tile[i, j] += A[i, k] * panel[J, k, j % columns]
                for i, j in registers.on(lane, inside=(I, J), bound=(M, N)):
                    C[i, j] = maximum(tile[i, j], 0)
    return p.program()


def arrays(program: Program) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {n: [int(e.value) for e in program.buffers[n].shape] for n in program.inputs}  # type: ignore[attr-defined]
    return {n: rng.standard_normal(s).astype("float32") for n, s in shapes.items()}


def check(program: Program, reference: Callable[..., np.ndarray]) -> None:
    verify(program)
    inputs = arrays(program)
    want = reference(*inputs.values())
    np.testing.assert_allclose(next(iter(interpret(program, inputs).values())), want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(sl.compile(program, sl.detect())(*inputs.values()), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("rows", "vectors"), [(1, 1), (6, 2), (4, 5), (16, 1)])
def test_matmul(rows: int, vectors: int) -> None:
    def reference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.maximum(a @ b, 0)

    check(matmul(rows, vectors), reference)
    symbolic = matmul(knob("rows"), knob("vectors"))
    assert symbolic.knobs == ("rows", "vectors")
    check(symbolic.substitute({"rows": rows, "vectors": vectors}), reference)


def test_register_tile_is_kept_in_registers() -> None:
    from searchlab.lower.passes import lower

    text = str(lower(matmul(6, 2), sl.detect()))
    assert "in register" in text and "vectorized" in text


def test_one_mapping_for_cores_and_lanes() -> None:
    with Writer("scale") as p:
        X, Y = p.input("X", (6, 32)), p.output("Y", (6, 32))
        with p.cores(2) as core, p.lanes(8) as lane:
            for i, j in (spatial(2, 1) * repeat(3, 4) * spatial(1, 8)).on(core * 8 + lane):
                Y[i, j] = X[i, j] * 2.0
    program = p.program()
    assert [lp.kind for lp in program.loops.values()] == ["parallel", "serial", "serial", "vectorized"]
    check(program, lambda x: x * 2)


def test_auto_map_projection_and_custom() -> None:
    with Writer("copy") as p:
        X, Y, Z = p.input("X", (8, 12)), p.output("Y", (8, 12)), p.output("Z", (1, 12))
        with p.cores(8) as core:
            for i, j in auto_map((8, 12), 8).on(core):
                Y[i, j] = X[i, j]
            for i, j in projection(auto_map((8, 12), 8), {0: 0}).on(core):
                Z[i, j] = X[i, j] + 1.0
        with p.cores(8) as core:
            for i, j in custom((8, 12), 8, lambda w: [(w, w), (w, w + 1)]).on(core):
                Y[i, j] = X[i, j] * 0.0
    program = p.program()
    verify(program)
    inputs = arrays(program)
    found = interpret(program, inputs)
    want = inputs["X"].copy()
    want[np.arange(8), np.arange(8)] = want[np.arange(8), np.arange(8) + 1] = 0
    np.testing.assert_array_equal(found["Y"], want)
    np.testing.assert_array_equal(found["Z"][0], inputs["X"][0] + 1)


def test_predicated_stores_and_default_values() -> None:
    with Writer("blur") as p:
        X, Y = p.input("X", (10,)), p.output("Y", (10,))
        for (i,) in repeat(10).on():
            Y[i] = X.get(i - 1, default=1.0) + X[i] + X.get(i + 1)
            with p.when(i >= 4, i < 6):
                Y[i] = 0.0
    check(p.program(), _blur)


def _blur(x: np.ndarray) -> np.ndarray:
    y = np.concatenate([[1], x[:-1]]) + x + np.concatenate([x[1:], [0]])
    y[4:6] = 0
    return y.astype("float32")


def test_a_task_may_move_in_space_and_in_the_sum() -> None:
    with Writer("windows") as p:
        X, Y = p.input("X", (11,)), p.output("Y", (4,), init=0)
        for (i,) in repeat(4).on():
            for (at,) in repeat(3).on(inside=(i,), bound=(11,)):
                Y[i] += X[at]
    check(p.program(), lambda x: np.array([x[3 * i : 3 * i + 3].sum() for i in range(4)]).astype("float32"))


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda p, x, y: y.__setitem__((0,), x[0, 0]), "2 dimensions, indexed with 1"),
        (lambda p, x, y: y.__setitem__((0, 0), y[0, 0] + 1.0), "added to before it is set"),
        (lambda p, x, y: next(repeat(3).on(0, inside=(0,))), "needs the bound"),
        (lambda p, x, y: next(repeat(3).on(0, bound=(3, 4))), "2 numbers for a mapping of rank 1"),
        (lambda p, x, y: p.local("X", (3,)), "not a free name"),
        (lambda p, x, y: p.program(), "nothing was stored"),
        (lambda p, x, y: repeat(3).on(1), "goes up to 1, but the mapping has 1 workers"),
    ],
)
def test_refusals(write: Callable[..., object], message: str) -> None:
    with Writer("bad") as p, pytest.raises(SpaceError, match=message):
        write(p, p.input("X", (4, 4)), p.output("Y", (4, 4)))


def test_a_sum_is_not_shared_by_cores() -> None:
    with Writer("sum") as p:
        X, Y = p.input("X", (8,)), p.output("Y", (1,), init=0)
        with p.cores(8) as core:
            for (k,) in spatial(8).on(core):
                Y[0] += X[k]
    with pytest.raises(SpaceError, match="bound to parallel loop"):
        p.program()


def test_a_sum_without_init_is_not_shared_by_cores_either() -> None:
    with Writer("sum") as p:
        X, Y = p.input("X", (8,)), p.output("Y", (1,))
        Y[0] = 0.0
        with p.cores(8) as core:
            for (k,) in spatial(8).on(core):
                Y[0] += X[k]
    with pytest.raises(SpaceError, match="bound to parallel loop"):
        p.program()


def test_several_terms() -> None:
    with Writer("terms") as p:
        X, Y = p.input("X", (4, 6)), p.output("Y", (4,))
        for (i,) in repeat(4).on():
            Y[i] = 1.0
            for (k,) in repeat(6).on():
                Y[i] += X[i, k]
                Y[i] = maximum(Y[i], X[i, k])
    check(p.program(), _terms)
    with Writer("twice") as p, pytest.raises(SpaceError, match="stored to a second time"):
        Z = p.output("Z", (4,), init=0)
        for (i,) in repeat(4).on():
            Z[i] += 1.0
            Z[i] += 2.0


def _terms(x: np.ndarray) -> np.ndarray:
    y = np.ones(4, np.float32)
    for k in range(6):
        y = np.maximum(y + x[:, k], x[:, k])
    return y


# --- calls ------------------------------------------------------------------------------------------------------------


def products_of_bytes(rows: Like, m: int = 13, n: int = 32, k: int = 12) -> Program:
    """Tiles of rows x 2 calls; what is left over of the rows is cut off."""
    with Writer("matmul") as p:
        A, B = p.input("A", (m, k), "uint8"), p.input("B", (n // 8, k // 4, 8, 4), "int8")
        C = p.output("C", (m, n), "int32", init=0)
        with p.cores(n // 16) as core:
            blocks = spatial(1, n // 16, 1) * repeat(ceildiv(m, rows), 1, 1) * repeat(1, 1, k // 4)
            tile = repeat(rows, 2, 1, kind="unrolled") * call("avx2_u8s8_8x4", (1, 2), rank=3)
            for i, j, r in (blocks * tile).on(core, bound=(m, n, k)):
                C[i, j] += cast(A[i, r], "int32") * cast(B[j // 8, r // 4, j % 8, r % 4], "int32")
    return p.program()


def test_a_program_with_calls() -> None:
    symbolic = products_of_bytes(knob("rows"))
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 256, (13, 12), "uint8"), rng.integers(-128, 128, (12, 32), "int8")
    inputs = {"A": a, "B": np.ascontiguousarray(b.reshape(3, 4, 4, 8).transpose(2, 0, 3, 1))}
    want = a.astype("int32") @ b.astype("int32")
    for program in (products_of_bytes(4), symbolic.substitute({"rows": 5})):
        verify(program)
        assert "tensorized avx2_u8s8_8x4" in str(program) and not program.trace
        np.testing.assert_array_equal(interpret(program, inputs)["C"], want)
        if "avx2" in sl.detect().enabled_features():
            np.testing.assert_array_equal(sl.compile(program, sl.detect())(*inputs.values()), want)


def test_a_call_that_does_not_match_is_refused() -> None:
    with Writer("matmul") as p:
        A, B, C = p.input("A", (4, 4), "uint8"), p.input("B", (4, 8), "int8"), p.output("C", (4, 8), "int32", init=0)
        for i, j, r in (repeat(4, 1, 1) * call("avx2_u8s8_8x4", (1, 2), rank=3)).on():
            C[i, j] += cast(A[i, r], "int32") * cast(B[r, j], "int32")
    with pytest.raises(SpaceError, match="the description moves 4 elements of B with j, the loop 'r2' 1 of 'B'"):
        p.program()
