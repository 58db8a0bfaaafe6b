"""The time to write, open and query records, on one core.

python -m benchmarks.records [--json] [--only CASE] [--records N].  The targets are for a million records.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from searchlab.lab.records import Record, RecordStore, merge

# case -> (metric, target); targets in seconds are for a million records and scale with their number.
CASES = {
    "write": ("seconds", 60.0),
    "load": ("seconds", 10.0),
    "lookup-first": ("seconds", 2.0),
    "lookup": ("ms_per_record", 0.2),
    "stats": ("seconds", 15.0),
    "stats-unsealed": ("seconds", 15.0),
    "stats-memory": ("megabytes", 100.0),
    "iterate": ("seconds", 120.0),
    "merge": ("seconds", 30.0),
    "append": ("ms_per_record", 0.2),
    "append-fsync": ("ms_per_record", 20.0),
}
_APPENDS = 5000


def example(number: int, rng: random.Random) -> Record:
    """A record as searches write them: 20 tasks, one failure in eight, five repeats."""
    task, failed, time = number % 20, rng.random() < 0.125, rng.lognormvariate(-7.0, 1.0)
    return Record(
        task=f"matmul-{task:012x}",
        status=rng.choice(["build", "run", "timeout", "wrong"]) if failed else "ok",
        workload=f"matmul:m={32 * task},n=512,k=512,dtype=float32",
        label=f"matmul(m={32 * task}, n=512, k=512)",
        target="0123456789ab",
        cpu="znver3",
        threads=2,
        toolchain={"searchlab": "0.1.0", "codegen": "ab12", "llvm": "20.1.8", "llvmlite": "0.50.0", "numpy": "2.3.1"},
        protocol={"warmup": 1, "repeats": 5, "min_repeat_ms": 5.0, "cache": "warm", "check": True, "early_stop": 5.0},
        limits={"build_s": 20.0, "run_s": 10.0, "queue_s": None, "memory_bytes": 4 << 30},
        space="sketch",
        space_version="1",
        knobs={f"tile_{axis}": [rng.randrange(1, 65) for _ in range(4)] for axis in "ijk"} | {"unroll": 16},
        program=f"{rng.getrandbits(64):016x}",
        times=() if failed else tuple(time * rng.uniform(1.0, 1.1) for _ in range(5)),
        error="it did not work out" if failed else "",
        number=5,
        build_s=rng.random(),
        run_s=rng.random(),
        cell="0123456789ab",
        worker="machine/3",
        cores=(2,),
        timestamp="2026-07-01T12:00:00.123456+00:00",
        job=str(number),
    )


def timed(action: Callable[[], object]) -> dict[str, float]:
    wall, cpu = perf_counter(), process_time()
    action()
    return {"value": perf_counter() - wall, "cpu_seconds": process_time() - cpu}


def _append(store: RecordStore, records: list[Record]) -> None:
    for record in records:
        store.append(record)


def _load(path: Path) -> RecordStore:
    store = RecordStore(path)
    index = store.index
    for task in index.tasks:
        store.best(task)
        index.by_status(task)
    return store


def _unseal(path: Path, to: Path) -> None:
    """The same records as another tool would write them: with spaces and without checksums."""
    with path.open(encoding="ascii") as file, to.open("w", encoding="ascii") as out:
        for line in file:
            data = json.loads(line)
            del data["crc"]
            out.write(json.dumps(data) + "\n")


def _stats(path: Path) -> dict[str, float]:
    """Runs `searchlab records stats` in a separate process: its wall and CPU time, and its peak memory."""
    start = perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "searchlab", "records", "stats", path], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"records stats {path} ended with {status}")
    return {
        "value": perf_counter() - start,
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "megabytes": used.ru_maxrss / 1024,
    }


def rows(only: str | None, count: int, folder: Path) -> Iterator[dict[str, Any]]:
    path = folder / "records.jsonl"
    rng = random.Random(0)
    examples = [example(n, rng) for n in range(1000)]

    def row(case: str, value: float, **more: float) -> dict[str, Any]:
        metric, target = CASES[case]
        target = target * count / 1e6 if metric == "seconds" else target
        more["load_average"] = os.getloadavg()[0]  # other load on the machine slows all of this down
        return {"case": case, "metric": metric, "value": value, "target": target, "records": count, **more}

    def wants(case: str) -> bool:
        return only in (None, case)

    if any(wants(case) for case in CASES if not case.startswith("append")):
        made = (example(n, rng) for n in range(count))
        building = timed(lambda: [example(n, rng) for n in range(1000)])["value"] / 1000
        took = timed(lambda: RecordStore(path).extend(made))
        if wants("write"):  # creating the examples is not timed
            yield row("write", took["value"] - building * count, gigabytes=path.stat().st_size / 1e9)
    if wants("load"):
        yield row("load", **timed(lambda: _load(path)))
    if wants("lookup-first") or wants("lookup"):
        store = _load(path)
        keys = [record.key for record in store.top(500)]
        first = timed(lambda: store.lookup(keys[0]))
        each = timed(lambda: [store.lookup(key) for key in keys])["value"] / len(keys)
        yield from [row("lookup-first", **first)] if wants("lookup-first") else []
        yield from [row("lookup", each * 1e3)] if wants("lookup") else []
    if wants("stats"):
        yield row("stats", **_stats(path))
    if wants("stats-unsealed") or wants("stats-memory"):
        _unseal(path, folder / "unsealed.jsonl")
        took = _stats(folder / "unsealed.jsonl")
        yield from [row("stats-unsealed", **took)] if wants("stats-unsealed") else []
        yield from [row("stats-memory", took["megabytes"])] if wants("stats-memory") else []
    if wants("iterate"):
        yield row("iterate", **timed(lambda: sum(1 for _ in RecordStore(path))))
    if wants("merge"):
        yield row("merge", **timed(lambda: merge(RecordStore(folder / "merged.jsonl"), [RecordStore(path)])))
    for case, fsync, appends in (("append", False, _APPENDS), ("append-fsync", True, 100)):
        if wants(case):
            store = RecordStore(folder / f"{case}.jsonl", fsync)
            took = timed(lambda: _append(store, [examples[n % 1000] for n in range(appends)]))  # noqa: B023
            yield row(case, took["value"] / appends * 1e3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object per row")
    parser.add_argument("--only", choices=CASES, metavar="CASE", help=f"one of: {', '.join(CASES)}")
    parser.add_argument("--records", type=int, default=1_000_000, help="how many records the file has")
    parser.add_argument("--folder", help="where to write; the disk matters to append-fsync")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for row in rows(options.only, options.records, Path(folder)):
            verdict = "ok" if row["value"] <= row["target"] else "MISS"
            line = f"{row['case']:14s} {row['value']:9.4f} {row['metric']:14s} target {row['target']:<6g} {verdict}"
            print(json.dumps(row) if options.json else line, flush=True)


if __name__ == "__main__":
    main()
