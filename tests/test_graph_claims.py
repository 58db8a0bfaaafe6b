"""The command of exact claims about graphs: its figures are those of plans, and all that should hold do."""

import json

import pytest

from benchmarks import graph_claims
from benchmarks.graph_models import transformer_layers
from searchlab.graph.passes.memory_plan import plan_memory


def test_a_row_says_whether_its_claim_held() -> None:
    row = graph_claims._row
    assert [row("a", "b", v, 0.7)["held"] for v in (0.7, 0.71)] == [True, False]
    assert [row("a", "b", v, 0.7, at_most=False)["held"] for v in (0.7, 0.69)] == [True, False]
    assert row("a", "b", 3.0)["held"] is None


@pytest.mark.parametrize("group", [g for g in graph_claims.GROUPS if g != "deduction"])
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
