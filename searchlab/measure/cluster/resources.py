"""The resources of a slot, and whether the cluster can ever give them: Ray itself would wait for ever."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from searchlab.errors import MeasureError

# Ray has dedicated arguments for these; all other names are custom resources that nodes were started with.
_ARGUMENTS = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
_UNTOLD = ("memory", "object_store_memory")
_PARTS = 10_000  # Ray counts resources in ten-thousandths


@dataclass(frozen=True)
class Demand:
    """The resources that one actor or task requires of a node, such as {"CPU": 1, "device:a100": 1}."""

    amounts: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        return _listed(self.amounts) or "nothing"

    def options(self) -> dict[str, Any]:
        """The same as arguments of Ray's `options`."""
        found: dict[str, Any] = {"num_cpus": 0}
        found.update({_ARGUMENTS[name]: amount for name, amount in self.amounts.items() if name in _ARGUMENTS})
        found["resources"] = {name: amount for name, amount in self.amounts.items() if name not in _ARGUMENTS}
        return found

    def times(self, count: int) -> Demand:
        """The demand of several together."""
        return Demand({name: amount * count for name, amount in self.amounts.items()})

    def fits(self, node: Mapping[str, float]) -> int | None:
        """How many of these demands fit on an empty node; None: any number."""
        asked = {name: round(amount * _PARTS) for name, amount in self.amounts.items() if amount}
        if not asked:
            return None
        return min(round(node.get(name, 0) * _PARTS) // amount for name, amount in asked.items())


def alive(ray: Any) -> list[dict[str, float]]:
    """The resources of every living node of the cluster."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def room(demand: Demand, nodes: Sequence[Mapping[str, float]]) -> int | None:
    """How many of `demand` fit on the empty nodes at once; None: any number."""
    counts = [demand.fits(node) for node in nodes]
    return None if None in counts else sum(count for count in counts if count is not None)


def require(demand: Demand, count: int, what: str, nodes: Sequence[Mapping[str, float]]) -> None:
    """Raises MeasureError unless `count` of `demand` fit on the cluster when nothing else runs there."""
    fitting = room(demand, nodes)
    if fitting is not None and fitting < count:
        asked = f"{count} {what} with {demand} each" if count > 1 else f"a {what.removesuffix('s')} with {demand}"
        raise MeasureError(f"the cluster has no room for {asked}: {described(nodes)}; that is room for {fitting}")


def described(nodes: Sequence[Mapping[str, float]]) -> str:
    """The resources of the nodes, for messages; equal nodes are grouped."""
    if not nodes:
        return "it has no nodes"
    texts = [_listed({name: n for name, n in node.items() if not _untold(name)}) or "nothing" for node in nodes]
    counted = {text: texts.count(text) for text in texts}
    return "it has " + " and ".join(f"{n} node{'s' * (n > 1)} with {text}" for text, n in counted.items())


def _untold(name: str) -> bool:
    return name in _UNTOLD or name.startswith("node:")


def _listed(amounts: Mapping[str, float]) -> str:
    return ", ".join(f"{amount:g} {name}" for name, amount in sorted(amounts.items()))
