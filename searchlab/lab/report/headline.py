"""The answer in plain words: who wins, by how much, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass

from searchlab.lab.report.drawing import Look
from searchlab.lab.report.material import Material
from searchlab.lab.report.words import count, digits, listed, p_value, share
from searchlab.lab.statistics import UNKNOWN, Pair

Piece = tuple[str, Look | None]


@dataclass(frozen=True)
class Headline:
    """A sentence, in pieces so that entries can show their colour; what supports it; its extent; what limits it."""

    pieces: tuple[Piece, ...]
    support: str
    extent: str
    limits: tuple[str, ...]

    @property
    def text(self) -> str:
        return "".join(words for words, _ in self.pieces)


def headline(material: Material) -> Headline:
    """What the runs say."""
    pieces, support = _said(material)
    return Headline(pieces, support, _extent(material), (*material.board.notes, *_twins(material)))


def _said(material: Material) -> tuple[tuple[Piece, ...], str]:
    if not material.ended:
        return (("No search has come to its end yet.", None),), ""
    if not material.working:
        return (("No search found a program that works.", None),), ""
    if not material.ranked:
        return (("No entry has results on all tasks yet.", None),), ""
    leader = material.ranked[0].entry
    if len(material.ranked) == 1:
        return _alone(material, leader), ""
    pairs = {p.b if p.a == leader else p.a: p for p in material.ranking.pairs if leader in (p.a, p.b)}
    alike = [s.entry for s in material.ranked[1:] if s.entry in material.ranking.leading]
    pieces = _close(material, leader, alike) if alike else _ahead(material, leader, pairs)
    return pieces, _support(material, leader, pairs[material.ranked[1].entry])


def _alone(material: Material, leader: str) -> tuple[Piece, ...]:
    worked = len(material.working)
    return (
        (leader, material.looks[leader]),
        (f" found a working program in {worked} of {count(len(material.ended), 'search', 'searches')}.", None),
    )


def _ahead(material: Material, leader: str, pairs: dict[str, Pair]) -> tuple[Piece, ...]:
    second = material.ranked[1].entry
    gain = _gain(leader, pairs[second])
    told = material.ranking.unlike(leader)
    others = f" and is told apart from {'all' if told == len(pairs) else f'{told} of'} {len(pairs)} others"
    middle = f" finds the fastest programs: {gain} " if gain else " finds the faster program more often than "
    return (
        (leader, material.looks[leader]),
        (middle, None),
        (second, material.looks[second]),
        (f"{f', the next best,{others}' if len(pairs) > 1 else ''}.", None),
    )


def _close(material: Material, leader: str, alike: list[str]) -> tuple[Piece, ...]:
    if len(alike) + 1 == len(material.ranked):
        return (
            (f"{_all_alike(material)} ", None),
            (leader, material.looks[leader]),
            (" is ahead, but not by more than chance would give.", None),
        )
    rest = len(material.ranked) - 1 - len(alike)
    shown: list[Piece] = []
    for n, e in enumerate(alike[:3]):
        joint = "" if n == 0 else " and " if n == len(alike) - 1 else ", "
        shown += [(joint, None), (e, material.looks[e])]
    if len(alike) > 3:
        shown.append((f" and {len(alike) - 3} more", None))
    return (
        (leader, material.looks[leader]),
        (" leads but cannot be told apart from ", None),
        *shown,
        (f"; {'the other one is' if rest == 1 else f'the other {rest} are'} behind.", None),
    )


def _all_alike(material: Material) -> str:
    """That no two entries are told apart; which is not to say that all are the same."""
    count, overall = len(material.ranked), material.ranking.friedman
    if overall is not None and overall.p_f < material.alpha:
        return f"The {count} entries differ, but there are too few searches to say which ones;"
    return f"The {'two' if count == 2 else count} entries cannot be told apart;"


def _gain(leader: str, pair: Pair) -> str:
    """By how much the leader is faster; nothing where the mean does not say what the ranks say."""
    if pair.speedup is None:
        return ""
    value = pair.speedup.value if pair.a == leader else 1 / pair.speedup.value
    if value <= 1.0005:
        return ""
    return f"{share(value - 1, 1)} faster than" if value < 2 else f"{digits(value)} times as fast as"


def _support(material: Material, leader: str, pair: Pair) -> str:
    best = material.ranked[0].score
    ends = (
        f" (95 % interval {100 * best.low:.1f}–{100 * best.high:.1f})"
        if best.low is not None and best.high is not None
        else ""
    )
    chance = pair.improvement.value if pair.a == leader else 1 - pair.improvement.value
    other = pair.b if pair.a == leader else pair.a
    sure = "cannot be told apart" if pair.verdict == UNKNOWN else "told apart"
    return (
        f"{leader} reaches {share(best.value, 1)} of the best known speed{ends}. It beats {other} with probability "
        f"{share(chance)}; the two are {sure} by Wilcoxon's test with Holm's correction ({p_value(pair.p_holm)}, "
        f"{count(pair.blocks, 'pair')} of searches)."
    ).replace("the two are cannot", "the two cannot")


def _twins(material: Material) -> list[str]:
    """Entries that did the same in every search: most likely not what the experiment meant to compare."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for entry in material.entries:
        cells = sorted(material.of_entry(entry), key=lambda c: (c.task, c.seed))
        done = tuple((c.task, c.seed, c.seconds.tobytes()) for c in cells if len(c.seconds))
        groups.setdefault(done, []).append(entry)
    alike = [names for done, names in groups.items() if done and len(names) > 1]
    return [f"{listed(names)} measured the same in every search: they differ in name only" for names in alike]


def _extent(material: Material) -> str:
    trials = sum(len(c.seconds) for c in material.cells)
    machine = "looked up in recorded tables" if material.recorded else "measured"
    return (
        f"{count(len(material.entries), 'entry', 'entries')}, {count(len(material.tasks), 'task')}, "
        f"{count(len(material.seeds), 'seed')}: {count(len(material.cells), 'search', 'searches')} with "
        f"{count(trials, 'trial')}, {machine}. Tasks: {listed(material.tasks, 5)}."
    )
