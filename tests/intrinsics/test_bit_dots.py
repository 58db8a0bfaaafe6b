"""Products of signs as bits: the function of the IR, its instructions, and a product of matrices by them."""

from __future__ import annotations

import numpy as np
import pytest

from searchlab.backend import compile
from searchlab.errors import IRError
from searchlab.intrinsics import intrinsics
from searchlab.intrinsics.bit_dots import DEPTH, WORD
from searchlab.ir import Builder, Program, interpret, total
from searchlab.ir.bits import differing
from searchlab.ir.jsonform import from_json, to_json
from searchlab.schedule import Schedule
from searchlab.targets import detect


def sign_product(m: int, n: int, words: int) -> Program:
    """C = A B for matrices of signs, packed along the words."""
    b = Builder("signs")
    a, w = b.input("A", (m, words), "int32"), b.input("B", (words, n), "int32")
    k = b.axis("k", words)
    return b.program(b.compute("C", (m, n), lambda i, j: total(differing(a[i, k], w[k, j]), k)))


def packed(signs: np.ndarray) -> np.ndarray:
    """Signs along the last axis as bits of int32."""
    bits = np.packbits(signs > 0, axis=-1, bitorder="little")
    return np.ascontiguousarray(bits).view("<i4")


def matrices(m: int, n: int, words: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.choice([-1, 1], (m, words * WORD)), rng.choice([-1, 1], (words * WORD, n))


def test_differing_bits_are_products_of_signs() -> None:
    a, b = matrices(3, 5, 2)
    inputs = {"A": packed(a), "B": packed(b.T).T.copy()}
    wanted = a @ b
    program = sign_product(3, 5, 2)
    for made in (interpret(program, inputs)["C"], compile(program, detect())(*inputs.values())):
        assert np.array_equal(a.shape[1] - 2 * made.astype(int), wanted)


@pytest.mark.cpu
def test_a_product_by_calls() -> None:
    """With every instruction of this machine: the loops of a tile become calls, and results are the same."""
    words, (m, n) = 8, (6, 32)
    a, b = matrices(m, n, words)
    inputs = {"A": packed(a), "B": packed(b.T).T.copy()}
    tried = 0
    for intrinsic in (x for x in intrinsics().values() if "_bits_" in x.name):
        if intrinsic.needs.missing(detect()):
            continue
        lanes = int(intrinsic.name.split("_")[-1].split("x")[0])
        s = Schedule(sign_product(m, n, words))
        i, j, k = s.loops("C")
        j_outer, j_inner = s.split(j, [None, lanes])
        k_outer, k_inner = s.split(k, [None, DEPTH])
        s.reorder(i, j_outer, k_outer, j_inner, k_inner)
        s.tensorize(j_inner, intrinsic.name)
        made = compile(s.program, detect())(*inputs.values())
        assert np.array_equal(a.shape[1] - 2 * made.astype(int), a @ b)
        tried += 1
    assert tried or detect().arch != "x86_64"


def test_it_is_read_back_and_refuses_other_types() -> None:
    program = sign_product(2, 2, 1)
    assert from_json(to_json(program)) == program and "differing(A[" in str(program)
    b = Builder("floats")
    x = b.input("x", (4,))
    with pytest.raises(IRError, match="differing takes two values of dtype int32"):
        b.compute("y", (4,), lambda i: differing(x[i], x[i]))
