"""The graph that fusion is decided on: calls with kinds, the post-dominators of each, and groups by union-find.

A call is post-dominated by another if all that follows from its result goes through the other.  Whatever lies between a
call and its nearest post-dominator can become one group: nothing inside is needed outside, but for the last result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from searchlab.graph.passes.pattern_kinds import PatternKind

MOST = 256  # operators of a group


@dataclass(frozen=True)
class FusionEdge:
    """One use of a result: by which call, how its result depends on it, and whether it costs nothing to compute there.

    It does if a costly value would be computed more often than it is now.
    """

    user: int
    kind: PatternKind
    free: bool = True


@dataclass(frozen=True)
class FusionNode:
    """A call: its kind, the uses of its result, and whether the result is needed beyond these.

    `costly` says that it calls functions such as exp; `sums` that it is a product rather than a normalisation.
    """

    kind: PatternKind
    edges: tuple[FusionEdge, ...] = ()
    escapes: bool = False
    costly: bool = False
    sums: bool = False


@dataclass(frozen=True)
class PostDominator:
    """The nearest call that all uses of a result lead to, with the largest kind of the uses on the way."""

    node: int
    kind: PatternKind


def post_dominators(nodes: Sequence[FusionNode]) -> list[PostDominator | None]:
    """The nearest post-dominator of every call; None where the result is needed at the end, or in unrelated places.

    Calls are in an order in which all uses come later, so one pass from the end suffices.
    """
    found: list[PostDominator | None] = [None] * len(nodes)
    depth = [0] * len(nodes)

    def common(a: PostDominator | None, b: PostDominator | None) -> PostDominator | None:
        while a is not None and b is not None and a.node != b.node:
            if depth[a.node] < depth[b.node]:
                a, b = b, a
            above = found[a.node]
            a = None if above is None else PostDominator(above.node, max(a.kind, above.kind))
        return None if a is None or b is None else PostDominator(a.node, max(a.kind, b.kind))

    for number in reversed(range(len(nodes))):
        node = nodes[number]
        if node.escapes or not node.edges:
            continue
        first, *others = (PostDominator(e.user, e.kind) for e in node.edges)
        best: PostDominator | None = first
        for other in others:
            best = common(best, other)
        found[number] = best
        depth[number] = 0 if best is None else depth[best.node] + 1
    return found


@dataclass
class FusionGroups:
    """Which calls are in one group; a group is known by its last call, through which its result leaves."""

    nodes: Sequence[FusionNode]
    parent: list[int] = field(init=False)
    kinds: list[PatternKind] = field(init=False)
    counts: list[int] = field(init=False)
    costly: list[bool] = field(init=False)

    def __post_init__(self) -> None:
        self.parent = list(range(len(self.nodes)))
        self.kinds = [n.kind for n in self.nodes]
        self.counts = [1] * len(self.nodes)
        self.costly = [n.costly for n in self.nodes]

    def find(self, node: int) -> int:
        """The last call of the group of a call."""
        while self.parent[node] != node:
            self.parent[node] = self.parent[self.parent[node]]
            node = self.parent[node]
        return node

    def kind(self, node: int) -> PatternKind:
        """The kind of the group of a call."""
        return self.kinds[self.find(node)]

    def between(self, node: int, sink: int) -> list[int]:
        """The calls on all ways from a call to one that post-dominates it, beginning with the former."""
        seen, left = {node}, [node]
        while left:
            for edge in self.nodes[left.pop()].edges:
                if edge.user != sink and edge.user not in seen:
                    seen.add(edge.user)
                    left.append(edge.user)
        return sorted(seen)

    def merge(self, path: Sequence[int], sink: int) -> None:
        """Makes one group of calls and the one that they lead to."""
        root = self.find(sink)
        for group in {self.find(n) for n in path} - {root}:
            self.parent[group] = root
            self.kinds[root] = max(self.kinds[root], self.kinds[group])
            self.counts[root] += self.counts[group]
            self.costly[root] |= self.costly[group]

    def members(self) -> Iterator[list[int]]:
        """The calls of each group, in order of their last ones."""
        found: dict[int, list[int]] = {}
        for node in range(len(self.nodes)):
            found.setdefault(self.find(node), []).append(node)
        yield from (found[last] for last in sorted(found))


def fused_groups(nodes: Sequence[FusionNode], most: int = MOST) -> FusionGroups:
    """The groups: first elementwise calls after products and before reductions, then calls that move elements."""
    groups, dominators = FusionGroups(nodes), post_dominators(nodes)
    for rule in (_computes, _moves):
        for number in range(len(nodes)):
            above = dominators[number]
            if above is None or groups.find(above.node) == groups.find(number):
                continue
            path = groups.between(number, above.node)
            if rule(groups, path, above) and _is_small(groups, path, above, most) and _is_free(groups, path, above):
                groups.merge(path, above.node)
    return groups


def _computes(groups: FusionGroups, path: list[int], above: PostDominator) -> bool:
    """What computes place by place joins what is before it, and what follows if that is no product."""
    kind, inside = groups.kind(path[0]), [groups.kind(n) for n in path[1:]]
    last, sink = groups.kind(above.node), groups.nodes[above.node]
    if kind in (PatternKind.ANCHOR, PatternKind.REDUCTION):
        return above.kind is PatternKind.ELEMENTWISE and max([*inside, last]) <= PatternKind.BROADCAST
    if kind > PatternKind.BROADCAST or max(inside, default=kind) > PatternKind.INJECTIVE:
        return False
    if last <= PatternKind.INJECTIVE:
        return above.kind <= PatternKind.INJECTIVE
    if sink.kind <= PatternKind.BROADCAST:  # into what follows a product, beside it
        return above.kind <= PatternKind.BROADCAST and last is not PatternKind.OPAQUE
    return PatternKind.OPAQUE not in (last, above.kind) and not sink.sums


def _moves(groups: FusionGroups, path: list[int], above: PostDominator) -> bool:
    """What moves elements joins what moves or computes elements after it."""
    kinds = [groups.kind(n) for n in (*path, above.node)]
    return kinds[0] is PatternKind.INJECTIVE and max(*kinds, above.kind) <= PatternKind.INJECTIVE


def _is_small(groups: FusionGroups, path: list[int], above: PostDominator, most: int) -> bool:
    roots = {groups.find(n) for n in (*path, above.node)}
    return sum(groups.counts[r] for r in roots) <= most


def _is_free(groups: FusionGroups, path: list[int], above: PostDominator) -> bool:
    """Whether no costly value would be computed more often than before."""
    between = {*path, above.node}
    if not any(groups.costly[groups.find(n)] and groups.kind(n) <= PatternKind.INJECTIVE for n in path):
        return True
    return all(e.free for n in path for e in groups.nodes[n].edges if e.user in between)
