"""The best program of every task: facts about it and, on demand, its loops, LLVM IR and assembly."""

from __future__ import annotations

from searchlab.errors import SearchLabError
from searchlab.lab.export.finding import best_programs
from searchlab.lab.folder.found import Found
from searchlab.lab.report.blocks import Block, CodeBlock, ProgramText, Section, Words
from searchlab.lab.report.material import Material
from searchlab.lab.report.words import cost, digits, listed, seconds
from searchlab.lab.results import CellResult, to_take
from searchlab.lab.statistics.wording import kept, share_of_optimum

_CODE = 12  # tasks whose machine code is shown; the code of all would bloat the page
_LINES = 2000


def section(material: Material) -> Section | None:
    """The section; None if no program was found."""
    best = [
        to_take(found) or min(found, key=lambda c: c.final_s)
        for t in material.tasks
        if (found := [c for c in material.working if c.task == t])
    ]
    if not best:
        return None
    rebuilt, problems = _rebuilt(material)
    lead = "The program of each task to take home: the fastest over all entries and seeds, or the default schedule."
    blocks: list[Block] = [Words(lead)]
    blocks += [Words(f"Programs cannot be shown: {p}.", "note") for p in problems]
    singles = [cell for cell in best if cell.best is None or not cell.best.parts]
    shown = [
        (c.task, (*_kept(c), *_facts(material, c), *_code_facts(found)), found)
        for c in singles
        for found in [rebuilt.get((c.id, c.task))]
    ]
    shown += [(task, _of_network(f), f) for (_, task), f in rebuilt.items() if task not in material.tasks]
    for n, (task, facts, program) in enumerate(shown):
        blocks.append(ProgramText(task, facts, _texts(program, n < _CODE) if program else ()))
    return Section("programs", "Best programs", tuple(blocks))


def _rebuilt(material: Material) -> tuple[dict[tuple[str, str], Found], list[str]]:
    """The programs of hardware runs whose folders exist, keyed by cell and task; and why others are missing."""
    found: dict[tuple[str, str], Found] = {}
    problems = []
    for run in material.runs:
        if run.folder and not run.recorded:
            try:
                best = best_programs(run.folder)
                found |= {(programs[0].cell.id, task): programs[0] for task, programs in best.items()}
            except SearchLabError as e:
                problems.append(str(e))
    return found, problems


def _of_network(found: Found) -> tuple[tuple[str, str], ...]:
    """Facts about the program of a network's task."""
    facts = [_figure(found.seconds, found.cell.modelled), ("found by", f"{found.entry}, seed {found.cell.seed}")]
    if found.beaten_s is not None:
        facts = [("to take home", kept(found.seconds, found.beaten_s)), *facts]
    for name, took in found.baselines.items():
        facts.append((name, f"{seconds(took)}, {digits(took / found.seconds)} times the best's time"))
    return (*facts, ("point", found.point), *_code_facts(found))


def _code_facts(found: Found | None) -> tuple[tuple[str, str], ...]:
    """What was noted about the code when it was measured."""
    return () if found is None else tuple(found.code_facts.items())


def _figure(value: float, modelled: bool) -> tuple[str, str]:
    return "modelled cost" if modelled else "time", cost(value, modelled)


def _kept(cell: CellResult) -> tuple[tuple[str, str], ...]:
    """That the default schedule is the program shown, where it beat the search whose facts follow."""
    if cell.best is None or cell.best.origin == "search":
        return ()
    return (("to take home", kept(cell.taken_s, cell.final_s)),)


def _facts(material: Material, cell: CellResult) -> tuple[tuple[str, str], ...]:
    optimum = material.recorded and cell.optimum_s
    facts = [_figure(cell.final_s, cell.cell.modelled), ("found by", f"{cell.entry}, seed {cell.seed}")]
    for name, took in cell.baselines.items():
        facts.append((name, f"{seconds(took)}, {digits(took / cell.final_s)} times the best's time"))
    if optimum:
        facts.append(("optimum of the table", f"{seconds(optimum)}; found: {share_of_optimum(cell.final_s, optimum)}"))
    if cell.best is not None:
        facts.append(("in trial", f"{cell.best.trial + 1} of {len(cell.seconds)}"))
        facts += [("point", cell.best.point)] if cell.best.point else []
    others = [
        c.entry for c in material.working if c.task == cell.task and c.final_s <= cell.final_s * (1 + material.tie)
    ]
    same = [e for e in dict.fromkeys(others) if e != cell.entry]
    if same:
        facts.append(("as fast, within ties", listed(same)))
    return tuple(facts)


def _texts(found: Found, code: bool) -> tuple[CodeBlock, ...]:
    """The program and its generated code; an error message replaces a program that cannot be rebuilt."""
    from searchlab.backend import backend_of

    try:
        texts = [CodeBlock("loops", str(found.program))]
        if code:
            backend = backend_of(found.target)
            texts += [
                CodeBlock(form, _cut(backend.listing(found.program, found.target, form))) for form in backend.forms
            ]
    except SearchLabError as e:
        return (CodeBlock("reason why there is no program", str(e)),)
    return tuple(texts)


def _cut(text: str) -> str:
    lines = text.splitlines()
    if len(lines) <= _LINES:
        return text
    return "\n".join(
        [*lines[:_LINES], f"... {len(lines) - _LINES} more lines; `searchlab best --export` writes them all"]
    )
