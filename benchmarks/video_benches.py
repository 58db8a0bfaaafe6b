"""What benchmarks of video share: ResNet-18 on recorded clips, and one threshold for all layers within a bound."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from searchlab.targets import detect
from searchlab.video import StreamOptions
from searchlab.video.stream_bench import StreamBench
from searchlab.video.stream_space import StreamChoice
from searchlab.video.video_settings import VideoSettings

THREADS, FRAMES = 2, 16


@cache
def bench_of(clips: Path, clip: str, error: float, enlarge: int = 1, frames: int = FRAMES) -> StreamBench:
    """A compiled ResNet-18 on a clip."""
    given = {
        "model": "resnet18" if enlarge == 1 else f"resnet18:size={224 * enlarge}",
        "clip": str(clips / f"{clip}.npy.xz"),
        "frames": frames,
        "enlarge": enlarge,
        "bound": {"relative_error": error},
    }
    return StreamBench(VideoSettings.of(given), detect().with_threads(THREADS))


def single_level(bench: StreamBench, options: StreamOptions, error: float) -> tuple[float, StreamChoice]:
    """The largest level for all layers whose error is within a bound, found by bisection."""
    rule = bench.settings.rules[0]
    low, high = 0.0, 3.0
    for _ in range(8):
        level = (low + high) / 2
        good = bench.check(StreamChoice.single(rule, bench.plans[rule], level, options)).error <= error
        low, high = (level, high) if good else (low, level)
    return low, StreamChoice.single(rule, bench.plans[rule], low, options)
