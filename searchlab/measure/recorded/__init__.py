"""Recorded tables: measurements read from files and replayed as if they were taken now."""
