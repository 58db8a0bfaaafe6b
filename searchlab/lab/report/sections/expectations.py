"""The experiment's expectations, and whether they held."""

from __future__ import annotations

from searchlab.lab.report import claims
from searchlab.lab.report.blocks import Column, Section, TableBlock, TableCell
from searchlab.lab.report.material import Material

_TONES = {claims.HELD: "good", claims.REFUTED: "bad", claims.OPEN: "soft"}


def section(material: Material) -> Section | None:
    """One row per statement; None if there is none."""
    checked = claims.check(material)
    if not checked:
        return None
    columns = (
        Column("statement"),
        Column("result"),
        Column(
            "figures",
            False,
            "factor by which it is better, with its 95 % interval; Wilcoxon's test; pairs of task and seed",
        ),
        Column("source"),
    )
    rows = tuple(
        (TableCell(c.claim), TableCell(c.result, tone=_TONES[c.result]), TableCell(c.figures), TableCell(c.note or "–"))
        for c in checked
    )
    held = sum(c.result == claims.HELD for c in checked)
    note = (
        "A statement held if the figures support it beyond chance; where they point the same way but chance could do "
        "it, it is not decided."
    )
    return Section(
        "expectations",
        "Expectations",
        (TableBlock("claims", f"{held} of {len(checked)} statements of the experiment held", columns, rows, note),),
    )
