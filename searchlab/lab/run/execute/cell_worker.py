"""The worker process of a run, which executes the cells it is sent one after another.

It is started as `python -m searchlab.lab.run.execute.cell_worker FD FOLDER CORES`; cells arrive and events leave
through the socket FD.  When the socket closes, the run is gone and this process exits.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from searchlab.lab.folder.folder import LOG_FORMAT, Folder
from searchlab.lab.manifest import Cell
from searchlab.lab.run.execute.cell import run_cell
from searchlab.lab.run.execute.events import CellEnded, Event, Word
from searchlab.lab.run.execute.measurers import Measurers


class _Worker:
    def __init__(self, connection: Connection, folder: Folder, cores: Sequence[int]) -> None:
        self._connection, self._folder = connection, folder
        self._cells: queue.SimpleQueue[Cell | None] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._measurers = Measurers(cores)

    def run(self) -> None:
        threading.Thread(target=self._listen, daemon=True).start()
        while (cell := self._cells.get()) is not None:
            try:
                run_cell(cell, self._folder, self._stop, self._tell, self._measurers)
            except Exception as e:  # affects all cells: the disk is full, or this program has a bug
                error = f"{type(e).__name__}: {e}"
                self._tell(CellEnded(cell.id, "failed", error=error, trace=traceback.format_exc(), fatal=True))
        self._measurers.close()

    def _listen(self) -> None:
        while True:
            try:
                message = self._connection.recv()
            except (EOFError, OSError):
                os._exit(1)
            if message is Word.STOP:
                self._stop.set()
            else:
                self._cells.put(None if message is Word.LEAVE else message)

    def _tell(self, event: Event) -> None:
        try:
            self._connection.send(event)
        except OSError:
            os._exit(1)


def main() -> None:
    """Serves until the socket closes."""
    logging.basicConfig(format=LOG_FORMAT, level=logging.INFO)
    socket, folder, cores = sys.argv[1:]
    own = [int(core) for core in cores.split(",")]
    os.sched_setaffinity(0, own)
    _Worker(Connection(int(socket)), Folder(Path(folder)), own).run()


if __name__ == "__main__":
    main()
