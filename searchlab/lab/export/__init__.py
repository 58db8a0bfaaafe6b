"""Taking programs out of the laboratory: kernels as libraries, and callables from what was exported."""

from searchlab.lab.export.bundle import Exported, export
from searchlab.lab.export.loading import load
from searchlab.lab.export.verify import Verified, verify

__all__ = ["Exported", "Verified", "export", "load", "verify"]
