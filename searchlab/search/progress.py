"""Progress of long steps: making a space and compiling its features report to whoever listens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Tell = Callable[[str], object]

_listener: ContextVar[Tell | None] = ContextVar("listener", default=None)


@contextmanager
def listening(tell: Tell) -> Iterator[None]:
    """Has `tell` called with what is going on, as often as there is something new to say."""
    token = _listener.set(tell)
    try:
        yield
    finally:
        _listener.reset(token)


def say(text: str) -> None:
    """Tells whoever listens."""
    tell = _listener.get()
    if tell is not None:
        tell(text)
