"""Noise estimates on times drawn from known distributions, and the command that prints them."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from searchlab.cli import app
from searchlab.errors import MeasureError
from searchlab.measure import Job, Measurer, Outcome
from searchlab.measure import noise as noises
from searchlab.measure.noise import (
    Floor,
    ProtocolNoise,
    Visit,
    choose,
    cut,
    disturbed,
    drift,
    floor,
    judge,
    judge_ranking,
    kendall,
    rank_again,
    relative,
    repeats_of,
    sample,
    trials_of,
    visit_slices,
)
from searchlab.targets import parse
from searchlab.workloads import workload

PRODUCT = workload("matmul", m=4, n=4, k=4)


class Fake(Measurer[Job]):
    """Times of 0.25 ms with noise within a visit and between visits; samples are as long as the protocol wants."""

    def __init__(self, within: float = 0.02, between: float = 0.0, fail: str = "") -> None:
        self.within, self.between, self.fail = within, between, fail
        self.generator = np.random.default_rng(0)
        self.seen: list[Job] = []

    def measure(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        for job in jobs:
            self.seen.append(job)
            if self.fail:
                yield Outcome(job.id, "crash", error=self.fail)
                continue
            seconds = 0.25e-3 * (1.0 + 0.1 * (len(job.id) % 7)) * math.exp(self.generator.normal(0.0, self.between))
            number = max(1, round(job.protocol.min_repeat_ms * 1e-3 / 0.25e-3))
            times = seconds * np.exp(self.generator.normal(0.0, self.within, job.protocol.repeats))
            pulses = (50e-6,) * job.protocol.repeats
            notes = {"preempted": "2 of 10"}
            yield Outcome(job.id, "ok", tuple(times.tolist()), number=number, notes=notes, pulses=pulses)


def job(name: str = "a") -> Job:
    return Job(name, PRODUCT, parse("x86-64-v3"), PRODUCT.program)


def visits(count: int, within: float, between: float = 0.0, seed: int = 0) -> list[Visit]:
    """Slices of exactly 1 ms."""
    g = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        level = 1e-3 * math.exp(g.normal(0.0, between))
        found.append(Visit(tuple((level * np.exp(g.normal(0.0, within, 600))).tolist()), 1e-3, 0.05))
    return found


# --- A/A --------------------------------------------------------------------------------------------------------------


def test_independent_noise_shrinks_with_all_that_is_averaged() -> None:
    found = {(p.repeats, p.min_repeat_ms, p.estimator): p for p in judge(visits(60, 0.03)).protocols}
    assert len(found) == 4 * 3 * 2
    for (repeats, ms, estimator), p in found.items():
        if estimator == "median":
            # the error of a median of means, and of a difference of two such
            deviation = 0.03 / math.sqrt(ms) * (1.0 if repeats == 1 else 1.25 / math.sqrt(repeats)) * math.sqrt(2)
            for kind in (p.turns, p.sequence, p.apart):
                assert kind.p95 == pytest.approx(1.96 * deviation, rel=0.45)
                assert kind.median == pytest.approx(0.674 * deviation, rel=0.45)
        assert p.timing_s == pytest.approx(repeats * ms * 1e-3)


def test_noise_between_processes_is_seen_only_between_them() -> None:
    p = next(p for p in judge(visits(60, 0.005, between=0.05)).protocols if (p.repeats, p.min_repeat_ms) == (9, 5.0))
    assert p.turns.p95 < 0.01
    assert p.sequence.p95 < 0.01
    assert p.apart.p95 == pytest.approx(1.96 * 0.05 * math.sqrt(2), rel=0.3)


def test_slow_changes_spare_those_that_take_turns() -> None:
    wave = 1e-3 * (1.0 + 0.2 * np.sin(np.arange(600) / 100))
    p = next(
        p for p in judge([Visit(tuple(wave.tolist()), 1e-3)] * 4).protocols if (p.repeats, p.min_repeat_ms) == (5, 5.0)
    )
    assert p.turns.p95 < p.sequence.p95 / 2


def test_a_slow_kernel_has_long_slices() -> None:
    slow = [Visit(tuple([0.01] * 60), 0.01)] * 3
    timing = {(p.repeats, p.min_repeat_ms): p.timing_s for p in judge(slow).protocols}
    assert timing[3, 1.0] == timing[3, 5.0] == pytest.approx(0.03)
    assert timing[3, 20.0] == pytest.approx(0.06)
    assert visit_slices(0.05) < 2 * visit_slices(0.01) < 20 * visit_slices(0.001)


def test_the_cheapest_good_protocol_is_chosen() -> None:
    noise = judge(visits(60, 0.02))
    choice = choose(noise, 0.02)
    assert choice.reached
    assert choice.protocol.apart.p95 <= 0.02
    good = [p for p in noise.protocols if p.estimator == "median" and p.apart.p95 <= 0.02]
    assert choice.protocol.timing_s == min(p.timing_s for p in good)


def test_without_a_good_protocol_the_best_is_named() -> None:
    noise = judge(visits(30, 0.01, between=0.2))
    choice = choose(noise, 0.02)
    assert not choice.reached
    lowest = min(p.apart.p95 for p in noise.protocols if p.estimator == "median")
    near = [p for p in noise.protocols if p.estimator == "median" and p.apart.p95 <= 1.25 * lowest]
    assert choice.protocol.timing_s == min(p.timing_s for p in near)


def test_a_protocol_with_few_pairs_is_not_trusted() -> None:
    few, many = (Floor(0.001, 0.001, 3), Floor(0.01, 0.01, 100))
    cheap = ProtocolNoise(3, 1.0, False, "median", 0.003, few, few, few)
    known = ProtocolNoise(9, 1.0, False, "median", 0.009, many, many, many)
    noise = replace(judge(visits(2, 0.01)), protocols=(cheap, known))
    assert choose(noise, 0.02).protocol is known


def test_steady_trials_leave_slow_moments_out() -> None:
    """Spells of 30 slices at half the speed, which the pulse shows."""
    g = np.random.default_rng(0)
    found = []
    for _ in range(20):
        slowness = np.repeat(g.choice([1.0, 2.0], 30, p=[0.6, 0.4]), 30)
        times = 1e-3 * slowness * np.exp(g.normal(0.0, 0.01, 900))
        found.append(Visit(tuple(times.tolist()), 1e-3, 0.05, pulses=tuple((50e-6 * slowness).tolist())))
    noise = judge(found)
    assert noise.slow == pytest.approx(0.4, abs=0.08)
    (plain, steady) = (
        next(p for p in noise.protocols if (p.repeats, p.min_repeat_ms, p.steady) == (15, 1.0, s))
        for s in (False, True)
    )
    assert plain.apart.p95 > 0.5 and steady.apart.median < 0.01
    assert plain.timing_s == pytest.approx(0.015) and 0.015 < steady.timing_s < 0.045


def test_trials_are_cut_as_a_sampler_would_take_them() -> None:
    row = np.arange(12.0)
    trials, taken = trials_of(row, np.zeros(12), 5)
    assert trials.tolist() == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]] and taken == [5, 5]
    slow = np.array([0, 9, 9, 0, 0, 0, 9, 8, 9, 7, 9, 9])
    trials, taken = trials_of(row, slow, 2)
    assert trials.tolist() == [[0, 3], [4, 5], [7, 9]] and taken == [4, 2, 6]  # the last two are the least slow of six


def test_noise_takes_two_visits() -> None:
    with pytest.raises(ValueError, match="two visits"):
        judge(visits(1, 0.01))


def test_drift_and_disturbance() -> None:
    assert drift([np.full(10, 1.0)] * 10) == 0.0
    assert drift([np.full(10, 1.0 + 0.01 * n) for n in range(10)]) == pytest.approx(1.085 / 1.005 - 1.0)
    assert disturbed(np.array([1.0] * 80 + [1.5] * 20)) == 0.2


def test_arithmetic() -> None:
    assert cut(np.arange(7.0), 3).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert repeats_of(np.arange(6.0), 2).tolist() == [0.5, 2.5, 4.5]
    assert relative(np.array([1.0, 3.0, 9.0]), np.array([3.0, 3.0])).tolist() == [1.0, 0.0]
    nothing = floor(np.array([]))
    assert nothing.pairs == 0
    assert math.isinf(nothing.p95)


# --- sampling ---------------------------------------------------------------------------------------------------------


def test_visits_come_from_the_measurer() -> None:
    fake = Fake()
    found = list(sample(fake, job(), seconds=0.0, least=3))
    assert len(found) == 3
    assert [j.protocol.check for j in fake.seen] == [True, False, False, False]
    assert {j.protocol.min_repeat_ms for j in fake.seen} == {1.0}
    assert all(len(v.times) * v.slice_s >= 2 * 15 * 0.02 for v in found)
    assert all(v.slice_s == pytest.approx(1e-3, rel=0.7) for v in found)
    assert judge(found).preempted == pytest.approx(3 * 2 / sum(len(v.times) for v in found))


def test_a_kernel_that_fails_is_an_error() -> None:
    with pytest.raises(MeasureError, match="crash: killed"):
        list(sample(Fake(fail="killed"), job(), seconds=0.0))
    with pytest.raises(MeasureError, match="candidate 'a:0'"):
        rank_again(Fake(fail="killed"), [job()], seconds=0.0)


# --- rankings ---------------------------------------------------------------------------------------------------------


def test_kendall() -> None:
    a = np.array([1.0, 2.0, 3.0, 4.0])
    assert kendall(a, a * 2) == 1.0
    assert kendall(a, -a) == -1.0
    assert kendall(a, np.array([2.0, 1.0, 3.0, 4.0])) == pytest.approx(1.0 - 2.0 / 6.0)


def test_steady_rankings_agree() -> None:
    found = judge_ranking(np.tile([3.0, 1.0, 2.0], (5, 1)))
    assert (found.tau, found.same_best, found.regret, found.rounds) == (1.0, 1.0, 0.0, 5)
    assert found.gap == pytest.approx(1.0)


def test_random_rankings_do_not() -> None:
    g = np.random.default_rng(0)
    found = judge_ranking(np.exp(g.normal(0.0, 0.1, (100, 6))))
    assert abs(found.tau) < 0.05
    assert found.same_best == pytest.approx(1 / 6, abs=0.05)


def test_the_regret_is_what_luck_costs() -> None:
    """Half of the rounds choose the second, which is 10 % slower."""
    found = judge_ranking(np.array([[1.0, 1.1], [1.0, 1.1], [1.0, 1.1], [1.2, 1.1], [1.2, 1.1], [1.0, 1.1]]))
    assert found.regret == pytest.approx(0.1 / 3)


def test_rankings_are_measured_in_rounds() -> None:
    fake = Fake()
    figures = rank_again(fake, [job("a"), job("bb")], seconds=0.0, least=3)
    assert figures.shape == (3, 2)
    assert [j.id for j in fake.seen] == ["a:0", "bb:0", "a:1", "bb:1", "a:2", "bb:2"]
    assert [j.protocol.check for j in fake.seen] == [True] * 2 + [False] * 4


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("searchlab.cli.output.out._width", 160)
    monkeypatch.setattr(noises, "MIN_REPEAT_MS", (1.0, 5.0))

    def call(measurer: Measurer[Job], *args: str) -> Any:
        monkeypatch.setattr("searchlab.cli.noise._measurer", lambda: measurer)
        return CliRunner().invoke(app, ["noise", "--seconds", "0", *args])

    return call


def test_the_command_names_a_protocol(run: Any) -> None:
    found = run(Fake(within=0.001))
    assert found.exit_code == 0, found.output
    for text in ("matmul(m=256", "in turns", "apart", "resolves 2.0 %", "repeats=3", "Kendall's tau", "next:"):
        assert text in found.stdout
    assert "No protocol" not in found.stdout


def test_the_command_admits_defeat(run: Any) -> None:
    found = run(Fake(within=0.5, between=0.5), "softmax:rows=4,cols=8")
    assert found.exit_code == 0, found.output
    for text in ("softmax", "No protocol resolves 2.0 %", "The machine was busy"):
        assert text in found.stdout


def test_the_command_prints_json(run: Any) -> None:
    found = run(Fake(), "--json", "--goal", "5")
    assert found.exit_code == 0, found.output
    lines = [json.loads(line) for line in found.stdout.splitlines()]
    kinds = [line["kind"] for line in lines]
    assert kinds == ["protocol"] * 32 + ["noise", "choice", "ranking"]
    assert {"repeats", "min_repeat_ms", "steady", "estimator", "timing_s", "turns", "sequence", "apart"} <= set(
        lines[0]
    )
    assert set(lines[0]["apart"]) == {"median", "p95", "pairs"}
    assert {"drift", "preempted", "disturbed", "slow", "run_s", "overhead_s", "visits"} <= set(lines[-3])
    assert len(lines[-1]["candidates"]) == len(lines[-1]["seconds"]) == 6


def test_the_command_takes_one_workload(run: Any) -> None:
    assert run(Fake(), "resnet50").exit_code == 2
    assert run(Fake(), "matmul:m=?").exit_code == 2
    assert run(Fake(fail="killed by SIGILL")).exit_code == 2
