"""The incumbent of a study: the best candidate so far, which others replace only if a re-measurement confirms them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from searchlab.lab.study.subject import Candidate, SpaceSubject
from searchlab.lab.study.trial_log import TrialLog
from searchlab.search import Points

_LOOKS = 2  # re-measurements of potential incumbents after a batch


@dataclass(frozen=True)
class IncumbentLook:
    """A re-measurement of a potential incumbent beside the current one: both keys, the winner, and both times."""

    rival: int
    leader: int
    confirmed: bool
    rival_s: float
    leader_s: float


Look = Callable[[Candidate, Candidate], IncumbentLook]


class Incumbent:
    """The fastest trial that did not lose a re-measurement against its predecessor.

    `look` measures a rival and the incumbent interleaved, under the same conditions, and these times alone decide: the
    first measurement may have met a slow phase.  Without it the fastest trial leads at once.  `known` are the looks of
    an earlier run of the study; `lowered` is called with each time that a look has lowered.
    """

    def __init__(
        self,
        subject: SpaceSubject,
        log: TrialLog,
        look: Look | None,
        lowered: Callable[[Candidate, float], object],
        known: Iterable[IncumbentLook] = (),
    ) -> None:
        self._subject, self._log = subject, log
        self._look, self._lowered = look, lowered
        self._known = list(known)
        self._leader: tuple[Candidate, float] | None = None
        self._beaten: set[int] = set()  # keys of candidates that lost against the incumbent
        self._looks: list[IncumbentLook] = []

    @property
    def seconds(self) -> float:
        """Its time; infinite if nothing has worked."""
        return math.inf if self._leader is None else self._leader[1]

    @property
    def point(self) -> Points | None:
        """Its point; None if nothing has worked."""
        return None if self._leader is None else self._leader[0].point

    def put(self, point: Points, seconds: float) -> None:
        """Makes a point the incumbent, regardless of its trial."""
        self._leader = (self._subject.candidate(point, None), seconds)

    def update(self) -> None:
        """Makes the fastest trial the incumbent if a re-measurement beside the current one confirms it."""
        for _ in range(_LOOKS):
            rival = self._rival()
            if rival is None:
                return
            if self._leader is None or self._look is None:
                self._lead(rival)
                return
            if self._confirmed(rival, self._leader[0], self._look):
                self._lead(rival)

    def looks(self) -> tuple[IncumbentLook, ...]:
        """The looks taken since the previous call."""
        taken, self._looks = tuple(self._looks), []
        return taken

    def _lead(self, candidate: Candidate) -> None:
        self._leader = (candidate, self._log.seconds(candidate))
        self._beaten.clear()

    def _rival(self) -> Candidate | None:
        """The fastest trial that is faster than the incumbent and has not lost against it."""
        trials = self._log.trials
        for row in np.argsort(trials.seconds, kind="stable").tolist():
            if trials.seconds[row] >= self.seconds or not math.isfinite(trials.seconds[row]):
                return None
            point = trials.points[row]
            key = int(trials.space.key(point)[0])
            if key not in self._beaten and (self._leader is None or key != self._leader[0].key):
                return self._subject.candidate(point, None)
        return None

    def _confirmed(self, rival: Candidate, leader: Candidate, look: Look) -> bool:
        pair = (rival.key, leader.key)
        found = next((known for known in self._known if (known.rival, known.leader) == pair), None)
        if found is not None:
            self._known.remove(found)
        else:
            found = look(rival, leader)
        self._looks.append(found)
        if not found.confirmed:
            self._beaten.add(rival.key)
        for candidate, seconds in ((rival, found.rival_s), (leader, found.leader_s)):
            if math.isfinite(seconds) and self._log.lower(candidate, seconds):
                self._lowered(candidate, seconds)
        self._leader = (leader, self._log.seconds(leader))
        return found.confirmed
