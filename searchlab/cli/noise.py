"""`searchlab noise`: A/A tests and repeated rankings on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from searchlab.cli.names import resolve
from searchlab.cli.output import AsCsv, AsJson, duration, err, form, hint, out, print_rows, print_table, table
from searchlab.errors import WorkloadError

if TYPE_CHECKING:
    from rich.table import Table

    from searchlab.measure import Job, Measurer
    from searchlab.measure.noise import Floor, Noise, ProtocolChoice, ProtocolNoise, RankingStability
    from searchlab.targets import Target
    from searchlab.workloads import Workload

# About half a millisecond: shorter than any slice, longer than what the clock and the call cost.
_DEFAULT = "matmul:m=256,n=256,k=256"
# Rows and columns of register tiles, some of them close to each other in speed, as the last candidates of a search are.
_TILES = ((4, 32), (6, 32), (8, 32), (4, 64), (6, 64), (8, 16))
_RANKED = {"m": 192, "n": 256, "k": 256}
_SAMPLING_SHARE = 0.7
_BUSY = 0.1  # the share of slices that may be slow before the figures are called into question


def noise_command(
    name: Annotated[str, typer.Argument(metavar="[WORKLOAD]", help="The workload to measure repeatedly.")] = _DEFAULT,
    seconds: Annotated[float, typer.Option(min=0.0, help="Approximate duration in seconds.")] = 30.0,
    threads: Annotated[int, typer.Option(min=1, help="Threads of the kernel.")] = 1,
    goal: Annotated[float, typer.Option(min=0.0, help="The difference to resolve, in percent.")] = 2.0,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Measure the same kernel as if it were two candidates, and find out which protocol is good enough here.

    Also ranks a few real candidates again and again: how often is the best one the best?
    """
    from searchlab.measure.noise import choose, judge, judge_ranking, rank_again, sample
    from searchlab.targets import detect

    wanted, workload, target = form(as_json, as_csv), _workload(name), detect(threads)
    with _measurer() as measurer:
        _say(f"measuring {workload.label} for about {seconds:.0f} s; leave the machine alone")
        visits = list(sample(measurer, _job(workload, target), _SAMPLING_SHARE * seconds))
        noise = judge(visits)
        choice = choose(noise, goal / 100)
        jobs = _candidates(target, choice)
        figures = rank_again(measurer, jobs, (1 - _SAMPLING_SHARE) * seconds)
    ranking = judge_ranking(figures)
    if wanted:
        print_rows(_fields(workload, target, noise, choice, ranking, [job.id for job in jobs]), wanted)
    else:
        _print(workload, target, noise, choice, ranking, goal / 100)


def _measurer() -> Measurer[Job]:
    from searchlab.measure.local import LocalMeasurer

    return LocalMeasurer(on_wait=_say)


def _workload(name: str) -> Workload:
    group = resolve(name)
    if group.kind != "workload":
        raise WorkloadError(f"'{name}' is a {group.kind}; noise is measured on a single workload")
    workload = group.entries[0].workload
    if workload.sizes:
        raise WorkloadError(f"{name}: give numbers instead of the run-time sizes {', '.join(workload.sizes)}")
    return workload


def _job(workload: Workload, target: Target) -> Job:
    from searchlab.defaults import default_schedule
    from searchlab.measure import Job

    return Job("noise", workload, target, default_schedule(workload.program, target))


def _candidates(target: Target, choice: ProtocolChoice) -> list[Job]:
    """A product with several register tiles, to be timed by the protocol that was chosen."""
    from searchlab.ir import knob
    from searchlab.measure import Job
    from searchlab.schedule import Schedule
    from searchlab.workloads import workload

    product = workload("matmul", **_RANKED)
    s = Schedule(product.program)
    i, j, k = s.loops("C")
    i0, i1 = s.split(i, [None, knob("rows")])
    j0, j1 = s.split(j, [None, knob("columns")])
    s.reorder(i0, j0, k, i1, j1)
    s.unroll(i1)
    s.vectorize(j1)
    found = []
    for rows, columns in _TILES:
        program = s.program.substitute({"rows": rows, "columns": columns})
        job = Job(f"{rows}x{columns}", product, target, program)
        p = choice.protocol
        protocol = replace(job.protocol, repeats=p.repeats, min_repeat_ms=p.min_repeat_ms, steady=p.steady)
        found.append(replace(job, protocol=replace(protocol, early_stop=None, beaten=None)))
    return found


def _say(text: str) -> None:
    """Told to people who wait, not to files. Nothing moves while times are taken: a spinner would need a core."""
    if err.is_terminal:
        err.print(text, style="dim", markup=False, soft_wrap=True)


# --- printing ---------------------------------------------------------------------------------------------------------


def _fields(
    workload: Workload,
    target: Target,
    noise: Noise,
    choice: ProtocolChoice,
    ranking: RankingStability,
    candidates: list[str],
) -> Iterator[dict[str, Any]]:
    common = {"workload": workload.spec, "cpu": target.name, "threads": target.threads}
    for protocol in noise.protocols:
        yield {"kind": "protocol", **asdict(protocol), **common}
    whole = {key: value for key, value in asdict(noise).items() if key != "protocols"}
    yield {"kind": "noise", **whole, **common}
    yield {"kind": "choice", "reached": choice.reached, **asdict(choice.protocol), **common}
    yield {
        "kind": "ranking",
        "candidates": candidates,
        **asdict(ranking),
        "cpu": target.name,
        "threads": target.threads,
    }


def _print(
    workload: Workload, target: Target, noise: Noise, choice: ProtocolChoice, ranking: RankingStability, goal: float
) -> None:
    from rich.markup import escape

    out.print(f"\n[bold]{escape(workload.label)}[/], {duration(noise.run_s)} a run, {noise.visits} visits")
    out.print(f"[dim]{escape(str(target))}[/]\n")
    print_table(_table(noise, choice))
    out.print(
        "[dim]Each cell: median / 95th percentile of the difference, in percent, between two measurements of"
        " the same kernel.\nin turns: interleaved repeats; in sequence: one after the other; apart: another job at"
        " another moment, as in a search.\nsteady: samples from slow phases of the core are retaken.[/]\n"
    )
    out.print(
        f"drift over the run [bold]{_percent(noise.drift)}[/]   preempted slices [bold]{_percent(noise.preempted)}[/]"
        f"\nslices 10 % slower than fast ones [bold]{_percent(noise.disturbed)}[/]"
        f"   slices with a slow clock probe [bold]{_percent(noise.slow)}[/]\n"
    )
    _print_choice(noise, choice, goal)
    _print_ranking(ranking)
    if max(noise.preempted, noise.disturbed) > _BUSY:
        out.print(
            "[bold yellow]The machine was busy.[/] Stop other programs, or measure at another time: no protocol can"
            " compensate for a shared core.\n"
        )
    hint("searchlab doctor   [dim]possible reasons[/]")


def _table(noise: Noise, choice: ProtocolChoice) -> Table:
    medians = [p for p in noise.protocols if p.estimator == "median"]
    shown = ("timing", "turns", "sequence", "apart")
    kinds = sorted({p.steady for p in medians})
    titles = {"turns": "in turns", "sequence": "in sequence"}
    header = [f"{titles.get(name, name)}\n[dim]{'steady' if s else 'all'}[/]" for s in kinds for name in shown]
    found = table("repeats", "ms each", *header, right=("repeats", "ms each", *header))
    for first in (p for p in medians if p.steady == kinds[0]):
        size = (first.repeats, first.min_repeat_ms)
        same = [p for p in medians if (p.repeats, p.min_repeat_ms) == size]
        cells = [_cell(p, name, choice) for p in same for name in shown]
        found.add_row(str(first.repeats), f"{first.min_repeat_ms:g}", *cells)
    return found


def _cell(protocol: ProtocolNoise, name: str, choice: ProtocolChoice) -> str:
    if name == "timing":
        text = duration(protocol.timing_s)
    else:
        floor: Floor = getattr(protocol, name)
        text = f"{100 * floor.median:.1f} / {100 * floor.p95:.1f}" if floor.pairs else "[dim]-[/]"
    return f"[bold green]{text}[/]" if protocol == choice.protocol else text


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _print_choice(noise: Noise, choice: ProtocolChoice, goal: float) -> None:
    p = choice.protocol
    text = f"repeats={p.repeats}, min_repeat_ms={p.min_repeat_ms:g}, steady={p.steady}"
    cost = f"{duration(p.timing_s)} of timing, {duration(p.timing_s + noise.overhead_s)} with building and starting"
    if choice.reached:
        reached = f"resolves {_percent(goal)} here (p95 {_percent(p.apart.p95)})"
        out.print(f"[bold]{text}[/] {reached}; a trial takes {cost}.")
    else:
        out.print(
            f"[bold yellow]No protocol resolves {_percent(goal)} here.[/] The best value is [bold]{text}[/]"
            f" with a p95 of {_percent(p.apart.p95)}; a trial takes {cost}. Interleave finalists, in many rounds."
        )


def _print_ranking(ranking: RankingStability) -> None:
    out.print(
        f"{len(ranking.seconds)} tilings of a product, ranked {ranking.rounds} times with that protocol: Kendall's tau"
        f" [bold]{ranking.tau:.2f}[/]; two rankings had the same best in [bold]{ranking.same_best:.0%}[/] of cases (the"
        f" second is {_percent(ranking.gap)} behind); trusting one ranking costs [bold]{_percent(ranking.regret)}[/].\n"
    )
