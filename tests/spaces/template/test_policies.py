"""The option lists of policies: splits, orders, annotations."""

import numpy as np
import pytest

from searchlab.errors import SpaceError
from spaces.template import policies


def rows(table: object) -> list[tuple[int, ...]]:
    return [tuple(r) for r in np.asarray(table).tolist()]


def test_factors_are_all_ordered_exact_factorisations() -> None:
    found = rows(policies.splits(12, 3, "factors"))
    assert len(found) == len(set(found)) == 18
    assert all(a * b * c == 12 for a, b, c in found)
    assert (12, 1, 1) in found and (2, 3, 2) in found


def test_power2_has_powers_up_to_the_extent_and_may_leave_a_tail() -> None:
    assert rows(policies.splits(12, 2, "power2")) == [(12, 1), (6, 2), (3, 4), (2, 8)]
    assert rows(policies.splits(7, 2, "power2")) == [(7, 1), (4, 2), (2, 4)]
    assert all(b * c <= 12 for _, b, c in rows(policies.splits(12, 3, "power2")))


def test_verbose_is_the_union_of_factors_and_powers_of_two() -> None:
    inner = [r[1] for r in rows(policies.splits(12, 2, "verbose"))]
    assert inner == [1, 2, 3, 4, 6, 8, 12]
    factors = {r[1:] for r in rows(policies.splits(30, 3, "factors"))}
    powers = {r[1:] for r in rows(policies.splits(30, 3, "power2"))}
    assert factors | powers <= {r[1:] for r in rows(policies.splits(30, 3, "verbose"))}


def test_candidates_are_taken_as_given() -> None:
    assert rows(policies.splits(10, 2, "candidate", [[-1, 4], [2, 5]])) == [(3, 4), (2, 5)]
    with pytest.raises(SpaceError, match="does not split 10"):
        policies.splits(10, 2, "candidate", [[3, 5]])
    with pytest.raises(SpaceError, match="needs `candidates`"):
        policies.splits(10, 2, "candidate")
    with pytest.raises(SpaceError, match="known: factors, power2, verbose, candidate"):
        policies.splits(10, 2, "primes")


def test_limits_keep_what_they_allow() -> None:
    table = policies.splits(64, 3, "factors")
    assert rows(policies.kept(table, 4, None, None)) == [r for r in rows(table) if r[2] <= 4]
    assert rows(policies.kept(table, None, 8, None)) == [r for r in rows(table) if max(r[1:]) <= 8]
    assert rows(policies.kept(table, None, None, lambda r: r[1] == 2)) == [r for r in rows(table) if r[1] == 2]


@pytest.mark.parametrize("limit", [1, 2, 7, 12, 53, 512])
def test_sizes_are_in_order_and_hold_small_ones_and_divisors(limit: int) -> None:
    found = policies.sizes(limit)
    assert found == sorted(set(found)) and found[0] == 1 and found[-1] == limit
    assert set(policies.divisors(limit)) | set(range(1, min(limit, 8) + 1)) <= set(found)


def test_orders() -> None:
    assert policies.orders("ab", "identity") == [("a", "b")]
    assert len(policies.orders("abcd", "all")) == 24
    assert policies.orders("abcd", "interval", interval=(1, 3)) == [tuple("abcd"), tuple("acbd")]
    assert policies.orders("ab", "candidate", candidates=["ba"]) == [("b", "a")]
    with pytest.raises(SpaceError, match="is not an order of"):
        policies.orders("ab", "candidate", candidates=["ac"])
    with pytest.raises(SpaceError, match="needs `interval`"):
        policies.orders("ab", "interval")
    with pytest.raises(SpaceError, match="unknown policy 'random'"):
        policies.orders("ab", "random")


def test_interleaved_chains_take_from_the_longest_first() -> None:
    assert policies.merged(["ab", "cde"]) == ("c", "a", "d", "b", "e")
    space, reduce = [["i0", "i1"], ["j0", "j1"]], [["k0", "k1"]]
    loops = ["i0", "i1", "j0", "j1", "k0", "k1"]
    (order,) = policies.orders(loops, "interleave", space=space, reduce=reduce)
    assert order == ("i0", "j0", "k0", "i1", "j1", "k1")
    (order,) = policies.orders(loops, "interleave_inner", space=space, reduce=reduce)
    assert order == ("i0", "j0", "k0", "k1", "i1", "j1")


def test_kinds_of_annotations() -> None:
    words, found = policies.kinds(2, "try_unroll_vec")
    assert words == ("none", "unroll", "vec")
    assert len(found) == 8 and (2, 2) not in found  # at most one loop is vectorised
    assert policies.kinds(2, "try_unroll")[1] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    with pytest.raises(SpaceError, match="unknown policy 'try_bind'"):
        policies.kinds(1, "try_bind")
