"""The report as one self-contained HTML page."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from importlib import metadata
from importlib.resources import files
from typing import Any

from searchlab.lab.report.blocks import Section
from searchlab.lab.report.download import data_json
from searchlab.lab.report.drawing.svg import clean
from searchlab.lab.report.drawing.theme import COLOURS, DARK, LIGHT, rules, variables
from searchlab.lab.report.headline import Headline
from searchlab.lab.report.material import Material
from searchlab.lab.report.sections import repeating

_TEMPLATES = files("searchlab.lab.report") / "templates"


def page(material: Material, head: Headline, sections: Sequence[Section]) -> str:
    """The HTML text."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(_text("page.html"))
    text = template.render(
        material=material,
        run=material.runs[0],
        headline=head,
        sections=sections,
        looks=[material.looks[e] for e in material.entries],
        style=Markup(_style()),
        script=Markup(_text("page.js")),
        data=Markup(_in_script(data_json(material))),
        downloads=_downloads(material),
        markup=Markup,
        version=_version(),
    )
    return clean(text)


def _text(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def _style() -> str:
    dark = f"@media screen and (prefers-color-scheme:dark){{:root{{{variables(DARK)}}}}}"
    swatches = "".join(
        f".s{n}{{text-decoration-color:var(--e{n})}}.swatch.s{n}{{background:var(--e{n})}}" for n in range(COLOURS)
    )
    return f":root{{{variables(LIGHT)}}}{dark}\n{rules()}{_text('page.css')}{swatches}"


def _in_script(json_text: str) -> str:
    """JSON, escaped so that it cannot end the script element that contains it."""
    return json_text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _downloads(material: Material) -> list[dict[str, Any]]:
    """Small files as links that work without a script."""
    found = []
    for run in material.runs:
        for name, text in ((f"{run.name}.yaml", run.source), (f"{run.name}.resolved.yaml", repeating.resolved(run))):
            if text.strip() and run.config:
                coded = base64.b64encode(clean(text).encode()).decode()
                found.append({"name": name, "href": f"data:application/yaml;charset=utf-8;base64,{coded}"})
    return found


def _version() -> str:
    try:
        return metadata.version("searchlab")
    except metadata.PackageNotFoundError:
        return ""
