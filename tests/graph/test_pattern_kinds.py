"""How results depend on operands: a table of all operators, and the rules that it follows from."""

from collections.abc import Callable

import pytest
from graph_examples import examples

from searchlab.graph import graph_operators, legalise
from searchlab.graph.legalising import everything
from searchlab.graph.passes.pattern_kinds import PatternKind, adds_products, input_kind, pattern_kind
from searchlab.ir import Builder, Program, call, maximum, size, total
from searchlab.ir.compute import largest
from searchlab.workloads import workload

torch = pytest.importorskip("torch")
n = size("n")


def test_every_operator(golden: Callable[[str, str], None]) -> None:
    """A line for every example of an operator: the kind of its program, and how it depends on each operand."""
    lines, seen = {}, set()
    for example in examples(torch):
        seen.add(example.name)
        for program in legalise(example.module(), everything).programs.values():
            inputs = ", ".join(f"{name} {input_kind(program, name).word}" for name in program.inputs)
            attributes = ", ".join(f"{k}={v}" for k, v in example.attributes.items())
            lines[f"{example} {attributes}".strip()] = f"{pattern_kind(program).word} ({inputs})"
    assert seen == graph_operators().keys()
    golden("graph/patterns.txt", "".join(f"{name}: {kinds}\n" for name, kinds in sorted(lines.items())))


def made(body: Callable[..., object], *shape: object) -> Program:
    b = Builder("made")
    x, y = b.input("X", (n, 4)), b.input("Y", (4,))
    names = "ij"[: len(shape)]
    scope = {"f": lambda *at: body(x, y, *at)}
    return b.program(b.compute("Z", shape, eval(f"lambda {', '.join(names)}: f({', '.join(names)})", scope)))


@pytest.mark.parametrize(
    ("program", "kind"),
    [
        (made(lambda x, y, i, j: x[i, j] + 1.0, n, 4), PatternKind.ELEMENTWISE),
        (made(lambda x, y, i, j: x[i, j] + y[j], n, 4), PatternKind.ELEMENTWISE),  # the largest would be broadcast
        (made(lambda x, y, i, j: y[j] * 2.0, n, 4), PatternKind.BROADCAST),
        (made(lambda x, y, i, j: x[j, i], 4, n), PatternKind.INJECTIVE),
        (made(lambda x, y, i, j: x[i, j], n, 3), PatternKind.INJECTIVE),  # the same indices, but fewer of them
        (made(lambda x, y, i, j: x[i, j] + x[i, 3 - j], n, 4), PatternKind.INJECTIVE),  # the largest of two reads
        (made(lambda x, y, i: y[i] + y[0], 4), PatternKind.INJECTIVE),
        (workload("softmax", rows=4, cols=8).program, PatternKind.ANCHOR),  # a reduction, and a stage after it
        (workload("matmul", m=4, n=4, k=4).program, PatternKind.ANCHOR),
        (workload("conv2d", ci=4, co=4, h=8, w=8, padding=1).program, PatternKind.ANCHOR),
        (workload("max_pool2d", c=4, h=8, w=8).program, PatternKind.REDUCTION),
    ],
)
def test_kinds(program: Program, kind: PatternKind) -> None:
    assert pattern_kind(program) is kind


def test_a_sum_of_squares_is_no_product() -> None:
    b = Builder("squares")
    x, r = b.input("X", (n, 4)), b.axis("r", 4)
    squares = b.program(b.compute("Z", (n,), lambda i: total(x[i, r] * x[i, r], r)))
    assert pattern_kind(squares) is PatternKind.REDUCTION and not adds_products(squares.blocks["Z"])
    c = Builder("largest")
    x, r = c.input("X", (n, 4)), c.axis("r", 4)
    m = c.compute("M", (n,), lambda i: largest(x[i, r], r))
    assert pattern_kind(c.program(m)) is PatternKind.REDUCTION
    rows = c.program(c.compute("Y", (n, 4), lambda i, j: call("exp", maximum(x[i, j] - m[i], -9.0))))
    assert pattern_kind(rows) is PatternKind.ANCHOR


def test_what_an_input_becomes_on_its_way_counts() -> None:
    program = workload("conv2d", ci=4, co=4, h=8, w=8, padding=1, then="bias,add,relu").program
    kinds = {name: input_kind(program, name) for name in program.inputs}
    assert kinds == {
        "X": PatternKind.ANCHOR,
        "W": PatternKind.ANCHOR,
        "bias": PatternKind.BROADCAST,
        "R": PatternKind.ELEMENTWISE,
    }
