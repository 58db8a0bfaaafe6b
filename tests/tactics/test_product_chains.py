"""Attention is computed a few rows at a time: right for all sizes, and its scores are never held as a whole."""

import re
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab.backend import Kernel, compile
from searchlab.defaults import default_schedule
from searchlab.graph import GraphBuilder, legalise, operator_named
from searchlab.ir import Program, interpret, size
from searchlab.ir.evaluate import evaluate
from searchlab.llvm.abi import scratch_bytes
from searchlab.llvm.module import generate
from searchlab.lower.passes import lower
from searchlab.tactics.product_chains import product_chain
from searchlab.targets import parse

n, m = size("n"), size("m")
MACHINE = parse("x86-64-v3:threads=2")
TARGETS = ["x86-64-v3:threads=2", "x86-64-v4:threads=1"]


def attention(rows: object = n, keys: object = m, heads: int = 2, **options: object) -> Program:
    b = GraphBuilder()
    q = b.input("q", (1, heads, rows, 8))
    k, v = (b.input(name, (1, heads, keys, 8)) for name in "kv")
    (program,) = legalise(b.build(b.attention(q, k, v, **options))).programs.values()
    return program


@pytest.mark.parametrize("target", TARGETS)
def test_scratch_memory_grows_with_the_length(target: str) -> None:
    """Not with its square: twice the length takes twice the memory."""
    machine = parse(target)
    code = generate(lower(default_schedule(attention(n, n), machine), machine), machine)
    total = scratch_bytes(code.shared, code.private, machine.threads)
    small, large = (int(evaluate(total, {"n": v})) for v in (2048, 4096))
    assert 1.8 < large / small < 2.2
    assert small < 2048 * 2048


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"scale": 0.3}], ids=str)
def test_every_number_of_rows_and_keys(options: dict[str, object]) -> None:
    program = attention(**options)
    kernel = compile(default_schedule(program, parse("x86-64-v3:threads=2")), parse("x86-64-v3:threads=2"))
    for rows, keys in [(1, 1), (2, 7), (6, 16), (7, 33), (13, 5), (50, 64)]:
        rng = np.random.default_rng(rows)
        arrays = [rng.standard_normal((1, 2, e, 8)).astype("float32") for e in (rows, keys, keys)]
        given = dict(zip(program.inputs, arrays, strict=True))
        wanted = interpret(program, given, {name: {"n": rows, "m": keys}[name] for name in program.sizes})
        np.testing.assert_allclose(kernel(*arrays), wanted[program.outputs[0]], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("target", TARGETS)
def test_open_lengths_run_in_registers(target: str) -> None:
    """Whole tiles have no conditions, last ones a branch for each number of rows; both sums are held in registers."""
    machine = parse(target)
    text = str(lower(default_schedule(attention(n, n), machine), machine))
    rows, width = (6, 16) if machine.vector_registers < 32 else (6, 64)
    assert [bool(re.search(rf"if n == .* \+ {left}:", text)) for left in range(1, rows + 1)] == [True] * 5 + [False]
    assert text.count(f"[{rows}, {width}] in register") == 2  # scores, of whole tiles of keys and of the last one
    assert text.count(f"[{rows}, 8] in register") == 1
    assert not re.search(r"if [^\n]* < n:", text)


@cache
def kernel_of(causal: bool, keys: bool) -> tuple[Program, Kernel]:
    """Attention of rows to each other, or to `keys`."""
    program = attention(n, m if keys else n, causal=causal)
    return program, compile(default_schedule(program, MACHINE), MACHINE)


@settings(max_examples=30)
@given(rows=st.integers(1, 150), keys=st.none() | st.integers(1, 150), causal=st.booleans(), seed=st.integers(0, 9))
def test_any_length(rows: int, keys: int | None, causal: bool, seed: int) -> None:
    program, kernel = kernel_of(causal, keys is not None)
    rng = np.random.default_rng(seed)
    counts = (rows, keys or rows, keys or rows)
    q, k, v = (rng.standard_normal((1, 2, count, 8)).astype("float32") for count in counts)
    wanted = operator_named("attention", causal=causal).reference(*(x.astype("float64") for x in (q, k, v)))
    np.testing.assert_allclose(kernel(q, k, v), wanted, rtol=1e-4, atol=1e-5)


def test_what_is_a_chain() -> None:
    chain = product_chain(attention())
    assert chain is not None and chain.first.operand.buffer == "K" and chain.last == "O"
    assert product_chain(attention(1, 64)) is None  # one row: nothing to share

    b = GraphBuilder()
    x = b.input("x", (n, 8))
    both = legalise(b.build(b.softmax(b.linear(x, b.input("w", (8, 8))))))
    assert [product_chain(program) for program in both.programs.values()] == [None, None]
