"""The real pycuda and cuda-bindings accept every call that searchlab makes, on a driver that has no device.

SEARCHLAB_CUDA_PYTHON names an interpreter that has the packages, if this one has not.  pycuda is built from source with
the toolkit's headers: `python configure.py --no-cuda-enable-curand --cuda-root=TOOLKIT --cudadrv-lib-dir=STUB`, where
STUB holds a libcuda.so as made here, then `pip install --no-build-isolation .`
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PYTHON = os.environ.get("SEARCHLAB_CUDA_PYTHON", sys.executable)
CASES = {
    "pycuda": ("pycuda", "searchlab.cuda.pycuda_driver:PycudaGpu"),
    "cuda-bindings": ("cuda.bindings", "searchlab.cuda.bindings_driver:BindingsGpu"),
}
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc to build the stub with")]


@pytest.mark.parametrize("package", CASES)
def test_all_calls_exist(package: str, tmp_path: Path) -> None:
    module, path = CASES[package]
    found = _python(f"import importlib.util as u; print(u.find_spec({module!r}).submodule_search_locations[0])")
    if found.returncode:
        pytest.skip(f"{PYTHON} has no {package}")
    _build_stub(Path(found.stdout.strip()), tmp_path)
    done = _python(HERE / "real_calls.py", path, LD_LIBRARY_PATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "all calls are right"


def test_nvml_has_the_names_that_are_used() -> None:
    names = sorted(set(re.findall(r"(?:found|pynvml)\.(\w+)", (ROOT / "searchlab/cuda/nvml.py").read_text())))
    assert "nvmlDeviceGetClockInfo" in names and "NVMLError" in names
    found = _python(f"import pynvml; print([n for n in {names} if not hasattr(pynvml, n)])")
    if found.returncode:
        pytest.skip(f"{PYTHON} has no nvidia-ml-py")
    assert found.stdout.strip() == "[]"


def _python(code: str | Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    how = [str(code)] if isinstance(code, Path) else ["-c", code]
    # the interpreter has packages of its own, and finds nothing of this one but searchlab
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run([PYTHON, "-P", *how, *arguments], env=env, capture_output=True, text=True, timeout=120)


def _build_stub(package: Path, folder: Path) -> None:
    """A libcuda with what the package is linked with; what searchlab does not use is refused when it is called."""
    library, source = folder / "libcuda.so.1", HERE / "libcuda_stub.c"
    command = ["gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    needed = {name for file in package.rglob("*.so") for name in _symbols("--undefined-only", file)}
    rest = sorted(name for name in needed - _symbols("--defined-only", library) if name.startswith("cu"))
    extra = folder / "rest.c"
    extra.write_text("".join(f"int {name}(void) {{ return 801; }}\n" for name in rest))
    subprocess.run([*command, str(extra)], check=True)


def _symbols(which: str, file: Path) -> set[str]:
    said = subprocess.run(["nm", "-D", which, str(file)], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1].partition("@")[0] for line in said.splitlines()}
