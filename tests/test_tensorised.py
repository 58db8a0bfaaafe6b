"""The benchmark of spaces with intrinsics: its figures, from searches and races that are made up."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import tensorised
from searchlab.search import SPACES
from searchlab.workloads import parse


def test_trials_to_a_level() -> None:
    seconds = [math.inf, 5.0, 3.0, 4.0]
    assert tensorised.trials_to(seconds, 5.0) == 2
    assert tensorised.trials_to(seconds, 3.5) == 3
    assert tensorised.trials_to(seconds, 1.0) == math.inf


def test_every_case_is_compared_in_every_space(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, str, str]] = []

    def search(case: tensorised.SearchCase, space: str, intrinsics: str, *_: Any) -> tensorised.SearchEnd:
        asked.append((case.name, space, intrinsics))
        # calls are as good after 8 trials as loops after all, and then twice as good
        found = [4.0] * 64 if intrinsics == "never" else [9.0] * 7 + [4.0] * 8 + [2.0] * 49
        return tensorised.SearchEnd(found, parse(case.workload).program)

    def race(runs: dict[str, Any], *_: float, **__: int) -> dict[str, Any]:
        return {k: SimpleNamespace(min=2.0 if k == tensorised.WITH else 4.0) for k in runs}

    monkeypatch.setattr(tensorised, "search", search)
    monkeypatch.setattr(tensorised, "race", race)
    monkeypatch.setattr(tensorised, "prepare_program", lambda *_: (None, []))
    tensorised.main(["--json"])
    lines = capsys.readouterr().out.splitlines()
    assert len(asked) == 2 * len(tensorised.CASES) * len(SPACES.names())
    assert {kind for name, _, kind in asked if name == "matmul-f32"} == {"always", "never"}
    assert {kind for name, _, kind in asked if name != "matmul-f32"} == {"auto", "never"}
    assert len(lines) == 2 * (len(tensorised.CASES) + 1) * len(SPACES.names())
    assert sum('"metric": "best", "value": 2.0' in line for line in lines) == len(lines) / 2
    assert sum('"metric": "trials", "value": 8.0' in line for line in lines) == len(lines) / 2
    tensorised.main(["--only", "qdense", "--space", "template"])
    assert capsys.readouterr().out.count(" ok") == 4
