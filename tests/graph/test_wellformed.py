"""The verifier names the call that is wrong; deduction is linear, and agrees with what was written."""

import cProfile
from dataclasses import replace

import numpy as np
import pytest

from searchlab.errors import GraphError
from searchlab.graph import (
    Binding,
    FunctionCall,
    GraphBuilder,
    GraphModule,
    GraphParameter,
    ShapeType,
    SizeFacts,
    SizeRange,
    TensorType,
    deduced,
    evaluate_graph,
    legalise,
    tensor,
    verify_graph,
)
from searchlab.ir import knob, size
from searchlab.ir.walk import Substitution

n, m = size("n"), size("m")


def simple() -> GraphModule:
    b = GraphBuilder(ranges={n: (1, 16)})
    x = b.input("x", (n, 8))
    return b.build(b.softmax(b.relu(x)))


def changed(**changes) -> GraphModule:
    module = simple()
    return module.with_function(replace(module["main"], **changes))


def call(name: str):
    return simple()["main"].calls[name]


BINDINGS = simple()["main"].bindings


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (changed(result="y"), "main: return y: 'y' is not defined"),
        (changed(bindings=BINDINGS[::-1]), r"main: softmax = softmax\(relu\): softmax: 'relu' is not defined before"),
        (changed(bindings=(*BINDINGS, BINDINGS[0])), r"main: relu = relu\(x\): two values are called 'relu'"),
        (
            changed(bindings=(Binding("relu", call("relu"), tensor((n, 9))), BINDINGS[1])),
            r"main: relu = relu\(x\): its annotation is float32\[n, 9\], but float32\[n, 8\] is deduced",
        ),
        (
            changed(parameters=(GraphParameter("x", tensor((n // 2, 8))),)),
            "main: no extent of a parameter determines the symbol n of 'x: .*'; add a shape parameter that carries it",
        ),
        (
            changed(bindings=(*BINDINGS, Binding("again", FunctionCall(("x",), "main"), tensor((n, 8))))),
            "functions call themselves: main -> main",
        ),
        (changed(ranges={knob("t"): SizeRange(1, 2)}), "main: t has a range, but it is no run-time size"),
        (GraphModule({"other": simple()["main"]}), "the function 'main' is held under the name 'other'"),
        (
            replace(legalise(simple()), programs={}),
            r"main: relu = program relu\(x\): relu: the module has no program 'relu'; its programs: none",
        ),
    ],
)
def test_the_verifier_names_what_is_wrong(module, message) -> None:
    with pytest.raises(GraphError, match=f"^{message}"):
        verify_graph(module)


def test_deduction_follows_changed_parameters() -> None:
    module = simple()
    wider = replace(module["main"], parameters=(GraphParameter("x", tensor((n, m, 8))),))
    again = deduced(module, wider)
    assert str(again.annotations["softmax"]) == "float32[n, m, 8]"
    verify_graph(module.with_function(again))


def test_calls_are_rewritten_by_renaming_and_substitution() -> None:
    """A function put in place of a call of it: operands renamed, symbols replaced by what the caller passes."""
    inner = GraphBuilder("inner")
    x = inner.input("x", (n, 2))
    inner.input("count", ShapeType((m,)))
    y = inner.call_library("take", x, inner.arange(stop=m), out=tensor((m, 2)), axis=0)
    module = inner.build(y + inner.full(shape=(m, 2), value=n))
    b = GraphBuilder("main", module)
    a, rest = b.input("a", (n * 3, 2)), b.input("rest", (n,))
    module = b.build(b.call("inner", a, b.shape(n)), rest)
    put = Substitution({n: n * 3, m: n})
    names = {"x": "a", **{binding.name: f"inner_{binding.name}" for binding in module["inner"].bindings}}
    main = module["main"]
    inlined = []
    for binding in module["inner"].bindings:
        call = binding.call.map_dims(put).renamed(names)
        inlined.append(Binding(names[binding.name], call, binding.annotation.map_dims(put)))
    pair = main.bindings[1].call.renamed({"inner": inlined[-1].name})
    whole = replace(main, bindings=(*inlined, replace(main.bindings[1], call=pair)))
    module = module.with_function(whole)
    verify_graph(module)
    assert deduced(module, whole) == whole and "full(shape=(n, 2), value=n*3)" in str(whole)
    arrays = [np.arange(12, dtype="float32").reshape(6, 2), np.zeros(2, "float32")]
    np.testing.assert_array_equal(evaluate_graph(module, *arrays)[0], [[6, 7], [8, 9]])


def test_deduction_is_linear() -> None:
    """Ten times the calls of a graph take ten times the calls of Python; a square would take a hundred times."""

    def chain(calls: int) -> GraphModule:
        b = GraphBuilder()
        x = b.input("x", (n, 8))
        for _ in range(calls):
            x = x + 1.0
        return b.build(x)

    def work(module: GraphModule) -> int:
        profile = cProfile.Profile()
        profile.runcall(deduced, module, module["main"])
        return sum(entry.callcount for entry in profile.getstats())

    deduced(chain(1), chain(1)["main"])  # fills caches
    assert work(chain(1000)) < 12 * work(chain(100))


def test_ranges_prove_what_symbols_alone_do_not() -> None:
    free, bounded = SizeFacts(), SizeFacts({n: SizeRange(2, 8), m: SizeRange(4)})
    assert not free.proves(n <= 8) and bounded.proves(n <= 8)
    assert not free.proves(n > 1) and bounded.proves(n > 1) and bounded.proves(m >= 4)
    assert bounded.proves(n * m >= 8) and not bounded.proves(n * m >= 9)
    assert bounded.upper(n * 3 + 1) == 25 and bounded.upper(n + m) is None
    assert bounded.differ(n, 9) and not bounded.differ(n, 8) and not free.differ(n, 9)
    assert SizeFacts({n: SizeRange(4, 4)}).equal(n, 4)
    assert str(bounded.simplify((n - 1) // 8 + m)) == "m"
    assert free.equal(n * 4 + n, n * 5) and not free.equal(n // 2 * 2, n)


@pytest.mark.parametrize(("bounds", "message"), [((0, 4), "at least 1"), ((5, 4), "at least 5 and at most 4")])
def test_impossible_ranges(bounds, message) -> None:
    with pytest.raises(GraphError, match=message):
        GraphBuilder(ranges={n: bounds})


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ([np.zeros((3, 7), "float32")], r"main: x: the value is float32\[3, 7\], expected float32\[n, 8\] with n = 3"),
        ([np.zeros((17, 8), "float32")], "main: n = 17 is out of its range, 1 <= n <= 16"),
        ([np.zeros((3, 8))], "main: x: an array of float64, expected float32"),
        ([np.zeros(8, "float32")], r"main: x: the value is float32\[8\], expected float32\[n, 8\]"),
        ([], r"main takes \(x\), got 0 values"),
    ],
)
def test_values_that_do_not_fit_are_refused(arrays, message) -> None:
    with pytest.raises(GraphError, match=message):
        evaluate_graph(simple(), *arrays)


def test_errors_at_run_time_name_the_call() -> None:
    b = GraphBuilder()
    x, i = b.input("x", TensorType(dtype="float32")), b.input("i", (m,), "int64")
    module = b.build(b.take(b.add(x, x), i))
    with pytest.raises(GraphError, match=r"main: take = take\(add, i\): .*index 5 is out of bounds"):
        evaluate_graph(module, np.zeros(3, "float32"), np.array([5]))
    with pytest.raises(GraphError, match=r"main: take = library take.*index 5 is out of bounds"):
        c = GraphBuilder()
        table, i = c.input("x", (n,)), c.input("i", (m,), "int64")
        evaluate_graph(legalise(c.build(c.take(table, i))), np.zeros(3, "float32"), np.array([5]))
