"""A small transformer with a run-time length, for tests of passes over graphs."""

import pytest

from benchmarks.graph_models import transformer_layers
from searchlab.graph import GraphModule


@pytest.fixture(scope="session")
def transformer() -> GraphModule:
    return transformer_layers(128, 4, 4)
