"""Fixtures that make tests of measuring reliable on a shared machine."""

import pytest


@pytest.fixture
def slow_to_cancel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that takes its time to break off is waited for, not replaced."""
    monkeypatch.setattr("searchlab.measure.workers.worker._CANCEL_S", 60.0)
