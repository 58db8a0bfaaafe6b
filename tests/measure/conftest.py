"""Fixtures that make tests of measuring reliable on a shared machine."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def own_locks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Locks that nobody else knows, also for processes that are started here: whoever measures may keep the real ones
    for longer than a test waits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("locks")))
        yield


@pytest.fixture
def slow_to_cancel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that takes its time to break off is waited for, not replaced."""
    monkeypatch.setattr("searchlab.measure.workers.worker._CANCEL_S", 60.0)
