"""Describes how a process of a run ended."""

from __future__ import annotations

import signal


def how_it_ended(code: int) -> str:
    """The exit code of a process in words."""
    return f"by signal {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
