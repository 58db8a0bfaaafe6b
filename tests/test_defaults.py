"""The default schedule of every operator compiles to code that is right, on one thread and on two."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab import tactics
from searchlab.backend import compile
from searchlab.defaults import default_schedule
from searchlab.ir.expr import value_of
from searchlab.targets import Target, cpu_of, detect, parse
from searchlab.workloads import operators
from searchlab.workloads import parse as parse_workload

CASES = """
matmul:m=33,n=150,k=19
matmul:m=1,n=7,k=130
matmul:m=37,n=64,k=40,dtype=float64
matmul:m=20,n=70,k=33,dtype=int8
batch_matmul:batch=3,m=17,n=80,k=9
batch_matmul:batch=1,m=64,n=5,k=31
dense:m=19,n=131,k=23,activation=gelu
dense:m=8,n=64,k=16,bias=false
dense:m=7,n=40,k=12,dtype=uint8
transpose_batch_matmul:batch=1,seq=33,heads=3,dim=16
transpose_batch_matmul:batch=2,seq=5,heads=2,dim=7
conv1d:n=2,ci=5,co=37,w=50,k=3,stride=2,padding=1
conv1d:ci=8,co=8,w=33,k=5,dilation=2,groups=2,padding=4
conv2d:n=2,ci=19,co=35,h=13,w=17,k=3,padding=1
conv2d:ci=8,co=64,h=9,w=9,k=1,stride=2
conv2d:n=3,ci=5,co=13,h=41,w=37,k=1
conv2d:ci=9,co=17,h=7,w=5,k=1
conv2d:ci=9,co=17,h=43,w=35,k=1,then=bias,add,sigmoid
conv2d:ci=12,co=24,h=11,w=10,k=3,dilation=2,padding=2,groups=4
conv2d:ci=3,co=20,h=15,w=14,k=7,stride=2,padding=3,then=bn,add,relu
conv2d:ci=6,co=33,h=9,w=8,k=3,padding=1,dtype=int8
conv3d:ci=3,co=18,d=5,h=9,w=11,k=3,padding=1
conv3d:ci=4,co=6,d=4,h=5,w=6,k=2,stride=2,groups=2
depthwise_conv2d:n=2,c=5,h=21,w=33,padding=1
depthwise_conv2d:c=7,h=14,w=15,stride=2,padding=1,then=bn,relu6
conv2d_bn_relu:ci=17,co=34,h=12,w=20,padding=1
conv2d_bn_relu:n=2,ci=3,co=5,h=8,w=7,k=5,stride=2,padding=2
conv2d_transpose:ci=9,co=18,h=7,w=8
conv2d_transpose:n=2,ci=4,co=3,h=5,w=6,k=3,stride=1,padding=1
capsule_conv2d:ci=5,co=17,h=6,w=7,padding=1
capsule_conv2d:n=2,ci=2,co=3,h=5,w=5,stride=2,padding=1,capsule=2
softmax:rows=9,cols=200
softmax:rows=33,cols=7,dtype=float64
layer_norm:rows=11,cols=130
layer_norm:rows=1,cols=33,dtype=float64
l2_norm:batch=3,rows=17,cols=65
l2_norm:batch=1,rows=64,cols=64
max_pool2d:n=2,c=3,h=19,w=37,padding=1
max_pool2d:c=5,h=8,w=8,k=2
max_pool2d:n=2,c=3,h=64,w=112,k=3,stride=2,padding=1
avg_pool2d:c=3,h=19,w=37,padding=1
avg_pool2d:n=2,c=2,h=9,w=8,k=3,stride=1
global_avg_pool2d:n=2,c=33,h=7,w=7
global_avg_pool2d:c=3,h=16,w=16
global_avg_pool2d:c=37,h=7,w=5
elementwise:rows=19,cols=77,ops=add,relu,sigmoid,mul,tanh
elementwise:rows=1,cols=300,ops=exp,abs,gelu
reduce:shape=13x70x9,axis=1,op=mean
reduce:shape=40x50,axis=0,op=max
reduce:shape=300,op=sum
reduce:shape=6x130,axis=-1,op=min,dtype=int8
matmul:m=33,n=70,k=19,dtype=float16
batch_matmul:batch=2,m=9,n=40,k=17,dtype=bfloat16
dense:m=19,n=131,k=23,activation=gelu,dtype=bfloat16
conv2d:ci=9,co=35,h=13,w=17,k=3,padding=1,dtype=float16
conv2d:ci=6,co=20,h=9,w=9,k=3,padding=1,then=bn,add,relu,dtype=bfloat16
depthwise_conv2d:c=7,h=14,w=15,stride=2,padding=1,dtype=float16
conv2d_transpose:ci=9,co=18,h=7,w=8,dtype=float16
softmax:rows=9,cols=77,dtype=float16
layer_norm:rows=11,cols=130,dtype=bfloat16
max_pool2d:n=2,c=3,h=19,w=37,padding=1,dtype=float16
global_avg_pool2d:n=2,c=33,h=7,w=7,dtype=bfloat16
elementwise:rows=19,cols=77,ops=add,relu,sigmoid,mul,tanh,dtype=float16
reduce:shape=13x70x9,axis=1,op=mean,dtype=bfloat16
reduce:shape=300,op=sum,dtype=float16
reduce:shape=40x50,axis=0,op=max,dtype=bfloat16
qmatmul:m=33,n=70,k=40,zero=128,out_zero=128
qmatmul:m=20,n=35,k=33,dtype=int8,zero=-3,weight_zero=5,out=int8
qdense:m=19,n=131,k=23,zero=128,out_zero=128
qdense:m=7,n=40,k=12,out=int32
qconv2d:ci=9,co=35,h=13,w=17,k=3,padding=1,zero=128,out_zero=128
qconv2d:ci=6,co=20,h=9,w=9,k=1,zero=7,weight_zero=2,out=int8
qdepthwise_conv2d:c=7,h=21,w=33,padding=1,zero=100,out_zero=100
qdepthwise_conv2d:c=5,h=14,w=15,stride=2,padding=1,zero=100,weight_zero=-4
""".strip().splitlines()


NAMED = [
    "matmul:m=13,n=45,k=9",
    "conv2d:ci=4,co=19,h=9,w=10,k=3,padding=1",
    "conv2d:ci=7,co=11,h=53,w=47,k=1",
    "conv2d:n=2,ci=3,co=5,h=48,w=32,k=1",
    "conv2d:n=2,ci=3,co=5,h=48,w=31,k=1,then=bn,relu",
    "depthwise_conv2d:c=5,h=13,w=29,padding=1",
    "depthwise_conv2d:c=3,h=18,w=7,k=5,stride=2,padding=2,then=bn,relu",
    "softmax:rows=5,cols=77",
]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("spec", CASES)
def test_default_schedule_is_right(spec: str, threads: int) -> None:
    w = parse_workload(spec)
    target = detect().with_threads(min(threads, detect().cores))
    kernel = compile(default_schedule(w.program, target), target)
    inputs = w.inputs(seed=7)
    assert w.check(kernel(*inputs.values()), inputs) is None


INTEGERS = [
    "matmul:m={},n={},k={},dtype=uint8",
    "qmatmul:m={},n={},k={},dtype=int8,zero=3,weight_zero=-2",
    "qdense:m={},n={},k={},zero=128,out_zero=128",
    "qconv2d:w={},co={},ci={},h=5,k=3,padding=1,zero=9",
    "qconv2d:n=2,h={},co={},ci={},w=4,k=1,weight_zero=2,out=int32",
    "conv2d:w={},co={},ci={},h=6,k=3,stride=2,padding=1,dtype=int8",
]


@settings(max_examples=12)
@given(st.integers(3, 23), st.integers(1, 41), st.integers(1, 19), st.sampled_from(INTEGERS), st.integers(1, 2))
def test_products_of_bytes_of_any_size(rows: int, columns: int, depth: int, spec: str, threads: int) -> None:
    w = parse_workload(spec.format(rows, columns, depth))
    inputs = w.inputs(seed=columns)
    machines = [detect()] + ([parse("x86-64-v3:threads=2")] if "avx2" in detect().enabled_features() else [])
    for machine in machines:
        target = machine.with_threads(min(threads, machine.cores))
        for weights in ((), w.weights):
            kernel = compile(default_schedule(w.program, target, weights), target)
            assert w.check(kernel(*inputs.values()), inputs) is None


@pytest.mark.parametrize("spec", ["matmul:m=40,n=64,k=64,dtype=uint8", "qconv2d:ci=8,co=16,h=9,w=9", "qdense:m=9,n=32"])
def test_products_of_bytes_are_calls_of_an_instruction(spec: str) -> None:
    w = parse_workload(spec)
    text = str(default_schedule(w.program, parse("x86-64-v3"), w.weights))
    assert "tensorized avx2_s16s16_8x2" in text
    assert "tensorized" not in str(default_schedule(w.program, parse("x86-64-v2"), w.weights))


def test_every_operator_has_two_shapes() -> None:
    named = [spec.partition(":")[0] for spec in CASES]
    ours = [name for name, op in operators().items() if op.path.startswith("searchlab.")]  # not those other tests add
    assert len(ours) >= 19 and all(named.count(name) >= 2 for name in ours)


@pytest.mark.parametrize(
    "spec", ["matmul:m=19,n=150,k=33", "conv2d:ci=9,co=37,h=12,w=13,k=3,padding=1", "dense:m=9,n=70,k=12"]
)
def test_weights_are_packed_ahead(spec: str) -> None:
    w = parse_workload(spec)
    target = detect().with_threads(1)
    program = default_schedule(w.program, target, w.weights)
    assert {la.buffer for la in program.layouts} <= set(w.weights) and program.layouts
    inputs = w.inputs(seed=1)
    kernel = compile(program, target).bind(**{n: inputs[n] for n in w.weights})
    assert w.check(kernel(*(x for n, x in inputs.items() if n not in w.weights)), inputs) is None


@pytest.mark.parametrize(
    "spec",
    [
        "matmul:m=?,n=?",
        "dense:m=?",
        "softmax:rows=?,cols=?",
        "layer_norm:rows=?",
        "conv2d:ci=5,co=9,h=?,w=?,k=1",
        "conv2d:ci=5,co=9,h=?,w=?,k=1,then=bias,relu6",
        "depthwise_conv2d:c=3,h=?,w=?,k=3,padding=1",
        "depthwise_conv2d:c=3,h=?,w=?,k=5,padding=2",
    ],
)
def test_run_time_sizes(spec: str) -> None:
    w = parse_workload(spec)
    target = detect().with_threads(1)
    kernel = compile(default_schedule(w.program, target), target)
    for size in (1, 3, 16, 37, 100):
        inputs = w.inputs(seed=size, **dict.fromkeys(w.sizes, size))
        assert w.check(kernel(*inputs.values()), inputs) is None, f"wrong at {size}"


@pytest.mark.parametrize("name", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_named_machines(name: str) -> None:
    if detect().arch != "x86_64" or detect().vector_bits < parse(name).vector_bits:
        pytest.skip("this machine cannot run such code")
    target: Target = parse(name)
    for spec in NAMED:
        w = parse_workload(spec)
        inputs = w.inputs(seed=2)
        assert w.check(compile(default_schedule(w.program, target), target)(*inputs.values()), inputs) is None


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("spec", ["matmul:m=20,n=33,k=9", "conv2d:ci=5,co=19,h=9,w=9,k=3,padding=1", "dense:m=9,n=32"])
def test_floats_of_16_bits_are_multiplied_as_float32(spec: str, dtype: str) -> None:
    """Converted where they are packed, not again for every product."""
    w = parse_workload(f"{spec},dtype={dtype}")
    inputs = w.inputs(seed=1)
    for target in (parse("x86-64-v3"), detect(threads=1)):
        for weights in ((), w.weights):
            program = default_schedule(w.program, target, weights)
            stage = max(tactics.products(program), key=tactics.work)
            assert {ld.type for ld in tactics.operands(stage)} == {"float32"}
            if target.name == detect().name:
                assert w.check(compile(program, target)(*inputs.values()), inputs) is None


@pytest.mark.parametrize(("rows", "blocks"), [(100, []), (300, [2]), (1000, [5])])
def test_rows_of_bytes_that_exceed_the_cache_are_taken_in_blocks(rows: int, blocks: list[int]) -> None:
    """Beside packed weights; where weights are packed as the kernel runs, each of their panels meets all rows."""
    target = replace(cpu_of(parse("x86-64-v3")), l2=1 << 17)
    w = parse_workload(f"matmul:m={rows},n=64,k=128,dtype=uint8")
    made = default_schedule(w.program, target, w.weights).loops
    assert [value_of(made[name].extent) for name in made if name == "i_0_0"] == blocks
    assert "i_0_0" not in default_schedule(w.program, target).loops


@pytest.mark.parametrize("threads", [1, 2])
def test_blocks_of_rows_are_right(threads: int) -> None:
    w, machine = parse_workload("matmul:m=301,n=70,k=130,dtype=uint8"), cpu_of(detect())
    target = replace(machine.with_threads(min(threads, machine.cores)), l2=1 << 14)
    inputs = w.inputs()
    kernel = compile(default_schedule(w.program, target, w.weights), target)
    assert w.check(kernel(*inputs.values()), inputs) is None
