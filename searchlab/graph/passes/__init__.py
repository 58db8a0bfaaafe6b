"""Passes over graphs: one pure function each, from a module to a module or to a plan for it."""
