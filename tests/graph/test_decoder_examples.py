"""The decoder of `experiments/models` as models that `searchlab tune` takes by name: right at lengths of no example."""

from __future__ import annotations

import numpy as np
import pytest

from searchlab.graph import compile, evaluate_graph, model_source, model_tasks
from searchlab.lab.tuning.size_races import resized
from searchlab.lab.tuning.whole_model import largest_error, run_of
from searchlab.targets import parse

TARGET = parse("x86-64-v3:threads=2")


@pytest.mark.parametrize(
    ("name", "lengths"),
    [
        ("decoder_step:layers=1,past=9", {"main": {"past": 23}}),
        ("text:layers=1,prompt=9,new=8", {"prompt": {"length": 7}, "step": {"past": 17}}),
    ],
)
def test_steps_of_a_decoder(name: str, lengths: dict[str, dict[str, int]]) -> None:
    pytest.importorskip("torch")
    source = model_source(name)
    model = compile(source.module, TARGET)
    assert largest_error(source, {"default": run_of(model, source)}) < 1e-4
    for function, sizes in lengths.items():
        inputs = resized(source.module[function], source.calls[function].inputs, sizes)
        wanted = evaluate_graph(source.module, *inputs, function=function)
        for got, want in zip(model[function](*inputs), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)
    attended = [task for task in model_tasks(source, target=TARGET) if "attention" in task.workload.label]
    assert attended and all(task.family is not None for task in attended)
    searched = {tuple(size for size, _ in task.family.range.weights) for task in attended if task.family is not None}
    assert searched == ({(9, 12), (9, 13, 17)} if "step" in lengths else {()})
