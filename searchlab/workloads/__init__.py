"""Workloads: operators with their programs, inputs, numpy references and costs; task lists of networks; suites.

    workload("matmul", m=64).program            parse("conv2d:ci=64,co=64,k=3,padding=1")
    network("resnet18")                         suite("ansor-ops")
    read_family("matmul:m=dyn(1..512)")

A new operator is one decorated function; see `operator`.
"""

from searchlab.workloads.catalogue import lazy, operator, operators, parse, workload
from searchlab.workloads.definition import Definition, Operator, Tolerance, Workload
from searchlab.workloads.families import DynamicRange, Family, family, is_family, is_range, read_family
from searchlab.workloads.networks import NetworkTask, network, networks
from searchlab.workloads.parameters import Count, Extent, Float, Number, Padding, Window
from searchlab.workloads.suites import Case, suite, suites

__all__ = [
    "Case", "Count", "Definition", "Extent", "Family", "Float", "NetworkTask", "Number", "Operator", "Padding",
    "DynamicRange", "Tolerance", "Window", "Workload", "family", "is_family", "is_range", "lazy", "network", "networks",
    "operator", "operators", "parse", "read_family", "suite", "suites", "workload",
]  # fmt: skip
