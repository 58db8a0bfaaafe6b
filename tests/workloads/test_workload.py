"""Workloads as values: labels, keys, inputs, checks, run-time sizes, errors, operators of others."""

import pickle
import subprocess
import sys

import numpy as np
import pytest

from searchlab.errors import SearchLabError, WorkloadError
from searchlab.ir import Builder, interpret, size, total
from searchlab.workloads import Definition, Extent, lazy, operator, operators, parse, workload


@operator
def scaled_rows(rows: int = 4, cols: Extent = 3, factor: float = 2.0, flip: bool = False) -> Definition:
    """Sums of rows, scaled."""
    b = Builder("scaled_rows")
    X = b.input("X", (rows, cols))
    r = b.axis("r", cols)
    S = b.compute("S", (rows,), lambda i: total(X[i, r], r))
    Y = b.compute("Y", (rows,), lambda i: S[i] * factor)
    return Definition(b.program(S, Y), lambda X: (X.sum(1), X.sum(1) * factor))


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_values_and_text():
    w = workload("matmul", m=64)
    assert w.label == str(w) == "matmul(m=64, n=512, k=512)"
    assert w.spec == "matmul:m=64,n=512,k=512,dtype=float32"
    assert w.name == "matmul" and dict(w.params)["m"] == 64
    assert workload("matmul", m="64") is w is parse(w.spec) is parse(" matmul : m = 64 ".replace(" : ", ":"))
    assert parse("matmul").label == "matmul(m=512, n=512, k=512)" and parse("matmul:") is parse("matmul")
    assert workload("conv2d", k=(3, 3)) is workload("conv2d", k=3)
    uneven = workload("conv2d", k=(3, 1), padding="1x0")
    assert uneven.label == "conv2d(n=1, ci=64, co=64, h=56, w=56, k=3x1, padding=1x0)"
    assert parse("elementwise:ops=add,relu,mul,rows=3").label == "elementwise(rows=3, cols=1024, ops=add,relu,mul)"
    assert workload("matmul", m=np.int64(64)) is w


def test_key_is_the_same_in_every_process():
    w = workload("matmul", m=64)
    assert w.key == "matmul-710e1ce6b28e"
    assert run("from searchlab.workloads import workload; print(workload('matmul', m=64).key)") == w.key
    assert workload("matmul", m=65).key != w.key


def test_import_is_light():
    use = "import sys, searchlab.workloads as w; w.operators(); w.network('resnet50')"
    assert run(f"{use}; print([m for m in ('scipy', 'torch') if m in sys.modules])") == "[]"


def test_pickle_keeps_identity():
    for w in (workload("matmul", m=64), workload("matmul", m="?")):
        assert pickle.loads(pickle.dumps(w)) is w


def test_inputs_are_deterministic():
    w = workload("dense", m=5, n=6, k=7)
    a, b, c = w.inputs(), w.inputs(seed=0), w.inputs(seed=1)
    assert list(a) == ["X", "W", "bias"]
    for name in a:
        assert a[name].dtype == np.float32 and np.array_equal(a[name], b[name]) and not np.array_equal(a[name], c[name])
        assert a[name].min() >= -1 and a[name].max() <= 1
    other = workload("dense", m=5, n=6, k=7, bias=False).inputs()
    assert np.array_equal(a["X"], other["X"])  # an input more or less leaves the others alone


def test_check_says_what_is_wrong():
    w = workload("matmul", m=4, n=3, k=5)
    x = w.inputs()
    good = w.reference(x)
    assert w.check(good, x) is w.check([good["C"]], x) is w.check(good["C"], x) is None
    assert w.check(good, {}, expected=good) is None
    bad = good["C"].copy()
    bad[2, 1] += 1
    message = w.check(bad, x)
    assert "1 of 12" in message and "[2, 1]" in message and f"expected {good['C'][2, 1]!s}" in message
    bad[2, 1] = np.nan
    assert "got nan" in w.check(bad, x)
    assert "shape (4, 2)" in w.check(good["C"][:, :2], x)
    assert "dtype float64" in w.check(good["C"].astype(float), x)
    assert "missing" in w.check({}, x)
    assert "2 outputs instead of 1" in w.check([bad, bad], x)
    ints = workload("matmul", m=4, n=3, k=5, dtype="int8")
    x = ints.inputs()
    off = ints.reference(x)["C"] + np.int32(1)
    assert "12 of 12" in ints.check(off, x)


@pytest.mark.parametrize("spec", ["matmul:m=64,n=64,k=4096", "l2_norm:rows=999,cols=999", "softmax:rows=9,cols=4096"])
def test_tolerance_accepts_float32_arithmetic_and_refuses_small_mistakes(spec):
    w = parse(spec)
    x = w.inputs()
    single = w.definition.reference(*x.values()).astype(np.float32)
    assert w.check(single, x) is None
    assert w.check(single * np.float32(1.01), x) is not None
    if w.name == "matmul":
        dropped = x["A"][:, :-1] @ x["B"][:-1]
        naive = np.zeros((64, 64), np.float32)
        for k in range(4096):
            naive += x["A"][:, k : k + 1] * x["B"][k]
        assert w.check(naive, x) is None and w.check(dropped, x) is not None


# --- run-time sizes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "sizes"),
    [
        ("matmul:m=?,n=3,k=4", {"m": 5}),
        ("matmul:m=?,n=?,k=?", {"m": 5, "n": 2, "k": 3}),
        ("matmul:m=?s,n=?s,k=4", {"s": 3}),
        ("dense:m=?,n=3,k=4,activation=gelu", {"m": 5}),
        ("batch_matmul:batch=?,m=2,n=3,k=4", {"batch": 3}),
        ("transpose_batch_matmul:seq=?,heads=2,dim=3", {"seq": 4}),
        ("softmax:rows=?,cols=?", {"rows": 3, "cols": 5}),
        ("layer_norm:rows=?,cols=?", {"rows": 3, "cols": 5}),
        ("l2_norm:batch=2,rows=?,cols=4", {"rows": 3}),
        ("elementwise:rows=?,cols=?,ops=mul,tanh", {"rows": 3, "cols": 5}),
        ("conv2d:n=?,ci=2,co=3,h=?,w=6,stride=2,padding=1", {"n": 2, "h": 5}),
        ("conv2d_transpose:ci=2,co=3,h=?,w=2", {"h": 3}),
        ("max_pool2d:c=2,h=?,w=6,padding=1", {"h": 7}),
        ("global_avg_pool2d:c=2,h=?,w=?", {"h": 3, "w": 4}),
    ],
)
def test_run_time_sizes(spec, sizes):
    w = parse(spec)
    assert set(w.sizes) == set(sizes) == set(w.program.sizes)
    assert parse(w.spec) is w
    x = w.inputs(**sizes)
    assert w.sizes_of(x) == sizes
    assert w.check(interpret(w.program, x, sizes), x) is None
    fixed = w.at(**sizes)
    assert fixed.sizes == () and fixed.flops > 0
    assert all(np.array_equal(a, b) for a, b in zip(x.values(), fixed.inputs().values(), strict=True))
    with pytest.raises(WorkloadError, match="run time"):
        _ = w.flops
    with pytest.raises(WorkloadError, match="not given"):
        w.inputs()


def test_run_time_sizes_by_value():
    assert workload("matmul", m=size("m")) is workload("matmul", m="?")
    assert workload("matmul", m=size("batch")).label == "matmul(m=?batch, n=512, k=512)"
    with pytest.raises(WorkloadError, match="no run-time size 'x'; its sizes: m"):
        workload("matmul", m="?").at(x=3)
    with pytest.raises(WorkloadError, match="m = 0 is too small"):
        workload("matmul", m="?").inputs(m=0)
    with pytest.raises(WorkloadError, match="stride = .* is not an integer"):
        workload("conv2d", stride="?")


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("matmull", ["unknown operator 'matmull'", "did you mean 'matmul'?", "softmax"]),
        ("zzz", ["unknown operator 'zzz'; known:"]),
        ("softmax:row=3", ["softmax: unknown parameter 'row'", "did you mean 'rows'?", "accepted: rows, cols, dtype"]),
        ("matmul:m=big", ["matmul: m = 'big' is not an integer"]),
        ("matmul:m=0", ["matmul: m = 0 is too small: at least 1"]),
        ("matmul:m=1.5", ["not an integer"]),
        ("matmul:m=?2", ["not an integer"]),
        ("matmul:dtype=float23", ["dtype = 'float23' is unknown", "did you mean 'float32'?"]),
        ("softmax:dtype=int8", ["dtype = 'int8' is unknown", "float32, float64"]),
        ("dense:bias=maybe", ["not true or false"]),
        ("layer_norm:eps=small", ["not a number"]),
        ("dense:activation=relu,dtype=int8", ["relu", "floating-point"]),
        ("conv2d:dtype=int8,then=bn,relu", ["bn, relu", "floating-point"]),
        ("conv2d:padding=-1", ["padding = -1 is too small: at least 0"]),
        ("conv2d:ci=6,co=4,groups=4", ["groups = 4 does not divide ci = 6"]),
        ("conv2d:ci=8,co=6,groups=4", ["groups = 4 does not divide co = 6"]),
        ("conv2d:ci=?,groups=4", ["ci must be a number if groups = 4"]),
        ("conv2d:h=4,k=7", ["kernel spans 7 along h", "only 4"]),
        ("conv2d:h=4,w=4,k=3,dilation=3,padding=1", ["kernel spans 7 along h", "only 6"]),
        ("conv2d:k=3x3x5", ["k = 3x3x5 has 3 numbers for 2 axes"]),
        ("conv2d:then=bn,rleu", ["unknown step 'rleu'", "did you mean 'relu'?"]),
        ("conv2d:then=bn,bn", ["two tensors are called 'scale'"]),
        ("conv2d_transpose:k=2,padding=2", ["padding = 2 is not below"]),
        ("conv2d_transpose:h=1,k=3,padding=2", ["leaves nothing"]),
        ("max_pool2d:k=2,padding=2", ["more than half"]),
        ("elementwise:ops=none", ["ops names no function"]),
        ("elementwise:ops=plus", ["unknown step 'plus'"]),
        ("reduce:shape=3xx", ["not of the form"]),
        ("reduce:shape=3x0", ["at least 1"]),
        ("reduce:shape=3x4,axis=2", ["axis = 2 is outside the 2 axes"]),
        ("reduce:op=mean,dtype=int8", ["floating-point"]),
        ("matmul:m=3,m=4", ["'m' is given twice"]),
        ("matmul:m=3,4", ["m = '3,4' is not an integer"]),
        ("no.such.module:f:x=3", ["cannot import 'no.such.module'"]),
        ("math:nothing", ["module 'math' has no 'nothing'"]),
        ("math:pi", ["is a float object; accepted: a function"]),
    ],
)
def test_errors(text, parts):
    with pytest.raises(WorkloadError) as e:
        parse(text)
    assert isinstance(e.value, (SearchLabError, ValueError))
    for part in parts:
        assert part in str(e.value)


def test_errors_name_the_workload():
    with pytest.raises(WorkloadError, match=r"^conv2d\(n=1, ci=64, co=64, h=4, w=56, k=7\): the kernel spans 7"):
        workload("conv2d", h=4, k=7)
    late = lazy("conv2d", h=4, k=7)  # not refused yet: nothing has been built
    with pytest.raises(WorkloadError):
        _ = late.program


def test_bool_is_no_number():
    with pytest.raises(WorkloadError, match="not an integer"):
        workload("matmul", m=True)


# --- operators of others ----------------------------------------------------------------------------------------------


def test_an_operator_is_one_function():
    w = workload("scaled_rows", rows=5)
    assert w == scaled_rows(rows=5) and operators()["scaled_rows"].summary == "Sums of rows, scaled."
    x = w.inputs()
    assert w.program.outputs == ("S", "Y") and w.check(interpret(w.program, x), x) is None
    flipped = workload("scaled_rows", factor=3, flip="true")
    assert flipped.label == "scaled_rows(rows=4, cols=3, factor=3.0, flip=true)"
    with pytest.raises(WorkloadError, match="not an integer"):
        workload("scaled_rows", rows="?")  # annotated int, not Extent


def test_operators_by_path(tmp_path, monkeypatch):
    (tmp_path / "my_operators.py").write_text(
        "from searchlab.workloads.linear import matmul as decorated\n"
        "def plain(m: int = 3):\n"
        "    return decorated.function(m=m, n=2, k=2)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    w = parse("my_operators:plain:m=4")
    assert w.label == "my_operators:plain(m=4)" and w.flops == 32 and w.key.startswith("plain-")
    assert parse(w.spec) is w and pickle.loads(pickle.dumps(w)) is w
    assert workload("my_operators:decorated", m=4, n=2, k=2).flops == 32


def test_operators_by_entry_point(monkeypatch):
    from importlib import metadata

    from searchlab.workloads import catalogue

    group = "searchlab.workloads"
    points = [
        metadata.EntryPoint("product_of_others", "searchlab.workloads.linear:matmul", group),
        metadata.EntryPoint("broken_one", "no_such_module:f", group),
    ]
    monkeypatch.setattr(metadata, "entry_points", lambda group: points)
    monkeypatch.setattr(catalogue, "_table", dict(catalogue._table))
    catalogue._load_plugins.cache_clear()
    with pytest.warns(UserWarning, match="broken_one.*cannot import"):
        w = workload("product_of_others", m=3)
    assert w.label == "product_of_others(m=3, n=512, k=512)" and pickle.loads(pickle.dumps(w)) is w
    catalogue._load_plugins.cache_clear()


def test_bad_operators_are_refused():
    def unclear(x=None) -> Definition:
        raise NotImplementedError

    with pytest.raises(WorkloadError, match="parameter 'x' needs one of the annotations"):
        operator(unclear)

    def matmul() -> Definition:
        raise NotImplementedError

    workload("matmul")
    with pytest.raises(WorkloadError, match="already defined by searchlab.workloads.linear:matmul"):
        operator(matmul)


def test_bad_definitions_are_refused():
    from searchlab.workloads import Operator

    def nothing(x: int = 1):
        return None

    with pytest.raises(WorkloadError, match="returned NoneType, not a Definition"):
        Operator.of(nothing)()

    def wrong(x: int):
        return Definition(workload("matmul").program, lambda A, B: (A, B), weights=("Bee",))

    with pytest.raises(WorkloadError, match="weight 'Bee' is not an input"):
        Operator.of(wrong)(x=1)
    with pytest.raises(WorkloadError, match="parameter 'x' must be given"):
        Operator.of(wrong)()
    with pytest.raises(WorkloadError, match="input 'B' is missing"):
        workload("matmul").reference({"A": np.zeros((512, 512))})
