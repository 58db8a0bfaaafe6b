"""Re-measurement: lucky times do not become incumbents, real improvements do, ties are called ties."""

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from searchlab.measure import Job, Measurer, Outcome
from searchlab.measure.confirm import confirm
from searchlab.targets import parse
from searchlab.timing.ratios import bootstrap, ratio_interval
from searchlab.workloads import workload

Draw = Callable[[np.random.Generator], float]
PRODUCT = workload("matmul", m=4, n=4, k=4)


class Fake(Measurer[Job]):
    """Draws times from distributions instead of taking them; `drift` slows everything down from job to job."""

    def __init__(self, draws: dict[str, Draw], seed: int = 0, drift: float = 0.0) -> None:
        self.draws, self.drift, self.seen = draws, drift, list[Job]()
        self.generator = np.random.default_rng(seed)

    def measure(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        for job in jobs:
            self.seen.append(job)
            draw = self.draws[job.id.partition(":")[0]]
            slower = 1.0 + self.drift * len(self.seen)
            times = tuple(slower * draw(self.generator) for _ in range(job.protocol.repeats))
            if any(math.isinf(t) for t in times):
                yield Outcome(job.id, "crash", error="killed by SIGSEGV")
            else:
                yield Outcome(job.id, "ok", times, number=1)


def job(name: str) -> Job:
    return Job(name, PRODUCT, parse("x86-64-v3"), PRODUCT.program)


def steady(seconds: float, noise: float = 0.02) -> Draw:
    return lambda g: seconds * math.exp(g.normal(0.0, noise))


def preempted(seconds: float, share: float = 0.15) -> Draw:
    """One sample in seven met another program."""
    return lambda g: seconds * math.exp(g.normal(0.0, 0.01)) * (1.0 + (g.random() < share) * g.exponential(2.0))


def broken(_: np.random.Generator) -> float:
    return math.inf


# --- confirm ----------------------------------------------------------------------------------------------------------


def test_an_improvement_is_confirmed() -> None:
    fake = Fake({"new": steady(0.9e-3), "old": steady(1e-3)})
    found = confirm(fake, job("new"), job("old"))
    assert found.confirmed
    assert found.low <= found.ratio <= found.high < 1.0
    assert found.ratio == pytest.approx(0.9, rel=0.03)
    assert found.seconds == pytest.approx(0.9e-3, rel=0.03)
    assert found.incumbent_seconds == pytest.approx(1e-3, rel=0.03)
    assert found.rounds == 7


def test_a_lucky_outlier_is_rejected() -> None:
    """Its first figure was the best of a hundred draws; the second look draws again."""
    confirmed = [
        confirm(Fake({"new": steady(1e-3, 0.1), "old": steady(1e-3, 0.1)}, seed), job("new"), job("old")).confirmed
        for seed in range(100)
    ]
    assert sum(confirmed) <= 10


def test_an_outlier_costs_few_measurements() -> None:
    fake = Fake({"new": steady(1.2e-3), "old": steady(1e-3)})
    assert not confirm(fake, job("new"), job("old")).confirmed
    assert len(fake.seen) == 6


def test_improvements_survive_preemption() -> None:
    confirmed = [
        confirm(Fake({"new": preempted(0.9e-3), "old": preempted(1e-3)}, seed), job("new"), job("old")).confirmed
        for seed in range(50)
    ]
    assert sum(confirmed) >= 40


def test_drift_does_not_decide() -> None:
    """A machine that slows down by 1 % per measurement: whoever is measured later would lose."""
    better = Fake({"new": steady(0.95e-3, 0.002), "old": steady(1e-3, 0.002)}, drift=0.01)
    assert confirm(better, job("new"), job("old")).confirmed
    equal = [
        confirm(Fake({"new": steady(1e-3, 0.002), "old": steady(1e-3, 0.002)}, s, 0.01), job("new"), job("old"))
        for s in range(20)
    ]
    assert not any(found.confirmed for found in equal)


def test_turns_alternate_and_are_short() -> None:
    fake = Fake({"new": steady(0.5e-3), "old": steady(1e-3)})
    confirm(fake, job("new"), job("old"), rounds=4, repeats=2)
    assert [j.id for j in fake.seen] == ["new:new", "old:old", "old:old", "new:new"] * 2
    assert {(j.protocol.repeats, j.protocol.check, j.protocol.early_stop) for j in fake.seen} == {(2, False, None)}


def test_a_candidate_beside_itself() -> None:
    assert not confirm(Fake({"same": steady(1e-3)}), job("same"), job("same")).confirmed


def test_a_candidate_that_fails_is_not_confirmed() -> None:
    found = confirm(Fake({"new": broken, "old": steady(1e-3)}), job("new"), job("old"))
    assert not found.confirmed
    assert found.error == "crash: killed by SIGSEGV"
    assert math.isinf(found.seconds)


def test_an_incumbent_that_no_longer_runs_gives_way() -> None:
    found = confirm(Fake({"new": steady(1e-3), "old": broken}), job("new"), job("old"))
    assert found.confirmed
    assert found.error.startswith("incumbent: crash")
    assert found.rounds == 0


def test_few_rounds_confirm_nothing() -> None:
    fake = Fake({"new": steady(0.5e-3), "old": steady(1e-3)})
    assert not confirm(fake, job("new"), job("old"), rounds=2).confirmed


# --- run-offs ---------------------------------------------------------------------------------------------------------


# --- statistics -------------------------------------------------------------------------------------------------------


def test_the_interval_covers_the_truth() -> None:
    g = np.random.default_rng(0)
    covered = 0
    for seed in range(200):
        rounds = np.exp(g.normal(0.0, 0.3, 9))  # what the machine did in each round
        pairs = list(
            zip(0.8 * rounds * np.exp(g.normal(0, 0.03, 9)), rounds * np.exp(g.normal(0, 0.03, 9)), strict=True)
        )
        _, low, high = ratio_interval(pairs, 0.9, seed)
        covered += low <= 0.8 <= high
    assert 0.8 <= covered / 200 <= 1.0


def test_the_bootstrap_repeats_itself() -> None:
    values = np.arange(10.0)
    first, second = (bootstrap(values, lambda d: d.mean(axis=1), 0.9, np.random.default_rng(3)) for _ in range(2))
    assert first == second
    assert first[0] < 4.5 < first[1]
