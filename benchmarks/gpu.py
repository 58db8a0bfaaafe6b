"""Kernels for GPUs without a GPU: python -m benchmarks.gpu [--json] [--only CASE] [--points N] [--data FOLDER].

`ptx` builds candidates, `features` computes features of a population, `emulator` runs a product of 64 x 64 x 64.
`hidet` compares what the space predicts of its 177 tiles of a product of 1024 x 1024 x 1024 with what ptxas says of
them (skipped where there is none).  `ranks` compares the modelled cost with times that others recorded on GPUs, of
kernels whose parameters are digits of axes here, too; their tables are looked for beside the project, and skipped if
they are not there.
"""

from __future__ import annotations

import argparse
import csv
import json
import lzma
import re
import statistics
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.claim_rows import Row, claim_row
from searchlab.analysis import extractor, schema
from searchlab.backend import backend_of, compile
from searchlab.cuda.cuda_backend import CudaArtifact
from searchlab.cuda.ptxas import assemble, find_ptxas
from searchlab.defaults import default_schedule
from searchlab.ir.compute import Builder, total
from searchlab.ir.expr import knob
from searchlab.ir.program import Program
from searchlab.schedule import Schedule
from searchlab.search import Task, space
from searchlab.tactics import axis_loops
from searchlab.tactics.block_tiling import AxisSplit, Digit, stage_for_block, tile_for_blocks
from searchlab.targets import CudaTarget, parse
from searchlab.workloads import parse as workload
from searchlab.workloads.building_blocks import sum_stage

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "gpu-replay"
PRODUCT = "matmul:m=1024,n=1024,k=1024"
CASES = ("ptx", "features", "emulator", "hidet", "ranks")
Floats = npt.NDArray[np.float64]


def _target(arch: str) -> CudaTarget:
    found = parse(f"cuda:arch={arch}")
    assert isinstance(found, CudaTarget)
    return found


def _built(program: Program, target: CudaTarget) -> CudaArtifact:
    made = backend_of(target).build(program, target)
    assert isinstance(made, CudaArtifact)
    return made


def ptx(points: int) -> Iterator[Row]:
    """How long it takes to make PTX of a candidate."""
    target = _target("sm_80")
    for name in ("task-mapping", "sketch", "template"):
        found = space(name, Task(workload(PRODUCT), target))
        took = []
        for point in found.sample_new(points, np.random.default_rng(0)).points:
            program = found.program(point)
            begin = time.perf_counter()
            _built(program, target)
            took.append(1e3 * (time.perf_counter() - begin))
        more = {"least": round(min(took), 1), "most": round(max(took), 1)}
        yield claim_row(f"ptx/{name}", "median_ms", statistics.median(took), 60.0, **more)


def features(points: int) -> Iterator[Row]:
    """Candidates whose features are computed in a second, once a sketch is compiled."""
    for name in ("task-mapping", "sketch", "template", "probabilistic"):
        found = space(name, Task(workload(PRODUCT), _target("sm_80")))
        some = found.sample(2048, np.random.default_rng(0))
        found.features(some, "summary")
        took = []
        for _ in range(7):
            begin = time.perf_counter()
            found.features(some, "summary")
            took.append(time.perf_counter() - begin)
        yield claim_row(f"features/{name}", "per_second", len(some) / statistics.median(took), 100_000, at_most=False)


def emulator(points: int) -> Iterator[Row]:
    """How long a product of 64 x 64 x 64 takes in the emulator."""
    target, w = _target("sm_80"), workload("matmul:m=64,n=64,k=64")
    inputs, kernel = w.inputs(0), compile(default_schedule(w.program, target), target)
    took = []
    for _ in range(5):
        begin = time.perf_counter()
        wrong = w.check(kernel(*inputs.values()), inputs)
        took.append(time.perf_counter() - begin)
        assert wrong is None, wrong
    yield claim_row("emulator", "seconds", statistics.median(took), 2.0, least=round(min(took), 3))


# --- what ptxas says --------------------------------------------------------------------------------------------------


def hidet(points: int) -> Iterator[Row]:
    """Spills, registers, shared memory and occupancy of all tiles, predicted and as ptxas has them."""
    if find_ptxas() is None:
        return
    target = _target("sm_80")
    found = space("task-mapping", Task(workload(PRODUCT), target))
    (number,) = (n for n, s in enumerate(found.sketches) if s.name == "simt")
    some = [p for p in found.enumerate() if int(p.sketch[0]) == number][: points if points < 177 else None]
    told, spills, fma = [], 0, 0.0
    for point in some:
        (kernel,) = _built(found.program(point), target).kernels
        made = assemble(kernel.text, target.arch)
        threads = int(np.prod(kernel.block))
        told.append((made.registers, made.shared, target.resident_blocks(threads, made.registers, made.shared)))
        spills += made.spills > 0
        if found.values(point) and _is_large(found.values(point)):
            fma = max(fma, fma_share(kernel.text))
    seen = np.array(told)
    columns = _columns(np.concatenate([found.features(p, "summary") for p in some]))
    more = {"points": len(some)}
    yield claim_row("hidet", "points_that_spill", spills, 0, **more)
    same = (np.round(columns["gpu_shared_bytes"]) == seen[:, 1]).mean()
    yield claim_row("hidet", "shared_as_predicted", float(same), 1.0, at_most=False, **more)
    same = (np.round(columns["gpu_resident"]) == seen[:, 2]).mean()
    yield claim_row("hidet", "resident_blocks_as_predicted", float(same), 1.0, at_most=False, **more)
    off = np.round(columns["gpu_registers"]) - seen[:, 0]
    yield claim_row(
        "hidet", "registers_too_many", float(np.median(off)), None, least=float(off.min()), most=float(off.max())
    )
    yield claim_row("hidet", "fma_share_128x128x8", fma, 0.85, at_most=False)


def _is_large(values: Mapping[str, npt.NDArray[np.int64]]) -> bool:
    """Whether a tile is one of 128 x 128 x 8."""
    v = {name: int(x[0]) for name, x in values.items()}
    rows, columns = v["block_m"] * v["warp_m"] * v["atom_m"] * 4, v["block_n"] * v["warp_n"] * v["atom_n"] * 4
    return (rows, columns, v["block_k"]) == (128, 128, 8)


def fma_share(text: str) -> float:
    """The share of fma among the instructions of the basic block that has most of them."""
    blocks = re.split(r"^\$?\w+:$|^\s*(?:@!?%p\d+ )?bra.*$", text, flags=re.MULTILINE)
    main = max(blocks, key=lambda b: b.count("fma."))
    lines = [line.strip() for line in main.splitlines() if line.strip().endswith(";")]
    return sum("fma." in line for line in lines) / max(1, len(lines))


def _columns(rows: npt.NDArray[np.float32]) -> dict[str, Floats]:
    return dict(zip(schema("summary").columns, np.exp2(rows.T.astype(np.float64)) - 1, strict=True))


# --- recorded tables --------------------------------------------------------------------------------------------------


def ranks(data: Path) -> Iterator[Row]:
    """Rank correlation of modelled costs with recorded times, and how good the model's favourites are."""
    for table, arch, model in (
        ("gemm@RTX_3090", "sm_86", products),
        ("gemm_milo-pool@A100", "sm_80", products),
        ("convolution@RTX_3090", "sm_86", windows),
        ("convolution_milo@A100", "sm_80", windows),
    ):
        path = data / f"{table}.csv.xz"
        if path.exists():
            yield from _ranked(table, model(_read(path), _target(arch)), _read(path)["time_ms"])


def _read(path: Path) -> dict[str, Floats]:
    with lzma.open(path, "rt") as file:
        rows = [r for r in csv.DictReader(file) if r["status"] == "ok"]
    return {name: np.array([float(r[name]) for r in rows]) for name in rows[0] if name != "status"}


def _ranked(table: str, cost: Floats, times: Floats) -> Iterator[Row]:
    known = np.isfinite(cost)
    a, b = (np.argsort(np.argsort(x[known])) for x in (cost, times))
    more = {"rows": int(known.sum()), "of": len(times)}
    yield claim_row(f"ranks/{table}", "rank_correlation", float(np.corrcoef(a, b)[0, 1]), None, **more)
    favourites = np.argsort(np.where(known, cost, np.inf))[:8]
    best = float(times[favourites].min() / times.min())
    random = float(np.mean([np.random.default_rng(n).choice(times, 8).min() for n in range(200)]) / times.min())
    yield claim_row(f"ranks/{table}", "best_of_8_over_optimum", best, None, random=round(random, 3))


def products(table: Mapping[str, Floats], target: CudaTarget) -> Floats:
    """Modelled costs of CLBlast's product of 4096 x 4096 x 4096, whose operands are stored by rows of the sum."""
    zeros = np.zeros(len(table["MWG"]))
    depth = table.get("KWG", zeros + 32)
    strided = {"m": table.get("STRM", zeros), "n": table.get("STRN", zeros)}
    values: dict[str, Floats] = {"depth": depth}
    for axis in "mn":
        big = axis.upper()
        threads, own, lanes = table[f"{big}DIMC"], table[f"{big}WG"] / table[f"{big}DIMC"], table[f"VW{big}"]
        values |= {f"t{axis}": threads, f"b{axis}": np.where(strided[axis] > 0, np.minimum(lanes, own), own)}
        values[f"a{axis}"] = own / values[f"b{axis}"]
    cost = np.full(len(depth), np.nan)
    for shared in ((), ("A",), ("B",), ("A", "B")):
        rows = (table["SA"] == ("A" in shared)) & (table["SB"] == ("B" in shared))
        if rows.any():
            found = extractor(_product(shared), "estimate", target)(
                {n: v[rows].astype(np.int64) for n, v in values.items()}
            )
            cost[rows] = found[:, 0]
    return cost


def _product(shared: tuple[str, ...]) -> Program:
    b = Builder("product")
    A, B, r = b.input("A", (4096, 4096), "float32"), b.input("B", (4096, 4096), "float32"), b.axis("k", 4096)
    s = Schedule(b.program(sum_stage(b, "C", (4096, 4096), lambda i, j: total(B[r, i] * A[r, j], r), "float32")))
    staged = stage_for_block(s, "C", shared=shared)
    (i, j), (k,) = axis_loops(s, staged.block)
    splits = [
        AxisSplit(
            loop,
            [None, knob(f"a{name}"), knob(f"t{name}"), knob(f"b{name}")],
            (Digit("block", axis), Digit("own", rank=2 + at), Digit("thread", axis), Digit("own", rank=4 + at)),
        )
        for at, (loop, name, axis) in enumerate(((i, "n", "y"), (j, "m", "x")))
    ]
    splits.append(AxisSplit(k, [None, knob("depth")], (Digit("step"), Digit("own", rank=1))))
    tile_for_blocks(s, staged, splits)
    return s.program


def windows(table: Mapping[str, Floats], target: CudaTarget) -> Floats:
    """Modelled costs of a window of 15 x 15 that slides over 4096 x 4096 elements."""
    cost = np.full(len(table["block_size_x"]), np.nan)
    names = {"tx": "block_size_x", "ty": "block_size_y", "ax": "tile_size_x", "ay": "tile_size_y"}
    used = table.get("use_shmem", np.ones(len(cost)))
    for shared in (True, False):
        rows = used == shared
        if rows.any():
            values = {ours: table[theirs][rows].astype(np.int64) for ours, theirs in names.items()}
            cost[rows] = extractor(_window(shared), "estimate", target)(values)[:, 0]
    return cost


def _window(shared: bool) -> Program:
    b = Builder("window")
    X, W = b.input("X", (4110, 4110), "float32"), b.input("W", (15, 15), "float32")
    y, x = b.axis("y", 15), b.axis("x", 15)
    out = sum_stage(b, "Y", (4096, 4096), lambda i, j: total(X[i + y, j + x] * W[y, x], y, x), "float32")
    s = Schedule(b.program(out))
    staged = stage_for_block(s, "Y", shared=("X",) if shared else ())
    (i, j), (ky, kx) = axis_loops(s, staged.block)
    from searchlab.tactics import RoundedUp

    splits = [
        AxisSplit(
            loop,
            RoundedUp((None, knob(f"a{name}"), knob(f"t{name}"))),
            (Digit("block", name), Digit("own", rank=5 + at), Digit("thread", name)),
        )
        for at, (loop, name) in enumerate(((i, "y"), (j, "x")))
    ]
    splits += [AxisSplit(loop, [None], (Digit("own", rank=at),)) for at, loop in enumerate((ky, kx))]
    tile_for_blocks(s, staged, splits)
    return s.program


# --- the command line -------------------------------------------------------------------------------------------------


def rows(options: argparse.Namespace) -> Iterator[Row]:
    """The rows of all cases, or of one."""
    for name in CASES if options.only is None else (options.only,):
        if name == "ranks":
            yield from ranks(options.data)
        else:
            yield from {"ptx": ptx, "features": features, "emulator": emulator, "hidet": hidet}[name](options.points)


def main() -> None:
    """Prints the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one object per row")
    parser.add_argument("--only", choices=CASES)
    parser.add_argument("--points", type=int, default=177, help="candidates that are built (default: 177)")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of recorded tables")
    options = parser.parse_args()
    for row in rows(options):
        if options.json:
            print(json.dumps(row), flush=True)
        else:
            verdict = {None: "", True: "ok", False: "MISS"}[row["held"]]
            goal = "" if row["target"] is None else f"{row['relation']} {row['target']:g}"
            extra = "  ".join(f"{k} {v}" for k, v in row.items() if k not in _SHOWN)
            print(
                f"{row['case']:28s} {row['metric']:28s} {row['value']:>14,}  {goal:16s} {verdict:5s} {extra}",
                flush=True,
            )


_SHOWN = ("case", "metric", "value", "target", "relation", "held")

if __name__ == "__main__":
    main()
