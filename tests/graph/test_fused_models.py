"""Whole networks, folded and fused: which operators are in which kernel, and that results stay the same."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from tiny_networks import TINY, arrays, flat, tiny

from searchlab.backend import compile
from searchlab.defaults import default_schedule
from searchlab.graph import FunctionCall, GraphModule, ProgramCall, evaluate_graph, legalise
from searchlab.graph.listing import call_text
from searchlab.graph.passes import (
    apply_passes,
    fold_batch_norms,
    fold_constants,
    fuse_operators,
    fuse_programs,
    share_equal_calls,
)
from searchlab.ir import interpret
from searchlab.targets import detect

pytest.importorskip("torch")


@cache
def fused(name: str) -> GraphModule:
    return apply_passes(tiny(name), (fold_constants, fold_batch_norms, share_equal_calls, fuse_operators))


def kernels(module: GraphModule) -> str:
    """A line for every call of the main function, with the operators of fused ones."""
    lines = []
    for name, call in module["main"].calls.items():
        text = call_text(call).partition("(")[0]
        if isinstance(call, FunctionCall):
            text = " ".join(c.callee for c in module[call.function].calls.values() if c.callee != "getitem")
        lines.append(f"{name}: {text}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "bert", "extension"])
def test_groups(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"graph/groups_{name}.txt", kernels(fused(name)))


@pytest.mark.parametrize("name", TINY)
def test_results_stay_the_same(name: str) -> None:
    module = apply_passes(fused(name), (fuse_programs,))
    sizes = TINY[name].tried[0]
    given = arrays(TINY[name].inputs(*sizes))
    # the functions are computed as programs for the smaller networks, and as operators, in numpy, for all
    for changed in (fused(name), legalise(module)) if name in ("bert", "prompt", "extension") else (fused(name),):
        found, wanted = evaluate_graph(changed, *given), evaluate_graph(tiny(name), *given)
        for got, want in zip(flat(found), flat(wanted), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-5 * max(1.0, float(np.abs(want).max())))


def test_no_batch_norm_is_left() -> None:
    for name in ("resnet18", "mobilenet_v2", "unet"):
        calls = {c.callee for f in fused(name) for c in f.calls.values()}
        assert "batch_norm" not in calls and "mul" not in calls
        assert not any("running" in constant for constant in fused(name).constants)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "unet", "bert", "extension"])
def test_fused_programs_compile(name: str) -> None:
    """The default schedules of all fused programs compute what the interpreter does."""
    module, target = fuse_programs(fused(name)), detect()
    rng = np.random.default_rng(0)
    for called in {c.program for c in module["main"].calls.values() if isinstance(c, ProgramCall)}:
        program = module.program(called)
        sizes = {n: 2 + k for k, n in enumerate(program.sizes)}
        fixed = program.substitute(sizes)
        given = {}
        for n in program.inputs:
            shape = [int(e.value) for e in fixed.buffers[n].shape]
            given[n] = rng.uniform(-1, 1, shape).astype(fixed.buffers[n].dtype)
        wanted = interpret(program, given, sizes)
        run, found = compile(default_schedule(program, target).substitute(sizes), target).prepare(*given.values())
        run()
        for got, want in zip(found, wanted.values(), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
