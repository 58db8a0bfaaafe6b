"""The run's side of the run-off process: started when the cells have ended, and never left behind."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import wait

from searchlab import interpreter
from searchlab.lab.folder.folder import Folder
from searchlab.lab.run import cores
from searchlab.lab.run.processes import how_it_ended

_MODULE = "searchlab.lab.run.runoff.holder"
_WAIT_S = 0.2


def hold_apart(
    folder: Folder, lock: int, stop: threading.Event, say: Callable[[str], object], idle: Callable[[], object]
) -> None:
    """Holds all pending run-offs in another process, which is ended at once when `stop` is set.

    `lock` is the descriptor of the folder's lock.  `say` receives its messages, `idle` is called periodically.
    """
    with _process(folder, lock) as process, cores.aside():
        assert process.stdout is not None
        said = process.stdout.fileno()
        rest = b""
        while not stop.is_set():
            if wait([said], _WAIT_S):
                data = os.read(said, 1 << 16)
                if not data:
                    break
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    say(json.loads(line))
            idle()
        if not stop.is_set() and (code := process.wait()) != 0:
            say(f"the run-off ended {how_it_ended(code)}, {folder.log} may say why; results keep each cell's own times")


@contextmanager
def _process(folder: Folder, lock: int) -> Iterator[subprocess.Popen[bytes]]:
    command = interpreter.command("-m", _MODULE, str(folder.path))
    with (
        folder.log.open("ab") as log,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # closes when this process ends, which the other one notices
            stdout=subprocess.PIPE,
            stderr=log,
            pass_fds=(lock,),
            env=interpreter.environment(),
            start_new_session=True,  # Ctrl-C goes to the run
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()
