"""Benchmarks: ratios from interleaved measurements in one run, instead of tests with time limits."""
