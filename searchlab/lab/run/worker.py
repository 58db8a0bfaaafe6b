"""The process that runs cells, one after another, for a run that hands them to it.

It is started as `python -m searchlab.lab.run.worker FD FOLDER CORES`; orders come and events go through the socket FD.
When the socket closes, the run is gone, and so is this process.  The run itself may keep to fewer cores.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
import traceback
from multiprocessing.connection import Connection
from pathlib import Path

from searchlab.lab.run.cell import run_cell
from searchlab.lab.run.events import STOP, Ended, Event, Order
from searchlab.lab.run.folder import LOG_FORMAT, Folder


class _Worker:
    def __init__(self, connection: Connection, folder: Folder) -> None:
        self._connection, self._folder = connection, folder
        self._orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        self._stop = threading.Event()

    def run(self) -> None:
        threading.Thread(target=self._listen, daemon=True).start()
        while True:
            order = self._orders.get()
            try:
                run_cell(order.cell, self._folder, self._stop, self._tell, order.cores)
            except Exception as e:  # no cell would fare better: the disk is full, or this program is wrong
                error = f"{type(e).__name__}: {e}"
                self._tell(Ended(order.cell.id, "failed", error=error, trace=traceback.format_exc(), fatal=True))

    def _listen(self) -> None:
        while True:
            try:
                message = self._connection.recv()
            except (EOFError, OSError):
                os._exit(1)
            if message is STOP:
                self._stop.set()
            else:
                self._orders.put(message)

    def _tell(self, event: Event) -> None:
        try:
            self._connection.send(event)
        except OSError:
            os._exit(1)


def main() -> None:
    """Serves until the socket closes."""
    logging.basicConfig(format=LOG_FORMAT, level=logging.INFO)
    socket, folder, cores = sys.argv[1:]
    os.sched_setaffinity(0, map(int, cores.split(",")))
    _Worker(Connection(int(socket)), Folder(Path(folder))).run()


if __name__ == "__main__":
    main()
