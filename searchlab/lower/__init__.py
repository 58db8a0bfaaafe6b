"""Lowering: passes that turn a scheduled program into plain loops, independent of LLVM."""
