"""What benchmarks of video share: ResNet-18 on recorded clips."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from searchlab.targets import detect
from searchlab.video.stream_bench import StreamBench
from searchlab.video.video_settings import VideoSettings

THREADS, FRAMES = 2, 12


@cache
def bench_of(clips: Path, clip: str, error: float, enlarge: int = 1, frames: int = FRAMES) -> StreamBench:
    """A compiled ResNet-18 on a clip."""
    given = {
        "model": "resnet18" if enlarge == 1 else f"resnet18:size={224 * enlarge}",
        "clip": str(clips / f"{clip}.npy.xz"),
        "frames": frames,
        "enlarge": enlarge,
        "fit": True,
        "bound": {"relative_error": error},
    }
    return StreamBench(VideoSettings.of(given), detect().with_threads(THREADS))
