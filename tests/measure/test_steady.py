"""The steady clock: samples from slow moments are taken again, within bounds, and what counts as fast is learnt."""

import math
from collections.abc import Callable

import pytest

from searchlab.llvm.jit import compile_ir
from searchlab.measure import Protocol
from searchlab.runtime import clock_probe
from searchlab.runtime.clock_probe import pulse
from searchlab.targets import parse
from searchlab.timing.probe import Levels
from searchlab.timing.sampler import Sampler, Samples

FAST = 50e-6
FIVE = Protocol(warmup=0, repeats=5, min_repeat_ms=1.0)


class Core:
    """A core with a clock of its own: a run takes `run_s` at full speed, and `slowness` of that at some moment."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, slowness: Callable[[float], float], run_s: float = 2e-3
    ) -> None:
        self.now, self.runs, self.lost, self.slowness, self.run_s = 0.0, 0, 0.0, slowness, run_s
        for name in ("perf_counter", "monotonic"):
            monkeypatch.setattr(f"searchlab.timing.sampler.time.{name}", lambda: self.now)
        monkeypatch.setattr("searchlab.timing.sampler.time.thread_time", lambda: self.now - self.lost)

    def run(self, count: int) -> None:
        self.runs += count
        self.now += count * self.run_s * self.slowness(self.now)

    def pulse(self) -> float:
        took = FAST * self.slowness(self.now)
        self.now += took
        return took

    def take(self, protocol: Protocol = FIVE, level: float | None = None, deadline: float = math.inf) -> Samples:
        evict = self.evict if protocol.cache == "cold" else None
        return Sampler(self.run, protocol, 1, deadline, evict, self.pulse, level).take()

    def evict(self) -> None:
        self.now += 5e-3


def spell(begin: float, end: float) -> Callable[[float], float]:
    """Half as fast for a while."""
    return lambda now: 2.0 if begin <= now < end else 1.0


# --- samples ----------------------------------------------------------------------------------------------------------


def test_a_fast_core_is_sampled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    core = Core(monkeypatch, lambda now: 1.0)
    found = core.take(level=FAST)
    assert core.runs == 5 and found.notes == {}
    assert found.times == pytest.approx([2e-3] * 5) and found.pulses == pytest.approx([FAST] * 5)


def test_samples_of_a_slow_spell_are_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    core = Core(monkeypatch, spell(0.003, 0.012))
    found = core.take()  # nobody knows how fast it can be; the samples themselves say it
    assert found.times == pytest.approx([2e-3] * 5)
    assert core.runs > 5 and found.notes == {"retaken": f"{core.runs - 5} of {core.runs}"}


def test_a_level_from_earlier_jobs_unmasks_a_core_that_is_slow_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    core = Core(monkeypatch, lambda now: 2.0)
    assert core.take().notes == {} and core.runs == 5
    core = Core(monkeypatch, lambda now: 2.0)
    found = core.take(level=FAST)
    assert core.runs == 15 and found.times == pytest.approx([4e-3] * 5)
    assert found.notes == {"slow": "5 of 5: the core was slower than it can be", "retaken": "10 of 15"}


def test_too_few_clean_samples_are_filled_up_with_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    core = Core(monkeypatch, lambda now: max(1.0, 2.0 - 25.0 * now))  # faster from sample to sample
    found = core.take(level=FAST)
    assert core.runs == 15
    assert list(found.times) == sorted(found.times, reverse=True) and found.times[-1] < found.times[0] < 2 * 2e-3
    slow = sum(p > 1.05 * FAST for p in found.pulses)
    assert 0 < slow < 5 and found.notes["slow"].startswith(f"{slow} of 5") and found.notes["retaken"] == "10 of 15"


def test_an_old_level_that_was_too_slow_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    core = Core(monkeypatch, spell(0.0, 0.004))
    assert core.take(level=3 * FAST).times == pytest.approx([2e-3] * 5)


def test_samples_that_lost_their_core_are_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    core = Core(monkeypatch, lambda now: 1.0)
    run = core.run

    def interrupted(count: int) -> None:
        run(count)
        if core.runs in (2, 3):
            core.now, core.lost = core.now + 1e-3, core.lost + 1e-3

    core.run = interrupted  # type: ignore[method-assign]
    found = core.take()
    assert found.times == pytest.approx([2e-3] * 5) and found.notes == {"retaken": "2 of 7"}


def test_without_it_all_samples_count(monkeypatch: pytest.MonkeyPatch) -> None:
    core = Core(monkeypatch, spell(0.003, 0.012))
    found = core.take(Protocol(warmup=0, repeats=5, min_repeat_ms=1.0, steady=False), level=FAST)
    assert core.runs == 5 and max(found.times) > 2e-3 and "retaken" not in found.notes
    assert found.notes["slow"].startswith(f"{sum(p > FAST for p in found.pulses)} of 5")


def test_long_samples_are_not_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    core = Core(monkeypatch, lambda now: 2.0, run_s=0.1)
    assert len(core.take(level=FAST).times) == core.runs == 5


def test_samples_are_not_taken_again_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    core = Core(monkeypatch, lambda now: 2.0, run_s=5.1e-3)  # each sample takes 10.2 ms
    found = core.take(level=FAST)
    assert core.runs == 8 and len(found.times) == 5 and found.notes["retaken"] == "3 of 8"


def test_the_deadline_ends_retaking(monkeypatch: pytest.MonkeyPatch) -> None:
    core = Core(monkeypatch, lambda now: 2.0)
    found = core.take(level=FAST, deadline=0.03)
    assert len(found.times) == 5 < core.runs < 8 and core.now < 0.035


def test_cold_runs_have_a_pulse_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    core = Core(monkeypatch, spell(0.010, 0.030))
    found = core.take(Protocol(warmup=0, repeats=3, min_repeat_ms=1.0, cache="cold"))
    assert found.times == pytest.approx([2e-3] * 3) and core.runs > 3


# --- levels -----------------------------------------------------------------------------------------------------------


def test_the_level_is_what_fast_jobs_reach() -> None:
    levels = Levels()
    assert levels.get((0,)) is None
    for n in range(100):
        levels.add((0,), FAST * (1.0 if n % 3 == 0 else 1.5))
    levels.add((1,), 2 * FAST)
    assert levels.get((0,)) == FAST and levels.get((1,)) == 2 * FAST and levels.get((0, 1)) is None


def test_a_core_that_is_slower_for_good_is_believed_in_the_end() -> None:
    levels = Levels()
    for _ in range(500):
        levels.add((0,), FAST)
    levels.add((0,), 1.2 * FAST)
    assert levels.get((0,)) == FAST
    for _ in range(200):
        levels.add((0,), 1.2 * FAST)
    assert levels.get((0,)) == 1.2 * FAST


def test_one_lucky_pulse_does_not_set_the_level() -> None:
    levels = Levels()
    for n in range(100):
        levels.add((0,), FAST if n else FAST / 2)
    assert levels.get((0,)) == FAST


# --- the pulse itself -------------------------------------------------------------------------------------------------


def test_the_pulse_of_this_machine() -> None:
    assert pulse() is pulse() and all(0 < pulse()() < 1 for _ in range(3))


@pytest.mark.parametrize("name", ["x86-64-v2", "x86-64-v4", "neoverse-n1"])
def test_the_pulse_can_be_built_for_other_vectors(name: str) -> None:
    assert compile_ir(clock_probe._text(), parse(name))
