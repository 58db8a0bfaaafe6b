"""Kernels with sizes known only when they are called: right for sizes they were never compiled for."""

import numpy as np
import pytest
from checked_run import run_checked
from random_schedules import random_schedule

from searchlab.backend import compile
from searchlab.ir import interpret, size
from searchlab.lower.passes import lower
from searchlab.schedule import Schedule, trace_json
from searchlab.targets import detect
from searchlab.workloads import workload

SYMBOLIC = {
    "matmul": {"m": "?", "n": "?", "k": "?"},
    "batch_matmul": {"batch": "?", "m": 3, "n": "?", "k": 5},
    "dense": {"m": "?", "n": 6, "k": 4, "activation": "relu"},
    "transpose_batch_matmul": {"batch": 1, "seq": "?", "heads": 2, "dim": "?"},
    "conv1d": {"n": "?", "ci": 2, "co": 3, "w": "?", "k": 3, "padding": 1},
    "conv2d": {"ci": "?", "co": 3, "h": "?", "w": 5, "k": 3, "padding": 1, "stride": 2},
    "conv2d_bn_relu": {"ci": 2, "co": "?", "h": 4, "w": "?", "k": 3, "padding": 1},
    "depthwise_conv2d": {"n": "?", "c": 3, "h": "?", "w": "?", "k": 3, "padding": 1},
    "softmax": {"rows": "?", "cols": "?"},
    "layer_norm": {"rows": "?", "cols": "?"},
    "l2_norm": {"batch": "?", "rows": "?", "cols": 5},
    "max_pool2d": {"c": "?", "h": "?", "w": 7, "padding": 1},
    "global_avg_pool2d": {"n": "?", "c": 2, "h": "?", "w": "?"},
    "elementwise": {"rows": "?", "cols": "?", "ops": "add,sigmoid"},
}
# one, primes, smaller than any tile, exact multiples of tiles, and one more than a multiple
LENGTHS = (1, 2, 3, 7, 8, 13, 16, 17, 32, 37)


def combinations(names, rng, count=8):
    yield from ({n: length for n in names} for length in (1, 16))
    for _ in range(count):
        yield {n: int(rng.choice(LENGTHS)) for n in names}


@pytest.mark.parametrize("name", SYMBOLIC)
@pytest.mark.parametrize("seed", range(8))
def test_right_for_all_sizes(name, seed):
    """Seed 0 is the plain program, the others are random schedules (in which splits have tails)."""
    w = workload(name, **SYMBOLIC[name])
    rng = np.random.default_rng([sorted(SYMBOLIC).index(name), seed])
    program = random_schedule(w.program, rng, 2 * seed) if seed else w.program
    kernel = compile(program, detect(min(1 + seed % 2, detect().cores)))
    for at in combinations(w.sizes, rng):
        inputs = w.inputs(seed, **at)
        wrong = w.check(kernel(*(inputs[n] for n in program.inputs)), inputs)
        assert wrong is None, f"{wrong} with {at}\n{trace_json(program)}\n{program}"


@pytest.mark.parametrize("name", SYMBOLIC)
def test_lowered_code_stays_inside_its_buffers(name):
    w = workload(name, **SYMBOLIC[name])
    for seed in range(1, 5):
        rng = np.random.default_rng([99, sorted(SYMBOLIC).index(name), seed])
        program = random_schedule(w.program, rng, 2 * seed)
        lowered = lower(program, detect(1))
        for length in (1, 2, 7):
            at = {n: length for n in w.sizes}
            inputs = w.inputs(**at)
            wrong = w.check(run_checked(lowered, program, inputs, at), inputs)
            assert wrong is None, f"{wrong} with {at}\n{trace_json(program)}\n{program}"


@pytest.mark.parametrize("tile", [4, 8, 16])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (3, 5, 2), (4, 16, 8), (16, 16, 16), (17, 31, 13), (48, 64, 3)])
def test_tiled_matmul(tile, m, n, k):
    w = workload("matmul", m="?", n="?", k="?")
    s = Schedule(w.program)
    i, j, kk = s.loops("C")
    i0, i1 = s.split(i, [None, tile], tail=True)
    j0, j1 = s.split(j, [None, tile], tail=True)
    k0, k1 = s.split(kk, [None, 4], tail=True)
    s.reorder(i0, j0, k0, k1, i1, j1)
    s.vectorize(j1)
    s.unroll(i1)
    s.parallel(i0)
    inputs = w.inputs(m=m, n=n, k=k)
    kernel = _tiled(s.program, tile)
    assert w.check(kernel(inputs["A"], inputs["B"]), inputs) is None


_kernels = {}


def _tiled(program, tile):
    if tile not in _kernels:
        _kernels[tile] = compile(program, detect(min(2, detect().cores)))
    return _kernels[tile]


def test_the_same_size_twice_must_agree():
    w = workload("batch_matmul", batch="?", m=2, n=3, k=4)
    kernel = compile(w.program, detect(1))
    inputs = w.inputs(batch=3)
    with pytest.raises(ValueError, match=r"input 'B' has shape \(2, 4, 3\), expected .* with batch=3"):
        kernel(inputs["A"], np.ascontiguousarray(inputs["B"][:2]))


def test_a_kernel_equals_the_program_with_the_size_put_in():
    w = workload("softmax", rows="?", cols="?")
    kernel = compile(w.program, detect(1))
    for rows, cols in ((1, 1), (5, 3), (2, 17)):
        inputs = w.inputs(rows=rows, cols=cols)
        oracle = interpret(w.program, inputs, {"rows": rows, "cols": cols})
        assert np.allclose(kernel(inputs["X"]), oracle["Y"], rtol=1e-5)


def test_size_symbols_have_the_names_they_are_given():
    w = workload("matmul", m=size("rows"), n=4, k=size("inner"))
    assert w.program.sizes == ("inner", "rows")
    kernel = compile(w.program, detect(1))
    inputs = w.inputs(rows=5, inner=7)
    assert w.check(kernel(inputs["A"], inputs["B"]), inputs) is None
