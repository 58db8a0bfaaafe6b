"""Access to Ray: a cluster started here is for this run alone, one that is joined may ask for a token."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from searchlab.errors import MeasureError

_CONNECT_S = 10.0
_HOW = "set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH to the token of the cluster or its file"


@contextmanager
def environment(settings: Mapping[str, str | None]) -> Iterator[None]:
    """Sets environment variables temporarily; None unsets one."""
    before = {name: os.environ.get(name) for name in settings}
    _set(settings)
    try:
        yield
    finally:
        _set(before)


@contextmanager
def private(ray: Any, folder: Path) -> Iterator[None]:
    """A Ray that is started meanwhile listens on this machine only, and only to those who can read a new token.

    The token exists only as a file in `folder`: not on a command line, not in the environment, not in a log.
    """
    file = folder / "token"
    with open(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as out:
        out.write(secrets.token_hex(32))
    with _loopback(ray):
        try:
            with environment({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": None, "RAY_AUTH_TOKEN_PATH": str(file)}):
                _read_again(ray)
                yield
        finally:
            _read_again(ray)


def check(ray: Any, address: str) -> None:
    """Raises MeasureError for a cluster that cannot be joined; Ray itself would retry for a minute or two."""
    setup = ray._private.authentication.authentication_token_setup
    _read_again(ray)
    try:
        if address == "auto":  # as Ray does itself, but only then
            setup.maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
        setup.ensure_token_if_auth_enabled(create_token_if_missing=False)
        found = ray._private.services.canonicalize_bootstrap_address(address)
        host, _, port = found.rpartition(":")
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
        ray._raylet.GcsClient(address=found)
    except ray.exceptions.AuthenticationError as error:
        # without a token in an environment that requires one, Ray does not even try
        what = "has no token, though RAY_AUTH_MODE asks for one" if "no authentication token" in str(error) else ""
        what = what or "was refused: its authentication token is missing or is not that of the cluster"
        raise MeasureError(f"cannot join the Ray cluster at {address}: this process {what}; {_HOW}") from error
    except OSError as error:
        raise MeasureError(f"cannot join the Ray cluster at {address}: nothing answers there: {error}") from error
    except Exception as error:  # Ray raises bare ones, too
        raise MeasureError(f"cannot join the Ray cluster at {address}: {error}") from error


def _set(settings: Mapping[str, str | None]) -> None:
    for name, value in settings.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextmanager
def _loopback(ray: Any) -> Iterator[None]:
    # Ray binds to the address of its node, and to all interfaces unless that is 127.0.0.1.  It replaces 127.0.0.1 by
    # the machine's external address unless it is told that there are no clusters, as on a Mac.
    constants = ray._private.ray_constants
    before, constants.ENABLE_RAY_CLUSTER = constants.ENABLE_RAY_CLUSTER, False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before


def _read_again(ray: Any) -> None:
    """Makes Ray reread the environment: it caches the mode and the token."""
    ray._raylet.Config.initialize("")  # first, or Ray's remaining threads would miss a deleted token
    ray._raylet.AuthenticationTokenLoader.instance().reset_cache()
