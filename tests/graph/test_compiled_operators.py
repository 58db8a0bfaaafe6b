"""The programs of operators compile under their default schedules, and compute what the references do."""

import numpy as np
import pytest
from graph_examples import Example, examples

from searchlab.backend import compile
from searchlab.defaults import default_schedule
from searchlab.graph import ProgramCall, evaluate_graph, legalise
from searchlab.graph.legalising import everything
from searchlab.targets import detect

torch = pytest.importorskip("torch")
SIZES = {"n": 3, "m": 2}
LAST = {e.name: e for e in examples(torch)}  # one of each operator


@pytest.mark.parametrize("example", LAST.values(), ids=list(LAST))
def test_compiled(example: Example) -> None:
    module = example.module()
    lowered = legalise(module, everything)
    (binding,) = lowered["main"].bindings
    if not isinstance(binding.call, ProgramCall):
        return
    program = lowered.program(binding.call.program)
    program = program.substitute({name: SIZES[name] for name in program.sizes})
    inputs = example.inputs(SIZES)
    target = detect()
    found = compile(default_schedule(program, target), target)(*inputs[2:])
    wanted = evaluate_graph(module, *inputs)
    pairs = zip(found, wanted, strict=True) if isinstance(wanted, tuple) else [(found, wanted)]
    for got, want in pairs:
        np.testing.assert_allclose(got, want, rtol=example.tolerance, atol=example.tolerance)
