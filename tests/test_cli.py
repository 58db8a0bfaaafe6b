"""The command `searchlab`: what it prints, what it refuses, how it exits."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import searchlab
from searchlab import bench
from searchlab.cli import app
from searchlab.cli.output import amount, duration
from searchlab.errors import SearchLabError
from searchlab.targets import detect
from searchlab.workloads import networks, operators, suites

ROOT = Path(__file__).resolve().parents[1]
Run = Callable[..., Any]

DOUBLING = """
from searchlab.ir import Builder
from searchlab.workloads import Definition, Extent


def double(n: Extent = 16) -> Definition:
    b = Builder("double")
    X = b.input("X", (n,), "float32")
    Y = b.compute("Y", (n,), lambda i: X[i] * 2.0)
    return Definition(b.program(Y), lambda X: X * 2)
"""


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr("searchlab.cli.output.out._width", 160)
    return lambda *args: CliRunner().invoke(app, list(args))


def rows(result: Any) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


# --- the package ------------------------------------------------------------------------------------------------------


def test_the_package_offers_what_it_says() -> None:
    assert set(searchlab.__all__) <= set(dir(searchlab))
    for name in searchlab.__all__:
        assert getattr(searchlab, name) is not None
    assert searchlab.workload("matmul", m=4).name == "matmul"
    assert searchlab.compile.__module__ == "searchlab.backend"
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        searchlab.nonsense  # noqa: B018


def test_the_module_is_the_command() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "searchlab", "--help"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert found.returncode == 0, found.stderr
    for word in ("Usage: searchlab", "list", "show", "bench", "--version", "--quickstart"):
        assert word in found.stdout


def test_version(run: Run) -> None:
    assert run("--version").stdout.strip() == f"searchlab {searchlab.__version__}"


# --- list -------------------------------------------------------------------------------------------------------------


def test_list_shows_everything(run: Run) -> None:
    found = run("list")
    assert found.exit_code == 0
    for name in (*operators(), *networks(), *suites(), "native", "x86-64-v3", "next:"):
        assert name in found.stdout


def test_list_of_one_kind(run: Run) -> None:
    found = run("list", "suites").stdout
    assert "ansor-ops" in found
    assert "batch_matmul" not in found
    assert "m=512, n=512, k=512, dtype=float32" in run("list", "workloads").stdout
    targets = run("list", "targets").stdout.splitlines()
    assert next(line for line in targets if "vectors" in line).startswith("native")
    rows = map(json.loads, run("list", "intrinsics", "--json").output.splitlines())
    missing = {row["name"]: row["missing"] for row in rows}
    assert "vnni_u8s8_16x4" in missing and missing["sdot_s8s8_4x4" if detect().arch == "x86_64" else "avx2_u8s8_8x4"]


def test_list_of_an_unknown_kind(run: Run) -> None:
    assert run("list", "operators").exit_code == 2


# --- show -------------------------------------------------------------------------------------------------------------


def test_show_a_workload(run: Run) -> None:
    found = run("show", "matmul:m=8,n=16,k=4").stdout
    for text in ("matmul(m=8, n=16, k=4)", "for k in 4:", "1.024 kflop", "896 B", "1.14 flop/B"):
        assert text in found


def test_show_run_time_sizes(run: Run) -> None:
    found = run("show", "matmul:m=?")
    assert found.exit_code == 0
    assert "depends on m" in found.stdout
    assert rows(run("show", "matmul:m=?", "--json"))[0]["value"] is None


def test_show_code(run: Run) -> None:
    scheduled = run("show", "matmul:m=64,n=64,k=64", "--scheduled").stdout
    assert scheduled.startswith("program matmul(")
    assert scheduled != run("show", "matmul:m=64,n=64,k=64").stdout
    assert "define void @" in run("show", "softmax:rows=8,cols=16", "--llvm").stdout
    assert "ret" in run("show", "softmax:rows=8,cols=16", "--asm", "--target", "native:threads=1").stdout


def test_show_intrinsics(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("searchlab.intrinsics.known._added", {})  # other tests may have added some
    monkeypatch.setattr("searchlab.cli.output.out._width", 1000)  # rows are not folded
    found = run("show", "conv2d:ci=8,co=12,h=9,w=9,k=3", "--intrinsics", "--target", "x86-64-v3").stdout
    text = " ".join(found.split())
    assert "C[i, j] += A[i, k] * B[k, j] float32 x float32 -> float32 in 120 ways" in text
    assert "1 Y X W h, w (49) c (12) ci, kh, kw (72) n" in text  # a batch of one stays outside
    assert "avx2_f32_6x16 i 49 to 54, j 12 to 16 46.9 % rounded" in text
    assert "x86-64-v3 lacks avx512f: avx512_f32_{14x32,12x32,8x48,6x64,28x16}" in text
    assert "x86-64-v3 lacks the instructions of aarch64: neon_f32" in text
    assert "vnni_{u8s8,s8s8}, vnniint8_s8s8_{8x4,4x4}, avx512bw_{u8s8,s8s8,u7s8,u8s7,s16s16}" in text
    assert "mma_{u8,u8s8,s8u8,s8} it adds up in float32, the description in int32" in text
    assert len(found.splitlines()) < 40
    depthwise = " ".join(run("show", "depthwise_conv2d", "--intrinsics", "--target", "x86-64-v3").stdout.split())
    assert "No intrinsic can compute it" in depthwise and "ways" not in depthwise
    assert "no space iterator occurs in Y and W alone, as j of the description does" in depthwise
    assert depthwise.index("no space iterator") < depthwise.index("it adds up in float32")
    batch = run("show", "batch_matmul:dtype=int8", "--intrinsics", "--target", "x86-64-v3").stdout
    assert "1  C  A  B  j (128)  k (64)  b, i" in batch and "C[i, j] += int32(A[i, k]) * int32(B[j, k])" in batch
    stages = " ".join(run("show", "softmax", "--intrinsics", "--target", "x86-64-v3").stdout.split())
    assert "no sum, so no intrinsic: E, Y" in stages
    assert "M[i] max= X[i, r]" in stages and "it combines with 'max', the description with 'add'" in stages
    sizes = " ".join(run("show", "matmul:m=?", "--intrinsics", "--target", "x86-64-v3").stdout.split())
    assert "i (m)" in sizes and "not known yet" in sizes


def test_show_intrinsics_for_programs(run: Run) -> None:
    found = rows(run("show", "dense:m=5,n=20,k=7,dtype=uint8", "--intrinsics", "--target", "x86-64-v3", "--json"))
    by_name = {row["intrinsic"]: row for row in found}
    row = by_name["avx2_u8s8_8x4"]
    assert (row["stage"], row["metric"], row["value"], row["missing"], row["reason"]) == ("C", "mappings", 1, [], "")
    (mapping,) = row["mappings"]
    assert mapping["operands"] == {"C": "C", "A": "X", "B": "W"} and mapping["axes"] == {"j": ["j"], "k": ["k"]}
    assert mapping["outside"] == ["i"] and mapping["padded"] == {"j": [20, 24], "k": [7, 8]}
    assert by_name["avx512bw_u8s8_16x4"]["missing"] == ["avx512bw"]
    assert (
        by_name["avx2_f32_6x16"]["reason"].startswith("it adds up in int32") and not by_name["avx2_f32_6x16"]["value"]
    )
    assert run("show", "matmul", "--intrinsics", "--csv").stdout.startswith("case,metric,value,target,stage,intrinsic")


def test_show_a_network(run: Run) -> None:
    found = run("show", "resnet50").stdout
    assert "conv2d_bn_relu(n=1, ci=3, co=64, h=224, w=224, k=7, stride=2, padding=3)" in found
    assert "28 tasks, 57 operators" in found
    assert "n=4" in run("show", "resnet50:batch=4").stdout


def test_show_json(run: Run) -> None:
    (row,) = rows(run("show", "matmul:m=8,n=16,k=4", "--json"))
    assert (row["case"], row["metric"], row["value"]) == ("matmul(m=8, n=16, k=4)", "flops", 1024)
    assert row["target"] is None
    assert row["program"].startswith("program matmul(")
    assert len(rows(run("show", "autotvm-resnet18", "--json"))) == 12
    assert sum(row["weight"] for row in rows(run("show", "resnet50", "--json"))) == 57


# --- bench ------------------------------------------------------------------------------------------------------------


def test_bench(run: Run) -> None:
    found = run("bench", "matmul:m=64,n=64,k=64", "softmax:rows=4,cols=8", "--seconds", "0", "--threads", "1")
    assert found.exit_code == 0, found.output
    for text in ("matmul(m=64, n=64, k=64)", "searchlab", "numpy", "torch", "GFLOP/s", "GB/s", "1 thread", "checked"):
        assert text in found.stdout


def test_bench_json(run: Run) -> None:
    found = rows(run("bench", "conv2d:ci=4,co=4,h=6,w=6", "--seconds", "0", "--json"))
    timed = {row["contender"]: row for row in found if "contender" in row}
    assert set(timed) - {"onnxruntime"} == {"searchlab", "numpy", "torch", "torch-nhwc"}
    for row in timed.values():
        assert row["metric"] == "gflops_per_second" or row["metric"] == "gbytes_per_second"
        assert 0 < row["min_seconds"] <= row["median_seconds"]
        assert row["target"] is None
    (ratio,) = (row for row in found if row["metric"] == "speedup")
    assert ratio["value"] == timed[ratio["over"]]["min_seconds"] / timed["searchlab"]["min_seconds"]


def test_bench_packs_weights(run: Run) -> None:
    assert rows(run("bench", "dense:m=4,n=32,k=16", "--seconds", "0", "--json", "--pack-weights"))


def fake(wrong: bool = False, load: float = 0.5) -> Callable[..., bench.ContestRow]:
    def measure(workload: Any, target: Any, case: str, *_: object) -> bench.ContestRow:
        times = {"searchlab": bench.Times(1e-3, 2e-3, 5), "numpy": bench.Times(2e-3, 3e-3, 5)}
        if not wrong:
            return bench.ContestRow(case, workload, 1, times, other_load=load)
        return bench.ContestRow(case, workload, 1, {}, {"searchlab": "C differs from the reference"})

    return measure


def test_quickstart(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("searchlab.bench.measure", fake())
    found = run("bench", "--quickstart")
    assert found.exit_code == 0, found.output
    for text in ("layer_norm 512x768", "1.00 ms", "2.00x ?", "python -m benchmarks.codegen", "was busy"):
        assert text in found.stdout


def test_a_suite_runs_all_of_its_cases(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("searchlab.bench.measure", fake())
    found = rows(run("bench", "autotvm-resnet18", "--json"))
    assert [row["case"] for row in found if row["metric"] == "speedup"] == [f"C{n}" for n in range(1, 13)]


def test_a_wrong_result_is_a_failure(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("searchlab.bench.measure", fake(wrong=True))
    found = run("bench", "matmul")
    assert found.exit_code == 1
    assert "C differs from the reference" in found.stderr
    assert "wrong" in found.stdout
    assert json.loads(run("bench", "matmul", "--json").stdout)["metric"] == "error"


def test_an_interrupt_keeps_what_was_measured(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    left = [fake()]

    def measure(*args: Any) -> bench.ContestRow:
        if not left:
            raise KeyboardInterrupt
        return left.pop()(*args)

    monkeypatch.setattr("searchlab.bench.measure", measure)
    found = run("bench", "autotvm-resnet18")
    assert found.exit_code == 1
    assert "C1 " in found.stdout
    assert "stopped" in found.stderr


def test_a_quiet_machine(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("searchlab.bench.measure", fake(load=0.0))
    found = run("bench", "--quickstart").stdout
    assert "On average 2.00x" in found
    assert "busy" not in found


def test_a_workload_of_ones_own(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "doubling_lab.py").write_text(DOUBLING)
    monkeypatch.syspath_prepend(tmp_path)
    assert "doubling_lab:double(n=5)" in run("show", "doubling_lab:double:n=5").stdout
    found = rows(run("bench", "doubling_lab:double", "--seconds", "0", "--json"))
    assert [row["contender"] for row in found] == ["searchlab"]


def test_without_libraries(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("searchlab.cli.bench.find_spec", lambda name: None)
    monkeypatch.setattr("searchlab.bench.measure", fake())
    shown = " ".join(run("bench", "matmul").stdout.split())
    for name, extra in {"torch": "torch", "onnxruntime": "peers"}.items():
        assert f"{name} is not installed" in shown and f"pip install 'searchlab[{extra}]'" in shown


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["show", "matmull"], "unknown workload 'matmull'; did you mean 'matmul'"),
        (["show", "resnet5"], "'resnet50'"),
        (["show", "zzz"], "unknown workload 'zzz'; `searchlab list` shows all"),
        (["show", "matmul:q=3"], "unknown parameter 'q'"),
        (["show", "matmul:m=0"], "too small"),
        (["show", "resnet50:size=3"], "batch=N"),
        (["show", "resnet50", "--intrinsics"], "'resnet50' is a network; --intrinsics needs a single workload"),
        (["show", "matmul", "--intrinsics", "--asm"], "--intrinsics and --asm exclude each other: give one"),
        (["show", "elementwise", "--intrinsics"], "none of its stages (T1, Y) adds anything up"),
        (["show", "resnet50", "--asm"], "'resnet50' is a network; --asm needs a single workload"),
        (["show", "no.such.module:thing"], "cannot import"),
        (["show", "matmul", "--scheduled", "--target", "x87"], "unknown target 'x87'"),
        (["bench", "matmul:m=?"], "give numbers instead of the run-time sizes m"),
        (["bench"], "name the workloads to time"),
        (["bench", "matmul", "--quickstart"], "or give --quickstart"),
        (["bench", "matmul", "nothing"], "unknown workload 'nothing'"),
        (["bench", "matmul", "--threads", "0"], "threads must be"),
    ],
)
def test_bad_input_is_one_line(run: Run, args: list[str], message: str) -> None:
    found = run(*args)
    assert found.exit_code == 2
    assert found.stdout == ""
    assert found.stderr.startswith("error: ")
    assert found.stderr.count("\n") == 1
    assert message in found.stderr


def test_debug_lets_the_traceback_through(run: Run) -> None:
    assert isinstance(run("--debug", "show", "matmull").exception, SearchLabError)


@pytest.mark.parametrize("args", [["bench", "--seconds", "-1"], ["show"], ["--nonsense"]])
def test_bad_usage(run: Run, args: list[str]) -> None:
    assert run(*args).exit_code == 2


def test_numbers() -> None:
    assert [amount(x, "B") for x in (5, 1500, 231.2e6)] == ["5 B", "1.5 kB", "231.2 MB"]
    assert [duration(x) for x in (1.5e-7, 2.5e-5, 1.234e-3, 0.1, 12.0)] == [
        "0.15 us",
        "25.0 us",
        "1.23 ms",
        "100 ms",
        "12.0 s",
    ]


# --- spaces -----------------------------------------------------------------------------------------------------------

SMALL = "matmul:m=16,n=32,k=8"


def test_defaults_that_are_objects_go_by_the_names_of_their_classes(run: Run) -> None:
    options = {
        row["name"]: row["options"] for row in map(json.loads, run("list", "spaces", "--json").output.splitlines())
    }
    assert options["sketch"]["rules"].startswith("[Inline, Rfactor, TileCalls, PackWeights,")
    assert options["sketch"]["places"] == "True" and options["template"]["template"] == "None"
    assert "0x" not in str(options)


def test_list_spaces(run: Run) -> None:
    found = run("list", "spaces")
    assert found.exit_code == 0
    for name in ("template", "sketch", "task-mapping", "probabilistic", "max_inner"):
        assert name in found.stdout


def test_show_a_space(run: Run) -> None:
    found = run("show", SMALL, "--space", "sketch")
    assert found.exit_code == 0, found.output
    for word in ("space sketch, version", "valid points", "Knobs of", "One point:", "program matmul", "--point"):
        assert word in found.stdout


def test_show_a_point_by_index_and_by_text(run: Run) -> None:
    sketches = rows(run("show", SMALL, "--space", "sketch", "--json"))
    assert all(row["value"] > 0 and row["knobs"] for row in sketches)
    (by_index,) = rows(run("show", SMALL, "--space", "sketch", "--point", "0", "--json"))
    (by_text,) = rows(run("show", SMALL, "--space", "sketch", "--point", by_index["case"], "--json"))
    assert by_index == by_text and by_index["program"].startswith("program matmul")
    assert by_index["case"] in run("show", SMALL, "--space", "sketch", "--point", "0").stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("show", SMALL, "--space", "sktch"), "unknown space 'sktch'; did you mean 'sketch'?"),
        (("show", SMALL, "--point", "0"), "--point needs --space"),
        (("show", SMALL, "--space", "sketch", "--point", "nonsense"), "has no sketch 'nonsense'"),
        (("show", "resnet50", "--space", "sketch"), "--space needs a single workload"),
        (("show", SMALL, "--space", "sketch", "--asm"), "--space needs a single workload and no --asm"),
    ],
)
def test_what_show_space_refuses(run: Run, args: tuple[str, ...], message: str) -> None:
    found = run(*args)
    assert found.exit_code == 2
    assert message in " ".join(found.output.split())
