"""The libraries' versions of all operators are right, and the race is fair."""

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import searchlab as sl
from searchlab import bench
from searchlab.backend import build
from searchlab.bench import OURS, ContestRow, OtherLoad, Times, contest, libraries, measure, prepare, race, threads
from searchlab.bench.contests import Maker
from searchlab.bench.operands import Array, LibraryOperands
from searchlab.cli.bench import _cell, _fields
from searchlab.errors import BuildError
from searchlab.targets import detect, host
from searchlab.workloads import operators, parse

BYTES = ("numpy", "onnxruntime")
HAS_VNNI = "vnni" in host.probe().features  # of the CPU, whatever SEARCHLAB_CPU says: it is onnxruntime that asks

SPECS = [
    "matmul:m=17,n=33,k=20",
    "matmul:m=17,n=33,k=20,dtype=float64",
    "matmul:m=32,n=32,k=32,dtype=int8",
    "matmul:m=17,n=33,k=200,dtype=uint8",
    "matmul:m=17,n=33,k=20,dtype=int32",
    "batch_matmul:batch=3,m=5,n=7,k=4",
    "dense:m=5,n=7,k=4",
    "dense:m=5,n=7,k=4,bias=false,activation=relu",
    "dense:m=5,n=7,k=4,activation=gelu",
    "dense:m=5,n=7,k=4,activation=tanh",
    "dense:m=5,n=7,k=4,dtype=uint8",
    "transpose_batch_matmul:batch=2,seq=5,heads=3,dim=4",
    "conv1d:n=2,ci=4,co=6,w=20,k=3,stride=2,padding=1,then=bias,relu",
    "conv2d:n=2,ci=4,co=6,h=9,w=8,k=3,padding=1",
    "conv2d:n=2,ci=4,co=6,h=9,w=8,k=1",
    "conv2d:n=2,ci=4,co=6,h=9,w=8,k=1,stride=2,groups=2",
    "conv2d:n=1,ci=4,co=8,h=9,w=8,k=3x2,stride=1x2,padding=1x0,dilation=2x1,groups=4",
    "conv2d:n=2,ci=4,co=6,h=9,w=8,k=3,then=bn,add,relu",
    "conv2d:n=2,ci=4,co=6,h=9,w=8,k=3,then=relu6,bn",
    "conv2d:n=2,ci=4,co=6,h=9,w=8,k=3,dtype=uint8",
    "conv2d:n=2,ci=4,co=6,h=9,w=8,k=3,dtype=int8,then=bias",
    "conv2d:ci=64,co=2,h=130,w=130,k=3",
    "conv3d:n=2,ci=3,co=4,d=5,h=6,w=7,k=3,stride=1x2x2,padding=1",
    "conv2d_bn_relu:n=2,ci=4,co=6,h=9,w=8,padding=1",
    "depthwise_conv2d:n=2,c=5,h=9,w=8,stride=2,padding=1,then=bn,relu6",
    "depthwise_conv2d:n=1,c=40,h=40,w=40",
    "conv2d_transpose:n=2,ci=4,co=3,h=5,w=6,then=bn,relu",
    "conv2d_transpose:n=2,ci=4,co=3,h=5,w=6,k=3,stride=2x1,padding=0,then=bias,tanh",
    "capsule_conv2d:n=2,ci=3,co=2,h=6,w=5,stride=2,padding=1",
    "softmax:rows=5,cols=30",
    "layer_norm:rows=5,cols=30,eps=0.01",
    "l2_norm:batch=3,rows=10,cols=9",
    "max_pool2d:n=2,c=3,h=9,w=8,padding=1",
    "avg_pool2d:n=2,c=3,h=9,w=8,k=3x2,padding=1",
    "global_avg_pool2d:n=2,c=3,h=5,w=6",
    "elementwise:rows=9,cols=7,ops=add,relu,mul,sigmoid,max",
    *(f"elementwise:rows=9,cols=7,ops={op}" for op in ("relu", "relu6", "gelu", "exp", "abs", "neg", "square")),
    "elementwise:rows=9,cols=7,ops=sub,relu6,tanh,gelu,min",
    "elementwise:rows=300,cols=300,ops=sigmoid,abs,square,neg,exp",
    "reduce:shape=4x5x6,axis=1,op=sum",
    "reduce:shape=50,op=mean",
    "reduce:shape=4x5x6,op=max,axis=0",
    "reduce:shape=4x50,op=min,dtype=int8",
    "reduce:shape=4x50,dtype=int8",
    "qmatmul:m=17,n=33,k=90,zero=128,out_zero=10",
    "qmatmul:m=17,n=33,k=900,dtype=int8,zero=-3,weight_zero=5,out=int8,out_zero=-7",
    "qmatmul:m=4,n=3,k=2,out=int32",
    "qdense:m=5,n=7,k=40,out=int32,zero=7",
    "qdense:m=30,n=44,k=400,zero=128,out_zero=128",
    "qdense:m=5,n=7,k=40,bias=false",
    "qconv2d:ci=3,co=4,h=6,w=5,k=3,padding=1,zero=77,weight_zero=-2,out_zero=120",
    "qconv2d:n=2,ci=32,co=40,h=16,w=15,k=3,stride=2,padding=1,zero=77,out_zero=120",
    "qconv2d:ci=3,co=4,h=6,w=5,k=3,padding=1,zero=77,out=int32",
    "qconv2d:ci=8,co=12,h=6,w=5,k=3,padding=1,groups=4,zero=77,out_zero=120",
    "qdepthwise_conv2d:c=9,h=16,w=15,padding=1,zero=77,stride=2",
]


@pytest.mark.parametrize("spec", SPECS)
def test_the_libraries_are_right(spec: str) -> None:
    w = parse(spec)
    inputs = w.inputs()
    kept = {n: x.copy() for n, x in inputs.items()}
    expected = w.reference(inputs)
    found = libraries(w, inputs, 1)
    floats = dict(w.params)["dtype"] in ("float32", "float64")
    assert "numpy" in found
    assert "torch" in found or not floats
    saturates = LibraryOperands(w, inputs).multiplies_bytes and not HAS_VNNI
    for name, call in found.items():
        for _ in range(2):  # memory is used again, so the second result counts as much as the first
            wrong = w.check(np.ascontiguousarray(call()), inputs, expected)
            assert wrong is None or name == "onnxruntime" and saturates and "differs" in wrong
    assert all(np.array_equal(kept[n], x) for n, x in inputs.items()), "an input was changed"


def test_what_saturates_is_timed_and_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    w = parse("qmatmul:m=8,n=16,k=8,zero=128")
    off = w.reference(w.inputs())["Y"] ^ 1
    monkeypatch.setattr("searchlab.bench.contests.libraries", lambda *_: dict.fromkeys(BYTES, lambda: off))
    makers = {OURS: lambda inputs, out: prepare(w, inputs, detect(1), out=out)}
    row = contest(w, detect(1), makers, seconds=0.0, min_rounds=2)
    assert row.inexact.keys() == {"onnxruntime"} and row.wrong.keys() == {"numpy"}
    assert row.times.keys() == {OURS, "onnxruntime"} and "differs from the reference" in row.inexact["onnxruntime"]
    assert [f["contender"] for f in _fields(row, detect(1)) if f["metric"] == "inexact"] == ["onnxruntime"]
    assert _cell(row, "onnxruntime", brief=True).startswith("~") and not _cell(row, OURS, brief=True).startswith("~")


def test_every_operator_is_covered() -> None:
    ours = {name for name, op in operators().items() if op.path.startswith("searchlab.")}  # not those other tests add
    assert {spec.partition(":")[0] for spec in SPECS} == ours


def test_convolutions_also_run_with_channels_last() -> None:
    for spec in ("conv2d", "conv2d_bn_relu", "depthwise_conv2d"):
        w = parse(f"{spec}:n=1,h=8,w=8")
        assert "torch-nhwc" in libraries(w, w.inputs(), 1)


def test_without_the_optional_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("searchlab.bench.contests.find_spec", lambda name: None)
    w = parse("matmul:m=4,n=4,k=4")
    assert set(libraries(w, w.inputs(), 1)) == {"numpy"}


def test_the_race_takes_turns() -> None:
    log: list[str] = []
    clock = {"a": 0.0004, "b": 0.0008}

    def runner(name: str) -> bench.Contender:
        def run() -> None:
            log.append(name)
            end = time.perf_counter() + clock[name]
            while time.perf_counter() < end:
                pass

        return run

    times = race({name: runner(name) for name in clock}, seconds=0.0, min_rounds=3)
    assert times["a"].rounds == times["b"].rounds == 3
    assert times["a"].min >= 0.0004
    assert times["b"].min >= 0.0008
    assert times["a"].min <= times["a"].median
    assert log[-12:] == ["a", "a", "b", "b"] * 3  # one run to warm up, one sample


def test_spread_is_between_the_bests_of_every_other_round() -> None:
    found = Times.of([[4.0, 2.0], [3.0, 2.2], [2.1, 5.0], [9.0, 2.5]])
    assert (found.min, found.rounds) == (2.0, 8) and found.spread == pytest.approx(0.1)
    assert Times.of([[1.0, 2.0]]).spread == 0.0


def made_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], Callable[[], None]]:
    """Races by a clock that only goes on while something runs; makes runs of so many seconds."""
    now = [0.0]

    def takes(seconds: float) -> Callable[[], None]:
        return lambda: now.__setitem__(0, now[0] + seconds)

    monkeypatch.setattr(f"{race.__module__}.perf_counter", lambda: now[0])
    monkeypatch.setattr(f"{race.__module__}.sleep", lambda seconds: None)
    return takes


def test_long_runs_have_short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads need turns of several samples, unless a single run takes longer than their spinning lasts."""
    takes = made_clock(monkeypatch)
    times = race({"long": takes(0.5), "short": takes(0.01)}, seconds=0.0, min_rounds=3, threads=2)
    assert times["long"].rounds == 3 and times["short"].rounds == 30


def test_short_runs_are_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    takes, count = made_clock(monkeypatch), 0

    def run() -> None:
        nonlocal count
        count += 1
        takes(1e-7)()

    times = race({"nothing": run}, seconds=0.0, min_rounds=2)
    assert count > 1000
    assert times["nothing"].min == pytest.approx(1e-7)


def test_a_race_of_nobody() -> None:
    assert race({}) == {}


def test_threads_are_set_and_put_back() -> None:
    from searchlab.bench.library_threads import _blas, _torch

    pools = [*_blas(), *_torch()]
    assert _blas() or "openblas" not in Path("/proc/self/maps").read_text()
    before = [get() for get, _ in pools]
    for count in (1, 2):
        with threads(count):
            assert [get() for get, _ in pools] == [count] * len(pools)
    assert [get() for get, _ in pools] == before


def test_rows_compare_with_the_better_library() -> None:
    w = parse("matmul:m=64,n=64,k=64")
    times = {OURS: Times(1e-3, 2e-3, 5), "numpy": Times(3e-3, 3e-3, 5), "torch": Times(2e-3, 4e-3, 5)}
    row = ContestRow("case", w, 1, times)
    assert row.best_library == "torch"
    assert row.ratio == 2.0
    assert row.unit == "GFLOP/s"
    assert row.rate(OURS) == pytest.approx(w.flops / 1e6)
    assert row.rate("torch-nhwc") is None
    assert ContestRow("case", parse("softmax"), 1).unit == "GB/s"
    assert ContestRow("case", w, 1, {OURS: Times(1e-3, 2e-3, 5)}).ratio is None


class Clock(NamedTuple):
    """What a machine's cores have done so far, in seconds; guests are counted in `user`, too."""

    user: float
    idle: float
    iowait: float
    guest: float


@pytest.mark.parametrize(
    ("after", "own", "share"),
    [
        (Clock(100.0, 58.0, 1.0, 9.0), 0.0, 0.0),  # eight seconds of cores, all idle
        (Clock(102.0, 56.0, 1.0, 9.0), 2.0, 0.0),  # its own work
        (Clock(106.0, 52.0, 1.0, 9.0), 2.0, 0.5),
        (Clock(106.0, 50.0, 3.0, 9.0), 2.0, 0.5),  # who waits for a disk is idle
        (Clock(106.0, 52.0, 1.0, 12.0), 2.0, 0.5),  # guests are not counted twice
        (Clock(108.0, 50.0, 1.0, 9.0), 0.0, 1.0),
        (Clock(101.0, 57.0, 1.0, 9.0), 2.0, 0.0),  # clocks tick: never less than nothing
        (Clock(100.0, 50.0, 1.0, 9.0), 0.0, 0.0),  # no time has passed
    ],
)
def test_the_load_of_others_is_a_share(after: Clock, own: float, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    cores, process = iter([Clock(100.0, 50.0, 1.0, 9.0), after]), iter([7.0, 7.0 + own])
    monkeypatch.setattr("psutil.cpu_times", lambda: next(cores))
    monkeypatch.setattr(f"{OtherLoad.__module__}.process_time", lambda: next(process))
    with OtherLoad() as load:
        pass
    assert load.share == share


def test_another_process_is_noticed() -> None:
    busy = subprocess.Popen([sys.executable, "-c", "print(flush=True)\nwhile True: pass"], stdout=subprocess.PIPE)
    try:
        assert busy.stdout is not None and busy.stdout.readline()
        with OtherLoad() as load:
            time.sleep(0.4)
    finally:
        busy.kill()
        busy.communicate()
    assert 0.3 / (os.cpu_count() or 1) < load.share <= 1.0


def test_measure_checks_then_times() -> None:
    w = parse("matmul:m=8,n=8,k=8")
    row = measure(w, detect(1), seconds=0.0, min_rounds=2)
    assert row.wrong == {}
    assert {OURS, "numpy", "torch"} <= set(row.times)
    assert row.case == w.label
    assert all(times.rounds == 2 for times in row.times.values())


def test_packed_weights_are_bound() -> None:
    w = parse("matmul:m=32,n=64,k=48")
    inputs = w.inputs()
    run, outputs = prepare(w, inputs, detect(1), pack_weights=True)
    run()
    assert w.check(outputs, inputs) is None


def test_what_is_wrong_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def zeros(*_: object) -> tuple[bench.Contender, tuple[np.ndarray, ...]]:
        return (lambda: None), (np.zeros((8, 8), np.float32),)

    monkeypatch.setattr("searchlab.bench.contests.prepare", zeros)
    row = measure(parse("matmul:m=8,n=8,k=8"), detect(1), seconds=0.0, min_rounds=1)
    assert OURS not in row.times
    assert "differs from the reference" in row.wrong[OURS]
    assert "numpy" in row.times


def test_what_cannot_be_built_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise BuildError("no such instruction")

    monkeypatch.setattr("searchlab.bench.contests.prepare", refuse)
    row = measure(parse("matmul:m=8,n=8,k=8"), detect(1), seconds=0.0, min_rounds=1)
    assert row.wrong == {OURS: "BuildError: no such instruction"}
    assert row.ratio is None


def test_a_race_goes_on_until_it_is_steady_or_too_long() -> None:
    def rounds(steady: bench.Steady | None) -> int:
        return bench.race({"a": lambda: sum(range(100))}, 0.0, 2, steady=steady)["a"].rounds

    assert rounds(None) == rounds(bench.Steady(math.inf, 10.0)) == 2
    assert rounds(bench.Steady(-1.0, 0.05)) > 2
    assert bench.noise([]) == 0.0 and bench.noise([0.3]) == 0.3
    assert bench.noise([0.01 * n for n in range(1, 11)]) == pytest.approx(0.09)


def test_what_is_compared_begins_on_a_cache_line() -> None:
    seen: list[int] = []

    def make(inputs: Mapping[str, Array], out: Sequence[Array]) -> tuple[Callable[[], None], Sequence[Array]]:
        seen.extend(x.ctypes.data % 64 for x in (*inputs.values(), *out))
        return prepare(workload, inputs, target, out=out)

    workload, target = parse("matmul:m=64,n=64,k=64"), detect(1)
    row = contest(workload, target, {"ours": make}, seconds=0.01, min_rounds=1)
    assert seen == [0, 0, 0] and "ours" in row.times


def test_programs_that_are_compared_share_their_memory() -> None:
    seen: dict[str, list[int]] = {}

    def maker(name: str) -> Maker:
        def make(inputs: Mapping[str, Array], out: Sequence[Array]) -> tuple[Callable[[], None], Sequence[Array]]:
            run, outputs = prepare(workload, inputs, target, out=out)
            seen[name] = [x.ctypes.data for x in (*inputs.values(), *outputs)]
            return run, outputs

        return make

    workload, target = parse("matmul:m=64,n=64,k=64"), detect(1)
    contest(workload, target, {name: maker(name) for name in ("one", "two")}, seconds=0.01, min_rounds=1)
    assert seen["one"] == seen["two"]


def test_programs_race_without_libraries_in_single_samples() -> None:
    workload, target = parse("matmul:m=64,n=64,k=64"), detect(2)
    makers: dict[str, Maker] = {n: lambda inputs, out: prepare(workload, inputs, target, out=out) for n in ("a", "b")}
    row = contest(workload, target, makers, seconds=0.0, min_rounds=3, rivals=False)
    assert {name: t.rounds for name, t in row.times.items()} == {"a": 3, "b": 3}


def test_the_best_copy_counts() -> None:
    prepared: list[str] = []
    slow = iter([0.004, 0.0])

    def maker(name: str) -> Maker:
        def make(inputs: Mapping[str, Array], out: Sequence[Array]) -> tuple[Callable[[], object], Sequence[Array]]:
            prepared.append(name)
            run, outputs = prepare(workload, inputs, target, out=out)
            wait = next(slow) if name == "unlucky" else 0.0
            return (lambda: (run(), time.sleep(wait))), outputs

        return make

    workload, target = parse("matmul:m=64,n=64,k=64"), detect(1)
    row = contest(workload, target, {n: maker(n) for n in ("even", "unlucky")}, seconds=0.1, min_rounds=4, copies=2)
    assert prepared == ["even", "even", "unlucky", "unlucky"]
    assert row.times["unlucky"].min < 0.003 and row.times["unlucky"].rounds >= 8


def test_a_copy_that_is_wrong_is_found() -> None:
    def make(inputs: Mapping[str, Array], out: Sequence[Array]) -> tuple[Callable[[], object], Sequence[Array]]:
        run, outputs = prepare(workload, inputs, target, out=out)
        return (run if not good.pop() else lambda: None), outputs

    workload, target, good = parse("matmul:m=64,n=64,k=64"), detect(1), [True, False]
    row = contest(workload, target, {"ours": make}, seconds=0.01, min_rounds=1, copies=2)
    assert "ours" in row.wrong and "ours" not in row.times


def test_built_code_is_loaded_again() -> None:
    workload, target = parse("matmul:m=64,n=64,k=64"), detect(1)
    built = build(sl.default_schedule(workload.program, target), target)
    inputs = workload.inputs()
    for _ in range(2):
        run, outputs = bench.prepare_program(built, workload, inputs, target)
        run()
        assert workload.check(outputs, inputs) is None


# --- onnxruntime ------------------------------------------------------------------------------------------------------


def tasks() -> set[str]:
    return set(os.listdir("/proc/self/task"))


@pytest.mark.parametrize("spec", SPECS)
def test_onnxruntime_takes_part_in_float32_and_in_bytes(spec: str) -> None:
    pytest.importorskip("onnxruntime")
    w = parse(spec)
    expected = dict(w.params)["dtype"] in ("float32", "uint8", "int8") or w.name == "reduce"
    assert ("onnxruntime" in libraries(w, w.inputs(), 1)) is expected


def test_onnxruntime_has_as_many_threads_as_the_race_and_none_afterwards() -> None:
    pytest.importorskip("onnxruntime")
    w = parse("matmul:m=64,n=64,k=64")
    libraries(w, w.inputs(), 1)  # whatever the libraries start once
    for count in (1, 2, 3):
        before = tasks()
        found = libraries(w, w.inputs(), count)
        assert len(tasks() - before) == count - 1  # the caller works, too
        found.clear()
        assert tasks() <= before


def test_onnxruntime_reads_the_given_arrays_and_keeps_its_weights() -> None:
    pytest.importorskip("onnxruntime")
    w = parse("matmul:m=4,n=5,k=6")
    inputs = w.inputs()
    run, kept = libraries(w, inputs, 1)["onnxruntime"], w.reference(inputs)["C"]
    inputs["A"] *= 2
    np.testing.assert_allclose(run(), 2 * kept, rtol=1e-5)
    inputs["B"] *= 2
    np.testing.assert_allclose(run(), 2 * kept, rtol=1e-5)


def test_a_race_goes_on_without_a_library_that_refuses(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(f"{pytest.importorskip('searchlab.bench.with_onnxruntime').__name__}._OPSET", 999)
    w = parse("matmul:m=4,n=5,k=6")
    assert "onnxruntime" not in libraries(w, w.inputs(), 1)
    assert "onnxruntime does not run matmul:m=4" in caplog.text


def test_processes_forked_after_a_race_work() -> None:
    pytest.importorskip("onnxruntime")
    code = (
        "import os; from searchlab.bench import libraries; from searchlab.workloads import parse\n"
        "w = parse('matmul:m=64,n=64,k=64'); run = libraries(w, w.inputs(), 2)['onnxruntime']; run(); del run\n"
        "pid = os.fork()\n"
        "if not pid: os._exit(0 if libraries(w, w.inputs(), 2)['onnxruntime']().shape == (64, 64) else 1)\n"
        "raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
