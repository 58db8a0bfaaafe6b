"""What the library warns about, on the terminal of every command: damaged files, lines of records left out."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from rich.markup import escape

from searchlab.cli.output import err

_PLACE = "choose another path, or change its permissions"
_ADVICE = {
    errno.ENOSPC: "free some disk space; files written so far are kept",
    errno.EDQUOT: "free some of the quota; files written so far are kept",
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), _PLACE),
    errno.EISDIR: "there is a folder where a file should be: move it away",
    errno.ENOTDIR: "there is a file where a folder should be: move it away",
    errno.EEXIST: "there is a file where a folder should be: move it away",
}


class _Handler(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._said: set[str] = set()  # a file that is read twice is damaged once

    def emit(self, record: logging.LogRecord) -> None:
        text = " ".join(record.getMessage().split())
        # errors are for logs, with their tracebacks; commands tell them in their own words
        if record.levelno == logging.WARNING and text not in self._said:
            self._said.add(text)
            err.print(f"[bold yellow]warning:[/] {escape(text)}", soft_wrap=True)


@contextmanager
def shown() -> Iterator[None]:
    """Prints every warning of searchlab to standard error, once."""
    logger, handler = logging.getLogger("searchlab"), _Handler()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def of_file(error: OSError) -> str:
    """What went wrong with a file, and what to do about it."""
    advice = _ADVICE.get(error.errno or 0)
    return f"{error.filename2 or error.filename}: {error.strerror}" + (f"; {advice}" if advice else "")
