"""Exporting programs: kernels as libraries, and callables from exported folders."""

from searchlab.lab.export.bundle import Exported, export
from searchlab.lab.export.finding import best_program, best_programs
from searchlab.lab.export.opening import load
from searchlab.lab.export.tuned_families import family_results, tuned_family
from searchlab.lab.export.verification import Verified, verify
from searchlab.lab.folder.found import Found

__all__ = [
    "Exported", "Found", "Verified", "best_program", "best_programs", "export", "family_results", "load",
    "tuned_family", "verify",
]  # fmt: skip
