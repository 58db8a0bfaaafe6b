"""Decisions about a whole model that no kernel can make alone, measured end to end: fusion, layouts, libraries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, get_args

from searchlab.errors import SearchLabError
from searchlab.graph.library import GRAPH_LIBRARIES
from searchlab.graph.model.options import CompileOptions, Fusion
from searchlab.graph.model.pipeline import lowered
from searchlab.graph.model_source import ModelSource
from searchlab.graph.passes.chosen_library import ChosenCalls, library_calls
from searchlab.lab.tuning.model_result import VariantTime
from searchlab.lab.tuning.tuned import Tuned
from searchlab.lab.tuning.whole_model import Note, largest_error, prepared, race_models, silent
from searchlab.targets import Target
from searchlab.timing.race import Contender
from searchlab.timing.turns import Times

AS_GIVEN, TOGETHER = "as given", "all improvements"
_CALLS = 3  # of each library, as kinds of calls that are decided
_MARGIN = (0.02, 0.1)  # the difference that is needed in a race, however steady or noisy it was

Ways = dict[str, CompileOptions]


def alternatives(base: CompileOptions, calls: Mapping[str, Sequence[str]] | None = None) -> Ways:
    """The ways to compile a model that differ from given options in one decision, by what differs.

    `calls` are those that libraries could compute, by library; each is a decision of its own.
    """
    found: Ways = {f"fuse: {f}": replace(base, fuse=f) for f in get_args(Fusion) if f != base.fuse}
    found[f"layouts: {str(not base.layouts).lower()}"] = replace(base, layouts=not base.layouts)
    found[f"winograd: {str(not base.winograd).lower()}"] = replace(base, winograd=not base.winograd)
    for library, texts in (calls or {}).items():
        for text in texts:
            component = {ChosenCalls.name: {"library": library, "calls": [text]}}
            found[f"{library}: {text}"] = replace(base, libraries=(*base.libraries, component))
    return found


def offered_calls(source: ModelSource, most: int = _CALLS) -> dict[str, list[str]]:
    """The calls that installed libraries could compute, those that occur most often first, a few for each library."""
    found = {}
    for library in GRAPH_LIBRARIES.names():
        if library == ChosenCalls.name:
            continue
        try:
            found[library] = [text for text, _ in library_calls(source.module, library).most_common(most)]
        except SearchLabError:  # it is not installed
            continue
    return found


def decide(
    source: ModelSource,
    target: Target,
    tuned: Tuned | None,
    base: CompileOptions,
    calls: Mapping[str, Sequence[str]] | None = None,
    seconds: float = 0.5,
    note: Note = silent,
) -> tuple[CompileOptions, tuple[VariantTime, ...]]:
    """The options of the fastest whole model, and the times of all that were tried.

    First every decision is changed by itself, all in turns with the given options.  If several changes were an
    improvement, they are made together as well, and race against the best of them.  `calls` are those that libraries
    could compute, by library; by default what is installed here offers.
    """
    contest = _Contest(source, target, tuned, seconds, note)
    offered = offered_calls(source) if calls is None else calls
    ways = different(source, {AS_GIVEN: base, **alternatives(base, offered)}, target)
    runs, failed = contest.built(ways)
    times = contest.times(runs)
    better = sorted((n for n in times if _beats(times[n], times[AS_GIVEN])), key=lambda n: times[n].min)
    chosen = better[0] if better else AS_GIVEN
    if len(better) > 1:
        ways[TOGETHER] = _merged(base, [ways[name] for name in better])
        both, missed = contest.built({TOGETHER: ways[TOGETHER]})
        failed |= missed
        if both:
            again = contest.times({chosen: runs[chosen], **both})
            times[TOGETHER] = again[TOGETHER]
            chosen = TOGETHER if _beats(again[TOGETHER], again[chosen]) else chosen
    rows = [VariantTime(name, t.min, name == chosen) for name, t in times.items()]
    return ways[chosen], (*rows, *(VariantTime(name, error=why) for name, why in failed.items()))


def different(source: ModelSource, ways: Ways, target: Target | None = None) -> Ways:
    """The ways that lead to different graphs or kernels; of equal ones the first."""
    seen: list[Any] = []
    kept: Ways = {}
    for name, options in ways.items():
        made = lowered(source.module, options, target=target)
        after = options.fuse == "after" and any(n in made.functions for n in made.programs)  # other kernels, same graph
        graph = made.functions, {n: program.hash for n, program in made.programs.items()}, after
        if graph not in seen:
            seen.append(graph)
            kept[name] = options
    return kept


def _beats(one: Times, other: Times) -> bool:
    """Whether a model is faster by more than the noise of the race; of fastest runs, a tenth is never noise alone."""
    least, most = _MARGIN
    return one.min * (1 + min(max(least, one.spread, other.spread), most)) < other.min


def _merged(base: CompileOptions, others: Sequence[CompileOptions]) -> CompileOptions:
    """The options with everything that others changed; the first of two that disagree has its way.

    Calls of libraries are added up.
    """
    usual = asdict(base)
    changes = {name: v for other in reversed(others) for name, v in asdict(other).items() if v != usual[name]}
    added = [component for other in others for component in other.libraries[len(base.libraries) :]]
    return replace(base, **{**changes, "libraries": (*base.libraries, *added)})


@dataclass(frozen=True)
class _Contest:
    """Models of one source, compiled in several ways and timed in turns."""

    source: ModelSource
    target: Target
    tuned: Tuned | None
    seconds: float
    note: Note

    def built(self, ways: Ways) -> tuple[dict[str, Contender], dict[str, str]]:
        """The models that could be compiled and are correct, and why others are missing."""
        runs: dict[str, Contender] = {}
        failed: dict[str, str] = {}
        for name, options in ways.items():
            self.note(f"compiling ({name})")
            try:
                run = prepared(self.source, self.target, self.tuned, options)
                largest_error(self.source, {name: run})
                runs[name] = run
            except SearchLabError as e:
                if name == AS_GIVEN:
                    raise
                failed[name] = str(e)
        return runs, failed

    def times(self, runs: Mapping[str, Contender]) -> dict[str, Times]:
        """The times of whole runs."""
        return race_models(runs, self.target, self.seconds, self.note)[0]
