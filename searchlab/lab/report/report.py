"""A report: its sections, and the page and files made from them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from searchlab.errors import ResultError
from searchlab.lab.report.blocks import Figure, Section
from searchlab.lab.report.headline import Headline, headline
from searchlab.lab.report.material import Material
from searchlab.lab.report.page import page
from searchlab.lab.report.raster import png_bytes
from searchlab.lab.report.sections import (
    ablation,
    convergence,
    costs,
    expectations,
    model_graphs,
    model_quality,
    network_tasks,
    pairwise,
    programs,
    repeating,
    sizes,
    standing,
    streams,
    trouble,
    whole_models,
)
from searchlab.lab.results import Run

_PARTS = (
    standing, expectations, streams, whole_models, model_graphs, convergence, pairwise, ablation, network_tasks, sizes,
    model_quality, costs, trouble, programs, repeating,
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Report:
    """The results of runs as a page and as figures; computed once."""

    material: Material

    @staticmethod
    def of(runs: Sequence[Run]) -> Report:
        """The report of runs whose times can be compared."""
        return Report(Material.of(runs))

    @cached_property
    def headline(self) -> Headline:
        """The answer in a sentence, and what supports it."""
        return headline(self.material)

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """The sections that have content, in their order."""
        return tuple(found for part in _PARTS if (found := part.section(self.material)) is not None)

    @property
    def figures(self) -> tuple[Figure, ...]:
        """The figures of all sections."""
        return tuple(f for s in self.sections for f in s.figures)

    @cached_property
    def html(self) -> str:
        """The page."""
        return page(self.material, self.headline, self.sections)

    def write(self, path: str | Path) -> Path:
        """Writes the page atomically: a concurrent reader sees the old file, or none."""
        made, text = Path(path), self.html
        partial = made.with_name(f"{made.name}.partial")
        try:
            made.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text(text, encoding="utf-8", errors="replace")
            partial.replace(made)
        except OSError as e:
            raise ResultError(f"{made}: cannot write the report: {e.strerror or e}") from e
        finally:
            with suppress(OSError):
                partial.unlink()
        return made

    def write_figures(self, folder: str | Path, png: bool = True) -> tuple[Path, ...]:
        """Writes every figure as SVG and as PNG; returns the files."""
        place, found = Path(folder), []
        try:
            place.mkdir(parents=True, exist_ok=True)
            for figure in self.figures:
                found.append(place / f"{figure.id}.svg")
                found[-1].write_text(figure.file, encoding="utf-8", errors="replace")
                if png:
                    found.append(place / f"{figure.id}.png")
                    found[-1].write_bytes(png_bytes(figure.file))
        except OSError as e:
            raise ResultError(f"{place}: cannot write figures: {e.strerror or e}") from e
        return tuple(found)
