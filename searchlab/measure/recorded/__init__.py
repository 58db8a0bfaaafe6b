"""Recorded tables: measurements of others, read from files and replayed as if they were taken now."""
