"""Progress of long steps: creating a space and compiling its features report to a listener."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Tell = Callable[[str], object]

_listener: ContextVar[Tell | None] = ContextVar("listener", default=None)


@contextmanager
def listening(tell: Tell) -> Iterator[None]:
    """Calls `tell` with every progress message while the context is active."""
    token = _listener.set(tell)
    try:
        yield
    finally:
        _listener.reset(token)


def say(text: str) -> None:
    """Reports a message to the listener, if there is one."""
    tell = _listener.get()
    if tell is not None:
        tell(text)
