"""Executing cells: processes, their order, their searches, and what is shown while they run."""
