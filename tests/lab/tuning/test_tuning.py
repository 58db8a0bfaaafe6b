"""Whole models: decided, searched, compiled with what was found, timed, kept and reported."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lab.export.small_run import MadeUp
from typer.testing import CliRunner

from searchlab import targets
from searchlab.cli import app
from searchlab.errors import GraphError, SearchLabError
from searchlab.graph import (
    CompileOptions,
    ExampleCall,
    GraphBuilder,
    GraphModule,
    LibraryCall,
    compile,
    evaluate_graph,
)
from searchlab.graph.model.pipeline import lowered
from searchlab.graph.model_source import ModelSource, source_of
from searchlab.ir import size
from searchlab.lab.report.report import Report
from searchlab.lab.run import load, run
from searchlab.lab.run.execute.measurers import Measurers
from searchlab.lab.run.runoff import holder
from searchlab.lab.study import Finish, TaskSubject
from searchlab.lab.tuning import decisions, model_selection
from searchlab.lab.tuning.decisions import AS_GIVEN, TOGETHER, alternatives, decide, different, offered_calls
from searchlab.lab.tuning.kept_tables import kept_tables
from searchlab.lab.tuning.model_result import FILE, ModelResult, VariantTime, model_results, write_results
from searchlab.lab.tuning.size_races import resized
from searchlab.lab.tuning.tuned import FILE as TUNED_FILE
from searchlab.lab.tuning.tuned import RIVALS, Tuned
from searchlab.lab.tuning.tuning import TunePlan, finish_model, finish_run, plan_tuning
from searchlab.lab.tuning.whole_model import WeightedRun, largest_error, prepared
from searchlab.timing.turns import Times

TARGET = "x86-64-v3"
SETTINGS = {"model": "none", "strategy": "random"}
needs_avx2 = pytest.mark.skipif(TARGET not in targets.offered(), reason="runs code for AVX2")


def layers(count: int, last: int = 16, rows: int = 8) -> GraphModule:
    b = GraphBuilder()
    x = b.input("x", (rows, 16))
    for n in range(count):
        w = b.constant(f"w{n}", np.linspace(-1, 1, 256, dtype="float32").reshape(16, 16))
        x = b.relu(b.linear(x, w))
    return b.build(b.linear(x, b.constant("last", np.ones((last, 16), "float32"))))


def planned(source: ModelSource, trials: int = 8, **more: Any) -> TunePlan:
    return plan_tuning(source, TARGET, trials, share=1.0, options=CompileOptions(), settings=SETTINGS, **more)


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches without hardware; whole models are still compiled and timed."""

    def final(self: TaskSubject, finalists: object, best_s: float, *_: float) -> Finish:
        return Finish(0, best_s, {"default": 2 * best_s})

    monkeypatch.setattr(Measurers, "of", lambda *_: MadeUp())
    monkeypatch.setattr(TaskSubject, "final", final)
    monkeypatch.setattr(holder, "hold", lambda *_: None)


def test_a_plan_divides_the_trials(tmp_path: Path) -> None:
    plan = planned(source_of(layers(3), name="three:layers=3"))
    assert [(t.workload.program.name, t.count) for t in plan.tasks] == [("linear_relu", 3), ("linear", 1)]
    experiment = plan.experiment
    assert (experiment.name, experiment.budget.trials, experiment.budget.batch) == ("three-layers-3", 4, 2)
    assert experiment.workloads[0]["network"]["graph"] == "three:layers=3"


@needs_avx2
def test_a_second_model_needs_no_trial(tmp_path: Path, made_up: None) -> None:
    first = planned(source_of(layers(2), name="first"))
    run(first.experiment, tmp_path / "first", jobs=0)
    result = finish_model(first, tmp_path / "first", seconds=0.05)
    assert result.searched == 2 and result.known == 0 and result.error < 1e-5
    assert set(result.times) == {"default", "tuned"} and result.kernels["default"] == 2 * result.kernels["tuned"]
    (cell,) = load(tmp_path / "first").cells
    assert result.kernels["tuned"] == cell.taken_s

    deeper = planned(source_of(layers(5), name="deeper"), after=[str(tmp_path / "first")])
    assert (deeper.tasks, len(deeper.known), deeper.others) == ((), 2, ())
    with pytest.raises(SearchLabError, match="there is nothing to search"):
        deeper.experiment  # noqa: B018
    again = finish_model(deeper, tmp_path / "deeper", seconds=0.05)
    assert (again.searched, again.known) == (0, 2) and again.times["tuned"].min > 0
    assert not (tmp_path / "deeper" / "manifest.json").exists()  # no search, no trial

    wider = planned(source_of(layers(2, last=24), name="wider"), after=[str(tmp_path / "first")])
    assert [t.workload.program.name for t in wider.tasks] == ["linear"] and len(wider.known) == 1


@needs_avx2
def test_what_is_fastest_inside_the_model_is_taken(
    tmp_path: Path, made_up: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first task is faster with its second program, the other with its default schedule."""
    source, target = source_of(layers(2), name="inside"), targets.parse(TARGET)
    run(planned(source, folder=tmp_path).experiment, tmp_path, jobs=0)
    rivals = Tuned.ranked(tmp_path, target)
    assert len(rivals) == RIVALS and all(tuned.tasks.keys() == rivals[0].tasks.keys() for tuned in rivals)

    def times(models: Any, *_: object) -> list[dict[str, float]]:
        names = [call.name for call in models[0].entry.facts.calls]
        assert len(models) == 1 + len(rivals) and len(names) == 3
        taken = [(1.0, 1.0, 1.0), (0.9, 1.0, 0.995), (0.8, 0.8, 1.0), (0.7, 1.2, 2.0)]
        return [dict(zip(names, row, strict=True)) for row in taken]

    monkeypatch.setattr(model_selection, "_call_times", times)
    monkeypatch.setattr(model_selection, "_is_faster", lambda *_: False)
    chosen = model_selection.select_in_model(source, target, CompileOptions(), rivals)
    assert all(task.default for task in chosen.tasks.values())  # what was chosen is slower as a whole

    monkeypatch.setattr(model_selection, "_is_faster", lambda *_: True)
    chosen = model_selection.select_in_model(source, target, CompileOptions(), rivals)
    relu, last = (rivals[0].key(t.workload.program, t.workload.weights) for t in planned(source).tasks)
    assert chosen.tasks[relu] is rivals[1].tasks[relu]  # type: ignore[index]
    assert chosen.tasks[last].kept  # type: ignore[index]

    chosen.save(tmp_path / TUNED_FILE)
    again = Tuned.from_run(tmp_path, target=target)
    assert {key: task.identity for key, task in again.tasks.items()} == {
        relu: rivals[1].tasks[relu].identity,  # type: ignore[index]
        last: "default",
    }


@needs_avx2
def test_the_result_is_kept_and_reported(tmp_path: Path, made_up: None) -> None:
    plan = planned(source_of(layers(1), name="small"), folder=tmp_path)
    assert model_results(tmp_path)[0].times == {}  # decided, not yet timed
    run(plan.experiment, tmp_path, jobs=0)
    result = finish_model(plan, tmp_path, seconds=0.05)
    assert model_results(tmp_path) == (result,)
    assert Tuned.from_run(tmp_path, target=targets.parse(TARGET)).options == result.compile_options == plan.options
    assert [(c.callee, c.kind, c.reads) for c in result.calls] == [
        ("fused_linear_relu", "own", ()),
        ("linear", "own", (result.calls[0].name,)),
    ]
    assert result.calls[0].live == 4 * 8 * 16 <= result.held and all(c.seconds > 0 for c in result.calls)
    page = Report.of([load(tmp_path)]).html
    assert "Whole models, end to end" in page and "small: times of whole runs" in page


@needs_avx2
def test_open_sizes_are_timed_and_reported(tmp_path: Path, made_up: None) -> None:
    """A model with an open size: one budget for all sizes, tables, whole runs at several sizes, all in the report."""
    n = size("n")
    b = GraphBuilder("main", ranges={n: (1, 32)})
    w = b.constant("w", np.linspace(-1, 1, 256, dtype="float32").reshape(16, 16))
    module = b.build(b.relu(b.linear(b.input("x", (n, 16)), w)))
    source = source_of((module, (np.linspace(0, 1, 80, dtype="float32").reshape(5, 16),)), name="rows")
    plan = planned(source, trials=30, folder=tmp_path)  # six for each size, of which one may fail
    run(plan.experiment, tmp_path, jobs=0)
    result = finish_model(plan, tmp_path, seconds=0.05)
    assert [race.sizes for race in result.by_size] == [{"n": v} for v, _ in plan.families[0].representatives]
    assert all(race.seconds["tuned"] > 0 < race.seconds["default"] for race in result.by_size)
    assert model_results(tmp_path) == (result,) and kept_tables(tmp_path)[0].key == plan.families[0].key
    page = Report.of([load(tmp_path)]).html
    assert "rows: whole runs at other sizes" in page and "Programs of models with open sizes" in page
    x = resized(module["main"], source.first.inputs, {"n": 12})[0]
    assert x.shape == (12, 16) and np.array_equal(x[5:10], source.first.inputs[0]) and np.array_equal(x[10:], x[:2])


@needs_avx2
def test_decisions_are_taken_again(tmp_path: Path, made_up: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what was found, another way to compile the model may be the fastest; the tasks stay what they were."""
    asked: list[bool] = []

    def chosen(source: ModelSource, target: object, tuned: object, base: CompileOptions, **_: object) -> Any:
        asked.append(tuned is not None)
        way = CompileOptions() if len(asked) == 1 else CompileOptions(fuse="never")
        return way, (VariantTime("as given", 2.0, len(asked) == 1), VariantTime("fuse: never", 1.0, len(asked) > 1))

    monkeypatch.setattr("searchlab.lab.tuning.tuning.decide", chosen)
    source = source_of(layers(1), name="again")
    plan = plan_tuning(source, TARGET, 8, share=1.0, settings=SETTINGS, folder=tmp_path)
    run(plan.experiment, tmp_path, jobs=0)
    result = finish_model(plan, tmp_path, seconds=0.05)
    assert asked == [False, True] and result.options == {} and result.taken == {"fuse": "never"}
    assert [v.chosen for v in result.decided_again] == [False, True] and model_results(tmp_path) == (result,)
    assert [c.callee for c in result.calls] == ["linear", "relu", "linear"]
    page = Report.of([load(tmp_path)]).html
    assert "timed in turns with what was found" in page and "Compiled with fuse: never" in page
    assert plan_tuning(source, TARGET, 8, share=1.0, settings=SETTINGS, folder=tmp_path).experiment == plan.experiment
    assert model_results(tmp_path) == (result,)  # planning again keeps what was measured, until it is measured again
    planned(source, folder=tmp_path)  # the same options, given
    assert model_results(tmp_path)[0].times == result.times
    plan_tuning(source, TARGET, 8, options=CompileOptions(fuse="never"), settings=SETTINGS, folder=tmp_path)
    assert model_results(tmp_path)[0].times == {}  # other tasks


def two_functions() -> GraphModule:
    """A layer for any number of rows, and the same behind another one for a single row; they share their weights."""
    n = size("n")
    module = GraphModule()
    for name, rows in (("many", n), ("one", 1)):
        b = GraphBuilder(name, ranges={n: (1, 32)} if rows is n else {}, module=module)
        w = b.constant("w", np.linspace(-1, 1, 256, dtype="float32").reshape(16, 16))
        x = b.relu(b.linear(b.input("x", (rows, 16)), w))
        module = b.build(x if rows is n else b.linear(x, w))
    return module


def calls_of_two(**more: Any) -> dict[str, ExampleCall]:
    rows = np.linspace(0, 1, 80, dtype="float32").reshape(5, 16)
    one = ExampleCall((rows[:1],), **{"weight": 8, **more})
    return {"many": ExampleCall((rows,), sizes={"n": {5: 1, 9: 3}}), "one": one}


@needs_avx2
def test_functions_of_a_model_share_a_budget(tmp_path: Path, made_up: None) -> None:
    """Each counts as often as it is called, at the sizes that occur; times are those of all calls together."""
    source = source_of((two_functions(), calls_of_two()), name="two")
    plan = planned(source, trials=24, folder=tmp_path)
    counts = {(t.workload.label.partition(".")[0], t.family is not None): 0.0 for t in plan.tasks}
    for task in plan.tasks:
        counts[task.workload.label.partition(".")[0], task.family is not None] += task.count
    assert counts == {("linear_relu", True): 1.0, ("linear_relu", False): 8, ("linear", False): 8}
    assert plan.families[0].representatives == ((5, 0.25), (9, 0.75))
    run(plan.experiment, tmp_path, jobs=0)
    result = finish_model(plan, tmp_path, seconds=0.05)
    assert result.sizes == {"many.n": 5} and model_results(tmp_path) == (result,)
    assert [race.sizes for race in result.by_size] == [{"many.n": 5}, {"many.n": 9}]
    assert [c.name.partition(".")[0] for c in result.calls] == ["many", "one", "one"]
    assert set(result.times) == {"default", "tuned"} and result.error < 1e-5
    assert "two: whole runs at other sizes" in Report.of([load(tmp_path)]).html
    model = compile(source.module, targets.parse(TARGET), Tuned.from_run(tmp_path, target=targets.parse(TARGET)))
    (x,) = source.calls["one"].inputs
    assert np.allclose(model["one"](x), evaluate_graph(source.module, x, function="one"), atol=1e-5)


def test_time_of_several_functions_is_weighted(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("searchlab.lab.tuning.whole_model.perf_counter", lambda: now[0])

    def takes(seconds: float) -> float:
        now[0] += seconds
        return seconds

    run_both = WeightedRun([(lambda: takes(1.0), 100), (lambda: takes(8.0), 0.5)])
    assert run_both() == [1.0, 8.0]
    assert run_both.timed(2) == 2 * (100 * 1.0 + 0.5 * 8.0)


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        ({"other": ExampleCall(())}, "model 'two': the graph has no function 'other'; it has many, one"),
        ({"one": ()}, "the call of 'one' is a tuple; accepted: an ExampleCall"),
        (calls_of_two(weight=0), "'one' has the weight 0; it says how often this occurs, and is above 0"),
        (calls_of_two(sizes={"m": {1: 1}}), "'one' has no size 'm'; it has none"),
        ({"many": ExampleCall((), sizes={"n": {33: 1}})}, "n = 33 is out of its range, 1 <= n <= 32"),
        ({"many": ExampleCall((), sizes={"n": {3: -1}})}, "n = 3 of 'many' has the weight -1"),
    ],
)
def test_calls_that_are_refused(calls: Any, message: str) -> None:
    with pytest.raises(GraphError, match=re.escape(message)):
        source_of((two_functions(), calls), name="two")


@needs_avx2
def test_experiments_time_their_models(tmp_path: Path, made_up: None) -> None:
    """`{graph: ...}` in a file: when the cells are done, the model is timed, and once is enough."""
    from searchlab.lab.config import from_data

    (tmp_path / "of_yaml.py").write_text(
        "import numpy as np\nfrom searchlab.graph import GraphBuilder\n"
        "def make():\n"
        "    b = GraphBuilder()\n"
        "    return b.build(b.relu(b.linear(b.input('x', (8, 16)), b.constant('w', np.ones((16, 16), 'float32')))))\n"
    )
    data = {"name": "of-yaml", "target": TARGET, "workloads": [{"graph": f"{tmp_path / 'of_yaml.py'}:make"}]}
    experiment = from_data({**data, **SETTINGS, "budget": {"trials": 3, "batch": 3}, "seeds": [0]})
    assert run(experiment, tmp_path / "run", jobs=0).exit_code == 0
    (result,) = finish_run(tmp_path / "run")
    assert result.name == "of_yaml" and result.searched == 1 and {"default", "tuned"} <= set(result.times)
    assert finish_run(tmp_path / "run", again=False) == ()


@needs_avx2
def test_wrong_results_are_refused() -> None:
    source = source_of(layers(1), name="wrong")
    target = targets.parse(TARGET)
    run_it = prepared(source, target, None, CompileOptions())
    assert largest_error(source, {"default": run_it}) < 1e-5
    assert np.allclose(run_it(), evaluate_graph(source.module, *source.first.inputs), atol=1e-5)
    with pytest.raises(GraphError, match="results of 'tuned' differ from the reference by"):
        largest_error(source, {"tuned": lambda: 1.1 * run_it()})


def test_results_of_a_folder_replace_earlier_ones(tmp_path: Path) -> None:
    times = {"tuned": Times(1.0, 1.5, 3, 0.1), "torch": Times(3.0, 3.5, 3, 0.1)}
    one = ModelResult("a", "a.py:make", "native", {}, variants=(VariantTime("fuse: never", error="why"),))
    write_results(tmp_path, [one, ModelResult("b", "b.py:make", "native", {})])
    new = ModelResult("a", "a.py:make", "native", times, {"tuned": 0.5}, options={"fuse": "never"})
    write_results(tmp_path, [new])
    assert [r.name for r in model_results(tmp_path)] == ["a", "b"] and model_results(tmp_path)[0] == new
    assert new.speedup("torch") == 3.0 and new.speedup("default") is None
    (tmp_path / FILE).write_text("[]")
    assert model_results(tmp_path) == ()


# --- decisions --------------------------------------------------------------------------------------------------------


def test_decisions_change_one_thing_at_a_time() -> None:
    ways = alternatives(CompileOptions(), {"numpy": ["linear(a, b)"]})
    assert list(ways) == ["fuse: after", "fuse: never", "layouts: false", "winograd: false", "numpy: linear(a, b)"]
    assert ways["fuse: never"] == CompileOptions(fuse="never")
    assert ways["numpy: linear(a, b)"].libraries == ({"chosen": {"library": "numpy", "calls": ["linear(a, b)"]}},)


def test_ways_to_the_same_graph_are_one() -> None:
    source = source_of(layers(1), name="same")
    ways = different(
        source,
        {AS_GIVEN: CompileOptions(), "memory": CompileOptions(memory="pool"), "never": CompileOptions(fuse="never")},
    )
    assert list(ways) == [AS_GIVEN, "never"]


@pytest.mark.parametrize(
    ("times", "noise", "chosen"),
    [
        ({AS_GIVEN: 1.0, "fuse: never": 0.99, "layouts: false": 1.5}, 0.01, AS_GIVEN),  # within the margin
        ({AS_GIVEN: 1.0, "fuse: never": 0.94, "layouts: false": 1.5}, 0.07, AS_GIVEN),  # within the noise
        ({AS_GIVEN: 1.0, "fuse: never": 0.9, "layouts: false": 1.5}, 0.5, "fuse: never"),  # beyond any noise
        ({AS_GIVEN: 1.0, "fuse: never": 0.9, "layouts: false": 1.5}, 0.01, "fuse: never"),
        ({AS_GIVEN: 1.0, "fuse: never": 0.9, "layouts: false": 0.8, TOGETHER: 0.7}, 0.01, TOGETHER),
        ({AS_GIVEN: 1.0, "fuse: never": 0.9, "layouts: false": 0.8, TOGETHER: 0.85}, 0.01, "layouts: false"),
    ],
)
def test_the_fastest_whole_model_is_chosen(
    monkeypatch: pytest.MonkeyPatch, times: Mapping[str, float], noise: float, chosen: str
) -> None:
    def race(runs: Mapping[str, Any], *_: object) -> tuple[dict[str, Times], float]:
        return {name: Times(times[name], times[name], 5, noise) for name in runs if name in times}, 0.0

    monkeypatch.setattr(decisions, "race_models", race)
    monkeypatch.setattr(decisions, "prepared", lambda *_: lambda: None)
    monkeypatch.setattr(decisions, "largest_error", lambda *_: 0.0)
    monkeypatch.setattr(decisions, "different", lambda source, ways, target: dict(ways))
    source = source_of(layers(1), name="made up")
    options, rows = decide(source, targets.parse(TARGET), None, CompileOptions(), calls={})
    assert [row.name for row in rows if row.chosen] == [chosen]
    assert (options.fuse == "never") == ("never" in chosen or chosen == TOGETHER)
    assert {row.name: row.seconds for row in rows} == times


def test_a_way_that_cannot_be_compiled_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(source: object, target: object, tuned: object, options: CompileOptions) -> Any:
        if options.fuse == "never":
            raise GraphError("it cannot")
        return lambda: None

    monkeypatch.setattr(decisions, "prepared", build)
    monkeypatch.setattr(decisions, "largest_error", lambda *_: 0.0)
    monkeypatch.setattr(decisions, "race_models", lambda runs, *_: ({n: Times(1.0, 1.0, 5) for n in runs}, 0.0))
    _, rows = decide(source_of(layers(1)), targets.parse(TARGET), None, CompileOptions(), calls={})
    assert [row.error for row in rows if row.name == "fuse: never"] == ["it cannot"]


@needs_avx2
@pytest.mark.parametrize("way", ["fuse: after", "fuse: never", "numpy: linear(float32[32, 16], float32[16, 16])"])
def test_every_way_computes_the_same(way: str) -> None:
    source = source_of(layers(2, rows=32), name="ways")
    offered = offered_calls(source)
    assert offered["numpy"] == [
        "linear+relu(float32[32, 16], float32[16, 16])",
        "linear(float32[32, 16], float32[16, 16])",
    ]
    options = alternatives(CompileOptions(), offered)[way]
    run_it = prepared(source, targets.parse(TARGET), None, options)
    assert largest_error(source, {way: run_it}) < 1e-5


def test_calls_are_given_to_libraries_one_by_one() -> None:
    module = layers(3, rows=32)
    text = "linear+relu(float32[32, 16], float32[16, 16])"
    chosen = lowered(module, CompileOptions(libraries=({"chosen": {"library": "numpy", "calls": [text]}},)))
    every = lowered(module, CompileOptions(libraries=("numpy",)))
    counts = [sum(isinstance(c, LibraryCall) for c in m["main"].calls.values()) for m in (chosen, every)]
    assert counts == [3, 4]


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On this machine, with real times: searched, timed, printed; the same command again measures nothing."""
    (tmp_path / "of_torch.py").write_text(
        "import torch\nfrom torch import nn\n"
        "def make():\n"
        "    return nn.Sequential(nn.Linear(16, 16), nn.ReLU()).eval(), (torch.ones(4, 16),)\n"
    )
    monkeypatch.chdir(tmp_path)
    words = [
        "tune",
        "of_torch.py:make",
        "--trials",
        "2",
        "--threads",
        "1",
        "--no-decide",
        "--out",
        "found",
        "--seconds",
        "0.1",
    ]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "1 tasks to search" in done.output and "x torch" in done.output and "end to end" in done.output
    records = sum(len(path.read_text().splitlines()) for path in (tmp_path / "found" / "records").glob("*.jsonl"))
    again = CliRunner().invoke(app, [*words, "--json"])
    found = json.loads(again.stdout.splitlines()[-1])
    assert found["name"] == "of_torch" and set(found["times"]) == {"default", "tuned", "torch"}
    (tmp_path / "of_torch.py").unlink()
    resumed = CliRunner().invoke(app, ["run", "found"])
    assert resumed.exit_code == 0, resumed.output  # nothing is left to do, not even for the model
    assert records == sum(len(p.read_text().splitlines()) for p in (tmp_path / "found" / "records").glob("*.jsonl"))
