"""Runs: executing the cells of an experiment, going on after whatever interrupted them, and reading them back."""

from searchlab.lab.run.engine import Summary, run
from searchlab.lab.run.folder import Folder
from searchlab.lab.run.loading import load
from searchlab.lab.run.observer import Observer
from searchlab.lab.run.policy import OnError

__all__ = ["Folder", "Observer", "OnError", "Summary", "load", "run"]
