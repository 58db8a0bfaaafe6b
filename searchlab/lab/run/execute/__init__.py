"""Executing cells: worker processes, scheduling, searches, and progress reports."""
