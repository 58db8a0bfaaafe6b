"""Measuring candidates: jobs in, outcomes out; local processes, Ray and recorded tables behind one interface."""

from searchlab.measure.job import FAILURES, Job, Limits, Measurer, Outcome, Protocol, Status

__all__ = ["FAILURES", "Job", "Limits", "Measurer", "Outcome", "Protocol", "Status"]
