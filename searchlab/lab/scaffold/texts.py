"""The files that `searchlab new` writes beside the plug-in itself: test, package, experiment and README."""

from __future__ import annotations

TESTS = {
    "strategy": '''"""{class} conforms to the contract of a strategy: see searchlab.testing."""

from {module} import {class}

from searchlab.testing import check_strategy


def test_it_is_a_strategy() -> None:
    check_strategy({class})
''',
    "model": '''"""{class} conforms to the contract of a cost model: see searchlab.testing."""

from {module} import {class}

from searchlab.testing import check_model


def test_it_is_a_cost_model() -> None:
    check_model({class})
''',
    "space": '''"""{class} conforms to the contract of a space: see searchlab.testing."""

from {module} import {class}

import searchlab as sl
from searchlab.testing import check_space


def test_it_is_a_space() -> None:
    check_space({class}(), sl.Task(sl.workload("matmul", m=64, n=48, k=32), sl.detect()), points=8)
''',
    "workload": '''"""{class} computes what its reference does."""

from {module} import {class}

import searchlab as sl


def test_it_is_right() -> None:
    workload, target = {class}(), sl.detect()
    kernel = sl.compile(sl.default_schedule(workload.program, target), target)
    inputs = workload.inputs(seed=0)
    assert workload.check(kernel(*inputs.values()), inputs) is None
''',
}

PYPROJECT = """[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "0.1.0"
description = "A {kind} for searchlab"
requires-python = ">=3.11"
dependencies = ["searchlab"]

# Once the package is installed, searchlab knows the {kind} by this name.
[project.entry-points."{group}"]
{name} = "{module}:{class}"

[tool.setuptools]
py-modules = ["{module}"]

[tool.pytest.ini_options]
pythonpath = ["."]
"""

README = """# {name}

A {kind} for searchlab, in `{module}.py`.

    python -m pytest                 # does it conform to the contract of a {kind}?
    searchlab run experiment.yaml    # how does it compare with others? Here it is called `{module}:{class}`
    pip install -e .                 # makes it available as `{name}` everywhere
    searchlab list {listed}

Edit `{module}.py`; the test fails when it no longer conforms.
"""

EXPERIMENTS = {
    "strategy": """# {name} against two others, on recorded measurements: no hardware is needed.
name: {name}
workloads: [{{table: matmul-256}}]
budget: {{trials: 64, batch: 8}}
seeds: 0..4
sweep: {{strategy: [random, genetic, "{module}:{class}"]}}
""",
    "model": """# {name} against another model and none, on recorded measurements: no hardware is needed.
name: {name}
workloads: [{{table: matmul-256}}]
strategy: evolutionary
budget: {{trials: 64, batch: 8}}
seeds: 0..4
sweep: {{model: [none, random, "{module}:{class}"]}}
""",
    "space": """# {name} against another space, on this machine.
name: {name}
target: {{native: {{threads: 1}}}}
workloads: [{{matmul: {{m: 128, n: 128, k: 128}}}}]
model: none
strategy: random
budget: {{trials: 32, batch: 8}}
seeds: 0..1
sweep: {{space: [sketch, "{module}:{class}"]}}
""",
    "workload": """# {name} in two search spaces, on this machine.
name: {name}
target: {{native: {{threads: 1}}}}
workloads: ["{module}:{class}:n=64"]
model: none
strategy: random
budget: {{trials: 32, batch: 8}}
seeds: 0..1
sweep: {{space: [sketch, probabilistic]}}
""",
}
