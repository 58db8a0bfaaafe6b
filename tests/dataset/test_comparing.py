"""Models compared on data: figures that are right, operators left out, and the command line around all of it."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up_programs import AVX2, MadeUpMeasurer, recorded
from typer.testing import CliRunner

from searchlab.cli import app
from searchlab.dataset.archive import Recording, load, part_name
from searchlab.dataset.comparing import compare, unprepared
from searchlab.dataset.judging import RankScore, mean_ranking, ranking
from searchlab.dataset.stored import StoredTask
from searchlab.errors import RecordError
from searchlab.search import MODELS, CostModel, History, Points, Space, Task
from searchlab.search.knob import Floats
from searchlab.search.pair_order import in_order
from searchlab.workloads import parse

WORK = ("matmul:m=24,n=32,k=16", "matmul:m=16,n=48,k=40", "softmax:rows=16,cols=32")


@cache
def tasks() -> tuple[StoredTask, ...]:
    return tuple(recorded(work, 30) for work in WORK)


class Knowing(CostModel):
    """Knows every time: the bound of what a model can do."""

    name = "knowing"
    view = "summary"
    known: list[str] = []

    def fit(self, history: History) -> None:
        type(self).known = [t.task for t in history if len(t)]

    def predict(self, space: Space, points: Points) -> Floats:
        (stored,) = (t for t in tasks() if t.name == space.name)
        assert stored.name not in self.known, "it has seen what it is asked about"
        return np.nan_to_num(stored.seconds, posinf=1e9)[points.options[:, 0]]


# --- figures ----------------------------------------------------------------------------------------------------------


def test_figures_of_a_ranking() -> None:
    seconds = np.array([*np.geomspace(1.0, 50.0, 40), np.inf])
    perfect, reverse = ranking(seconds, seconds), ranking(-np.arange(41.0), seconds)
    assert perfect == RankScore(1.0, 1.0, 1.0, 1.0)
    assert reverse is not None and reverse.pairs == 0.0 and reverse.recall == 0.0
    assert reverse.regret == pytest.approx(seconds[33])  # of the eight favourites one failed
    constant = ranking(np.zeros(41), seconds)
    assert constant is not None and constant.pairs == 0.5
    assert ranking(np.zeros(3), np.array([1.0, np.inf, np.inf])) is None
    assert in_order(np.array([2.0, 1.0]), np.array([1.0, 1.001]), same=0.03) == 0.5  # the same, within the noise
    lost = ranking(-np.arange(41.0), np.array([1.0] * 20 + [2.0] + [np.inf] * 20))
    assert lost is not None and lost.regret == 2.0  # nothing that was picked worked
    assert mean_ranking([RankScore(0.5, 0.5, 0.0, 1.0), RankScore(1.0, 0.7, 1.0, 4.0)]).regret == pytest.approx(2.0)


def test_an_operator_is_ranked_by_models_that_have_not_seen_it() -> None:
    MODELS.add(Knowing)
    try:
        scores = list(compare(tasks(), ["knowing", "random", "none"]))
    finally:
        MODELS._added.pop("knowing")
    assert [(s.model, s.operator, s.tasks) for s in scores[:3]] == [
        ("knowing", "matmul", 2), ("knowing", "softmax", 1), ("knowing", "", 3),
    ]  # fmt: skip
    assert all(s.ranking == RankScore(1.0, 1.0, 1.0, 1.0) for s in scores[:3])
    chance = scores[5].ranking
    assert chance is not None and 0.3 < chance.pairs < 0.7
    assert all(s.ranking is None for s in scores[6:])
    with pytest.raises(RecordError, match="needs tasks of 2 operators.*found: matmul"):
        list(compare(tasks()[:2], ["random"]))


def test_no_model_starts_from_what_has_seen_the_operator() -> None:
    assert unprepared("gbt") == {"gbt": {"pretrained": False}}
    assert unprepared({"gbt": {"pretrained": True}}) == {"gbt": {"pretrained": True}}  # unless it is asked for
    assert unprepared("roofline") == {"roofline": {}}
    inner = {"base": {"gbt": {"pretrained": False, "rounds": 3}}, "count": 2}
    assert unprepared({"ensemble": {"base": {"gbt": {"rounds": 3}}, "count": 2}}) == {"ensemble": inner}
    assert unprepared("transfer") == {"transfer": {"base": {"gbt": {"pretrained": False}}}}


@pytest.mark.parametrize("name", ["transfer", "treegru"])
def test_models_of_all_views_learn_from_stored_programs(name: str) -> None:
    pytest.importorskip("xgboost")
    options: dict[str, Any] = {"batches": 20} if name == "treegru" else {}
    if options:
        pytest.importorskip("torch")
    *_, total = compare(tasks(), [{name: options}])
    assert total.ranking is not None and total.ranking.pairs > 0.4 and total.ranking.regret >= 1.0


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "programs.zip"
    recording = Recording(path)
    for work, stored in zip(WORK, tasks(), strict=True):
        recording.add(part_name(Task(parse(work), AVX2)), stored)
    recording.pack()
    return path


def call(*args: object) -> Any:
    return CliRunner().invoke(app, ["models", *map(str, args)])


def test_bench_prints_a_table_and_rows(data: Path) -> None:
    shown = call("bench", data, "--models", "roofline,costmodels.simple:RandomModel")
    assert shown.exit_code == 0, shown.output
    lines = [line.split() for line in shown.output.splitlines() if line.startswith(("matmul", "softmax", "all"))]
    assert [line[:3] for line in lines] == [
        [n, "roofline", c] for n, c in (("matmul", "2"), ("softmax", "1"), ("all", "3"))
    ]
    assert "best of 8" in shown.output and shown.output.count("costmodels.simple:RandomModel") >= 3
    raw = call("bench", data, "--models", "roofline", "--json")
    rows = [json.loads(line) for line in raw.stdout.splitlines()]
    assert {(r["case"], r["metric"]) for r in rows} >= {("roofline/all", "pairs"), ("roofline/softmax", "regret")}
    assert all(0 <= r["value"] <= 1 for r in rows if r["metric"] in ("pairs", "top_pairs", "recall"))


def test_bad_requests_are_refused(data: Path, tmp_path: Path) -> None:
    for args, said in (
        (("bench", data, "--models", "gbtt"), "did you mean 'gbt'"),
        (("bench", tmp_path / "no.zip"), "there is no data set"),
        (("train", data, "-o", tmp_path / "t", "--model", "roofline"), "starts from nothing"),
        (("train", data, "-o", tmp_path / "t"), "training needs tasks of 2 operators and 6 workloads"),
        (("record", "-o", data), "--resume adds the tasks"),
        (("record", "-o", tmp_path / "new.zip", "--tasks", "matmull"), "accepted: a number up to"),
    ):
        result = call(*args)
        assert result.exit_code == 2 and said in " ".join(result.output.split()), result.output
    assert not (tmp_path / "t").exists()


def test_a_recording_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measurer = MadeUpMeasurer()
    monkeypatch.setattr("searchlab.measure.local.LocalMeasurer", lambda **_: measurer)
    path = tmp_path / "programs.zip"
    args = ("record", "-o", path, "--tasks", "softmax:rows=16,cols=32", "--programs", 6)
    first = call(*args)
    assert first.exit_code == 0 and "1 tasks in" in first.output, first.output
    again = call(*args, "--resume", "--json")
    (row,) = (json.loads(line) for line in again.stdout.splitlines())
    assert row["value"] == 0 and row["reason"] == "recorded before" and len(load(path)) == 1
