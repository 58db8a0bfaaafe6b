"""Workloads that no program could run within the limits of an experiment, known from their counts alone."""

from __future__ import annotations

import os
from collections.abc import Iterator

from searchlab.errors import SearchLabError
from searchlab.lab.config.measuring import EmulatedMeasure, LocalMeasure, Timing
from searchlab.targets import CpuTarget, Target
from searchlab.workloads import Workload, parse

# Faster than any core there is, so that what is refused is impossible: two fused multiply-adds per lane in every cycle.
_CYCLES_S, _PER_LANE = 6e9, 4
MOST_EMULATED = 2e6  # operations of a workload whose candidates are emulated within seconds


def least_s(workload: Workload, target: Target) -> float:
    """A time that no program for the workload can be faster than, by its arithmetic; 0 for what is no CPU."""
    if not isinstance(target, CpuTarget):
        return 0.0  # there is no bound for all devices that would be of use
    lanes = max(target.lanes(b.dtype) for b in workload.program.buffers.values())
    return workload.flops / (_CYCLES_S * _PER_LANE * lanes * target.threads)


def faults(spec: str, target: Target, measure: Timing) -> Iterator[str]:
    """Why a workload cannot be measured, with figures; nothing if it may be possible."""
    workload = parse(spec)
    memory = _memory() if isinstance(measure, LocalMeasure) else None
    if memory is not None and workload.bytes > memory:
        yield (
            f"{workload.label}: its inputs and outputs take {_amount(workload.bytes)}B, and this machine has"
            f" {_amount(memory)}B of memory"
        )
    if isinstance(measure, EmulatedMeasure) and workload.flops > MOST_EMULATED:
        yield (
            f"{workload.label}: {_amount(workload.flops)}op are too many to emulate for every candidate; accepted with"
            f" measure: emulated: at most {_amount(MOST_EMULATED)}op, such as a product of 96 x 96 x 96"
        )
        return
    try:
        least = least_s(workload, target)
    except SearchLabError:  # a type whose width nobody knows
        return
    if least > measure.run_s:
        kind = "threads" if target.threads > 1 else "thread"
        yield (
            f"{workload.label}: {_amount(workload.flops)}op take at least {least:.3g} s with {target.threads} {kind} of"
            f" {target.name}, and running may take {measure.run_s:g} s (measure: run_s): every candidate would time out"
        )


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def _amount(value: float) -> str:
    """A number with a decimal prefix and a space after it: 2 E, 24.1 G."""
    for scale, prefix in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= scale:
            return f"{value / scale:.3g} {prefix}"
    return f"{value:.3g} "
