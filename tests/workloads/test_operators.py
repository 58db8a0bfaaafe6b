"""Every operator computes what its reference says, and the references what torch says."""

import math

import numpy as np
import pytest

from searchlab.ir import interpret
from searchlab.workloads import operators, parse

CASES = """
matmul:m=3,n=5,k=7
matmul:m=1,n=1,k=1,dtype=float64
matmul:m=3,n=5,k=9,dtype=int8
matmul:m=5,n=2,k=6,dtype=uint8
matmul:m=2,n=3,k=4,dtype=int32
batch_matmul:batch=2,m=3,n=5,k=7
batch_matmul:batch=3,m=2,n=1,k=4,dtype=int8
dense:m=3,n=5,k=7
dense:m=3,n=5,k=7,bias=false
dense:m=2,n=5,k=3,bias=false,activation=relu
dense:m=2,n=5,k=3,activation=gelu
dense:m=1,n=4,k=3,activation=tanh,dtype=float64
dense:m=3,n=5,k=7,dtype=uint8
transpose_batch_matmul:batch=2,seq=5,heads=3,dim=4
transpose_batch_matmul:batch=1,seq=3,heads=1,dim=7
conv1d:n=2,ci=3,co=4,w=11,k=3,stride=2,padding=1
conv1d:ci=4,co=2,w=9,k=4,dilation=2,groups=2
conv2d:n=2,ci=3,co=4,h=5,w=7,k=3,padding=1
conv2d:ci=4,co=6,h=7,w=6,k=3,stride=2,padding=1,groups=2
conv2d:ci=2,co=3,h=9,w=8,k=3x2,stride=2x1,dilation=2x3,padding=2x1
conv2d:ci=3,co=2,h=5,w=4,k=1
conv2d:ci=3,co=2,h=5,w=4,k=3,padding=1,dtype=int8
conv2d:ci=3,co=2,h=5,w=4,k=2,dtype=uint8
conv2d:ci=3,co=2,h=5,w=4,k=3,padding=1,then=bn,add,relu
conv2d:ci=1,co=2,h=4,w=4,k=3,then=bias,gelu
conv3d:ci=2,co=3,d=4,h=5,w=3,k=3x1x2,padding=1x0x1
conv3d:ci=2,co=2,d=3,h=4,w=5,k=2,stride=2,groups=2,then=bn,relu
depthwise_conv2d:n=2,c=5,h=6,w=7,padding=1,stride=2
depthwise_conv2d:c=3,h=7,w=5,dilation=2,then=bn,relu6
conv2d_bn_relu:ci=3,co=4,h=5,w=6,padding=1
conv2d_bn_relu:n=2,ci=2,co=3,h=6,w=5,k=2,stride=2
conv2d_transpose:ci=3,co=4,h=3,w=4
conv2d_transpose:n=2,ci=2,co=3,h=3,w=4,k=3x4,stride=1x3,padding=1x2,then=bias,tanh
conv2d_transpose:ci=2,co=3,h=3,w=2,k=2,stride=3,padding=0
capsule_conv2d:ci=2,co=3,h=5,w=4,stride=2,padding=1,capsule=2
capsule_conv2d:n=2,ci=1,co=2,h=3,w=4,k=2x3,capsule=3
softmax:rows=3,cols=7
softmax:rows=1,cols=1,dtype=float64
layer_norm:rows=3,cols=7
layer_norm:rows=2,cols=13,eps=0.1,dtype=float64
l2_norm:batch=2,rows=3,cols=5
l2_norm:batch=1,rows=7,cols=1
max_pool2d:c=2,h=7,w=9,padding=1
max_pool2d:n=2,c=1,h=6,w=5,k=2x3,stride=1x2
avg_pool2d:c=2,h=7,w=9,padding=1
avg_pool2d:n=2,c=1,h=6,w=5,k=3,stride=1
global_avg_pool2d:c=3,h=4,w=5
global_avg_pool2d:n=2,c=1,h=1,w=3
elementwise:rows=3,cols=4,ops=add,relu,sigmoid,mul,tanh
elementwise:rows=2,cols=5,ops=relu6,exp,abs,neg,square,gelu,sub,max,min
reduce:shape=3x4x5,axis=1,op=mean
reduce:shape=3x4,axis=0,op=sum
reduce:shape=3x4,axis=-1,op=max,dtype=int8
reduce:shape=7,op=min
reduce:shape=2x3x2x3,axis=2,op=sum,dtype=uint8
qmatmul:m=3,n=5,k=7,zero=128,out_zero=100
qmatmul:m=4,n=3,k=9,dtype=int8,zero=-3,weight_zero=5,out=int8,out_zero=-7
qmatmul:m=2,n=3,k=4,out=int32
qdense:m=3,n=5,k=7,zero=9
qdense:m=2,n=4,k=6,bias=false,weight_zero=-2,out=int32
qconv2d:ci=3,co=4,h=5,w=6,k=3,padding=1,zero=128,out_zero=128
qconv2d:n=2,ci=2,co=3,h=7,w=5,k=2x3,stride=2x1,dilation=1x2,padding=1,zero=4,weight_zero=3,out=int8
qconv2d:ci=4,co=6,h=5,w=6,k=3,padding=1,groups=2,zero=7,weight_zero=3
qdepthwise_conv2d:c=3,h=5,w=6,padding=1,zero=77,out_zero=3
qdepthwise_conv2d:n=2,c=2,h=6,w=7,stride=2,dtype=int8,zero=-5,weight_zero=-9,out=int8
""".strip().splitlines()
HALVES = [
    f"{c},dtype={d}"
    for n, c in enumerate(CASES)
    if "dtype" not in c and c[0] != "q"
    for d in (("float16", "bfloat16")[n % 2],)
]


@pytest.mark.parametrize("spec", [*CASES, *HALVES])
def test_program_equals_reference(spec):
    w = parse(spec)
    inputs = w.inputs(seed=3)
    assert w.check(interpret(w.program, inputs), inputs) is None
    assert w.flops > 0 and w.bytes > 0
    assert set(w.weights) <= set(w.program.inputs)


def test_every_operator_has_two_cases():
    named = [spec.partition(":")[0] for spec in CASES]
    assert {n: named.count(n) for n in operators() if named.count(n) < 2 and not _ours(n)} == {}


def _ours(name):
    return not operators()[name].path.startswith("searchlab.")


def test_every_operator_is_described_and_builds_with_its_defaults():
    for name, op in operators().items():
        if not _ours(name):
            assert op.summary, name
            assert op().program.name == name


@pytest.mark.parametrize("spec", [c for c in CASES if "conv" in c or "pool" in c or "softmax" in c or "norm" in c])
def test_padding_is_a_stage_only_if_there_is_padding(spec):
    w = parse(spec)
    padded = any(v not in (0, "0") for k, v in w.params if k == "padding")
    assert ("P" in w.program.blocks) == padded


@pytest.mark.parametrize("then", ["none", "bn,relu", "bias"])
def test_conv_stages(then):
    w = parse(f"conv2d:ci=2,co=3,h=4,w=4,padding=1,then={then}")
    assert list(w.program.blocks) == (["P", "Y"] if then == "none" else ["P", "C", "Y"])
    assert w.weights == {"none": ("W",), "bn,relu": ("W", "scale", "shift"), "bias": ("W", "bias")}[then]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_floats_of_16_bits_are_added_up_in_float32_and_rounded_once(dtype):
    w = parse(f"conv2d:ci=2,co=3,h=4,w=4,padding=1,dtype={dtype},then=bn,add,relu")
    given = dict.fromkeys(("X", "W", "scale", "shift", "R", "P", "Y"), dtype)
    assert {n: b.dtype for n, b in w.program.buffers.items()} == {**given, "C": "float32"}
    for name, op in operators().items():
        if any(p.name == "dtype" and dtype in p.choices for p in op.parameters) and not _ours(name):
            program = op(dtype=dtype).program
            assert {program.buffers[n].dtype for n in (*program.inputs, *program.outputs)} == {dtype}, name
            kept = (*program.inputs, *program.outputs, "P")
            assert {b.dtype for n, b in program.buffers.items() if n not in kept} <= {"float32"}, name


def test_the_tolerance_of_floats_of_16_bits_is_a_unit_in_the_last_place():
    w = parse("matmul:m=2,n=3,k=4,dtype=float16")
    x = w.inputs()
    good = w.reference(x)["C"]
    assert w.check(np.nextafter(good, np.float16(9)), x) is None
    wrong = good.copy()
    wrong[1, 2] += np.float16(0.25)
    assert "differs from the reference in 1 of 6" in w.check(wrong, x)
    b = parse("matmul:m=2,n=3,k=4,dtype=bfloat16")
    y = b.inputs()
    bits = b.reference(y)["C"]
    assert bits.dtype == np.uint16 and b.check(bits + np.uint16(1), y) is None
    assert "differs" in b.check(bits + np.uint16(4), y)


def test_integer_products_are_added_up_as_int32():
    w = parse("conv2d:ci=2,co=3,h=4,w=4,dtype=uint8")
    dtypes = {n: b.dtype for n, b in w.program.buffers.items()}
    assert dtypes == {"X": "uint8", "W": "int8", "Y": "int32"}
    wide = parse("matmul:m=4,n=4,k=100000,dtype=int8")
    x = wide.inputs()
    exact = x["A"].astype(np.int64) @ x["B"].astype(np.int64)
    assert np.array_equal(wide.reference(x)["C"], exact) and abs(exact).max() < 2**31


# --- against torch ----------------------------------------------------------------------------------------------------

torch = pytest.importorskip("torch")
F = torch.nn.functional


def by_torch(w, inputs):
    p = dict(w.params)
    t = {k: torch.from_numpy(v).double() for k, v in inputs.items()}
    axes = {"conv1d": 1, "conv3d": 3}.get(w.name, 2)
    per_axis = ("k", "stride", "padding", "dilation")
    many = {k: (v,) * axes if isinstance(v, int) else v for k, v in p.items() if k in per_axis}
    if w.name in ("conv1d", "conv2d", "conv3d", "depthwise_conv2d"):
        conv = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[axes]
        groups = p["c"] if w.name == "depthwise_conv2d" else p["groups"]
        return conv(t["X"], t["W"], None, many["stride"], many["padding"], many["dilation"], groups)
    if w.name == "conv2d_bn_relu":
        y = F.conv2d(t["X"], t["W"], None, many["stride"], many["padding"], many["dilation"], p["groups"])
        return F.relu(y * t["scale"].view(-1, 1, 1) + t["shift"].view(-1, 1, 1))
    if w.name == "conv2d_transpose":
        return F.conv_transpose2d(t["X"], t["W"], None, many["stride"], many["padding"])
    if w.name == "max_pool2d":
        return F.max_pool2d(t["X"], many["k"], many["stride"], many["padding"])
    if w.name == "avg_pool2d":
        return F.avg_pool2d(t["X"], many["k"], many["stride"], many["padding"])
    if w.name == "global_avg_pool2d":
        return F.adaptive_avg_pool2d(t["X"], 1)[:, :, 0, 0]
    if w.name == "softmax":
        return F.softmax(t["X"], 1)
    if w.name == "layer_norm":
        return F.layer_norm(t["X"], (p["cols"],), t["gamma"], t["beta"], p["eps"])
    assert w.name == "dense"
    return {"gelu": F.gelu, "relu": F.relu, "none": lambda x: x}[p["activation"]](t["X"] @ t["W"] + t["bias"])


@pytest.mark.parametrize(
    "spec",
    """
conv1d:n=2,ci=6,co=4,w=21,k=5,stride=2,padding=2,dilation=2,groups=2
conv2d:n=2,ci=8,co=12,h=11,w=13,k=3,stride=2,padding=1
conv2d:n=2,ci=8,co=12,h=11,w=13,k=3x5,stride=1x2,padding=2x1,dilation=2x1,groups=4
conv2d:n=1,ci=4,co=8,h=11,w=13,k=3,groups=4
conv2d:n=1,ci=5,co=7,h=9,w=9,k=3,padding=1,dtype=int8
conv3d:n=2,ci=4,co=6,d=5,h=6,w=7,k=3,stride=2,padding=1,groups=2
conv3d:n=1,ci=3,co=6,d=5,h=9,w=11,k=3x7x7,stride=1x2x2,padding=1x3x3,dilation=1
depthwise_conv2d:n=2,c=9,h=11,w=8,k=3,stride=2,padding=1,dilation=2
conv2d_bn_relu:n=2,ci=5,co=6,h=9,w=8,k=3,stride=2,padding=1
conv2d_transpose:n=2,ci=5,co=6,h=4,w=7,k=4,stride=2,padding=1
conv2d_transpose:n=1,ci=3,co=2,h=5,w=3,k=3x2,stride=2x3,padding=2x0
max_pool2d:n=2,c=3,h=13,w=12,k=3,stride=2,padding=1
avg_pool2d:n=2,c=3,h=13,w=12,k=3x2,stride=2,padding=1
global_avg_pool2d:n=2,c=5,h=7,w=6
softmax:rows=5,cols=33
layer_norm:rows=5,cols=33,eps=0.001
dense:m=5,n=9,k=17,activation=gelu
dense:m=5,n=9,k=17,activation=relu
dense:m=5,n=9,k=17,dtype=int8
""".strip().splitlines(),
)
def test_reference_equals_torch(spec):
    w = parse(spec)
    inputs = w.inputs(seed=1)
    expected = by_torch(w, inputs).numpy().astype(w.program.buffers[w.program.outputs[0]].dtype)
    assert w.check(expected, inputs) is None
    (shape,) = (tuple(int(e.value) for e in w.program.buffers[n].shape) for n in w.program.outputs)
    assert expected.shape == shape


# --- cost -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "flops", "bytes_"),
    [
        ("matmul:m=3,n=5,k=7", 2 * 3 * 5 * 7, 4 * (21 + 35 + 15)),
        ("matmul:m=3,n=5,k=7,dtype=int8", 2 * 3 * 5 * 7, 21 + 35 + 4 * 15),
        ("batch_matmul:batch=2,m=3,n=5,k=7,dtype=float64", 2 * 2 * 3 * 5 * 7, 8 * 2 * (21 + 35 + 15)),
        ("dense:m=3,n=5,k=7", 2 * 3 * 5 * 7 + 15, 4 * (21 + 35 + 5 + 15)),
        ("dense:m=3,n=5,k=7,activation=relu", 2 * 3 * 5 * 7 + 30, 4 * (21 + 35 + 5 + 15)),
        ("conv2d:ci=3,co=4,h=6,w=8,k=3,stride=2,padding=1", 2 * 4 * 3 * 4 * 3 * 9, 4 * (144 + 108 + 48)),
        ("conv2d:ci=4,co=4,h=5,w=5,k=3,groups=2", 2 * 4 * 9 * 2 * 9, 4 * (100 + 72 + 36)),
        ("conv2d_bn_relu:ci=3,co=4,h=5,w=5,k=1", 2 * 4 * 25 * 3 + 3 * 100, 4 * (75 + 12 + 8 + 100)),
        ("depthwise_conv2d:c=3,h=5,w=5,k=3,padding=1", 2 * 3 * 25 * 9, 4 * (75 + 27 + 75)),
        ("conv2d_transpose:ci=2,co=3,h=4,w=4", 2 * 2 * 3 * 16 * 16, 4 * (32 + 96 + 192)),
        ("conv2d_transpose:ci=2,co=3,h=4,w=4,k=3,padding=0", 2 * 2 * 3 * 25 * 9, 4 * (32 + 54 + 243)),
        ("capsule_conv2d:ci=2,co=3,h=4,w=4,k=3,padding=1", 2 * 16 * 3 * 16 * 9 * 2 * 4, 4 * (512 + 864 + 768)),
        ("softmax:rows=3,cols=7", 5 * 21, 4 * 42),
        ("max_pool2d:c=1,h=4,w=4,k=2", 16, 4 * 20),
        ("l2_norm:batch=2,rows=3,cols=5", 2 * 30 + 2, 4 * 32),
        ("reduce:shape=3x4,op=max", 12, 4 * 15),
        ("elementwise:rows=3,cols=4,ops=add,relu", 24, 4 * 36),
    ],
)
def test_cost(spec, flops, bytes_):
    w = parse(spec)
    assert (w.flops, w.bytes) == (flops, bytes_)


def test_reference_of_a_large_convolution_does_not_unfold_it_at_once():
    w = parse("conv3d:ci=3,co=4,d=16,h=96,w=96,k=7,stride=2,padding=3")  # all windows at once: 150 MB
    x = w.inputs()
    y = w.reference(x)["Y"]
    patch = np.pad(x["X"].astype(np.float64), [(0, 0), (0, 0), (3, 3), (3, 3), (3, 3)])[0, :, 4:11, 10:17, 90:97]
    assert math.isclose(y[0, 2, 2, 5, 45], (patch * x["W"][2]).sum(), rel_tol=1e-5)
