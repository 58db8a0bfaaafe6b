"""Boards: who is ranked, with whom, what is said about them, and in which forms."""

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest
from lab.made import failed_cell, made_run, renamed, timed

from searchlab.errors import ResultError
from searchlab.lab.leaderboard import FORMS, board_sheets, boards, cards, comparison_sheets, pools, recorded_tables
from searchlab.lab.leaderboard.sheet_columns import seconds
from searchlab.lab.report import Report
from searchlab.lab.results import Run
from searchlab.lab.statistics import ComparedBy, ComparisonSettings, Verdict, compare
from searchlab.measure.recorded.tables import load

TASKS = ["matmul", "conv2d", "softmax"]


def test_ranks_follow_the_tests():
    (board,) = boards([made_run({"slow": 1.5, "fast": 1.0, "also-fast": 1.0}, TASKS)])
    assert {(s.entry, s.rank) for s in board.standings} == {("fast", 1), ("also-fast", 1), ("slow", 3)}
    assert board.standings[-1].entry == "slow"
    assert board.answer in (
        "fast and also-fast are better than slow and are equal within the tie band of 2 %.",
        "also-fast and fast are better than slow and are equal within the tie band of 2 %.",
    )
    assert not board.notes
    (slow,) = [s for s in board.standings if s.entry == "slow"]
    assert (slow.trials, slow.wall_s, slow.tasks, slow.seeds, slow.cells) == (40, 60, 3, 10, 30)
    assert slow.device_s == pytest.approx(0.35 * 60)


def test_one_winner():
    (board,) = boards([made_run({"slow": 1.5, "fast": 1.0}, TASKS)])
    assert board.answer == "fast is better than slow."


def uneven_run() -> Run:
    """Sure always beats slow; bold is far better or far worse than both, so that nothing can be said of it."""
    run = made_run(["bold", "sure", "slow"], ["matmul"], 20, noise=0.0)
    times = {"sure": (0.9, 0.9), "slow": (1.0, 1.0), "bold": (0.5, 1.3)}
    cells = [timed(c, 1e-3 * times[c.entry][c.seed % 2]) for c in run.cells if c.best]
    return replace(run, cells=tuple(cells))


def test_who_is_beaten_by_anyone_does_not_lead():
    run = uneven_run()
    (board,) = boards([run])
    ranking = board.comparison.ranking
    assert set(ranking.cliques) == {("sure", "bold"), ("bold", "slow")}
    assert {(s.entry, s.rank) for s in board.standings} == {("bold", 1), ("sure", 1), ("slow", 2)}
    said = "No entry is better than sure or bold, which cannot be told apart; the other one is beaten by some entry."
    assert board.answer == Report.of([run]).headline.text == said


@pytest.mark.parametrize(
    ("better", "said"),
    [
        ({("bold", "sure"), ("bold", "slow")}, "bold is better than all others."),
        (
            {("bold", "sure"), ("sure", "slow")},
            "bold is better than 1 of 2 others and cannot be told apart from the rest.",
        ),
        (
            {("bold", "slow")},
            "No entry is better than sure or bold, which cannot be told apart; the other one is beaten by some entry.",
        ),
        ({("sure", "slow"), ("bold", "slow")}, "sure and bold are better than slow and cannot be told apart."),
        ({("bold", "sure"), ("sure", "slow"), ("slow", "bold")}, "Every entry is beaten by another one."),
        (set(), "sure, bold and slow differ by Friedman's test, but no two of them can be told apart."),
    ],
)
def test_the_answer_says_no_more_than_the_tests(better: set[tuple[str, str]], said: str):
    (board,) = boards([uneven_run()])
    ranking = board.comparison.ranking
    verdicts = {**dict.fromkeys(better, Verdict.FASTER), **{(b, a): Verdict.SLOWER for a, b in better}}
    pairs = tuple(replace(p, verdict=verdicts.get((p.a, p.b), Verdict.UNKNOWN)) for p in ranking.pairs)
    assert replace(board.comparison, ranking=replace(ranking, pairs=pairs)).answer == said


def test_machines_are_not_ranked_together_unless_asked_to():
    runs = [made_run(["a"]), made_run(["b"], machine="other")]
    one, two = boards(runs)
    assert (one.where, two.where) == ("made-up-cpu", "other")
    (both,) = boards(runs, together=True)
    assert {s.entry for s in both.standings} == {"a", "b"}
    assert any("times of 2 machines" in n for n in both.notes)


def test_replays_of_the_same_tables_are_ranked_together():
    runs = [made_run(["a"], recorded=True), made_run(["b"], recorded=True, machine="other")]
    (pool,) = pools(runs)
    assert pool.recorded and pool.where == "recorded tables"
    other = made_run(["c"], {"matmul": 0.5}, recorded=True)
    assert len(pools([*runs, other])) == 2  # a table of the same name with other times


def test_an_entry_without_all_tasks_is_shown_but_not_ranked():
    full = made_run({"a": 1.0, "b": 1.2}, TASKS)
    part = made_run({"c": 0.5}, TASKS[:1], rng=np.random.default_rng(1))
    (board,) = boards([full, part])
    assert [s.rank for s in board.standings] == [1, 2, None]
    last = board.standings[-1]
    assert (last.entry, last.why, last.group) == ("c", "1 of 3 tasks", "")
    assert last.score.value > 0.9  # it holds the best known time of its task, and others are measured by it
    assert board.standings[0].score.value < 0.99
    assert any("c has 1 of 3 tasks and is not ranked" in n for n in board.notes)


@pytest.mark.parametrize(
    "cells",
    [
        made_run(["a"], ["t"], seeds=1).cells,
        (failed_cell("a", "t", 0),),
        (failed_cell("a", "t", 0), failed_cell("b", "t", 0)),
        (*made_run(["a"], ["t"], seeds=3).cells, failed_cell("b", "t", 0), failed_cell("b", "t", 7)),
        tuple(replace(c, state="waiting") for c in made_run(["a"], ["t"], seeds=2).cells),
        (*made_run(["a", "b"], ["t"], seeds=2).cells[:3],),
        made_run(["a", "b", "c"], ["t"], seeds=4, noise=0.0, failing=0.0).cells,
        made_run(["a", "b"], ["t"], trials=0, seeds=2).cells,
        made_run(["a", "b"], ["t"], trials=1, seeds=2, failing=0.0).cells,
    ],
)
@pytest.mark.parametrize("metric", ["final", "log-time"])
def test_every_form_of_poor_data(cells, metric):
    run = Run("poor", cells, machine={"cpu": "x"})
    found = boards([run], ComparisonSettings(metric=metric))
    sheets = [s for b in found for s in board_sheets(b)]
    sheets += comparison_sheets(compare(run.cells, settings=ComparisonSettings(metric=metric)), "x")
    assert any(b.notes for b in found)
    for form in FORMS.values():
        text = form(sheets).lower()
        assert "nan" not in text and "inf" not in text.replace("info", "")


def test_forms_agree():
    (board,) = boards([made_run({"a|b": 1.0, "100%_x": 1.3, "<c>": 1.5}, TASKS)])
    sheets = board_sheets(board)
    rows = list(csv.DictReader(io.StringIO(FORMS["csv"](sheets))))
    (data,) = json.loads(FORMS["json"](sheets))
    assert [r["entry"] for r in rows] == [r["entry"] for r in data["rows"]] == ["a|b", "100%_x", "<c>"]
    assert float(rows[0]["score_low"]) == data["rows"][0]["score_low"] <= data["rows"][0]["score"]
    assert data["friedman"]["p_f"] < 0.05 and len(data["pairs"]) == 3
    assert "a\\|b" in FORMS["markdown"](sheets)
    assert r"100\%\_x" in FORMS["latex"](sheets)
    assert "&lt;c&gt;" in FORMS["html"](sheets)


def test_scores_against_random_search():
    table = load("matmul-256")
    run = made_run({"good": 1.0, "bad": 1.4}, {"matmul-256": table.best}, seeds=4, recorded=True)
    tables, missing = recorded_tables([run])
    assert (list(tables), missing) == (["matmul-256"], ())
    (board,) = boards([run], tables=tables)
    good, bad = board.standings
    assert good.versus_random.value > bad.versus_random.value
    assert board.budget == 40 and good.device_s is None
    assert any("first 40 measurements" in m for m in board.method)


def test_a_table_that_is_not_here_or_another():
    run = made_run(["a"], {"matmul-256": 1.0, "nowhere": 1.0}, seeds=1, recorded=True)
    tables, missing = recorded_tables([run])
    assert (tables, missing) == ({}, ("matmul-256", "nowhere"))


def test_cards():
    run = made_run({"a": 1.0, "b": 1.2}, TASKS, seeds=3)
    (card,) = cards([run], "b")
    assert (card.seeds, card.machine, card.command) == ((0, 1, 2), "made-up-cpu", "searchlab run made.yaml")
    assert [t.task for t in card.tasks] == TASKS
    assert card.tasks[0].best_s <= card.tasks[0].median_s and card.tasks[0].best == "s0 tile=8"
    with pytest.raises(ResultError, match="no entry 'c'; entries: a, b"):
        cards([run], "c")


def test_cards_of_namesakes():
    one = made_run(["a"], ["t"], seeds=2)
    two = replace(one, name="two", cells=tuple(renamed(c, id=c.id + "'") for c in one.cells))
    (card,) = cards([one, two], "a (two)")
    assert card.run == "two"
    assert len(cards([one, two], "a")) == 2


def test_comparison_with_a_control_tells_no_groups():
    run = made_run({"a": 1.0, "b": 1.3, "c": 1.0}, TASKS)
    found = compare(run.cells, ComparedBy(), ComparisonSettings(control="b"))
    levels, against = comparison_sheets(found, "here")
    assert "group" not in levels.header and len(against.body) == 2
    assert levels.answer == "Against b: faster: a, c."
    with pytest.raises(ResultError, match="no 'd' to compare with; compared: a, b, c"):
        compare(run.cells, ComparedBy(), ComparisonSettings(control="d"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "finale"}, "unknown metric 'finale'; did you mean 'final'"),
        ({"unit": "seeds"}, "unknown unit 'seeds'; did you mean 'seed'"),
        ({"alpha": 0.0}, "between 0 and 1"),
        ({"band": -0.1}, "not negative"),
        ({"metric": "time", "to": "torch"}, "relative to the best known"),
    ],
)
def test_settings_that_make_no_sense(options, message):
    with pytest.raises(ResultError, match=message):
        ComparisonSettings(**options)


@pytest.mark.parametrize(("value", "text"), [(0.5, "0.5 s"), (99.0, "99 s"), (720.0, "12 min"), (7200.0, "2 h")])
def test_costs(value, text):
    assert seconds(value) == text
