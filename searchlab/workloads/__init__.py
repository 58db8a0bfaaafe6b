"""Workloads: operators with their programs, inputs, numpy references and costs; task lists of networks; suites.

    workload("matmul", m=64).program            parse("conv2d:ci=64,co=64,k=3,padding=1")
    network("resnet18")                         suite("ansor-ops")

A new operator is one decorated function; see `operator`.
"""

from searchlab.workloads.catalogue import lazy, operator, operators, parse, workload
from searchlab.workloads.definition import Definition, Operator, Tolerance, Workload
from searchlab.workloads.networks import NetworkTask, network, networks
from searchlab.workloads.parameters import Count, Extent, Float, Number, Padding, Window
from searchlab.workloads.suites import Case, suite, suites

__all__ = [
    "Case", "Count", "Definition", "Extent", "Float", "NetworkTask", "Number", "Operator", "Padding", "Tolerance",
    "Window", "Workload", "lazy", "network", "networks", "operator", "operators", "parse", "suite", "suites",
    "workload",
]  # fmt: skip
