"""Programs as code that needs neither searchlab nor a compiler: kernel, packing and thread pool in one LLVM module."""
