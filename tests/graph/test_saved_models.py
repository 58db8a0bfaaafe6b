"""Models as files: saved and loaded where nothing compiles, damaged, for other CPUs, and called from C."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from searchlab.errors import ExportError, GraphError
from searchlab.graph import CompiledModel, GraphBuilder, GraphModule, compile, evaluate_graph, load_model
from searchlab.graph.model.shared_library import FOOTER
from searchlab.ir import size
from searchlab.runtime.standalone.linking import linker

ROOT = Path(__file__).resolve().parents[2]
n = size("n")
needs_linker = pytest.mark.skipif(linker() is None, reason="there is no linker")
pytestmark = needs_linker


def embedding() -> GraphModule:
    """A look-up in a table, then a layer whose weights are packed."""
    rng = np.random.default_rng(0)
    b = GraphBuilder("main", ranges={n: (1, 32)})
    table = b.constant("table", rng.uniform(-1, 1, (10, 24)).astype("float32"))
    w = b.constant("w", rng.uniform(-1, 1, (40, 24)).astype("float32"))
    return b.build(b.tanh(b.linear(b.take(table, b.input("tokens", (n,), "int64")), w)))


def layer() -> GraphModule:
    rng = np.random.default_rng(1)
    b = GraphBuilder("main", ranges={n: (1, 32)})
    x = b.input("x", (n, 24))
    w = b.constant("w", rng.uniform(-1, 1, (8, 24)).astype("float32"))
    y = b.relu(b.linear(x, w))
    return b.build(y, b.sum(y, axes=(1,)))


@pytest.fixture(scope="module")
def model() -> CompiledModel:
    return compile(embedding())


FRESH = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "llvmlite":
            raise ImportError("llvmlite is not here")
sys.meta_path.insert(0, Refuse())
import numpy as np
from searchlab.graph import load_model
model = load_model(sys.argv[1])
np.save(sys.argv[2], model(np.arange(5)))
assert "llvmlite" not in sys.modules
"""


def test_a_fresh_process_without_a_compiler(model: CompiledModel, tmp_path: Path) -> None:
    saved = model.save(tmp_path / "model.bin")
    command = [sys.executable, "-c", FRESH, str(saved), str(tmp_path / "y.npy")]
    subprocess.run(command, cwd=ROOT, check=True, timeout=120)
    wanted = evaluate_graph(embedding(), np.arange(5))
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), wanted, rtol=1e-5, atol=1e-6)


def test_a_loaded_model_is_the_same(model: CompiledModel, tmp_path: Path) -> None:
    loaded = load_model(model.save(tmp_path / "model.bin"))
    for tokens in (np.arange(7), np.zeros(1, "int64")):
        assert np.array_equal(loaded(tokens), model(tokens))
    assert [c.name for c in loaded.profile(np.arange(3)).calls] == [c.name for c in model.profile(np.arange(3)).calls]
    with pytest.raises(GraphError, match=r"main: tokens: n = 33 is out of its range, 1 <= n <= 32"):
        loaded(np.zeros(33, "int64"))
    with pytest.raises(GraphError, match=r"take = .*: index = 10 is out of its range, -10 <= index < 10"):
        loaded(np.full(3, 10))


def test_damaged_files(model: CompiledModel, tmp_path: Path) -> None:
    saved = model.save(tmp_path / "model.bin")
    content = saved.read_bytes()
    for text, changed in {
        "checksum": content[:5000] + bytes([content[5000] ^ 1]) + content[5001:],
        "only a part": content[: len(content) // 2],
        "not a model": b"nonsense",
    }.items():
        saved.write_bytes(changed)
        with pytest.raises(GraphError, match=text):
            load_model(saved)
    with pytest.raises(GraphError, match="cannot be read: No such file"):
        load_model(tmp_path / "nothing")


def test_a_cpu_that_lacks_features(model: CompiledModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = model.save(tmp_path / "model.bin")
    _, library, about, _ = FOOTER.unpack(saved.read_bytes()[-FOOTER.size :])
    described = json.loads(saved.read_bytes()[library : library + about])
    if not described["needs"]:
        pytest.skip("the model needs nothing special")
    monkeypatch.setattr("searchlab.graph.model.saved_model.cpu_flags", lambda: frozenset({"sse2"}))
    with pytest.raises(GraphError, match=f"this CPU lacks {', '.join(described['needs'])}, which the model was"):
        load_model(saved)


MAIN = """
#include "net.h"
#include <stdio.h>
#include <stdlib.h>

int main(void) {
  float x[33 * 24];
  for (int i = 0; i < 33 * 24; ++i) x[i] = (float)(i % 7) - 3;
  net_state *state = net_create(0);
  for (int64_t n = 1; n <= 33; n += 16) {
    searchlab_tensor in[NET_INPUTS] = {{0}}, out[NET_OUTPUTS] = {{0}};
    in[0].data = x; in[0].dtype = SEARCHLAB_FLOAT32; in[0].rank = 2; in[0].shape[0] = n; in[0].shape[1] = 24;
    int64_t status = net_run(state, in, out);
    if (status) {
      char text[200];
      net_message(state, status, text, sizeof text);
      printf("%s\\n", text);
      if (out[0].data || out[1].data) return 1;
      continue;
    }
    if (out[0].rank != 2 || out[0].shape[0] != n || out[0].shape[1] != 8 || !out[0].owned) return 2;
    for (int i = 0; i < n; ++i) printf("%.5f ", ((float *)out[1].data)[i]);
    printf("\\n");
    free(out[0].data); free(out[1].data);
  }
  net_destroy(state);
  return 0;
}
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
def test_called_from_c(tmp_path: Path) -> None:
    module = layer()
    model = compile(module)
    library = model.export_c(tmp_path / "export", name="net")
    folder = library.parent
    assert sorted(p.name for p in folder.iterdir()) == ["README.md", "libnet.so", "net.h"]
    (folder / "main.c").write_text(MAIN)
    build = ["gcc", "-Wall", "-Werror", "main.c", "-I.", "-L.", "-lnet", "-Wl,-rpath,.", "-o", "main"]
    subprocess.run(build, cwd=folder, check=True, timeout=60)
    lines = subprocess.run(["./main"], cwd=folder, check=True, timeout=60, capture_output=True, text=True).stdout
    first, second, third = lines.splitlines()
    assert third == "main: x: n = 33 is out of its range, 1 <= n <= 32"
    x = (np.arange(17 * 24) % 7 - 3).astype("float32").reshape(17, 24)
    _, sums = evaluate_graph(module, x)
    np.testing.assert_allclose([float(v) for v in second.split()], sums, rtol=1e-4)
    np.testing.assert_allclose([float(v) for v in first.split()], sums[:1], rtol=1e-4)
    loaded = load_model(library)
    np.testing.assert_allclose(loaded(x)[1], sums, rtol=1e-4)


def test_embeddings_are_looked_up_in_c(model: CompiledModel, tmp_path: Path) -> None:
    loaded = load_model(model.export_c(tmp_path / "export"))
    tokens = np.array([3, 0, 9, -1], "int64")
    assert np.array_equal(loaded(tokens), model(tokens))


def test_what_cannot_be_exported(tmp_path: Path) -> None:
    b = GraphBuilder("main")
    put = b.index_put(b.input("x", (4,)), b.input("at", (1,), "int64"), b.input("values", (1,)))
    with pytest.raises(ExportError, match="'index_put' is a function of Python, which a C library cannot call"):
        compile(b.build(put)).export_c(tmp_path)
    with pytest.raises(ExportError, match="'1st' is not a C identifier"):
        compile(layer()).export_c(tmp_path, name="1st")
