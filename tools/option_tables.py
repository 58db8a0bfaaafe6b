"""Fills the tables of options in the documentation from the code: names and defaults, in the order of the constructor.

    python tools/option_tables.py             # writes
    python tools/option_tables.py --check     # reports what is missing or out of date, and exits with 1

A table is enclosed in `<!-- options: KIND NAME -->` and `<!-- end -->`.  The meanings of options in the last column are
written by hand and preserved.  The figures of the shipped trees come from their card, between `<!-- card: gbt -->` and
`<!-- end -->`, and which operators match which intrinsics from the matching, after `<!-- coverage -->`.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

from searchlab.registry import Registry, accepted_options
from searchlab.search import MODELS, SPACES, STRATEGIES

DOCS = Path(__file__).parents[1] / "docs"
REGISTRIES: dict[str, Registry[Any]] = {"space": SPACES, "model": MODELS, "strategy": STRATEGIES}
OURS = ("searchlab", "spaces", "costmodels")
GIVEN = ("space", "rng")  # passed by the study
TABLE = re.compile(r"<!-- options: (\S+) (\S+) -->\n(.*?)<!-- end -->", re.DOTALL)
CARD = re.compile(r"<!-- card: gbt -->\n.*?<!-- end -->", re.DOTALL)
COVERAGE = re.compile(r"<!-- coverage -->\n.*?<!-- end -->", re.DOTALL)
# The heading of a column, the dtype of the operators in it, and an intrinsic of those that it stands for
COLUMNS = (
    ("`*_f32`", "float32", "avx2_f32_6x16"),
    ("`*_u8s8`", "uint8", "avx2_u8s8_8x4"),
    ("`amx_u8s8`", "uint8", "amx_u8s8_16x16x64"),
    ("`*_s8s8`", "int8", "avx2_s8s8_8x4"),
    ("`amx_s8s8`", "int8", "amx_s8s8_16x16x64"),
    ("`avx512bf16`", "bfloat16", "avx512bf16_16x2"),
    ("`amx_bf16`", "bfloat16", "amx_bf16_16x16x32"),
)
ROW = re.compile(r"^\| `(\w+)` \| .*? \| (.*) \|$", re.MULTILINE)


def components() -> dict[tuple[str, str], type]:
    """The components that come with searchlab, keyed by kind and name."""
    found = {(kind, name): cls for kind, known in REGISTRIES.items() for name, cls in known.all().items()}
    ours = {key: cls for key, cls in found.items() if cls.__module__.partition(".")[0] in OURS}
    return {(kind, name): cls for (kind, name), cls in ours.items() if name == cls.name}


def options(kind: str, cls: type) -> dict[str, Any]:
    """The options of a component with their defaults."""
    found = {name: value for name, value in accepted_options(cls).items() if name not in GIVEN}
    if kind != "model":
        return found
    made = cls()  # some constructors change defaults of their base class
    numbers = {name for name, value in found.items() if type(value) in (int, float)}
    return {name: getattr(made, name, value) if name in numbers else value for name, value in found.items()}


def default(value: Any) -> str:
    """A default as written in YAML; "built in" if it has no such form, "required" if there is none."""
    if value is inspect.Parameter.empty:
        return "required"
    try:
        return f"`{value if isinstance(value, str) else json.dumps(value)}`"
    except TypeError:
        return "built in"


def table(found: dict[str, Any], meanings: dict[str, str]) -> str:
    rows = [f"| `{name}` | {default(value)} | {meanings.get(name, '')} |\n" for name, value in found.items()]
    return "".join(["| option | default | meaning |\n|---|---|---|\n", *rows])


def card() -> str:
    """What the shipped trees were trained on, and how well they rank what was left out."""
    from costmodels.pretrained import read_card
    from costmodels.pretraining import table as figures

    found = read_card()
    on = "; ".join(found["machines"])
    made = f"{found['programs']} programs of {found['tasks']} tasks, on {on}; training took {found['seconds']:.0f} s"
    return f"{made}.\n\n{figures(found)}"


def coverage() -> str:
    """In how many ways intrinsics can compute the operators, for the default sizes of these."""
    from searchlab.workloads import operators

    heads = [head for head, _, _ in COLUMNS]
    lines = [f"| operator | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
    for name in operators():
        cells = [ways(name, dtype, intrinsic) for _, dtype, intrinsic in COLUMNS]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def ways(operator: str, dtype: str, intrinsic: str) -> str:
    """The number of mappings; "-" if there is none, and nothing if the operator does not take the type."""
    from searchlab.errors import WorkloadError
    from searchlab.intrinsics import find_intrinsic
    from searchlab.tensorization import intrinsic_fits
    from searchlab.workloads import workload

    try:
        program = workload(operator, dtype=dtype).program
    except WorkloadError:
        return ""
    stages = [b.name for b in program.blocks.values() if b.reduces]
    most = max(
        (fit.count for b in stages for fit in intrinsic_fits(program, b, [find_intrinsic(intrinsic)])), default=0
    )
    return f"{most:,}" if most else "-"


def filled(text: str, known: dict[tuple[str, str], type]) -> str:
    """A page with its tables regenerated."""

    def one(match: re.Match[str]) -> str:
        kind, name, old = match.groups()
        new = table(options(kind, known[kind, name]), dict(ROW.findall(old)))
        return f"<!-- options: {kind} {name} -->\n{new}<!-- end -->"

    text = CARD.sub(lambda _: f"<!-- card: gbt -->\n{card()}<!-- end -->", TABLE.sub(one, text))
    return COVERAGE.sub(lambda _: f"<!-- coverage -->\n{coverage()}<!-- end -->", text)


def problems(pages: dict[Path, str], known: dict[tuple[str, str], type]) -> list[str]:
    """Tables that are missing or out of date, and options without a meaning."""
    found = [f"{p.name}: out of date" for p, text in pages.items() if filled(text, known) != text]
    there = {(kind, name) for text in pages.values() for kind, name, _ in TABLE.findall(text)}
    wanted = {key for key, cls in known.items() if options(key[0], cls)}
    found += [f"no table of options: {kind} {name}" for kind, name in sorted(wanted - there)]
    empty = [(kind, name) for t in pages.values() for kind, name, rows in TABLE.findall(t) if "|  |" in rows]
    return found + [f"an option is not described: {kind} {name}" for kind, name in empty]


def main() -> int:
    known = components()
    pages = {p: p.read_text() for p in sorted(DOCS.rglob("*.md"))}
    if "--check" in sys.argv:
        found = problems(pages, known)
        print(*found, sep="\n")
        return int(bool(found))
    for page, text in pages.items():
        if (new := filled(text, known)) != text:
            page.write_text(new)
            print(f"wrote {page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
