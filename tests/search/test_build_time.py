"""Build times are predicted well enough to tell large candidates from small ones, and scores take them into account."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from searchlab.errors import SpaceError
from searchlab.lab.study import Study
from searchlab.llvm.module import generate
from searchlab.lower.passes import lower
from searchlab.search import Points, Task, space
from searchlab.search.build_time import Thrifty, build_s
from searchlab.search.knob import Floats
from searchlab.targets import parse as target
from searchlab.workloads import parse

TARGET = target("x86-64-v3")
CONV = "conv2d:ci=8,co=16,h=14,w=14,k=3,padding=1"


BYTES = "qconv2d:ci=16,co=32,h=14,w=14,k=3,padding=1,zero=3"  # calls of intrinsics, which are short


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("sketch", CONV),
        ("sketch", "matmul:m=64,n=64,k=64"),
        ("sketch", "softmax:rows=16,cols=256"),
        ("template", BYTES),
    ],
)
def test_predictions_follow_the_size_of_the_code(name: str, spec: str) -> None:
    found = space(name, Task(parse(spec), TARGET))
    points = found.sample(24, np.random.default_rng(0))
    lines = [generate(lower(found.program(p), TARGET), TARGET).ir.count("\n") for p in points]
    assert spearmanr(build_s(found, points), lines).statistic > 0.7


def test_short_builds_cost_nothing_and_each_doubling_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    found = space("template", Task(parse("matmul:m=64,n=64,k=64"), TARGET))
    points = found.sample(4, np.random.default_rng(0))
    monkeypatch.setattr("searchlab.search.build_time.build_s", lambda *_: np.array([0.01, 0.1, 0.2, 0.8]))
    given = np.array([0.0, 0.0, 2.0, 2.0])  # a standard deviation of 1

    def score(_: Points) -> Floats:
        return given

    thrifty = Thrifty(found, score, 0.1)
    assert thrifty(points) == pytest.approx([0.0, 0.0, 2.1, 2.3])
    given = np.zeros(4)  # the unit stays what it was, so that populations can be compared
    assert thrifty(points) == pytest.approx([0.0, 0.0, 0.1, 0.3])


def test_the_option_of_a_study() -> None:
    task = Task(parse("matmul:m=64,n=64,k=64"), TARGET)
    with pytest.raises(SpaceError, match="thrift is 0 or more, not -1"):
        Study(task, "template", None, "random", thrift=-1)

    def score(points: Points) -> Floats:
        return np.arange(len(points), dtype=np.float64)

    assert Study(task, "template", None, "random", thrift=0.0)._thrifty(score) is score
    assert isinstance(Study(task, "template", None, "random")._thrifty(score), Thrifty)
