"""Data sets: measured programs of many tasks with their features, for cost models that have seen programs before."""
