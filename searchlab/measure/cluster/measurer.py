"""RayMeasurer: the measurer for several machines.

with RayMeasurer(address="auto", resources={"device:a100": 1}) as measurer:
    for outcome in measurer.measure(jobs):
        ...
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence

from searchlab.errors import MeasureError
from searchlab.measure.cluster import resources as cluster
from searchlab.measure.cluster.connection import Connection
from searchlab.measure.cluster.dispatch import Dispatch, Rules
from searchlab.measure.cluster.lanes import LanePool, Setup
from searchlab.measure.cluster.resources import Demand
from searchlab.measure.cluster.slot import Factory, default_worker
from searchlab.measure.job import Job, Measurer, Outcome


class RayMeasurer(Measurer[Job]):
    """Measures on the slots of a Ray cluster.

    slots      number of devices that measure concurrently; None: as many as the cluster has room for
    address    of a cluster to join ("auto", "host:port"); None: the Ray of this process, or one started for it
    cpus       Ray CPUs per slot; `resources` are further resources per slot, such as {"device:a100": 1}
    cores      number of dedicated cores that each slot is pinned to; None: `cpus` rounded down; 0: not pinned
    builders   number of concurrent builds, away from the slots' cores; None: one per CPU that the slots leave, at most
               one per slot; 0: slots build for themselves
    retries    number of retries of a job that lost its slot, before it is quarantined (one more if other jobs shared
               the slot)
    per_actor  number of slots that share one actor: for remote devices, where the actor only waits
    worker     factory of workers, from a name and cores; for tests and for devices of other kinds
    start_s    timeout for the first slot
    patience_s timeout for an answer of a slot; None: derived from the jobs' limits
    """

    def __init__(
        self,
        slots: int | None = None,
        *,
        address: str | None = None,
        cpus: float = 1.0,
        resources: Mapping[str, float] | None = None,
        cores: int | None = None,
        builders: int | None = None,
        retries: int = 2,
        per_actor: int = 1,
        worker: Factory = default_worker,
        start_s: float = 120.0,
        patience_s: float | None = None,
    ) -> None:
        _check(slots, cpus, builders, retries, per_actor)
        self._cores = int(cpus) if cores is None else cores
        self._connection: Connection | None = Connection(address)
        try:
            demand = Demand({"CPU": cpus, **(resources or {})})
            nodes = cluster.alive(self._connection.ray)
            lanes = _lanes(slots, demand.times(per_actor), per_actor, nodes)
            self.slots = lanes * per_actor
            self.builders = _spare(demand, self.slots, nodes) if builders is None else builders
            if builders:
                cluster.require(Demand({"CPU": 1}), builders, "builders", nodes)
            setup = Setup(demand.times(per_actor), per_actor, self._cores, worker)
            self._pool = LanePool(self._connection.ray, lanes, setup)
            self._dispatch = Dispatch(self._pool, Rules(retries, self.builders, start_s, patience_s))
        except BaseException:  # also an interrupt: slots that were started must not stay
            self.close()
            raise

    def measure(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Yields one outcome per job, in order of completion; leaving the loop early cancels unfinished jobs."""
        self._check_open()
        for job in jobs:
            if 0 < self._cores < job.target.threads:
                wanted = f"job '{job.id}' uses {job.target.threads} threads"
                raise MeasureError(f"{wanted}, slots have {self._cores} cores: ask for more with cpus= or cores=")
        dispatch = self._dispatch
        batch = dispatch.submit(jobs)
        try:
            while batch.left or batch.done:
                begin = time.monotonic()
                while batch.done:
                    yield batch.done.popleft()
                dispatch.pause(time.monotonic() - begin)
                if batch.left:
                    self._check_open()
                    dispatch.step()
        finally:
            if self._connection is not None:
                dispatch.abandon(batch)

    def close(self) -> None:
        """Ends all slots, and Ray itself if it was started here."""
        connection, self._connection = self._connection, None
        if connection is not None:
            if hasattr(self, "_pool"):
                self._pool.close()
            connection.close()

    def _check_open(self) -> None:
        if self._connection is None:
            raise MeasureError("this measurer is closed")


def _check(slots: int | None, cpus: float, builders: int | None, retries: int, per_actor: int) -> None:
    if slots is not None and (slots < 1 or slots % per_actor):
        raise MeasureError(f"slots must be a positive multiple of {per_actor}, got {slots}")
    if min(cpus, builders or 0, retries) < 0 or per_actor < 1:
        raise MeasureError("cpus, builders and retries must not be negative, per_actor must be at least 1")


def _lanes(slots: int | None, demand: Demand, per_actor: int, nodes: Sequence[Mapping[str, float]]) -> int:
    """The number of actors."""
    if slots is None:
        fitting = cluster.room(demand, nodes)
        if fitting is None:
            raise MeasureError("slots without resources fit any number of times: set slots=")
        cluster.require(demand, 1, "slots", nodes)
        return fitting
    cluster.require(demand, slots // per_actor, "slots" if per_actor == 1 else f"groups of {per_actor} slots", nodes)
    return slots // per_actor


def _spare(demand: Demand, slots: int, nodes: Sequence[Mapping[str, float]]) -> int:
    left = sum(node.get("CPU", 0) for node in nodes) - slots * demand.amounts["CPU"]
    return max(0, min(slots, math.floor(left)))
