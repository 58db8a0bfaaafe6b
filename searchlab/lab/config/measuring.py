"""The ways to measure, as settings: here, on a Ray cluster, looked up in recorded tables, or emulated and modelled."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, Strict, model_serializer

from searchlab.measure.job import Limits
from searchlab.timing.protocol import Protocol

Listed = Strict(False)  # a tuple that files write as a list; its items are as strict as everything else
_PROTOCOL, _LIMITS = Protocol(), Limits()


class Model(BaseModel):
    """A part of an experiment: unknown keys are refused, numbers in quotes too."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True)


class Timing(Model):
    """The timing of candidates, on any machine."""

    repeats: int = Field(default=_PROTOCOL.repeats, ge=1, le=10_000, description="samples per candidate")
    min_repeat_ms: float = Field(
        default=_PROTOCOL.min_repeat_ms, ge=0, le=60_000, description="minimum duration of a sample"
    )
    warmup: int = Field(default=_PROTOCOL.warmup, ge=0, le=10_000, description="untimed runs before the first sample")
    cache: Literal["warm", "cold"] = Field(
        default=_PROTOCOL.cache, description="cold: flush the caches before every run"
    )
    steady: bool = Field(default=_PROTOCOL.steady, description="retake samples during which the core was slow")
    check: bool = Field(default=_PROTOCOL.check, description="compare each candidate's result with the reference")
    early_stop: float | None = Field(
        default=_PROTOCOL.early_stop,
        gt=1,
        description="slow-down against the best beyond which a candidate is run only once",
    )
    beaten: float | None = Field(
        default=_PROTOCOL.beaten,
        gt=1,
        description="slow-down against the best beyond which a candidate gets only three samples",
    )
    confirm: bool = Field(default=True, description="re-measure a new best, interleaved with the old one")
    build_s: float = Field(default=_LIMITS.build_s, gt=0, description="time limit of a build")
    run_s: float = Field(default=_LIMITS.run_s, gt=0, description="time limit of running a candidate")
    queue_s: float | None = Field(
        default=_LIMITS.queue_s, gt=0, description="time limit of waiting for a worker; null: none"
    )
    memory_bytes: int | None = Field(
        default=_LIMITS.memory_bytes, ge=1 << 20, description="memory limit of a candidate, beyond its inputs"
    )

    @property
    def protocol(self) -> Protocol:
        """How a candidate is timed."""
        names = [f.name for f in fields(Protocol) if f.name in Timing.model_fields]
        return Protocol(**{n: getattr(self, n) for n in names})

    @property
    def limits(self) -> Limits:
        """How long its phases may take."""
        return Limits(self.build_s, self.run_s, self.queue_s, self.memory_bytes)


class LocalMeasure(Timing):
    """On this machine, in isolated processes."""

    workers: int = Field(
        default=1, ge=1, le=1024, description="number of candidates timed in parallel, each on its own cores"
    )
    builders: int | None = Field(
        default=None, ge=0, le=1024, description="number of candidates built in parallel; null: chosen automatically"
    )
    cores: Annotated[tuple[int, ...], Listed] | None = Field(
        default=None, min_length=1, description="cores to use; null: all"
    )
    devices: Annotated[tuple[int, ...], Listed] | None = Field(
        default=None, min_length=1, description="GPUs to use, each by a worker of its own; null: the first"
    )

    @property
    def options(self) -> dict[str, Any]:
        """What LocalMeasurer takes."""
        return {"workers": self.workers, "builders": self.builders, "cores": self.cores, "devices": self.devices}


class EmulatedMeasure(LocalMeasure):
    """Without a GPU: an emulator checks results, and a model gives costs in cycles, which are not times."""

    confirm: bool = Field(default=False, description="re-measure a new best; modelled costs never differ")
    run_s: float = Field(default=60.0, gt=0, description="time limit of emulating a candidate")


class Ray(Timing):
    """On the slots of a Ray cluster."""

    address: str | None = Field(
        default=None, description="address of a cluster to join: auto or host:port; null: start one here"
    )
    slots: int | None = Field(
        default=None, ge=1, description="number of workers that measure in parallel; null: as many as fit"
    )
    cpus: float = Field(default=1.0, ge=0, description="number of Ray CPUs per slot")
    resources: dict[str, float] = Field(default_factory=dict, description="further Ray resources per slot, by name")
    cores: int | None = Field(
        default=None, ge=0, description="number of cores each slot is pinned to; null: as many as cpus; 0: none"
    )
    builders: int | None = Field(
        default=None, ge=0, description="number of tasks that build in parallel; null: chosen automatically"
    )
    retries: int = Field(default=2, ge=0, description="how often a job whose slot was lost is retried")
    per_actor: int = Field(default=1, ge=1, description="number of slots that share one actor")
    start_s: float = Field(default=120.0, gt=0, description="time limit of waiting for the first slot")
    patience_s: float | None = Field(
        default=None, gt=0, description="time limit of waiting for an answer; null: derived from the other limits"
    )

    @property
    def options(self) -> dict[str, Any]:
        """What RayMeasurer takes."""
        names = Ray.model_fields.keys() - Timing.model_fields.keys()
        return {n: getattr(self, n) for n in sorted(names)}


class Replay(Model):
    """From recorded tables, with a simulated clock."""

    workers: int = Field(
        default=1, ge=1, le=100_000, description="number of simulated workers, which divide the simulated time"
    )
    noise: bool = Field(default=False, description="draw times from the recorded raw runs")
    repeats: int | None = Field(
        default=None, ge=1, description="number of raw runs to draw per candidate; null: as many as recorded"
    )

    @property
    def options(self) -> dict[str, Any]:
        """What ReplayMeasurer takes besides the table and a seed."""
        return self.model_dump()


KINDS: dict[str, type[Model]] = {"local": LocalMeasure, "ray": Ray, "replay": Replay, "emulated": EmulatedMeasure}


class Measure(Model):
    """How to measure: exactly one of the kinds."""

    local: LocalMeasure | None = Field(default=None, description=str(LocalMeasure.__doc__))
    ray: Ray | None = Field(default=None, description=str(Ray.__doc__))
    replay: Replay | None = Field(default=None, description=str(Replay.__doc__))
    emulated: EmulatedMeasure | None = Field(default=None, description=str(EmulatedMeasure.__doc__))

    @property
    def kind(self) -> str:
        """local, ray, replay or emulated."""
        return next(k for k in KINDS if getattr(self, k) is not None)

    @property
    def settings(self) -> LocalMeasure | Ray | Replay | EmulatedMeasure:
        """The settings of the kind."""
        found: LocalMeasure | Ray | Replay | EmulatedMeasure = getattr(self, self.kind)
        return found

    @model_serializer(mode="wrap")
    def _one(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {k: v for k, v in handler(self).items() if k == self.kind}
