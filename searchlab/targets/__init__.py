"""Targets of code generation: machines of every kind as plain values, written by users as names with options."""

from searchlab.targets.cpu import CAP, CpuTarget, cap, cpu_of, detect, offered
from searchlab.targets.cuda import CudaTarget
from searchlab.targets.rocm import RocmTarget
from searchlab.targets.target import Target, class_of, kinds, known, parse

__all__ = [
    "CAP",
    "CpuTarget",
    "CudaTarget",
    "RocmTarget",
    "Target",
    "cap",
    "class_of",
    "cpu_of",
    "detect",
    "kinds",
    "known",
    "offered",
    "parse",
]
