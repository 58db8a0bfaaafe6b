"""Networks as tasks: their operators, and how often each occurs.

Each network is a generator that walks through the architecture and yields its operators; equal ones are merged, and
their count is the weight.  Batch normalisation, activations and residual additions are fused into the convolution
before them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from searchlab.errors import WorkloadError
from searchlab.registry import nearest
from searchlab.workloads.catalogue import lazy
from searchlab.workloads.definition import Workload


class NetworkTask(NamedTuple):
    """A workload and how often it occurs in a network."""

    workload: Workload
    weight: int


Walk = Iterator[Workload]


def network(name: str, batch: int = 1) -> tuple[NetworkTask, ...]:
    """The tasks of a network, in the order in which they first occur."""
    if name not in _NETWORKS:
        raise WorkloadError(f"unknown network '{name}'{nearest(name, _NETWORKS)}")
    if batch < 1:
        raise WorkloadError(f"network '{name}': batch = {batch} is too small: at least 1")
    return tuple(NetworkTask(w, count) for w, count in Counter(_NETWORKS[name](batch)).items())


def networks() -> dict[str, str]:
    """The known networks, each with a one-line description."""
    return {name: (walk.__doc__ or "").partition("\n")[0] for name, walk in _NETWORKS.items()}


# --- residual networks ------------------------------------------------------------------------------------------------

_STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))  # width, stride of the first block


def _resnet18(batch: int) -> Walk:
    """ResNet-18, 224x224 images."""
    yield from _stem(batch)
    yield from _basic_blocks("conv2d", batch, 56)
    yield from _classifier(batch, 512, 7, 1000)


def _resnet50(batch: int) -> Walk:
    """ResNet-50 (the stride in the 3x3 convolutions), 224x224 images."""
    yield from _stem(batch)
    ci, side = 64, 56
    for (width, first), blocks in zip(_STAGES, (3, 4, 6, 3), strict=True):
        for stride in (first,) + (1,) * (blocks - 1):
            yield _conv(batch, ci, width, side, 1)
            yield _conv(batch, width, width, side, 3, stride)
            out = side // stride
            if ci != 4 * width:
                yield _conv(batch, ci, 4 * width, side, 1, stride, then="bn")
            yield _conv(batch, width, 4 * width, out, 1, then="bn,add,relu")
            ci, side = 4 * width, out
    yield from _classifier(batch, ci, side, 1000)


def _resnet3d18(batch: int) -> Walk:
    """3D ResNet-18, clips of 16 frames of 112x112."""
    stem = dict(k=(3, 7, 7), stride=(1, 2, 2), padding=(1, 3, 3), then="bn,relu")
    yield lazy("conv3d", n=batch, ci=3, co=64, d=16, h=112, w=112, **stem)
    yield from _basic_blocks("conv3d", batch, 56, depth=16)
    yield lazy("reduce", shape=f"{batch * 512}x{2 * 7 * 7}", op="mean")
    yield lazy("dense", m=batch, k=512, n=400)
    yield lazy("softmax", rows=batch, cols=400)


def _stem(batch: int) -> Walk:
    yield _conv(batch, 3, 64, 224, 7, 2)
    yield lazy("max_pool2d", n=batch, c=64, h=112, w=112, k=3, stride=2, padding=1)


def _basic_blocks(op: str, batch: int, side: int, depth: int = 0) -> Walk:
    """Two blocks of two 3x3 (or 3x3x3) convolutions per stage."""
    ci = 64
    for width, first in _STAGES:
        for stride in (first, 1):
            yield _conv(batch, ci, width, side, 3, stride, op=op, depth=depth)
            if ci != width:
                yield _conv(batch, ci, width, side, 1, stride, then="bn", op=op, depth=depth)
            side, depth = side // stride, depth // stride
            yield _conv(batch, width, width, side, 3, then="bn,add,relu", op=op, depth=depth)
            ci = width


def _conv(
    batch: int,
    ci: int,
    co: int,
    side: int,
    k: int,
    stride: int = 1,
    then: str = "bn,relu",
    op: str = "conv2d",
    depth: int = 0,
) -> Workload:
    """A convolution with same-size padding (at stride 1), and its epilogue."""
    shape: dict[str, object] = dict(n=batch, ci=ci, co=co, h=side, w=side, k=k, stride=stride, padding=k // 2)
    if depth:
        shape["d"] = depth
    elif then == "bn,relu":
        return lazy("conv2d_bn_relu", **shape)
    return lazy(op, then=then, **shape)


def _classifier(batch: int, channels: int, side: int, classes: int) -> Walk:
    yield lazy("global_avg_pool2d", n=batch, c=channels, h=side, w=side)
    yield lazy("dense", m=batch, k=channels, n=classes)
    yield lazy("softmax", rows=batch, cols=classes)


# --- others -----------------------------------------------------------------------------------------------------------

# expansion, output channels, number of blocks, stride of the first block
_INVERTED = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def _mobilenet_v2(batch: int) -> Walk:
    """MobileNet-V2 (width 1.0), 224x224 images."""
    yield _conv(batch, 3, 32, 224, 3, 2, then="bn,relu6")
    ci, side = 32, 112
    for expansion, co, blocks, first in _INVERTED:
        for stride in (first,) + (1,) * (blocks - 1):
            wide = ci * expansion
            if expansion > 1:
                yield _conv(batch, ci, wide, side, 1, then="bn,relu6")
            yield lazy("depthwise_conv2d", n=batch, c=wide, h=side, w=side, stride=stride, padding=1, then="bn,relu6")
            side //= stride
            yield _conv(batch, wide, co, side, 1, then="bn,add" if ci == co and stride == 1 else "bn")
            ci = co
    yield _conv(batch, ci, 1280, side, 1, then="bn,relu6")
    yield from _classifier(batch, 1280, side, 1000)


def _bert_base(batch: int, seq: int = 128, width: int = 768, heads: int = 12, layers: int = 12) -> Walk:
    """BERT-base without its embedding tables, sequences of 128 tokens; the attention's scale is part of the weights."""
    rows, dim = batch * seq, width // heads
    yield lazy("layer_norm", rows=rows, cols=width)
    for _ in range(layers):
        for _ in ("query", "key", "value"):
            yield lazy("dense", m=rows, k=width, n=width)
        yield lazy("transpose_batch_matmul", batch=batch, seq=seq, heads=heads, dim=dim)
        yield lazy("softmax", rows=batch * heads * seq, cols=seq)
        yield lazy("batch_matmul", batch=batch * heads, m=seq, n=dim, k=seq)
        yield lazy("dense", m=rows, k=width, n=width)
        yield from _add_and_norm(rows, width)
        yield lazy("dense", m=rows, k=width, n=4 * width, activation="gelu")
        yield lazy("dense", m=rows, k=4 * width, n=width)
        yield from _add_and_norm(rows, width)
    yield lazy("dense", m=batch, k=width, n=width, activation="tanh")


def _add_and_norm(rows: int, width: int) -> Walk:
    yield lazy("elementwise", rows=rows, cols=width, ops="add")
    yield lazy("layer_norm", rows=rows, cols=width)


def _dcgan(batch: int) -> Walk:
    """The generator of DCGAN: 100 random numbers to a 64x64 image."""
    yield lazy("dense", m=batch, k=100, n=4 * 4 * 1024, activation="relu")
    side, ci = 4, 1024
    for co, then in ((512, "bn,relu"), (256, "bn,relu"), (128, "bn,relu"), (3, "bias,tanh")):
        yield lazy("conv2d_transpose", n=batch, ci=ci, co=co, h=side, w=side, k=4, stride=2, padding=1, then=then)
        side, ci = 2 * side, co


_NETWORKS: dict[str, Callable[[int], Walk]] = {
    "resnet18": _resnet18,
    "resnet50": _resnet50,
    "mobilenet_v2": _mobilenet_v2,
    "bert_base": _bert_base,
    "dcgan": _dcgan,
    "resnet3d18": _resnet3d18,
}
