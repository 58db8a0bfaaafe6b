"""Families of sizes: their text, the sizes that stand for a range, and what is refused."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab.errors import WorkloadError
from searchlab.workloads import DynamicRange, family, is_family, read_family

TEXT = "matmul:m=dyn(1..512),n=768,k=768"


def test_text_and_data_give_the_same() -> None:
    found = read_family(TEXT)
    assert found.label == str(found) == "matmul(m=1..512, n=768, k=768)"
    assert found.spec == "matmul:m=dyn(1..512),n=768,k=768,dtype=float32" and is_family(found.spec)
    assert (
        found == family("matmul", m={"dyn": [1, 512]}, n=768, k=768) == family("matmul", m="dyn(1..512)", n=768, k=768)
    )
    assert found.workload.sizes == ("m",) and found.at(7).label == "matmul(m=7, n=768, k=768)"
    assert not is_family("matmul:m=512") and not is_family({"suite": "ansor-ops"})


def test_weights() -> None:
    found = read_family("dense:m=dyn(1..512, 128: 3, 1: 7),n=64,k=32")
    assert found.representatives == ((1, 0.7), (128, 0.3))
    assert found == family("dense", m={"dyn": [1, 512], "weights": {"1": 7, 128: 3}}, n=64, k=32)
    assert read_family(found.spec) == found


def test_a_size_may_occur_twice() -> None:
    found = read_family("matmul:m=dyn(2..9),n=?m,k=4")
    assert [found.at(s).label for s in (2, 9)] == ["matmul(m=2, n=2, k=4)", "matmul(m=9, n=9, k=4)"]


def test_sizes_of_a_range() -> None:
    assert [s for s, _ in DynamicRange(1, 512).representatives] == [1, 5, 24, 108, 512]
    assert [s for s, _ in DynamicRange(3, 6).representatives] == [3, 4, 5, 6]
    halves = dict(DynamicRange(1, 512).representatives)
    assert halves[512] == pytest.approx(math.log(512.5 / math.sqrt(108 * 512)) / math.log(512.5 / 0.5), abs=0.01)


@settings(deadline=None)
@given(st.data())
def test_representatives_stand_for_all_sizes(data: st.DataObject) -> None:
    low = data.draw(st.integers(1, 1000))
    high = data.draw(st.integers(low + 1, low + 3000))
    sizes = data.draw(st.dictionaries(st.integers(low, high), st.floats(0.01, 100), max_size=20))
    found = DynamicRange(low, high, tuple(sorted(sizes.items())))
    chosen = [s for s, _ in found.representatives]
    assert chosen == sorted(set(chosen)) and 1 <= len(chosen) <= 6
    assert all(low <= s <= high and w > 0 for s, w in found.representatives)
    assert sum(w for _, w in found.representatives) == pytest.approx(1.0, abs=1e-5)
    if sizes:
        assert set(chosen) <= set(sizes)
    else:
        assert {low, high} <= set(chosen)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("matmul:m=dyn(8..2)", r"8\.\.2 is no range of sizes; accepted: 1 <= first < last"),
        ("matmul:m=dyn(0..2)", r"0\.\.2 is no range"),
        ("matmul:m=dyn(1-9)", r"'dyn\(1-9\)' is no range of sizes; accepted: dyn\(1..512\)"),
        ("matmul:m=dyn(1..9),n=dyn(1..9)", "one size with a range, such as .*, not m and n"),
        ("matmul:m=dyn(1..9),n=?", r"a family has one run-time size, and n is open, too"),
        ("matmul:m=dyn(1..9, 12: 1)", "size 12 has a weight but is not in 1..9"),
        ("matmul:m=dyn(1..9, 2: 0)", "the weight of size 2 .* above 0, not 0"),
        ("matmul:m=dyn(1..9, 2: 1, 2: 2)", "two weights"),
        ("matmul:m=dyn(1..9, often)", "no size with a weight"),
        ("conv2d:k=dyn(1..3)", "k = .* is not an integer"),
        ("conv2d:h=dyn(1..30),k=3", "the kernel spans 3 along h"),
        ("matmull:m=dyn(1..30)", "unknown operator 'matmull'"),
        ("matmul:m=512", "a family has one size with a range, such as m=dyn.*, not none"),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        read_family(text)


@pytest.mark.parametrize(
    "given", [{"dyn": [1]}, {"dyn": 3}, {"dyn": [1, 9], "wights": {}}, {"dyn": [1, 9], "weights": [1]}]
)
def test_refused_data(given: object) -> None:
    with pytest.raises(WorkloadError, match="no range of sizes; accepted: {dyn: "):
        family("matmul", m=given)
