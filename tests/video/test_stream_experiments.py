"""Streams in experiments: what files may say, runs that are resumed, and the report."""

from __future__ import annotations

from pathlib import Path

import pytest

from searchlab.errors import ConfigError
from searchlab.lab.cells import cells
from searchlab.lab.config import Experiment, load
from searchlab.lab.export.finding import best_program
from searchlab.lab.replay import replay
from searchlab.lab.report import Report
from searchlab.lab.run import load as load_run
from searchlab.lab.run import run

NETWORK = Path(__file__).parents[1] / "stream_network.py"
TEXT = f"""
name: streams
target: {{native: {{threads: 1}}}}
workloads:
  - video:
      model: "{NETWORK}:make"
      clip: {{height: 24, width: 24, noise: 0.003}}
      frames: 6
      bound: {{relative_error: 0.05}}
sweep: {{strategy: [random, evolutionary]}}
budget: {{trials: 16, batch: 8}}
seeds: 0
report: {{baseline: dense}}
"""


def loaded(folder: Path, text: str = TEXT) -> Experiment:
    (folder / "streams.yaml").write_text(text)
    return load(folder / "streams.yaml")


def test_a_run_is_resumed_replayed_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))  # times do not matter: no waiting for cores
    experiment, folder = loaded(tmp_path), tmp_path / "run"
    assert run(experiment, folder, jobs=0).exit_code == 0
    first = load_run(folder)
    assert [c.state for c in first.cells] == ["done", "done"]
    assert all({"dense", "one level"} == set(c.baselines) and not c.failures for c in first.cells)
    (folder / "cells" / f"{first.cells[0].id}.json").unlink()  # as if it had been stopped
    assert run(experiment, folder, jobs=0).exit_code == 0
    again = load_run(folder)
    assert again.cells[0].seconds.tolist() == first.cells[0].seconds.tolist()
    assert all(not r.departure for r in replay(folder))
    report = Report.of([again])
    page, figures = report.html, {f.id for f in report.figures}
    assert "stream-1" in figures and "time against error" in page and "the layers of the fastest" in page
    assert report.figures[0].file.startswith("<svg")
    best = best_program(folder)
    assert best.point.startswith("propagated(level=")


def test_cells_are_known_by_what_a_clip_holds(tmp_path: Path) -> None:
    """A recorded clip is known by its contents, wherever it lies; a made one by its options."""
    import numpy as np

    from searchlab.video import write_clip

    texts = []
    for name in ("a", "b"):
        place = tmp_path / name
        place.mkdir()
        write_clip(place / "clip.npy.xz", np.random.default_rng(0).random((6, 3, 24, 24)))
        text = TEXT.replace("{height: 24, width: 24, noise: 0.003}", "clip.npy.xz")
        texts.append([c.id for c in cells(loaded(place, text))])
    assert texts[0] == texts[1] != [c.id for c in cells(loaded(tmp_path))]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("sweep:", "space: sketch\nsweep:", "streams bring their own space"),
        ("sweep:", "measure: ray\nsweep:", "streams are timed on this machine"),
        ("sweep:", "model: gbt\nsweep:", "streams have none; .gbt: .view: knobs.. works from knobs"),
        ("workloads:", "workloads:\n  - matmul", "workloads and streams are not searched in one experiment"),
        ("0.05", "5", "relative_error = 5; a share between 0 and 1"),
        ("baseline: dense", "baseline: numpy", "no entry is called 'numpy'"),
        (":make", ":made", "made"),
    ],
)
def test_bad_experiments_are_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        loaded(tmp_path, TEXT.replace(old, new, 1))
