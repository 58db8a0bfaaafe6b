"""A process for run-offs in which a race never ends, or ends the process: MADE_RACE says which."""

import os
import time

from searchlab.lab.run import racing


def race(*_: object) -> racing.RunOff:
    if os.environ["MADE_RACE"] == "crash":
        os.kill(os.getpid(), 9)
    time.sleep(600)
    raise AssertionError("nobody ended it")


if __name__ == "__main__":
    racing.race = race
    racing.main()
