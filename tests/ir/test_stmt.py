"""Statements: what every kind says of its parts, and the walkers, visitors and rewriters that ask for it."""

from dataclasses import fields

import numpy as np
import pytest
from random_programs import random_program

from searchlab.errors import IRError
from searchlab.ir.expr import ONE, Binary, Const, Expr, Load, Var, index
from searchlab.ir.statement_tree import (
    accesses,
    below,
    expressions,
    holds,
    kept,
    map_accesses,
    map_expressions,
    own_accesses,
    path_to,
    read,
    reindexed,
    rename_buffer,
    statements,
    stores,
    swap,
    touches,
    written,
)
from searchlab.ir.stmt import (
    KINDS,
    Alloc,
    Around,
    Barrier,
    Block,
    Buffer,
    If,
    Iter,
    Loop,
    Prefetch,
    Seq,
    Stmt,
    Store,
    Tensorized,
    Update,
    parts_of,
    seq,
)
from searchlab.ir.visitor import Rewriter, Visitor

I, J = Var("i"), Var("j")
X = Load("X", (I,), "float32")
STORE = Store("Y", (I,), X)
UPDATE = Update("Y", (J,), Binary("add", Load("Y", (J,), "float32"), X), Const(0.0, "float32"), I.equals(0))
BLOCK = Block("b", (Iter(J, index(4)),), (I,), Store("Y", (J,), X), Store("Y", (J,), Const(0.0, "float32")), I < 3)
EXAMPLES = [
    STORE,
    UPDATE,
    Prefetch("X", (I + 8,)),
    Barrier(),
    Seq((STORE, UPDATE)),
    Loop(I, index(4), STORE, "parallel", (("note", 1),)),
    BLOCK,
    If(I < 3, STORE),
    Alloc(Buffer("T", (index(4),), "float32", "local"), STORE),
    Tensorized("dot", STORE),
]
each_kind = pytest.mark.parametrize("s", EXAMPLES, ids=lambda s: type(s).__name__)


def found_in(value: object, kind: type) -> list:
    """All values of a class in the fields of a statement, those of other statements left out."""
    if isinstance(value, kind):
        return [value]
    if isinstance(value, tuple):
        return [x for v in value for x in found_in(v, kind)]
    if isinstance(value, (Iter, Buffer)) or (isinstance(value, Store) and kind is Expr):
        return [x for f in fields(value) for x in found_in(getattr(value, f.name), kind)]
    return []


def test_every_kind_has_an_example() -> None:
    assert {type(s) for s in EXAMPLES} == set(KINDS)


@each_kind
def test_a_kind_names_all_its_parts(s: Stmt) -> None:
    parts = [getattr(s, f.name) for f in fields(s) if f.name != "init" or isinstance(s, Update)]
    inside = [x for p in parts for x in found_in(p, Stmt)]
    assert list(s.children()) == inside
    own = [f for f in fields(s) if f.name not in ("body", "var")]
    held = [x for f in own for x in found_in(getattr(s, f.name), Expr) if not isinstance(s, Block) or x not in (J,)]
    assert set(held) <= set(s.own_expressions())


@each_kind
def test_rebuilding_without_a_change_gives_the_same(s: Stmt) -> None:
    assert s.rebuild(lambda e: e) == s
    assert s.map_children(lambda child: child) == s
    assert s.map_places(lambda place: place) == s
    assert map_expressions(s, lambda e: e) == s


@each_kind
def test_rebuilding_reaches_every_own_expression(s: Stmt) -> None:
    new = s.rebuild(lambda e: Var("z"))
    assert set(new.own_expressions()) <= {Var("z")} and len(new.own_expressions()) == len(s.own_expressions())
    assert type(new) is type(s) and new.children() == s.children()


@each_kind
def test_removing_what_is_inside_removes_what_it_leaves_empty(s: Stmt) -> None:
    assert (s.map_children(lambda child: None) is None) == bool(s.children())


def test_walking() -> None:
    nest = Loop(I, index(4), Seq((BLOCK, If(I < 2, STORE))))
    assert [type(s).__name__ for s in statements(nest)] == ["Loop", "Seq", "Block", "Store", "If", "Store"]
    assert statements(nest)[1:] == below(nest)
    assert holds(nest, STORE) and not holds(nest, UPDATE)
    assert list(stores(nest)) == [BLOCK.init, BLOCK.store, STORE]
    assert written(nest) == ("Y",) and read(nest) == ("X",)
    assert list(accesses(nest)) == [X, X] and index(4) in list(expressions(nest))
    assert list(own_accesses(STORE, "Y")) == [(I,)] and not list(own_accesses(nest, "Y"))
    assert touches(nest, "X") and touches(nest, "Y") and not touches(nest, "Z")
    assert [type(s).__name__ for s in path_to(nest, STORE)] == ["Loop", "Seq", "If", "Store"]
    assert path_to(nest, UPDATE) == []


def test_sequences_are_flat() -> None:
    assert seq(STORE) is STORE
    assert seq(STORE, Seq((UPDATE, STORE))) == Seq((STORE, UPDATE, STORE))
    assert parts_of(STORE) == (STORE,) and parts_of(Seq((STORE, UPDATE))) == (STORE, UPDATE)


def test_swapping() -> None:
    nest = Loop(I, index(4), Seq((BLOCK, If(I < 2, STORE))))
    assert swap(nest, STORE, UPDATE) == Loop(I, index(4), Seq((BLOCK, If(I < 2, UPDATE))))
    assert swap(nest, STORE, None) == Loop(I, index(4), BLOCK)
    assert swap(STORE, STORE, None) is None and swap(nest, UPDATE, None) is nest


def test_accesses_are_moved_wherever_they_are() -> None:
    nest = Seq((Prefetch("Y", (I,)), BLOCK, UPDATE))
    renamed = rename_buffer(nest, "Y", "Z")
    assert not touches(renamed, "Y") and "Y" not in str([*statements(renamed)]).replace("Y'", "")
    assert rename_buffer(renamed, "Z", "Y") == nest
    moved = reindexed(nest, "Y", lambda at: (at[0] + 1,))
    assert [st.indices for st in stores(moved)] == [(J + 1,), (J + 1,), (J + 1,)]
    assert moved.children()[0] == Prefetch("Y", (I + 1,))
    assert {ld.indices for ld in accesses(moved) if ld.buffer == "Y"} == {(J + 1,)}
    assert map_accesses(nest, lambda place: place) == nest


@pytest.mark.parametrize("seed", range(20))
def test_random_programs_are_rebuilt(seed: int) -> None:
    body = random_program(np.random.default_rng(seed)).body
    assert map_expressions(body, lambda e: e) == body
    assert rename_buffer(rename_buffer(body, "S0", "other"), "other", "S0") == body
    one = map_expressions(body, lambda e: ONE if e.dtype == "index" else e)
    assert len(statements(one)) == len(statements(body))


class Names(Visitor[[str], str]):
    """What is called for which kind."""

    def visit_store(self, s: Store, prefix: str) -> str:
        return f"{prefix}store"

    def visit_around(self, s: Around, prefix: str) -> str:
        return f"{prefix}around {self.visit(s.body, prefix)}"

    def visit_loop(self, s: Loop, prefix: str) -> str:
        return f"{prefix}loop {self.visit(s.body, prefix)}"


def test_a_visitor_calls_the_method_of_the_kind_or_of_the_one_it_derives_from() -> None:
    assert Names().visit(Loop(I, ONE, If(I < 2, UPDATE)), ".") == ".loop .around .store"
    with pytest.raises(IRError, match="Names does not handle a prefetch"):
        Names().visit(Prefetch("X", (I,)), "")


class WithoutUpdates(Rewriter[[]]):
    """Updates vanish."""

    def visit_update(self, s: Update) -> None:
        return None


def test_a_rewriter_keeps_what_it_does_not_name() -> None:
    nest = Loop(I, ONE, Seq((STORE, If(I < 2, UPDATE))))
    assert kept(WithoutUpdates().visit(nest)) == Loop(I, ONE, STORE)
    assert WithoutUpdates().visit(If(I < 2, UPDATE)) is None
