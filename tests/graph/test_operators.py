"""Every operator: its reference against torch, its program against its reference, its deduction against both."""

import re
from dataclasses import dataclass, make_dataclass
from pathlib import Path

import numpy as np
import pytest
from graph_examples import Example, examples, n

from searchlab.errors import GraphError
from searchlab.graph import (
    GraphBuilder,
    LibraryCall,
    evaluate_graph,
    graph_operators,
    legalise,
    operator,
    operator_named,
    tensor,
    verify_graph,
)
from searchlab.graph.deduction import operator_annotation
from searchlab.graph.legalising import everything
from searchlab.graph.operator import Dims, Ints, graph_operator
from searchlab.graph.ops.norm_ops import SoftmaxOp
from searchlab.graph.symbols import SizeFacts
from searchlab.ir.expr import Const

torch = pytest.importorskip("torch")
EXAMPLES = examples(torch)
SIZES = {"n": 3, "m": 2}


def results(value) -> list[np.ndarray]:
    return list(value) if isinstance(value, tuple) else [value]


def test_every_operator_has_an_example() -> None:
    assert {e.name for e in EXAMPLES} == {name for name in graph_operators() if not name.startswith("test_")}


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_references_agree_with_torch(example: Example) -> None:
    module = example.module()
    verify_graph(module)
    inputs = example.inputs(SIZES)
    wanted = example.like(*(torch.from_numpy(x) for x in inputs[2:]))
    wanted = [t.numpy() for t in (wanted if isinstance(wanted, (tuple, list)) else [wanted])]
    for got, want in zip(results(evaluate_graph(module, *inputs)), wanted, strict=True):
        assert got.shape == want.shape and got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=example.tolerance, atol=example.tolerance)


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_programs_agree_with_references(example: Example) -> None:
    module = example.module()
    lowered = legalise(module, everything)
    verify_graph(lowered)
    for sizes in (SIZES, {"n": 1, "m": 4}):
        inputs = example.inputs(sizes, seed=1)
        wanted = results(evaluate_graph(module, *inputs))
        for got, want in zip(results(evaluate_graph(lowered, *inputs)), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=example.tolerance, atol=example.tolerance)


def test_only_what_depends_on_contents_is_left_to_libraries() -> None:
    left = set()
    for example in EXAMPLES:
        (binding,) = legalise(example.module(), everything)["main"].bindings
        left |= {example.name} if isinstance(binding.call, LibraryCall) else set()
    assert left == {"take", "index_put"}


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_what_is_unknown_stays_compatible(example: Example) -> None:
    """What is deduced of operands whose shapes are unknown says nothing that the whole operands contradict."""
    if not example.operands:
        return
    operator = operator_named(example.name, **example.attributes)
    whole = operator_annotation(operator, SizeFacts(), example.operands)
    rank_only = [tensor((1,) * (x.rank or 0), x.dtype or "").coarse(()) for x in example.operands]
    vague = [type(x)(dtype=x.dtype, rank=x.rank) for x in rank_only]
    found = operator_annotation(operator, SizeFacts(), vague)
    for got, want in zip(getattr(found, "parts", [found]), getattr(whole, "parts", [whole]), strict=True):
        assert got.dtype in (None, want.dtype) and got.rank in (None, want.rank), f"{got} for {want}"


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda b, x: b.conv2d(x, b.input("w", (4, 2, 3, 3))), "conv2d: the input channels of the weights"),
        (
            lambda b, x: b.conv2d(x, b.input("w", (4, 3, 9, 3))),
            "conv2d: the kernel spans 9 along h, the input .* only 8",
        ),
        (lambda b, x: b.max_pool2d(x, kernel=2, padding=2), "max_pool2d: padding = 2 is more than half"),
        (lambda b, x: b.max_pool2d(x, kernel=(2, 2, 2)), "max_pool2d: kernel = .2, 2, 2. has 3 numbers for 2 axes"),
        (lambda b, x: b.adaptive_avg_pool2d(x, size=3), "cannot be divided into .3, 3. windows"),
        (lambda b, x: b.upsample_nearest2d(x), "upsample_nearest2d: give either scale or size"),
        (lambda b, x: b.concat(x, b.input("y", (n, 3, 8, 7)), axis=0), "concat: operands differ along axis 3: 8 and 7"),
        (lambda b, x: b.split(x, axis=1, lengths=(1, 1)), "split: the lengths do not add up to axis 1: 2 and 3"),
        (lambda b, x: b.squeeze(x, axes=(1,)), "squeeze: axis 1 has the extent 3, not 1"),
        (lambda b, x: b.permute(x, axes=(0, 1, 2, 2)), "permute: axes .* is not a permutation of 4 axes"),
        (lambda b, x: b.take(x, x), "take: indices of float32; it takes int64 or int32"),
        (lambda b, x: b.logical_and(x, x), "logical_and: operands of float32; it takes bool"),
        (lambda b, x: b.where(x, x, x), "where: its condition is of float32, not bool"),
        (lambda b, x: b.mean(b.input("i", (n,), "int64")), "mean: an operand of int64; it takes float32, float64"),
        (lambda b, x: b.attention(x, x, b.input("v", (n, 3, 7, 8))), "attention: the numbers of keys and values"),
        (lambda b, x: b.attention(x, x, x, grouped=True, causal=3), "attention: causal = 3 is not True or False"),
        (
            lambda b, x: b.attention(x, *[b.input("k", (n, 2, 8, 8))] * 2, grouped=True),
            "attention: 3 heads of queries cannot be divided among 2 heads of keys",
        ),
        (lambda b, x: b.layer_norm(x, b.input("g", (7,))), "layer_norm: the last axes of the operand and the weights"),
        (
            lambda b, x: b.group_norm(x, *(b.input(g, (3,)) for g in "gb"), groups=2),
            "2 groups do not divide 3 channels",
        ),
        (
            lambda b, x: b.update_slice(x, x, axis=1, start=1),
            "update_slice: values from 1 to 4 of axis 1: that is outside the extent 3",
        ),
        (lambda b, x: b.select(x, axis=0, index=1), "index 1 of axis 0: that is not known to be inside the extent n"),
        (
            lambda b, x: b.slice(x, axis=1, stop=n),
            "elements 0 to n of axis 1: that is not known to be inside the extent 3",
        ),
        (lambda b, x: b.gelu(x, approximate="erf"), "gelu: approximate = 'erf' is neither none nor tanh"),
        (lambda b, x: b.pow(x), "pow: attribute 'exponent' must be given"),
    ],
)
def test_operands_that_do_not_fit_are_refused(write, message) -> None:
    b = GraphBuilder()
    x = b.input("x", (n, 3, 8, 8))
    with pytest.raises(GraphError, match=message):
        write(b, x)


def test_masks_of_truth_values_and_caches() -> None:
    """One step of a decoder: the cache takes a new entry, and the mask hides what is not filled yet."""
    b = GraphBuilder(ranges={n: (1, 8)})
    cache, new = b.input("cache", (1, 2, 8, 4)), b.input("new", (1, 2, 1, 4))
    b.input("length", (n,))
    keys = b.update_slice(cache, new, axis=2, start=n - 1)
    mask = b.lt(b.arange(stop=8), n)
    module = b.build(b.attention(new, keys, keys, mask))
    verify_graph(module)
    rng = np.random.default_rng(0)
    arrays = [
        rng.random((1, 2, 8, 4), dtype="float32"),
        rng.random((1, 2, 1, 4), dtype="float32"),
        np.zeros(5, "float32"),
    ]
    k = np.concatenate([arrays[0][:, :, :4], arrays[1]], axis=2)
    q, k = torch.from_numpy(arrays[1]), torch.from_numpy(k)
    wanted = torch.nn.functional.scaled_dot_product_attention(q, k, k).numpy()
    np.testing.assert_allclose(evaluate_graph(module, *arrays), wanted, rtol=1e-5)
    np.testing.assert_allclose(evaluate_graph(legalise(module), *arrays), wanted, rtol=1e-5)


def test_bfloat16_is_given_as_its_bits() -> None:
    b = GraphBuilder()
    x = b.input("x", (n, 4), "bfloat16")
    module = b.build(b.cast(b.softmax(b.mul(x, 2.0)), dtype="float32"))
    given = torch.arange(12.0).reshape(3, 4).div(7).to(torch.bfloat16)
    wanted = torch.softmax(given * 2.0, -1).float().numpy()
    for lowered in (module, legalise(module)):
        found = evaluate_graph(lowered, given.view(torch.int16).numpy().view("uint16"))
        np.testing.assert_allclose(found, wanted, rtol=2**-7)


def test_the_documentation_lists_every_operator() -> None:
    page = (Path(__file__).parents[2] / "docs" / "graphs.md").read_text()
    table = page.partition("## Operators")[2].partition("## Adding an operator")[0]
    listed = {name for name in re.findall(r"`(\w+)`", table) if not name.startswith(("operator_", "graph_"))}
    assert listed == {e.name for e in EXAMPLES}


def test_attributes_need_not_be_postponed() -> None:
    """Classes are accepted from modules with and without `from __future__ import annotations`, which this one lacks."""

    @dataclass(frozen=True)
    class TestedOp(SoftmaxOp):
        lengths: Dims = ()
        places: Ints | None = None
        part: "float | None" = None

    try:
        graph_operator("test_tested")(TestedOp)
        made = operator_named("test_tested", lengths=[n, 2], places=3, part=1)
        assert made.attributes() == (("axis", -1), ("lengths", (n, Const(2))), ("places", (3,)), ("part", 1.0))
        assert made == operator_named("test_tested", lengths=(n, 2), places=(3,), part=1.0) and hash(made)
        with pytest.raises(GraphError, match="test_tested: part = 'x' is not a number"):
            operator_named("test_tested", part="x")
        with pytest.raises(GraphError, match="attribute 'odd' needs one of the types int, float"):
            graph_operator("test_odd")(make_dataclass("OddOp", [("odd", bytes, b"")], bases=(SoftmaxOp,), frozen=True))
        with pytest.raises(GraphError, match="operator 'softmax' of .* is already defined by searchlab.graph.ops"):
            graph_operator("softmax")(TestedOp)
    finally:
        operator._table.pop("test_tested", None)
