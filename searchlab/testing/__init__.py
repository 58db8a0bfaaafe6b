"""Conformance suites: the requirements that every plug-in must satisfy, built-in or user-defined.

    def test_my_space():
        check_space(MySpace(), Task(workload("matmul", m=64, n=48, k=32), detect()))

    def test_my_strategy():
        check_strategy(MyStrategy)

    def test_my_model():
        check_model(MyModel, least=0.6)

    def test_my_back_end():
        check_backend(MyBackend(), parse("my-machine"))

    def test_my_intrinsic():
        check_intrinsic(MY_INTRINSIC, detect())

A check raises an AssertionError that states the expected and the actual behaviour.
"""

from searchlab.testing.backends import check_backend
from searchlab.testing.instructions import check_intrinsic
from searchlab.testing.models import check_model, tiled_space
from searchlab.testing.spaces import check_features, check_moves, check_point, check_space
from searchlab.testing.strategies import check_strategy, small_space

__all__ = [
    "check_backend",
    "check_features",
    "check_intrinsic",
    "check_model",
    "check_moves",
    "check_point",
    "check_space",
    "check_strategy",
    "small_space",
    "tiled_space",
]
