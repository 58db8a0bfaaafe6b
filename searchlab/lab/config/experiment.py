"""The models of an experiment: they validate it, describe it and write it back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from searchlab.lab.config.combinations import Combination, combinations
from searchlab.lab.config.forms import alternatives
from searchlab.lab.config.measuring import Listed, Measure, Model
from searchlab.lab.config.naming import Entry, entries
from searchlab.lab.config.search_settings import Budget, Start
from searchlab.lab.config.subjects import looked_up

Metric = Literal["final", "trials-to-target", "auc"]

Component = Annotated[Any, WithJsonSchema(alternatives.COMPONENT)]
Workload = Annotated[Any, WithJsonSchema(alternatives.WORKLOAD)]
Changes = Annotated[dict[str, Any], WithJsonSchema(alternatives.CHANGES)]
Values = Annotated[list[Any], Field(min_length=1)]


def _selector(value: Any) -> Any:
    if isinstance(value, str) and value:
        return value
    if isinstance(value, Mapping) and value and all(isinstance(v, str) for v in value.values()):
        return dict(value)
    raise PydanticCustomError("selector", "an entry is named by text (with * for several) or by {factor: value}")


Selector = Annotated[Any, AfterValidator(_selector), WithJsonSchema(alternatives.SELECTOR)]


class Sweep(Model):
    """Combinations to compare: the product of a grid, of values side by side, and of a list."""

    grid: dict[str, Values] = Field(
        default_factory=dict,
        description="setting: [values]; every combination of them. `sweep: {space: [...]}` is short for it",
    )
    zip: dict[str, Values] = Field(
        default_factory=dict, description="setting: [values]; first values together, second values together, and so on"
    )
    list: Annotated[tuple[Changes, ...], Listed] = Field(
        default=(),
        description="mappings of settings, each one combination; `name` names it. `sweep: [...]` is short for it",
    )


class Ablate(Model):
    """One factor at a time: the full configuration against itself without each of its parts."""

    base: Annotated[str | dict[str, Any], WithJsonSchema(alternatives.BASE)] = Field(
        default="full",
        description="name of the full configuration, or the settings that make it (then it is called full)",
    )
    remove: dict[str, Changes] = Field(
        default_factory=dict, description="factor: settings that remove it; each factor is removed by itself"
    )
    replace: dict[str, Changes] = Field(
        default_factory=dict, description="variant: settings that replace a factor by something else"
    )
    path: Annotated[tuple[str, ...], Listed] = Field(
        default=(), description="factors of `remove` to add one after another, starting without any of them"
    )
    leave_one_out: bool = Field(
        default=True, description="whether each factor is removed by itself; false: only the path and the replacements"
    )


class ReportSettings(Model):
    """Settings of the report and its statistics."""

    title: str | None = Field(
        default=None, min_length=1, description="title of the report; null: the experiment's name"
    )
    baseline: Selector | None = Field(
        default=None, description="the baseline of comparisons: an entry, or default, numpy, torch, onnxruntime"
    )
    metrics: Annotated[tuple[Metric, ...], Listed] = Field(
        default=("final", "trials-to-target", "auc"), min_length=1, description="the metrics that are compared"
    )
    target: float = Field(
        default=0.95, gt=0, le=1, description="the fraction of the best known speed that trials-to-target asks for"
    )
    alpha: float = Field(default=0.05, gt=0, lt=1, description="significance level of the tests")
    tie: float = Field(default=0.02, ge=0, lt=1, description="tie band: relative differences up to this count as ties")


class Claim(Model):
    """A statement that the report checks: {better: A, than: B} or {same: A, as: B}."""

    better: Selector | None = Field(default=None, description="the entries that are claimed to be better")
    than: Selector | None = Field(
        default=None, description="the entries they are compared with (those of `better` are left out)"
    )
    same: Selector | None = Field(default=None, description="the entries that are claimed to be equally good")
    as_: Selector | None = Field(default=None, alias="as", description="the entries they are compared with")
    on: Metric = Field(default="final", description="the metric: final, trials-to-target or auc")
    by: float = Field(default=1.0, ge=1, description="for better: minimum speed-up factor")
    within: float = Field(default=1.05, ge=1, description="for same: maximum ratio between the two")
    tasks: str = Field(default="*", min_length=1, description="the tasks it is about: a label, with * as wildcard")
    note: str = Field(default="", description="source of the statement")

    @property
    def sides(self) -> dict[str, Any]:
        """The selectors that are given, by key."""
        every = {"better": self.better, "than": self.than, "same": self.same, "as": self.as_}
        return {k: v for k, v in every.items() if v is not None}

    @model_validator(mode="after")
    def _pairs(self) -> Claim:
        if list(self.sides) not in (["better", "than"], ["same", "as"]):
            raise PydanticCustomError("claim", "a statement is {better: A, than: B} or {same: A, as: B}")
        return self


class Experiment(Model):
    """An experiment: what is searched, how, and what is compared."""

    version: Literal[1] = Field(default=1, description="schema version")
    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$",
        max_length=100,
        description="name of the run folder; the file's name if not given",
    )
    effort: Literal["smoke", "quick", "default", "full"] = Field(
        default="default", description="preset of budget, seeds and repeats; settings in the file take precedence"
    )
    target: Annotated[Any, WithJsonSchema(alternatives.TARGET)] = Field(
        default="native", description="the machine to generate code for"
    )
    workloads: Annotated[tuple[Workload, ...], Listed, WithJsonSchema(alternatives.WORKLOADS)] = Field(
        min_length=1,
        description="the computations to optimise: workloads, families, suites, networks, models, streams, or "
        "recorded tables",
    )
    space: Component | None = Field(
        default=None, description="the search space; sketch if not given, none for tables and streams"
    )
    model: Component = Field(default="auto", description="the cost model; auto: gbt, or none for tables and streams")
    strategy: Component = Field(
        default="auto",
        description="the search strategy; auto: evolutionary, or bayesian for tables and streams without a model",
    )
    history: Annotated[tuple[str, ...], Listed, WithJsonSchema(alternatives.HISTORY)] = Field(
        default=(), description="measurements of earlier runs on other tasks, for the model to learn from"
    )
    start: Start = Field(
        default="seeds",
        description="what a search starts with: points that the space knows to be fast (seeds), or nothing (random; "
        "always, with recorded tables)",
    )
    budget: Budget = Field(default=Budget(), description="limits of each search")
    measure: Annotated[Measure, WithJsonSchema(alternatives.measure())] = Field(
        description="the way to measure candidates; local if not given, replay for recorded tables"
    )
    seeds: Annotated[tuple[int, ...], Listed, WithJsonSchema(alternatives.SEEDS)] = Field(
        min_length=1, description="seeds; every combination is searched once with each"
    )
    sweep: Annotated[Sweep, WithJsonSchema(alternatives.SWEEP)] = Field(
        default=Sweep(), description="settings that take several values"
    )
    ablate: Ablate | None = Field(default=None, description="an ablation: how much each part of a search contributes")
    report: ReportSettings = Field(default=ReportSettings(), description="settings of the report and its statistics")
    expect: Annotated[tuple[Claim, ...], Listed] = Field(default=(), description="statements that the report checks")

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """The combinations that it compares, each by its name and with its settings."""
        return entries(combinations(self.model_dump(mode="json")))

    def combined(self, found: Sequence[Combination]) -> None:
        """Takes its combinations, where they are known already, as `entries` would compute them."""
        vars(self)["entries"] = entries(found)

    @property
    def recorded(self) -> bool:
        """Whether all is looked up in recorded tables."""
        return any(map(looked_up, self.workloads))

    def resolved(self) -> dict[str, Any]:
        """Plain data that says everything; written as YAML and loaded again, it gives the same cells."""
        data = self.model_dump(by_alias=True, mode="json")
        data["seeds"] = _ranges(self.seeds)
        data["expect"] = [_given(c) for c in data["expect"]]
        if self.recorded:  # nothing to start with, nothing to build
            data["start"] = data["budget"]["thrift"] = None
        for key in ("budget", "sweep", "ablate", "report"):
            data[key] = _given(data[key] or {})
        return _given(data)


def _given(data: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in data.items() if v is not None and v not in ("", [], {})}


def _ranges(seeds: tuple[int, ...]) -> Any:
    first, last = seeds[0], seeds[-1]
    return f"{first}..{last}" if len(seeds) > 1 and seeds == tuple(range(first, last + 1)) else list(seeds)


class Source(Experiment):
    """What a file may say: an experiment, or a part of one that others include."""

    include: Annotated[list[str], WithJsonSchema(alternatives.INCLUDE)] = Field(
        default_factory=list, description="other files, relative to this one; settings in this file take precedence"
    )
