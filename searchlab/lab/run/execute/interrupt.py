"""Ctrl-C in two steps: the first finishes the measurements in flight, the second stops at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """Within this context, the first signal sets `stop` and calls `on_first`; the next one raises KeyboardInterrupt.

    Only the main thread receives signals; in other threads this does nothing.
    """

    def __init__(self, on_first: Callable[[], object] = lambda: None) -> None:
        self.stop = threading.Event()
        self._on_first = on_first
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {s: signal.signal(s, self._handle) for s in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.stop.is_set():
            raise KeyboardInterrupt
        self.stop.set()
        self._on_first()
