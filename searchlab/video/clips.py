"""Clips: made ones, whose motion, drift, noise and cuts are known, and recorded ones read from files.

A clip is an array (frames, channels, height, width) of float32, about in [0, 1]: what networks for images take.
"""

from __future__ import annotations

import io
import lzma
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from searchlab.errors import GraphError

Array = npt.NDArray[Any]
PACKED = ".npy.xz"


@dataclass(frozen=True)
class ClipOptions:
    """What happens in a made clip.

    `speed` is that of objects and `camera` that of the background, in pixels per frame; `drift` is added to the
    brightness per frame; `noise` is the standard deviation of a sensor's noise; `cuts` are the frames at which another
    scene begins.
    """

    frames: int = 30
    height: int = 48
    width: int = 48
    objects: int = 2
    speed: float = 1.0
    camera: float = 0.0
    drift: float = 0.0
    noise: float = 0.0
    cuts: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if min(self.frames, self.height, self.width) < 1 or self.objects < 0 or self.noise < 0:
            raise GraphError(f"{self}: frames, height and width are at least 1, objects and noise at least 0")


def made_clip(options: ClipOptions, rng: np.random.Generator) -> Array:
    """A clip of textured discs that move in front of a textured background."""
    scene = _Scene(options, rng)
    frames = np.empty((options.frames, 3, options.height, options.width), np.float32)
    for number in range(options.frames):
        if number in options.cuts:
            scene = _Scene(options, rng)
        frames[number] = scene.seen(number) + options.drift * number
    if options.noise:
        frames += rng.normal(0, options.noise, frames.shape).astype(np.float32)
    return frames


class _Scene:
    """A background that repeats itself, and objects that come back on the other side."""

    def __init__(self, options: ClipOptions, rng: np.random.Generator) -> None:
        self.shape = np.array([options.height, options.width])
        self.background = _texture((options.height, options.width), rng)
        self.camera = options.camera * _direction(rng)
        count = options.objects
        self.places = rng.uniform(0, 1, (count, 2)) * self.shape
        self.speeds = [options.speed * _direction(rng) for _ in range(count)]
        self.radii = rng.uniform(0.08, 0.2, count) * min(self.shape)
        self.colours = rng.uniform(0, 1, (count, 3, 1, 1))

    def seen(self, time: int) -> Array:
        """The frame at a time, without drift and noise."""
        frame = _moved(self.background, self.camera * time)
        rows, columns = np.ogrid[: self.shape[0], : self.shape[1]]
        for place, speed, radius, colour in zip(self.places, self.speeds, self.radii, self.colours, strict=True):
            row, column = (place + speed * time) % self.shape
            distance = np.hypot(rows - row, columns - column)
            cover = np.clip(radius - distance + 0.5, 0, 1)  # soft edges, so that motion by parts of a pixel shows
            frame = frame * (1 - cover) + colour * cover
        return frame.astype(np.float32)


def _direction(rng: np.random.Generator) -> Array:
    angle = rng.uniform(0, 2 * np.pi)
    return np.array([np.sin(angle), np.cos(angle)])


def _texture(shape: tuple[int, int], rng: np.random.Generator) -> Array:
    """Smooth random colours with grain: waves of a few lengths that fit the image, so that it can be repeated."""
    height, width = shape
    rows, columns = np.mgrid[:height, :width] / np.reshape(shape, (2, 1, 1))
    found = 0.05 * rng.standard_normal((3, height, width))
    for _ in range(6):
        down, across = rng.integers(-4, 5, 2)
        phases = rng.uniform(0, 2 * np.pi, (3, 1, 1))
        found += 0.12 * np.sin(2 * np.pi * (down * rows + across * columns) + phases)
    return np.clip(0.5 + found, 0, 1)


def _moved(image: Array, by: Array) -> Array:
    """An image shifted by parts of pixels, linearly interpolated; what leaves on one side returns on the other."""
    whole = np.floor(by).astype(int)
    part = by - whole
    found = np.zeros_like(image)
    for down in (0, 1):
        for across in (0, 1):
            share = abs(1 - down - part[0]) * abs(1 - across - part[1])
            if share:
                found += share * np.roll(image, (whole[0] + down, whole[1] + across), (1, 2))
    return found


def enlarged(clip: Array, times: int) -> Array:
    """A clip of more pixels, linearly interpolated between those that it has."""
    if times < 1:
        raise GraphError(f"a clip is enlarged {times} times; at least 1 is accepted")
    for axis in (2, 3):
        if times > 1:
            count = clip.shape[axis]
            at = np.clip((np.arange(count * times) + 0.5) / times - 0.5, 0, count - 1)
            low = np.floor(at).astype(int)
            share = (at - low).astype(np.float32).reshape(-1, 1) if axis == 2 else (at - low).astype(np.float32)
            high = np.minimum(low + 1, count - 1)
            clip = np.take(clip, low, axis) * (1 - share) + np.take(clip, high, axis) * share
    return np.ascontiguousarray(clip)


def read_clip(path: str | Path, size: int | None = None) -> Array:
    """A clip of a file: a video that imageio or OpenCV can read, or frames that were packed by `write_clip`.

    `size` takes the middle of so many rows and columns.
    """
    frames = _unpacked(path) if str(path).endswith(PACKED) else _decoded(path)
    if size is not None:
        if not 1 <= size <= min(frames.shape[1:3]):
            raise GraphError(f"size = {size}; the clip {path} has {frames.shape[1]} x {frames.shape[2]} pixels")
        top, left = (frames.shape[1] - size) // 2, (frames.shape[2] - size) // 2
        frames = frames[:, top : top + size, left : left + size]
    return np.ascontiguousarray(frames.transpose(0, 3, 1, 2), np.float32) / np.float32(255)


def write_clip(path: str | Path, clip: Array) -> None:
    """Packs a clip, rounded to bytes: the first frame and then differences modulo 256, in a .npy compressed by xz."""
    if not str(path).endswith(PACKED):
        raise GraphError(f"the clip {path} is packed to a file {PACKED}")
    frames = np.clip(np.round(np.asarray(clip) * 255), 0, 255).astype(np.uint8).transpose(0, 2, 3, 1)
    held = io.BytesIO()
    np.save(held, np.diff(frames, axis=0, prepend=np.zeros_like(frames[:1])))
    Path(path).write_bytes(lzma.compress(held.getvalue()))


def _decoded(path: str | Path) -> Array:
    """The frames of a video, bytes (frames, height, width, 3), by whichever reader is installed."""
    if not Path(path).is_file():
        raise GraphError(f"the clip {path} cannot be read: there is no such file")
    missing = []
    for reader in (_by_imageio, _by_opencv):
        try:
            found = reader(str(path))
        except ImportError as e:
            missing.append(str(e.name))
            continue
        except Exception as e:  # whatever a reader of files of others fails with
            raise GraphError(f"the clip {path} cannot be read: {e}") from e
        if found.ndim == 4 and len(found) and found.shape[3] == 3:
            return found.astype(np.uint8, copy=False)
        raise GraphError(f"the clip {path} has no frames of three colours")
    needed = "pip install searchlab[video], or name a clip that was packed by write_clip"
    raise GraphError(f"the clip {path} cannot be read: neither {' nor '.join(missing)} is installed; {needed}")


def _by_imageio(path: str) -> Array:
    import imageio.v3 as imageio

    return np.asarray(imageio.imread(path, index=None) if path.endswith(".gif") else imageio.imread(path))[..., :3]


def _by_opencv(path: str) -> Array:
    import cv2

    video = cv2.VideoCapture(path)
    frames: list[Array] = []
    while True:
        good, frame = video.read()
        if not good:
            return np.stack(frames)[..., ::-1] if frames else np.empty((0, 0, 0, 3), np.uint8)
        frames.append(frame)


def _unpacked(path: str | Path) -> Array:
    try:
        changes = np.load(io.BytesIO(lzma.decompress(Path(path).read_bytes())), allow_pickle=False)
    except (OSError, lzma.LZMAError, ValueError) as e:
        raise GraphError(f"the clip {path} cannot be read: {e}") from e
    if changes.ndim != 4 or changes.shape[3] != 3 or changes.dtype != np.uint8:
        raise GraphError(f"the clip {path} holds {changes.dtype}{list(changes.shape)}; uint8[frames, h, w, 3] is read")
    return np.cumsum(changes, axis=0, dtype=np.uint8)
