"""Replay: outcomes from tables, a clock that adds up, and traces that do not depend on the number of workers."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from searchlab.errors import RecordError
from searchlab.measure.job import Outcome
from searchlab.measure.recorded.replayer import ReplayMeasurer, TableJob
from searchlab.measure.recorded.tables import (
    RecordedRuns,
    Table,
    indexed_names,
    load,
    load_indexed,
    load_t4,
    save,
    shipped,
)
from searchlab.search import Points, RecordedSpace, Sketch, SpaceError, category, menu, split_knob

ROOT = Path(__file__).resolve().parents[2]
GPU = Path(os.environ.get("SEARCHLAB_GPU_REPLAY", ROOT.parent / "shared" / "data" / "gpu-replay"))
needs_gpu_tables = pytest.mark.skipif(not (GPU / "index.json").is_file(), reason=f"no recorded GPU tables in {GPU}")


def small(coverage: Any = "exhaustive") -> Table:
    rows = np.array([[0, 0], [0, 1], [1, 0], [2, 1], [2, 2]], np.int32)
    space = RecordedSpace.of([menu("a", [1, 2, 4]), menu("b", [0, 1, 2])], rows, "small", coverage=coverage)
    seconds = np.array([3e-3, 1e-3, np.inf, 2e-3, np.inf])
    cost = np.arange(1.0, 6.0)
    runs = RecordedRuns.of([[2e-3, 3e-3, 4e-3], [1e-3], [], [1e-3, 3e-3], []])
    status = ("ok", "ok", "build", "ok", "run")
    return Table(space, status, seconds, cost, cost / 10, cost / 100, cost / 1000, read_runs=lambda: runs)


def outcomes(measurer: ReplayMeasurer, points: Points) -> list[Outcome]:
    return list(measurer.measure([measurer.job(measurer.table.space, p) for p in points]))


def test_outcomes_are_those_of_the_table() -> None:
    table = small()
    found = outcomes(ReplayMeasurer(table), table.space.points())
    assert [o.status for o in found] == ["ok", "ok", "build", "ok", "run"]
    assert [o.seconds for o in found] == table.seconds.tolist()
    assert [o.build_s + o.check_s + o.run_s for o in found] == pytest.approx(table.cost_s)
    assert [o.id for o in found] == [f"{k:016x}" for k in table.space.key(table.space.points()).tolist()]
    assert found[2].error == "recorded as build"


@pytest.mark.parametrize(("coverage", "why"), [("pool", "was not measured"), ("exhaustive", "is illegal")])
def test_what_is_no_row_is_a_failure(coverage: str, why: str) -> None:
    measurer = ReplayMeasurer(small(coverage))
    (found,) = measurer.measure([TableJob("x", (0, 1, 1))])
    assert (found.id, found.status) == ("x", "constraints")
    assert why in found.error
    assert measurer.clock_s == 0


def test_the_clock_with_workers() -> None:
    table = small()
    one, two, many = (ReplayMeasurer(table, workers=w) for w in (1, 2, 9))
    for m in (one, two, many):
        outcomes(m, table.space.points())
        assert m.busy_s == pytest.approx(table.cost_s.sum())
    unit = table.cost_s[0]
    assert one.clock_s == pytest.approx(15 * unit)
    assert two.clock_s == pytest.approx(9 * unit)  # 1 + 3 + 5 beside 2 + 4
    assert many.clock_s == pytest.approx(5 * unit)
    two.wait(10.0)
    outcomes(two, table.space.points([0, 1]))  # a batch begins when the one before has ended
    assert two.clock_s == pytest.approx(11 * unit + 10)


def search(workers: int, noise: bool, seed: int = 0) -> list[Outcome]:
    """A little evolution, whose every step depends on what was measured."""
    table = small()
    measurer = ReplayMeasurer(table, workers, noise, seed)
    rng = np.random.default_rng(3)
    points, trace = table.space.sample(4, rng), []
    for _ in range(6):
        found = outcomes(measurer, points)
        trace += found
        best = int(np.argmin([o.seconds for o in found]))
        points = table.space.mutate(points[[best] * 4], rng)
    return trace


@pytest.mark.parametrize("noise", [False, True])
def test_the_trace_is_the_same_for_any_number_of_workers(noise: bool) -> None:
    traces = [search(workers, noise) for workers in range(1, 9)]
    assert all(t == traces[0] for t in traces)


def test_noise_comes_from_the_recorded_runs() -> None:
    table = small()
    measurer = ReplayMeasurer(table, noise=True)
    point = table.space.points([0])
    drawn = [outcomes(measurer, point)[0].times for _ in range(40)]
    assert {x for times in drawn for x in times} == {2e-3, 3e-3, 4e-3}
    assert all(len(times) == 3 for times in drawn)
    assert len(set(drawn)) > 10  # measuring again gives new times
    again = ReplayMeasurer(table, noise=True)
    outcomes(again, table.space.points([3, 1]))  # other rows do not disturb it
    assert [outcomes(again, point)[0].times for _ in range(40)] == drawn
    assert search(1, True, seed=1) != search(1, True, seed=0)
    assert len(outcomes(ReplayMeasurer(table, noise=True, repeats=7), point)[0].times) == 7


def test_what_makes_no_sense_is_refused() -> None:
    table = small()
    with pytest.raises(SpaceError, match="no raw runs"):
        ReplayMeasurer(Table(*[getattr(table, f) for f in list(Table.__dataclass_fields__)[:7]]), noise=True)
    with pytest.raises(ValueError, match="at least one worker"):
        ReplayMeasurer(table, workers=0)
    with pytest.raises(SpaceError, match="holds no programs"):
        ReplayMeasurer(table).measure([object()])  # type: ignore[list-item]
    with pytest.raises(SpaceError, match="4 entries of seconds for 5 rows"):
        Table(table.space, table.status, table.seconds[:4], *[table.build_s] * 4)


# --- tables of searchlab's own ----------------------------------------------------------------------------------------


def test_saved_tables_come_back(tmp_path: Path) -> None:
    first = Sketch("s", (split_knob("i", 4, 2), category("c", ["x", "y"])), rows=np.array([[0, 1], [2, 0]], np.int32))
    second = Sketch("t", (menu("u", [0, 4]),), rows=np.array([[1], [0]], np.int32))
    space = RecordedSpace([first, second], "mine", "3")
    found = [
        Outcome("a", "ok", (1e-3, 2e-3, 4e-3), build_s=0.5, check_s=0.25, run_s=0.125),
        Outcome("b", "build", error='line 1\n"line 2", and more', build_s=0.75),
        Outcome("c", "ok", (5e-6,)),
        Outcome("d", "timeout", error="too slow", run_s=10.0),
    ]
    header = save(tmp_path, space, found, {"machine": "none"}, [0.0, 1.0, 0.0, 0.0])
    table = load(header)
    assert table.space.hash == space.hash
    assert (table.space.key(table.space.points()) == space.key(space.points())).all()
    assert table.status == ("ok", "build", "ok", "timeout")
    assert table.seconds.tolist() == [2e-3, np.inf, 5e-6, np.inf]
    assert table.errors[1] == found[1].error
    assert table.cost_s.tolist() == [0.875, 1.75, 0.0, 10.0]
    assert table.about["machine"] == "none"
    assert table.runs is not None
    assert table.runs[0].tolist() == [1e-3, 2e-3, 4e-3]
    data = tmp_path / "mine.csv.xz"
    data.write_bytes(data.read_bytes()[:-1] + b"?")
    with pytest.raises(SpaceError, match="damaged"):
        load(header)


@pytest.mark.parametrize("name", shipped())
def test_shipped_tables(name: str) -> None:
    table = load(name)
    assert table.name == name
    assert 200 <= len(table) <= 2000
    assert table.ok.mean() > 0.9
    assert table.best < table.median
    assert table.space.coverage == "exhaustive"
    for told in ("workload", "machine", "toolchain", "date", "protocol", "noise"):
        assert table.about[told], told
    (outcome,) = outcomes(ReplayMeasurer(table, noise=True), table.space.points([int(table.seconds.argmin())]))
    assert outcome.ok
    assert outcome.seconds == pytest.approx(table.best, rel=0.5)


def test_a_name_that_leads_nowhere() -> None:
    with pytest.raises(SpaceError, match="no recorded table 'nothing'; shipped:"):
        load("nothing")


# --- T4 ---------------------------------------------------------------------------------------------------------------


def t4_result(configuration: dict[str, Any], invalidity: str = "correct", time: float = 2.0, **times: Any) -> Any:
    measured = [{"name": "time", "value": time, "unit": "ms"}, {"name": "GFLOP/s", "value": 9.0, "unit": ""}]
    return {
        "configuration": configuration, "invalidity": invalidity, "correctness": 1, "objectives": ["time"],
        "times": {"compilation": 100.0, "framework": 3.0, "validation": 1.0, "search_algorithm": 9.0, **times},
        "measurements": measured if invalidity == "correct" else [],
    }  # fmt: skip


T4 = {
    "schema_version": "1.0.0",
    "results": [
        t4_result({"x": 32, "y": 0.5, "m": "fast", "k": 7, "f": True}, time=4.0, runtimes=[3.0, 5.0]),
        t4_result({"x": 16, "y": 1.5, "m": "safe", "k": 7, "f": False}, time=2.0, runtimes=[2.0, 2.0]),
        t4_result({"x": 16, "y": 0.5, "m": "fast", "k": 7, "f": True}, "compile"),
        t4_result({"x": 32, "y": 1.5, "m": "fast", "k": 7, "f": False}, "constraints"),
        t4_result({"x": 32, "y": 1.5, "m": "safe", "k": 7, "f": True}, "correctness"),
    ],
}


def test_t4_files(tmp_path: Path) -> None:
    path = tmp_path / "kernel.json.gz"
    path.write_bytes(gzip.compress(json.dumps(T4).encode()))
    table = load(path)
    assert table.name == "kernel"
    assert table.space.coverage == "pool"
    knobs = {k.name: k for k in table.space.sketches[0].knobs}
    assert {n: k.kind for n, k in knobs.items()} == {"x": "menu", "y": "menu", "m": "category", "f": "menu"}
    assert knobs["y"].labels == (0.5, 1.5)
    assert table.about["constants"] == {"k": 7}
    assert table.status == ("ok", "ok", "build", "wrong")
    assert table.seconds.tolist() == [4e-3, 2e-3, np.inf, np.inf]
    assert table.cost_s[0] == pytest.approx(0.1 + 0.003 + 0.001 + 0.008)
    assert table.space.text(table.space.points([0])) == "kernel(x=32, y=0.5, m=fast, f=1)"
    assert table.runs is not None
    assert table.runs[0].tolist() == [3e-3, 5e-3]
    assert load_t4(path, categories=["x"]).space.sketches[0].knobs[0].kind == "category"


def test_other_units_and_names_of_t4(tmp_path: Path) -> None:
    path = tmp_path / "k.json"
    result = t4_result({"x": 1}, runtimes=[5]) | {"measurements": [{"name": "time", "value": 5, "unit": ""}]}
    other = t4_result({"x": 2}) | {"measurements": [{"name": "time", "value": 6, "unit": ""}]}
    del other["times"]["compilation"]
    other["times"]["compilation_time"] = 7.0
    path.write_text(json.dumps({"metadata": {"timeunit": "microseconds"}, "results": [result, other]}))
    table = load_t4(path)
    assert table.seconds == pytest.approx([5e-6, 6e-6])
    assert table.build_s == pytest.approx([100e-6, 7e-6])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, 'not a T4 file: it has no "results"'),
        ({"results": []}, "no legal configuration"),
        ({"results": [t4_result({"x": 1})]}, "no parameter takes more than one value"),
        ({"results": [t4_result({"x": 1}), t4_result({"y": 2})]}, "not every configuration has 'x'"),
        ({"metadata": {"timeunit": "hours"}, "results": []}, "unknown time unit 'hours'"),
    ],
)
def test_broken_t4_files_are_refused(tmp_path: Path, data: Any, message: str) -> None:
    path = tmp_path / "k.json"
    path.write_text(json.dumps(data))
    with pytest.raises((RecordError, SpaceError), match=message):
        load_t4(path)


def test_an_objective_that_is_no_time_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "k.json"
    path.write_text(json.dumps(T4))
    with pytest.raises(SpaceError, match="'GFLOP/s' is not measured as a time"):
        load_t4(path, objective="GFLOP/s")


# --- recorded GPU tables ----------------------------------------------------------------------------------------------


def documented() -> dict[str, list[str]]:
    """The table of spaces in the data's README."""
    lines = [ln.strip("| ") for ln in (GPU / "README.md").read_text().splitlines() if "| exhaustive |" in ln]
    lines += [ln.strip("| ") for ln in (GPU / "README.md").read_text().splitlines() if "| pool |" in ln]
    return {ln.split(" | ")[0]: ln.split(" | ") for ln in lines}


@needs_gpu_tables
def test_gpu_tables_say_what_their_readme_says() -> None:
    assert sorted(documented()) == sorted(indexed_names(GPU))
    for name, (_, coverage, _, rows, ok_failed, params, best, median, *_) in documented().items():
        table = load(GPU / name)
        legal, cartesian = rows.rstrip(")").split(" (")
        assert (str(len(table)), str(table.space.size.cartesian)) == (legal, cartesian), name
        assert table.space.coverage == coverage
        assert f"{int(table.ok.sum())} / {int((~table.ok).sum())}" == ok_failed
        assert len(table.space.sketches[0].knobs) == int(params)
        assert table.best * 1e3 == pytest.approx(float(best), rel=1e-4)
        assert table.median * 1e3 == pytest.approx(float(median), rel=1e-4)


@needs_gpu_tables
def test_the_clock_on_a_gpu_table() -> None:
    table = load_indexed(GPU, "convolution_milo@A100")
    points = table.space.sample_new(300, np.random.default_rng(0)).points
    one, eight = ReplayMeasurer(table), ReplayMeasurer(table, workers=8)
    found = outcomes(one, points)
    assert outcomes(eight, points) == found
    spent = table.cost_s[table.space.row(points)]
    assert one.clock_s == pytest.approx(spent.sum())
    assert eight.busy_s == pytest.approx(spent.sum())
    assert spent.sum() / 8 <= eight.clock_s <= spent.sum() / 8 + spent.max()


@needs_gpu_tables
def test_runs_of_a_gpu_table() -> None:
    table = load_indexed(GPU, "convolution@RTX_3090")
    assert table.runs is not None
    for row in range(0, len(table), 97):
        runs = table.runs[row]
        assert len(runs) == (10 if table.ok[row] else 0)
        if len(runs):
            assert runs.mean() == pytest.approx(table.seconds[row], rel=1e-6)
            assert runs.sum() == pytest.approx(table.run_s[row], rel=1e-6)


@needs_gpu_tables
def test_moves_in_a_pool_lead_from_row_to_row() -> None:
    space = load_indexed(GPU, "gemm_milo-pool@A100").space
    rng = np.random.default_rng(0)
    points = space.sample(2000, rng)
    moved = space.mutate(points, rng)
    assert (space.row(moved) >= 0).all()
    assert (space.row(space.crossover(points, points[::-1], rng)) >= 0).all()
    assert (moved.options != points.options).any(axis=1).mean() > 0.5
