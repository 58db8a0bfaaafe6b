"""The virtual machine of compiled graphs: byte code, its native interpreter, and the lowering of planned functions."""
