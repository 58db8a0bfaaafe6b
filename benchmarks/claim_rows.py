"""A row of a table of claims: a figure, what it should be, and whether it is."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]


def claim_row(
    case: str, metric: str, value: float, target: float | None = None, at_most: bool = True, **more: Any
) -> Row:
    """A figure and what it should be; `held` is None where it is only reported."""
    value = round(value, 4)
    held = None if target is None else bool(value <= target if at_most else value >= target)
    relation = None if target is None else ("at most" if at_most else "at least")
    return {
        "case": case,
        "metric": metric,
        "value": value,
        "relation": relation,
        "target": target,
        "held": held,
        **more,
    }
