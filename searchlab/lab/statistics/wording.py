"""Comparisons in words: the one place that writes who is better, and how that was found out.

A sentence consists of pieces, each with the entry that it names, so that a page can show entries in their colours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from searchlab.bench import DEFAULT
from searchlab.lab.statistics.aggregate import METHOD
from searchlab.lab.statistics.scores import BEST
from searchlab.lab.statistics.verdicts import Verdict

if TYPE_CHECKING:
    from searchlab.lab.statistics.comparison import ComparisonSettings
    from searchlab.lab.statistics.pairs import Pair
    from searchlab.lab.statistics.ranking import Ranking

Piece = tuple[str, str | None]  # words, and the entry that they name
_MOST = 5  # entries that a sentence names


def text(pieces: Sequence[Piece]) -> str:
    """The pieces as one text."""
    return "".join(words for words, _ in pieces)


def answer(ranking: Ranking) -> tuple[Piece, ...]:
    """A ranking as a sentence without its full stop; empty if there is nothing to compare.

    "Better" is used only for pairs with that verdict.
    """
    entries, best = ranking.entries, ranking.leading
    rest = len(entries) - len(best)
    if len(entries) < 2:
        return ()
    if not rest:
        return _alike(ranking)
    if not best:
        return _plain("Every entry is beaten by another one")
    beaten = [sum(ranking.better(e, other) for other in entries) for e in best]
    if min(beaten) == rest:
        behind = [e for e in entries if e not in best]
        others = _listed(behind) if rest == 1 else _plain("all others")
        among = f" and {_among(ranking, best)}" if len(best) > 1 else ""
        return (*_listed(best), *_plain(f" {_is(best)} better than "), *others, *_plain(among))
    if len(best) > 1:
        are = "the other one is" if rest == 1 else f"each of the other {rest} is"
        alike = f", which {_among(ranking, best)}; {are} beaten by some entry"
        return (*_plain("No entry is better than "), *_listed(best, " or "), *_plain(alike))
    if not beaten[0]:
        return (*_plain("Every entry but "), *_listed(best), *_plain(" is beaten by another one"))
    count = f" is better than {beaten[0]} of {rest} others and cannot be told apart from the rest"
    return (*_listed(best), *_plain(count))


def against(control: str, pairs: Sequence[Pair], final: bool) -> str:
    """The verdicts on the others against the control, which is the first of every pair."""
    found = {v: [p.b for p in pairs if p.verdict.turned == v] for v in Verdict}
    said = "; ".join(f"{shown(v, final)}: {', '.join(named)}" for v, named in found.items() if named)
    return f"Against {control}: {said}."


def shown(verdict: Verdict, final: bool = True) -> str:
    """The verdict in a table; areas are better or worse, not faster or slower."""
    words = {Verdict.UNKNOWN: "not told apart"}
    if not final:
        words |= {Verdict.FASTER: "better", Verdict.SLOWER: "worse"}
    return words.get(verdict, verdict.value)


def cell(pair: Pair, final: bool = True) -> str:
    """The verdict on a pair in a table, with the reason if the p-value alone would suggest another."""
    return shown(pair.verdict, final) + (f" ({pair.why})" if pair.why else "")


def two(pair: Pair) -> str:
    """The verdict on a pair as a clause."""
    clauses = {
        Verdict.FASTER: f"{pair.a} is better by the tests",
        Verdict.SLOWER: f"{pair.b} is better by the tests",
        Verdict.EQUAL: "the two are equal within the tie band",
        Verdict.UNKNOWN: "the two cannot be told apart",
    }
    return clauses[pair.verdict] + (f", as {pair.why}" if pair.why else "")


def method(settings: ComparisonSettings, ranking: Ranking) -> tuple[str, ...]:
    """How scores and tests were made, for the foot of a table."""
    what = {"final": "the best found", "trials": "the best so far, mean over trials"}
    said = what.get(settings.metric, f"the best so far, mean over {settings.metric}")
    relative = "the best known" if settings.to == BEST else settings.to
    blocks = "pairs of task and seed" if settings.unit == "seed" else "tasks (medians over seeds)"
    return (
        f"score: time of {relative} / time of {said}; IQM with {METHOD}",
        f"tests: {_overall(settings, ranking)}Wilcoxon with Holm's correction at {settings.alpha:g} on "
        f"{ranking.blocks} {blocks}; ties within {100 * settings.band:.3g} %; better: by the test, by more than a tie, "
        "and with P(faster) > 1/2",
    )


def _overall(settings: ComparisonSettings, ranking: Ranking) -> str:
    """Friedman's test, which comes before those of pairs."""
    if ranking.friedman is None:
        return ""
    p = ranking.friedman.p_f
    alike = p >= settings.alpha and settings.control is None
    return f"Friedman p {shown_p(p)}, {'so no two are told apart; p-values by' if alike else 'then'} "


def shown_p(p: float) -> str:
    """A p-value as a table has it."""
    return "< 0.001" if p < 0.001 else f"= {p:.3f}" if p < 0.1 else f"= {p:.2f}"


def share_of_optimum(seconds: float, optimum_s: float) -> str:
    """A time relative to the optimum; a factor would read as if it were faster than that."""
    percent = int(1000 * optimum_s / seconds + 1e-9) / 10  # rounded down: only the optimum itself shows 100 %
    return f"{percent:g} % of the optimum's speed"


def ahead(seconds: float, references: Mapping[str, float]) -> str:
    """How many times as fast as the default schedule and the best library: "1.12x default, 1.05x torch"."""
    known = {name: s for name, s in references.items() if s > 0}
    library = min((name for name in known if name != DEFAULT), key=known.__getitem__, default=None)
    shown = [name for name in (DEFAULT, library) if name in known]
    return ", ".join(f"{known[name] / seconds:.2f}x {name}" for name in shown if name is not None)


def kept(default_s: float, best_s: float) -> str:
    """That the default schedule is taken home, since it was faster than what a search found."""
    ratio = best_s / default_s
    much = f"{ratio:.1f} times as fast as" if ratio >= 2 else f"{100 * (ratio - 1):.2g} % faster than"
    return f"default schedule kept: {much} the best of the search"


def _alike(ranking: Ranking) -> tuple[Piece, ...]:
    """The sentence for entries of which none is better, which does not mean that they are equal."""
    overall = ranking.friedman
    names = _listed(ranking.entries)
    if overall is not None and overall.p_f < ranking.alpha and not _all_equal(ranking, ranking.entries):
        return (*names, *_plain(" differ by Friedman's test, but no two of them can be told apart"))
    return (*names, *_plain(f" {_among(ranking, ranking.entries)}"))


def _among(ranking: Ranking, entries: Sequence[str]) -> str:
    """The relation among entries of which none is better."""
    if _all_equal(ranking, entries):
        return f"are equal within the tie band of {100 * ranking.band:.3g} %"
    return "cannot be told apart"


def _all_equal(ranking: Ranking, entries: Sequence[str]) -> bool:
    return all(p.verdict is Verdict.EQUAL for p in ranking.pairs if p.a in entries and p.b in entries)


def _is(entries: Sequence[str]) -> str:
    return "is" if len(entries) == 1 else "are"


def _plain(words: str) -> tuple[Piece, ...]:
    return ((words, None),) if words else ()


def _listed(names: Sequence[str], last: str = " and ") -> list[Piece]:
    """Joins names as "a, b and c", at most a handful of them."""
    shown = names if len(names) <= _MOST else names[: _MOST - 1]
    found: list[Piece] = []
    for number, name in enumerate(shown):
        joint = "" if number == 0 else last if number == len(names) - 1 else ", "
        found += [*_plain(joint), (name, name)]
    return [*found, *_plain(f"{last}{len(names) - len(shown)} more")] if len(shown) < len(names) else found
