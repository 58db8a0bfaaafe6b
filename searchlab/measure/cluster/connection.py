"""The connection to Ray: imported on demand, started quietly or joined, and closed without traces."""

from __future__ import annotations

import logging
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from searchlab import interpreter
from searchlab.errors import MeasureError
from searchlab.measure.cluster import tokens

_log = logging.getLogger(__name__)
_STORE_BYTES = 128 << 20  # jobs, object code and outcomes are a few kilobytes each
_LONGEST_FOLDER = 25  # we and Ray append about 80 characters for its sockets, whose paths are limited to 107
_SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0"}
_STARTS = 4  # Ray gives its own processes half a minute to start, which may not suffice on a busy machine


def load() -> Any:
    """The module `ray`; MeasureError with instructions if it is not installed."""
    try:
        import ray
    except ImportError as error:
        raise MeasureError(f"measuring on a cluster needs Ray ({error}): pip install searchlab[ray]") from None
    return ray


class Connection:
    """This process's connection to a Ray cluster; `close` ends what this object started, and nothing else.

    Without an address, an existing connection of the process is used, or a new Ray is started for it.
    """

    def __init__(self, address: str | None = None) -> None:
        self.ray = load()
        address = None if address == "local" else address  # Ray's word for the same
        self._begun = not self.ray.is_initialized()
        self._until_closed = ExitStack()
        if self._begun:
            self._begin(address)
        else:
            self._check(address)

    def close(self) -> None:
        """Leaves the cluster, and ends it if it was started here."""
        if not self._begun:
            return
        self._begun = False
        with tokens.environment(_SETTINGS):
            self.ray.shutdown(wait_for_processes=True)
        self._until_closed.close()

    def _begin(self, address: str | None) -> None:
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        try:
            if address is None:
                self._start(options)
            else:
                self._join(address, options)
        except BaseException:  # also an interrupt: a Ray that was started here must not stay
            self._until_closed.close()
            raise
        _divert_messages(self.ray)

    def _start(self, options: Mapping[str, Any]) -> None:
        folder = _short_folder()
        self._until_closed.callback(weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True))
        # Ray makes its folders readable to everybody, so they are inside one that is private.
        own = {"_temp_dir": f"{folder}/r", "include_dashboard": False, "object_store_memory": _STORE_BYTES}
        self._until_closed.enter_context(tokens.private(self.ray, Path(folder)))
        for start in range(_STARTS):
            try:
                with tokens.environment({**_SETTINGS, "PYTHONPATH": interpreter.environment()["PYTHONPATH"]}):
                    self.ray.init(address="local", job_config=_job(self.ray), **options, **own)
                return
            except Exception as error:  # Ray raises bare ones, too
                self.ray.shutdown()
                if start == _STARTS - 1:
                    raise MeasureError(f"cannot start Ray on this machine: {error}") from error

    def _join(self, address: str, options: Mapping[str, Any]) -> None:
        if not address.startswith("ray://"):
            tokens.check(self.ray, address)
        try:
            with tokens.environment(_SETTINGS):
                self.ray.init(address=address, job_config=_job(self.ray), **options)
        except Exception as error:  # Ray raises bare ones, too
            self.ray.shutdown()
            raise MeasureError(f"cannot join the Ray cluster at {address}: {error}") from error

    def _check(self, address: str | None) -> None:
        here = self.ray.get_runtime_context().gcs_address
        if address not in (None, "auto", here):
            raise MeasureError(f"this process is connected to the Ray cluster at {here}, so it cannot join {address}")


def _short_folder() -> str:
    usual = tempfile.gettempdir()
    return tempfile.mkdtemp(prefix="slr-", dir=usual if len(usual) <= _LONGEST_FOLDER else "/tmp")


def _job(ray: Any) -> Any:
    """Settings of a job whose processes do not search the current folder for modules first, as they would in Ray."""
    made = ray.job_config.JobConfig()
    made._runtime_env_has_working_dir = lambda: True  # with a working directory, Ray adds no folders
    return made


def _divert_messages(ray: Any) -> None:
    # Ray prints a page to stdout for each lost worker and node, whatever log_to_driver says, and has no setting for it.
    # Here a loss is part of an outcome, and stdout belongs to the user.
    def note(data: dict[str, Any], ignore_prefix: bool = False) -> None:
        _log.debug("%s", "\n".join(map(str, data.get("lines", ()))))

    with suppress(AttributeError):
        ray._private.worker.print_to_stdstream = note
