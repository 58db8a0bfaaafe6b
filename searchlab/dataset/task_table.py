"""The tasks of the data set: every operator of the catalogue in shapes of real networks, and in odd ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

from searchlab.errors import WorkloadError
from searchlab.search import Task
from searchlab.targets import CpuTarget
from searchlab.workloads import parse, suite, suites


@dataclass(frozen=True)
class TaskSpec:
    """One task of a data set: a workload and the number of threads that its kernels may use."""

    workload: str
    threads: int = 2

    def on(self, machine: CpuTarget) -> Task:
        """The task on a machine; one with fewer cores uses those it has."""
        return Task(parse(self.workload), machine.with_threads(min(self.threads, machine.cores)))


# Each line is an operator, and "|" separates its shapes; a shape that ends in "@1" is recorded with one thread.  Most
# take 0.05 to 1 ms on two cores of a present-day machine, so that a task is recorded in half a minute.
_SHAPES = """
matmul: m=384,n=384,k=384 | m=197,n=768,k=192 | m=251,n=251,k=251 @1 | m=1,n=1000,k=2048 | m=64,n=1000,k=512
  | m=2048,n=64,k=128 | m=49,n=1536,k=384 @1 | m=200,n=160,k=240,dtype=float64 | m=256,n=256,k=256,dtype=int8
  | m=100,n=3000,k=90
conv2d: ci=128,co=128,h=28,w=28,k=3,padding=1 | ci=64,co=128,h=56,w=56,k=3,stride=2,padding=1
  | ci=512,co=128,h=28,w=28,k=1 | ci=3,co=32,h=160,w=160,k=3,stride=2,padding=1
  | ci=32,co=64,h=27,w=27,k=5,padding=2 @1 | ci=128,co=128,h=28,w=28,k=3,padding=1,groups=4
  | ci=512,co=512,h=7,w=7,k=3,padding=1 | ci=64,co=256,h=28,w=28,k=1,then=bias,relu
  | ci=96,co=64,h=35,w=35,k=3,padding=1 | ci=64,co=64,h=28,w=28,k=3,padding=2,dilation=2
  | ci=48,co=96,h=13,w=13,k=3,padding=1 @1 | ci=128,co=256,h=28,w=28,k=1,stride=2 | n=4,ci=32,co=32,h=20,w=20,k=3
  | ci=32,co=48,h=28,w=28,k=3,padding=1,dtype=int8 | ci=3,co=24,h=113,w=97,k=5,stride=2,padding=2
depthwise_conv2d: c=192,h=28,w=28,k=3,padding=1 | c=96,h=112,w=112,k=3,stride=2,padding=1
  | c=240,h=28,w=28,k=5,padding=2 | c=384,h=14,w=14,k=3,padding=1 @1 | c=960,h=7,w=7,k=3,padding=1
  | c=72,h=33,w=33,k=5,padding=2,then=bias,relu
conv2d_transpose: ci=64,co=32,h=16,w=16,k=4,stride=2,padding=1 | ci=32,co=16,h=28,w=28,k=2,stride=2,padding=0
  | ci=64,co=3,h=32,w=32,k=4,stride=2,padding=1 @1 | ci=48,co=40,h=13,w=13,k=3,stride=1,padding=1
  | ci=512,co=64,h=4,w=4,k=4,stride=2,padding=1
dense: m=32,n=512,k=512,activation=relu | m=197,n=384,k=384,activation=gelu | m=1,n=1000,k=512 @1
  | m=50,n=250,k=800,activation=tanh | m=16,n=3072,k=768
softmax: rows=1536,cols=128 | rows=64,cols=1000 | rows=256,cols=256 @1 | rows=32,cols=8192 | rows=500,cols=197
layer_norm: rows=197,cols=384 | rows=1024,cols=256 | rows=64,cols=2048 @1 | rows=333,cols=500
batch_matmul: batch=32,m=64,n=64,k=64 | batch=6,m=197,n=64,k=197 | batch=8,m=96,n=96,k=32 @1 | batch=4,m=77,n=77,k=80
conv2d_bn_relu: ci=64,co=64,h=28,w=28,k=3,padding=1 | ci=24,co=144,h=56,w=56,k=1 | ci=160,co=160,h=17,w=17,k=1 @1
  | ci=32,co=64,h=75,w=75,k=3,stride=2,padding=1
transpose_batch_matmul: seq=197,heads=6,dim=64 | seq=96,heads=8,dim=32 | seq=256,heads=4,dim=64 @1
l2_norm: rows=800,cols=900 | batch=8,rows=128,cols=128 | rows=500,cols=700 @1
conv1d: ci=64,co=128,w=256,k=3,stride=2,padding=1 | ci=80,co=256,w=300,k=3,padding=1 | ci=128,co=128,w=201,k=5 @1
conv3d: ci=16,co=32,d=8,h=20,w=20,k=3,padding=1 | ci=3,co=16,d=8,h=48,w=48,k=3,stride=2,padding=1
capsule_conv2d: ci=8,co=16,h=16,w=16,k=3,stride=2,padding=1 | ci=16,co=16,h=8,w=8,k=3,padding=1
reduce: shape=2048x196,op=mean | shape=128x1000x8,axis=1,op=max | shape=2000x300,axis=0
elementwise: rows=512,cols=768,ops=add | rows=300,cols=1000,ops=add,gelu,mul
max_pool2d: c=64,h=112,w=112,k=3,stride=2,padding=1 | c=192,h=35,w=35,k=3,stride=1,padding=1
avg_pool2d: c=128,h=56,w=56,k=2,stride=2
global_avg_pool2d: n=8,c=1280,h=7,w=7
qmatmul: m=384,n=384,k=384,zero=128,out_zero=128 | m=100,n=1000,k=256,zero=3 @1
qdense: m=64,n=512,k=768,zero=128,out_zero=128 | m=1,n=1000,k=1280,out=int8 @1
qconv2d: ci=64,co=64,h=28,w=28,k=3,padding=1,zero=128,out_zero=128 | ci=128,co=64,h=28,w=28,k=1,zero=7
qdepthwise_conv2d: c=96,h=28,w=28,padding=1,zero=128,out_zero=128
"""


def chosen_specs(tasks: str | None = None) -> tuple[TaskSpec, ...]:
    """The tasks that a user means: all, the first few by their number, a suite, or a workload."""
    specs = task_specs()
    if tasks is None:
        return specs
    if tasks.isdecimal():
        if not 1 <= int(tasks) <= len(specs):
            raise WorkloadError(f"{tasks} tasks: there are 1 to {len(specs)}")
        return specs[: int(tasks)]
    if tasks in suites():
        return tuple(TaskSpec(case.workload.spec) for case in suite(tasks))
    try:
        return (TaskSpec(parse(tasks).spec),)
    except WorkloadError as e:
        accepted = f"a number up to {len(specs)}, a suite ({', '.join(suites())}) or a workload"
        raise WorkloadError(f"tasks '{tasks}': {e}; accepted: {accepted}") from None


def task_specs() -> tuple[TaskSpec, ...]:
    """All tasks: the first shape of every operator, then the second ones, so that any number of them is a mixture."""
    by_operator = [list(_specs(line)) for line in _SHAPES.replace("\n  ", " ").strip().splitlines()]
    return tuple(spec for turn in zip_longest(*by_operator) for spec in turn if spec is not None)


def _specs(line: str) -> Iterator[TaskSpec]:
    operator, _, shapes = line.partition(":")
    for shape in shapes.split("|"):
        text, _, threads = shape.partition("@")
        yield TaskSpec(f"{operator}:{text.strip()}", int(threads or 2))
