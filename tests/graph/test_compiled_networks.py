"""Whole networks compiled once, compared with torch at sizes that they were not exported with."""

from collections.abc import Iterator

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tiny_networks import TINY, arrays, flat, tiny  # noqa: E402

from searchlab.graph import compile, evaluate_graph  # noqa: E402
from searchlab.graph.model import kernels  # noqa: E402
from searchlab.graph.model.kernels import KernelTask  # noqa: E402
from searchlab.ir import Program  # noqa: E402
from searchlab.runtime.kernel import CpuArtifact  # noqa: E402
from searchlab.targets import CpuTarget  # noqa: E402

# float32 kernels, with sums in other orders than torch's; relative to the largest element
TOLERANCE = 2e-5


QUICK = ("mobilenet_v2", "bert")


@pytest.fixture(scope="module", autouse=True)
def kernels_are_built_once() -> Iterator[None]:
    """A kernel does not depend on the policy of memory that it is called under."""
    real, built = kernels.build_kernel, {}

    def build(task: KernelTask, target: CpuTarget, tuned: Program | None = None) -> CpuArtifact:
        key = task.symbol, task.program.hash, task.weights, target, tuned and tuned.hash
        if key not in built:
            built[key] = real(task, target, tuned)
        return built[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "build_kernel", build)
        yield


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in TINY])
def test_against_torch(name: str) -> None:
    network, module = TINY[name], tiny(name)
    model, net = compile(module), network.make()
    for sizes in network.tried:
        inputs = network.inputs(*sizes)
        with torch.no_grad():
            wanted = flat(net(*inputs))
        found = flat(model["main"].observed(*flat(inputs), poison=True).result)
        assert len(found) == len(wanted)
        for got, want in zip(found, wanted, strict=True):
            assert got.dtype == want.dtype and got.shape == want.shape
            scale = want.abs().max().item() or 1.0
            np.testing.assert_allclose(got.numpy() / scale, want.numpy() / scale, rtol=0, atol=TOLERANCE)


def test_against_the_interpreter_with_each_policy() -> None:
    module, given = tiny("bert"), arrays(TINY["bert"].inputs(2, 5))
    wanted = evaluate_graph(module, *given)
    for policy in ("none", "pool", "symbolic", "bounds"):
        found = compile(module, options={"memory": policy})["main"].observed(*given, poison=True).result
        for got, want in zip(found, wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)
