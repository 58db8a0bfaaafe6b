"""Errors that can be detected before anything runs: incompatible settings, claims that match no entry."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

from searchlab.backend import backend_of
from searchlab.errors import SearchLabError
from searchlab.lab.config.checks import components, feasible
from searchlab.lab.config.combinations import Combination, ablation, combinations, sweep_axes
from searchlab.lab.config.experiment import Experiment
from searchlab.lab.config.measuring import Timing
from searchlab.lab.config.naming import Entry
from searchlab.lab.config.selectors import matches
from searchlab.lab.config.settings import SETTINGS, split
from searchlab.lab.config.subjects import looked_up, shares_budget, subjects
from searchlab.lab.config.text.tree import Map, Path, Problems, find, unplaced
from searchlab.lab.history.origins import digest
from searchlab.registry import nearest
from searchlab.search import SPACES
from searchlab.targets import CudaTarget, Target, parse
from searchlab.targets.cuda_devices import cuda_devices

MOST_CELLS = 1_000_000


def check_settings(tree: Map, problems: Problems) -> list[Combination]:
    """The combinations of an experiment; notes what is wrong with each by itself."""
    recorded = _tables(tree)
    if any(recorded) and not all(recorded):
        odd = tree["workloads"].at(recorded.index(not recorded[0]))
        problems.add(odd, "workloads and recorded tables are not searched in one experiment; write two files")
    _names(tree, problems)
    networks = any(map(shares_budget, tree.get("workloads", ())))
    found = combinations(tree, problems)
    for combination in found:
        _settings(combination.settings, any(recorded), problems)
        _network(combination.settings, networks, problems)
    return found


def check_whole(tree: Map, experiment: Experiment, problems: Problems) -> None:
    """Notes what is wrong with an experiment whose combinations are right, each by itself."""
    _twice(tree, experiment.entries, problems)
    _selectors(tree, experiment, problems)
    if not experiment.recorded:
        _feasible(tree, experiment.entries, problems)
    count = len(experiment.entries) * len(subjects(experiment.workloads)) * len(experiment.seeds)
    if count > MOST_CELLS:
        problems.add(tree.place, f"{count} cells are too many; at most {MOST_CELLS}")


def _tables(tree: Map) -> list[bool]:
    return [looked_up(w) for w in tree.get("workloads", ())]


def _names(tree: Map, problems: Problems) -> None:
    """Names that were given by hand are given once."""
    variants = [v[-1] for v in ablation(tree.get("ablate"), tree.place) if v]
    for choices in [*sweep_axes(tree.get("sweep"), tree.place), variants]:
        names = [c.name for c in choices]
        for number, choice in enumerate(choices):
            if choice.name and choice.name in names[:number]:
                problems.add(choice.changes.place, f"two combinations are called '{choice.name}'")


def _settings(settings: Map, recorded: bool, problems: Problems) -> None:
    good = True
    for key in SETTINGS:
        for path, message in components.faults(key, unplaced(settings[key])):
            good = False
            problems.add(find(settings, (key, *path), settings.place), message)
    if good:
        for path, message in _recorded(settings) if recorded else _measured(settings):
            problems.add(find(settings, path, settings.place), message)


def _network(settings: Map, networks: bool, problems: Problems) -> None:
    """What is said of the tasks of a network, where there is none."""
    budget = settings["budget"]
    if networks or not isinstance(budget, Map):
        return
    for key, what in (("scheduler", "a scheduler"), ("share_model", "a shared model")):
        if budget.get(key):
            message = f"{what} needs the tasks of a network, but there is none; write {{network: resnet18}}"
            problems.add(find(settings, ("budget", key), settings.place), message)


def _recorded(settings: Map) -> Iterator[tuple[Path, str]]:
    """What does not go with recorded tables."""
    if settings["space"] is not None:
        name, _ = split("space", settings["space"])
        yield ("space",), f"recorded tables bring their own space; leave out '{name}', or name workloads"
    kind = next(iter(settings["measure"]))
    if kind != "replay":
        yield ("measure",), f"recorded tables are not measured; measure is replay, not '{kind}'"
    if settings["start"] != "random":
        yield ("start",), "recorded tables have no seeds to start with; leave it out, or write start: random"
    if settings["history"]:
        yield ("history",), "recorded tables have no programs that a history could teach about; leave it out"
    if _shares(settings):
        yield ("budget", "share_model"), "recorded tables have no programs that tasks could share a model of"
    if split("strategy", settings["strategy"])[1].get("draft"):
        yield ("strategy",), "a draft estimates the cycles of programs, and recorded tables have none; leave it out"
    model = unplaced(settings["model"])
    view = components.view(model)
    if view not in ("none", "knobs"):
        name, _ = split("model", model)
        hint = "; {gbt: {view: knobs}} works from knobs" if name == "gbt" else "; accepted: none, {gbt: {view: knobs}}"
        yield ("model",), f"model '{name}' looks at programs (view '{view}'), and recorded tables have none{hint}"


def _measured(settings: Map) -> Iterator[tuple[Path, str]]:
    """What does not go with measuring on a machine."""
    kind, options = split("measure", settings["measure"])
    if settings["space"] is None:
        known = ", ".join(SPACES.names())
        yield ("space",), f"workloads need a space; accepted: {known}"
    if kind == "replay":
        yield ("measure",), "replay needs recorded tables, but these are workloads; use measure: local or ray"
    model = unplaced(settings["model"])
    if settings["history"] and components.view(model) == "knobs":
        name, _ = split("model", model)
        why = f"model '{name}' looks at knobs, which differ from space to space, and cannot learn from a history"
        yield ("model",), f"{why}; choose a view of programs, such as summary or curves, or leave out history"
    if _shares(settings) and components.view(model) == "knobs":
        name, _ = split("model", model)
        why = f"model '{name}' looks at knobs, which differ from task to task, and cannot be shared"
        yield ("model",), f"{why}; choose a view of programs, such as summary or curves, or leave out share_model"
    if kind in ("local", "emulated"):
        yield from _cores(settings, options, kind)
    if kind == "ray":
        yield from _slots(settings, options)


def _shares(settings: Map) -> bool:
    budget = settings["budget"]
    return isinstance(budget, Map) and bool(budget.get("share_model"))


def _slots(settings: Map, options: Any) -> Iterator[tuple[Path, str]]:
    threads, given = parse(unplaced(settings["target"])).threads, options.get("cores")
    cores = int(options.get("cpus", 1)) if given is None else given
    if 0 < cores < threads:
        wanted = f"kernels use {threads} threads and a slot has {cores} cores"
        instead = f"write target: {{native: {{threads: {cores}}}}}"
        yield ("measure", "ray"), f"{wanted}; ask for more with cpus or cores, or {instead}"


def _cores(settings: Map, options: Any, kind: str) -> Iterator[tuple[Path, str]]:
    target = parse(unplaced(settings["target"]))
    try:
        backend = backend_of(target)
        backend.require(target)
        if kind == "emulated" and not isinstance(target, CudaTarget):
            yield ("measure",), f"measure: emulated is for NVIDIA GPUs; programs for {target.name} are timed (local)"
        elif kind == "local" and backend.emulated:
            instead = "measure: emulated checks programs and gives them modelled costs"
            yield ("target",), f"{target.name} is emulated here: programs can be checked, but not timed; {instead}"
    except SearchLabError as e:
        yield ("target",), str(e)
    usable = sorted(os.sched_getaffinity(0))
    cores, devices = options.get("cores") or usable, options.get("devices")
    workers = len(devices) if devices else int(options.get("workers", 1))
    if devices:
        yield from _devices(target, devices)
    if unknown := [c for c in cores if c not in usable] or [c for c in cores if cores.count(c) > 1]:
        known = ", ".join(map(str, usable))
        yield ("measure", "local", "cores"), f"core {unknown[0]} cannot be used; accepted: each once of {known}"
    elif workers * target.threads > len(cores):
        wanted = f"{workers} workers with {target.threads} threads each need {workers * target.threads} cores"
        yield ("measure", "local", "workers"), f"{wanted}; there are {len(cores)}"


def _devices(target: Target, devices: Sequence[int]) -> Iterator[tuple[Path, str]]:
    count = len(cuda_devices().found) if target.kind == "cuda" else 0
    if wrong := [d for d in devices if not 0 <= d < count] or [d for d in devices if devices.count(d) > 1]:
        known = ", ".join(map(str, range(count))) or "none: this machine has no GPU for the target"
        yield ("measure", "local", "devices"), f"device {wrong[0]} cannot be used; accepted: each once of {known}"


def _feasible(tree: Map, entries: Sequence[Entry], problems: Problems) -> None:
    """Workloads that would only time out, each told once."""
    settings = {}
    for entry in entries:
        measure, target = entry.settings.measure.settings, parse(entry.settings.target)
        if isinstance(measure, Timing):
            settings[target, measure.run_s, measure.memory_bytes] = measure
    workloads = tree["workloads"]
    for number, item in enumerate(workloads):
        specs = [p.workload for s in subjects([unplaced(item)]) for p in (s.parts or (s,)) if p.workload is not None]
        told = (f for spec in specs for (target, *_), m in settings.items() for f in feasible.faults(spec, target, m))
        for fault in dict.fromkeys(told):
            problems.add(workloads.at(number), fault)


def _twice(tree: Map, entries: Sequence[Entry], problems: Problems) -> None:
    seen: dict[str, str] = {}
    place = tree.at("ablate") if tree.get("ablate") is not None else tree.at("sweep")
    for entry in entries:
        history = [digest(path) for path in entry.settings.history]
        key = json.dumps({**entry.settings.plain, "history": history}, sort_keys=True)
        if key in seen:
            problems.add(place, f"'{seen[key]}' and '{entry.name}' are the same search")
        seen.setdefault(key, entry.name)


def _selectors(tree: Map, experiment: Experiment, problems: Problems) -> None:
    given: list[tuple[Path, Any]] = [(("report", "baseline"), experiment.report.baseline)]
    if _is_library(experiment):
        given = []
    for number, claim in enumerate(experiment.expect):
        given += [(("expect", number, key), selector) for key, selector in claim.sides.items()]
    for path, selector in given:
        if selector is not None and not _anybody(selector, experiment.entries):
            problems.add(find(tree, path, tree.place), f"{path[-1]}: {_nobody(selector, experiment.entries)}")


def without_absent(experiment: Experiment) -> Experiment:
    """The experiment without the baseline and the statements that mean entries which overrides have taken away."""
    named = experiment.entries
    kept = tuple(c for c in experiment.expect if all(_anybody(s, named) for s in c.sides.values()))
    report, baseline = experiment.report, experiment.report.baseline
    if baseline is not None and not _is_library(experiment) and not _anybody(baseline, named):
        report = report.model_copy(update={"baseline": None})
    return experiment.model_copy(update={"expect": kept, "report": report})


def _is_library(experiment: Experiment) -> bool:
    from searchlab.bench import BASELINES

    return experiment.report.baseline in BASELINES and not experiment.recorded


def _anybody(selector: Any, named: Sequence[Entry]) -> bool:
    return any(matches(selector, e.name, e.factors) for e in named)


def _nobody(selector: Any, named: Sequence[Entry]) -> str:
    if isinstance(selector, str):
        return f"no entry is called '{selector}'{nearest(selector, [e.name for e in named][:20], 'entries')}"
    factors = {k: sorted({e.factors.get(k, "") for e in named} - {""}) for k in selector}
    for key, values in factors.items():
        if not values:
            known = sorted({k for e in named for k in e.factors})
            return f"unknown factor '{key}'{nearest(key, known, 'factors')}"
    known_values = "; ".join(f"{k}: {', '.join(v)}" for k, v in factors.items())
    return f"no entry has {', '.join(f'{k}: {v}' for k, v in selector.items())}; there is {known_values}"
