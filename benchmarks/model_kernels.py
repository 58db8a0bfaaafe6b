"""Kernels of networks by default schedules: python -m benchmarks.model_kernels [--json] [--only TEXT] [--seconds S].

Every distinct kernel that ResNet-18, MobileNet-V2, BERT-base and the decoder of `experiments.models` need at batch 1 is
raced on two threads, weights bound ahead, against the fastest library (numpy, torch, torch in channels_last,
onnxruntime).  `ratio` is the library's best time divided by ours; above 1 we are faster.  `count` says how often the
kernel occurs, and the rows `all` divide the sums of a network's best library times by the sum of ours.

`--only` takes the kernels whose name (`resnet/3x3-64`) contains a text.  All of it takes about two minutes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.kernel_graphs import BERT, DECODER, GraphCase
from benchmarks.peak import peak_flops
from searchlab.bench import libraries, prepare, race, threads
from searchlab.runtime.memory import placed
from searchlab.targets import Target, detect
from searchlab.workloads import parse

GOAL, THREADS = 1.0, 2


@dataclass(frozen=True)
class WorkloadCase:
    """A kernel that is a fused operator of `workloads`."""

    name: str
    spec: str
    count: int = 1

    def contenders(self, target: Target) -> dict[str, Callable[[], Any]]:
        """The default schedule, checked, as `ours`, and the libraries."""
        workload = parse(self.spec)
        inputs = {n: placed(x) for n, x in workload.inputs().items()}
        run, outputs = prepare(workload, inputs, target, pack_weights=True)
        run()
        if (wrong := workload.check(outputs, inputs)) is not None:
            raise SystemExit(f"{self.name}: wrong result: {wrong}")
        return {"ours": run, **libraries(workload, inputs, target.threads)}

    @property
    def work(self) -> tuple[float, float]:
        """Floating-point operations, and bytes that are read and written at least."""
        workload = parse(self.spec)
        return workload.flops, workload.bytes


def _conv(ci: int, co: int, side: int, k: int, stride: int = 1, then: str = "bias,relu") -> str:
    return f"conv2d:ci={ci},co={co},h={side},w={side},k={k},stride={stride},padding={k // 2},then={then}"


def _depthwise(c: int, side: int, stride: int = 1) -> str:
    return f"depthwise_conv2d:c={c},h={side},w={side},k=3,stride={stride},padding=1,then={_SIX}"


_ADD, _SIX = "bias,add,relu", "bias,relu6"
RESNET = (
    WorkloadCase("resnet/7x7", _conv(3, 64, 224, 7, 2)),
    WorkloadCase("resnet/max-pool", "max_pool2d:c=64,h=112,w=112,k=3,stride=2,padding=1"),
    WorkloadCase("resnet/3x3-64", _conv(64, 64, 56, 3), 2),
    WorkloadCase("resnet/3x3-64-add", _conv(64, 64, 56, 3, then=_ADD), 2),
    WorkloadCase("resnet/3x3-64-128-s2", _conv(64, 128, 56, 3, 2)),
    WorkloadCase("resnet/1x1-64-128-s2", _conv(64, 128, 56, 1, 2, then="bias")),
    WorkloadCase("resnet/3x3-128", _conv(128, 128, 28, 3)),
    WorkloadCase("resnet/3x3-128-add", _conv(128, 128, 28, 3, then=_ADD), 2),
    WorkloadCase("resnet/3x3-128-256-s2", _conv(128, 256, 28, 3, 2)),
    WorkloadCase("resnet/1x1-128-256-s2", _conv(128, 256, 28, 1, 2, then="bias")),
    WorkloadCase("resnet/3x3-256", _conv(256, 256, 14, 3)),
    WorkloadCase("resnet/3x3-256-add", _conv(256, 256, 14, 3, then=_ADD), 2),
    WorkloadCase("resnet/3x3-256-512-s2", _conv(256, 512, 14, 3, 2)),
    WorkloadCase("resnet/1x1-256-512-s2", _conv(256, 512, 14, 1, 2, then="bias")),
    WorkloadCase("resnet/3x3-512", _conv(512, 512, 7, 3)),
    WorkloadCase("resnet/3x3-512-add", _conv(512, 512, 7, 3, then=_ADD), 2),
    WorkloadCase("resnet/average-pool", "global_avg_pool2d:c=512,h=7,w=7"),
    WorkloadCase("resnet/classifier", "dense:m=1,k=512,n=1000"),
)
MOBILENET = (
    WorkloadCase("mobilenet/3x3-s2", _conv(3, 32, 224, 3, 2, then=_SIX)),
    WorkloadCase("mobilenet/depthwise-32", _depthwise(32, 112)),
    WorkloadCase("mobilenet/1x1-32-16", _conv(32, 16, 112, 1, then="bias")),
    WorkloadCase("mobilenet/1x1-16-96", _conv(16, 96, 112, 1, then=_SIX)),
    WorkloadCase("mobilenet/depthwise-96-s2", _depthwise(96, 112, 2)),
    WorkloadCase("mobilenet/1x1-96-24", _conv(96, 24, 56, 1, then="bias")),
    WorkloadCase("mobilenet/1x1-24-144", _conv(24, 144, 56, 1, then=_SIX), 2),
    WorkloadCase("mobilenet/depthwise-144", _depthwise(144, 56)),
    WorkloadCase("mobilenet/1x1-144-24-add", _conv(144, 24, 56, 1, then="bias,add")),
    WorkloadCase("mobilenet/depthwise-144-s2", _depthwise(144, 56, 2)),
    WorkloadCase("mobilenet/1x1-144-32", _conv(144, 32, 28, 1, then="bias")),
    WorkloadCase("mobilenet/1x1-32-192", _conv(32, 192, 28, 1, then=_SIX), 3),
    WorkloadCase("mobilenet/depthwise-192", _depthwise(192, 28), 2),
    WorkloadCase("mobilenet/1x1-192-32-add", _conv(192, 32, 28, 1, then="bias,add"), 2),
    WorkloadCase("mobilenet/depthwise-192-s2", _depthwise(192, 28, 2)),
    WorkloadCase("mobilenet/1x1-192-64", _conv(192, 64, 14, 1, then="bias")),
    WorkloadCase("mobilenet/1x1-64-384", _conv(64, 384, 14, 1, then=_SIX), 4),
    WorkloadCase("mobilenet/depthwise-384", _depthwise(384, 14), 4),
    WorkloadCase("mobilenet/1x1-384-64-add", _conv(384, 64, 14, 1, then="bias,add"), 3),
    WorkloadCase("mobilenet/1x1-384-96", _conv(384, 96, 14, 1, then="bias")),
    WorkloadCase("mobilenet/1x1-96-576", _conv(96, 576, 14, 1, then=_SIX), 3),
    WorkloadCase("mobilenet/depthwise-576", _depthwise(576, 14), 2),
    WorkloadCase("mobilenet/1x1-576-96-add", _conv(576, 96, 14, 1, then="bias,add"), 2),
    WorkloadCase("mobilenet/depthwise-576-s2", _depthwise(576, 14, 2)),
    WorkloadCase("mobilenet/1x1-576-160", _conv(576, 160, 7, 1, then="bias")),
    WorkloadCase("mobilenet/1x1-160-960", _conv(160, 960, 7, 1, then=_SIX), 3),
    WorkloadCase("mobilenet/depthwise-960", _depthwise(960, 7), 3),
    WorkloadCase("mobilenet/1x1-960-160-add", _conv(960, 160, 7, 1, then="bias,add"), 2),
    WorkloadCase("mobilenet/1x1-960-320", _conv(960, 320, 7, 1, then="bias")),
    WorkloadCase("mobilenet/1x1-320-1280", _conv(320, 1280, 7, 1, then=_SIX)),
    WorkloadCase("mobilenet/average-pool", "global_avg_pool2d:c=1280,h=7,w=7"),
    WorkloadCase("mobilenet/classifier", "dense:m=1,k=1280,n=1000"),
)
KernelCase = WorkloadCase | GraphCase
CASES: tuple[KernelCase, ...] = (*RESNET, *MOBILENET, *BERT, *DECODER)


def measured(case: KernelCase, target: Target, seconds: float) -> dict[str, Any]:
    """The row of a kernel: its ratio, all times in milliseconds, and the share of this machine's peak."""
    with threads(target.threads):
        times = race(case.contenders(target), seconds, 3, target.threads)
    ms = {name: 1e3 * t.min for name, t in times.items()}
    ours = ms.pop("ours")
    best = min(ms, key=ms.__getitem__)
    flops, moved = case.work
    row = {"case": case.name, "metric": "ratio", "value": round(ms[best] / ours, 3), "target": GOAL}
    row |= {"count": case.count, "ours_ms": round(ours, 4), "best_ms": round(ms[best], 4), "library": best}
    row["gflops"] = round(flops / ours / 1e6, 1)
    row["gbytes"] = round(moved / ours / 1e6, 1)
    return row | {"percent_of_peak": round(100 * flops / (ours / 1e3) / (peak_flops(target) * target.threads), 1)}


def rows(only: str, seconds: float) -> Iterator[dict[str, Any]]:
    """The rows of all chosen kernels, and of every network that has several."""
    target = detect(THREADS)
    found: dict[str, list[dict[str, Any]]] = {}
    for case in CASES:
        if only in case.name:
            row = measured(case, target, seconds)
            found.setdefault(case.name.partition("/")[0], []).append(row)
            yield row
    for network, made in found.items():
        if len(made) > 1:
            yield _summary(network, made)


def _summary(network: str, made: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    ours, best = (sum(r["count"] * r[key] for r in made) for key in ("ours_ms", "best_ms"))
    row = {"case": f"{network}/all", "metric": "ratio", "value": round(best / ours, 3), "target": GOAL}
    return row | {"ours_ms": round(ours, 3), "best_ms": round(best, 3)}


def _line(row: Mapping[str, Any]) -> str:
    verdict = "ok  " if row["value"] >= row["target"] else "MISS"
    head = f"{row['case']:28s} {row['value']:6.2f} {verdict}  ours {row['ours_ms']:8.4f} ms"
    if "library" not in row:
        return f"{head}  libraries {row['best_ms']:8.4f} ms"
    rates = f"{row['gflops']:6.1f} GFLOP/s {row['percent_of_peak']:5.1f} % of peak {row['gbytes']:5.1f} GB/s"
    return f"{head}  {row['library']:11s} {row['best_ms']:8.4f} ms  x{row['count']:<2d} {rates}"


def main() -> None:
    """Prints the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object per row")
    parser.add_argument("--only", default="", metavar="TEXT", help="the kernels whose names contain this")
    parser.add_argument("--seconds", type=float, default=0.5, help="how long each race lasts at least")
    options = parser.parse_args()
    for row in rows(options.only, options.seconds):
        print(json.dumps(row) if options.json else _line(row), flush=True)


if __name__ == "__main__":
    main()
