"""WebAssembly: exported modules compute the same as numpy, called from JavaScript; node runs them where it is there."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from searchlab.backend import backend_of
from searchlab.defaults import default_schedule
from searchlab.errors import BuildError, ExportError, TargetError
from searchlab.lab.export import export
from searchlab.runtime.standalone import wasm
from searchlab.targets import parse
from searchlab.workloads import Workload
from searchlab.workloads import parse as workload

TARGET = parse("wasm")
NEEDED = pytest.mark.skipif(
    wasm.find_linker() is None or shutil.which("node") is None, reason="no wasm-ld (apt-get install lld), or no node"
)
SPECS = ("matmul:m=9,n=20,k=7", "dense:m=9,n=40,k=7", "softmax:rows=7,cols=33")
MORE = (
    "matmul:m=33,n=50,k=17,dtype=float64",
    "matmul:m=9,n=20,k=7,dtype=int8",
    "conv2d:ci=5,co=7,h=9,w=11,k=3,padding=1,stride=2,then=bias,relu",
    "conv2d:ci=4,co=8,h=7,w=6,k=3,padding=1,groups=2",
    "depthwise_conv2d:c=5,h=9,w=8,k=3,padding=1",
    "conv2d_transpose:ci=3,co=4,h=5,w=6",
    "layer_norm:rows=5,cols=47",
    "elementwise:rows=9,cols=31,ops=add,gelu",
    "max_pool2d:c=3,h=9,w=9",
    "qconv2d:ci=5,co=7,h=6,w=7,k=3,padding=1,zero=3",
)
RUN = """
const fs = require("fs");
const { load } = require("./kernel.js");
const views = { Float32Array, Float64Array, Int8Array, Uint8Array, Uint16Array, Int32Array, BigInt64Array };
load().then((kernel) => {
  let given = fs.readFileSync("in.bin");
  const arrays = kernel.form.inputs.map((a) => {
    const piece = given.subarray(0, a.bytes);
    given = given.subarray(a.bytes);
    return new views[a.view](new Uint8Array(piece).buffer);
  });
  kernel.run(...arrays);
  const made = kernel.run(...arrays);
  fs.writeFileSync("out.bin", Buffer.concat(made.map((x) => Buffer.from(x.buffer))));
  const found = kernel.time(0.01);
  if (!(found.fastest > 0 && found.fastest <= found.median && found.samples >= 5)) throw new Error("times");
  for (const wrong of [[], arrays.map((x) => x.subarray(1)), arrays.map(() => new Uint8ClampedArray(1))]) {
    let refused = false;
    try { kernel.run(...wrong); } catch (e) { refused = /must be|takes/.test(e.message); }
    if (!refused) throw new Error("not refused");
  }
});
"""


def exported(spec: str, folder: Path) -> Workload:
    w = workload(spec)
    export(default_schedule(w.program, TARGET, w.weights), TARGET, folder, title=w.label)
    return w


def check(spec: str, folder: Path) -> None:
    w = exported(spec, folder)
    inputs = w.inputs(seed=1)
    (folder / "in.bin").write_bytes(b"".join(np.ascontiguousarray(x).tobytes() for x in inputs.values()))
    (folder / "run.js").write_text(RUN)
    subprocess.run(["node", "run.js"], cwd=folder, check=True, timeout=60)
    (name,) = w.program.outputs
    buffer = w.program.buffers[name]
    shape = [int(str(n)) for n in buffer.shape]
    made = np.frombuffer((folder / "out.bin").read_bytes(), buffer.dtype).reshape(shape)
    assert w.check(made, inputs) is None


@NEEDED
@pytest.mark.parametrize("spec", SPECS)
def test_modules_compute_the_same_as_numpy(spec: str, tmp_path: Path) -> None:
    check(spec, tmp_path)


@NEEDED
@pytest.mark.slow
@pytest.mark.parametrize("spec", MORE)
def test_other_operators(spec: str, tmp_path: Path) -> None:
    check(spec, tmp_path)


@NEEDED
def test_files(tmp_path: Path) -> None:
    exported(SPECS[0], tmp_path)
    assert (tmp_path / "kernel.wasm").read_bytes()[:4] == b"\0asm"
    page = (tmp_path / "index.html").read_text()
    assert "matmul(m=9, n=20, k=7)" in page and "http" not in page  # nothing is fetched from elsewhere
    about = json.loads((tmp_path / "kernel.json").read_text())
    assert about["target"]["arch"] == "wasm32" and "kernel.wasm" in about["sha256"]


@NEEDED
def test_vectors_are_used(tmp_path: Path) -> None:
    w = workload(SPECS[0])
    assert "f32x4.mul" in backend_of(TARGET).listing(default_schedule(w.program, TARGET), TARGET, "assembly")


@NEEDED
def test_what_webassembly_lacks_is_told(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="WebAssembly lacks what the code needs .* use another element type"):
        exported("matmul:m=9,n=20,k=7,dtype=float16", tmp_path)


def test_a_missing_linker_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wasm, "find_linker", lambda: None)
    with pytest.raises(ExportError, match="wasm-ld is not found"):
        exported(SPECS[0], tmp_path)


def test_the_target() -> None:
    assert TARGET.name == "wasm32" and TARGET.threads == 1
    with pytest.raises(TargetError, match="kernels run in one thread, not in 2"):
        parse("wasm:threads=2")
    with pytest.raises(BuildError, match="wasm32"):
        backend_of(TARGET).require(TARGET)


@NEEDED
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium (apt-get install chromium)")
def test_the_page_runs_in_a_browser(tmp_path: Path) -> None:
    exported(SPECS[0], tmp_path)
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=15000", "--dump-dom"]
    command = ["chromium", *options, f"file://{tmp_path}/index.html#run"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "<title>done: matmul" in done.stdout and "fastest</td>" in done.stdout
