"""Words follow the tests: no sentence orders entries that the evidence does not order, and all outputs agree."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lab.made import failed_cell, made_run, renamed, saying, timed

from searchlab.lab.leaderboard import boards, comparison_sheets
from searchlab.lab.report.headline import headline
from searchlab.lab.report.material import Material
from searchlab.lab.results import CellResult, Run
from searchlab.lab.run.execute.run_state import against
from searchlab.lab.statistics import ComparisonSettings, Pair, Ranking, Verdict, compare, pairs, pooled, scores
from searchlab.lab.statistics.wording import share_of_optimum

Order = tuple[str, str]  # the better one first
ALPHA = 0.05


def run_of(times: dict[str, Sequence[float]], tasks: int = 1) -> Run:
    """A run whose entries found these times, seed by seed; infinite ones are failures."""
    run = made_run(list(times), [f"t{n}" for n in range(tasks)], len(next(iter(times.values()))), trials=2)
    return replace(run, cells=tuple(_cell(c, times[c.entry][c.seed]) for c in run.cells))


def _cell(cell: CellResult, seconds: float) -> CellResult:
    if np.isinf(seconds):
        return renamed(failed_cell(cell.entry, cell.task, cell.seed), factors=cell.factors)
    return timed(cell, seconds)


@st.composite
def made_up(draw: st.DrawFn) -> Run:
    """Entries that are alike, a little or much better, steady or not, with and without failures."""
    entries = [f"e{n}" for n in range(draw(st.integers(2, 4)))]
    seeds = draw(st.integers(1, 14))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    noise = draw(st.sampled_from([0.0, 0.003, 0.02, 0.3]))
    times = {}
    for entry in entries:
        level = draw(st.sampled_from([1.0, 1.005, 1.014, 1.03, 1.4]))
        found = level * np.exp(noise * rng.standard_normal(seeds))
        found[rng.random(seeds) < draw(st.sampled_from([0.0, 0.0, 0.1, 0.6]))] = np.inf
        if draw(st.booleans()):  # far from the mean now and then, against the direction of the others
            found[rng.integers(seeds)] *= draw(st.sampled_from([0.2, 5.0]))
        times[entry] = found
    return run_of({e: t.tolist() for e, t in times.items()}, draw(st.integers(1, 2)))


# --- what the evidence supports, written down a second time ---------------------------------------------------------


def supported(ranking: Ranking, band: float) -> set[Order]:
    if ranking.friedman is not None and ranking.friedman.p_f >= ALPHA:
        return set()
    return {o for p in ranking.pairs for o in ((p.a, p.b), (p.b, p.a)) if _supported(p, o[0] == p.a, band)}


def _supported(p: Pair, first: bool, band: float) -> bool:
    chance = p.improvement.value if first else 1 - p.improvement.value
    more_failures = p.failed_b > p.failed_a if first else p.failed_a > p.failed_b
    if p.p_holm >= ALPHA or chance <= 0.5:
        return False
    if p.speedup is None:
        return True
    ratio = p.speedup.value if first else 1 / p.speedup.value
    return ratio >= 1 / (1 + band) - 1e-9 if more_failures else ratio > 1 + band - 1e-9


# --- what sentences claim -------------------------------------------------------------------------------------------


def names(text: str) -> list[str]:
    return re.findall(r"e\d", text)


def claimed(sentence: str, ranking: Ranking) -> tuple[set[Order], set[str]]:
    """The orders that a sentence claims and the entries that it says nobody beats; an unknown sentence is an error."""
    every = set(ranking.entries)
    sentence = sentence.removesuffix(".").partition(": ")[0]
    if re.fullmatch(r".* (cannot be told apart|are equal within the tie band of \S+ %)", sentence):
        if m := re.fullmatch(r"(.*) (?:is|are) better than (all others|e\d) and .*", sentence):
            return _all(m[1], m[2], every)
        return set(), set(names(sentence))
    if re.fullmatch(r".* differ by Friedman's test, but no two of them can be told apart", sentence):
        return set(), set(names(sentence))
    if m := re.fullmatch(r"(.*) (?:is|are) better than (all others|e\d)", sentence):
        return _all(m[1], m[2], every)
    if m := re.fullmatch(r"No entry is better than (.*), which .*; .* beaten by some entry", sentence):
        return set(), set(names(m[1]))
    if m := re.fullmatch(r"(e\d) is better than (\d) of \d others and cannot be told apart from the rest", sentence):
        beaten = [other for other in every if ranking.better(m[1], other)]
        assert len(beaten) == int(m[2])
        return {(m[1], other) for other in beaten}, {m[1]}
    if m := re.fullmatch(r"Every entry but (e\d) is beaten by another one", sentence):
        return set(), {m[1]}
    assert sentence == "Every entry is beaten by another one"
    return set(), set()


def _all(winners: str, losers: str, every: set[str]) -> tuple[set[Order], set[str]]:
    better = set(names(winners))
    return {(a, b) for a in better for b in (names(losers) or every - better)}, better


def orders_of_table(rows: Sequence[Sequence[str]]) -> Iterator[Order]:
    """What the table of pairs claims: A, B, what A is."""
    for a, b, word, *_ in rows:
        if word in ("faster", "slower"):
            yield (a, b) if word == "faster" else (b, a)
        else:
            assert word.startswith(("not told apart", "equal within the tie band"))


@settings(max_examples=80)
@given(made_up())
def test_no_sentence_claims_more_than_the_tests_support_and_all_agree(run: Run) -> None:
    material = Material.of([run])
    if not material.working:
        return
    setting = ComparisonSettings.of([run])
    found = compare(pooled([run]), settings=setting)
    (board,) = boards([run], setting)
    (levels, table) = comparison_sheets(found, "here")
    allowed = supported(found.ranking, setting.band)
    unbeaten = {e for e in found.ranking.entries if e not in {worse for _, worse in allowed}}
    said = headline(material)
    for sentence in (found.answer, board.answer, levels.answer, said.text):
        orders, leading = claimed(sentence, found.ranking)
        assert orders <= allowed, sentence
        assert leading == unbeaten, sentence
    assert set(orders_of_table(table.body)) <= allowed
    assert {s.entry for s in board.standings if s.rank == 1} == unbeaten
    for a, b in (o for o in ((a, b) for a in found.ranking.entries for b in found.ranking.entries) if o not in allowed):
        assert f"{a} is better by the tests" not in said.support or f"than {b} with" not in said.support


# --- cases ------------------------------------------------------------------------------------------------------------


def judged(a: Sequence[float], b: Sequence[float], band: float = 0.02) -> Pair:
    (pair,) = pairs(scores(run_of({"a": a, "b": b}).cells), np.random.default_rng(0), band=band)
    return pair


def test_a_small_difference_is_no_victory_however_sure() -> None:
    b = np.linspace(1.0, 1.001, 20)
    pair = judged(b * 0.986, b)
    assert pair.p_holm < 0.001 and pair.wins == 0
    assert (pair.verdict, pair.why) == (Verdict.EQUAL, "it is within the tie band")
    assert compare(run_of({"a": (b * 0.986).tolist(), "b": b.tolist()}).cells).answer == (
        "a and b are equal within the tie band of 2 %."
    )


def test_ranks_against_the_mean_are_no_victory() -> None:
    """Wins nearly always by little, loses seldom by much: the speed-up says the opposite of the test."""
    a = np.full(30, 0.97)
    a[:3] = 3.0
    pair = judged(a, np.linspace(1.0, 1.0001, 30))
    assert pair.p_holm < 0.05 and pair.speedup is not None and pair.speedup.value < 1
    assert (pair.verdict, pair.why.split()[0]) == (Verdict.UNKNOWN, "ranks,")


def test_failures_count_although_the_mean_leaves_them_out() -> None:
    b = [1.0] * 20
    a = [float("inf") if n % 2 else 1.0 for n in range(20)]
    assert judged(a, b).verdict is Verdict.SLOWER
    assert judged(b, a).verdict is Verdict.FASTER
    assert judged([2 * t for t in b], a).verdict is not Verdict.FASTER


def test_a_clear_difference_stays_one_whoever_is_first() -> None:
    a, b = np.linspace(1.0, 1.01, 12), np.linspace(1.2, 1.21, 12)
    assert judged(a, b).verdict is Verdict.FASTER and judged(b, a).verdict is Verdict.SLOWER
    assert judged(a, b).turned.verdict is Verdict.SLOWER
    assert judged(a, b, band=0.5).verdict is Verdict.EQUAL


def test_nobody_is_ahead_of_what_it_cannot_be_told_apart_from() -> None:
    times = np.exp(0.2 * np.random.default_rng(3).standard_normal((2, 12)))
    said = headline(Material.of([run_of({"a": times[0].tolist(), "b": times[1].tolist()})]))
    assert re.fullmatch("(a and b|b and a) cannot be told apart.", said.text)
    assert "beats" not in said.support and "the two cannot be told apart" in said.support


def test_the_experiment_decides_for_all_outputs() -> None:
    run = made_run({"a": 1.0, "b": 1.1}, ["t"], 12, 4, noise=0.01)
    strict = saying(run, report={"alpha": 1e-9, "tie": 0.04})
    assert ComparisonSettings.of([strict]) == ComparisonSettings(alpha=1e-9, band=0.04)
    assert (ComparisonSettings.of([strict], alpha=0.05).alpha, ComparisonSettings.of([run]).band) == (0.05, 0.02)
    assert headline(Material.of([strict])).text.endswith("cannot be told apart.")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (1.0, "100 % of the optimum's speed"),
        (1.0001, "99.9 % of the optimum's speed"),
        (2.0, "50 % of the optimum's speed"),
    ],
)
def test_nothing_reads_as_faster_than_the_optimum(seconds: float, said: str) -> None:
    assert share_of_optimum(seconds, 1.0) == said == against(seconds, {"optimum": 1.0, "numpy": 3.0})
    assert against(2.0, {"numpy": 3.0}) == "1.50x numpy"
