"""What the processes of a run have in common: where they look for modules, and how one of them ended."""

from __future__ import annotations

import os
import signal
import sys


def environment() -> dict[str, str]:
    """They look for modules where this process does, so that "module:Class" means the same to both."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


def how_it_ended(code: int) -> str:
    """The exit code of a process in words."""
    return f"by signal {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
