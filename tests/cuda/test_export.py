"""Exports for NVIDIA GPUs: files, the Python loader on a made-up GPU, the C++ launcher with the toolkit's headers."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import searchlab as sl
from searchlab.backend import Package, backend_of
from searchlab.cuda.cuda_backend import EmulatedKernel
from searchlab.cuda.ptx_text import read_ptx
from searchlab.cuda.ptxas import find_ptxas
from searchlab.defaults import default_schedule
from searchlab.errors import ExportError
from searchlab.lab.export import export, verify
from searchlab.measure import Protocol
from searchlab.targets import parse
from searchlab.workloads import Workload
from searchlab.workloads import parse as workload

SPECS = ("matmul:m=9,n=10,k=7", "softmax:rows=3,cols=10")  # one kernel, and several with memory between them
HOMES = [Path(home) for home in ("/usr/local/cuda", "/opt/cuda")]


def exported(spec: str, folder: Path) -> tuple[Workload, Path]:
    w, target = workload(spec), parse("cuda:arch=sm_80")
    export(default_schedule(w.program, target), target, folder, title=w.label)
    return w, folder


@pytest.mark.parametrize("spec", SPECS)
def test_files(spec: str, tmp_path: Path) -> None:
    w, folder = exported(spec, tmp_path / "out")
    about = json.loads((folder / "kernel.json").read_text())
    names = {p.name for p in folder.iterdir()}
    assert {"README.md", "kernel.hpp", "kernel.py", "kernel.json", "program.txt", "kernel0.ptx"} <= names
    assert len(about["kernels"]) == sum(name.endswith(".ptx") for name in names)
    for k in about["kernels"]:
        assert read_ptx((folder / k["file"]).read_text()).entry == k["entry"]
    if find_ptxas() is not None:
        assert (folder / "kernel0.cubin").read_bytes()[:4] == b"\x7fELF" and about["code"]["registers"]
    assert [a["name"] for a in about["inputs"]] == list(w.program.inputs)
    export(w.program, parse("cuda:arch=sm_80"), folder)  # again


def test_packed_inputs_are_refused(tmp_path: Path) -> None:
    w = workload("dense:m=8,n=64,k=32")
    packed = default_schedule(w.program, parse("x86-64-v3"), w.weights)
    assert packed.layouts
    with pytest.raises(ExportError, match="exports for GPUs take inputs as they are, the schedule packs"):
        backend_of(parse("cuda")).package("name", packed, parse("cuda:arch=sm_80"), "title")


def test_without_a_gpu_an_export_is_not_loaded(tmp_path: Path) -> None:
    _, folder = exported(SPECS[0], tmp_path / "out")
    with pytest.raises(ExportError, match="this machine has no GPU"):
        sl.load(folder)


@pytest.mark.usefixtures("gpu_log")
@pytest.mark.parametrize("spec", SPECS)
def test_loaders(spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    w, folder = exported(spec, tmp_path / "out")
    inputs = w.inputs(seed=3)
    kernel = sl.load(folder)
    assert w.check(kernel(*inputs.values()), inputs) is None
    code = f"""
import numpy as np
from kernel import load
data = np.load({str(tmp_path / "in.npz")!r})
np.save({str(tmp_path / "out.npy")!r}, load()(*data.values()))
"""
    np.savez(tmp_path / "in.npz", *inputs.values())
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, timeout=60, env=_environment())
    assert w.check(np.load(tmp_path / "out.npy"), inputs) is None
    with pytest.raises(ValueError, match="takes"):
        kernel()
    with pytest.raises(ValueError, match="must be a numpy array"):
        kernel(*(x[:-1] for x in inputs.values()))


def _environment() -> dict[str, str]:
    from searchlab import interpreter

    return interpreter.environment()


@pytest.mark.usefixtures("gpu_log")
def test_verification(tmp_path: Path) -> None:
    w, folder = exported(SPECS[0], tmp_path / "out")
    target = parse("cuda:arch=sm_80")
    quick = Protocol(warmup=0, repeats=1, min_repeat_ms=0.0)
    found = verify(folder, w, default_schedule(w.program, target), target, 1e-5, rounds=2, protocol=quick)
    assert found.wrong is None and found.ratio == pytest.approx(1.0)


@pytest.mark.usefixtures("gpu_log")
def test_damaged_code_is_refused(tmp_path: Path) -> None:
    _, folder = exported(SPECS[0], tmp_path / "out")
    (folder / "kernel0.ptx").write_text("")
    with pytest.raises(ExportError, match="is damaged"):
        sl.load(folder)


# --- C++ --------------------------------------------------------------------------------------------------------------


def _toolkit() -> Path | None:
    nvcc = shutil.which("nvcc")
    homes = [*HOMES, *([Path(nvcc).resolve().parents[1]] if nvcc else [])]
    return next((home for home in homes if (home / "include" / "cuda.h").exists()), None)


MAIN = """
#include "kernel.hpp"
#include <cstdio>
int main() {
    CUdevice device;
    CUcontext context;
    cuInit(0);
    cuDeviceGet(&device, 0);
    cuDevicePrimaryCtxRetain(&context, device);
    cuCtxSetCurrent(context);
    NAME::Kernel kernel;
    if (kernel.status() != CUDA_SUCCESS) return 2;
    return kernel.run(ARGUMENTS) == CUDA_SUCCESS ? 0 : 3;
}
"""


@pytest.mark.skipif(_toolkit() is None or not shutil.which("g++"), reason="no headers of the CUDA toolkit, or no g++")
@pytest.mark.parametrize("spec", SPECS)
def test_the_launcher_is_right_c_plus_plus(spec: str, tmp_path: Path) -> None:
    """It is compiled, and linked with a driver that notes what is launched."""
    w, folder = exported(spec, tmp_path / "out")
    about = json.loads((folder / "kernel.json").read_text())
    arguments = ", ".join(str(256 * (n + 1)) for n in range(len(about["inputs"]) + len(about["outputs"])))
    (folder / "main.cpp").write_text(MAIN.replace("NAME", about["function"]).replace("ARGUMENTS", arguments))
    (tmp_path / "driver.c").write_text(DRIVER)
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", f"-isystem{_toolkit()}/include"]
    subprocess.run(["gcc", "-c", str(tmp_path / "driver.c"), "-o", str(tmp_path / "driver.o")], check=True)
    files = [str(folder / "main.cpp"), str(tmp_path / "driver.o")]
    subprocess.run(["g++", *flags, *files, "-o", str(tmp_path / "main")], check=True)
    done = subprocess.run([str(tmp_path / "main")], capture_output=True, text=True, check=True)
    expected = [[*k["grid"], *k["block"], k["dynamic"]] for k in about["kernels"]]
    assert [[int(n) for n in line.split()[1:]] for line in done.stdout.splitlines()] == expected
    entries = [line.split()[0] for line in done.stdout.splitlines()]
    assert entries == [k["entry"] for k in about["kernels"]]


# Just enough of a driver: functions are their names, launches are printed.
DRIVER = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int cuInit(unsigned f) { return 0; }
int cuDeviceGet(int *d, int n) { *d = n; return 0; }
int cuDevicePrimaryCtxRetain(void **c, int d) { *c = (void *)1; return 0; }
int cuCtxSetCurrent(void *c) { return 0; }
int cuModuleLoadData(void **m, const char *image) { *m = (void *)image; return strstr(image, ".version") ? 0 : 1; }
int cuModuleUnload(void *m) { return 0; }
int cuModuleGetFunction(void **f, const char *image, const char *name) {
    *f = (void *)name;
    return strstr(image, name) ? 0 : 500;
}
int cuFuncSetAttribute(void *f, int a, int v) { return 0; }
int cuMemAlloc_v2(unsigned long long *p, size_t n) { *p = 4096; return 0; }
int cuMemFree_v2(unsigned long long p) { return 0; }
int cuLaunchKernel(const char *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned s, void *st, void **args, void **extra) {
    if (*(unsigned long long *)args[0] != 256) return 1;
    printf("%s %u %u %u %u %u %u %u\n", f, gx, gy, gz, bx, by, bz, s);
    return 0;
}
"""


def test_emulated_and_exported_are_the_same_code(tmp_path: Path) -> None:
    w, folder = exported(SPECS[0], tmp_path / "out")
    target = parse("cuda:arch=sm_80")
    built = backend_of(target).build(default_schedule(w.program, target), target)
    kernel = backend_of(target).load(built)
    assert isinstance(kernel, EmulatedKernel)
    assert [k.text for k in kernel.artifact.kernels] == [(folder / "kernel0.ptx").read_text()]
    package = backend_of(target).package("f", w.program, target, "t")
    assert isinstance(package, Package)
    assert not re.search(r"/(home|tmp|work)/", str(package.files["kernel.hpp"]))
