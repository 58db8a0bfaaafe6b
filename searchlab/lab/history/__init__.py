"""Histories: measurements of earlier runs, as training data for models that learn from other tasks."""
