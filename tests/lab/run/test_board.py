"""What a run shows of a cell before its first trial."""

import pytest
from lab.made import bare_cell
from rich.console import Console

from searchlab.cli import views
from searchlab.lab.run.execute.events import CellProgress, Doing, Event, Started
from searchlab.lab.run.execute.run_state import RunState

TEXT = "building the search space (120 structures so far)"


@pytest.fixture
def board() -> RunState:
    return RunState([bare_cell("sketch", "attention", 0, id="c")], [])


def shown(board: RunState) -> str:
    console = Console(width=160)
    with console.capture() as got:
        console.print(views.drawing(board))
    return got.get()


def test_the_live_view_says_what_a_cell_is_at(board: RunState) -> None:
    board.update(Started("c"))
    assert board.update(Doing("c", TEXT)).doing == TEXT and TEXT in shown(board)
    board.update(CellProgress("c", 0, 0))
    assert "building" not in shown(board) and "nothing worked yet" in shown(board)


def test_plain_lines_say_what_a_cell_is_at(board: RunState, monkeypatch: pytest.MonkeyPatch) -> None:
    said, now = [], [0.0]
    monkeypatch.setattr(views.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(views.err, "print", lambda text, **_: said.append(text))
    lines = views.Lines()

    def change(seconds: float, event: Event) -> None:
        now[0] += seconds
        lines.changed(board.update(event), event, board)

    change(0, Started("c"))
    change(1, Doing("c", "building the search space"))  # quick ones pass without a word
    change(4, Doing("c", TEXT))
    change(1, Doing("c", "compiling features (1 of 16 structures)"))
    assert len(said) == 1 and TEXT in said[0]
