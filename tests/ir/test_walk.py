"""Going through expressions and rewriting them, on the expressions of random programs."""

import numpy as np
import pytest
from random_programs import random_program

from searchlab.ir.expr import Expr, Load, Var
from searchlab.ir.statement_tree import expressions
from searchlab.ir.walk import Substitution, iterators, loads, rebuild, substitute, transform, variables, walk


def found(seed: int) -> list[Expr]:
    return list(expressions(random_program(np.random.default_rng(seed)).body))


@pytest.mark.parametrize("seed", range(15))
def test_rebuilding_from_the_same_parts_gives_the_same(seed: int) -> None:
    for e in found(seed):
        assert rebuild(e, lambda part: part) == e
        assert transform(e, lambda part: None) == e
        assert substitute(e, {v: v for v in variables(e)}) == e


@pytest.mark.parametrize("seed", range(15))
def test_what_expressions_remember_is_what_a_walk_finds(seed: int) -> None:
    for e in found(seed):
        parts = list(walk(e))
        assert variables(e) == {x for x in parts if isinstance(x, Var)}
        assert iterators(e) == {v for v in variables(e) if v.role == "iter"}
        assert list(loads(e)) == [x for x in parts if isinstance(x, Load)]


@pytest.mark.parametrize("seed", range(15))
def test_renaming_variables_back_and_forth_gives_the_same(seed: int) -> None:
    for e in found(seed):
        there = {v: Var(f"z_{v.name}") for v in variables(e)}
        renamed = Substitution(there)(e)
        assert variables(renamed) == set(there.values())
        assert Substitution({w: v for v, w in there.items()})(renamed) == e
