"""Tasks of graphs: which there are, how often they occur, and that each is what its function computes."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from graph_examples import Example, examples

from searchlab.errors import GraphError, WorkloadError
from searchlab.graph import GraphBuilder, GraphModule, evaluate_graph, legalise
from searchlab.graph.model_source import model_source, source_of
from searchlab.graph.tasks import (
    graph_tasks,
    model_tasks,
    program_key,
    with_references,
    worth_tuning,
)
from searchlab.ir import interpret, size
from searchlab.workloads import parse

torch = pytest.importorskip("torch")


def lowered(module: GraphModule) -> GraphModule:
    return with_references(legalise(module), module)


def two_layers(names: str = "w", shape: tuple[int, ...] = (6, 8)) -> GraphModule:
    b = GraphBuilder()
    x = b.input(f"{names}_input", shape)
    for n in range(2):
        w = b.constant(f"{names}{n}", np.full((8, 8), 0.5, "float32"))
        x = b.relu(b.linear(x, w))
    return b.build(b.linear(x, x))


def test_equal_programs_are_one_task_and_weights_make_a_difference() -> None:
    tasks = graph_tasks(lowered(two_layers(shape=(8, 8))))
    found = [(t.workload.program.name, t.count, t.workload.weights) for t in tasks]
    assert found == [("linear", 2, ("W",)), ("relu", 2, ()), ("linear", 1, ())]
    assert len({t.workload.label for t in tasks}) == 3
    assert [t.workload.flops for t in tasks] == [2 * 8 * 8 * 8, 64, 2 * 8 * 8 * 8]


def test_calls_inside_functions_count_as_often_as_these_are_called() -> None:
    inner = GraphBuilder("layer")
    x, w = inner.input("x", (4, 8)), inner.input("w", (8, 8))
    module = inner.build(inner.relu(inner.linear(x, w)))
    b = GraphBuilder("main", module)
    y = b.input("y", (4, 8))
    for n in range(3):
        y = b.call("layer", y, b.constant(f"w{n}", np.zeros((8, 8), "float32")))
    tasks = graph_tasks(lowered(b.build(b.relu(y))))
    found = [(t.workload.program.name, t.count, t.workload.weights) for t in tasks]
    assert found == [("linear", 3, ("W",)), ("relu", 4, ())]


def test_names_of_a_graph_are_no_part_of_its_tasks() -> None:
    one, other = (graph_tasks(lowered(two_layers(names))) for names in ("w", "weights_of_layer"))
    assert [t.workload.spec for t in one] == [t.workload.spec for t in other]
    program = one[0].workload.program
    assert program_key(program, ["W"]) != program_key(program, [])


@pytest.mark.parametrize("example", examples(torch), ids=str)
def test_a_task_is_what_its_function_computes(example: Example) -> None:
    """The reference of the workload and the interpreter of its program agree, on numbers."""
    for task in model_tasks(source_of((example.module(), tuple(example.inputs({"n": 3, "m": 2}))))):
        w = task.workload
        inputs = w.inputs(seed=1)
        assert w.check(interpret(w.program, inputs), inputs) is None
        assert not any(np.isnan(y).any() for y in w.reference(inputs).values() if y.dtype.kind == "f")


def test_a_task_is_its_text() -> None:
    (task, *_) = graph_tasks(lowered(two_layers()))
    w = task.workload
    assert parse(w.spec) is w and pickle.loads(pickle.dumps(w)) is w
    assert w.key.startswith("linear-") and w.label.startswith("linear.")
    with pytest.raises(WorkloadError, match="the text is not that of a task"):
        parse("searchlab.graph.tasks:graph_task:of=abcd")


def test_inputs_of_roots_are_positive() -> None:
    b = GraphBuilder()
    (task,) = graph_tasks(lowered(b.build(b.sqrt(b.input("x", (50,))))))
    inputs = task.workload.inputs()
    assert inputs["X"].min() >= 0 and not np.isnan(task.workload.reference(inputs)["Y"]).any()


def test_programs_without_a_function_are_refused() -> None:
    with pytest.raises(GraphError, match="'linear' is no task: the module has no function of this name"):
        graph_tasks(legalise(two_layers()))


def test_open_sizes_are_those_of_the_inputs() -> None:
    n = size("n")
    b = GraphBuilder("main", ranges={n: (1, 64)})
    x = b.input("x", (n * 2, 8))
    module = b.build(b.softmax(b.relu(x)))
    tasks = model_tasks(source_of((module, (np.ones((12, 8), "float32"),))))
    (family,) = {t.family.key: t.family for t in tasks if t.family is not None}.values()
    assert (family.size, str(family.range)) == ("n", "1..64") and family.label.endswith("(n=1..64)")
    sizes = [size for size, _ in family.representatives]
    assert sizes[0] == 1 and sizes[-1] == 64 and len(sizes) == 5
    assert [t.workload.label.partition("(")[2] for t in tasks] == [f"{2 * size}x8)" for size in sizes]
    assert sum(t.count for t in tasks) == pytest.approx(1.0, abs=1e-5)
    for task in tasks:
        inputs = task.workload.inputs()
        assert task.workload.check(task.workload.reference(inputs), inputs) is None


def open_layer(rows: str, columns: str, width: int = 8) -> GraphModule:
    n, m = size(rows), size(columns)
    b = GraphBuilder("main", ranges={n: (1, 64), m: (2, 8)})
    w = b.constant("w", np.ones((16, width), "float32"))
    return b.build(b.relu(b.linear(b.input("x", (m, n, width)), w)))


def test_names_of_sizes_make_no_difference() -> None:
    keys = []
    for names in (("n", "m"), ("a", "b"), ("m", "n")):
        source = source_of((open_layer(*names), (np.ones((3, 12, 8), "float32"),)))
        families = {t.family.key: t.family for t in model_tasks(source) if t.family is not None}
        (family,) = families.values()
        assert family.size == names[0] and family.others == {names[1]: 3}  # the wider range decides
        assert family.at(5).label.partition("(")[2].startswith("3x5x8")
        keys.append(family.key)
    assert len(set(keys)) == 1
    (other,) = {
        t.family.key for t in model_tasks(source_of((open_layer("n", "m", 9), (np.ones((3, 4, 9), "f4"),)))) if t.family
    }
    assert other != keys[0]


def test_sizes_without_bounds_are_searched_up_to_twice_the_example() -> None:
    n = size("n")
    b = GraphBuilder("main")
    source = source_of((b.build(b.softmax(b.input("x", (n, 8)))), (np.ones((12, 8), "float32"),)))
    (family,) = {t.family.key: t.family for t in model_tasks(source) if t.family is not None}.values()
    assert str(family.range) == "1..24"


def test_sizes_that_take_too_long_are_not_searched() -> None:
    n = size("n")
    b = GraphBuilder("main", ranges={n: (1, 1 << 20)})
    w = b.constant("w", np.zeros((1024, 1024), "float32"))
    source = source_of((b.build(b.linear(b.input("x", (n, 1024)), w)), (np.ones((12, 1024), "float32"),)))
    (family,) = {t.family.key: t.family for t in model_tasks(source) if t.family is not None}.values()
    assert str(family.range) == "1..8192"  # of two operations for each of 1024 x 1024 weights


def test_what_takes_no_time_is_left_out() -> None:
    b = GraphBuilder()
    x = b.input("x", (64, 64))
    w = b.constant("w", np.zeros((64, 64), "float32"))
    tasks = graph_tasks(lowered(b.build(b.relu(b.sum(b.linear(x, w), axes=(0, 1))))))
    assert [t.workload.program.name for t in worth_tuning(tasks, 0.8)] == ["linear"]
    assert worth_tuning(tasks, 1.0) == tasks


# --- models by name ---------------------------------------------------------------------------------------------------

MODEL = """
import numpy as np
from searchlab.graph import GraphBuilder

def make(rows: int = 4):
    b = GraphBuilder()
    return b.build(b.relu(b.input("x", (rows, 3))))

def wrong():
    return 3
"""


def test_models_of_files(tmp_path: Path) -> None:
    (tmp_path / "my_small_model.py").write_text(MODEL)
    source = model_source("my_small_model.py:make:rows=5", tmp_path)
    assert (
        source.name == "my_small_model:rows=5" and source.first.inputs[0].shape == (5, 3) and source.first.eager is None
    )
    assert model_source("my_small_model.py:make", tmp_path).name == "my_small_model"
    for text, message in (
        ("my_small_model.py:wrong", r"its function returned \(int\); accepted: a torch module"),
        ("my_small_model.py:make:lines=3", "cannot be made with"),
        ("my_small_model.py:make:3", "names no model; a model is module:function"),
        ("missing.py:make", "there is no file"),
        ("resnet19", "has no 'resnet19'"),
    ):
        with pytest.raises(GraphError, match=message):
            model_source(text, tmp_path)


def test_models_of_torch() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval()
    source = source_of((model, (torch.ones(2, 4),)), name="layer")
    assert source.first.eager is not None
    wanted = source.first.eager().numpy()
    assert np.allclose(evaluate_graph(source.module, *source.first.inputs), wanted, atol=1e-6)
    assert [t.workload.program.name for t in model_tasks(source)] == ["linear_relu"]
