"""Schemas of the files in a run folder, against which they are validated when read.

They cover what readers rely on; unknown keys are mostly accepted.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, StringConstraints, model_validator

_FileName = Annotated[str, StringConstraints(pattern=r"^[\w.+-]+$")]
_Key = Annotated[str, StringConstraints(pattern=r"^-?[0-9a-f]+$")]
_Named = str | dict[str, dict[str, Any]]  # a component: its name, or its name with options
_Time = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Seconds = _Time | None  # infinity, which JSON lacks, is written as null


class FileForm(BaseModel):
    """A file, or a part of one."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)


# --- manifest.json ----------------------------------------------------------------------------------------------------


class BudgetForm(FileForm):
    """The budget of a cell."""

    trials: int | None


class PartForm(FileForm):
    """A task of a network."""

    task: str
    weight: _Time
    workload: str | None = None


class ConfigForm(FileForm):
    """Everything that determines what a cell measures."""

    budget: BudgetForm
    measure: Annotated[
        dict[Literal["local", "ray", "replay", "emulated"], dict[str, Any]], Field(min_length=1, max_length=1)
    ]
    target: _Named
    space: _Named | None
    model: _Named
    strategy: _Named
    workload: str | None = None
    table: str | None = None
    parts: list[PartForm] | None = None

    @model_validator(mode="after")
    def _subject(self) -> Self:
        if self.workload is None and self.table is None and not self.parts:
            raise ValueError("neither workload nor table nor parts")
        return self


class CellForm(FileForm):
    """A cell, as in `manifest.Cell`."""

    id: _FileName
    entry: str
    task: str
    seed: int
    factors: dict[str, str]
    config: ConfigForm
    table: str | None = None
    tables: list[str] = []
    kept: bool = False
    code: dict[str, str] = {}


class ManifestForm(FileForm):
    """A manifest with all its cells."""

    format: str
    version: int
    name: str
    started: str
    cells: list[CellForm]
    code: dict[str, str] = {}


# --- machine.json -----------------------------------------------------------------------------------------------------


class MachineForm(FileForm):
    """The machine on which the times were measured."""

    fingerprint: str
    processor: str


class CardForm(FileForm):
    """The machine and software of a run."""

    machine: MachineForm
    command: str
    revision: str
    versions: dict[str, str]


# --- runoffs/*.json ---------------------------------------------------------------------------------------------------


class RunOffForm(FileForm):
    """A run-off, as in `runoff.RunOff`: every cell with a point has a time, unless there are errors."""

    model_config = ConfigDict(extra="forbid")

    task: str
    seconds: dict[str, _Time]
    points: dict[str, str]
    baselines: dict[str, _Time]
    noise: FiniteFloat
    load: FiniteFloat
    wrong: dict[str, str]
    default: str = ""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if not self.wrong and self.seconds.keys() != self.points.keys():
            raise ValueError("seconds and points are of different cells")
        return self


# --- cells/*.json -----------------------------------------------------------------------------------------------------


class LookForm(FileForm):
    """A re-measurement, as in `study.IncumbentLook`."""

    model_config = ConfigDict(extra="forbid")

    rival: _Key
    leader: _Key
    confirmed: bool
    rival_s: _Seconds
    leader_s: _Seconds


class RoundForm(FileForm):
    """One batch of a search."""

    number: int
    trials: int
    best_s: _Seconds
    quality: dict[str, FiniteFloat | None]
    part: int | None = None
    looks: list[LookForm] = []


class FallbackForm(FileForm):
    """The default schedule beside the result of a search, as in `study.Fallback`."""

    program: str
    seconds: _Time
    kept: bool


class BestForm(FileForm):
    """The result of a search: the point, its trial and its time, and the default schedule in the same race."""

    trial: int
    knobs: dict[str, Any]
    point: str
    seconds: _Time
    fallback: FallbackForm | None = None


class FoundForm(BestForm):
    """The result for one task of a network."""

    task: str
    weight: _Time
    baselines: dict[str, _Time]


class AnySizeProgramForm(FileForm):
    """A program of a family's table, as in `study.AnySizeProgram`."""

    found_at: int
    point: str
    knobs: dict[str, Any]
    hash: str


class SizeIntervalForm(FileForm):
    """The sizes that a program is run for, as in `study.SizeInterval`."""

    low: int
    high: int
    program: int


class SizeTimesForm(FileForm):
    """The times at one size, as in `study.SizeTimes`."""

    size: int
    weight: _Time
    seconds: _Time
    alone_s: _Time
    default_s: _Time


class TableForm(FileForm):
    """The programs of a family with their intervals and times, as in `study.FamilyTable`."""

    size: str
    programs: list[AnySizeProgramForm]
    intervals: Annotated[list[SizeIntervalForm], Field(min_length=1)]
    times: Annotated[list[SizeTimesForm], Field(min_length=1)]
    refused: list[str]

    @model_validator(mode="after")
    def _known(self) -> Self:
        if not all(0 <= i.program < len(self.programs) for i in self.intervals):
            raise ValueError("an interval has a program that is not listed")
        return self


class WholeForm(BestForm):
    """The result for a task, for a network with its tasks, or for a family with its sizes and its table."""

    parts: list[FoundForm] | None = None
    table: TableForm | None = None


class CellFile(FileForm):
    """The result of a cell, as in `results.CellResult`, with the names that identify the cell."""

    format: Literal[1]
    id: str
    entry: str
    task: str
    seed: int
    factors: dict[str, str]
    state: Literal["done", "failed", "interrupted", "waiting"]
    seconds: list[_Seconds]
    elapsed: list[FiniteFloat | None]
    status: list[str]
    rounds: list[RoundForm]
    ledger: dict[str, FiniteFloat]
    best: WholeForm | None
    baselines: dict[str, _Time]
    optimum_s: _Seconds
    error: str

    @model_validator(mode="after")
    def _in_step(self) -> Self:
        if not len(self.seconds) == len(self.elapsed) == len(self.status):
            raise ValueError("seconds, elapsed and status differ in length")
        return self
