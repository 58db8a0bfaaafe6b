"""What each pass changes, as text, and where each leaves things alone."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from searchlab.graph import GraphBuilder, GraphModule, Scalar, evaluate_graph, legalise, verify_graph
from searchlab.graph.passes import (
    apply_passes,
    fold_batch_norms,
    fold_constants,
    fuse_operators,
    fuse_programs,
    module_changes,
    print_changes,
    remove_dead,
    share_equal_calls,
)
from searchlab.ir import size

n = size("n")
Check = Callable[[str, str], None]
RNG = np.random.default_rng(0)


def weight(b: GraphBuilder, name: str, *shape: int, dtype: str = "float32"):
    return b.constant(name, RNG.uniform(0.5, 1, shape).astype(dtype))


def statistics(b: GraphBuilder, x, name: str, channels: int, dtype: str = "float32"):
    return b.batch_norm(x, *(weight(b, f"{name}_{k}", channels, dtype=dtype) for k in ("gamma", "beta", "mean", "var")))


def network() -> GraphModule:
    """A little of everything that passes change."""
    b = GraphBuilder(ranges={n: (1, 8)})
    x = b.input("x", (n, 3, 6, 6))
    y = b.relu(statistics(b, b.conv2d(x, weight(b, "w1", 4, 3, 3, 3), padding=1), "bn1", 4))
    z = statistics(b, b.conv2d(y, weight(b, "w2", 4, 1, 3, 3), weight(b, "b2", 4), padding=1, groups=4), "bn2", 4)
    z = b.relu(statistics(b, b.max_pool2d(z + y, kernel=2), "bn3", 4))
    flat = b.reshape(z, shape=(n, 36))
    b.exp(flat)  # nothing uses it
    w = b.permute(weight(b, "w4", 36, 5), axes=(1, 0)) * 0.5
    left, right = b.tanh(b.linear(flat, w)), b.tanh(b.linear(flat, w))
    return b.build(left * right)


def values(module: GraphModule) -> np.ndarray:
    x = np.random.default_rng(1).standard_normal((3, 3, 6, 6)).astype("float32")
    return evaluate_graph(module, x)


def test_what_passes_change(golden: Check) -> None:
    passes = (fold_constants, fold_batch_norms, share_equal_calls, remove_dead, fuse_operators, fuse_programs, legalise)
    text = []
    before = network()
    after = apply_passes(before, passes, lambda name, a, b: text.append(f"--- {name}\n{module_changes(a, b)}"))
    golden("graph/passes.txt", f"{before}\n{''.join(text)}--- all\n{after}")
    np.testing.assert_allclose(values(after), values(before), rtol=1e-4, atol=1e-5)


def test_changes_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    apply_passes(network(), [remove_dead], print_changes)
    assert capsys.readouterr().out == "--- remove_dead\n-  exp: float32[n, 36] = exp(reshape)\n"


# --- constants --------------------------------------------------------------------------------------------------------


def test_results_that_blow_up_stay_calls() -> None:
    b = GraphBuilder()
    x, w = b.input("x", (64, 64)), weight(b, "w", 64, 1)
    module = b.build(x + b.expand(b.exp(w), shape=(64, 64)))
    assert [c.callee for c in fold_constants(module)["main"].calls.values()] == ["add"]
    small = fold_constants(module, limit=1000)
    assert [c.callee for c in small["main"].calls.values()] == ["expand", "add"] and "folded_exp" in small.constants


def test_what_is_made_of_nothing_is_folded_where_it_is_used_only() -> None:
    b = GraphBuilder()
    x = b.input("x", (4,))
    ones = b.full(shape=(4,), value=1.0)
    module = b.build(x * ones + b.cos(b.cast(b.arange(stop=4), dtype="float32")))
    folded = fold_constants(module)
    assert [c.callee for c in folded["main"].calls.values()] == ["full", "mul", "add"]
    np.testing.assert_array_equal(folded.constants["folded_cos"].array, np.cos(np.arange(4.0)).astype("float32"))


def test_parts_and_results_that_are_constants() -> None:
    b = GraphBuilder()
    b.input("x", (4,))
    module = b.build(b.split(weight(b, "w", 6), axis=0, lengths=(2, 4))[1] * 2.0)
    folded = fold_constants(module)
    verify_graph(folded)
    assert not folded["main"].bindings and folded["main"].result == "folded_mul"
    x = np.zeros(4, "float32")
    np.testing.assert_array_equal(evaluate_graph(folded, x), evaluate_graph(module, x))


def test_sizes_are_not_folded() -> None:
    b = GraphBuilder(ranges={n: (1, 8)})
    b.input("x", (n,))
    module = b.build(b.expand(weight(b, "w", 1), shape=(n,)) * Scalar(2.0, "float32"))
    assert fold_constants(module) == module


# --- batch norms ------------------------------------------------------------------------------------------------------


def test_layers_take_batch_norms() -> None:
    for kind, shape in (("linear", (5, 4)), ("dense", (4, 5))):
        b = GraphBuilder()
        x = b.input("x", (n, 4))
        module = b.build(statistics(b, b.op(kind, x, weight(b, "w", *shape), weight(b, "c", 5)), "bn", 5))
        folded = fold_batch_norms(module)
        assert [c.callee for c in folded["main"].calls.values()] == [kind]
        given = np.random.default_rng(0).standard_normal((3, 4)).astype("float32")
        np.testing.assert_allclose(evaluate_graph(folded, given), evaluate_graph(module, given), rtol=1e-5, atol=1e-6)


def test_transposed_convolutions_take_batch_norms() -> None:
    b = GraphBuilder()
    y = b.conv_transpose2d(b.input("x", (1, 3, 4, 4)), weight(b, "w", 3, 2, 2, 2), stride=2)
    module = b.build(statistics(b, y, "bn", 2))
    folded = fold_batch_norms(module)
    assert [c.callee for c in folded["main"].calls.values()] == ["conv_transpose2d"]
    given = np.random.default_rng(0).standard_normal((1, 3, 4, 4)).astype("float32")
    np.testing.assert_allclose(evaluate_graph(folded, given), evaluate_graph(module, given), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", ["used twice", "weights are not constant", "channels are not the last axis", "halves"])
def test_where_batch_norms_stay_apart(case: str) -> None:
    b = GraphBuilder()
    dtype = "float16" if case == "halves" else "float32"
    x = b.input("x", (2, 4, 4), dtype) if "channels" in case else b.input("x", (2, 4), dtype)
    w = b.input("w", (4, 4)) if "weights" in case else weight(b, "w", 4, 4, dtype=dtype)
    y = b.linear(x, w)
    z = statistics(b, y, "bn", 4, dtype)
    folded = fold_batch_norms(b.build(z + y if case == "used twice" else z))
    verify_graph(folded)
    calls = [c.callee for c in folded["main"].calls.values()]
    assert calls[:3] == (["linear", "batch_norm"] if case == "halves" else ["linear", "mul", "add"])


def test_statistics_that_are_no_constants_are_left_alone() -> None:
    b = GraphBuilder()
    x = b.input("x", (2, 4))
    module = b.build(b.batch_norm(x, *(b.input(k, (4,)) for k in ("gamma", "beta", "mean", "var"))))
    assert fold_batch_norms(module) == module


# --- cleaning ---------------------------------------------------------------------------------------------------------


def test_numbers_that_are_equal_but_not_the_same() -> None:
    b = GraphBuilder()
    x = b.input("x", (4,))
    module = b.build(b.div(x, x * 0.0), b.div(x, x * -0.0))
    assert share_equal_calls(module) == module


def test_a_check_is_not_dead() -> None:
    b = GraphBuilder()
    x = b.input("x", (size("k"), 3))
    b.match_cast(x, (4, 3))
    module = b.build(b.relu(x))
    assert remove_dead(module) == module


def test_what_nothing_refers_to_is_dropped() -> None:
    module = fuse_programs(fuse_operators(network()))
    kept = remove_dead(module)
    assert kept.functions.keys() == module.functions.keys() and kept.programs == module.programs
    main = module["main"]
    alone = remove_dead(module.with_function(replace(main, bindings=(), result=main.parameters[0].name)))
    assert alone.functions.keys() == {"main"} and not alone.programs and not alone.constants
