"""The answer in plain words: which entry wins, by how much, and with what certainty."""

from __future__ import annotations

from dataclasses import dataclass

from searchlab.lab.report.drawing import EntryStyle
from searchlab.lab.report.material import Material
from searchlab.lab.report.words import count, digits, listed, p_value, share
from searchlab.lab.statistics import Pair, Verdict, wording

Piece = tuple[str, EntryStyle | None]


@dataclass(frozen=True)
class Headline:
    """A sentence, in pieces so that entries can show their colour; its support, its scope and its limitations."""

    pieces: tuple[Piece, ...]
    support: str
    extent: str
    limits: tuple[str, ...]

    @property
    def text(self) -> str:
        """The sentence."""
        return "".join(words for words, _ in self.pieces)


def headline(material: Material) -> Headline:
    """The headline of the runs."""
    pieces, support = _said(material)
    return Headline(pieces, support, _extent(material), (*material.board.notes, *_twins(material)))


def _said(material: Material) -> tuple[tuple[Piece, ...], str]:
    if not material.ended:
        return (("No search has finished yet.", None),), ""
    if not material.working:
        return (("No search found a working program.", None),), ""
    if not material.ranked:
        return (("No entry has results on all tasks yet.", None),), ""
    leader = material.ranked[0].entry
    if len(material.ranked) == 1:
        return _alone(material, leader), ""
    second = material.ranked[1].entry
    (pair,) = (p if p.a == leader else p.turned for p in material.ranking.pairs if {p.a, p.b} == {leader, second})
    said = tuple((words, material.looks[e] if e else None) for words, e in wording.answer(material.ranking))
    return (*said, *_gain(material, pair), (".", None)), _support(material, pair)


def _alone(material: Material, leader: str) -> tuple[Piece, ...]:
    worked = len(material.working)
    return (
        (leader, material.looks[leader]),
        (f" found a working program in {worked} of {count(len(material.ended), 'search', 'searches')}.", None),
    )


def _gain(material: Material, pair: Pair) -> tuple[Piece, ...]:
    """The lead of a single leading entry over the next one; empty if the tests do not establish it."""
    s = pair.speedup
    if pair.verdict is not Verdict.FASTER or len(material.ranking.leading) > 1 or s is None or s.value <= 1:
        return ()
    much = f"{share(s.value - 1, 1)} faster" if s.value < 2 else f"{digits(s.value)} times as fast"
    if len(material.ranked) == 2:
        return ((f": {much}", None),)
    than = f": {much} {'than' if s.value < 2 else 'as'} "
    return (than, None), (pair.b, material.looks[pair.b]), (", the next by rank and score", None)


def _support(material: Material, pair: Pair) -> str:
    """The score of the first entry by rank and score, and its comparison with the second."""
    best = material.ranked[0].score
    ends = (
        f" (95 % interval {100 * best.low:.1f}–{100 * best.high:.1f})"
        if best.low is not None and best.high is not None
        else ""
    )
    return (
        f"{pair.a} reaches {share(best.value, 1)} of the best known speed{ends}. It is faster than {pair.b} with "
        f"probability {share(pair.improvement.value)}; {wording.two(pair)} (Wilcoxon's test with Holm's correction: "
        f"{p_value(pair.p_holm)}, {count(pair.blocks, 'pair')} of searches)."
    )


def _twins(material: Material) -> list[str]:
    """Entries with identical measurements in every search, which is most likely a mistake in the experiment."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for entry in material.entries:
        cells = sorted(material.of_entry(entry), key=lambda c: (c.task, c.seed))
        done = tuple((c.task, c.seed, c.seconds.tobytes()) for c in cells if len(c.seconds))
        groups.setdefault(done, []).append(entry)
    alike = [names for done, names in groups.items() if done and len(names) > 1]
    return [f"{listed(names)} gave identical measurements in every search: they differ in name only" for names in alike]


def _extent(material: Material) -> str:
    trials = sum(len(c.seconds) for c in material.cells)
    machine = "looked up in recorded tables" if material.recorded else "measured"
    return (
        f"{count(len(material.entries), 'entry', 'entries')}, {count(len(material.tasks), 'task')}, "
        f"{count(len(material.seeds), 'seed')}: {count(len(material.cells), 'search', 'searches')} with "
        f"{count(trials, 'trial')}, {machine}. Tasks: {listed(material.tasks, 5)}."
    )
