"""Groups of a few lanes that are stored side by side become whole vectors, wherever that is possible."""

import numpy as np
import pytest
from checked_run import run_checked
from hypothesis import given, settings
from hypothesis import strategies as st

import searchlab as sl
from searchlab.ir import Builder, Program
from searchlab.ir.expr import cast
from searchlab.llvm.interleaves import rows_in_turns
from searchlab.llvm.jit import assembly
from searchlab.llvm.module import generate
from searchlab.lower.passes import lower
from searchlab.schedule import Schedule
from searchlab.targets import parse

TARGET = parse("x86-64-v3")


def grouped(channels: int, width: int, group: int, dtype: str = "uint8", wide: str = "int16") -> Program:
    """Channels before columns, brought into groups behind them, as dot products of bytes read them."""
    b = Builder("grouped")
    X = b.input("X", (channels, width), dtype)
    shape = (channels // group, width, group)
    s = Schedule(b.program(b.compute("P", shape, lambda c, w, u: cast(X[c * group + u, w], wide))))
    s.vectorize("u")
    return s.program


def test_groups_become_vectors_and_shorter_ones_at_the_end() -> None:
    text = str(lower(grouped(8, 30, 2), TARGET))
    assert text.splitlines()[1:] == [
        "  for c in 4:",
        "    for w_0 in 3:",
        "      for u in 16 vectorized:",
        "        P[c, w_0*8 + (u // 2), u % 2] = int16(X[c*2 + (u % 2), w_0*8 + (u // 2)])",
        "    for u in 8 vectorized:",
        "      P[c, (u // 2) + 24, u % 2] = int16(X[c*2 + (u % 2), (u // 2) + 24])",
        "    for u in 4 vectorized:",
        "      P[c, (u // 2) + 28, u % 2] = int16(X[c*2 + (u % 2), (u // 2) + 28])",
    ]


def test_they_are_interleaved_in_registers() -> None:
    code = assembly(generate(lower(grouped(8, 64, 2), TARGET), TARGET).ir, TARGET)
    assert "vpunpcklbw" in code and "vpinsrb" not in code


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (grouped(9, 16, 3), "groups of three fill no vector"),
        (grouped(16, 16, 8, "uint8", "int32"), "a group is a vector"),
        (grouped(16, 1, 4), "there is one group"),
    ],
)
def test_other_copies_stay_as_they_are(program: Program, reason: str) -> None:
    assert "_0" not in str(lower(program, TARGET)), reason


def test_a_value_that_depends_on_where_it_is_stays_as_it_is() -> None:
    b = Builder("counted")
    X = b.input("X", (4, 16), "int32")
    s = Schedule(b.program(b.compute("P", (2, 16, 2), lambda c, w, u: X[c * 2 + u, w] + cast(w, "int32"))))
    s.vectorize("u")
    assert "w_0" not in str(lower(s.program, TARGET))


@given(
    groups=st.integers(1, 3), width=st.integers(1, 70), group=st.sampled_from([2, 4, 8]),
    dtype=st.sampled_from(["uint8", "int8"]), wide=st.sampled_from(["int8", "uint8", "int16", "int32", "float32"]),
)  # fmt: skip
@settings(max_examples=25)
def test_any_size_is_right(groups: int, width: int, group: int, dtype: str, wide: str) -> None:
    program = grouped(groups * group, width, group, dtype, wide)
    rng = np.random.default_rng(width)
    x = rng.integers(0, 100, (groups * group, width)).astype(dtype)
    expected = x.reshape(groups, group, width).transpose(0, 2, 1).astype(wide)
    np.testing.assert_array_equal(run_checked(lower(program, TARGET), program, {"X": x})["P"], expected)
    np.testing.assert_array_equal(sl.compile(program, TARGET)(x), expected)


def test_rows_in_turns() -> None:
    assert rows_in_turns([0, 9, 1, 10, 2, 11, 3, 12]) == 2 and rows_in_turns([0, 5, 7, 20, 1, 6, 8, 21]) == 4
    assert rows_in_turns([0, 9, 1, 11]) == 0 and rows_in_turns([3, 1]) == 0
