"""What is known of a whole model after it was tuned: its times side by side, and the decisions behind them.

A run folder keeps it in `models.json`, one entry for each model of the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from searchlab.graph.model.options import CompileOptions
from searchlab.lab.folder import atomic
from searchlab.lab.folder.file_forms import FileForm
from searchlab.timing.turns import Times

FILE = "models.json"
DEFAULT, TUNED, EAGER = "default", "tuned", "torch"
CallKind = Literal["own", "library", "other"]
_AGAIN = "delete it: `searchlab tune` or `searchlab run` times the model again"
_MEASURED = ("times", "kernels", "error", "load", "calls", "held", "by_size", "decided_again", "taken")


@dataclass(frozen=True)
class VariantTime:
    """A way to compile a model, by what differs from the options that others start from, and its time.

    `error` is why it has none.
    """

    name: str
    seconds: float | None = None
    chosen: bool = False
    error: str = ""


@dataclass(frozen=True)
class CallRecord:
    """A call of a model: its result, what is called, whose code that is, and its seconds in a typical run, in which the
    functions of a model are called as often as its source says.

    `reads` are the calls whose results it reads, views looked through; `live` the bytes of intermediate results and
    workspaces that are needed while it runs.
    """

    name: str
    callee: str
    kind: CallKind
    seconds: float
    flops: int | None = None
    reads: tuple[str, ...] = ()
    live: int = 0

    @staticmethod
    def of(data: Mapping[str, Any]) -> CallRecord:
        """The record that plain data describes."""
        known = {name: data[name] for name in CallRecord.__dataclass_fields__ if name in data}
        return CallRecord(**{**known, "reads": tuple(data["reads"])})


@dataclass(frozen=True)
class SizeRace:
    """Whole runs at one choice of the open sizes: seconds by way to compile the model, timed in turns."""

    sizes: Mapping[str, int]
    seconds: Mapping[str, float]


def _options(plain: Mapping[str, Any]) -> CompileOptions:
    """Options from plain data; in those that were read from a file, tuples are lists."""
    return CompileOptions.of({n: tuple(v) if isinstance(v, list) else v for n, v in plain.items()})


@dataclass(frozen=True)
class ModelResult:
    """The times of whole runs of a model, taken in turns: with default schedules, with tuned ones, and in torch.

    `kernels` are sums over the tasks that were searched, each as often as it occurs and timed alone, with the default
    schedules and with the tuned ones.  `searched`, `known` and `others` count tasks: those of this run, those taken
    from earlier ones, and those left at their default.  `error` is the largest difference from the reference, relative
    to the largest result; `load` the share of the cores that other processes used; `options` are those of the model.
    `sizes` are the values that open sizes had while tasks were searched, and in the runs that were timed.
    `calls` are those of the tuned model, and `held` the bytes that its plan of memory holds in one run.  `by_size` are
    whole runs at other values of open sizes.  `decided_again` are the ways to compile it with what was found, and
    `taken` the options of the fastest of these, which are those of the tuned model; `options` are those that its tasks
    were searched with.
    """

    name: str
    graph: str
    target: str
    times: Mapping[str, Times]
    kernels: Mapping[str, float] = field(default_factory=dict)
    searched: int = 0
    known: int = 0
    others: int = 0
    error: float = 0.0
    load: float = 0.0
    options: Mapping[str, Any] = field(default_factory=dict)
    variants: tuple[VariantTime, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    after: tuple[str, ...] = ()  # the runs that known tasks were taken from
    calls: tuple[CallRecord, ...] = ()
    held: int = 0
    by_size: tuple[SizeRace, ...] = ()
    decided_again: tuple[VariantTime, ...] = ()
    taken: Mapping[str, Any] = field(default_factory=dict)

    def speedup(self, over: str) -> float | None:
        """How many times faster the tuned model is than another one."""
        if over not in self.times or TUNED not in self.times:
            return None
        return self.times[over].min / self.times[TUNED].min

    @property
    def measured(self) -> dict[str, Any]:
        """What was not planned, but measured: a later plan with the same options keeps it."""
        return {name: getattr(self, name) for name in _MEASURED}

    @property
    def compile_options(self) -> CompileOptions:
        """The options that the tasks of the model were made with."""
        return _options(self.options)

    @property
    def tuned_options(self) -> CompileOptions:
        """The options of the tuned model, which may have been decided again after the search."""
        return _options(self.taken if self.times else self.options)

    @property
    def plain(self) -> dict[str, Any]:
        """The result as plain data."""
        return {**asdict(self), "times": {name: asdict(t) for name, t in self.times.items()}}

    @staticmethod
    def of(data: Mapping[str, Any]) -> ModelResult:
        """The result that plain data describes; keys of later versions are ignored."""
        known = {name: data[name] for name in ModelResult.__dataclass_fields__ if name in data}
        times = {name: Times(**t) for name, t in data["times"].items()}
        variants, again = (tuple(VariantTime(**v) for v in data.get(k, ())) for k in ("variants", "decided_again"))
        calls = tuple(map(CallRecord.of, data.get("calls", ())))
        made = {"times": times, "variants": variants, "after": tuple(data.get("after", ())), "calls": calls}
        by_size = tuple(SizeRace(**race) for race in data.get("by_size", ()))
        return ModelResult(**{**known, **made, "by_size": by_size, "decided_again": again})


class TimesForm(FileForm):
    """The times of one contender."""

    min: float
    median: float
    rounds: int
    spread: float


class VariantForm(FileForm):
    """One way to compile a model."""

    name: str
    seconds: float | None
    chosen: bool
    error: str


class CallForm(FileForm):
    """One call of a model."""

    name: str
    callee: str
    kind: CallKind
    seconds: float
    flops: int | None
    reads: list[str]
    live: int


class SizeRaceForm(FileForm):
    """Whole runs at one choice of sizes."""

    sizes: dict[str, int]
    seconds: dict[str, float]


class ModelForm(FileForm):
    """One model."""

    name: str
    graph: str
    target: str
    times: dict[str, TimesForm]
    kernels: dict[str, float]
    variants: list[VariantForm]
    calls: list[CallForm] = []
    held: int = 0
    by_size: list[SizeRaceForm] = []
    decided_again: list[VariantForm] = []


class ModelsForm(FileForm):
    """The file."""

    models: list[ModelForm]


def model_results(folder: str | Path) -> tuple[ModelResult, ...]:
    """The whole models of a run folder; none if there is no file, or if it is damaged, which causes a warning."""
    data = atomic.known_json(Path(folder) / FILE, ModelsForm, _AGAIN)
    return () if data is None else tuple(map(ModelResult.of, data["models"]))


def write_results(folder: str | Path, found: Iterable[ModelResult]) -> None:
    """Adds results to those of a folder; a newer one of the same model takes the place of an older one."""
    whole = {result.name: result for result in (*model_results(folder), *found)}
    Path(folder).mkdir(parents=True, exist_ok=True)
    atomic.replace_json(Path(folder) / FILE, {"models": [result.plain for result in whole.values()]})
