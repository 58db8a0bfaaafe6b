"""Run-offs: the best programs of all cells of a task, timed interleaved once the cells have ended."""
