"""The command of claims about graphs: exact figures are those of plans and hold; timed ones are ratios of times."""

import json

import numpy as np
import pytest

from benchmarks import graph_claims, timed_graph_claims
from benchmarks.claim_rows import claim_row
from benchmarks.graph_models import transformer_layers
from searchlab.graph import CompiledModel, GraphBuilder, compile
from searchlab.graph.passes.memory_plan import plan_memory
from searchlab.targets import parse
from searchlab.timing.turns import Times


def test_a_row_says_whether_its_claim_held() -> None:
    assert [claim_row("a", "b", v, 0.7)["held"] for v in (0.7, 0.71)] == [True, False]
    assert [claim_row("a", "b", v, 0.7, at_most=False)["held"] for v in (0.7, 0.69)] == [True, False]
    assert claim_row("a", "b", 3.0)["held"] is None


@pytest.mark.parametrize("group", [g for g in graph_claims.EXACT if g != "deduction"])
def test_claims_hold(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Where scores are held, the target is missed against searchlab's own pool by up to 0.04: see docs/graphs.md."""
    graph_claims.main(["--json", "--only", group])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    missed = {(r["case"], r["metric"]) for r in rows if r["held"] is False}
    assert rows and all("-scores/" in case and metric == "bounds / pool" for case, metric in missed)
    assert all(r["value"] < 0.74 for r in rows if (r["case"], r["metric"]) in missed)


def test_figures_are_those_of_the_plan() -> None:
    rows = {(r["case"], r["metric"]): r for r in graph_claims.memory_rows()}
    arena = plan_memory(transformer_layers(128)).arena
    assert rows["128-scores/up", "bounds / pool"]["bounds_bytes"] == arena
    assert rows["128-scores/short", "bounds / pool"]["value"] > 10  # where planning for the bound loses
    assert rows["128-scores", "totals of bounds over all series"]["value"] == 1


def test_deduction_is_timed_at_every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_claims, "_deduction_seconds", lambda count: 1e-5 * count)
    first, second = graph_claims.deduction_rows()
    assert first["value"] == 1.0 and first["held"] and second["held"]
    monkeypatch.setattr(graph_claims, "_deduction_seconds", lambda count: 1e-9 * count**2)
    assert not next(graph_claims.deduction_rows())["held"]


def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    graph_claims.main(["--only", "workspace"])
    assert "two products in parts" in (text := capsys.readouterr().out) and " ok " in text


# --- timed ones: everything but the clock -----------------------------------------------------------------------------


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Times by the name of a contender, instead of a race."""
    seconds = {"before": 2e-3, "after": 2e-3, "never": 3e-3, "own": 1e-3, "library": 2e-3, "each": 1e-3, "once": 1e-3}

    def race(runs: dict[str, object], *_: object) -> dict[str, Times]:
        return {name: Times(seconds[name], seconds[name], 1) for name in runs}

    monkeypatch.setattr(timed_graph_claims, "race", race)
    return seconds


def test_ratios_are_those_of_times(made_up: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Models are compiled and compared for real."""
    monkeypatch.setattr(timed_graph_claims, "CONVS", ((4, 4, 6, 3, 2, True),))
    rows = list(timed_graph_claims.order_rows())
    assert {r["case"] for r in rows} == {"3x3 4-4 at 6, stride 2, added", "product, reshaped", "geometric mean"}
    assert {r["value"] for r in rows if r["metric"] == "after / before"} == {1.0}
    assert [r["held"] for r in rows[-2:]] == [True, True]
    made_up["after"] = 4e-3
    assert [r["held"] for r in list(timed_graph_claims.order_rows())[-2:]] == [False, False]


def test_models_that_differ_are_not_timed(made_up: dict[str, float]) -> None:
    def model(factor: float) -> CompiledModel:
        b = GraphBuilder()
        return compile(b.build(b.input("x", (4,)) * factor), parse("native:threads=1"))

    x = (np.ones(4, "float32"),)
    assert timed_graph_claims._seconds({"before": model(2.0), "never": model(2.0)}, x)["never"] == 3e-3
    with pytest.raises(SystemExit, match="results of 'never' are not those of 'before'"):
        timed_graph_claims._seconds({"before": model(2.0), "never": model(2.1)}, x)


def test_a_row_of_a_page() -> None:
    row = {"group": "order", **claim_row("3x3", "never / after", 1.23456, 1.0, at_most=False)}
    assert graph_claims.table_row(row) == "| order | 3x3 | never / after, at least 1 | 1.23 | **held** |"
