"""The dispatch of jobs to builders and slots: every job is answered exactly once, whatever is lost.

When an actor is lost, it is unknown which of its jobs was at fault.  All of them become suspects: each is retried
alone on a slot, a different one if possible.  Thus only a job that kills its slot by itself is quarantined.
"""

from __future__ import annotations

import itertools
import pickle
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from searchlab.errors import MeasureError
from searchlab.measure.cluster.lanes import Event, Lane, LanePool, is_fault, reason_of
from searchlab.measure.cluster.slot import Built, Parcel, SlotPlace
from searchlab.measure.job import Job, Outcome
from searchlab.measure.workers.worker import PREPARE_S

DEPTH = 2  # jobs per worker: one runs, one is queued behind it
_TICK_S = 0.5
_SLACK_S = 60.0
_LATE_BUILD_S = 5.0


@dataclass(eq=False)
class Batch:
    """The jobs of one call of `measure`."""

    left: int
    done: deque[Outcome] = field(default_factory=deque)


@dataclass(eq=False)
class Ticket:
    """An unanswered job."""

    number: int
    job: Job
    batch: Batch
    arrived: float
    built: bytes | None = None
    sent: float = 0.0
    since: float = 0.0  # the time from which its slot or builder counts as slow
    build_s: float = 0.0
    losses: int = 0
    tried: set[str] = field(default_factory=set)  # lanes that were lost while running it
    token: object = None  # of the build in progress
    build: Any = None

    @property
    def data(self) -> bytes:
        """The job as it is sent: with its object code once that exists."""
        return self.built or pickle.dumps(self.job, pickle.HIGHEST_PROTOCOL)

    def expects(self, token: object) -> bool:
        """Whether an event is about the task that has the ticket now."""
        return token is self.token


@dataclass(frozen=True)
class Rules:
    """The number of retries per job and of concurrent builds, and the patience with silent slots."""

    retries: int
    builders: int
    start_s: float
    patience_s: float | None


class Dispatch:
    """Hands jobs to slots and builders, and takes their outcomes; batches may overlap."""

    def __init__(self, pool: LanePool, rules: Rules) -> None:
        self._pool, self._rules = pool, rules
        self._numbers = itertools.count()
        self._open: dict[int, Ticket] = {}
        self._unbuilt: deque[Ticket] = deque()
        self._ready: deque[Ticket] = deque()
        self._suspects: deque[Ticket] = deque()
        self._building: set[Ticket] = set()
        self._flying: dict[Lane, dict[int, Ticket]] = {lane: {} for lane in pool.lanes}
        self._longest_build = 0.0
        self._last_ready = self._next_tick = 0.0

    def submit(self, jobs: Sequence[Job]) -> Batch:
        """Adds a batch of jobs."""
        now = time.monotonic()
        if not self._open:
            self._last_ready = now
        batch = Batch(len(jobs))
        for job in jobs:
            ticket = Ticket(next(self._numbers), job, batch, now)
            self._open[ticket.number] = ticket
            (self._unbuilt if self._rules.builders and job.program is not None else self._ready).append(ticket)
        self._pool.revive()
        self._feed(())
        return batch

    def step(self) -> None:
        """Waits briefly for events and handles them."""
        self._feed([lane for event in self._pool.wait(_TICK_S) if (lane := self._handle(event)) is not None])
        if time.monotonic() > self._next_tick:
            self._tick()

    def pause(self, seconds: float) -> None:
        """Excludes time in which the caller was busy and not listening from the patience with slots."""
        if seconds > _TICK_S:
            self._last_ready += seconds
            for ticket in [*self._building, *(t for flying in self._flying.values() for t in flying.values())]:
                ticket.since += seconds

    def abandon(self, batch: Batch) -> None:
        """Cancels the unfinished jobs of a batch."""
        mine = {ticket for ticket in self._open.values() if ticket.batch is batch}
        for ticket in mine:
            del self._open[ticket.number]
            if ticket in self._building:
                self._cancel_build(ticket)
        for waiting in (self._unbuilt, self._ready, self._suspects):
            for ticket in mine.intersection(waiting):
                waiting.remove(ticket)
        for lane, flying in self._flying.items():
            if mine.intersection(flying.values()):
                self._flying[lane] = {}
                self._pool.stop(lane)
                self._ready.extendleft(ticket for ticket in flying.values() if ticket not in mine)
        if self._open:
            self._pool.revive()

    # --- assignment ---------------------------------------------------------------------------------------------------

    def _feed(self, answered: Sequence[Lane]) -> None:
        """Gives jobs to lanes with room: one per worker to all lanes before any gets a second one."""
        workers, each = self._pool.workers, self._pool.setup.workers
        while self._unbuilt and len(self._building) < self._rules.builders * DEPTH > len(self._ready) - workers:
            self._begin_build(self._unbuilt.popleft())
        picked: dict[Lane, None] = dict.fromkeys(answered)
        # the last jobs are held back for idle workers
        for depth, leave in ((1, 0), (DEPTH, workers)):
            if self._suspects or self._left > leave:
                for lane in [x for x in self._pool.lanes if x.ready and len(self._flying[x]) < depth * each]:
                    for ticket in self._pick(lane, depth * each, leave):
                        ticket.sent, self._flying[lane][ticket.number] = 0.0, ticket
                        picked[lane] = None
        for lane in picked:
            self._send(lane)

    @property
    def _left(self) -> int:
        return len(self._ready) + len(self._unbuilt) + len(self._building)

    def _send(self, lane: Lane) -> None:
        """Sends the jobs picked for a lane, and ensures that a call waits for its answers."""
        flying = self._flying[lane]
        unsent = [ticket for ticket in flying.values() if not ticket.sent]
        for ticket in unsent:
            ticket.sent = ticket.since = time.monotonic()
        if unsent or (lane.ready and lane.token is None and flying):
            self._pool.send(lane, [Parcel(t.number, t.data) for t in unsent])

    def _pick(self, lane: Lane, most: int, leave: int) -> list[Ticket]:
        """Jobs until the lane has `most`, as long as more than `leave` are left."""
        flying = self._flying[lane]
        if len(flying) == 1 and next(iter(flying.values())).losses:
            return []  # a suspect stays alone
        if self._suspects and (suspect := self._suspect_for(lane)) is not None:
            if not flying:
                self._suspects.remove(suspect)
                return [suspect]
            if self._emptied(lane):
                return []
        picked: list[Ticket] = []
        while self._ready and len(flying) + len(picked) < most and self._left > leave:
            ticket = self._ready.popleft()
            if not self._expire(ticket):
                picked.append(ticket)
        return picked or ([] if flying else self._to_build())

    def _to_build(self) -> list[Ticket]:
        """A job that an idle slot builds for itself, or that no builder has the resources for."""
        if self._ready or not (self._unbuilt or self._building):
            return []
        if self._unbuilt:
            return [self._unbuilt.pop()]
        since = time.monotonic() - max(_LATE_BUILD_S, 3 * self._longest_build)
        late = [ticket for ticket in self._building if ticket.since < since][:1]
        for ticket in late:
            self._cancel_build(ticket)
        return late

    def _suspect_for(self, lane: Lane) -> Ticket | None:
        others = {other.name for other in self._pool.lanes if other.ready}
        return next((t for t in self._suspects if lane.name not in t.tried or others <= t.tried), None)

    def _emptied(self, lane: Lane) -> bool:
        """Whether a lane is being drained for a suspect: the first eligible lanes, as many as there are suspects."""
        able = [each for each in self._pool.lanes if each.ready and self._suspect_for(each)]
        return lane in able[: len(self._suspects)]

    def _begin_build(self, ticket: Ticket) -> None:
        ticket.token, ticket.build = self._pool.build(ticket, ticket.data)
        ticket.since = time.monotonic()
        self._building.add(ticket)

    def _cancel_build(self, ticket: Ticket) -> None:
        self._pool.cancel(ticket.build)
        ticket.token = ticket.build = None
        self._building.discard(ticket)

    # --- answers ------------------------------------------------------------------------------------------------------

    def _handle(self, event: Event) -> Lane | None:
        """Handles the result of a call; returns the lane that answered, if any."""
        source, error = event.source, event.future.exception()
        if not source.expects(event.token):
            return None
        if isinstance(source, Ticket):
            self._end_build(source, error, None if error else event.future.result())
            return None
        lane: Lane = source
        if error is not None:
            self._lose(lane, reason_of(error), broken=is_fault(error))
            return None
        result = event.future.result()
        lane.token = None
        if isinstance(result, SlotPlace):
            self._pool.arrived(lane, result)
        else:
            for number, outcome in result:
                self._answered(lane, number, outcome)
        return lane

    def _answered(self, lane: Lane, number: int, outcome: Outcome) -> None:
        ticket = self._flying[lane].pop(number, None)
        lane.failures = 0
        if ticket is not None:
            waited = ticket.sent - ticket.arrived - ticket.build_s
            self._close(ticket, replace(outcome, queue_s=outcome.queue_s + max(0.0, waited)))

    def _close(self, ticket: Ticket, outcome: Outcome) -> None:
        if self._open.pop(ticket.number, None) is None:
            return
        attempts = outcome.attempts + ticket.losses if outcome.status != "quarantined" else outcome.attempts
        build_s = outcome.build_s or ticket.build_s
        ticket.batch.left -= 1
        ticket.batch.done.append(replace(outcome, id=ticket.job.id, attempts=attempts, build_s=build_s))

    def _end_build(self, ticket: Ticket, error: BaseException | None, built: Built | None) -> None:
        self._building.discard(ticket)
        ticket.token = ticket.build = None
        if built is None:
            if error is None or is_fault(error):
                self._ready.append(ticket)  # the builder is unusable, but a slot can build as well
            else:
                self._lost(ticket, reason_of(error), self._unbuilt, sure=True)
            return
        ticket.build_s = built.seconds
        self._longest_build = max(self._longest_build, built.seconds)
        if built.job is None:
            self._close(ticket, built.outcome or Outcome(ticket.job.id, "build"))
        else:
            ticket.built = built.job
            self._ready.append(ticket)

    def _lose(self, lane: Lane, reason: str, broken: bool = False) -> None:
        """Handles the loss of an actor; if it is `broken`, its jobs are not at fault."""
        flying, self._flying[lane] = self._flying[lane], {}
        self._pool.replace(lane, reason, broken)
        for ticket in flying.values():
            if broken:
                (self._suspects if ticket.losses else self._ready).appendleft(ticket)
            else:
                ticket.tried.add(lane.name)
                self._lost(ticket, reason, self._suspects, sure=len(flying) == 1)
        if all(each.retired for each in self._pool.lanes):
            raise MeasureError(f"no slot can be started: {reason}")

    def _lost(self, ticket: Ticket, reason: str, again: deque[Ticket], sure: bool) -> None:
        """Handles a job whose slot or builder was lost; `sure` if it ran no other job."""
        ticket.losses += 1
        if ticket.losses > self._rules.retries and sure:
            error = f"given up: it lost its worker {ticket.losses} times; the last time: {reason}"
            where = ", ".join(sorted(ticket.tried))
            given_up = Outcome(ticket.job.id, "quarantined", error=error, worker=where, attempts=ticket.losses)
            self._close(ticket, given_up)
        else:
            again.append(ticket)

    # --- clocks -------------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        now = time.monotonic()
        self._next_tick = now + _TICK_S
        for queue in (self._unbuilt, self._ready):
            for ticket in [t for t in queue if self._expire(t)]:
                queue.remove(ticket)
        for lane, flying in self._flying.items():
            waited = now - min((ticket.since for ticket in flying.values()), default=now)
            if waited > self._patience(flying):
                self._lose(lane, f"the slot did not answer for {waited:.0f} s")
        if self._pool.workers:
            self._last_ready = now
        elif now - self._last_ready > self._rules.start_s:
            raise MeasureError(f"no slot came up in {self._rules.start_s:g} s; {self._pool.shortage()}")

    def _expire(self, ticket: Ticket) -> bool:
        """Whether a job has waited for too long, which then becomes its outcome."""
        limit, waited = ticket.job.limits.queue_s, time.monotonic() - ticket.arrived
        if limit is None or ticket.losses or waited <= limit:
            return False
        error = f"queue_s: waited longer than {limit:g} s for a slot"
        self._close(ticket, Outcome(ticket.job.id, "timeout", error=error, queue_s=waited))
        return True

    def _patience(self, flying: dict[int, Ticket]) -> float:
        if self._rules.patience_s is not None:
            return self._rules.patience_s
        # workers enforce the limits themselves; this is for slots that no longer respond at all
        longest = max((t.job.limits.build_s + t.job.limits.run_s for t in flying.values()), default=0.0)
        return DEPTH * (longest + PREPARE_S) + _SLACK_S
