"""A process for run-offs in which a race never ends, or ends the process: MADE_RACE says which."""

import os
import time

from searchlab.lab.run.runoff import holder


def race(*_: object) -> holder.RunOff:
    if os.environ["MADE_RACE"] == "crash":
        os.kill(os.getpid(), 9)
    time.sleep(600)
    raise AssertionError("nobody ended it")


if __name__ == "__main__":
    holder.race = race
    holder.main()
