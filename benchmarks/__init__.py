"""Side-by-side measurements: ratios taken in one run, interleaved, never timed tests."""
