"""Timing: samples of one function, races of several in turns, a clock probe, and locks on cores."""
