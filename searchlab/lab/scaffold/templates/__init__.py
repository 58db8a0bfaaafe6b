"""Plug-ins that work as they are: `searchlab new` copies one and gives it a name."""
