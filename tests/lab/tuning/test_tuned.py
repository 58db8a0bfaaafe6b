"""What searches found is found again by whoever compiles the same task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from lab.export.small_run import MadeUp, write

from searchlab import targets
from searchlab.graph import CompileOptions, GraphBuilder, GraphModule, compile, evaluate_graph
from searchlab.graph.model.pipeline import lowered
from searchlab.graph.model_source import model_source, source_of
from searchlab.graph.size_table import SizeTable
from searchlab.graph.tasks import model_tasks
from searchlab.ir import size
from searchlab.lab.config import from_data, load_resolved
from searchlab.lab.run import Folder, load
from searchlab.lab.run.execute.measurers import Measurers
from searchlab.lab.tuning.kept_tables import FILE as TABLES
from searchlab.lab.tuning.kept_tables import kept_tables
from searchlab.lab.tuning.size_tables import make_tables
from searchlab.lab.tuning.tuned import FILE, Tuned
from searchlab.lab.tuning.tuning import plan_tuning
from searchlab.measure import Job, Outcome
from searchlab.workloads import parse

TARGET = targets.parse("x86-64-v3")
MODEL = """
import numpy as np
from searchlab.graph import GraphBuilder

def make():
    b = GraphBuilder()
    x = b.input("x", (16, 32))
    w = b.constant("w", np.ones((32, 32), "float32"))
    v = b.constant("v", np.ones((32, 32), "float32"))
    return b.build(b.softmax(b.relu(b.linear(b.relu(b.linear(x, w)), v))))
"""
ANY_ROWS = """
import numpy as np
from searchlab.graph import GraphBuilder
from searchlab.ir import size

def make():
    n = size("n")
    b = GraphBuilder("main", ranges={n: (1, 64)})
    w = np.random.default_rng(0).random((32, 32), "float32")
    return b.build(b.relu(b.linear(b.input("x", (n, 32)), b.constant("w", w)))), (np.ones((24, 32), "float32"),)
"""
SETTINGS = {"model": "none", "strategy": "random", "budget": {"trials": 6, "batch": 3}, "seeds": [0]}


def other_model() -> GraphModule:
    """Shares its layer with the first model, under other names; the product is another task."""
    b = GraphBuilder()
    data = b.input("data", (16, 32))
    weight = b.constant("a_weight", np.zeros((32, 32), "float32"))
    wide = b.constant("wide", np.zeros((48, 32), "float32"))
    return b.build(b.linear(b.relu(b.linear(data, weight)), wide))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "first_model.py").write_text(MODEL)
    workload = {"graph": f"{tmp_path / 'first_model.py'}:make"}
    data = {"name": "first", "target": "x86-64-v3", "workloads": [workload], **SETTINGS}
    return write(tmp_path / "run", monkeypatch, **data)


def test_a_model_is_searched_as_a_network(folder: Path) -> None:
    (cell,) = load(folder).cells
    assert cell.task == "first_model" and cell.state == "done"
    assert [(p.label.partition(".")[0], p.weight) for p in cell.cell.parts] == [("linear_relu", 2), ("softmax", 1)]
    assert len(cell.seconds) == 12  # six for each task


def test_an_experiment_needs_its_model_once(folder: Path) -> None:
    """The tasks are in the folder: its experiment is read, and its programs are made, without the model."""
    (folder.parent / "first_model.py").unlink()
    experiment = load_resolved(Folder(folder).experiment)
    ((item,),) = (experiment.workloads,)
    assert item["network"]["graph"].endswith("first_model.py:make")
    for spec in item["network"]["tasks"]:
        w = parse(spec)
        assert w.check(w.reference(w.inputs()), w.inputs()) is None
    assert len(Tuned.from_run(folder, target=TARGET)) == 2


def test_another_model_finds_the_tasks_that_it_shares(folder: Path) -> None:
    tuned = Tuned.from_run(folder, target=TARGET)
    shared, other = model_tasks(source_of(other_model()))
    found = tuned(shared.workload.program, frozenset(shared.workload.weights))
    known = tuned.known(shared.workload.program, shared.workload.weights)
    assert found is not None and known is not None
    assert found.hash == known.program.hash == known.found.record.program  # type: ignore[union-attr]
    assert found != shared.workload.program
    assert tuned(other.workload.program, frozenset(other.workload.weights)) is None
    assert tuned(shared.workload.program, frozenset()) is None  # nothing is packed ahead there
    assert sorted(tuned.asked.values()) == [False, False, True]


@pytest.mark.skipif("x86-64-v3" not in targets.offered(), reason="runs code for AVX2")
def test_a_table_serves_all_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A model with an open size is searched at several; a table of what was found there is compiled for all."""
    (tmp_path / "any_rows.py").write_text(ANY_ROWS)
    source = model_source(f"{tmp_path / 'any_rows.py'}:make")
    plan = plan_tuning(source, "x86-64-v3", 8, folder=tmp_path / "run", options=CompileOptions(), settings=SETTINGS)
    (family,) = plan.families
    sizes = [size for size, _ in family.representatives]
    assert len(plan.tasks) == len(sizes) > 3 and plan.experiment.workloads[0]["network"]["name"] == "any_rows"
    network = plan.experiment.workloads[0]
    data = {"name": "rows", "target": "x86-64-v3", "workloads": [network], **SETTINGS}
    write(tmp_path / "run", monkeypatch, BySize, **data)
    (table,) = make_tables(plan.families, tmp_path / "run", TARGET)
    assert (table,) == kept_tables(tmp_path / "run") and len(set(table.programs)) > 1

    # another graph with the same layer under other names finds it
    other = any_rows("rows", "weight", 200)
    tuned = Tuned.from_run(tmp_path / "run", target=TARGET)
    (program,) = lowered(other, CompileOptions()).programs.values()
    found = tuned(program, frozenset({"W"}))
    assert isinstance(found, SizeTable) and found.size == "rows" and found.last == table.last
    assert all(p.sizes == ("rows",) and p.name == program.name for p in found.entries)
    assert [p.hash for p in found.entries] == [p.hash for p in table.programs_for(program).entries]
    model = compile(other, TARGET, tuned)
    kernels = model["main"].facts.calls[0].kernels
    for rows in range(1, 70):
        x = np.random.default_rng(rows).random((rows, 32), "float32")
        assert np.allclose(model(x), evaluate_graph(other, x), rtol=1e-4)
        (ran,) = model["main"].observed(x).kernels.values()
        assert ran == kernels[sum(rows > last for last in table.last)]
    again = plan_tuning(source_of((other, (np.ones((9, 32), "float32"),))), "x86-64-v3", 8,
                        after=[str(tmp_path / "run")], options=CompileOptions())  # fmt: skip
    assert again.tasks == () and len(again.known) > 3

    # nothing is measured twice, and a damaged file is made again
    monkeypatch.setattr(Measurers, "of", lambda *_: pytest.fail("measured again"))
    assert make_tables(plan.families, tmp_path / "run", TARGET) == (table,)
    (tmp_path / "run" / TABLES).write_text("{")
    assert kept_tables(tmp_path / "run") == () and "`searchlab tune` or `searchlab run` measures it" in caplog.text


class BySize(MadeUp):
    """Times by which other programs are the fastest for few rows than for many."""

    def measure(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        for job in jobs:
            assert job.program is not None
            rows = int(job.workload.program.buffers["X"].shape[0].value)
            order = int(job.program.hash[:8], 16) % 1000 / 1000
            yield Outcome(job.id, "ok", (1e-5 * rows * (1 + (order if rows > 8 else 1 - order)),) * 3, number=1)


def any_rows(rows: str, weight: str, most: int) -> GraphModule:
    n = size(rows)
    b = GraphBuilder("main", ranges={n: (1, most)})
    w = np.random.default_rng(1).random((32, 32), "float32")
    return b.build(b.relu(b.linear(b.input("data", (n, 32)), b.constant(weight, w))))


def test_other_targets_find_nothing(folder: Path) -> None:
    assert len(Tuned.from_run(folder, target=targets.parse("x86-64-v4"))) == 0


def test_programs_are_kept_in_a_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Tuned.from_run(folder, target=TARGET)
    made.save(folder / FILE)
    monkeypatch.setattr("searchlab.lab.folder.found._space", None)  # no space is made again
    again = Tuned.from_run(folder, target=TARGET)
    assert {k: t.program.hash for k, t in again.tasks.items()} == {k: t.program.hash for k, t in made.tasks.items()}


def test_a_damaged_file_is_left_out(folder: Path) -> None:
    (folder / FILE).write_text("{")
    assert all(t.program for t in Tuned.from_run(folder, target=TARGET).tasks.values())


def test_mistakes_in_the_file_are_refused() -> None:
    from searchlab.errors import ConfigError

    with pytest.raises(ConfigError, match="graph takes a name or a list of names, not 3"):
        from_data({"workloads": [{"graph": 3}]})
    with pytest.raises(ConfigError, match="there is no file .*missing.py"):
        from_data({"workloads": [{"graph": "missing.py:make"}]})
