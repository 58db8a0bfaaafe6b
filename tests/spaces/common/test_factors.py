"""Factors of vectors: rows that no whole number of vectors divides may be rounded up, others are as they were."""

import numpy as np
import pytest

from searchlab.backend import compile
from searchlab.search import Task, space, split_knob
from searchlab.targets import detect
from searchlab.targets import parse as target
from searchlab.workloads import parse
from spaces.common import KnobFactors


@pytest.mark.parametrize(
    ("extent", "width", "rounded"), [(600, 16, True), (600, 8, False), (640, 16, False), (12, 16, False)]
)
def test_rows_are_rounded_up_where_vectors_do_not_divide_them(extent: int, width: int, rounded: bool) -> None:
    factors = KnobFactors(64, tails="auto", width=width)
    factors.lanes("x_v", extent, 2)
    (made,) = factors.knobs
    assert (made.covers is not None) == rounded
    assert rounded or made.same_options(split_knob("x_v", extent, 2, 64))
    assert not rounded or [10, 64] in made.options.tolist()  # 40 vectors for 37.5


def test_never_means_never() -> None:
    factors = KnobFactors(64, tails="never", width=16)
    factors.lanes("x_v", 600, 2)
    assert factors.knobs[0].covers is None


@pytest.mark.parametrize("spec", ["softmax:rows=5,cols=150", "layer_norm:rows=4,cols=90", "l2_norm:rows=6,cols=75"])
def test_rounded_rows_are_right(spec: str) -> None:
    task = Task(parse(spec), target("x86-64-v3"))
    found = space("sketch", task)
    assert any(k.covers is not None for k in found.sketches[0].knobs)
    if not {"avx2", "fma"} <= detect().enabled_features():
        pytest.skip("this CPU lacks AVX2")
    inputs = task.workload.inputs(seed=1)
    for point in found.sample(3, np.random.default_rng(0)):
        result = compile(found.program(point), task.target)(*inputs.values())
        assert task.workload.check(result, inputs) is None, found.text(point)
