"""Histories: what earlier runs measured, for models that learn from other tasks."""
