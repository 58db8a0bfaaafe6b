"""Transposed convolutions: phases in place of zeros, right for all strides, kernels and paddings."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab.backend import compile
from searchlab.defaults import default_schedule
from searchlab.ir.interpret import interpret
from searchlab.lower.passes import lower
from searchlab.targets import Target, detect, parse
from searchlab.workloads import parse as parse_workload
from searchlab.workloads import workload

AVX2, AVX512 = parse("x86-64-v3"), parse("x86-64-v4")


@st.composite
def shapes(draw):
    k = draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    stride = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    padding = tuple(draw(st.integers(0, n - 1)) for n in k)
    least = [max(1, 1 + math.ceil((1 + 2 * p - n) / s)) for n, s, p in zip(k, stride, padding, strict=True)]
    h, w = (n + draw(st.integers(0, 3)) for n in least)
    then = draw(st.sampled_from(["none", "bias,relu", "bn,add"]))
    n, ci, co = draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.sampled_from([1, 2, 3, 17]))
    return workload("conv2d_transpose", n=n, ci=ci, co=co, h=h, w=w, k=k, stride=stride, padding=padding, then=then)


@settings(max_examples=40, deadline=None)
@given(shapes())
def test_the_program_is_right(w):
    inputs = w.inputs(seed=3)
    assert w.check(interpret(w.program, inputs), inputs) is None


@settings(max_examples=16, deadline=None)
@given(shapes(), st.sampled_from([1, 2]), st.booleans())
def test_the_default_schedule_is_right(w, threads, packed):
    target = detect().with_threads(min(threads, detect().cores))
    weights = w.weights if packed else ()
    inputs = w.inputs(seed=5)
    kernel = compile(default_schedule(w.program, target, weights), target)
    if weights:
        kernel = kernel.bind(**{n: inputs[n] for n in weights})
    assert w.check(kernel(*(x for n, x in inputs.items() if n not in weights)), inputs) is None


@pytest.mark.parametrize(("k", "taps"), [(4, 4 * 4), (3, 3 * 3), (5, 5 * 5), (2, 2 * 2)])
def test_only_taps_that_meet_the_input_count(k, taps):
    w = workload("conv2d_transpose", ci=3, co=5, h=8, w=8, k=k, stride=2, padding=0)
    places = 8 + -(-k // 2) - 1  # for each of the phases, which together have all taps of the kernel
    assert w.flops == 2 * 3 * 5 * places**2 * taps


@pytest.mark.parametrize("target", [AVX2, AVX512], ids=str)
def test_a_kernel_that_the_stride_does_not_divide_stays_in_registers(target: Target):
    w = parse_workload("conv2d_transpose:ci=32,co=64,h=16,w=16,k=3,stride=2,padding=1")
    text = str(lower(default_schedule(w.program, target, w.weights), target))
    assert "C.r0" in text and "select" not in text and "+ 0.0" not in text


def test_an_odd_output_is_cut_off():
    w = workload("conv2d_transpose", ci=1, co=1, h=2, w=2, k=3, stride=2, padding=1)
    x = {"X": np.ones((1, 1, 2, 2), np.float32), "W": np.ones((1, 1, 3, 3), np.float32)}
    (y,) = interpret(w.program, x).values()
    assert y.tolist() == [[[[1, 2, 1], [2, 4, 2], [1, 2, 1]]]]
