"""From data to checked experiments: forms, defaults, effort, overrides."""

import json
import lzma
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab.errors import ConfigError
from searchlab.lab.cells import cells
from searchlab.lab.config import Experiment, dump, from_data, load
from searchlab.lab.config.experiment import Source
from searchlab.lab.config.forms.effort import EFFORTS
from searchlab.lab.config.text.overrides import split
from searchlab.lab.config.text.reading import read
from searchlab.measure import Limits, Protocol

TABLE = {"name": "t", "workloads": [{"table": "matmul-256"}]}
WORK = {"name": "w", "workloads": ["matmul"], "model": "none", "strategy": "random"}


def entries(experiment: Experiment) -> list[str]:
    return list(dict.fromkeys(c.entry for c in cells(experiment)))


def test_the_smallest_experiment() -> None:
    found = from_data({"name": "small", "workloads": "matmul"})
    assert (found.target, found.space, found.model, found.strategy) == ("native", "sketch", "gbt", "evolutionary")
    assert found.measure.kind == "local" and found.seeds == (0, 1, 2, 3, 4) and not found.recorded


def test_the_smallest_experiment_on_a_table() -> None:
    found = from_data(TABLE)
    assert (found.space, found.model, found.measure.kind) == (None, "none", "replay")
    assert found.recorded


@pytest.mark.parametrize(
    ("given", "seeds"), [(3, (3,)), ("0..3", (0, 1, 2, 3)), ([7, "1..2"], (7, 1, 2)), ("5..5", (5,)), ([0], (0,))]
)
def test_seeds(given: object, seeds: tuple[int, ...]) -> None:
    assert from_data({**TABLE, "seeds": given}).seeds == seeds


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("native", "native"),
        ({"native": None}, "native"),
        ("native:threads=1", {"native": {"threads": 1}}),
        ({"native": {"threads": 1}}, {"native": {"threads": 1}}),
        ("x86-64-v2", "x86-64-v2"),
    ],
)
def test_targets(given: object, found: object) -> None:
    assert from_data({**TABLE, "target": given}).target == found


@pytest.mark.parametrize(
    ("given", "count", "first"),
    [
        ("matmul:m=64,n=32", 1, "matmul:m=64,n=32,k=512,dtype=float32"),
        ([{"matmul": {"m": 64, "n": 32}}, "softmax"], 2, "matmul:m=64,n=32,k=512,dtype=float32"),
        ([{"matmul": None}], 1, "matmul:m=512,n=512,k=512,dtype=float32"),
        ({"suite": "autotvm-resnet18"}, 12, None),
        ({"suite": "bert_base:batch=2"}, None, None),
        ({"suite": ["metaschedule-ops", "autotvm-resnet18"]}, 23, None),
    ],
)
def test_workloads(given: object, count: int | None, first: str | None) -> None:
    found = cells(from_data({**WORK, "workloads": given, "seeds": 0}))
    assert count is None or len(found) == count
    assert first is None or found[0].workload == first
    assert all(c.task and c.table is None for c in found)


def test_measure_becomes_what_measurers_take() -> None:
    found = from_data({**WORK, "measure": {"local": {"repeats": 5, "cache": "cold", "run_s": 3, "early_stop": None}}})
    settings = found.measure.settings
    assert settings.protocol == Protocol(repeats=5, cache="cold", early_stop=None)  # type: ignore[union-attr]
    assert settings.limits == Limits(run_s=3)  # type: ignore[union-attr]
    assert settings.options == {"workers": 1, "builders": None, "cores": None, "devices": None}


def test_settings_of_measurers_are_those_they_have() -> None:
    import inspect

    from searchlab.lab.config.measuring import LocalMeasure, Ray, Replay
    from searchlab.measure.cluster import RayMeasurer
    from searchlab.measure.local import LocalMeasurer
    from searchlab.measure.recorded.replayer import ReplayMeasurer

    for kind, measurer in [(LocalMeasure(), LocalMeasurer), (Ray(), RayMeasurer), (Replay(), ReplayMeasurer)]:
        assert kind.options.keys() <= inspect.signature(measurer).parameters.keys()


# --- effort -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EFFORTS)
def test_effort_fills_what_is_not_said(name: str) -> None:
    found, effort = from_data({**WORK, "effort": name}), EFFORTS[name]
    assert (found.budget.trials, found.budget.batch, len(found.seeds)) == (effort.trials, effort.batch, effort.seeds)
    assert found.measure.settings.repeats == effort.repeats


def test_what_is_said_wins_over_effort() -> None:
    given = {**WORK, "effort": "full", "budget": {"trials": 3}, "seeds": 9, "measure": {"local": {"repeats": 2}}}
    found = from_data(given)
    assert (found.budget.trials, found.seeds, found.measure.settings.repeats) == (3, (9,), 2)
    assert found.budget.batch == EFFORTS["full"].batch


def test_a_budget_in_seconds_has_no_trials() -> None:
    assert from_data({**WORK, "budget": {"seconds": 5}}).budget.trials is None
    assert from_data(WORK, ["budget.seconds=5"]).budget.trials is None


# --- overrides --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a,b", ["a", "b"]),
        (
            "{evolutionary: {population: 3, mutation: 1}}, local",
            ["{evolutionary: {population: 3, mutation: 1}}", " local"],
        ),
        ("'a,b',\"c,d\"", ["'a,b'", '"c,d"']),
        ("[1, 2],[3]", ["[1, 2]", "[3]"]),
        ("a", ["a"]),
    ],
)
def test_commas(text: str, parts: list[str]) -> None:
    assert split(text) == parts


def test_commas_of_a_workload_are_its_own() -> None:
    assert split("matmul:m=64,n=32,softmax:rows=8,relu", workloads=True) == [
        "matmul:m=64,n=32",
        "softmax:rows=8",
        "relu",
    ]
    found = from_data(WORK, ["workloads=matmul:m=64,n=32,softmax:rows=8,cols=16", "seeds=1,2"])
    assert len(found.workloads) == 2 and found.seeds == (1, 2)


def test_overrides_change_settings() -> None:
    given = [
        "budget.trials=3",
        "strategy={local: {start: 4}}",
        "strategy.kick=2",
        "measure.repeats=2",
        "name=b",
        "space=template",
    ]
    found = from_data(WORK, given)
    assert found.budget.trials == 3 and found.strategy == {"local": {"start": 4, "kick": 2}}
    assert found.measure.settings.repeats == 2 and found.name == "b" and found.space == "template"
    assert from_data(WORK, ["measure.local.repeats=2"]).measure == found.measure


def test_commas_make_a_sweep() -> None:
    assert entries(from_data(TABLE, ["strategy=random,local"])) == ["random", "local"]
    assert entries(from_data(TABLE, ["budget.trials=8,16"])) == ["trials=8", "trials=16"]


def test_an_override_ends_a_sweep_over_the_same_key() -> None:
    given = {**TABLE, "sweep": {"strategy": ["random", "local"], "budget.trials": [8, 16]}}
    assert entries(from_data(given, ["strategy=grid"])) == ["trials=8", "trials=16"]
    assert entries(from_data(given, ["strategy=grid,bayesian", "budget.trials=4"])) == ["grid", "bayesian"]


def test_an_override_may_take_away_what_statements_are_about(tmp_path: Path) -> None:
    claims = [{"better": "local", "than": "random"}, {"better": "grid", "than": "random"}]
    given = {
        **TABLE,
        "sweep": {"strategy": ["random", "local", "grid"]},
        "expect": claims,
        "report": {"baseline": "local"},
    }
    found = from_data(given, ["strategy=random,grid"])
    assert [c.better for c in found.expect] == ["grid"] and found.report.baseline is None
    (tmp_path / "again.yaml").write_text(dump(found))
    assert load(tmp_path / "again.yaml") == found
    assert len(from_data(given, ["seeds=1"]).expect) == 2
    with pytest.raises(ConfigError, match="no entry is called 'locl'"):
        from_data({**given, "report": {"baseline": "locl"}}, ["seeds=1"])


def test_later_overrides_win() -> None:
    assert from_data(TABLE, ["seeds=1", "seeds=2"]).seeds == (2,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("strategi=random", "unknown key 'strategi'; did you mean 'strategy'?"),
        ("random", "an override is key=value"),
        ("=3", "an override is key=value"),
        ("strategy=", "the value is missing"),
        ("strategy=rndom", "unknown strategy 'rndom'; did you mean 'random'?"),
        ("strategy=random,rndom", "unknown strategy 'rndom'"),
        ("strategy.population=many", "population is 'many'"),
        ("budget.trials=0", "budget.trials is 0; accepted: at least 1"),
        ("budget.trails=3", "unknown key 'trails' in 'budget'; did you mean 'trials'?"),
        ("seeds=[1", "invalid YAML"),
        ("seeds=yes", "'yes' is a boolean"),
        ("sweep.strategy=[a]", "a sweep is written strategy=random,local"),
        ("include=x.yaml", "files are included by files"),
        ("measure.ray.slots=2", "measure is replay here, not ray"),
        ("name.x=3", "'name' has no parts"),
        ("strategy..x=3", "'strategy' has no parts"),
    ],
)
def test_a_wrong_override_is_named(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_data({**TABLE, "strategy": "evolutionary"}, [text])
    assert any(p.startswith(f"override '{text}': ") and message in p for p in caught.value.problems), caught.value


def test_an_override_cannot_take_one_of_several_apart() -> None:
    given = {**TABLE, "sweep": [{"strategy": "random"}, {"strategy": "local"}]}
    with pytest.raises(ConfigError, match="together with others"):
        from_data(given, ["strategy=grid"])


# --- tables -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    import shutil
    from importlib.resources import files

    shipped = Path(str(files("searchlab") / "data" / "recorded"))
    for name in ("matmul-256", "softmax-128x1024"):
        (tmp_path / "tables").mkdir(exist_ok=True)
        shutil.copy(shipped / f"{name}.json", tmp_path / "tables" / f"mine-{name}.json")
        shutil.copy(shipped / f"{name}.csv.xz", tmp_path / "tables")  # the header says what they are called
    return tmp_path


@pytest.mark.parametrize(
    ("given", "labels"),
    [
        ("tables/mine-matmul-256.json", ["mine-matmul-256"]),
        ("tables", ["mine-matmul-256", "mine-softmax-128x1024"]),
        ("tables/*soft*.json", ["mine-softmax-128x1024"]),
        ("tables/*", ["mine-matmul-256", "mine-softmax-128x1024"]),
        (["matmul-256", "tables/mine-matmul-256.json"], ["matmul-256", "mine-matmul-256"]),
    ],
)
def test_tables_are_sought_beside_the_file(folder: Path, given: object, labels: list[str]) -> None:
    (folder / "e.yaml").write_text(f"workloads: [{{table: {json.dumps(given)}}}]\nseeds: 0\nstrategy: random\n")
    found = cells(load(folder / "e.yaml"))
    assert [c.task for c in found] == labels
    assert all(c.table is not None and (c.table == c.task or Path(c.table).is_file()) for c in found)


def test_a_table_is_the_same_wherever_it_lies(folder: Path) -> None:
    (folder / "e.yaml").write_text("workloads: [{table: tables/mine-matmul-256.json}]\n")
    before = [c.id for c in cells(load(folder / "e.yaml"))]
    (folder / "tables").rename(folder / "moved")
    (folder / "e.yaml").write_text("workloads: [{table: moved/mine-matmul-256.json}]\n")
    assert [c.id for c in cells(load(folder / "e.yaml"))] == before


def test_a_resolved_file_may_lie_anywhere(folder: Path) -> None:
    (folder / "e.yaml").write_text("workloads: [{table: tables}]\n")
    (folder / "run").mkdir()
    found = load(folder / "e.yaml")
    (folder / "run" / "experiment.yaml").write_text(dump(found))
    assert load(folder / "run" / "experiment.yaml") == found


def test_folders_of_converted_tables(tmp_path: Path) -> None:
    names = ("gemm@A100", "conv@A100", "gemm@W7800")
    files = [{"file": f"{n}.csv.xz", "params": {"tile": [1, 2]}} for n in names]
    (tmp_path / "index.json").write_text(json.dumps({"files": files}))
    columns = "tile,status,time_ms,compile_ms,verify_ms,n_runs,framework_ms"
    for name in names:
        (tmp_path / f"{name}.csv.xz").write_bytes(lzma.compress(f"{columns}\n# {name}\n".encode()))
    (tmp_path / "e.yaml").write_text("workloads: [{table: 'gemm@*'}]\nseeds: 0\n")
    assert [c.task for c in cells(load(tmp_path / "e.yaml"))] == ["gemm@A100", "gemm@W7800"]
    (tmp_path / "e.yaml").write_text("workloads: [{table: conv@A100}]\nseeds: 0\n")
    assert [c.task for c in cells(load(tmp_path / "e.yaml"))] == ["conv@A100"]
    (tmp_path / "conv@A100.csv.xz").write_bytes(lzma.compress(b"tile,time\n1,2\n"))
    wrong = "conv@A100.csv.xz has no column 'status': expected the columns tile, status, time_ms, .*; found tile, time"
    with pytest.raises(ConfigError, match=wrong):
        load(tmp_path / "e.yaml")


# --- anything at all --------------------------------------------------------------------------------------------------

KEYS = st.sampled_from(
    [
        *Source.model_fields,
        "grid",
        "zip",
        "list",
        "remove",
        "replace",
        "path",
        "base",
        "name",
        "replay",
        "local",
        "trials",
    ]
    + [
        "strategy.population",
        "budget.trials",
        "measure.replay.workers",
        "strategy.a.b",
        "evolutionary",
        "table",
        "",
        "..",
        "on",
    ]
)
WORDS = st.sampled_from(
    [
        "random",
        "local",
        "matmul",
        "matmul-256",
        "0..3",
        "",
        "*",
        "a:b",
        "native:x",
        "os:path",
        "json:",
        "sketch",
        "full",
        "/",
    ]
)
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 2**62), st.floats(allow_nan=False, allow_infinity=False), WORDS
)
ANYTHING = st.recursive(LEAVES, lambda x: st.lists(x, max_size=3) | st.dictionaries(KEYS, x, max_size=3), max_leaves=8)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(Source.model_fields.keys() - {"include"})), ANYTHING, max_size=4))
def test_anything_is_accepted_or_refused(data: dict[str, Any]) -> None:
    try:
        found = from_data({**TABLE, **data})
    except ConfigError as e:
        assert e.problems and all("\n" not in p for p in e.problems)
    else:
        assert from_data(found.resolved()) == found


@settings(max_examples=200, deadline=None)
@given(st.text(st.sampled_from("ab:-[]{},&*!|>'\"%@`?#\n\t 01.e_<~=\x07\u00e9"), max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        read(text, "f.yaml")
    except ConfigError as e:
        assert all(p.startswith("f.yaml:") and "\n" not in p for p in e.problems)


def test_a_component_that_breaks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_module.py").write_text("1 / 0\n")
    (tmp_path / "breaking_class.py").write_text(
        "from searchlab.strategies import Random\n\n\nclass Breaks(Random):\n"
        "    def __init__(self, space, rng, size: int = 3):\n        raise KeyError(size)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="strategy 'broken_module:X' cannot be imported: ZeroDivisionError"):
        from_data({**TABLE, "strategy": "broken_module:X"})
    with pytest.raises(ConfigError, match="strategy 'breaking_class:Breaks' cannot be made: KeyError: 7"):
        from_data({**TABLE, "strategy": {"breaking_class:Breaks": {"size": 7}}})
    with pytest.raises(ConfigError, match="size is 'x'; accepted: a whole number"):
        from_data({**TABLE, "strategy": {"breaking_class:Breaks": {"size": "x"}}})


def test_libraries_are_baselines_of_workloads_only() -> None:
    assert from_data({**WORK, "report": {"baseline": "numpy"}}).report.baseline == "numpy"
    with pytest.raises(ConfigError, match="baseline: no entry is called 'numpy'"):
        from_data({**TABLE, "report": {"baseline": "numpy"}})


def test_a_folder_with_an_index_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "index.json").write_text("[]")
    (tmp_path / "e.yaml").write_text("workloads: [{table: nothing}]\n")
    with pytest.raises(ConfigError, match="there is no recorded table 'nothing'"):
        load(tmp_path / "e.yaml")


def test_a_table_that_is_gone_when_cells_are_made(folder: Path) -> None:
    (folder / "e.yaml").write_text("workloads: [{table: tables/mine-matmul-256.json}]\n")
    found = load(folder / "e.yaml")
    (folder / "tables" / "mine-matmul-256.json").unlink()
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        cells(found)


def test_a_workload_that_breaks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_operator.py").write_text("raise RuntimeError('no luck')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="operator 'broken_operator:f' cannot be imported: RuntimeError: no luck"):
        from_data({"workloads": ["broken_operator:f"]})


# --- what fits --------------------------------------------------------------------------------------------------------


def made_of(data: dict[str, Any], *overrides: str) -> dict[str, tuple[Any, Any]]:
    """Model and strategy of all entries."""
    return {c.entry: (c.model, c.strategy) for c in cells(from_data(data, overrides))}


ON_TABLE, ON_TASK = {"workloads": [{"table": "matmul-256"}]}, {"workloads": ["matmul"]}
KNOBS = {"gbt": {"view": "knobs"}}


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (ON_TABLE, ("none", "bayesian")),
        (ON_TASK, ("gbt", "evolutionary")),
        ({**ON_TABLE, "model": "auto", "strategy": "auto"}, ("none", "bayesian")),
        ({**ON_TASK, "model": {"auto": None}, "strategy": {"auto": {}}}, ("gbt", "evolutionary")),
        ({**ON_TABLE, "model": KNOBS}, (KNOBS, "evolutionary")),
        ({**ON_TASK, "model": None}, ("none", "evolutionary")),
        ({**ON_TABLE, "strategy": "local"}, ("none", "local")),
    ],
)
def test_what_is_not_chosen_fits_the_workloads(data: dict[str, Any], found: tuple[Any, Any]) -> None:
    assert list(made_of(data).values()) == [found]
    (cell,) = {c.entry: c for c in cells(from_data(data))}.values()
    assert "auto" not in json.dumps([cell.config, cell.factors, dump(from_data(data))])


def test_all_that_is_compared_gets_the_same_strategy() -> None:
    """Otherwise an ablation of the model would take the strategy away, too."""
    both = {"none": ("none", "evolutionary"), "gbt": (KNOBS, "evolutionary")}
    assert made_of({**ON_TABLE, "sweep": {"model": ["none", KNOBS]}}) == both
    assert made_of(ON_TABLE, "model=none,{gbt: {view: knobs}}") == both
    ablated = made_of({**ON_TABLE, "model": KNOBS, "ablate": {"remove": {"cost model": {"model": "none"}}}})
    assert ablated == {"full": (KNOBS, "evolutionary"), "without cost model": ("none", "evolutionary")}
    listed = {
        **ON_TABLE,
        "sweep": [{"name": "a", "model": KNOBS, "strategy": "auto"}, {"name": "b", "strategy": "local"}],
    }
    assert made_of(listed) == {"a": (KNOBS, "evolutionary"), "b": ("none", "local")}


def test_options_are_those_of_what_fits() -> None:
    found = made_of(ON_TASK, "strategy.population=64", "model.rounds=20")
    assert list(found.values()) == [({"gbt": {"rounds": 20}}, {"evolutionary": {"population": 64}})]
    assert made_of(ON_TABLE, "strategy=auto,random").keys() == {"bayesian", "random"}
    with pytest.raises(ConfigError, match="strategy 'auto' takes no options"):
        from_data({**ON_TABLE, "strategy": {"auto": {"population": 64}}})
