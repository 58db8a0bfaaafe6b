"""Tuning of whole models: one budget for their tasks, a memory of what was found, and the time of the whole."""
