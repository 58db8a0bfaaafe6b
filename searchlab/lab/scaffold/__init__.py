"""`searchlab new`: a plug-in that works, with its test, ready to be changed."""

from searchlab.lab.scaffold.making import KINDS, MadePlugin, make

__all__ = ["KINDS", "MadePlugin", "make"]
