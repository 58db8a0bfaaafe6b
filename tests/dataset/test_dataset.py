"""Data sets: programs and features survive the file, a recording survives interruptions, damage costs one task."""

import os
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_programs import AVX2, MadeUpMeasurer, recorded

from searchlab.analysis import extractor, schema
from searchlab.dataset.archive import Recording, decoded, encoded, load, part_name
from searchlab.dataset.recorder import record_tasks
from searchlab.dataset.stored import FLAT, StoredTask
from searchlab.dataset.task_table import TaskSpec, chosen_specs, task_specs
from searchlab.errors import RecordError, SpaceError, WorkloadError
from searchlab.search import Task
from searchlab.workloads import operators, parse

SMALL = "matmul:m=24,n=32,k=16"
SPECS = [TaskSpec(SMALL), TaskSpec("softmax:rows=16,cols=32"), TaskSpec("matmul:m=8,n=16,k=8", 1)]


@cache
def small() -> tuple[StoredTask, MadeUpMeasurer]:
    measurer = MadeUpMeasurer()
    return recorded(SMALL, 60, measurer=measurer), measurer


def record(path: Path, specs: list[TaskSpec], resume: bool = True, measurer: MadeUpMeasurer | None = None) -> Recording:
    recording = Recording(path, resume)
    measurer = measurer or MadeUpMeasurer()
    for done in record_tasks(recording, specs, AVX2, measurer, programs=6, spaces=["template"]):
        assert done.stored is not None or done.reason == "recorded before"
    return recording


# --- the tasks --------------------------------------------------------------------------------------------------------


def test_every_operator_has_tasks_and_any_number_is_a_mixture() -> None:
    specs = task_specs()
    ours = {name for name, op in operators().items() if op.path.startswith("searchlab.")}
    assert len(specs) == len(set(specs)) >= 60
    assert {s.workload.partition(":")[0] for s in specs[: len(ours)]} == ours
    assert {s.threads for s in specs} == {1, 2}
    assert len({parse(s.workload).key for s in specs}) == len(specs)  # all can be built, and no two are the same


def test_users_name_tasks() -> None:
    assert chosen_specs() == task_specs() and chosen_specs("3") == task_specs()[:3]
    assert len(chosen_specs("autotvm-resnet18")) == 12
    assert [s.workload.partition(":")[0] for s in chosen_specs("matmul:m=3,n=4,k=5")] == ["matmul"]
    for wrong in ("0", "1000", "matmull", "matmul:m=x"):
        with pytest.raises(WorkloadError, match="there are 1 to|accepted: a number up to"):
            chosen_specs(wrong)


# --- recording --------------------------------------------------------------------------------------------------------


def test_programs_are_of_all_kinds_and_measured_once() -> None:
    stored, measurer = small()
    assert len(stored) >= 60 and len(set(stored.digest)) == len(stored) == len(measurer.jobs)
    assert set(stored.origin) == {"random", "favoured", "child"} and set(stored.space) == {"template", "task-mapping"}
    assert (np.isfinite(stored.seconds) == (stored.status == "ok")).all() and set(stored.status) == {"ok", "run"}
    assert (stored.code_bytes > 0).all() and stored.operator == "matmul" and stored.target == AVX2
    later = [job.best_s for job in measurer.jobs]
    assert later[0] == np.inf and later[-1] is not None and later[-1] < np.inf  # slow ones are cut off
    children, random = (np.median(stored.seconds[stored.origin == o]) for o in ("child", "random"))
    assert children < random


def test_features_are_those_of_the_programs() -> None:
    stored, measurer = small()
    programs = {job.program.hash: job.program for job in measurer.jobs if job.program is not None}
    points, space = stored.trials.points, stored.trials.space
    for view in FLAT:
        found = space.features(points, view)
        for n in (0, 7, len(stored) - 1):
            assert found[n] == pytest.approx(extractor(programs[stored.digest[n]], view, AVX2)({})[0], abs=1e-4)
    ragged, trees = space.features(points, "statements"), dict[int, tuple[object, int]]()
    for rows, tree in space.features(points, "tree"):
        trees |= {int(row): (tree, n) for n, row in enumerate(rows)}
    assert sorted(trees) == list(range(len(stored)))
    for n in (0, 7, len(stored) - 1):
        program = programs[stored.digest[n]]
        expected = extractor(program, "statements", AVX2)({})[0]
        assert ragged.rows[ragged.segments == n] == pytest.approx(expected, abs=1e-4)
        tree, position = trees[n]
        whole = extractor(program, "tree", AVX2)({})
        assert (tree.kinds == whole.kinds).all() and (tree.parents == whole.parents).all()  # type: ignore[attr-defined]
        assert tree.features[position] == pytest.approx(whole.features[0], abs=1e-4)  # type: ignore[attr-defined]


@given(st.lists(st.integers(0, 59), max_size=12))
def test_any_points_in_any_order_have_their_own_features(rows: list[int]) -> None:
    trials = small()[0].trials
    some, whole = trials.points[np.array(rows, np.int64)], trials.space
    every = whole.features(trials.points, "statements")
    found = whole.features(some, "statements")
    assert found.count == len(rows)
    for n, row in enumerate(rows):
        assert (found.rows[found.segments == n] == every.rows[every.segments == row]).all()
    assert sorted(int(p) for numbers, _ in whole.features(some, "tree") for p in numbers) == list(range(len(rows)))
    assert (whole.features(some, "summary") == whole.features(trials.points, "summary")[rows]).all()


def test_a_part_is_read_as_it_was_written() -> None:
    stored, _ = small()
    again = decoded(encoded(stored))
    assert again.name == stored.name and again.about["versions"] == stored.about["versions"]
    for column in ("seconds", "status", "space", "origin", "digest", "build_s", "run_s", "code_bytes"):
        assert (getattr(again, column) == getattr(stored, column)).all()
    assert again.features.keys() == stored.features.keys()
    assert all((again.features[n] == stored.features[n]).all() for n in stored.features)
    assert decoded(encoded(stored), ["summary"]).features.keys() == {"summary"}


def test_features_of_another_version_are_refused() -> None:
    stored, _ = small()
    about = {**stored.about, "views": {**stored.about["views"], "summary": [1, 7]}}
    other = replace(stored, about=about)
    with pytest.raises(SpaceError, match=r"stored as version 1 \(7 columns\).*record the data set again"):
        other.trials.space.features(other.trials.points, "summary")
    with pytest.raises(SpaceError, match="the view 'knobs' is not stored; stored: summary"):
        stored.trials.space.features(stored.trials.points, "knobs")


def _without(stored: StoredTask, names: Sequence[str], keep_names: bool) -> StoredTask:
    """A task as it would have been stored before the view `summary` had some of its columns."""
    now = schema("summary")
    kept = [n for n, name in enumerate(now.columns) if name not in names]
    about = {**stored.about, "views": {**stored.about["views"], "summary": [now.version, len(kept)]}}
    columns = {**about.pop("columns"), "summary": [now.columns[n] for n in kept]}
    features = {**stored.features, "summary": stored.features["summary"][:, kept]}
    return replace(stored, about={**about, "columns": columns} if keep_names else about, features=features)


@pytest.mark.parametrize("keep_names", [True, False])
def test_columns_that_a_view_has_gained_since_are_zero(keep_names: bool) -> None:
    stored, _ = small()
    now, whole = schema("summary"), stored.features["summary"]
    old = _without(stored, now.columns[-now.gained :], keep_names).trials
    found = old.space.features(old.points, "summary")
    first = now.width - now.gained
    assert (found[:, :first] == whole[:, :first]).all() and (found[:, first:] == 0).all()


def test_a_column_that_was_always_there_is_missed() -> None:
    stored, _ = small()
    lacking = _without(stored, ["all_cycles"], True).trials
    with pytest.raises(SpaceError, match=r"columns, without all_cycles\).*record the data set again"):
        lacking.space.features(lacking.points, "summary")


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_recording_is_resumed_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "programs.zip"
    record(path, SPECS[:1])  # killed before it was packed
    with pytest.raises(RecordError, match="--resume adds"):
        Recording(path)
    (tmp_path / "programs.zip.parts" / ".half-written.npz.1").write_bytes(b"PK")
    measurer = MadeUpMeasurer()
    assert record(path, SPECS[:2], measurer=measurer).pack() == 2
    assert {job.workload.name for job in measurer.jobs} == {"softmax"}
    with pytest.raises(RecordError, match="--resume adds"):
        Recording(path)
    assert record(path, SPECS).pack() == 3  # tasks are added to a packed file
    assert [s.operator for s in load(path)] == ["matmul", "matmul", "softmax"]
    assert sorted(s.target.threads for s in load(path, ["summary"])) == [1, 2, 2]


def test_damage_costs_one_task(tmp_path: Path) -> None:
    path = tmp_path / "programs.zip"
    recording = record(path, SPECS)
    name = part_name(Task(parse(SMALL), AVX2))
    part = recording.folder / name
    raw = part.read_bytes()
    part.write_bytes(raw[: len(raw) // 2])
    measurer = MadeUpMeasurer()
    with pytest.warns(UserWarning, match="is damaged and is recorded again"):
        again = record(path, SPECS, measurer=measurer)
    assert {job.workload.spec for job in measurer.jobs} == {parse(SMALL).spec} and again.pack() == 3
    whole = path.read_bytes()
    with zipfile.ZipFile(path) as archived:
        at = archived.getinfo(name).header_offset + 2000
    path.write_bytes(whole[:at] + bytes(64) + whole[at + 64 :])
    with pytest.warns(UserWarning, match=f"the part {name} is damaged and is left out"):
        assert len(load(path)) == 2
    with pytest.warns(UserWarning):
        assert record(path, SPECS).pack() == 3  # what was lost is recorded again
    assert len(load(path)) == 3


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "programs.zip"
    record(path, SPECS[:1]).pack()
    before = path.read_bytes()

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device", "programs.zip")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            record(path, SPECS[:2])
    assert path.read_bytes() == before and not os.listdir(tmp_path / "programs.zip.parts")
    assert record(path, SPECS[:2]).pack() == 2


def test_what_is_no_data_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="there is no data set .*searchlab models record"):
        load(tmp_path / "nothing.zip")
    (tmp_path / "text.zip").write_text("hello")
    with pytest.raises(RecordError, match="is not a data set"):
        load(tmp_path / "text.zip")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as other:
        other.writestr("a.npz", b"no array")
    with pytest.warns(UserWarning, match="left out"), pytest.raises(RecordError, match="no task that can be read"):
        load(tmp_path / "other.zip")
    with pytest.raises(RecordError, match="nothing to pack"):
        Recording(tmp_path / "new.zip").pack()
