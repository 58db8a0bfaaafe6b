"""`searchlab new`: a working plug-in with its test, as a starting point."""

from searchlab.lab.scaffold.making import KINDS, MadePlugin, make

__all__ = ["KINDS", "MadePlugin", "make"]
