"""Channels in blocks: every operator of a chain, random chains and whole networks, packed and plain."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab.defaults import default_schedule
from searchlab.graph import GraphBuilder, GraphModule, compile, evaluate_graph, operator_named, tensor, verify_graph
from searchlab.graph.model.options import CompileOptions
from searchlab.graph.model.pipeline import lowered
from searchlab.graph.passes import left_plain, propagate_layouts
from searchlab.graph.symbols import SizeFacts
from searchlab.ir import Program, interpret, size
from searchlab.targets import detect, parse

n = size("n")
LANES = 4
TARGET = "x86-64-v3:threads=2"  # vectors of 8 floats
RNG = np.random.default_rng(0)


def weight(b: GraphBuilder, name: str, *shape: int):
    return b.constant(name, RNG.uniform(-1, 1, shape).astype("float32"))


def chain(write: Callable[[GraphBuilder, Any], Any], channels: int = 8) -> GraphModule:
    """What `write` makes of the result of a convolution, which begins a chain."""
    b = GraphBuilder(ranges={n: (1, 4)})
    x = b.input("x", (n, 3, 8, 6))
    return b.build(write(b, b.conv2d(x, weight(b, "w", channels, 3, 3, 3), weight(b, "bias", channels), padding=1)))


def agree(module: GraphModule, lanes: int = LANES) -> GraphModule:
    """The module with blocks of channels, which computes the same."""
    changed = propagate_layouts(module, lanes)
    verify_graph(changed)
    assert changed["main"].returns == module["main"].returns
    x = np.random.default_rng(1).uniform(-1, 1, (3, 3, 8, 6)).astype("float32")
    np.testing.assert_allclose(evaluate_graph(changed, x), evaluate_graph(module, x), rtol=1e-4, atol=1e-5)
    return changed


def callees(module: GraphModule) -> list[str]:
    return [call.callee for call in module["main"].calls.values()]


STEPS: dict[str, tuple[Callable[[GraphBuilder, Any], Any], str]] = {
    "conv2d": (lambda b, y: b.conv2d(y, weight(b, "v", 4, 8, 2, 3), stride=(2, 1), dilation=2), "conv2d_packed"),
    "1x1": (lambda b, y: b.conv2d(y, weight(b, "v", 12, 8, 1, 1), weight(b, "c", 12)), "conv2d_packed"),
    "depthwise": (
        lambda b, y: b.conv2d(y, weight(b, "v", 8, 1, 3, 3), weight(b, "c", 8), groups=8, padding=1, stride=2),
        "depthwise_conv2d_packed",
    ),
    "max_pool2d": (lambda b, y: b.max_pool2d(y, kernel=3, stride=2, padding=1), "max_pool2d_packed"),
    "avg_pool2d": (lambda b, y: b.avg_pool2d(y, kernel=2), "avg_pool2d_packed"),
    "global mean": (lambda b, y: b.adaptive_avg_pool2d(y), "mean"),
    "adaptive": (lambda b, y: b.adaptive_avg_pool2d(y, size=(4, 3)), "avg_pool2d_packed"),
    "mean": (lambda b, y: b.mean(y, axes=(-2, -1)), "mean"),
    "largest": (lambda b, y: b.max(y, axes=(2, 3), keepdims=True), "max"),
    "number": (lambda b, y: b.clamp(y * 2.0, low=0, high=6), "clamp"),
    "residual": (lambda b, y: b.relu(y + b.tanh(y)), "tanh"),
    "per channel": (lambda b, y: y * weight(b, "scale", 1, 8, 1, 1) + weight(b, "shift", 8, 1, 1), "mul"),
    "per pixel": (lambda b, y: y + weight(b, "map", 8, 6), "add"),
    "gate": (lambda b, y: y * b.sigmoid(b.mean(y, axes=(2, 3), keepdims=True)), "sigmoid"),
    "concat": (lambda b, y: b.concat(y, b.relu(y), axis=1), "concat"),
}


@pytest.mark.parametrize("name", STEPS)
def test_every_operator_of_a_chain(name: str) -> None:
    write, callee = STEPS[name]
    module = chain(write)
    found = callees(agree(module))
    assert callee in found and found.count("permute") <= 2  # at the ends of the chain
    assert not {"conv2d", "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d"} & set(found)
    assert left_plain(module, "main", LANES) == {}


@settings(max_examples=15)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.data())
def test_random_chains(steps: list[int], data: st.DataObject) -> None:
    agree(random_chain(steps, lambda most: data.draw(st.integers(0, most))))


def random_chain(steps: list[int], draw: Callable[[int], int]) -> GraphModule:
    """Steps on any of the values so far, some of which do not fit blocks of channels."""
    b = GraphBuilder(ranges={n: (1, 4)})
    values = [(b.input("x", (n, 3, 8, 6)), 3)]
    for number, step in enumerate(steps):
        y, c = values[draw(len(values) - 1)]
        name = f"w{number}"
        match step:
            case 0 | 1 | 2:
                co = (8, 4, 6)[step]
                values.append((b.conv2d(y, weight(b, name, co, c, 3, 3), weight(b, f"b{number}", co), padding=1), co))
            case 3:
                values.append((b.conv2d(y, weight(b, name, c, 1, 3, 3), padding=1, groups=c), c))
            case 4:
                values.append((b.max_pool2d(y, kernel=3, stride=1, padding=1), c))
            case 5:
                values.append((b.avg_pool2d(y, kernel=3, stride=1, padding=1), c))
            case 6:
                values.append((b.tanh(y * weight(b, name, c, 1, 1)), c))
            case 7:
                other, d = values[draw(len(values) - 1)]
                values.append((b.concat(y, other, axis=1), c + d))
            case 8:
                values.append((y + b.mean(y, axes=(1,), keepdims=True), c))
            case _:
                values.append((b.permute(y, axes=(0, 1, 2, 3)) - b.mean(y, axes=(2, 3), keepdims=True), c))
    return b.build(values[-1][0])


def test_a_small_chain(golden: Callable[[str, str], None]) -> None:
    def write(b: GraphBuilder, y: Any) -> Any:
        z = b.max_pool2d(b.relu(y), kernel=2)
        z = b.relu(b.conv2d(z, weight(b, "v", 8, 8, 3, 3), padding=1) + z)
        return b.reshape(b.adaptive_avg_pool2d(z), shape=(n, 8))

    module = chain(write)
    golden("graph/layouts.txt", f"{module}\n--- blocks of 4\n{agree(module)}\n")


@pytest.mark.parametrize(
    ("write", "name", "why"),
    [
        (
            lambda b, y: b.conv2d(y, weight(b, "v", 6, 8, 1, 1)),
            "conv2d_1",
            "blocks of 4 do not divide 6 output channels",
        ),
        (lambda b, y: b.conv2d(y, weight(b, "v", 8, 4, 1, 1), groups=2), "conv2d_1", "2 groups of 4 channels"),
        (lambda b, y: b.conv2d(y, b.exp(b.input("v", (8, 8, 1, 1)))), "conv2d_1", "its weights are no constants"),
        (
            lambda b, y: b.concat(y, b.slice(y, axis=1, stop=2), axis=1),
            "concat",
            "do not divide the 2 channels of slice",
        ),
        (lambda b, y: b.sum(y, axes=(1,)), "sum", "reduces the axes (1,); accepted: rows and columns"),
        (lambda b, y: y * b.input("big", (2, 1, 1, 1, 1)), "mul", "its result has 5 axes"),
    ],
)
def test_what_is_left_alone_has_a_reason(write, name: str, why: str) -> None:
    module = chain(write)
    found = left_plain(module, "main", LANES)
    assert list(found) == [name] and why in found[name]
    changed = propagate_layouts(module, LANES)
    verify_graph(changed)
    assert changed["main"].calls[name].callee == module["main"].calls[name].callee


def test_graphs_without_a_chain_stay_as_they_are() -> None:
    module = chain(lambda b, y: b.relu(y), channels=6)
    assert propagate_layouts(module, LANES) is module
    b = GraphBuilder()
    double = b.build(b.conv2d(b.input("x", (1, 4, 4, 4), "float64"), b.constant("w", np.ones((4, 4, 1, 1)))))
    assert propagate_layouts(double, LANES) is double
    assert "float64" in left_plain(double, "main", LANES)["conv2d"]


@pytest.mark.parametrize(
    ("channels", "h", "w", "kernel", "steps", "suits"),
    [
        (64, 10, 10, 3, {"padding": 1}, True),
        (64, 9, 10, 3, {"padding": 1}, False),  # too few pixels
        (32, 28, 28, 3, {}, True),
        (32, 14, 14, 3, {"padding": 1}, False),  # too few pixels for so few channels
        (16, 56, 56, 3, {"padding": 1}, False),
        (64, 28, 28, 3, {"padding": 1, "stride": 2}, False),
        (64, 28, 28, 3, {"padding": 2, "dilation": 2}, False),
        (64, 28, 28, 1, {}, False),
    ],
)
def test_winograds_convolution_is_for_3x3_kernels_with_much_to_compute(
    channels: int, h: int, w: int, kernel: int, steps: dict[str, Any], suits: bool
) -> None:
    b = GraphBuilder()
    weights = b.constant("w", np.ones((channels, channels, kernel, kernel), "float32"))
    module = b.build(b.relu(b.conv2d(b.input("x", (1, channels, h, w)), weights, **steps)))
    assert ("winograd_conv2d_packed" in str(propagate_layouts(module, 8, winograd=True))) == suits
    assert "winograd" not in str(propagate_layouts(module, 8))


@pytest.mark.cpu
@pytest.mark.parametrize(("h", "w", "padding"), [(12, 10, 1), (11, 13, 1), (13, 12, 0), (10, 11, 2)])
def test_winograds_convolution_is_the_convolution(h: int, w: int, padding: int) -> None:
    """Tiles reach beyond the end of odd sizes; batches, biases and residuals are part of the kernels."""
    b = GraphBuilder(ranges={n: (1, 4)})
    x, v = b.input("x", (n, 3, h, w)), weight(b, "v", 64, 64, 3, 3)
    y = b.relu(b.conv2d(x, weight(b, "w", 64, 3, 1, 1)))
    z = b.relu(b.conv2d(y, v, weight(b, "bias", 64), padding=padding))
    module = b.build(b.conv2d(z, v, padding=1) + z)
    assert "winograd_conv2d_packed" in str(lowered(module, CompileOptions()))
    assert "winograd" not in str(lowered(module, CompileOptions(winograd=False)))
    model, plain = compile(module), compile(module, options={"winograd": False})
    image = RNG.uniform(-1, 1, (3, 3, h, w)).astype("float32")
    wanted = evaluate_graph(module, image)
    for found in (model["main"].observed(image, poison=True).result, plain(image)):
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=0, atol=2e-6 * np.abs(wanted).max())


def halves(b: GraphBuilder, y: Any) -> Any:
    """Channels that are whole blocks of 8 and not of 16, between others; their sums are of the same blocks."""
    z = b.relu(b.conv2d(y, weight(b, "v", 24, 16, 1, 1), weight(b, "c", 24)))
    z = b.conv2d(z, weight(b, "u", 24, 1, 3, 3), groups=24, padding=1) + z
    return b.conv2d(z, weight(b, "t", 32, 24, 3, 3))


def test_channels_in_halves_of_vectors() -> None:
    module = chain(halves, channels=16)
    changed = agree(module, lanes=16)
    assert callees(changed).count("permute") == 1 and left_plain(module, "main", 16) == {}  # at the end of the chain
    shapes = [str(b.annotation) for b in changed["main"].bindings if "packed" in b.call.callee]
    assert shapes == [f"float32[n, {c}, {hw}, {b}]" for c, hw, b in (
        (1, "8, 6", 16), (3, "8, 6", 8), (3, "8, 6", 8), (2, "6, 4", 16)
    )]  # fmt: skip


def test_parts_in_other_blocks_are_not_concatenated_packed() -> None:
    def write(b: GraphBuilder, y: Any) -> Any:
        return b.relu(b.concat(y, b.conv2d(y, weight(b, "v", 24, 24, 1, 1)), axis=1))

    module = chain(write, channels=24)
    assert "in other blocks" in left_plain(module, "main", 16)["concat"]
    agree(module, lanes=16)


def test_compiled_models_have_it_where_it_pays() -> None:
    """With more convolutions than conversions: that of the last result is one, however many convolutions there are."""
    target = parse(TARGET)
    alone = chain(lambda b, y: b.max_pool2d(b.relu(y), kernel=2))
    followed = chain(lambda b, y: b.conv2d(b.relu(y), weight(b, "v", 16, 8, 1, 1)), channels=8)
    assert "packed" in str(propagate_layouts(alone, 8))
    assert propagate_layouts(alone, 8, where_it_pays=True) is alone
    assert "packed" not in str(lowered(alone, CompileOptions(), target=target))
    assert "fused_conv2d_packed_add_relu" in str(lowered(followed, CompileOptions(), target=target))
    assert "packed" not in str(lowered(followed, CompileOptions(layouts=False), target=target))


def test_images_that_are_single_pixels_are_not_converted() -> None:
    """Means of whole images have the same elements in the same places in blocks, so ending in them costs nothing."""
    alone = chain(lambda b, y: b.relu(y), channels=8)
    pooled = chain(lambda b, y: b.mean(b.relu(y), axes=(2, 3)), channels=8)
    assert propagate_layouts(alone, 8, where_it_pays=True) is alone
    assert "conv2d_packed" in str(propagate_layouts(pooled, 8, where_it_pays=True))


# --- kernels ----------------------------------------------------------------------------------------------------------


def packed_program(name: str, *shapes: tuple[int, ...], **attributes: Any) -> Program:
    program = operator_named(name, **attributes).program(SizeFacts(), *map(tensor, shapes))
    assert program is not None
    return program


PROGRAMS = [
    packed_program("conv2d_packed", (1, 2, 9, 7, 8), (4, 2, 3, 3, 8, 8), padding=1),
    packed_program("conv2d_packed", (2, 1, 6, 15, 3), (3, 1, 2, 2, 3, 8), stride=2),
    packed_program("conv2d_packed", (1, 2, 5, 6, 8), (2, 2, 1, 1, 8, 8)),
    packed_program("conv2d_packed", (1, 3, 9, 9, 1), (2, 3, 3, 3, 1, 8), padding=1, stride=2),
    packed_program("conv2d_packed", (1, 2, 5, 6, 4), (3, 2, 1, 1, 4, 4)),
    packed_program("depthwise_conv2d_packed", (1, 2, 7, 9, 8), (2, 3, 3, 8), padding=1),
    packed_program("max_pool2d_packed", (1, 2, 9, 11, 8), kernel=3, stride=2, padding=1),
    packed_program("avg_pool2d_packed", (1, 2, 8, 8, 8), kernel=2),
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_default_schedules_tile_pixels_by_blocks(program: Program) -> None:
    made = default_schedule(program, parse(TARGET), ["W"] if "W" in program.inputs else [])
    kinds = {kind for loop in made.loops.values() for kind in loop.kinds}
    assert {"vectorized", "unrolled", "parallel"} <= kinds and not made.layouts
    rng = np.random.default_rng(2)
    inputs = {
        name: rng.uniform(-1, 1, [int(str(e)) for e in program.buffers[name].shape]).astype("float32")
        for name in program.inputs
    }
    wanted, found = interpret(program, inputs), interpret(made, inputs)
    np.testing.assert_allclose(found["Y"], wanted["Y"], rtol=1e-4, atol=1e-5)


def test_windows_read_images_as_they_lie() -> None:
    for program in PROGRAMS:
        if program.name in ("depthwise_conv2d_packed", "max_pool2d_packed"):
            assert set(program.blocks) == {"P", "Y"}
            assert set(default_schedule(program, parse(TARGET), ["W"]).blocks) == {"Y"}


@pytest.mark.parametrize(
    ("blocks", "rows", "band"),
    [
        (10, 7, 4),  # five tiles of blocks: two threads would wait for the fifth
        (32, 7, 7),
        (2, 28, 7),  # four bands of one tile
        (6, 14, 7),
        (2, 1, 1),
    ],
)
def test_bands_keep_threads_busy(blocks: int, rows: int, band: int) -> None:
    program = packed_program("conv2d_packed", (1, 2, rows, 7, 8), (blocks, 2, 1, 1, 8, 8))
    made = default_schedule(program, parse(TARGET), ["W"])
    assert int(str(made.loops["h_1"].extent)) == band


@pytest.mark.parametrize(
    ("rows", "alone"),
    [(28, True), (56, True), (14, False), (21, False)],  # four, eight, two and three bands for two threads
)
def test_threads_pad_what_they_read_where_bands_balance_them(rows: int, alone: bool) -> None:
    program = packed_program("conv2d_packed", (1, 2, rows, 7, 8), (16, 2, 3, 3, 8, 8), padding=1)
    made = default_schedule(program, parse(TARGET), ["W"])
    shared = [loop for loop in made.loops.values() if "parallel" in loop.kinds]
    assert len(shared) == (1 if alone else 2)  # else all threads pad first


@pytest.mark.parametrize("name", [pytest.param("resnet18", marks=pytest.mark.slow), "mobilenet_v2"])
def test_networks_against_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    from tiny_networks import TINY, tiny

    target = parse(TARGET)
    if detect().lanes("float32") < target.lanes("float32"):
        pytest.skip("this machine has no vectors of 8 floats")
    network, module = TINY[name], tiny(name)
    assert "conv2d(" not in str(propagate_layouts(module, 8)["main"])
    model, net = compile(module, target, options={"layouts": True}), network.make()
    for sizes in network.tried[:2]:
        inputs = network.inputs(*sizes)
        with torch.no_grad():
            wanted = net(*inputs).numpy()
        found = model["main"].observed(*inputs, poison=True).result
        scale = np.abs(wanted).max()
        np.testing.assert_allclose(np.asarray(found) / scale, wanted / scale, rtol=0, atol=2e-5)
