"""Run-offs: the best programs of all cells of a task timed side by side once the cells have ended."""
