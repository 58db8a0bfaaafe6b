"""Exported kernels are right, without searchlab and from C, for one thread and for several."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import searchlab as sl
from searchlab.errors import ExportError
from searchlab.ir.program import Program
from searchlab.lab.export import Exported, export, load
from searchlab.lab.export.bundle import identifier, loader
from searchlab.runtime.standalone.code import CpuStandalone
from searchlab.search import space
from searchlab.targets import CpuTarget, cpu_of
from searchlab.targets.target import parse
from searchlab.workloads import Workload

MATMUL = sl.workload("matmul", m=50, n=50, k=37)
CC = shutil.which("cc")
needs_cc = pytest.mark.skipif(CC is None, reason="no C compiler here")
needs_two = pytest.mark.skipif(sl.detect().cores < 2, reason="one core")


def programs(workload: Workload, threads: int, name: str, count: int = 8) -> list[Program]:
    task = sl.Task(workload, sl.detect(threads=threads))
    found = space(name, task)
    return [found.program(p) for p in found.sample(count, np.random.default_rng(0))]


@cache
def packed(threads: int = 1) -> Program:
    """One that packs B ahead of time, with columns that B does not have."""
    found = [p for p in programs(MATMUL, threads, "template") if p.layouts]
    return next(p for p in found if "<" in str(p.layouts[0].predicate))


def exported(program: Program, folder: Path, workload: Workload = MATMUL, threads: int = 1) -> Exported:
    return export(program, sl.detect(threads=threads), folder, workload.label)


def right(kernel: object, workload: Workload) -> None:
    inputs = workload.inputs()
    assert workload.check(kernel(*inputs.values()), inputs) is None  # type: ignore[operator]


@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=needs_two)])
@pytest.mark.parametrize("name", ["matmul", "conv2d", "softmax"])
def test_what_is_exported_computes_the_same(name: str, threads: int, tmp_path: Path) -> None:
    sizes = {
        "matmul": {"m": 50, "n": 50, "k": 37},
        "conv2d": {"ci": 8, "co": 16, "h": 12, "w": 12, "k": 3, "padding": 1},
        "softmax": {},
    }
    workload = sl.workload(name, **sizes[name])
    parallel = []  # a loop of one iteration is not: it has nothing to share
    for n, program in enumerate(programs(workload, threads, "task-mapping", 3)):
        done = exported(program, tmp_path / str(n), workload, threads)
        assert done.missing == "" or shutil.which("ld") is None
        parallel.append(done.code.parallel)
        right(load(done.folder), workload)
    assert any(parallel) == (threads > 1)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_floats_of_16_bits_are_exported_as_their_bits(dtype: str, tmp_path: Path) -> None:
    w = sl.workload("matmul", m=20, n=33, k=9, dtype=dtype)
    target = sl.detect(threads=1)
    done = exported(sl.default_schedule(w.program, target, w.weights), tmp_path / "k", w)
    kernel = load(done.folder)
    right(kernel, w)
    a, b = w.inputs().values()
    assert w.check(kernel.bind(B=b)(a), w.inputs()) is None
    text = (done.folder / "kernel.h").read_text()
    assert f"uint16_t[20][9] (the bits of {dtype})" in text and "const uint16_t *A" in text
    assert json.loads((done.folder / "kernel.json").read_text())["inputs"][0]["dtype"] == dtype
    held = "float16" if dtype == "float16" else "uint16"
    with pytest.raises(ValueError, match=rf"'A' must be a numpy array {held}\[20, 9\].*, got float32"):
        kernel(a.astype(np.float32), b)
    if CC is not None:
        for command in ([CC, "-x", "c"], *([[found, "-x", "c++"]] if (found := shutil.which("c++")) else [])):
            subprocess.run([*command, "-fsyntax-only", str(done.folder / "kernel.h")], check=True)


@pytest.mark.parametrize(("dtype", "wide"), [("uint8", "int16"), ("bfloat16", "float32")])
def test_weights_that_are_widened_ahead(dtype: str, wide: str, tmp_path: Path) -> None:
    w = sl.workload("matmul", m=6, n=9, k=5, dtype=dtype)
    s = sl.Schedule(w.program)
    s.transform_layout("B", lambda k, j: (k // 2, j, k % 2))
    s.widen("B", wide)
    done = exported(s.program, tmp_path / "k", w)
    kernel = load(done.folder)
    right(kernel, w)
    a, b = w.inputs().values()
    bound, ours = kernel.bind(B=b)._bound["B"], sl.compile(s.program, sl.detect(threads=1)).bind(B=b)
    assert bound.dtype == wide and w.check(ours(a), w.inputs()) is None
    np.testing.assert_array_equal(bound, ours._constants["B"])
    text = (done.folder / "kernel.h").read_text()
    assert f"passed packed as {wide} [3][9][2]" in text
    c = {"int16": "int16_t", "float32": "float"}[wide]
    assert f"const {c} *B_packed" in text and f"{c} B_packed[3][9][2]" in (done.folder / "README.md").read_text()


def test_a_folder_holds_all_files_and_says_what_they_are(tmp_path: Path) -> None:
    done = exported(packed(), tmp_path / "k")
    names = {"README.md", "kernel.h", "kernel.json", "kernel.ll", "kernel.o", "kernel.py", "kernel.s", "program.txt"}
    assert names <= set(done.files)
    about = json.loads((done.folder / "kernel.json").read_text())
    assert about["function"] == "matmul_m50_n50_k37"
    a, b = about["inputs"]
    assert (a["shape"], a["packed"], b["shape"]) == ([50, 37], None, [37, 50])
    assert np.prod(b["packed"]) > 37 * 50
    assert sl.Target.from_dict(about["target"]) == sl.detect(threads=1)
    readme = (done.folder / "README.md").read_text()
    assert "bind(B=B)" in readme and all(f in readme for f in names - {"README.md"})


def test_packing_is_as_in_searchlab_and_is_done_once(tmp_path: Path) -> None:
    program = packed()
    kernel = load(exported(program, tmp_path / "k").folder)
    a, b = MATMUL.inputs().values()
    bound = kernel.bind(B=b)
    ours = sl.compile(program, sl.detect(threads=1))
    np.testing.assert_array_equal(bound._bound["B"], ours.bind(B=b)._constants["B"])
    out = np.zeros((50, 50), np.float32)
    assert bound(a, out=out) is out
    np.testing.assert_array_equal(out, ours(a, b))
    with pytest.raises(ValueError, match="no input 'W'; inputs: A, B"):
        kernel.bind(W=b)


def test_arrays_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    kernel = load(exported(packed(), tmp_path / "k").folder)
    a, b = MATMUL.inputs().values()
    with pytest.raises(ValueError, match="takes 2 arrays"):
        kernel(a)
    with pytest.raises(ValueError, match=r"'A' must be a numpy array float32\[50, 37\], got float64"):
        kernel(a.astype(np.float64), b)
    with pytest.raises(ValueError, match="contiguous"):
        kernel(np.asfortranarray(a), b)
    with pytest.raises(ValueError, match="'A' must be a numpy array .*got list"):
        kernel(a.tolist(), b)
    with pytest.raises(ValueError, match="output 'C'"):
        frozen = np.zeros((50, 50), np.float32)
        frozen.flags.writeable = False
        kernel(a, b, out=frozen)


ALONE = """
import sys
from dataclasses import replace
import numpy as np
from kernel import load
kernel = load()
rng = np.random.default_rng(0)
a, b = rng.random((50, 37), np.float32), rng.random((37, 50), np.float32)
assert np.allclose(kernel(a, b), a @ b, rtol=1e-4)
assert not [m for m in sys.modules if m.split(".")[0] in ("searchlab", "llvmlite")]
"""


@needs_cc
@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=needs_two)])
def test_python_needs_no_searchlab(threads: int, tmp_path: Path) -> None:
    done = exported(packed(threads), tmp_path / "k", threads=threads)
    subprocess.run([sys.executable, "-c", ALONE], cwd=done.folder, check=True)


MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include <math.h>
#include "kernel.h"

int main(void) {
    static float A[50][37], B[37][50], C[50][50], D[50][50], packed[PACKED];
    for (int i = 0; i < 50; i++) for (int k = 0; k < 37; k++) A[i][k] = (float)(i - k) / 50;
    for (int k = 0; k < 37; k++) for (int j = 0; j < 50; j++) B[k][j] = (float)(k + j) / 50;
    matmul_m50_n50_k37_pack_B(&B[0][0], packed);
    if (matmul_m50_n50_k37(&A[0][0], packed, &C[0][0])) return 1;
    int64_t bytes = matmul_m50_n50_k37_scratch(2);
    void *scratch = aligned_alloc(64, (bytes + 127) / 64 * 64);
    matmul_m50_n50_k37_with(&A[0][0], packed, &D[0][0], scratch, 2);
    for (int i = 0; i < 50; i++) for (int j = 0; j < 50; j++) {
        double sum = 0;
        for (int k = 0; k < 37; k++) sum += (double)A[i][k] * B[k][j];
        if (fabs(sum - C[i][j]) > 1e-4 || C[i][j] != D[i][j]) return printf("%d %d %g %g\\n", i, j, sum, C[i][j]), 2;
    }
    return 0;
}
"""


@needs_cc
@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=needs_two)])
@pytest.mark.parametrize("how", ["object", "library"])
def test_c_calls_it(how: str, threads: int, tmp_path: Path) -> None:
    done = exported(packed(threads), tmp_path / "k", threads=threads)
    (tmp_path / "main.c").write_text(MAIN)
    count = int(np.prod(done.code.inputs[1].packed))
    command = [str(CC), "-O1", "-Wall", "-Werror", f"-DPACKED={count}", f"-I{done.folder}", "main.c"]
    linked = {"object": ["k/kernel.o"], "library": ["-Lk", "-lkernel", "-Wl,-rpath,k"]}[how]
    subprocess.run([*command, *linked, "-o", "main", "-lm", "-pthread"], cwd=tmp_path, check=True)
    subprocess.run([tmp_path / "main"], cwd=tmp_path, check=True)


@needs_cc
def test_the_c_program_of_the_readme_runs(tmp_path: Path) -> None:
    done = exported(packed(), tmp_path / "k")
    text = (done.folder / "README.md").read_text()
    (source,) = re.findall(r"^```c\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (done.folder / "main.c").write_text(source)
    (command,) = re.findall(r"^cc .*$", text, re.MULTILINE)
    subprocess.run([*command.split(), "-Wall", "-Werror"], cwd=done.folder, check=True)
    subprocess.run([done.folder / "main"], check=True)


@pytest.mark.skipif(shutil.which("ld") is None, reason="no linker here")
@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=needs_two)])
def test_a_bare_linker_will_do(threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ld").symlink_to(str(shutil.which("ld")))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("CC", raising=False)
    done = exported(packed(threads), tmp_path / "k", threads=threads)
    assert done.missing == ""
    subprocess.run([sys.executable, "-c", ALONE], cwd=done.folder, check=True)


@needs_cc
@needs_two
def test_workers_start_anew_in_the_child_of_a_fork(tmp_path: Path) -> None:
    done = exported(packed(2), tmp_path / "k", threads=2)
    script = ALONE + (
        "import os\n"
        "def threads(): return len(os.listdir('/proc/self/task'))\n"
        "assert threads() == 2, threads()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    right = threads() == 1 and np.allclose(kernel(a, b), a @ b, rtol=1e-4) and threads() == 2\n"
        "    os._exit(0 if right else 3)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0\n"
    )
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", script], cwd=done.folder, check=True, env=env)


@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=needs_two)])
def test_without_a_linker_the_object_is_loaded(threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    done = exported(packed(threads), tmp_path / "k", threads=threads)
    assert "no linker found (cc, gcc" in done.missing
    assert loader.LIBRARY not in done.files
    assert done.missing in (done.folder / "README.md").read_text()
    right(load(done.folder), MATMUL)


def test_a_linker_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = tmp_path / "cc"
    bad.write_text("#!/bin/sh\necho out of order >&2\nexit 1\n")
    bad.chmod(0o755)
    monkeypatch.setenv("CC", str(bad))
    assert exported(packed(), tmp_path / "k").missing == f"{bad} failed: out of order"


def test_code_for_another_machine_is_written_but_not_loaded(tmp_path: Path) -> None:
    other = "neoverse-n1" if sl.detect().arch == "x86_64" else "x86-64-v3"
    from searchlab.targets import parse

    target = parse(other)
    done = export(sl.default_schedule(MATMUL.program, target), target, tmp_path / "k", MATMUL.label)
    assert "is linked on such a machine" in done.missing
    assert (done.folder / "kernel.o").stat().st_size > 0
    with pytest.raises(sl.errors.BuildError, match="this machine is"):
        load(done.folder)


def test_folders_of_others_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ExportError, match="contains files that are not an export"):
        exported(packed(), tmp_path)
    with pytest.raises(ExportError, match="is a file"):
        exported(packed(), tmp_path / "notes.txt")
    with pytest.raises(ExportError, match="does not exist; expected a folder of"):
        load(tmp_path / "nothing")
    with pytest.raises(ExportError, match="neither kernel.json nor manifest.json"):
        load(tmp_path)
    exported(packed(), tmp_path / "k")
    exported(packed(), tmp_path / "k")
    with pytest.raises(ExportError, match="leave out task='x'"):
        load(tmp_path / "k", task="x")


def test_a_damaged_export_is_named(tmp_path: Path) -> None:
    folder = exported(packed(), tmp_path / "k").folder
    path = folder / "kernel.json"
    text = path.read_bytes()
    about = json.loads(text)
    damaged = [
        b"", b"{}", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, text[: len(text) // 2],
        *(json.dumps({**about, "inputs": [{**about["inputs"][0], k: v}]}).encode() for k, v in [
            ("name", 3), ("dtype", "float33"), ("shape", 8), ("shape", [8, -8]), ("shape", ["8", 8]), ("packed", 1),
        ]),
        *(json.dumps({**about, key: value}).encode() for key in about
          if key in ("function", "inputs", "outputs", "threads", "target", "needs", "sha256")
          for value in (None, -1, [3], {"a": 1})),
        json.dumps({**about, "target": {**about["target"], "threads": "2"}}).encode(),
        json.dumps({**about, "function": "another"}).encode(),
    ]  # fmt: skip
    for raw in damaged:
        path.write_bytes(raw)
        with pytest.raises(ExportError) as caught:
            load(folder)
        assert str(folder) in str(caught.value) and "export the kernel again" in str(caught.value), raw[:80]
        assert "\n" not in str(caught.value)


def test_code_that_is_not_what_was_exported_is_not_run(tmp_path: Path) -> None:
    folder = exported(packed(), tmp_path / "k").folder
    for name in ("libkernel.so", "kernel.o"):
        path = folder / name
        if not path.exists():  # there is no linker here
            continue
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(ExportError, match=f"{name} is damaged: its checksum is not the one in kernel.json"):
            load(folder)
        path.unlink()  # the object file is next
    with pytest.raises(ExportError, match="kernel.o cannot be read: No such file"):
        load(folder)


def test_sizes_of_run_time_are_refused() -> None:
    workload = sl.workload("matmul", m=sl.size("n"), n=16, k=16)
    with pytest.raises(ExportError, match=r"known only at run time \(n\)"):
        CpuStandalone("f", workload.program, sl.detect(threads=1))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("matmul(m=64, n=64)", "matmul_m64_n64"),
        ("my.module:op(x=-1)", "my_module_op_x_1"),
        ("3d", "k_3d"),
        ("()", "kernel"),
    ],
)
def test_names(text: str, name: str) -> None:
    assert identifier(text) == name


def test_long_names_are_cut_and_stay_different() -> None:
    first, second = (identifier(f"conv2d({', '.join(f'parameter{n}={n}' for n in range(20))}, last={x})") for x in "ab")
    assert first != second
    assert max(len(first), len(second)) <= 64
    assert first.startswith("conv2d_parameter00_")


@needs_cc
def test_a_cpu_that_lacks_instructions_is_told(tmp_path: Path) -> None:
    done = exported(packed(), tmp_path / "k")
    path = done.folder / "kernel.json"
    about = json.loads(path.read_text())
    assert set(about["needs"]) <= set(sl.detect().enabled_features())
    path.write_text(json.dumps({**about, "needs": [*about["needs"], "avx4096f"]}))
    with pytest.raises(OSError, match="this CPU lacks avx4096f, which the kernel needs"):
        load(done.folder)


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=needs_two)])
@pytest.mark.parametrize("name", ["template", "sketch", "task-mapping", "probabilistic"])
def test_programs_of_all_kinds(name: str, threads: int, tmp_path: Path) -> None:
    specs = {
        "matmul": {"m": 33, "n": 70, "k": 29},
        "batch_matmul": {"batch": 3, "m": 16, "n": 24, "k": 20},
        "dense": {"m": 20, "n": 48, "k": 36, "activation": "relu"},
        "conv2d": {"ci": 6, "co": 20, "h": 11, "w": 13, "k": 3, "padding": 1},
        "depthwise_conv2d": {"c": 24, "h": 10, "w": 10, "k": 3, "padding": 1},
        "conv2d_bn_relu": {"ci": 8, "co": 16, "h": 8, "w": 8, "k": 3, "padding": 1},
        "softmax": {"rows": 9, "cols": 50},
        "layer_norm": {"rows": 9, "cols": 50},
        "max_pool2d": {"c": 16, "h": 12, "w": 12, "k": 3, "stride": 2},
    }
    for operator, sizes in specs.items():
        workload = sl.workload(operator, **sizes)
        for n, program in enumerate(programs(workload, threads, name, 3)):
            done = exported(program, tmp_path / f"{operator}-{n}", workload, threads)
            right(load(done.folder), workload)


# --- permission to use tiles ------------------------------------------------------------------------------------------


def with_tiles(threads: int = 1) -> tuple[Workload, Program, CpuTarget]:
    """A product by calls of AMX, for a CPU that has little else."""
    plain = cpu_of(parse("x86-64-v2"))
    target = replace(plain, features=plain.features + ",+amx-tile,+amx-int8", cores=threads, threads=threads)
    w = sl.workload("matmul", m=48, n=32, k=128, dtype="uint8")
    s = sl.Schedule(w.program)
    s.transform_layout("B", lambda k, j: (j // 16, k // 4, j % 16, k % 4))
    i, j, k = s.loops("C")
    i0, i1 = s.split(i, [None, 16])
    j0, j1 = s.split(j, [None, 16])
    k0, k1, k2 = s.split(k, [None, 16, 4])
    s.reorder(i0, j0, k0, i1, j1, k1, k2)
    if threads > 1:
        s.parallel(i0)
    s.tensorize(i1, "amx_u8s8_16x16x64")
    return w, s.program, target


@pytest.mark.parametrize("threads", [1, 2])
def test_code_with_tiles_asks_for_them_when_it_is_loaded(threads: int) -> None:
    w, program, target = with_tiles(threads)
    code = CpuStandalone("product", program, target)
    assert code.permission == "AMX tiles" and {"amxtile", "amxint8"} <= set(code.needs)
    first = re.search(r"@llvm.global_ctors = .*", code.ir)
    assert first is not None and "@tiles.setup" in first[0]
    assert ("@product_setup" in first[0]) == (threads > 1)
    text = code.assembly
    asking = text.partition("product_permitted:")[2].partition(".size")[0]
    assert "$158" in asking and "$4131" in asking and "$18" in asking and "syscall" in asking  # numbers of Linux
    assert re.search(r"\.section\s+\.(ctors|init_array)", text) and "tdpbusd" in text


def test_code_without_tiles_asks_for_nothing() -> None:
    _, _, target = with_tiles()
    code = CpuStandalone("product", MATMUL.program, target)
    assert code.permission == "" and "syscall" not in code.ir and "amxtile" not in code.needs
    assert "global_ctors" not in code.ir


@needs_cc
@pytest.mark.skipif(sl.detect().arch != "x86_64", reason="AMX is of x86")
def test_a_refusal_is_told_and_nothing_runs(tmp_path: Path) -> None:
    """On a CPU with tiles the kernel runs, on any other it returns an error instead of a fault."""
    w, program, target = with_tiles()
    done = export(program, target, tmp_path / "k", "product")
    text = (done.folder / "kernel.h").read_text()
    assert "int product_permitted(void);" in text and "AMX tiles" in text and "EOPNOTSUPP" in text
    assert json.loads((done.folder / "kernel.json").read_text())["permission"] == "AMX tiles"
    program_text = (
        '#include "kernel.h"\nstatic uint8_t A[48 * 128]; static int8_t B[32 * 128]; static int32_t C[48 * 32];\n'
        "int main(void) { C[0] = 7; A[0] = 1; int r = product(A, B, C);\n"
        "  return r != product_permitted() ? 1 : r == 0 ? (C[0] == 0 ? 0 : 2) : C[0] == 7 ? r : 3; }\n"
    )
    (done.folder / "main.c").write_text(program_text)
    command = [CC or "cc", "main.c", "kernel.o", "-o", "main", "-pthread"]
    subprocess.run(command, cwd=done.folder, check=True)
    has = "amx_tile" in Path("/proc/cpuinfo").read_text()
    assert subprocess.run([done.folder / "main"]).returncode in ((0, 95) if has else (95,))
    if not has:
        with pytest.raises(OSError, match="this CPU lacks amxint8, amxtile"):
            loader.load(done.folder)
        about = json.loads((done.folder / "kernel.json").read_text())
        (done.folder / "kernel.json").write_text(json.dumps({**about, "needs": []}))
        with pytest.raises(OSError, match="does not let this process use AMX tiles, which the kernel needs"):
            loader.load(done.folder)
