"""From tensor programs to native code: LLVM IR text, object code, callables."""
