"""What a search is taken home for: its own best program, unless the default schedule was faster in the same race."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Origin = Literal["search", "default"]  # where the program that is taken home comes from
WIDEST_TIE = 0.01  # in a noisier race the faster of the two is still the better guess


@dataclass(frozen=True)
class Fallback:
    """The default schedule in the race that a search ended with: the hash of its program, and its time.

    It is `kept` if it beat the search by more than the noise of the race, or by more than 1 % however noisy the race
    was; a tie goes to the search.
    """

    program: str
    seconds: float
    kept: bool

    @staticmethod
    def of(program: str, seconds: float, best_s: float, noise: float) -> Fallback:
        """The default schedule beside a search that reached `best_s`, in a race with a relative noise."""
        return Fallback(program, seconds, seconds * (1.0 + min(noise, WIDEST_TIE)) < best_s)


def origin_of(fallback: Fallback | None) -> Origin:
    """Where the program to take home comes from."""
    return "default" if fallback is not None and fallback.kept else "search"


def taken_s(fallback: Fallback | None, best_s: float) -> float:
    """The time of the program to take home, given that of the search's best."""
    return fallback.seconds if fallback is not None and fallback.kept else best_s
