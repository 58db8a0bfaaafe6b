"""Programs as values: text, hashes, JSON, pickle, substitution, the verifier, the interpreter and the Builder."""

import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import erf, expit

from searchlab.errors import ConstraintError, IRError
from searchlab.ir import (
    Block,
    Buffer,
    Builder,
    Expr,
    Iter,
    Loop,
    Program,
    Seq,
    Store,
    Tensor,
    Var,
    call,
    cast,
    from_json,
    index,
    interpret,
    knob,
    largest,
    select,
    size,
    smallest,
    to_json,
    total,
    verify,
)
from searchlab.ir.expr import TRUE, Load, const
from searchlab.schedule import Schedule
from searchlab.workloads import parse

Make = Callable[[], object]


def matmul(m: object = 4, n: object = 6, k: object = 5) -> Program:
    b = Builder("matmul")
    A, B = b.input("A", (m, k)), b.input("B", (k, n))
    r = b.axis("k", k)
    return b.program(b.compute("C", (m, n), lambda i, j: total(A[i, r] * B[r, j], r)))


def two_stages() -> Program:
    """A padded copy and a sum over windows of it, with everything that text can hold."""
    b = Builder("windows")
    X = b.input("X", (7,))
    P = b.compute("P", (9,), lambda i: select((i >= 1) & (i < 8), X[i - 1], 0.0))
    r = b.axis("r", 3)
    return b.program(b.compute("Y", (7,), lambda i: total(P[i + r] * cast(r, "float32"), r)))


def scheduled() -> Program:
    s = Schedule(two_stages())
    i, r = s.loops("Y")
    i0, i1 = s.split(i, [None, knob("t")], tail=True)
    s.split(r, [None, knob("u")])
    s.compute_at("P", i0)
    s.vectorize(i1)
    s.annotate("Y", "unroll_up_to", 3)
    s.transform_layout("X", lambda i: (i // 4, i % 4))
    return s.program


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


# --- text and hash ----------------------------------------------------------------------------------------------------

PLAIN = """\
program windows(X: float32[7]) -> Y: float32[7]:
  buffer P: float32[9]
  for i in 9:
    block P(vi<9 = i):
      P[vi] = select((1 <= vi) and (vi < 8), X[vi - 1], 0.0)
  for Y_i in 7:
    for r in 3:
      block Y(vi<7 = Y_i; vr<3 = r):
        init Y[vi] = 0.0
        Y[vi] = Y[vi] + P[vi + vr] * float32(vr)
"""


def test_text_is_stable() -> None:
    assert str(two_stages()) == PLAIN


def test_text_of_a_scheduled_program_is_stable(golden: Callable[[str, str], None]) -> None:
    golden("schedule/whole_program.txt", str(scheduled()))


def test_hash_names_the_program_in_every_process() -> None:
    code = "from searchlab.workloads import parse; print(parse('conv2d:ci=3,co=4,h=5,w=6').program.hash)"
    assert run(code) == run(code) == parse("conv2d:ci=3,co=4,h=5,w=6").program.hash


def test_hash_is_known() -> None:
    assert two_stages().hash == "3cee0a51cb241aa7"  # changes only when the text of programs does


def test_hash_tells_programs_apart() -> None:
    programs = [matmul(), matmul(m=5), matmul(m=size("m")), two_stages(), scheduled(), scheduled().substitute({"t": 2})]
    assert len({p.hash for p in programs}) == len(programs)
    assert matmul().hash == matmul().hash


def test_what_a_program_holds_by_name() -> None:
    p = scheduled()
    assert list(p.blocks) == ["P", "Y"] and list(p.loops) == ["Y_i_0", "P_i", "Y_i_1", "r_0", "r_1"]
    assert p.knobs == ("t", "u") and p.sizes == () and matmul(m=size("m")).sizes == ("m",)


# --- JSON and pickle --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [matmul, two_stages, scheduled, lambda: parse("softmax:rows=3,cols=5").program])
def test_json_and_pickle_give_the_program_back(make: Callable[[], Program]) -> None:
    p = make()
    for again in (from_json(to_json(p)), pickle.loads(pickle.dumps(p))):
        assert again == p and str(again) == str(p) and again.hash == p.hash
        verify(again)
    assert pickle.loads(pickle.dumps(p)).trace == p.trace


@pytest.mark.parametrize(
    ("name", "make"),
    {
        "scheduled": scheduled,
        "sized": lambda: matmul(m=size("m")),
        "softmax": lambda: parse("softmax:rows=3,cols=5").program,
    }.items(),
)
def test_json_is_stable(name: str, make: Callable[[], Program], golden: Callable[[str, str], None]) -> None:
    """Programs that were sent or written by one version are read by the next."""
    golden(f"ir/{name}.json", to_json(make()) + "\n")


def test_json_is_read_in_another_process() -> None:
    p = scheduled()
    assert run(f"from searchlab.ir import from_json; print(from_json({to_json(p)!r}).hash)") == p.hash


def test_json_round_trip_of_infinities() -> None:
    p = parse("reduce:shape=3x4,op=max").program
    assert from_json(to_json(p)) == p


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "3", "{}", '["Var", "x"]', '["Program"]', '["Nothing", 1]', '[["Var"]]', '["Program", 1, 2]'],
)
def test_what_is_no_program_in_json_is_refused(text: str) -> None:
    with pytest.raises(IRError):
        from_json(text)


def test_what_json_cannot_hold_is_refused() -> None:
    p = matmul()
    odd = replace(p, body=replace(p.loops["i"], annotations=(("note", object()),)))
    with pytest.raises(IRError, match="cannot be written as JSON"):
        to_json(odd)


def test_numpy_integers_are_written_as_integers() -> None:
    p = replace(matmul(), body=replace(matmul().loops["i"], annotations=(("note", np.int64(3)),)))
    assert json.loads(to_json(p)) == json.loads(to_json(replace(p, body=replace(p.body, annotations=(("note", 3),)))))


# --- substitution -----------------------------------------------------------------------------------------------------


def tiled() -> Program:
    s = Schedule(matmul(m=24))
    s.split("i", [None, knob("t")])
    s.annotate("C", "unroll_up_to", knob("u"))
    return s.program


def test_symbols_in_notes_only_may_be_zero() -> None:
    assert tiled().substitute({"u": 0}).blocks["C"].annotations == (("unroll_up_to", index(0)),)


def test_substitute_replaces_symbols_everywhere() -> None:
    p = tiled().substitute({"t": 4, "u": 2})
    assert p.symbols == () and p.assumptions == ()
    assert [str(lp.extent) for lp in p.loops.values()] == ["6", "4", "6", "5"]
    assert p.blocks["C"].annotations == (("unroll_up_to", index(2)),)


def test_substitute_may_leave_symbols() -> None:
    p = matmul(m=size("m"), n=size("n")).substitute({"n": 3})
    assert p.sizes == ("m",) and str(p.buffers["C"].shape) == "(m, 3)"


def test_substitute_takes_numpy_integers() -> None:
    assert tiled().substitute({"t": np.int32(4)}).hash == tiled().substitute({"t": 4}).hash


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"s": 4}, ["no symbol 's'", "its symbols: t, u"]),
        ({"i": 4}, ["no symbol 'i'"]),
        ({"t": 0}, ["'t'", "integer >= 1", "0"]),
        ({"t": -2}, ["'t'", "-2"]),
        ({"t": 2.0}, ["'t'", "2.0"]),
        ({"t": True}, ["'t'", "True"]),
        ({"t": "4"}, ["'t'", "'4'"]),
        ({"t": 5}, ["t=5", "24 % t == 0"]),
    ],
)
def test_substitute_refuses(values: dict[str, int], words: list[str]) -> None:
    with pytest.raises((IRError, ConstraintError)) as caught:
        tiled().substitute(values)
    for word in ("matmul", *words):
        assert word in str(caught.value)


def test_a_broken_assumption_is_a_constraint_error() -> None:
    with pytest.raises(ConstraintError):
        tiled().substitute({"t": 7})


def test_a_program_without_symbols_says_so() -> None:
    with pytest.raises(IRError, match="its symbols: none"):
        matmul().substitute({"t": 1})


# --- the verifier -----------------------------------------------------------------------------------------------------


def body_of(p: Program) -> Block:
    return p.blocks["C"]


def with_block(p: Program, **changes: object) -> Program:
    """The matmul with its block changed."""
    i, j, k = (p.loops[n] for n in "ijk")
    block = replace(body_of(p), **changes)
    return replace(p, body=replace(i, body=replace(j, body=replace(k, body=block))))


def with_value(p: Program, value: Expr) -> Program:
    return with_block(p, body=replace(body_of(p).store, value=value))


P = matmul()
C = body_of(P)
V = [it.var for it in C.iters]

MALFORMED: dict[str, tuple[Make, list[str]]] = {
    "input without a buffer": (lambda: replace(P, inputs=("A", "B", "D")), ["parameter 'D' is not a buffer"]),
    "output without a buffer": (lambda: replace(P, outputs=("D",)), ["parameter 'D' is not a buffer"]),
    "output named twice": (lambda: replace(P, outputs=("C", "C")), ["parameter 'C' is named twice"]),
    "output that is not written": (
        lambda: replace(P, outputs=("C", "D"), buffers={**P.buffers, "D": Buffer("D", (), "float32")}),
        ["output 'D' is never written"],
    ),
    "two loops of one name": (lambda: replace(P, body=Loop(Var("i"), index(2), P.body)), ["two loops", "'i'"]),
    "unknown kind of loop": (lambda: replace(P, body=replace(P.loops["i"], kind="no")), ["'i'", "'no'", "parallel"]),
    "two blocks of one name": (
        lambda: replace(P, body=Seq((P.body, replace(C, bindings=(index(0),) * 3)))),
        ["two blocks", "'C'"],
    ),
    "bindings that do not fit": (
        lambda: with_block(P, bindings=C.bindings[:2]),
        ["block 'C'", "3 iteration variables", "2 bindings"],
    ),
    "binding to an unknown loop": (
        lambda: with_block(P, bindings=(Var("z"), *C.bindings[1:])),
        ["'z'", "outside the loop", "block 'C'"],
    ),
    "variable of another block": (
        lambda: with_value(P, cast(Var("vz"), "float32")),
        ["'vz'", "store to 'C'"],
    ),
    "extent of a loop inside": (
        lambda: replace(P, body=replace(P.loops["i"], extent=Var("j"))),
        ["'j'", "loop 'i'"],
    ),
    "predicate of unknown variables": (lambda: with_block(P, predicate=Var("z") < 3), ["'z'", "block 'C'"]),
    "parallel reduction": (
        lambda: replace(
            P, body=replace(P.loops["i"], body=replace(P.loops["j"], body=replace(P.loops["k"], kind="parallel")))
        ),
        ["block 'C'", "parallel loop 'k'", "rfactor"],
    ),
    "store to an unknown buffer": (
        lambda: with_block(P, body=Store("D", (), const(0, "float32"))),
        ["store to unknown buffer 'D'"],
    ),
    "init of an unknown buffer": (lambda: with_block(P, init=replace(C.init, buffer="D")), ["unknown buffer 'D'"]),
    "init of another dtype": (lambda: with_block(P, init=replace(C.init, value=const(0, "int32"))), ["'C'", "int32"]),
    "init of another rank": (lambda: with_block(P, init=replace(C.init, indices=(V[0],))), ["'C'", "2 dim", "1 ind"]),
    "store to an input": (
        lambda: with_block(P, body=Store("A", (V[0], V[2]), const(0, "float32"))),
        ["store to input 'A'"],
    ),
    "store of another rank": (
        lambda: with_block(P, body=replace(C.store, indices=(V[0],))),
        ["'C'", "2 dimensions", "1 indices"],
    ),
    "store of another dtype": (lambda: with_value(P, const(0, "int32")), ["'C' holds float32", "int32"]),
    "load of an unknown buffer": (
        lambda: with_value(P, Load("D", (V[0],), "float32")),
        ["load from unknown buffer 'D'"],
    ),
    "load of another rank": (lambda: with_value(P, Load("A", (V[0],), "float32")), ["A[vi]", "2 dimensions"]),
    "load of another dtype": (lambda: with_value(P, Load("A", (V[0], V[2]), "float64")), ["'A'", "float32"]),
    "load at a value": (
        lambda: with_value(P, Load("A", (V[0], Load("A", (V[0], V[2]), "float32")), "float32")),
        ["not an index"],
    ),
    "read before write": (
        lambda: replace(two_stages(), body=Seq(tuple(reversed(two_stages().body.body)))),  # type: ignore[union-attr]
        ["'P' is read in", "before anything writes it"],
    ),
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_the_verifier_refuses(kind: str) -> None:
    make, words = MALFORMED[kind]
    with pytest.raises(IRError) as caught:
        verify(make())  # type: ignore[arg-type]
    for word in words:
        assert word in str(caught.value)


def test_the_verifier_accepts_what_is_well_formed() -> None:
    for p in (P, two_stages(), scheduled(), tiled(), with_block(P), with_block(P, predicate=TRUE)):
        verify(p)


# --- the interpreter --------------------------------------------------------------------------------------------------

RNG = np.random.default_rng(0)


def test_interpreter_multiplies_matrices() -> None:
    A, B = RNG.random((4, 5), np.float32), RNG.random((5, 6), np.float32)
    got = interpret(matmul(), {"A": A, "B": B})
    assert list(got) == ["C"] and got["C"].dtype == np.float32
    np.testing.assert_allclose(got["C"], A @ B, rtol=1e-5)


def test_interpreter_takes_run_time_sizes() -> None:
    A, B = RNG.random((3, 5), np.float32), RNG.random((5, 2), np.float32)
    p = matmul(size("m"), size("n"), size("k"))
    np.testing.assert_allclose(interpret(p, {"A": A, "B": B}, {"m": 3, "n": 2, "k": 5})["C"], A @ B, rtol=1e-5)


def test_interpreter_pads_and_sums_windows() -> None:
    X = RNG.random(7, np.float32)
    padded = np.pad(X, 1)
    expected = sum(padded[r : r + 7] * r for r in range(3))
    np.testing.assert_allclose(interpret(two_stages(), {"X": X})["Y"], expected, rtol=1e-5)


def test_interpreter_runs_a_scheduled_program() -> None:
    X = RNG.random(7, np.float32)
    s = Schedule(two_stages())
    i, r = s.loops("Y")
    i0, i1 = s.split(i, [None, 3], tail=True)
    s.reorder(r, i1)
    s.compute_at("P", i0)
    s.parallel(i0)
    assert np.array_equal(interpret(s.program, {"X": X})["Y"], interpret(two_stages(), {"X": X})["Y"])


@pytest.mark.parametrize(("reduction", "array"), [(largest, np.max), (smallest, np.min), (total, np.sum)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint8", "int32", "int64"])
def test_interpreter_reduces(reduction: Callable[..., object], array: Callable[..., np.ndarray], dtype: str) -> None:
    b = Builder("reduce")
    X = b.input("X", (3, 4), dtype)
    r = b.axis("r", 4)
    p = b.program(b.compute("Y", (3,), lambda i: reduction(X[i, r], r)))
    x = RNG.integers(0, 30, (3, 4)).astype(dtype)
    y = interpret(p, {"X": x})["Y"]
    assert y.dtype == np.dtype(dtype) and np.array_equal(y, array(x, axis=1))


def apply(function: str, X: Tensor) -> Callable[[Var], Expr]:
    return lambda i: call(function, X[i])


def test_interpreter_knows_every_function() -> None:
    functions = {
        "exp": np.exp, "log": np.log, "tanh": np.tanh, "erf": erf, "sigmoid": expit, "sqrt": np.sqrt,
        "rsqrt": lambda x: 1 / np.sqrt(x), "abs": np.abs, "floor": np.floor, "round": np.rint,
    }  # fmt: skip
    x = RNG.random(5) + 0.5
    for name, f in functions.items():
        b = Builder(name)
        X = b.input("X", (5,), "float64")
        p = b.program(b.compute("Y", (5,), apply(name, X)))
        np.testing.assert_allclose(interpret(p, {"X": x})["Y"], f(x), rtol=1e-12, err_msg=name)


def test_interpreter_refuses_what_it_cannot_run() -> None:
    A, B = np.zeros((4, 5), np.float32), np.zeros((5, 6), np.float32)
    with pytest.raises(IRError, match="still has symbols: t"):
        interpret(tiled(), {"A": np.zeros((24, 5)), "B": B})
    with pytest.raises(IRError, match=r"input 'A' has shape \(5, 4\), expected \(4, 5\)"):
        interpret(matmul(), {"A": A.T, "B": B})


def test_interpreter_sees_a_block_leave_its_domain() -> None:
    wild = with_block(P, bindings=(Var("i") + 1, *C.bindings[1:]))
    with pytest.raises(AssertionError, match="C leaves its domain"):
        interpret(wild, {"A": np.zeros((4, 5)), "B": np.zeros((5, 6))})


# --- the Builder ------------------------------------------------------------------------------------------------------


def build(body: Callable[[Builder, Tensor], object]) -> Make:
    def make() -> object:
        b = Builder("op")
        return body(b, b.input("X", (4, 3)))

    return make


def _unread(b: Builder, X: Tensor) -> Program:
    b.compute("T", (4,), lambda i: X[i, 0])
    return b.program(b.compute("Y", (4,), lambda i: X[i, 0]))


def _same_output_twice(b: Builder, X: Tensor) -> Program:
    Y = b.compute("Y", (4,), lambda i: X[i, 0])
    return b.program(Y, Y)


def _foreign_axis(b: Builder, X: Tensor) -> object:
    return b.compute("Y", (4,), lambda i: total(X[i, Var("q")], Var("q")))


REFUSED: dict[str, tuple[Make, list[str]]] = {
    "dtype": (build(lambda b, X: b.input("Z", (3,), "float8")), ["input 'Z'", "'float8'", "known", "float32"]),
    "name twice": (build(lambda b, X: b.input("X", (3,))), ["two tensors", "'X'"]),
    "stage like an input": (build(lambda b, X: b.compute("X", (4,), lambda i: X[i, 0])), ["two tensors", "'X'"]),
    "no name": (build(lambda b, X: b.input("a b", (3,))), ["'a b' is not a name"]),
    "extent 0": (build(lambda b, X: b.input("Z", (3, 0))), ["'Z'", "(3, 0)", "at least 1"]),
    "axis of extent 0": (build(lambda b, X: b.axis("r", 0)), ["'r'", "at least 1"]),
    "axis twice": (build(lambda b, X: (b.axis("r", 3), b.axis("r", 4))), ["axis 'r'", "extent 3"]),
    "arguments": (
        build(lambda b, X: b.compute("Y", (4, 3), lambda i: X[i, 0])),
        ["stage 'Y'", "2 dimensions", "1 indices"],
    ),
    "rank": (build(lambda b, X: b.compute("Y", (4,), lambda i: X[i])), ["X has 2 dimensions", "indexed with 1"]),
    "no expression": (build(lambda b, X: b.compute("Y", (4,), lambda i: 1.0)), ["stage 'Y'", "1.0", "expression"]),
    "foreign axis": (build(_foreign_axis), ["stage 'Y'", "'q'", "not an axis"]),
    "axis that is not reduced": (
        build(lambda b, X: b.compute("Y", (4,), lambda i: X[i, b.axis("r", 3)])),
        ["stage 'Y'", "'r'", "neither iterates nor reduces"],
    ),
    "index name twice": (
        build(lambda b, X: b.compute("Y", (4,), lambda r: total(X[r, 0], b.axis("r", 3)))),
        ["stage 'Y'", "index name twice"],
    ),
    "foreign tensor": (
        build(lambda b, X: b.compute("Y", (4,), lambda i: Builder("o").input("W", (4,))[i])),
        ["stage 'Y'", "reads 'W'", "not a tensor"],
    ),
    "output that is an input": (build(lambda b, X: b.program(X)), ["output 'X' is not a stage"]),
    "output named twice": (build(_same_output_twice), ["'Y' is named twice"]),
    "stage that nobody reads": (build(_unread), ["stage 'T'", "neither an output nor read"]),
    "condition as index": (
        build(lambda b, X: b.compute("Y", (4,), lambda i: X[i < 2, 0])),
        ["expected an index", "bool"],
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_the_builder_refuses(kind: str) -> None:
    make, words = REFUSED[kind]
    with pytest.raises(IRError) as caught:
        make()
    for word in words:
        assert word in str(caught.value)


def test_the_same_axis_may_be_asked_for_twice() -> None:
    b = Builder("op")
    assert b.axis("r", 3) == b.axis("r", 3)


def test_loops_of_later_stages_are_named_after_them() -> None:
    assert list(two_stages().loops) == ["i", "Y_i", "r"]


def test_iterations_of_a_block_know_their_kind() -> None:
    assert [(it.kind, str(it.extent)) for it in C.iters] == [("space", "4"), ("space", "6"), ("reduce", "5")]
    assert C.reduces and not two_stages().blocks["P"].reduces
    assert isinstance(C.iters[0], Iter)


def test_loops_may_be_called_like_block_variables() -> None:
    b = Builder("names")
    A = b.input("A", (3, 4))
    Y = b.compute("Y", (3, 4), lambda i, vi: A[i, vi] + 1.0)
    data = np.arange(12, dtype="float32").reshape(3, 4)
    assert np.array_equal(interpret(b.program(Y), {"A": data})["Y"], data + 1)
