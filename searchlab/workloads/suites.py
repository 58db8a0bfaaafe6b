"""Suites: the operator shapes on which published tuners were evaluated, and products of bytes, as named cases.

autotvm: Chen et al., NeurIPS 2018; ansor: Zheng et al., OSDI 2020; metaschedule: Shao et al., NeurIPS 2022.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from searchlab.errors import WorkloadError
from searchlab.registry import nearest
from searchlab.workloads.catalogue import lazy
from searchlab.workloads.definition import Workload


class Case(NamedTuple):
    """One shape of a suite, under its name in the publication."""

    name: str
    workload: Workload


def suite(name: str) -> tuple[Case, ...]:
    """The cases of a suite."""
    if name not in _SUITES:
        raise WorkloadError(f"unknown suite '{name}'{nearest(name, _SUITES)}")
    return tuple(_SUITES[name]())


def suites() -> dict[str, str]:
    """The known suites, each with a one-line description."""
    return {name: (cases.__doc__ or "").partition("\n")[0] for name, cases in _SUITES.items()}


# --- AutoTVM ----------------------------------------------------------------------------------------------------------

# h = w, ci, co, k, stride; padding preserves the size at stride 1
_RESNET18 = (
    (224, 3, 64, 7, 2), (56, 64, 64, 3, 1), (56, 64, 64, 1, 1), (56, 64, 128, 3, 2), (56, 64, 128, 1, 2),
    (28, 128, 128, 3, 1), (28, 128, 256, 3, 2), (28, 128, 256, 1, 2),
    (14, 256, 256, 3, 1), (14, 256, 512, 3, 2), (14, 256, 512, 1, 2), (7, 512, 512, 3, 1),
)  # fmt: skip


def _autotvm_resnet18() -> Iterator[Case]:
    """The convolutions C1 to C12 of ResNet-18, batch 1."""
    for number, (side, ci, co, k, stride) in enumerate(_RESNET18, 1):
        yield Case(f"C{number}", lazy("conv2d", ci=ci, co=co, h=side, w=side, k=k, stride=stride, padding=k // 2))


# --- Ansor ------------------------------------------------------------------------------------------------------------

_C1D = ((256, 64, 128, 3, 2, 1), (128, 128, 256, 1, 2, 0), (64, 256, 256, 5, 1, 2), (32, 512, 512, 3, 1, 1))
_C2D = ((224, 3, 64, 7, 2, 3), (56, 64, 64, 1, 1, 0), (14, 256, 256, 3, 1, 1), (7, 512, 512, 3, 1, 1))
# The first shape of C2D has 3 channels, not divisible into 4 groups; later evaluations used this one instead.
_GRP = ((56, 64, 128, 3, 2, 1), *_C2D[1:])
_DEP = ((112, 32, 3, 1, 1), (112, 64, 3, 2, 1), (14, 512, 3, 2, 1), (7, 1024, 3, 1, 1))
_T2D = ((4, 512, 256), (8, 256, 128), (16, 128, 64), (32, 64, 3))
_CAP = ((16, 32, 32, 2), (8, 32, 32, 1), (16, 8, 16, 2), (8, 16, 16, 1))
_GMM = ((128, 128, 128), (512, 32, 512), (512, 512, 512), (1024, 1024, 1024))
_NRM = (256, 512, 1024, 4096)
_CONV_LAYER = ((224, 3, 64, 7, 2, 3), (56, 64, 64, 3, 2, 1), (28, 128, 256, 1, 2, 0), (7, 512, 512, 3, 1, 1))
_TBS = ((128, 12, 64), (128, 16, 64), (64, 12, 128), (128, 12, 128))
_BATCHES = (1, 16)

Shape = tuple[int, ...]


def _square(op: str, **more: object) -> Callable[[int, Shape], Workload]:
    """A convolution of square images: h = w, ci, co, k, stride, padding."""

    def make(n: int, shape: Shape) -> Workload:
        side, ci, co, k, stride, padding = shape
        return lazy(op, n=n, ci=ci, co=co, h=side, w=side, k=k, stride=stride, padding=padding, **more)

    return make


def _c1d(n: int, shape: Shape) -> Workload:
    w, ci, co, k, stride, padding = shape
    return lazy("conv1d", n=n, ci=ci, co=co, w=w, k=k, stride=stride, padding=padding)


def _dep(n: int, shape: Shape) -> Workload:
    side, c, k, stride, padding = shape
    return lazy("depthwise_conv2d", n=n, c=c, h=side, w=side, k=k, stride=stride, padding=padding)


def _t2d(n: int, shape: Shape) -> Workload:
    side, ci, co = shape
    return lazy("conv2d_transpose", n=n, ci=ci, co=co, h=side, w=side, k=4, stride=2, padding=1)


def _cap(n: int, shape: Shape) -> Workload:
    side, ci, co, stride = shape
    return lazy("capsule_conv2d", n=n, ci=ci, co=co, h=side, w=side, k=3, stride=stride, padding=1)


def _gmm(n: int, shape: Shape) -> Workload:
    rows, cols, inner = shape
    if n == 1:
        return lazy("matmul", m=rows, n=cols, k=inner)
    return lazy("batch_matmul", batch=n, m=rows, n=cols, k=inner)


def _nrm(n: int, shape: Shape) -> Workload:
    return lazy("l2_norm", batch=n, rows=shape[0], cols=shape[0])


def _tbs(n: int, shape: Shape) -> Workload:
    seq, heads, dim = shape
    return lazy("transpose_batch_matmul", batch=n, seq=seq, heads=heads, dim=dim)


_Row = tuple[str, Callable[[int, Shape], Workload], tuple[Shape, ...]]
_OPS: tuple[_Row, ...] = (
    ("C1D", _c1d, _C1D),
    ("C2D", _square("conv2d"), _C2D),
    ("C3D", _square("conv3d", d=16), _C2D),
    ("GMM", _gmm, _GMM),
    ("GRP", _square("conv2d", groups=4), _GRP),
    ("DIL", _square("conv2d", dilation=2), _C2D),
    ("DEP", _dep, _DEP),
    ("T2D", _t2d, _T2D),
    ("CAP", _cap, _CAP),
    ("NRM", _nrm, tuple((side,) for side in _NRM)),
)
_SUBGRAPHS: tuple[_Row, ...] = (("ConvLayer", _square("conv2d_bn_relu"), _CONV_LAYER), ("TBS", _tbs, _TBS))


def _cases(rows: tuple[_Row, ...]) -> Iterator[Case]:
    for batch in _BATCHES:
        for name, make, shapes in rows:
            for number, shape in enumerate(shapes, 1):
                yield Case(f"{name}-{number}-b{batch}", make(batch, shape))


def _ansor_ops() -> Iterator[Case]:
    """Ten operators in four shapes at batch 1 and 16."""
    return _cases(_OPS)


def _ansor_subgraphs() -> Iterator[Case]:
    """Convolution layers and attention scores in four shapes at batch 1 and 16."""
    return _cases(_SUBGRAPHS)


# --- MetaSchedule -----------------------------------------------------------------------------------------------------


def _metaschedule_ops() -> Iterator[Case]:
    """Twelve operators and subgraphs, batch 1."""
    first = {name: make(1, shapes[0]) for name, make, shapes in _OPS if name != "CAP"}
    first["CBR"] = _square("conv2d_bn_relu")(1, _C2D[0])
    first["TBG"] = _tbs(1, _TBS[0])
    first["SFM"] = lazy("softmax", rows=256, cols=256)
    return (Case(name, w) for name, w in first.items())


# --- products of bytes ------------------------------------------------------------------------------------------------

_BYTES = ((512, 512, 512), (1024, 1024, 1024), (128, 3072, 768))  # m, n, k
_BYTE_CONVOLUTIONS = ((56, 64, 64, 3), (14, 256, 256, 3), (56, 64, 256, 1))  # h = w, ci, co, k
_ZEROS = {"zero": 128, "out_zero": 128}


def _int8_ops() -> Iterator[Case]:
    """Products of bytes, plain (uint8 by int8 into int32) and quantised, batch 1."""
    for number, (m, n, k) in enumerate(_BYTES, 1):
        yield Case(f"GMM-{number}", lazy("matmul", m=m, n=n, k=k, dtype="uint8"))
    yield Case("QMM", lazy("qmatmul", m=512, n=512, k=512, **_ZEROS))
    yield Case("QDN", lazy("qdense", m=128, n=768, k=3072, **_ZEROS))
    for number, (side, ci, co, k) in enumerate(_BYTE_CONVOLUTIONS, 1):
        yield Case(f"QC2D-{number}", lazy("qconv2d", ci=ci, co=co, h=side, w=side, k=k, padding=k // 2, **_ZEROS))
    yield Case("QDEP", lazy("qdepthwise_conv2d", c=144, h=56, w=56, padding=1, **_ZEROS))


_SUITES: dict[str, Callable[[], Iterator[Case]]] = {
    "autotvm-resnet18": _autotvm_resnet18,
    "ansor-ops": _ansor_ops,
    "ansor-subgraphs": _ansor_subgraphs,
    "metaschedule-ops": _metaschedule_ops,
    "int8-ops": _int8_ops,
}
