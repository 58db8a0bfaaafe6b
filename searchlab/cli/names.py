"""From what a user types to workloads: an operator with parameters, a family of sizes, a network, a suite."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, NamedTuple

from searchlab.errors import WorkloadError

if TYPE_CHECKING:
    from searchlab.workloads import Workload


class NamedWorkload(NamedTuple):
    """A workload under the name it has in its group, and how often the group runs it."""

    case: str
    workload: Workload
    weight: float = 1


class NamedGroup(NamedTuple):
    """The workloads that one text stands for; `kind` is workload, network, family or suite."""

    kind: str
    name: str
    summary: str
    entries: tuple[NamedWorkload, ...]


def resolve(text: str) -> NamedGroup:
    """What a text stands for: `matmul:m=64`, `matmul:m=dyn(1..64)`, `resnet50`, `resnet50:batch=16`, `ansor-ops`."""
    from searchlab.workloads import is_family, network, networks, operators, parse, read_family, suite, suites

    name, _, rest = text.partition(":")
    if name in networks():
        tasks = network(name, _batch(text, rest))
        return NamedGroup("network", text, networks()[name], tuple(NamedWorkload(w.label, w, n) for w, n in tasks))
    if text in suites():
        return NamedGroup("suite", text, suites()[text], tuple(NamedWorkload(case, w) for case, w in suite(text)))
    known = operators()
    is_path = rest and "=" not in rest.partition(":")[0]  # module:function, perhaps with parameters
    if name not in known and not is_path:
        raise WorkloadError(_unknown(name, [*known, *networks(), *suites()]))
    if is_family(text):
        family = read_family(text)
        sizes = tuple(NamedWorkload(family.at(s).label, family.at(s), w) for s, w in family.representatives)
        return NamedGroup("family", text, f"the sizes that stand for {family.label}", sizes)
    workload = parse(text)
    return NamedGroup("workload", text, workload.operator.summary, (NamedWorkload(workload.label, workload),))


def _batch(text: str, rest: str) -> int:
    key, _, value = rest.partition("=")
    if not rest:
        return 1
    if key.strip() != "batch" or not value.strip().isdecimal():
        raise WorkloadError(f"'{text}': a network takes one parameter, batch=N")
    return int(value)


def _unknown(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, 3)
    guess = f" did you mean {' or '.join(repr(c) for c in close)}?" if close else ""
    return f"unknown workload '{name}';{guess} `searchlab list` shows all"
