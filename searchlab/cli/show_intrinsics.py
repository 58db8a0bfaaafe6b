"""`searchlab show WORKLOAD --intrinsics`: which instructions can compute its stages, how, and why others cannot."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from searchlab.cli.output import OutputForm, hint, out, print_rows, print_table, table
from searchlab.errors import WorkloadError

if TYPE_CHECKING:
    from searchlab.ir.expr import Expr
    from searchlab.ir.program import Program
    from searchlab.ir.stmt import Block
    from searchlab.targets import Target
    from searchlab.tensorization import IntrinsicFit, IteratorMapping, RoundedAxis
    from searchlab.workloads import Workload


def show_intrinsics(workload: Workload, spec: str, target_name: str, form: OutputForm | None) -> None:
    """All stages of a workload that add up, each with the intrinsics that can compute it; `spec` is what was typed."""
    from rich.markup import escape

    from searchlab import targets
    from searchlab.intrinsics import intrinsics
    from searchlab.tensorization import intrinsic_fits

    target, program = targets.parse(target_name), workload.program
    stages = [b for b in program.blocks.values() if b.reduces]
    if not stages:
        names = ", ".join(program.blocks)
        what = f"none of its stages ({names}) adds anything up, and intrinsics compute sums"
        raise WorkloadError(f"{workload.label}: no intrinsic can compute a part of it: {what}")
    known = list(intrinsics().values())
    found = {b.name: intrinsic_fits(program, b.name, known) for b in stages}
    if form:
        print_rows((_fields(workload, fit, target) for fits in found.values() for fit in fits), form)
        return
    here, kind = ("this machine", f" ({target.name})") if target_name == "native" else (target.name, "")
    out.print(f"[bold]{escape(workload.label)}[/]   intrinsics of {escape(here + kind)}")
    others = [name for name in program.blocks if name not in found]
    if others:
        out.print(f"[dim]no sum, so no intrinsic: {', '.join(others)}[/]")
    out.print()
    for name, fits in found.items():
        _print_stage(program, program.blocks[name], fits, target, here)
    _print_legend(spec, any(fit.count for fits in found.values() for fit in fits))


# --- rows -------------------------------------------------------------------------------------------------------------


def _fields(workload: Workload, fit: IntrinsicFit, target: Target) -> dict[str, Any]:
    return {
        "case": f"{workload.label} {fit.block} {fit.intrinsic.name}",
        "metric": "mappings",
        "value": fit.count,
        "target": target.name,
        "stage": fit.block,
        "intrinsic": fit.intrinsic.name,
        "family": fit.family,
        "form": fit.form,
        "results": fit.intrinsic.promise.words,
        "missing": list(fit.intrinsic.needs.missing(target)),
        "reason": fit.reason,
        "mappings": [_mapping_fields(workload.program, fit, m) for m in fit.first],
    }


def _mapping_fields(program: Program, fit: IntrinsicFit, mapping: IteratorMapping) -> dict[str, Any]:
    from searchlab.tensorization import rounded_axes

    rounded = rounded_axes(program, fit, mapping)
    return {
        "operands": dict(zip(fit.operands, mapping.operands, strict=True)),
        "axes": {r.axis: _names(group, mapping) for r, group in zip(rounded, mapping.groups, strict=True)},
        "outside": _names(mapping.outside, mapping),
        "padded": {r.axis: [_number(r.iterations), _number(r.rounded)] for r in rounded if r.iterations != r.rounded},
    }


def _names(iterators: Iterable[str], mapping: IteratorMapping) -> list[str]:
    from searchlab.tensorization import axis_name

    return [axis_name(v, mapping.block) for v in iterators]


def _number(e: Expr) -> int | str:
    from searchlab.ir.expr import value_of

    known = value_of(e)
    return str(e) if known is None else known


# --- printing ---------------------------------------------------------------------------------------------------------


def _print_legend(spec: str, matched: bool) -> None:
    from rich.markup import escape

    if matched:
        out.print(
            "[dim]Below a loop of an intrinsic: the loops of the stage that become it, and their iterations; those\n"
            "outside stay around the calls. Operands are copied to the layout that it reads, padded with zeros.[/]\n",
            soft_wrap=True,
        )
    hint(
        f"searchlab show {escape(shlex.quote(spec))} --intrinsics --target x86-64-v3   [dim]on another machine[/]",
        "searchlab list intrinsics   [dim]what each of them computes, and what it needs[/]",
    )


def _print_stage(program: Program, block: Block, fits: Sequence[IntrinsicFit], target: Target, here: str) -> None:
    from rich.markup import escape

    out.print(f"[bold green]Stage {escape(block.name)}[/]   {escape(_sum_text(block))}\n", soft_wrap=True)
    matching = [fit for fit in fits if fit.count]
    for form in dict.fromkeys((fit.form, fit.types) for fit in matching):
        _print_form(program, [fit for fit in matching if (fit.form, fit.types) == form], target, here)
    others = sorted((fit for fit in fits if not fit.count), key=lambda fit: not fit.near)  # the most telling first
    if others:
        title = "Intrinsics that cannot compute it" if matching else "No intrinsic can compute it"
        made = table("intrinsics", "why not", title=title)
        for reason in dict.fromkeys(fit.reason for fit in others):
            named = _families(fit for fit in others if fit.reason == reason)
            made.add_row(escape(named), escape(reason))
        print_table(made)


def _print_form(program: Program, fits: Sequence[IntrinsicFit], target: Target, here: str) -> None:
    """Intrinsics that compute the same: the ways to map loops to theirs, and those that the target has."""
    from rich.markup import escape

    first = fits[0]
    ways = f"{first.count:,} way{'s' * (first.count > 1)}"
    out.print(f"[bold]{escape(first.form)}[/]   {escape(first.types)}   in [bold]{ways}[/]", soft_wrap=True)
    having = [fit for fit in fits if not fit.intrinsic.needs.missing(target)]
    if having:
        _print_mappings(program, first)
        made = table("intrinsic", "padded in way 1", "more work", "results", right=("more work",))
        for fit in having:
            made.add_row(escape(fit.intrinsic.name), *_padding(program, fit), escape(_results(fit)))
        print_table(made)
    lacking = [fit for fit in fits if fit not in having]
    for missing in dict.fromkeys(", ".join(fit.intrinsic.needs.missing(target)) for fit in lacking):
        named = _families(fit for fit in lacking if ", ".join(fit.intrinsic.needs.missing(target)) == missing)
        out.print(f"[dim]{escape(here)} lacks {escape(missing)}:[/] {escape(named)}", soft_wrap=True)
    if lacking:
        out.print()


def _print_mappings(program: Program, fit: IntrinsicFit) -> None:
    from rich.markup import escape

    from searchlab.tensorization import rounded_axes

    made = table("", *fit.operands, *fit.axes, "outside")
    for number, mapping in enumerate(fit.first, 1):
        rounded = rounded_axes(program, fit, mapping)
        axes = [_fused(_names(g, mapping), r) for g, r in zip(mapping.groups, rounded, strict=True)]
        outside = ", ".join(_names(mapping.outside, mapping)) or "-"
        made.add_row(str(number), *map(escape, (*mapping.operands, *axes, outside)))
    if fit.count > len(fit.first):
        made.add_row("...", *("" for _ in (*fit.operands, *fit.axes)), "")
    print_table(made)


def _fused(names: Sequence[str], rounded: RoundedAxis) -> str:
    return f"{', '.join(names)} ({_number(rounded.iterations)})"


def _padding(program: Program, fit: IntrinsicFit) -> tuple[str, str]:
    """What the first mapping pads, and how much work that adds."""
    from searchlab.tensorization import rounded_axes

    rounded = rounded_axes(program, fit, fit.first[0])
    padded = [r for r in rounded if r.iterations != r.rounded]
    more: float | None = 1.0
    for r in padded:
        have, want = _number(r.iterations), _number(r.rounded)
        more = more * want / have if more and isinstance(have, int) and isinstance(want, int) else None
    words = ", ".join(f"{r.axis} {_number(r.iterations)} to {_number(r.rounded)}" for r in padded)
    return words or "-", "" if not padded else "not known yet" if more is None else f"{100 * (more - 1):.3g} %"


def _results(fit: IntrinsicFit) -> str:
    """How the results compare with those of the stage; how they are rounded is in the list of intrinsics."""
    promise = fit.intrinsic.promise
    return "rounded" if promise.tolerance else promise.words


def _sum_text(block: Block) -> str:
    """The stage as it is written, in the names of its axes."""
    from searchlab.ir.expr import Var
    from searchlab.ir.sums import as_sum
    from searchlab.ir.walk import Substitution
    from searchlab.tensorization import axis_name

    put = Substitution({it.var: Var(axis_name(it.var.name, block.name)) for it in block.iters})
    found = as_sum(block.store)
    where = ", ".join(str(put(i)) for i in block.store.indices)
    if found is None:
        return f"{block.store.buffer}[{where}] = {put(block.store.value)}"
    sign = "+=" if found.op == "add" else f"{found.op}="
    return f"{block.store.buffer}[{where}] {sign} {put(found.term)}"


def _families(fits: Iterable[IntrinsicFit]) -> str:
    """The names of intrinsics in short: avx2_f32_{6x16,4x24}, vnni_{u8s8,s8s8} for all of these families."""
    return ", ".join(_shortened([fit.intrinsic.name for fit in fits]))


def _shortened(names: Sequence[str]) -> Iterator[str]:
    by_family: dict[str, list[str]] = {}
    for name in names:
        family, _, rest = name.partition("_")
        by_family.setdefault(family, []).append(rest)
    for family, rests in by_family.items():
        if "" in rests or len(rests) == 1:
            yield from (f"{family}_{rest}".rstrip("_") for rest in rests)
            continue
        stems = dict.fromkeys(rest.rpartition("_")[0] for rest in rests)
        if len(stems) == 1 and (stem := next(iter(stems))):
            yield f"{family}_{stem}_{{{','.join(rest.rpartition('_')[2] for rest in rests)}}}"
        elif "" in stems:
            yield f"{family}_{{{','.join(rests)}}}"
        else:
            yield f"{family}_{{{','.join(stems)}}}"
