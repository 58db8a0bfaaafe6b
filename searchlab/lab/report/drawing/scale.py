"""Scales: the mapping from values to pixels, and round numbers for the ticks of an axis."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from searchlab.lab.results import Floats

UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


@dataclass(frozen=True)
class Axis:
    """The settings of an axis; limits that are None are taken from the data."""

    title: str
    low: float | None = None
    high: float | None = None
    log: bool = False
    percent: bool = False


@dataclass(frozen=True)
class Scale:
    """Values from `low` to `high` on pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False
    percent: bool = False

    def __call__(self, values: Floats) -> Floats:
        """Values as pixels; values beyond the scale are clamped slightly outside its edge."""
        low, high = self._map(np.array([self.low, self.high]))
        with np.errstate(divide="ignore", invalid="ignore"):
            share = (self._map(np.asarray(values, float)) - low) / (high - low)
        share = np.clip(np.nan_to_num(share, nan=2.0, posinf=2.0, neginf=-1.0), -0.5, 1.5)
        found: Floats = self.start + share * (self.end - self.start)
        return found

    def at(self, value: float) -> float:
        """The pixel of one value."""
        return float(self(np.array([value]))[0])

    def _map(self, values: Floats) -> Floats:
        return np.log(values) if self.log else values

    @property
    def ticks(self) -> list[float]:
        """Round values with room for their labels; a vertical axis needs less room."""
        count = max(2, int(abs(self.end - self.start) / (70 if self.end > self.start else 45)))
        if self.log and self.high / self.low >= 5:
            return _log_ticks(self.low, self.high, count)
        return linear_ticks(self.low, self.high, count)

    def label(self, value: float) -> str:
        """The label of a tick."""
        return f"{100 * value:.6g} %" if self.percent else plain(value)

    @property
    def data(self) -> str:
        """The data that the page's script needs to turn pixels into values."""
        return f"{self.low!r} {self.high!r} {self.start:.1f} {self.end:.1f} {int(self.log)} {int(self.percent)}"


def scale(axis: Axis, low: float, high: float, start: float, end: float) -> Scale:
    """A scale for data from `low` to `high`; never empty, even for a single value."""
    low, high = (axis.low if axis.low is not None else low), (axis.high if axis.high is not None else high)
    if not (math.isfinite(low) and math.isfinite(high)):
        low, high = (1.0, 10.0) if axis.log else (0.0, 1.0)
    if axis.log and low <= 0:
        low = high / 1e3 if high > 0 else 1.0
    if high <= low:
        high = low * 1.1 if low > 0 else low + 1.0
    return Scale(float(low), float(high), start, end, axis.log, axis.percent)


def plain(value: float) -> str:
    """A number for people: thousands separated, an exponent only if needed."""
    if value == 0:
        return "0"
    if 1e4 <= abs(value) < 1e7:
        return f"{value:,.0f}".replace(",", "\u2009")
    return f"{value:.6g}"


def unit(seconds: float) -> tuple[float, str]:
    """The unit in which a time reads best, and how many seconds it is."""
    return next(((s, name) for s, name in UNITS if abs(seconds) >= s), UNITS[-1])


def linear_ticks(low: float, high: float, count: int) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / max(count, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(s * power for s in (1, 2, 5, 10) if s * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [float(f"{n * step:.10g}") for n in range(first, math.floor(high / step + 1e-9) + 1)]


def _log_ticks(low: float, high: float, count: int) -> list[float]:
    """Powers of ten, with 2 and 5 between them where there is room."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        found = [d * 10.0**e for e in decades for d in digits if low * 0.999 <= d * 10.0**e <= high * 1.001]
        if len(found) <= max(count + 2, 5):
            return found
    every = math.ceil(len(found) / max(count, 1))
    return found[::every]
