"""Mappings to instructions: which operators are matrix products, in how many ways, and what applying one makes."""

from dataclasses import replace

import numpy as np
import pytest

from searchlab.backend import compile
from searchlab.errors import ScheduleError
from searchlab.ir import Builder, Program, cast, interpret, largest, size, total
from searchlab.ir.alpha import same_up_to_names
from searchlab.ir.expr import ZERO, Expr, Var
from searchlab.ir.statement_tree import kept, map_accesses, map_expressions, statements, swap
from searchlab.ir.stmt import Block, Loop, Stmt
from searchlab.ir.walk import Substitution
from searchlab.schedule import replay, trace_json
from searchlab.targets import parse as target_of
from searchlab.tensorization import IteratorMapping, Mappings, NoMapping, apply_mapping, mappings
from searchlab.workloads import parse


def gemm(m: int = 4, n: int = 4, k: int = 4) -> Program:
    b = Builder("gemm")
    A, B, r = b.input("A", (m, k)), b.input("B", (k, n)), b.axis("k", k)
    return b.program(b.compute("C", (m, n), lambda i, j: total(A[i, r] * B[r, j], r)))


def dot(lanes: int = 4, k: int = 4, data: str = "uint8") -> Program:
    """Products of small integers, added up in groups: one row of data, several of weights."""
    b = Builder("dot")
    A, B, r = b.input("A", (k,), data), b.input("B", (lanes, k), "int8"), b.axis("k", k)
    return b.program(b.compute("C", (lanes,), lambda j: total(cast(A[r], "int32") * cast(B[j, r], "int32"), r)))


def adding(description: Program) -> Program:
    """The description without the init: it adds to what is there."""
    (b,) = description.blocks.values()
    return description.with_body(kept(swap(description.body, b, replace(b, init=None))))


def reduction(program: Program) -> str:
    return next(b.name for b in program.blocks.values() if b.reduces)


# operators: mappings to a matrix product, the first of them (rows, columns, sum, outside), what is padded
COVERAGE: dict[str, tuple[int, str, str]] = {
    "matmul:m=8,n=12,k=4": (2, "i | j | k |", ""),
    "matmul:m=7,n=13,k=5": (2, "i | j | k |", "i j k"),
    "matmul:m=1,n=8,k=4": (2, "i | j | k |", "i"),
    "dense:m=5,n=16,k=8,activation=relu": (2, "i | j | k |", "i"),
    "batch_matmul:batch=3,m=5,n=16,k=7": (2, "i | j | k | b", "i k"),
    "transpose_batch_matmul:batch=2,seq=7,heads=3,dim=5": (2, "i | j | k | b h", "i j k"),
    "conv1d:n=2,ci=3,co=5,w=13,k=3,stride=2,padding=1": (32, "n w | c | ci kw |", "i j k"),
    "conv2d:n=2,ci=3,co=4,h=5,w=6,k=3": (450, "n h w | c | ci kh kw |", "k"),
    "conv2d:ci=3,co=5,h=7,w=9,k=3,padding=1": (120, "h w | c | ci kh kw | n", "i j k"),
    "conv2d:ci=8,co=8,h=4,w=4,k=1": (8, "h w | c | ci | n kh kw", ""),
    "conv2d:ci=3,co=4,h=9,w=9,k=3,padding=1,dilation=2": (120, "h w | c | ci kh kw | n", "i k"),
    "conv2d:ci=4,co=8,h=7,w=6,k=3,padding=1,groups=2": (120, "Y_h Y_w | Y_c_1 | ci kh kw | Y_n Y_c_0", "i k"),
    "conv3d:ci=2,co=4,d=4,h=5,w=6,k=3x1x2,padding=1x0x1": (450, "d h w | c | ci kd kw | n kh", ""),
    "conv2d_transpose:ci=3,co=4,h=4,w=5": (120, "h w | c | ci kh kw | n ph pw", ""),
    "conv2d_transpose:ci=3,co=4,h=4,w=5,k=3": (120, "h w | c | ci kh kw | n ph pw", ""),
}
NONE: dict[str, str] = {
    "depthwise_conv2d:c=5,h=7,w=9,padding=1": (
        "no space iterator occurs in Y and W alone, as j of the description does: n in Y and P, c in Y and P and W, "
        "h in Y and P, w in Y and P"
    ),
    "matmul:m=4,n=4,k=4,dtype=int8": "it adds up in int32, the description in float32",
    "reduce:shape=5x6,axis=1,op=max": "it combines with 'max', the description with 'add'",
    "l2_norm:batch=3,rows=5,cols=11": "two operands are one buffer",
    "reduce:shape=5x6,axis=1,op=sum": "it adds up 'X', the description 'A * B'",
}


def said(m: IteratorMapping) -> str:
    groups = [*m.groups, m.outside]
    return " | ".join(" ".join(v.removeprefix("v") for v in group) for group in groups).strip()


@pytest.mark.parametrize("spec", COVERAGE)
def test_coverage(spec: str) -> None:
    program = parse(spec).program
    found = mappings(program, reduction(program), gemm(), limit=500)
    assert isinstance(found, Mappings)
    first = found.first[0]
    padded = " ".join(v.removeprefix("v") for v in first.padded)
    assert (found.count, said(first), padded) == COVERAGE[spec]
    assert len(found.first) == found.count == len(set(found.first))


@pytest.mark.parametrize("spec", NONE)
def test_no_mapping_says_why(spec: str) -> None:
    program = parse(spec).program
    found = mappings(program, reduction(program), gemm())
    assert isinstance(found, NoMapping) and not found
    assert NONE[spec] in found.words


# --- applied ----------------------------------------------------------------------------------------------------------


def tile(program: Program, name: str) -> Stmt:
    """The nest of a tile with the iterators of the block around it at zero: what a description says."""
    outer = program.blocks[name]
    put = Substitution({it.var: ZERO for it in outer.iters})
    (inner,) = (s for s in statements(outer.body) if isinstance(s, Block))
    loops = {s.var: s.extent for s in statements(outer.body) if isinstance(s, Loop)}
    moving = [it for it, e in zip(inner.iters, map(put, inner.bindings)) if e in loops]
    still = Substitution({it.var: ZERO for it in inner.iters if it not in moving})

    def direct(e: Expr) -> Expr:
        return still(put(e))

    iters = tuple(
        replace(it, extent=loops[Var(str(put(e)))]) for it, e in zip(inner.iters, inner.bindings) if it in moving
    )
    bindings = tuple(put(e) for it, e in zip(inner.iters, inner.bindings) if it in moving)
    body = map_expressions(inner.body, direct)
    init = None if inner.init is None else map_expressions(inner.init, direct)
    new = replace(inner, iters=iters, bindings=bindings, body=body, init=init)
    return without_outside(kept(swap(outer.body, inner, new)))


def without_outside(s: Stmt) -> Stmt:
    """Accesses without the leading zeros that iterators outside have left."""

    def strip(place: tuple[str, tuple[Expr, ...]]) -> tuple[str, tuple[Expr, ...]]:
        name, at = place
        while at and at[0] == ZERO:
            at = at[1:]
        return name, at

    return map_accesses(s, strip)


@pytest.mark.parametrize("spec", COVERAGE)
def test_the_first_mapping_makes_tiles_that_are_the_description(spec: str) -> None:
    w, description = parse(spec), gemm()
    found = mappings(w.program, reduction(w.program), description)
    assert isinstance(found, Mappings)
    program, name = apply_mapping(w.program, found.first[0], description)
    assert same_up_to_names(description.body, tile(program, name))
    inputs = w.inputs(seed=2)
    assert w.check(interpret(program, inputs), inputs) is None
    assert replay(w.program, trace_json(program)) == program


@pytest.mark.parametrize("spec", [spec for spec in COVERAGE if not spec.startswith("conv3d")])
def test_random_mappings_compute_the_same(spec: str) -> None:
    w, rng = parse(spec), np.random.default_rng(len(spec))
    description = gemm(*(int(x) for x in rng.integers(2, 5, 3)))
    found = mappings(w.program, reduction(w.program), description, limit=500)
    assert isinstance(found, Mappings)
    for at in rng.choice(found.count, min(found.count, 3), replace=False):
        program, name = apply_mapping(w.program, found.first[int(at)], description)
        assert same_up_to_names(description.body, tile(program, name))
        inputs = w.inputs(seed=int(at))
        assert w.check(interpret(program, inputs), inputs) is None


def test_a_mapped_convolution_compiles() -> None:
    w, description = parse("conv2d:ci=3,co=5,h=5,w=6,k=3,padding=1,stride=2"), adding(gemm())
    found = mappings(w.program, "Y", description)
    assert isinstance(found, Mappings)
    program, name = apply_mapping(w.program, found.first[0], description)
    assert program.blocks["Y"].init is None and "Y_init" in program.blocks
    assert same_up_to_names(description.body, tile(program, name))
    inputs = w.inputs(seed=3)
    assert w.check(compile(program, target_of("x86-64-v2"))(*inputs.values()), inputs) is None


def test_products_of_small_integers() -> None:
    """The rows of a matrix product stay outside; casts and signs must agree, so that operands do not swap."""
    w, description = parse("dense:m=3,n=6,k=7,dtype=uint8"), dot()
    found = mappings(w.program, "C", description)
    assert isinstance(found, Mappings) and found.count == 1
    assert said(found.first[0]) == "j | k | i" and found.first[0].padded == ("vj", "vk")
    program, name = apply_mapping(w.program, found.first[0], description)
    assert same_up_to_names(description.body, tile(program, name))
    inputs = w.inputs(seed=4)
    assert w.check(interpret(program, inputs), inputs) is None
    assert not mappings(parse("dense:m=3,n=6,k=7,dtype=int8").program, "C", description)
    signed = mappings(parse("dense:m=3,n=6,k=7,dtype=int8").program, "C", dot(data="int8"))
    assert isinstance(signed, Mappings) and signed.count == 2


def test_sizes_known_at_run_time() -> None:
    b = Builder("product")
    n = size("n")
    A, B, r = b.input("A", (n, 6)), b.input("B", (6, 8)), b.axis("k", 6)
    plain = b.program(b.compute("C", (n, 8), lambda i, j: total(A[i, r] * B[r, j], r)))
    found = mappings(plain, "C", gemm())
    assert isinstance(found, Mappings) and found.first[0].padded == ("vi", "vk")
    program, _ = apply_mapping(plain, found.first[0], gemm())
    rng = np.random.default_rng(5)
    for rows in (1, 4, 6):
        inputs = {"A": rng.integers(-4, 5, (rows, 6)).astype("f4"), "B": rng.integers(-4, 5, (6, 8)).astype("f4")}
        np.testing.assert_array_equal(interpret(program, inputs, {"n": rows})["C"], inputs["A"] @ inputs["B"])


def test_what_is_no_description_or_no_mapping_of_it_is_refused() -> None:
    program = parse("matmul:m=4,n=4,k=4").program
    with pytest.raises(ScheduleError, match="'softmax' is not one reduction block"):
        mappings(program, "C", parse("softmax:rows=3,cols=4").program)
    with pytest.raises(ScheduleError, match="needs constant extents"):
        mappings(program, "C", parse("conv1d:ci=2,co=2,w=5,k=3").program)
    b = Builder("rows")
    X, r = b.input("X", (4, 6)), b.axis("r", 6)
    other = b.program(b.compute("Y", (4,), lambda i: largest(X[i, r], r)))
    assert not mappings(program, "C", other)
    wrong = IteratorMapping("C", ("C", "A", "B"), (("vi",), ("vj",), ("vz",)), ())
    with pytest.raises(ScheduleError, match="not one of block 'C' with iterators vi, vj, vk"):
        apply_mapping(program, wrong, gemm())
