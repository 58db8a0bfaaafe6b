"""Tasks of all operators at small sizes, even and odd, and their spaces, each made once per process."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from searchlab.search import Task
from searchlab.targets import detect
from searchlab.workloads import workload
from spaces.probabilistic import (
    DEFAULT_RULES,
    MultiLevelTiling,
    OperandPanelTiling,
    ProbabilisticSpace,
    RandomComputeLocation,
    ScheduleRule,
    TraceSpace,
    WeightPanelTiling,
)

EVEN: dict[str, dict[str, object]] = {
    "matmul": {"m": 24, "n": 32, "k": 16},
    "batch_matmul": {"batch": 2, "m": 8, "n": 16, "k": 6},
    "dense": {"m": 12, "n": 32, "k": 10, "activation": "relu"},
    "transpose_batch_matmul": {"batch": 1, "seq": 12, "heads": 2, "dim": 8},
    "conv1d": {"ci": 4, "co": 6, "w": 14, "padding": 1},
    "conv2d": {"ci": 4, "co": 8, "h": 6, "w": 8},
    "conv3d": {"ci": 2, "co": 4, "d": 4, "h": 4, "w": 6, "padding": 1},
    "conv2d_bn_relu": {"ci": 2, "co": 8, "h": 6, "w": 6, "padding": 1},
    "conv2d_transpose": {"ci": 4, "co": 2, "h": 4, "w": 4},
    "depthwise_conv2d": {"c": 4, "h": 8, "w": 8, "padding": 1},
    "capsule_conv2d": {"ci": 2, "co": 2, "h": 4, "w": 4, "capsule": 2, "padding": 1},
    "softmax": {"rows": 6, "cols": 40},
    "layer_norm": {"rows": 6, "cols": 24},
    "l2_norm": {"rows": 12, "cols": 32},
    "max_pool2d": {"c": 4, "h": 8, "w": 8},
    "avg_pool2d": {"c": 4, "h": 8, "w": 8},
    "global_avg_pool2d": {"c": 16, "h": 4, "w": 4},
    "elementwise": {"rows": 12, "cols": 40},
    "reduce": {"shape": "6x16x8"},
    "qmatmul": {"m": 24, "n": 32, "k": 16, "zero": 128},
    "qdense": {"m": 12, "n": 32, "k": 10},
    "qconv2d": {"ci": 4, "co": 8, "h": 6, "w": 8, "padding": 1, "zero": 128},
    "qdepthwise_conv2d": {"c": 4, "h": 8, "w": 8, "padding": 1, "zero": 128},
}
ODD: dict[str, dict[str, object]] = {
    "matmul": {"m": 15, "n": 21, "k": 7},
    "batch_matmul": {"batch": 3, "m": 5, "n": 9, "k": 7},
    "dense": {"m": 9, "n": 15, "k": 11},
    "transpose_batch_matmul": {"batch": 1, "seq": 9, "heads": 3, "dim": 7},
    "conv1d": {"ci": 3, "co": 5, "w": 15, "k": 3, "stride": 2},
    "conv2d": {"ci": 3, "co": 5, "h": 7, "w": 9, "padding": 1},
    "conv3d": {"ci": 3, "co": 3, "d": 3, "h": 5, "w": 5},
    "conv2d_bn_relu": {"ci": 3, "co": 5, "h": 5, "w": 7},
    "conv2d_transpose": {"ci": 3, "co": 3, "h": 3, "w": 5, "k": 3},
    "depthwise_conv2d": {"c": 3, "h": 7, "w": 9, "padding": 1},
    "capsule_conv2d": {"ci": 3, "co": 1, "h": 5, "w": 3, "capsule": 3},
    "softmax": {"rows": 7, "cols": 31},
    "layer_norm": {"rows": 5, "cols": 27},
    "l2_norm": {"rows": 9, "cols": 25},
    "max_pool2d": {"c": 3, "h": 9, "w": 11, "padding": 1},
    "avg_pool2d": {"c": 3, "h": 9, "w": 9, "k": 3},
    "global_avg_pool2d": {"c": 7, "h": 5, "w": 5},
    "elementwise": {"rows": 7, "cols": 45},
    "reduce": {"shape": "5x9x7", "axis": 1},
    "qmatmul": {"m": 15, "n": 21, "k": 7, "weight_zero": 3},
    "qdense": {"m": 9, "n": 15, "k": 11, "out": "int8"},
    "qconv2d": {"ci": 3, "co": 5, "h": 7, "w": 9},
    "qdepthwise_conv2d": {"c": 3, "h": 7, "w": 9, "out": "int32"},
}


def fewer_rules() -> list[ScheduleRule]:
    """The default rules with fewer variants: spaces that are made several times as fast."""
    found: list[ScheduleRule] = []
    for rule in DEFAULT_RULES:
        if type(rule) in (MultiLevelTiling, WeightPanelTiling):
            found.append(type(rule)(levels=(1,)))  # type: ignore[call-arg]
        elif isinstance(rule, RandomComputeLocation):
            found.append(RandomComputeLocation(levels=1))
        elif not isinstance(rule, OperandPanelTiling):
            found.append(rule)
    return found


@cache
def task_of(name: str, odd: bool = False) -> Task:
    return Task(workload(name, **(ODD if odd else EVEN)[name]), detect())


@cache
def space_of(name: str, odd: bool = False, small: bool = False) -> TraceSpace:
    generator = ProbabilisticSpace(rules=fewer_rules()) if small else ProbabilisticSpace()
    return generator.space(task_of(name, odd))


@pytest.fixture
def task() -> Callable[..., Task]:
    return task_of


@pytest.fixture
def space() -> Callable[..., TraceSpace]:
    return space_of


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "operator" in metafunc.fixturenames:
        metafunc.parametrize("operator", list(EVEN))
