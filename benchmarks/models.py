"""Whole models beside torch and onnxruntime: python -m benchmarks.models [--json] [--only CASE] [--tuned FOLDER].

Every network runs at batch 1 with two threads, in turns with torch (eager, channels last, compiled and frozen) and
onnxruntime; `decoder-N` generates 64 tokens after a prompt of N.  `over_best` is the time of the fastest of these
divided by that of the compiled model, by fastest runs.  `--tuned FOLDER` adds the model with the schedules that a run
has found, compiled with the options that it decided on.  `compile` is the time from a module of torch to a compiled
ResNet-50, in seconds; `vm-overhead` the time that the virtual machine adds to a kernel.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.decoding import PROMPTS, decoder_module, decoding_peers, ours, prompt_of
from benchmarks.machine_overhead import overhead_rows
from benchmarks.networks import NETWORKS, Network, Peers, Run, first_of, peers_of
from experiments.models import resnet
from searchlab import Tuned, graph
from searchlab.targets import detect
from searchlab.timing.race import OtherLoad, race
from searchlab.timing.turns import Times

THREADS = 2
SECONDS, ROUNDS = 6.0, 4
TEXT_ROUNDS = 5  # of whole texts, which take half a second and more
COMPILE_S = 15.0
OURS = ("default", "tuned")
BESIDE = ("4 bits",)  # not the same work

Row = dict[str, Any]


def network_rows(network: Network, tuned: Any) -> Iterator[Row]:
    """The ratios of one network, with the times of everything that ran."""
    peers = peers_of(network, THREADS)
    module, inputs = network.graph(), network.inputs()
    target = detect().with_threads(THREADS)
    runs: dict[str, Run] = dict(peers.runs)
    for name, source in {"default": None, **({"tuned": tuned} if tuned else {})}.items():
        model = graph.compile(module, target, source, None if source is None else source.options)
        first_of(model(*inputs))
        runs[name] = lambda model=model: model(*inputs)  # type: ignore[misc]
    with OtherLoad() as load:
        times = race(runs, SECONDS, ROUNDS, threads=THREADS)
    yield from ratio_rows(network.name, times, {"default": network.default, "tuned": network.tuned}, load.share)
    yield from missing_rows(network.name, peers)


def missing_rows(case: str, peers: Peers) -> Iterator[Row]:
    """The systems that did not take part, with the reason."""
    for name, reason in peers.missing.items():
        yield {"case": case, "metric": f"missing: {name}", "value": None, "target": None, "reason": reason}


def ratio_rows(case: str, times: Mapping[str, Times], targets: Mapping[str, float], load: float) -> Iterator[Row]:
    """The ratios of ours to the best of the others, and all times."""
    others = [name for name in times if name not in (*OURS, *BESIDE)]
    best = min(others, key=lambda name: times[name].min, default="")
    for name in (n for n in OURS if n in times and others):
        ratio = times[best].min / times[name].min
        middle = times[best].median / times[name].median
        yield {"case": case, "metric": f"{name}_over_best", "value": round(ratio, 3), "target": targets[name],
               "median": round(middle, 3), "best": best}  # fmt: skip
    ms = {name: [round(1e3 * t.min, 3), round(1e3 * t.median, 3)] for name, t in times.items()}
    yield {"case": case, "metric": "ms", "value": ms["default"][0], "target": None, "min_median": ms, "load": load}


def decoder_rows(length: int, tuned: Any) -> Iterator[Row]:
    """The same for 64 new tokens after a prompt; with weights of 4 bits besides, which is other work."""
    module, functions = decoder_module()
    prompt, target = prompt_of(length), detect().with_threads(THREADS)
    peers = decoding_peers(module, prompt, THREADS)
    runs: dict[str, Run] = dict(peers.runs)
    for name, source in {"default": None, **({"tuned": tuned} if tuned else {})}.items():
        options = None if source is None else source.options
        runs[name] = ours(graph.compile(functions, target, source, options), prompt)
    runs["4 bits"] = ours(graph.compile(graph.quantise_weights(functions), target), prompt)
    with OtherLoad() as load:
        times = race(runs, SECONDS, TEXT_ROUNDS, threads=THREADS)
    yield from ratio_rows(f"decoder-{length}", times, {"default": 1.0, "tuned": 1.3}, load.share)
    yield from missing_rows(f"decoder-{length}", peers)


def compile_rows(tuned: Any) -> Iterator[Row]:
    """The time from a module of torch to a compiled model."""
    module, inputs = resnet.make(50).eval(), resnet.example_inputs(1)
    start = perf_counter()
    made = graph.from_torch(module, inputs)
    imported = perf_counter()
    graph.compile(made, detect().with_threads(THREADS))
    end = perf_counter()
    yield {"case": "resnet50", "metric": "compile_s", "value": round(end - start, 2), "target": COMPILE_S,
           "import_s": round(imported - start, 2)}  # fmt: skip


CASES: dict[str, Callable[[Any], Iterator[Row]]] = {
    **{name: lambda tuned, network=network: network_rows(network, tuned) for name, network in NETWORKS.items()},  # type: ignore[misc]
    **{f"decoder-{n}": lambda tuned, n=n: decoder_rows(n, tuned) for n in PROMPTS},  # type: ignore[misc]
    "compile": compile_rows,
    "vm-overhead": lambda tuned: overhead_rows(),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object per row")
    parser.add_argument("--only", choices=list(CASES), metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--tuned", type=Path, metavar="FOLDER", help="a run folder of `searchlab tune`")
    options = parser.parse_args()
    tuned = Tuned.from_run(options.tuned) if options.tuned else None
    for name, rows in CASES.items():
        if options.only in (None, name):
            for row in rows(tuned):
                print(json.dumps(row) if options.json else _line(row), flush=True)


def _line(row: Row) -> str:
    target = "" if row["target"] is None else f"  (target {row['target']})"
    more = {k: v for k, v in row.items() if k not in ("case", "metric", "value", "target")}
    return f"{row['case']:14s} {row['metric']:20s} {row['value']}{target}  {more or ''}"


if __name__ == "__main__":
    main()
