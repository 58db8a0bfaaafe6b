"""Experiments of run folders: the same ones again, and those of other versions as far as they are understood."""

from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from searchlab.lab.config import dump, from_data
from searchlab.lab.config.restoring import restored

WORK: dict[str, Any] = {
    "name": "w",
    "workloads": ["matmul", "gone.module:operator:m=3"],
    "space": {"nobody:Space": {"option": 1}},
    "seeds": "0..3",
    "measure": {"local": {"repeats": 3}},
    "report": {"tie": 0.04, "baseline": {"space": "template"}},
    "expect": [{"better": "a", "than": "b", "by": 2.0}],
}


@pytest.mark.parametrize(
    "data",
    [
        {"workloads": ["matmul"], "sweep": {"strategy": ["random", "local"]}, "effort": "smoke"},
        {"workloads": [{"table": "matmul-256"}], "expect": {"same": "*", "as": "*"}, "report": {"metrics": ["auc"]}},
        {"workloads": [{"network": {"name": "n", "tasks": {"matmul": 2}}}], "seeds": [3, 1]},
    ],
)
def test_a_resolved_experiment_is_the_same_again(data: dict[str, Any]) -> None:
    found = from_data(data)
    again = restored(yaml.safe_load(dump(found)))
    assert again == found and again.entries[0].factors == found.entries[0].factors


def test_nothing_that_it_names_needs_to_be_there() -> None:
    found = restored(WORK)
    assert found.seeds == (0, 1, 2, 3) and found.report.tie == 0.04 and found.report.alpha == 0.05
    assert found.expect[0].by == 2.0 and found.measure.kind == "local"


@pytest.mark.parametrize(
    "change",
    [
        {"measure": {"local": {"option_of_another_version": 1}}},
        {"measure": {"telepathy": {}}},
        {"budget": {"trials": "many"}},
        {"seeds": "some"},
        {"version": 2, "novelty": True},
    ],
)
def test_settings_of_other_versions_are_left_at_their_defaults(change: dict[str, Any]) -> None:
    found = restored({**WORK, **change})
    assert found.report.tie == 0.04 and found.seeds and found.measure.kind == "local" and found.version == 1


@pytest.mark.parametrize("change", [{"report": {"tie": "small"}}, {"expect": [{"better": "a"}]}, {"name": 3}])
def test_what_readers_rely_on_is_checked(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        restored({**WORK, **change})
