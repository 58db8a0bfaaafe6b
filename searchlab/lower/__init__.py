"""Lowering: passes that turn a scheduled program into plain loops and know nothing of LLVM."""
