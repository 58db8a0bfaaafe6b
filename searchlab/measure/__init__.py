"""Measuring candidates: jobs in, outcomes out; local processes, Ray and recorded tables behind one interface."""

from searchlab.measure.job import FAILURES, Job, Limits, Measurer, Outcome, Status
from searchlab.measure.local import LocalMeasurer
from searchlab.measure.workers.worker import Worker
from searchlab.timing.corelock import CoreLock
from searchlab.timing.protocol import Protocol

__all__ = [
    "FAILURES", "CoreLock", "Job", "Limits", "LocalMeasurer", "Measurer", "Outcome", "Protocol", "Status", "Worker",
]  # fmt: skip
