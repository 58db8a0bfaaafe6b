"""One cell on a task: stopping between measurements, going on with what was measured, the last look at the best."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from searchlab.lab.cells import cells
from searchlab.lab.config import from_data
from searchlab.lab.folder.cellfile import from_json, to_json
from searchlab.lab.manifest import Cell
from searchlab.lab.results import CellResult
from searchlab.lab.run import Folder
from searchlab.lab.run.execute.assembly import _space
from searchlab.lab.run.execute.cell import run_cell
from searchlab.lab.run.execute.elapsed import Elapsed
from searchlab.lab.run.execute.events import CellEnded, CellProgress, Doing, Event, Noted, Started
from searchlab.lab.run.execute.measurers import Measurers
from searchlab.lab.study import Finish, Study
from searchlab.measure import Job, Measurer, Outcome
from searchlab.search import Sketch, Task
from spaces.sketch import SketchSpace


@dataclass
class Made(Measurer[Job]):
    """Gives every program a time by its id, one in five a failure; calls `at` before each outcome."""

    at: Any = lambda count: None
    asked: list[str] = field(default_factory=list)

    def measure(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        for job in jobs:
            name = job.id.partition(":")[0]
            if name == job.id:
                self.asked.append(name)
                self.at(len(self.asked))
            number = int(name, 16)
            ok = number % 5 != 0
            times = (1e-6 * (1 + number % 97),) if ok else ()
            yield Outcome(job.id, "ok" if ok else "crash", times, run_s=0.01, build_s=0.02)


@pytest.fixture
def cell() -> Cell:
    settings = {"name": "one", "workloads": ["matmul:m=16,n=16,k=16"], "space": "template", "model": "none"}
    more = {"strategy": "random", "target": {"native": {"threads": 1}}, "seeds": [3], "start": "random"}
    (found,) = cells(from_data({**settings, **more, "budget": {"trials": 12, "batch": 4}}))
    return found


def searched(
    cell: Cell, path: Path, patch: pytest.MonkeyPatch, measurer: Made, stop: threading.Event | None = None
) -> tuple[CellResult, list[Event]]:
    patch.setattr(Measurers, "of", lambda self, cell, note: measurer)
    said: list[Event] = []
    return run_cell(cell, Folder(path), stop or threading.Event(), said.append, Measurers()), said


def no_race(self: Study, seconds: float, most: float) -> Finish:
    """Leaves it at the made-up times: in a race on this machine the winner is another one each time."""
    return Finish(0, self.best_s)


def test_a_stopped_cell_goes_on(cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Study, "finish", no_race)
    whole, _ = searched(cell, tmp_path / "whole", monkeypatch, Made())
    assert whole.state == "done" and len(whole.seconds) == 12 and {"ok", "crash"} == set(whole.status)

    stop = threading.Event()
    first = Made(at=lambda count: stop.set() if count == 6 else None)
    part, said = searched(cell, tmp_path / "run", monkeypatch, first, stop)
    assert part.state == "interrupted" and len(part.seconds) == 4 and part.best is not None
    assert [e.state for e in said if hasattr(e, "state")] == ["interrupted"]
    assert len(list(Folder(tmp_path / "run").records(cell.id))) == len(first.asked) == 6  # what was in flight is kept

    rest = Made()
    found, said = searched(cell, tmp_path / "run", monkeypatch, rest)
    assert found.state == "done" and len(rest.asked) == 6 and not set(rest.asked) & set(first.asked)
    assert found.seconds.tolist() == whole.seconds.tolist() and found.status == whole.status
    assert found.best is not None and whole.best is not None and found.best.point == whole.best.point
    assert (np.diff(found.elapsed) >= 0).all() and found.elapsed[:4].tolist() == part.elapsed.tolist()
    assert found.ledger["propose"] > part.ledger["propose"]
    assert all(e.measured <= 6 for e in said if isinstance(e, CellProgress))


def test_a_request_to_stop_before_anything_is_measured(
    cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = threading.Event()
    stop.set()
    found, _ = searched(cell, tmp_path, monkeypatch, Made(), stop)
    assert found.state == "interrupted" and len(found.seconds) == 0 and found.best is None


def test_the_last_look_is_what_counts(cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Study, "finish", lambda self, seconds, most: Finish(0, 2.5e-6, {"numpy": 5e-6}))
    found, _ = searched(cell, tmp_path, monkeypatch, Made())
    assert found.final_s == 2.5e-6 and found.baselines == {"numpy": 5e-6}


def test_nothing_worked(cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Made):
        def measure(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
            return (Outcome(job.id, "build", error="no") for job in jobs)

    found, _ = searched(cell, tmp_path, monkeypatch, Broken())
    assert found.state == "done" and found.best is None and found.failures == {"build": 12}
    again = Folder(tmp_path).result(cell)
    assert again is not None and np.isinf(again.seconds).all() and np.isinf(again.final_s)


def test_the_measurer_says_what_it_waits_for(cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def of(self: Measurers, cell: Cell, note: Any) -> Made:
        note("waiting for cores")
        return Made()

    monkeypatch.setattr(Measurers, "of", of)
    said: list[Event] = []
    run_cell(cell, Folder(tmp_path), threading.Event(), said.append, Measurers())
    assert Noted(cell.id, "waiting for cores") in said


def test_cells_of_a_task_share_its_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"name": "two", "workloads": ["matmul:m=16,n=16,k=16"], "space": "sketch", "strategy": "evolutionary"}
    more = {"target": {"x86-64-v3": {"threads": 1}}, "seeds": [1, 2], "budget": {"trials": 8, "batch": 4}}
    first, second = cells(from_data({**settings, **more}))
    built: list[str] = []
    sketches = SketchSpace.sketches

    def counted(self: SketchSpace, task: Task) -> Iterator[Sketch]:
        built.append(str(task))
        return sketches(self, task)

    monkeypatch.setattr(SketchSpace, "sketches", counted)
    monkeypatch.setattr(Study, "finish", no_race)
    _space.cache_clear()
    alone, said = searched(second, tmp_path / "alone", monkeypatch, Made())
    kinds = [type(e) for e in said]
    assert kinds[:2] == [Started, Doing] and kinds[-1] is CellEnded and len(built) == 1
    assert kinds.index(Doing) < kinds.index(CellProgress)
    assert [e.text for e in said if isinstance(e, Doing)][0] == "building the search space"
    _space.cache_clear()
    searched(first, tmp_path / "first", monkeypatch, Made())
    after, said = searched(second, tmp_path / "after", monkeypatch, Made())
    assert len(built) == 2 and not [e for e in said if isinstance(e, Doing) and "building" in e.text]
    assert after.seconds.tolist() == alone.seconds.tolist()  # what another cell has compiled changes nothing


def test_a_budget_of_seconds(cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For tables it is the simulated time, so that it is the same everywhere."""
    settings = {"name": "one", "workloads": [{"table": "softmax-128x1024"}], "strategy": "random", "seeds": [0]}
    (timed,) = cells(from_data({**settings, "budget": {"seconds": 1.5, "batch": 2}}))
    found = run_cell(timed, Folder(tmp_path), threading.Event(), lambda event: None, Measurers())
    assert found.state == "done" and found.elapsed[-1] >= 1.5 > found.elapsed[-3]


def test_results_are_read_back_as_they_were(cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = searched(cell, tmp_path, monkeypatch, Made())
    again = from_json(to_json(found), cell)
    assert again is not None and to_json(again) == to_json(found)
    assert again.seconds.tolist() == found.seconds.tolist() and again.rounds == found.rounds


def test_elapsed_goes_on_where_it_was() -> None:
    clock = [100.0]
    first = Elapsed(lambda: clock[0])
    outcomes = [Outcome(str(n), "ok", (1.0,), run_s=0.5) for n in range(6)]
    first.extend(outcomes[:2], {"0": 101.0, "1": 103.0})
    assert first.times == [1.0, 3.0]
    clock[0] = 500.0
    later = Elapsed(lambda: clock[0], first.times)
    later.extend(outcomes[:2], {})
    later.extend(outcomes[2:4], {"3": 502.0})  # the third was measured just before the end
    assert later.times == [1.0, 3.0, 3.5, 5.0]
    clock[0] = 510.0
    assert later.total == 13.0
