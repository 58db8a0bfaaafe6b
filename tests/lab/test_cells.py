"""Cells: which there are, what they are called, and that what they are decides their id."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab.errors import ConfigError
from searchlab.lab.cells import cells
from searchlab.lab.config import Experiment, dump, from_data, load, matches
from searchlab.lab.manifest import Cell, drift, manifest_data

TABLE = {"name": "t", "workloads": [{"table": "matmul-256"}], "strategy": "random", "seeds": 0}
WORK = {"name": "w", "workloads": ["matmul"], "seeds": 0}


def manifest(experiment: Experiment) -> dict[str, Any]:
    return manifest_data(experiment.name, cells(experiment))


def entries(data: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(c.entry for c in cells(from_data(data))))


# --- names ------------------------------------------------------------------------------------------------------------


def test_one_combination_is_called_by_its_parts() -> None:
    assert entries(WORK) == ["sketch/gbt/evolutionary"]
    assert entries(TABLE) == ["none/random"]


def test_entries_are_called_by_what_varies() -> None:
    sweep = {"space": ["template", "sketch"], "strategy": ["random", "local"]}
    assert entries({**WORK, "sweep": sweep}) == ["template/random", "template/local", "sketch/random", "sketch/local"]


def test_options_are_named_where_they_differ() -> None:
    values = [
        {"evolutionary": {"population": 64, "polish": 0.1}},
        {"evolutionary": {"population": 128, "polish": 0.1}},
        "local",
    ]
    assert entries({**TABLE, "sweep": {"strategy": values}}) == [
        "evolutionary(population=64)",
        "evolutionary(population=128)",
        "local",
    ]


def test_dotted_keys_name_the_option() -> None:
    data = {**TABLE, "strategy": "evolutionary", "sweep": {"strategy.population": [64, 128], "budget.trials": [8, 9]}}
    assert entries(data)[:2] == ["evolutionary(population=64)/trials=8", "evolutionary(population=64)/trials=9"]


def test_a_dotted_key_may_name_the_component() -> None:
    data = {**TABLE, "strategy": "evolutionary", "sweep": {"strategy.evolutionary.population": [64, 128]}}
    assert entries(data) == ["evolutionary(population=64)", "evolutionary(population=128)"]


def test_names_given_in_a_list() -> None:
    sweep = [{"name": "tvm", "space": "template", "strategy": "annealing"}, {"name": "ansor", "space": "sketch"}]
    assert entries({**WORK, "sweep": sweep}) == ["tvm", "ansor"]


def test_values_side_by_side() -> None:
    sweep = {"zip": {"model": ["none", "random"], "strategy": ["random", "local"]}, "grid": {"budget.batch": [1, 2]}}
    assert entries({**TABLE, "sweep": sweep}) == [
        "none/random/batch=1",
        "random/local/batch=1",
        "none/random/batch=2",
        "random/local/batch=2",
    ]


def test_components_of_the_same_class_name_are_told_apart() -> None:
    values = ["random", "searchlab.strategies:Random"]
    assert entries({**TABLE, "sweep": {"strategy": values}}) == ["random", "Random"]


def test_factors_say_all_options() -> None:
    (cell,) = cells(from_data({**TABLE, "strategy": {"local": {"start": 4, "polish": "all"}}}))
    assert cell.factors == {"model": "none", "strategy": "local(start=4, polish=all)"}


def test_ways_to_measure_are_told_apart_by_what_differs() -> None:
    sweep = [{"measure": {"replay": {"workers": 3}}}, {"strategy": "local"}]
    found = cells(from_data({**TABLE, "sweep": sweep}))
    assert [c.entry for c in found] == ["random/replay(workers=3)", "local/replay(workers=1)"]
    assert found[0].factors == {"model": "none", "strategy": "random", "measure": "replay(workers=3)"}


def test_what_is_given_at_its_default_is_the_same_search() -> None:
    sweep = {"measure": ["replay", {"replay": {"workers": 1}}]}
    with pytest.raises(ConfigError, match="are the same search"):
        from_data({**TABLE, "sweep": sweep})


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("local", True), ("loc*", True), ("random", False), ({"strategy": "local"}, True), ({"model": "gbt"}, False),
        ({"strategy": "local(start=4)"}, True), ({"strategy": "local", "model": "none"}, True), ({"space": "x"}, False),
    ],
)  # fmt: skip
def test_selectors(selector: Any, found: bool) -> None:
    assert matches(selector, "local", {"model": "none", "strategy": "local(start=4)"}) is found


# --- ablations --------------------------------------------------------------------------------------------------------

ABLATE = {"remove": {"a": {"strategy.mutation": 0.1}, "b": {"strategy.crossover": 0.0}, "c": {"strategy.polish": 0.5}}}


def test_each_factor_is_left_out() -> None:
    data = {**TABLE, "strategy": "evolutionary", "ablate": ABLATE}
    assert entries(data) == ["full", "without a", "without b", "without c"]
    assert cells(from_data(data))[1].strategy == {"evolutionary": {"mutation": 0.1}}
    assert cells(from_data(data))[0].factors["ablation"] == "full"


def test_a_path_adds_factors_one_after_the_other() -> None:
    data = {**TABLE, "strategy": "evolutionary", "ablate": {**ABLATE, "path": ["b", "a", "c"], "leave_one_out": False}}
    found = {c.entry: c.strategy for c in cells(from_data(data))}
    assert found == {
        "full": "evolutionary",
        "bare": {"evolutionary": {"mutation": 0.1, "crossover": 0.0, "polish": 0.5}},
        "bare+b": {"evolutionary": {"mutation": 0.1, "polish": 0.5}},
        "bare+b+a": {"evolutionary": {"polish": 0.5}},
    }


def test_what_a_path_shares_with_leaving_one_out_is_run_once() -> None:
    data = {**TABLE, "strategy": "evolutionary", "ablate": {**ABLATE, "path": ["b", "a", "c"]}}
    assert entries(data) == ["full", "without a", "without b", "without c", "bare", "bare+b"]


def test_a_base_and_replacements() -> None:
    ablate = {"base": {"strategy": "local"}, "replace": {"annealed": {"strategy": "annealing"}}}
    assert [(c.entry, c.strategy) for c in cells(from_data({**TABLE, "ablate": ablate}))] == [
        ("full", "local"),
        ("annealed", "annealing"),
    ]
    named = {"base": "ours", "replace": {"theirs": {"strategy": "local"}}}
    assert entries({**TABLE, "ablate": named}) == ["ours", "theirs"]


def test_sweeps_are_ablated() -> None:
    data = {**TABLE, "sweep": {"strategy": ["random", "local"]}, "ablate": {"remove": {"half": {"budget.trials": 4}}}}
    assert entries(data) == ["random/full", "random/without half", "local/full", "local/without half"]


def test_a_variant_called_like_another_is_refused() -> None:
    ablate = {"replace": {"full": {"strategy": "local"}}}
    with pytest.raises(ConfigError, match="two combinations are called 'full'"):
        from_data({**TABLE, "ablate": ablate})


# --- ids and manifests ------------------------------------------------------------------------------------------------


def test_an_id_stays_what_it_is() -> None:
    (cell,) = cells(from_data({**TABLE, "budget": {"trials": 8, "batch": 4}}))
    assert cell.config == {
        "table": "matmul-256",
        "digest": "",
        "target": "native",
        "space": None,
        "model": "none",
        "strategy": "random",
        "budget": {"trials": 8, "seconds": None, "batch": 4},
        "measure": {"replay": {"workers": 1, "noise": False, "repeats": None}},
        "seed": 0,
    }
    assert cell.id == "4ca218fd6eec"


def test_names_reports_and_claims_are_no_part_of_an_id() -> None:
    other = {
        **TABLE,
        "name": "other",
        "report": {"alpha": 0.01},
        "expect": [{"better": "*", "than": "*"}],
        "seeds": [0, 1],
    }
    assert cells(from_data(TABLE))[0].id == cells(from_data(other))[0].id


def test_how_a_setting_is_written_is_no_part_of_an_id() -> None:
    spelled = {**TABLE, "strategy": {"random": {}}, "measure": {"replay": None}, "model": None, "seeds": "0..0"}
    assert cells(from_data(TABLE))[0].id == cells(from_data(spelled))[0].id


def test_cells_come_seed_by_seed() -> None:
    data = {**TABLE, "workloads": [{"table": ["matmul-256", "softmax-128x1024"]}], "seeds": [4, 2]}
    found = cells(from_data({**data, "sweep": {"strategy": ["random", "local"]}}))
    assert [(c.seed, c.task[:4], c.entry) for c in found][:5] == [
        (4, "matm", "random"), (4, "matm", "local"), (4, "soft", "random"), (4, "soft", "local"), (2, "matm", "random")
    ]  # fmt: skip
    assert len({c.id for c in found}) == len(found) == 8


def test_manifests_are_json_and_tell_drift() -> None:
    old = json.loads(json.dumps(manifest(from_data(TABLE))))
    assert not drift(old, manifest(from_data({**TABLE, "name": "renamed"})))
    more = drift(old, manifest(from_data({**TABLE, "seeds": [0, 1]})))
    assert more.added == ("none/random on matmul-256, seed 1",) and not more.removed and not more.changed
    gone = drift(manifest(from_data({**TABLE, "seeds": [0, 1]})), old)
    assert gone.removed == ("none/random on matmul-256, seed 1",)
    changed = drift(old, manifest(from_data({**TABLE, "budget": {"trials": 7}})))
    assert changed.changed == ("none/random on matmul-256, seed 0 (budget.trials: 256 -> 7)",)
    assert str(changed) == "1 cells changed, such as none/random on matmul-256, seed 0 (budget.trials: 256 -> 7)"


# --- round trip -------------------------------------------------------------------------------------------------------

STRATEGIES = st.sampled_from(
    [
        "random",
        "local",
        {"local": {"kick": 2}},
        {"evolutionary": {"population": 64}},
        {"annealing": {"steps": 9}},
        "grid",
    ]
)
MODELS = st.sampled_from([None, "none", "random", {"gbt": {"view": "knobs"}}, {"gbt": {"view": "knobs", "eta": 1e-3}}])
SEEDS = st.one_of(
    st.integers(0, 99),
    st.sampled_from(["0..3", "7..7", [1, "3..5"]]),
    st.lists(st.integers(0, 99), min_size=1, unique=True),
)
BUDGETS = st.fixed_dictionaries(
    {}, optional={"trials": st.integers(1, 99), "seconds": st.floats(0.1, 1e6), "batch": st.just(3)}
)


def distinct(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(values, min_size=1, max_size=3, unique_by=json.dumps)


SWEEPS = st.one_of(
    st.fixed_dictionaries(
        {}, optional={"strategy": distinct(STRATEGIES), "budget.trials": distinct(st.integers(1, 9))}
    ),
    st.fixed_dictionaries({"zip": st.just({"model": ["none", "random"], "strategy": ["random", "local"]})}),
    distinct(st.fixed_dictionaries({"strategy": STRATEGIES}, optional={"budget.batch": st.integers(1, 5)})),
)
ABLATIONS = st.sampled_from(
    [{"remove": {"no x": {"budget.batch": 7}}}, {"base": {"model": "none"}, "replace": {"r": {"model": "random"}}}]
)
EXPERIMENTS = st.fixed_dictionaries(
    {"name": st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,12}", fullmatch=True), "strategy": STRATEGIES},
    optional={
        "workloads": st.sampled_from([{"table": "matmul-256"}, [{"table": ["softmax-128x1024", "matmul-256"]}]]),
        "model": MODELS,
        "seeds": SEEDS,
        "budget": BUDGETS,
        "sweep": SWEEPS,
        "ablate": ABLATIONS,
        "effort": st.sampled_from(["smoke", "quick", "full"]),
        "measure": st.sampled_from(["replay", {"replay": {"workers": 3}}, {"replay": {"noise": True, "repeats": 2}}]),
        "report": st.sampled_from([{"baseline": "*", "alpha": 1e-3}, {"title": "yes: 010", "metrics": ["auc"]}]),
        "expect": st.sampled_from([[{"better": "*", "than": "*", "on": "auc", "by": 2}], {"same": "*", "as": "*"}]),
    },
)


@settings(max_examples=60, deadline=None)
@given(EXPERIMENTS)
def test_a_resolved_experiment_gives_the_same_cells(
    tmp_path_factory: pytest.TempPathFactory, data: dict[str, Any]
) -> None:
    data = {"workloads": {"table": "matmul-256"}, **data}
    file = tmp_path_factory.mktemp("round") / "e.yaml"
    file.write_text(yaml.safe_dump(data))
    try:
        found = load(file)
    except ConfigError as e:
        assert "are the same search" in str(e)
        return
    file.write_text(dump(found))
    again = load(file)
    assert again == found
    assert manifest(again) == manifest(found)
    assert dump(again) == dump(found)


# --- what a search starts with ----------------------------------------------------------------------------------------


def test_how_a_search_starts_is_a_setting_like_others() -> None:
    assert [c.start for c in cells(from_data(WORK))] == ["seeds"]
    assert [c.start for c in cells(from_data(WORK, ["start=random"]))] == ["random"]
    assert entries({**WORK, "sweep": {"start": ["seeds", "random"]}}) == ["start=seeds", "start=random"]
    (_, without) = cells(from_data({**WORK, "ablate": {"remove": {"seeds": {"start": "random"}}}}))
    assert (without.entry, without.start, without.factors["start"]) == ("without seeds", "random", "random")


def test_only_a_start_with_seeds_is_part_of_what_a_cell_is() -> None:
    seeds, random = cells(from_data({**WORK, "sweep": {"start": ["seeds", "random"]}}))
    assert seeds.id != random.id and seeds.config == {**random.config, "start": "seeds"}
    for cell in (seeds, random):
        assert Cell.of(cell.row).start == cell.start and Cell.of(cell.row).settings.plain == cell.settings.plain


def test_recorded_tables_start_at_random() -> None:
    (cell,) = cells(from_data(TABLE))
    assert cell.start == "random" and "start" not in from_data(TABLE).resolved()
    assert [c.id for c in cells(from_data({**TABLE, "start": "random"}))] == [cell.id]
    with pytest.raises(ConfigError, match="recorded tables have no seeds to start with"):
        from_data({**TABLE, "start": "seeds"})


def test_an_unknown_start_is_refused_where_it_stands() -> None:
    with pytest.raises(ConfigError, match="start"):
        from_data({**WORK, "start": "warm"})
    with pytest.raises(ConfigError, match="start is one of seeds, random, not 'warm'"):
        from_data({**WORK, "sweep": {"start": ["seeds", "warm"]}})


@pytest.mark.parametrize("start", ["seeds", "random"])
def test_a_resolved_experiment_says_how_its_searches_start(start: str) -> None:
    made = from_data({**WORK, "start": start})
    again = from_data(yaml.safe_load(dump(made)))
    assert [c.id for c in cells(again)] == [c.id for c in cells(made)]
