"""Programs under other names are the same; changed ones are not."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs import random_program
from random_schedules import random_schedule

from searchlab.ir import Builder, Loop, Program, Store, index, interpret, knob, size, total, verify
from searchlab.ir.alpha import Difference, matches, same_up_to_names
from searchlab.ir.expr import Expr, Load, Var
from searchlab.ir.rename import Renaming, rename
from searchlab.ir.statement_tree import map_expressions, statements, swap
from searchlab.ir.stmt import Block, Seq, Stmt
from searchlab.ir.walk import transform, variables
from searchlab.schedule import Schedule


def shuffled(names: list[str], prefix: str, rng: np.random.Generator) -> dict[str, str]:
    """New names, some of which belonged to others of their sort before."""
    pool = [*names, *(f"{prefix}{n}" for n in range(len(names)))]
    return dict(zip(names, map(str, rng.permutation(pool)[: len(names)]), strict=True))


def renaming(program: Program, rng: np.random.Generator) -> Renaming:
    return Renaming(
        shuffled(list(program.buffers), "buffers", rng),
        shuffled(list(program.blocks), "blocks", rng),
        shuffled(list(program.loops), "loops", rng),
        shuffled([v.name for v in program.symbols], "symbol", rng),
    )


def made(seed: int, steps: int = 6) -> tuple[Program, np.random.Generator]:
    rng = np.random.default_rng(seed)
    return random_schedule(random_program(rng), rng, steps), rng


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 100_000))
def test_renamed_programs_are_the_same(seed: int) -> None:
    program, rng = made(seed)
    names = renaming(program, rng)
    other = rename(program, names)
    verify(other)
    found = same_up_to_names(program, other)
    assert isinstance(found, Renaming), found
    assert (found.buffers, found.blocks, found.loops) == (names.buffers, names.blocks, names.loops)
    back = same_up_to_names(other, program)
    assert isinstance(back, Renaming) and {v: k for k, v in found.buffers.items()} == back.buffers
    assert rename(other, back).body == program.body or same_up_to_names(rename(other, back), program)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 100_000))
def test_renamed_programs_compute_the_same(seed: int) -> None:
    rng = np.random.default_rng(seed)
    program = random_program(rng)
    names = renaming(program, rng)
    shapes = {n: [e.value for e in program.buffers[n].shape] for n in program.inputs}
    inputs = {n: rng.integers(-3, 4, shape).astype(program.buffers[n].dtype) for n, shape in shapes.items()}
    found = interpret(rename(program, names), {names.buffers[n]: x for n, x in inputs.items()})
    for name, expected in interpret(program, inputs).items():
        np.testing.assert_array_equal(found[names.buffers[name]], expected)


def changes(program: Program) -> list[Program]:
    """Programs that differ in one place."""
    found = [replace(program, outputs=program.outputs * 2), replace(program, inputs=program.inputs[1:])]
    for s in statements(program.body):
        new: list[Stmt] = [Seq((s, s))] if isinstance(s, Block) else []
        if isinstance(s, Loop):
            new += [replace(s, extent=s.extent + 1), replace(s, kind="unrolled" if s.kind != "unrolled" else "serial")]
        if isinstance(s, Store):
            new += [replace(s, value=s.value + 1), replace(s, indices=tuple(i + 1 for i in s.indices))]
        found += [program.with_body(body) for x in new if (body := swap(program.body, s, x)) is not None]
    return found


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 100_000))
def test_changed_programs_are_not_the_same(seed: int) -> None:
    program, rng = made(seed, 3)
    for changed in changes(program):
        other = rename(changed, renaming(changed, rng))
        found = same_up_to_names(program, other)
        assert isinstance(found, Difference) and not found and found.words, changed


def product(m: Expr | int, n: Expr | int, k: Expr | int) -> Program:
    b = Builder("product")
    x, y = b.input("X", (m, k)), b.input("Y", (k, n))
    r = b.axis("r", k)
    return b.program(b.compute("Z", (m, n), lambda i, j: total(x[i, r] * y[r, j], r)))


def test_one_name_for_two_things_is_a_difference() -> None:
    a, b = product(size("m"), size("n"), size("k")), product(size("m"), size("m"), size("k"))
    for found in (same_up_to_names(a, b), same_up_to_names(b, a)):
        assert isinstance(found, Difference) and "loop 'j'" in found.words


def test_symbols_that_change_places_are_told_apart_by_what_comes_later() -> None:
    def tiled(names: str) -> Program:
        s = Schedule(product(64, 64, 64))
        t, u, v = (knob(name) for name in names)
        s.split("i", [t, u, v])
        s.reorder("i_1", "i_2")
        return s.program

    first, other, wrong = tiled("abc"), tiled("zya"), tiled("abc")
    found = same_up_to_names(first, other)
    assert isinstance(found, Renaming) and found.symbols == {"a": "z", "b": "y", "c": "a"}
    loops = {lp.name: lp for lp in wrong.loops.values()}
    bent = wrong.with_body(swap(wrong.body, loops["i_1"], replace(loops["i_1"], extent=knob("c"))))
    assert isinstance(same_up_to_names(first, bent), Difference)


def test_products_of_unknown_symbols_are_guessed() -> None:
    def flat(names: str) -> Program:
        m, n, k = (size(name) for name in names)
        b = Builder("flat")
        x = b.input("X", (m * n + m * k + n,))
        return b.program(b.compute("Y", (m * n + m * k + n,), lambda i: x[i] * 2))

    for names in ("mnk", "kmn", "nkm", "abc", "cab"):
        found = same_up_to_names(flat("mnk"), flat(names))
        assert isinstance(found, Renaming) and found.symbols == dict(zip("mnk", names, strict=True))
    b = Builder("other")
    x = b.input("X", (size("m") * size("n") + size("k") * size("k") + size("n"),))
    other = b.program(b.compute("Y", x.shape, lambda i: x[i] * 2))
    assert isinstance(same_up_to_names(flat("mnk"), other), Difference)


def test_the_first_difference_in_words() -> None:
    a = product(4, 5, 6)
    assert "loop 'i': '4' here, '7' there" in same_up_to_names(a, product(7, 5, 6)).words
    s = Schedule(a)
    s.parallel("i")
    assert same_up_to_names(a, s.program).words == "loop 'i': serial here, parallel there"
    with_value = map_expressions(a.body, lambda e: transform(e, lambda x: x + 1 if isinstance(x, Load) else None))
    assert "block 'Z'" in same_up_to_names(a, a.with_body(with_value)).words
    assert same_up_to_names(a, replace(a, outputs=())).words == "the outputs: 1 here, 0 there"


def test_variables_that_hide_others_are_not_mixed_up() -> None:
    def nest(outer: str, inner: str, used: str) -> Stmt:
        store = Store("Y", (Var(used),), Load("X", (), "float32"))
        return Loop(Var(outer), index(4), Loop(Var(inner), index(4), store))

    assert same_up_to_names(nest("i", "j", "j"), nest("a", "b", "b"))
    assert not same_up_to_names(nest("i", "j", "i"), nest("a", "b", "b"))
    assert not same_up_to_names(nest("i", "j", "i"), nest("a", "a", "a"))


def test_a_pattern_is_found_inside_a_program() -> None:
    b = Builder("two")
    x, y = b.input("A", (8, 8)), b.input("B", (8, 8))
    k, r = b.axis("k", 8), b.axis("r", 8)
    first = b.compute("C", (8, 8), lambda i, j: total(x[i, k] * y[k, j], k))
    program = b.program(b.compute("D", (8, 8), lambda p, q: total(first[p, r] * y[r, q], r)))
    pattern = product(8, 8, 8).body
    found = list(matches(pattern, program.body))
    assert [names.buffers for _, names in found] == [
        {"Z": "C", "X": "A", "Y": "B"},
        {"Z": "D", "X": "C", "Y": "B"},
    ]
    assert [s for s, _ in found] == [program.loops["i"], program.loops["p"]]
    inner = product(8, 8, 8).loops["r"]  # whose variables outside are free
    assert [names.symbols for _, names in matches(inner, program.body)] == [{"i": "i", "j": "j"}, {"i": "p", "j": "q"}]
    assert not list(matches(product(8, 8, 4).body, program.body))


@pytest.mark.parametrize("role", ["knob", "size"])
def test_roles_count(role: str) -> None:
    a, b = product(size("m"), 4, 4), product(Var("m", role), 4, 4)  # type: ignore[arg-type]
    assert bool(same_up_to_names(a, b)) == (role == "size")
    assert all(v.role != "iter" for e in a.buffers["X"].shape for v in variables(e))
