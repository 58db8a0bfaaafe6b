"""What a run folder gives to take home: the search's program, or the default schedule where that was faster."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from lab.export.small_run import write as write_run
from typer.testing import CliRunner

import searchlab as sl
from searchlab.bench import DEFAULT
from searchlab.cli import app
from searchlab.cli.standings import print_standings
from searchlab.defaults import default_schedule
from searchlab.errors import ExportError
from searchlab.lab.export import best_program, best_programs
from searchlab.lab.report import Report
from searchlab.lab.results import PartWinner, to_take
from searchlab.lab.run import Folder, load
from searchlab.lab.run.runoff.runoff import RunOff, groups, results, write
from searchlab.lab.run.status import status
from searchlab.lab.statistics import scores
from searchlab.lab.statistics.wording import ahead, kept
from searchlab.lab.study import Fallback
from searchlab.targets import parse as target
from searchlab.workloads import parse

WORKLOAD = parse("matmul:m=64,n=64,k=64")
PROGRAM = default_schedule(WORKLOAD.program, target("x86-64-v3"))
SAID = "default schedule kept: 25 % faster than the best of the search"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        return write_run(tmp_path_factory.mktemp("run") / "small", patch)


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Folder:
    """The folder of two searches, both of which the default schedule beat by a quarter in their final races."""
    place = Folder(Path(shutil.copytree(written, tmp_path / "run")))
    raced(place, {"random": 1.25, "genetic": 1.25})
    return place


def raced(place: Folder, ahead: dict[str, float]) -> None:
    """Puts the default schedule beside each search, by how many times as fast it was."""
    for r in list(place.results()):
        assert r.best is not None
        seconds = r.final_s / ahead[r.entry]
        fallback = Fallback(PROGRAM.hash, seconds, ahead[r.entry] > 1)
        times = {DEFAULT: seconds, "numpy": 2 * r.final_s}
        place.write_result(replace(r, best=replace(r.best, fallback=fallback), baselines=times))


def said(*args: object) -> str:
    done = CliRunner().invoke(app, [str(a) for a in args])
    assert done.exit_code == 0, done.output
    return done.stdout


# --- results ----------------------------------------------------------------------------------------------------------


def test_results_keep_both_times(folder: Folder) -> None:
    for r in folder.results():
        assert r.best is not None and r.best.origin == "default"
        assert r.taken_s == pytest.approx(r.final_s / 1.25) and r.best.seconds == r.final_s


def test_comparisons_are_of_what_searches_found(folder: Folder) -> None:
    with_default = [s.seconds for s in scores(load(folder.path).cells)]
    raced(folder, {"random": 0.5, "genetic": 0.5})
    assert [s.seconds for s in scores(load(folder.path).cells)] == with_default


def test_a_search_that_was_not_beaten_is_taken_before_the_default_schedule(folder: Folder) -> None:
    raced(folder, {"random": 1.25, "genetic": 1.0})
    found = to_take(folder.results())
    assert found is not None and found.entry == "genetic" and found.taken_s == found.final_s
    assert to_take([]) is None


def test_a_network_takes_the_faster_program_of_each_task(folder: Folder) -> None:
    first, second = (r.best for r in folder.results())
    assert first is not None and second is not None
    own = replace(second, fallback=None)
    parts = (PartWinner("a", 2.0, first), PartWinner("b", 1.0, own))
    network = replace(first, parts=parts, fallback=None)
    assert network.taken_s == pytest.approx(2 * first.seconds / 1.25 + own.seconds)


# --- run-offs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("default_s", "origin"), [(0.995e-6, "search"), (0.9e-6, "default")])
def test_run_offs_decide_anew_and_by_their_noise(folder: Folder, default_s: float, origin: str) -> None:
    (group,) = groups(folder)
    seconds = dict.fromkeys(group.points, 1e-6)
    write(folder, group, RunOff(group.task, seconds, group.points, {DEFAULT: default_s}, 0.2, default=PROGRAM.hash))
    found = list(results(folder).values())
    assert [r.best.origin for r in found if r.best] == [origin] * 2 and {r.final_s for r in found} == {1e-6}
    assert best_program(folder.path).seconds == (default_s if origin == "default" else 1e-6)


def test_run_offs_of_earlier_versions_do_not_know_which_program_it_was(folder: Folder) -> None:
    (group,) = groups(folder)
    write(folder, group, RunOff(group.task, dict.fromkeys(group.points, 1e-6), group.points, {DEFAULT: 1e-7}))
    path = group.path(folder)
    data = json.loads(path.read_text())
    del data["default"]
    path.write_text(json.dumps(data))
    assert [r.best.origin for r in results(folder).values() if r.best] == ["search"] * 2


# --- programs ---------------------------------------------------------------------------------------------------------


def test_the_default_schedule_is_the_best_program(folder: Folder) -> None:
    found = best_program(folder.path)
    assert found.origin == "default" and found.program.hash == PROGRAM.hash and found.point == "default schedule"
    assert found.beaten_s == min(r.final_s for r in folder.results())
    ((first, *others),) = best_programs(folder.path, top=3).values()
    assert first.origin == "default" and [f.origin for f in others] == ["search"] * 2


def test_the_default_schedule_is_exported_and_loaded(folder: Folder, tmp_path: Path) -> None:
    done = best_program(folder.path).export(tmp_path / "kernel")
    about = json.loads((done.folder / "kernel.json").read_text())
    assert about["origin"] == "default" and about["program"] == PROGRAM.hash and about["knobs"] == {}
    assert "default schedule" in (done.folder / "README.md").read_text()
    inputs = WORKLOAD.inputs()
    for kernel in (sl.load(done.folder), sl.load(folder.path)):
        assert WORKLOAD.check(kernel(*inputs.values()), inputs) is None


def test_another_default_schedule_than_was_measured_is_refused(folder: Folder) -> None:
    for r in list(folder.results()):
        assert r.best is not None and r.best.fallback is not None
        other = replace(r.best.fallback, program="0" * 16)
        folder.write_result(replace(r, best=replace(r.best, fallback=other)))
    with pytest.raises(ExportError, match="no longer the program that was measured"):
        best_program(folder.path).program  # noqa: B018


# --- in words ---------------------------------------------------------------------------------------------------------


def test_words() -> None:
    assert ahead(1.0, {"torch": 1.05, DEFAULT: 1.12, "numpy": 2.0}) == "1.12x default, 1.05x torch"
    assert ahead(1.0, {"numpy": 2.0}) == "2.00x numpy" and ahead(1.0, {}) == ""
    assert kept(1.0, 1.04) == "default schedule kept: 4 % faster than the best of the search"
    assert kept(1.0, 5.2) == "default schedule kept: 5.2 times as fast as the best of the search"


def test_commands_say_what_is_taken_home(folder: Folder) -> None:
    assert SAID in said("best", folder.path) and SAID in said("status", folder.path)
    (row,) = map(json.loads, said("best", folder.path, "--json").splitlines())
    assert row["origin"] == "default" and row["program"] == str(PROGRAM)
    assert {r.kept for r in status(folder.path).rows} == {SAID}


def test_a_run_ends_with_what_to_take_home(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    print_standings(load(folder.path))
    text = capsys.readouterr().out
    assert SAID in text and "0.80x" in text and "2.00x" in text and "2.50x numpy" in text
    raced(folder, {"random": 0.5, "genetic": 0.5})
    print_standings(load(folder.path))
    assert "2.00x default, 2.00x numpy" in capsys.readouterr().out


def test_the_page_says_what_is_taken_home(folder: Folder) -> None:
    (programs,) = [s for s in Report.of([load(folder.path)]).sections if s.id == "programs"]
    assert SAID in str(programs) and "program matmul" in str(programs)
