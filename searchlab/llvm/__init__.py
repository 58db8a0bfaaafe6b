"""LLVM IR for CPUs: plain loops written as text, compiled to object code through llvmlite."""
