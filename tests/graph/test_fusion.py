"""Groups of operators and the programs that they become; fusion after scheduling gives the same results."""

from collections.abc import Callable

import numpy as np
import pytest

from searchlab.backend import compile
from searchlab.defaults import default_schedule
from searchlab.errors import GraphError
from searchlab.graph import GraphBuilder, GraphModule, GraphValue, ProgramCall, evaluate_graph, legalise, verify_graph
from searchlab.graph.legalising import everything
from searchlab.graph.passes import (
    apply_passes,
    forward_items,
    fuse_after,
    fuse_operators,
    fuse_programs,
    fused_program,
    module_changes,
    remove_dead,
    schedule_then_fuse,
)
from searchlab.graph.passes.post_fusion import in_one_stage, stored_by_a_stage
from searchlab.ir import Program, interpret, size
from searchlab.ir.alpha import same_up_to_names
from searchlab.ir.compose import compose
from searchlab.ir.evaluate import evaluate
from searchlab.ir.rename import Renaming, rename
from searchlab.targets import detect
from searchlab.workloads import workload

n, m = size("n"), size("m")
Made = Callable[[GraphBuilder], GraphValue]


def built(make: Made, **ranges: tuple[int, int]) -> GraphModule:
    b = GraphBuilder(ranges={size(name): bounds for name, bounds in ranges.items()})
    return b.build(make(b))


def groups(module: GraphModule) -> list[str]:
    """The functions that groups became, and the operators that are left alone."""
    return [call.callee for call in fuse_operators(module)["main"].calls.values()]


def only_program(module: GraphModule) -> Program:
    fused = legalise(fuse_programs(fuse_operators(module)))
    verify_graph(fused)
    (call,) = fused["main"].calls.values()
    assert isinstance(call, ProgramCall)
    return fused.program(call.program)


# --- programs are those of workloads ----------------------------------------------------------------------------------


def convolution(b: GraphBuilder, then: str, groups: int = 1) -> GraphValue:
    x, w = b.input("x", (2, 8, 9, 9)), b.input("w", (8, 8 // groups, 3, 3))
    y = b.conv2d(x, w, b.input("bias", (8,)), padding=1, groups=groups)
    for step in then.split(",")[1:]:
        y = b.add(y, b.input("r", y.shape)) if step == "add" else b.op(step, y)
    return y


@pytest.mark.parametrize("then", ["bias,relu", "bias,add,relu", "bias,add", "bias,sigmoid,add,tanh"])
@pytest.mark.parametrize("groups", [1, 8])
def test_convolutions_with_epilogues(then: str, groups: int) -> None:
    found = only_program(built(lambda b: convolution(b, then, groups)))
    wanted = workload("conv2d", n=2, ci=8, co=8, h=9, w=9, k=3, padding=1, groups=groups, then=then).program
    assert same_up_to_names(found, wanted)


@pytest.mark.parametrize("activation", ["relu", "gelu", "tanh"])
def test_layers_with_activations(activation: str) -> None:
    def layer(b: GraphBuilder) -> GraphValue:
        return b.op(activation, b.dense(b.input("x", (5, 7)), b.input("w", (7, 3)), b.input("bias", (3,))))

    wanted = workload("dense", m=5, n=3, k=7, activation=activation).program
    assert same_up_to_names(only_program(built(layer)), wanted)


# --- groups -----------------------------------------------------------------------------------------------------------


def test_a_residual_joins_one_of_two_products() -> None:
    def block(b: GraphBuilder) -> GraphValue:
        x, w = b.input("x", (n, 4)), b.input("w", (4, 4))
        return b.relu(b.linear(x, w) + b.linear(b.exp(x), w))

    assert groups(built(block)) == ["exp", "linear", "fused_linear_add_relu"]


def test_what_is_used_twice_stays_outside() -> None:
    def block(b: GraphBuilder) -> GraphValue:
        y = b.linear(b.input("x", (n, 4)), b.input("w", (4, 4)))
        return b.softmax(y) @ b.permute(b.relu(y), axes=(1, 0))

    assert groups(built(block)) == ["linear", "softmax", "fused_relu_permute", "matmul"]


def test_costly_values_are_not_repeated() -> None:
    """exp would be computed for every column if it were put into the sum; a product is cheap enough."""

    def outer(b: GraphBuilder, op: str) -> GraphValue:
        return b.op(op, b.input("x", (n, 1))) + b.input("y", (n, m))

    assert groups(built(lambda b: outer(b, "exp"))) == ["exp", "add"]
    assert groups(built(lambda b: outer(b, "square"))) == ["fused_square_add"]
    assert groups(built(lambda b: b.relu(b.exp(b.input("x", (n, m)))))) == ["fused_exp_relu"]


def test_rows_take_what_is_before_and_after_them() -> None:
    def rows(b: GraphBuilder) -> GraphValue:
        x = b.input("x", (n, m))
        return b.relu(b.softmax(x * 0.5 + b.input("mask", (m,))))

    program = only_program(built(rows))
    assert program.name == "fused_mul_add_softmax_relu"
    scaled, largest, powers, total, result = program.blocks.values()
    assert [b.reduces for b in (scaled, largest, powers, total, result)] == [False, True, False, True, False]
    assert str(scaled.store.value) == "X[vi, vj] * 0.5 + B[vj]" and str(result.store.value).startswith("max(E[vi, vj]")


def test_windows_do_not_compute_anything_twice() -> None:
    def pooled(b: GraphBuilder) -> GraphValue:
        return b.max_pool2d(b.relu(b.input("x", (1, 2, 8, 8))), kernel=(3, 3), stride=(1, 1))

    assert groups(built(pooled)) == ["relu", "max_pool2d"]


def test_views_stay_at_the_edges() -> None:
    def views(b: GraphBuilder) -> GraphValue:
        x = b.unsqueeze(b.input("x", (n, 6)), axes=(0,))
        y = b.relu(b.unsqueeze(b.tanh(x), axes=(1,)) * 2.0)
        return b.reshape(y, shape=(n, 2, 3))

    assert groups(built(views)) == ["unsqueeze", "fused_tanh_mul_relu", "reshape"]


def test_views_that_take_indices_apart_end_a_group() -> None:
    def merged(b: GraphBuilder) -> GraphValue:
        return b.relu(b.reshape(b.tanh(b.input("x", (n, 6))), shape=(n * 3, 2)))

    assert groups(built(merged)) == ["tanh", "reshape", "relu"]


def test_sizes_that_operands_do_not_determine_are_passed(golden: Callable[[str, str], None]) -> None:
    def mask(b: GraphBuilder) -> GraphValue:
        b.input("n", (n,)), b.input("m", (m,))
        seen = b.unsqueeze(b.arange(stop=n * m), axes=(0,))
        return b.where(b.le(seen, b.input("x", (n * m, 1), "int64")), 0.0, b.full(shape=(n * m, n * m), value=-1.0))

    module = built(mask, n=(1, 16), m=(2, 8))
    fused = fuse_programs(fuse_operators(module))
    verify_graph(fused)
    golden("graph/fused_sizes.txt", str(fuse_operators(module)) + "\n" + str(fused))
    given = np.zeros(2, "float32"), np.zeros(3, "float32"), np.arange(6)[::-1].reshape(6, 1).copy()
    np.testing.assert_array_equal(evaluate_graph(fused, *given), evaluate_graph(module, *given))


def test_several_outputs() -> None:
    def parts(b: GraphBuilder) -> GraphValue:
        both = b.split(b.relu(b.input("x", (n, 6)) * 2.0), axis=1, lengths=(2, 4))
        return b.matmul(b.permute(both[0], axes=(1, 0)), both[1])

    module = built(parts)
    assert groups(module)[0] == "fused_mul_relu_split"
    fused = legalise(fuse_programs(fuse_operators(module)))
    verify_graph(fused)
    x = np.random.default_rng(0).standard_normal((5, 6)).astype("float32")
    np.testing.assert_allclose(evaluate_graph(fused, x), evaluate_graph(module, x), rtol=1e-5)


def test_parts_of_a_tensor() -> None:
    """One part goes on in a group that does not have the whole, another is all that is taken."""

    def parts(b: GraphBuilder) -> GraphValue:
        both = b.split(b.input("x", (n, 6)) * 2.0, axis=1, lengths=(2, 4))
        left = b.split(b.softmax(both[1]) + 1.0, axis=1, lengths=(3, 1))[0]
        return b.matmul(b.permute(b.relu(b.tanh(both[0])), axes=(1, 0)), b.exp(left))

    module = built(parts)
    fused_ones = ["fused_mul_split", "fused_softmax_add", "fused_split_exp", "fused_tanh_relu_permute"]
    assert sorted(groups(module)) == [*fused_ones, "getitem", "getitem", "matmul"]
    fused = legalise(fuse_programs(fuse_operators(module)))
    verify_graph(fused)
    assert len(fused.program("fused_split_exp").blocks) == 1  # the other part is not made
    x = np.random.default_rng(0).standard_normal((5, 6)).astype("float32")
    np.testing.assert_allclose(evaluate_graph(fused, x), evaluate_graph(module, x), rtol=1e-5)


def halves_swapped(b: GraphBuilder) -> GraphValue:
    """What rotary embeddings do: halves change places, one of them negated, and both are scaled."""
    x, cos, sin = b.input("x", (n, 8)), b.input("cos", (n, 8)), b.input("sin", (n, 8))
    half = b.split(x, axis=1, lengths=(4, 4))
    return x * cos + b.concat(-half[1], half[0], axis=1) * sin


def joined_gates(b: GraphBuilder) -> GraphValue:
    """Costly members of a concatenation, of which every element is still computed once."""
    x, y = b.input("x", (n, 3)), b.input("y", (m, 3))
    return b.relu(b.concat(b.silu(x), b.tanh(y), b.exp(x * 0.5), axis=0))


def tuple_between(b: GraphBuilder) -> GraphValue:
    """A tuple stands between what makes its members and what takes them."""
    x = b.input("x", (n, 6))
    both = b.tuple(b.relu(x), b.tuple(b.tanh(x), x))
    return both[0] * both[1][0] + b.softmax(both[1][1])


@pytest.mark.parametrize("make", [halves_swapped, joined_gates, tuple_between])
def test_members_of_tuples_and_concatenations(make: Made, golden: Callable[[str, str], None]) -> None:
    """The second phase of fusion: what makes members joins what takes them."""
    module = built(make, n=(1, 64), m=(1, 64))
    text = [f"{module}\n"]
    fused = apply_passes(
        module,
        (forward_items, remove_dead, fuse_operators, fuse_programs),
        lambda name, before, after: text.append(f"--- {name}\n{module_changes(before, after)}"),
    )
    golden(f"graph/tuples_{make.__name__}.txt", "".join(text))
    lowered = legalise(fused)
    verify_graph(lowered)
    sizes = {"n": 5, "m": 7}
    rng = np.random.default_rng(0)
    arrays = [
        rng.standard_normal([int(evaluate(e, sizes)) for e in p.annotation.dims()]).astype("float32")
        for p in module["main"].parameters
    ]
    np.testing.assert_allclose(evaluate_graph(lowered, *arrays), evaluate_graph(module, *arrays), rtol=1e-5)


def test_groups_of_members() -> None:
    assert groups(built(halves_swapped)) == ["fused_split_mul_neg_concat_mul_add"]
    assert groups(built(joined_gates)) == ["fused_silu_tanh_mul_exp_concat_relu"]
    between = built(tuple_between)
    assert len(groups(between)) > len(groups(forward_items(between)))
    assert "getitem" not in groups(remove_dead(forward_items(between)))
    # a tuple that is needed as a whole stays, and its members are results like others
    b = GraphBuilder()
    x = b.input("x", (n, 6))
    both = b.tuple(b.relu(x), b.tanh(x))
    whole = remove_dead(forward_items(b.build(both, both[0] + 1.0)))
    assert [c.callee for c in whole["main"].calls.values()] == ["relu", "tanh", "tuple", "add", "tuple"]
    array = np.ones((2, 6), "float32")
    (first, second), third = evaluate_graph(whole, array)
    assert np.array_equal(first, array) and np.allclose(second, np.tanh(1)) and np.array_equal(third, array + 1)


def test_a_member_that_is_taken_twice_is_computed_once() -> None:
    def twice(b: GraphBuilder) -> GraphValue:
        y = b.exp(b.input("x", (n, 3)))
        return b.concat(y, y, axis=0)

    assert groups(built(twice)) == ["exp", "concat"]


def test_groups_have_a_largest_size() -> None:
    def chain(b: GraphBuilder) -> GraphValue:
        x = b.input("x", (n,))
        for _ in range(300):
            x = b.relu(x)
        return x

    found = fuse_operators(built(chain))
    assert sorted(len(f.bindings) for f in found if f.name != "main") == [44, 256]
    assert [len(f.bindings) for f in fuse_operators(built(chain), most=10) if f.name != "main"] == [10]  # equal ones


def test_equal_groups_share_a_program() -> None:
    def twice(b: GraphBuilder) -> GraphValue:
        y = b.input("x", (n, 4))
        for number in range(3):
            y = b.relu(b.linear(y, b.input(f"w{number}", (4, 4))))
        return y

    fused = fuse_programs(fuse_operators(built(twice)))
    assert set(fused.programs) == {"fused_linear_relu"} and set(fused.functions) == {"main", "fused_linear_relu"}
    again = fuse_programs(fuse_operators(fused))
    assert again == fused


def test_a_function_that_cannot_be_one_program_is_refused() -> None:
    b = GraphBuilder("fused_by_hand")
    x = b.input("x", (5, 3))
    inner = b.build(b.relu(b.take(x, b.input("at", (n,), "int64"))))
    with pytest.raises(GraphError, match="fused_by_hand: take: there is no program for take, so it cannot be fused"):
        fuse_programs(inner)


def test_names_of_constants_are_avoided() -> None:
    b = GraphBuilder()
    x = b.input("x", (n, 4)) + b.constant("p", np.ones(4, "float32"))
    module = b.build(b.relu(x * b.constant("relu_1", np.ones(4, "float32")) * b.constant("p_1", np.ones(4, "float32"))))
    fused = fuse_programs(fuse_operators(module))
    verify_graph(fused)
    given = np.random.default_rng(0).standard_normal((2, 4)).astype("float32")
    np.testing.assert_allclose(evaluate_graph(fused, given), evaluate_graph(module, given), rtol=1e-6)


def test_long_graphs() -> None:
    """Blocks with residuals, one after the other: two kernels each, of two programs in all."""
    b = GraphBuilder()
    x, w = b.input("x", (n, 4)), b.constant("w", np.ones((4, 4), "float32"))
    for _ in range(300):
        x = x + b.linear(b.gelu(b.linear(x, w)), w)
    fused = fuse_programs(fuse_operators(b.build(x)))
    assert len(fused["main"].bindings) == 600 and set(fused.programs) == {"fused_linear_gelu", "fused_linear_add"}


# --- after scheduling -------------------------------------------------------------------------------------------------


def arrays(program: Program, **sizes: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    fixed = program.substitute(sizes) if sizes else program
    shapes = {name: [int(e.value) for e in fixed.buffers[name].shape] for name in program.inputs}
    return {name: rng.uniform(-1, 1, shape).astype("float32") for name, shape in shapes.items()}


def normalised(b: GraphBuilder) -> GraphValue:
    return b.relu(b.layer_norm(b.input("x", (6, 40)) * 2.0, b.input("g", (40,)), b.input("h", (40,))))


def attended(b: GraphBuilder) -> GraphValue:
    return b.tanh(b.attention(*(b.input(name, (2, 5, 8)) for name in "qkv")))


def added(b: GraphBuilder) -> GraphValue:
    x = b.input("x", (7, 20))
    return b.exp(b.sum(x * x, axes=(1,))) + 1.0


def gated(b: GraphBuilder) -> GraphValue:
    y = b.linear(b.input("x", (6, 20)), b.input("w", (33, 20)))
    return y * b.sigmoid(y) + b.exp(b.input("r", (6, 33)))


@pytest.mark.parametrize(
    "make", [lambda b: convolution(b, "bias,add,relu"), lambda b: convolution(b, "bias,gelu", 8), normalised, attended,
             added, gated],
)  # fmt: skip
def test_fusion_before_and_after_scheduling(make: Made) -> None:
    module = fuse_operators(built(make))
    (function,) = [f for f in module if f.name != "main"]
    program, target = fused_program(module, function), detect()
    given = list(arrays(program).values())
    (wanted,) = interpret(program, dict(zip(program.inputs, given, strict=True))).values()
    seen: list[Program] = []

    def scheduled(product: Program) -> Program:
        seen.append(product)
        return default_schedule(product, target)

    after = schedule_then_fuse(module, function, scheduled)
    assert len(seen) == 1 and after.inputs == tuple(p.name for p in function.parameters)
    for each in (default_schedule(program, target), after):
        np.testing.assert_allclose(compile(each, target)(*given), wanted, rtol=1e-4, atol=1e-5)


def test_a_permutation_is_an_epilogue_too() -> None:
    """The scheduled product stores every element where the permuted result has it."""
    b = GraphBuilder()
    x = b.input("p", (6, 8))
    module = legalise(b.build(b.permute(b.reshape(x, shape=(6, 2, 4)), axes=(1, 0, 2))), everything)
    reshape, permute = module.programs.values()
    epilogue = in_one_stage(compose("moved", [reshape, permute], {(1, "X"): (0, "Y")}))
    epilogue = rename(epilogue, Renaming({"X": "C"}))
    product = stored_by_a_stage(workload("matmul", m=6, n=8, k=5).program)
    target = detect()
    fused = fuse_after(default_schedule(product, target), [], [epilogue])
    a, c = (np.random.default_rng(0).uniform(-1, 1, s).astype("float32") for s in ((6, 5), (5, 8)))
    wanted = (a @ c).reshape(6, 2, 4).transpose(1, 0, 2)
    np.testing.assert_allclose(compile(fused, target)(a, c), wanted, rtol=1e-5, atol=1e-6)


def stage(make: Made) -> Program:
    return only_program(built(make))


@pytest.mark.parametrize(
    ("epilogue", "words"),
    [
        (lambda b: b.expand(b.input("x", (4, 4)), shape=(2, 4, 4)), "does not read 'C' once for each result"),
        (lambda b: b.pad(b.input("x", (4, 4)), before=(0, 1), after=(0, 0)), "does not read 'C' once"),
        (lambda b: b.slice(b.input("x", (4, 4)), axis=0, stop=2), "does not read 'C' once"),
        (lambda b: b.sum(b.input("x", (4, 4))), "has 1 stages; one without a reduction is accepted"),
    ],
)
def test_epilogues_that_are_not_invertible_are_refused(epilogue: Made, words: str) -> None:
    after = rename(stage(epilogue), Renaming({"X": "C"}))
    product = workload("matmul", m=4, n=4, k=4).program
    with pytest.raises(GraphError, match=words):
        fuse_after(stored_by_a_stage(product), [], [after])


def test_a_sum_in_place_has_no_epilogue() -> None:
    after = rename(stage(lambda b: b.relu(b.input("x", (4, 4)))), Renaming({"X": "C"}))
    with pytest.raises(GraphError, match="'C' is added up in place by matmul"):
        fuse_after(workload("matmul", m=4, n=4, k=4).program, [], [after])
