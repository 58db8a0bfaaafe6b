"""Colours and the style of figures: one list of rules for the page (light, dark, print) and for files."""

from __future__ import annotations

import re

COLOURS = 8  # further entries reuse the colours with another dash pattern

# Safe for colour-blind readers: hues of Okabe and Ito, darker or lighter as the background requires.
_LIGHT_ENTRIES = ("#0072b2", "#d55e00", "#009e73", "#b8578f", "#c98500", "#3d9fd8", "#5b5b5b", "#44337a")
_DARK_ENTRIES = ("#4c9be8", "#ff8a4c", "#3fc79a", "#ea9ccb", "#f2b84b", "#a6e1fa", "#b9bcc2", "#b3a2f2")
# Phases and failures are not entries: they have tints of colours that no entry has.
_LIGHT_PARTS = (
    "#1d5c63", "#3f8188", "#79aab0", "#b4d0d3", "#8a5a2b", "#b58452", "#d9b48a", "#eeddc8",
    "#5f6670", "#969ca6", "#cdd1d7",
)  # fmt: skip
_DARK_PARTS = (
    "#a9dbe0", "#76b4bb", "#4a8a91", "#2c6067", "#f0cfa6", "#d3a46f", "#a1713d", "#694724",
    "#c9ced6", "#8d949e", "#565c66",
)  # fmt: skip

_BASE_LIGHT = {
    "ink": "#1c2330", "soft": "#5a6372", "faint": "#c9ced6", "hair": "#e4e7ec", "ground": "#ffffff", "panel": "#f6f7f9",
    "accent": "#0b5cad", "win": "#0072b2", "lose": "#d55e00", "good": "#0a7a55", "bad": "#b93a06",
}  # fmt: skip
_BASE_DARK = {
    "ink": "#e6e9ef", "soft": "#a2abb9", "faint": "#4a5160", "hair": "#2b313c", "ground": "#14171d", "panel": "#1c2028",
    "accent": "#7db8f5", "win": "#3d8fe0", "lose": "#e0783a", "good": "#52c79b", "bad": "#ff8a5c",
}  # fmt: skip


def _named(base: dict[str, str], entries: tuple[str, ...], parts: tuple[str, ...]) -> dict[str, str]:
    return base | {f"e{n}": colour for n, colour in enumerate(entries)} | {f"p{n}": c for n, c in enumerate(parts)}


LIGHT = _named(_BASE_LIGHT, _LIGHT_ENTRIES, _LIGHT_PARTS)
DARK = _named(_BASE_DARK, _DARK_ENTRIES, _DARK_PARTS)
PARTS = len(_LIGHT_PARTS)

_RULES = """
.figure text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,'DejaVu Sans',sans-serif;\
font-size:12px;fill:var(--ink)}
.figure .tick,.figure .note{fill:var(--soft);font-size:11px}
.figure .axis-title{fill:var(--soft);font-size:12px}
.figure .strong{font-weight:600}
.figure .small{font-size:10px}
.figure .ground{fill:var(--ground)}
.figure .grid{stroke:var(--hair);stroke-width:1}
.figure .axis{stroke:var(--soft);stroke-width:1}
.figure .reference{stroke:var(--soft);stroke-width:1;stroke-dasharray:3 3}
.figure .line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.figure .band{stroke:none;fill-opacity:.14}
.figure .whisker{stroke:var(--ink);stroke-width:1.4}
.figure .leader{fill:none;stroke-width:1.2}
.figure .clique{stroke:var(--ink);stroke-width:3}
.figure .member{fill:var(--ink)}
.figure .cell-edge{fill:none;stroke:var(--hair)}
.figure .win{fill:var(--win)}
.figure .lose{fill:var(--lose)}
.figure .node{fill:var(--panel);stroke:var(--faint)}
.figure .edge{fill:none;stroke:var(--soft);stroke-width:1}
.figure .gap{stroke:var(--ground);stroke-width:1}
"""
_DASHES = ("", "7 4", "2 3", "9 3 2 3")


def _entry_rules() -> str:
    found = []
    for n in range(COLOURS):
        strokes = ",".join(f".figure .e{n} .{kind}" for kind in ("line", "leader"))
        fills = ",".join(f".figure .e{n} .{kind}" for kind in ("band", "bar", "dot"))
        found.append(f"{strokes}{{stroke:var(--e{n})}}{fills}{{fill:var(--e{n})}}")
    for n, dash in enumerate(_DASHES[1:], 1):
        found.append(f".figure .d{n} .line{{stroke-dasharray:{dash};stroke-linecap:butt}}")
    found.append(".figure .muted .line{stroke:var(--faint);stroke-width:1.2}.figure .muted .band{fill:none}")
    return "\n".join(found)


def rules() -> str:
    """The style of all figures, with colours as variables."""
    parts = "".join(f".figure .p{n}{{fill:var(--p{n})}}" for n in range(PARTS))
    return f"{_RULES}{_entry_rules()}\n{parts}\n"


def variables(colours: dict[str, str]) -> str:
    """The colours as the variables of a page."""
    return "".join(f"--{name}:{colour};" for name, colour in colours.items())


def file_style() -> str:
    """The style inside a standalone figure, without variables, which few programs support."""
    return re.sub(r"var\(--(\w+)\)", lambda m: LIGHT[m[1]], rules())


def entry_class(number: int, muted: bool = False) -> str:
    """The CSS classes of an entry: its colour, its dash, and whether it is in the background."""
    dash = number // COLOURS % len(_DASHES)
    return f"entry e{number % COLOURS}" + (f" d{dash}" if dash else "") + (" muted" if muted else "")
