"""Numbers formatted for people: times, factors, shares, counts."""

from __future__ import annotations

import math
from collections.abc import Sequence

from searchlab.lab.report.drawing import unit
from searchlab.lab.statistics import shown_p


def seconds(value: float) -> str:
    """A time with three digits: 1.52 ms; a dash if it is missing."""
    if not math.isfinite(value):
        return "–"
    if value >= 120:
        minutes, rest = divmod(round(value), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"
    scale, name = unit(value)
    return f"{digits(value / scale)} {name}"


def cost(value: float, modelled: bool) -> str:
    """A time, or a modelled cost, which is kept as so many nanoseconds as it has cycles."""
    return f"{value * 1e9:,.0f} modelled cycles" if modelled and math.isfinite(value) else seconds(value)


def digits(value: float, count: int = 3) -> str:
    """The number with a few significant digits, without an exponent for everyday numbers."""
    if not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    places = max(0, count - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{places}f}" if abs(value) < 1e6 else f"{value:.{count}g}"


def share(value: float, places: int = 0) -> str:
    """A fraction in per cent."""
    return f"{100 * value:.{places}f} %" if math.isfinite(value) else "–"


def count(number: int, one: str, many: str = "") -> str:
    """A number with its noun: 1 task, 3 tasks."""
    return f"{number:,} {one if number == 1 else many or one + 's'}".replace(",", "\u202f")


def listed(names: Sequence[str], most: int = 6) -> str:
    """Joins names as "a, b and c"; a long list ends with the number of other names."""
    if len(names) > most:
        return ", ".join(names[:most]) + f" and {len(names) - most} others"
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def p_value(value: float) -> str:
    """A probability as papers write it."""
    return f"p {shown_p(value)}"
