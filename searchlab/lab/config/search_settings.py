"""The settings of one search, parsed: what it searches with, how long, and how it measures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

from pydantic import Field

from searchlab.lab.config.measuring import KINDS, Measure, Model
from searchlab.lab.config.settings import EARLIER, EARLIER_BUDGET
from searchlab.lab.config.text.tree import unplaced
from searchlab.registry import Component
from searchlab.search.build_time import THRIFT

Start = Literal["seeds", "random"]
STARTS: tuple[Start, ...] = get_args(Start)


class Budget(Model):
    """The limits of a search."""

    trials: int | None = Field(
        default=None,
        ge=1,
        le=10_000_000,
        description="maximum number of measurements per cell, or per task of a network; set by effort if not given",
    )
    seconds: float | None = Field(
        default=None, gt=0, le=1e9, description="maximum wall time per cell, or per task of a network; null: no limit"
    )
    batch: int = Field(
        default=16, ge=1, le=100_000, description="number of candidates that are proposed and measured together"
    )
    thrift: float = Field(
        default=THRIFT,
        ge=0,
        le=10,
        description="how much faster a candidate that takes long to build must promise to be; 0: no matter how long",
    )
    scheduler: Literal["gradient", "round-robin"] | None = Field(
        default=None, description="how the tasks of a network take turns; gradient if not given"
    )
    share_model: bool | None = Field(
        default=None, description="whether the model of each task of a network learns from all of its tasks; no if null"
    )


@dataclass(frozen=True, eq=False)
class SearchSettings:
    """The settings of one combination; components and the target are names, or {name: options}."""

    target: Component
    space: Component | None
    model: Component
    strategy: Component
    history: tuple[str, ...]  # paths of run folders and files of records
    start: Start
    budget: Budget
    measure: Measure

    @staticmethod
    def of(given: Mapping[str, Any]) -> SearchSettings:
        """The settings that plain data describes, which has them all in their one form."""
        data = unplaced(given)
        return SearchSettings(
            target=data["target"],
            space=data["space"],
            model=data["model"],
            strategy=data["strategy"],
            history=tuple(data["history"]),
            start=data["start"],
            budget=Budget.model_validate(data["budget"]),
            measure=Measure.model_validate(data["measure"]),
        )

    @staticmethod
    def restored(config: Mapping[str, Any]) -> SearchSettings:
        """The settings as a manifest has them; options that this version does not know are left out."""
        ((kind, options),) = config["measure"].items()
        measure = {kind: _known(KINDS[kind], options)}
        budget = {**EARLIER_BUDGET, **_known(Budget, config["budget"])}
        return SearchSettings.of({**EARLIER, **config, "history": (), "budget": budget, "measure": measure})

    @cached_property
    def plain(self) -> dict[str, Any]:
        """The settings as plain data, with everything that was not given at its default."""
        return {
            "target": self.target,
            "space": self.space,
            "model": self.model,
            "strategy": self.strategy,
            "history": list(self.history),
            "start": self.start,
            "budget": self.budget.model_dump(mode="json"),
            "measure": self.measure.model_dump(mode="json"),
        }


def _known(model: type[Model], given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name in model.model_fields}
