"""The benchmark of searches: figures from searches and a race, results that are kept, the file of known programs."""

import json
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest

from benchmarks import best_known, quality
from benchmarks.best_known import KnownProgram
from searchlab.defaults import default_schedule
from searchlab.search import Task
from searchlab.targets import parse as target
from searchlab.workloads import parse

AVX2, AVX512 = target("x86-64-v3"), target("x86-64-v4")
CASE = quality.Case("small", "matmul:m=8,n=8,k=8")


def known(name: str, ms: float = 1.0) -> KnownProgram:
    return KnownProgram(ms, "somebody", "", name, {})


def run(early: str | None, best: str, wall: float = 5.0, origin: str = "search") -> dict[str, Any]:
    programs = {"early": None if early is None else vars(known(early)), "best": vars(known(best))}
    return {"wall_s": wall, "build_share": 0.5, "origin": origin, **programs}


RACE = {
    "default": "d",
    "other_load": 0.0,
    "ms": {"a": 2.0, "b": 1.25, "c": 1.6, "k": 1.0, "d": 1.5, "numpy": 3.0, "torch": 2.5, "onnxruntime": 2.0},
}


@pytest.fixture(autouse=True)
def no_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quality, "cap", lambda: "")


def test_figures_compare_what_was_raced() -> None:
    found = quality.figures(CASE, [run("a", "b"), run(None, "c", origin="default")], RACE, ["k", "gone"])
    values = {metric: list(by_seed) for metric, by_seed in found.by_metric.items()}
    assert values["best16_of_known"] == [0.5, 0.0]  # nothing worked
    assert values["best64_of_known"] == [0.8, 0.625]
    assert values["found64_over_default"] == pytest.approx([1.2, 0.9375])
    assert values["best64_over_default"] == pytest.approx([1.2, 1.0])  # the default schedule was taken home
    assert values["best64_over_library"] == pytest.approx([1.6, 4 / 3])
    assert found.library == "onnxruntime" and found.known == 1


def test_onnxruntime_does_not_count_on_a_capped_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quality, "cap", lambda: "x86-64-v3")
    assert quality.figures(CASE, [run("a", "b")], RACE, []).library == "torch"


def test_rows_have_every_metric_then_the_mean_and_the_worst(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = default_schedule(CASE.task.program, CASE.task.target)
    searches: list[tuple[str, int]] = []

    def searched(case: quality.Case, seed: int) -> dict[str, Any]:
        searches.append((case.name, seed))
        found = vars(KnownProgram.of(program, "a test"))
        return {"wall_s": 4.0 + seed, "build_share": 0.5, "origin": "search", "early": found, "best": found}

    def raced(case: quality.Case, programs: Any) -> dict[str, Any]:
        assert set(programs) == {program.hash}
        ms = 2.0 if case.name == "small" else 4.0
        return {"default": "d", "other_load": 0.0, "ms": {program.hash: ms, "d": 2.0, "numpy": 4.0}}

    monkeypatch.setattr(quality, "searched", searched)
    monkeypatch.setattr(quality, "raced", raced)
    cases = [CASE, quality.Case("other", CASE.spec)]
    rows = list(quality.rows(cases, 3, tmp_path / "results.jsonl"))
    assert all({"case", "metric", "value", "target"} <= set(row) for row in rows)
    value = {(row["case"], row["metric"]): row for row in rows}
    assert {metric for _, metric in value} == {*quality.TARGETS, "ms"}
    assert value["other", "best64_over_default"]["value"] == 0.5
    assert value["mean", "best64_over_default"]["value"] == pytest.approx(0.5**0.5, abs=1e-3)
    assert value["mean", "best64_over_default"]["target"] == 1.1
    assert value["worst", "best64_over_default"]["of"] == "other"
    assert value["worst", "best64_over_default"]["target"] == 0.97
    assert (value["median", "wall_s"]["value"], value["worst", "wall_s"]["value"]) == (5.0, 6.0)
    assert value["small", "best16_of_known"]["known"] == "none: the best of this run"
    assert len(searches) == 6
    assert list(quality.rows(cases, 3, tmp_path / "results.jsonl")) == rows and len(searches) == 6  # none is repeated
    list(quality.rows([CASE], 4, tmp_path / "results.jsonl"))
    assert searches[6:] == [("small", 3)]


def test_results_of_other_code_or_machines_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "results.jsonl"
    assert quality.Results(path).of(("search", "small", 0), lambda: {"x": 1}) == {"x": 1}
    assert quality.Results(path).of(("search", "small", 0), lambda: {"x": 2}) == {"x": 1}
    assert quality.Results(path).searches(CASE) == [{"x": 1}]
    monkeypatch.setattr(quality, "commit", lambda: "another")
    assert quality.Results(path).of(("search", "small", 0), lambda: {"x": 3}) == {"x": 3}
    assert "1 of 1 lines are of other code" in capsys.readouterr().err
    assert len({json.loads(line)["commit"] for line in path.read_text().splitlines()}) == 2


def test_a_search_gives_programs_that_can_be_raced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quality.Study, "finish", partialmethod(quality.Study.finish, seconds=0.0, most=0.0))
    monkeypatch.setattr(quality, "_MOST_S", 0.0)
    found = quality.searched(CASE, seed=0, trials=4)
    assert found["wall_s"] > 0 and 0 <= found["build_share"] <= 1 and found["origin"] in ("search", "default")
    programs = {e["hash"]: KnownProgram(**e).made() for e in (found["early"], found["best"])}
    assert all(program.hash == name for name, program in programs.items())
    race = quality.raced(CASE, programs)
    assert {*programs, race["default"], "numpy"} <= set(race["ms"])


# --- the file of known programs ---------------------------------------------------------------------------------------


def test_known_programs_survive_the_file(tmp_path: Path) -> None:
    programs = {t.name: default_schedule(Task(parse(CASE.spec), t).program, t) for t in (AVX2, AVX512)}
    entries = {name: [KnownProgram.of(p, "a test", "point", 1.5)] for name, p in programs.items()}
    path = tmp_path / "known.json"
    best_known.write({"small": entries, "empty": {}}, path)
    found = best_known.read(path)
    assert found == {"small": entries, "empty": {}}
    assert [e.made().hash for by in found["small"].values() for e in by] == [p.hash for p in programs.values()]
    assert best_known.read(tmp_path / "none.json") == {}


def test_what_cannot_be_read_is_skipped_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    good = KnownProgram.of(parse(CASE.spec).program, "a test")
    assert list(best_known.usable([known("broken"), good])) == [good.hash]
    assert "skipping" in capsys.readouterr().err


def test_the_best_few_are_kept_once() -> None:
    entries = [known("slow", 2.0), known("close", 1.02), known("closer", 1.01), known("best", 1.0), known("best", 1.0)]
    assert [e.hash for e in best_known.better(entries)] == ["best", "closer"]
    assert [e.hash for e in best_known.better(entries[:1])] == ["slow"]


def test_instruction_sets_have_names() -> None:
    assert [best_known.instruction_set(t) for t in (AVX2, AVX512, target("neoverse-n1"))] == ["avx2", "avx512", "neon"]  # type: ignore[arg-type]


def test_every_known_program_is_of_a_case() -> None:
    for case, by in best_known.read().items():
        assert case in quality.CASES
        for entries in by.values():
            assert 1 <= len(best_known.usable(entries)) == len(entries)
            assert entries == sorted(entries, key=lambda e: e.ms)
