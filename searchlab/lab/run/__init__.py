"""Runs: executing the cells of an experiment, resuming them after interruptions, and reading the results back."""

from searchlab.lab.folder.folder import Folder
from searchlab.lab.run.execute.engine import RunSummary, run
from searchlab.lab.run.execute.observer import Observer
from searchlab.lab.run.execute.policy import OnError
from searchlab.lab.run.readback import load

__all__ = ["Folder", "Observer", "OnError", "RunSummary", "load", "run"]
