"""The benchmark of networks' kernels: kernels have programs and names of their own, and rows add up."""

import json

import pytest

from benchmarks import model_kernels
from benchmarks.kernel_graphs import BERT, DECODER, GraphCase
from searchlab.targets import detect


def test_names_are_unique_and_tell_the_network() -> None:
    names = [c.name for c in model_kernels.CASES]
    assert len(set(names)) == len(names)
    assert {n.partition("/")[0] for n in names} == {"resnet", "mobilenet", "bert", "bert-n", "step", "prompt"}


@pytest.mark.parametrize("case", [*BERT, *DECODER], ids=lambda c: c.name)
def test_operators_become_one_program(case: GraphCase) -> None:
    program, values = case.program()
    assert len(values) == len(program.inputs) and set(values) == set(case.shapes)
    assert len(program.outputs) == 1 and bool(program.sizes) == (case.length > 1)


def test_rows_of_small_kernels(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(model_kernels, "THREADS", min(2, detect().cores))
    monkeypatch.setattr("sys.argv", ["model_kernels", "--json", "--only", "step/r", "--seconds", "0.01"])
    model_kernels.main()
    *rows, total = map(json.loads, capsys.readouterr().out.splitlines())
    assert [r["case"] for r in rows] == ["step/rms-norm", "step/rope"] and total["case"] == "step/all"
    assert all(r["value"] == pytest.approx(r["best_ms"] / r["ours_ms"], rel=0.05) for r in rows)
    assert total["ours_ms"] == pytest.approx(sum(r["count"] * r["ours_ms"] for r in rows), rel=0.05)
