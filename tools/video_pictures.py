"""The pictures of docs/video.md: which pixels of a frame are computed in each layer, and errors over many frames.

python tools/video_pictures.py [--to docs]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from benchmarks.video_accounts import error_growth, three_layers
from searchlab.lab.report.drawing import Axis, Drawing, EntryStyle, Series, line_chart, svg
from searchlab.lab.report.drawing.theme import file_style
from searchlab.video import ClipOptions, ResidualModel, ResidualOptions, Stream, made_clip

SIDE, FRAME, GAP, TOP = 48, 12, 16.0, 22.0
WIDTH = 800.0


def masks() -> tuple[np.ndarray, list[tuple[str, np.ndarray]]]:
    """A frame, and for every layer the pixels whose changes it computes."""
    clip = made_clip(ClipOptions(FRAME + 1, SIDE, SIDE, noise=0.004), np.random.default_rng(3))
    model = ResidualModel(three_layers(SIDE), ResidualOptions(granularity="pixel"), options={"threads": 1})
    stream = Stream(model, relative=0.1)
    before: list[np.ndarray] = []
    kept: list[np.ndarray] = []
    for frame in clip:
        stream.frame(frame)
        before, kept = kept, [np.array(a) for a in stream.state]
    found = []
    for number, layer in enumerate(model.plan.layers, 1):
        slot = model.plan.points[layer.point].slot
        found.append((f"layer {number}", (kept[slot] != before[slot]).any(axis=1)[0]))
    return clip[-1], found


def runs(mask: np.ndarray, x: float, y: float, pixel: float) -> str:
    """The pixels of a mask as boxes, neighbours of a row joined."""
    parts = []
    for row, line in enumerate(mask):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], line.astype(np.int8), [0]])))
        for start, end in zip(edges[::2], edges[1::2], strict=True):
            parts.append(svg.box(x + start * pixel, y + row * pixel, (end - start) * pixel, pixel, "lose"))
    return "".join(parts)


def skipped() -> tuple[str, Drawing]:
    """A frame beside what is computed of it, layer by layer."""
    frame, layers = masks()
    wide = (WIDTH - 3 * GAP) / 4
    pixel, parts = wide / SIDE, [svg.words(0, 12, "the frame")]
    grey = np.clip(frame.mean(axis=0), 0, 1)
    for row, column in np.ndindex(SIDE, SIDE):
        shade = f"#{3 * f'{int(255 * grey[row, column]):02x}'}"
        place = (column * pixel, TOP + row * pixel, pixel + 0.3, pixel + 0.3)
        parts.append(svg.element("rect", x=place[0], y=place[1], width=place[2], height=place[3], fill=shade))
    for number, (name, mask) in enumerate(layers, 1):
        x = number * (wide + GAP)
        parts.append(svg.words(x, 12, f"{name}: {mask.mean():.0%} of pixels"))
        parts.append(svg.box(x, TOP, wide, wide, "node"))
        parts.append(runs(mask, x, TOP, pixel))
    caption = "Pixels whose change exceeds the threshold (a tenth of the standard deviation), frame 13 of a made clip."
    return caption, Drawing(WIDTH, TOP + wide, "".join(parts))


def drift() -> tuple[str, Drawing]:
    """Errors of the rules over 1,000 frames with drift and noise."""
    series = []
    for number, (name, rule, refresh) in enumerate(
        (("previous", "previous", None), ("previous, refreshed", "previous", 100), ("propagated", "propagated", None))
    ):
        errors = np.array(error_growth(rule, refresh)[1:])
        tens = errors[: len(errors) // 10 * 10].reshape(-1, 10).mean(axis=1)
        series.append(Series(EntryStyle(name, number), np.arange(len(tens)) * 10.0 + 5, 100 * tens))
    x, y = Axis("frame", low=0.0), Axis("relative error of the output, per cent", low=0.0)
    return "Brightness drifts, noise is 0.005, the threshold 0.02.", line_chart(series, x, y, WIDTH)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, default=Path("docs"))
    folder = parser.parse_args().to
    for name, title, (caption, drawing) in (
        ("video-skipped", "What is computed of a frame", skipped()),
        ("video-drift", "Errors over 1,000 frames", drift()),
    ):
        path = folder / f"{name}.svg"
        path.write_text(drawing.standalone(title, caption, file_style()), encoding="utf-8")
        print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
