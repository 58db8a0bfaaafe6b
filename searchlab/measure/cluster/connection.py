"""Ray itself: imported when it is needed, started quietly or joined, and left without traces."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from searchlab.errors import MeasureError

_log = logging.getLogger(__name__)
_STORE_BYTES = 128 << 20  # jobs, object code and outcomes are a few kilobytes each
_LONGEST_FOLDER = 40  # Ray adds about 60 characters for its sockets, whose names may have 107
_SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0"}
_STARTS = 4  # Ray gives its own processes half a minute to come up, which a busy machine may need for itself


def load() -> Any:
    """The module `ray`, or an error that says how to get it."""
    try:
        import ray
    except ImportError as error:
        raise MeasureError(f"measuring on a cluster needs Ray ({error}): pip install searchlab[ray]") from None
    return ray


class Connection:
    """A Ray that this process takes part in; `close` ends what this object began, and nothing else.

    Without an address a Ray that the process is connected to already is used, otherwise one is started for it.
    """

    def __init__(self, address: str | None = None) -> None:
        self.ray = load()
        self._begun = not self.ray.is_initialized()
        self._folder: str | None = None
        if self._begun:
            self._begin(address)
        else:
            self._check(address)

    def close(self) -> None:
        if not self._begun:
            return
        self._begun = False
        with _environment(_SETTINGS):
            self.ray.shutdown(wait_for_processes=True)
        if self._folder is not None:
            self._remove_folder()

    def _begin(self, address: str | None) -> None:
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if address is None:
            self._folder = _short_folder()
            self._remove_folder = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
            options.update(_temp_dir=self._folder, include_dashboard=False, object_store_memory=_STORE_BYTES)
        for start in range(1 if address else _STARTS):
            try:
                with _environment(_SETTINGS):
                    self.ray.init(address=address or "local", **options)
                break
            except Exception as error:  # Ray raises bare ones, too
                self.ray.shutdown()
                if address:
                    raise MeasureError(f"cannot join the Ray cluster at {address}: {error}") from error
                if start == _STARTS - 1:
                    raise MeasureError(f"cannot start Ray on this machine: {error}") from error
        _divert_messages(self.ray)

    def _check(self, address: str | None) -> None:
        here = self.ray.get_runtime_context().gcs_address
        if address not in (None, "auto", here):
            raise MeasureError(f"this process is connected to the Ray cluster at {here}, so it cannot join {address}")


def _short_folder() -> str:
    usual = tempfile.gettempdir()
    return tempfile.mkdtemp(prefix="slr-", dir=usual if len(usual) <= _LONGEST_FOLDER else "/tmp")


@contextmanager
def _environment(settings: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _divert_messages(ray: Any) -> None:
    # Ray writes a page on stdout for each worker and node that is lost, whatever log_to_driver says, and has no setting
    # for it.  Here a loss is part of an outcome, and stdout belongs to the user.
    def note(data: dict[str, Any], ignore_prefix: bool = False) -> None:
        _log.debug("%s", "\n".join(map(str, data.get("lines", ()))))

    with suppress(AttributeError):
        ray._private.worker.print_to_stdstream = note
