"""What benchmarks of video share: ResNet-18 on recorded clips."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from searchlab.lab.records import RecordStore
from searchlab.lab.study import Study
from searchlab.lab.study.stream_subject import StreamSubject
from searchlab.targets import detect
from searchlab.video.stream_bench import StreamBench
from searchlab.video.stream_space import StreamChoice
from searchlab.video.video_settings import VideoSettings

THREADS, FRAMES = 2, 24


@cache
def bench_of(
    clips: Path,
    clip: str,
    error: float,
    enlarge: int = 1,
    frames: int = FRAMES,
    model: str = "resnet18",
    products: tuple[str, ...] = ("float32", "bfloat16", "int16"),
) -> StreamBench:
    """A compiled ResNet-18 on a clip."""
    given = {
        "model": model if enlarge == 1 else f"{model}:size={224 * enlarge}",
        "clip": str(clips / f"{clip}.npy.xz"),
        "frames": frames,
        "enlarge": enlarge,
        "fit": True,
        "products": list(products),
        "bound": {"relative_error": error},
    }
    return StreamBench(VideoSettings.of(given), detect().with_threads(THREADS))


def searched(bench: StreamBench, trials: int, records: Path | None) -> StreamChoice:
    """What a search finds within the bound; one whose `records` are there goes on where it was."""
    subject = StreamSubject(bench)
    store = None if records is None else RecordStore(records)
    with Study(subject, model=None, strategy="local", seed=0, batch=8, store=store, cell="benchmark") as study:
        study.optimize(trials=trials)
        study.finish()  # the fastest trial of many was lucky: a race of the best few decides
        return bench.tried(StreamChoice.of(study.space.choice(study.incumbent.point)))[0]
