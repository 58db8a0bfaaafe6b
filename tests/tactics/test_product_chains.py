"""Attention is computed a few rows at a time: right for all sizes, and its scores are never held as a whole."""

import numpy as np
import pytest

from searchlab.backend import compile
from searchlab.defaults import default_schedule
from searchlab.graph import GraphBuilder, legalise
from searchlab.ir import Program, interpret, size
from searchlab.ir.evaluate import evaluate
from searchlab.llvm.abi import scratch_bytes
from searchlab.llvm.module import generate
from searchlab.lower.passes import lower
from searchlab.tactics.product_chains import product_chain
from searchlab.targets import parse

n, m = size("n"), size("m")
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


def test_what_is_a_chain() -> None:
    chain = product_chain(attention())
    assert chain is not None and chain.first.operand.buffer == "K" and chain.last == "O"
    assert product_chain(attention(1, 64)) is None  # one row: nothing to share

    b = GraphBuilder()
    x = b.input("x", (n, 8))
    both = legalise(b.build(b.softmax(b.linear(x, b.input("w", (8, 8))))))
    assert [product_chain(program) for program in both.programs.values()] == [None, None]
