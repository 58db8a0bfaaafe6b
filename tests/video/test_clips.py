"""Clips hold what their options say; recorded ones are read as they were."""

import io
import lzma
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from searchlab.errors import GraphError
from searchlab.video import ClipOptions, enlarged, made_clip, read_clip, write_clip


def made(seed: int = 0, **options: float) -> np.ndarray:
    return made_clip(ClipOptions(height=24, width=32, **options), np.random.default_rng(seed))  # type: ignore[arg-type]


def test_a_seed_determines_a_clip() -> None:
    assert np.array_equal(made(noise=0.1, camera=1), made(noise=0.1, camera=1))
    assert not np.array_equal(made(), made(seed=1))


def test_what_happens_in_clips() -> None:
    still = made(speed=0, frames=5)
    assert still.shape == (5, 3, 24, 32) and still.dtype == np.float32
    assert np.array_equal(still[0], still[4]) and still.std() > 0.05
    changed = np.any(np.diff(made(speed=1, frames=5), axis=0) != 0, axis=1).mean()
    assert 0 < changed < 0.3  # edges of objects
    assert np.any(np.diff(made(camera=0.5, frames=3), axis=0) != 0, axis=1).mean() > 0.9
    drifting = made(speed=0, drift=0.01, frames=5)
    assert np.allclose(drifting[4] - drifting[0], 0.04, atol=1e-6)
    noisy = made(speed=0, noise=0.02, frames=5) - still
    assert 0.018 < noisy.std() < 0.022
    cut = np.abs(np.diff(made(frames=6, cuts=(3,)), axis=0)).mean(axis=(1, 2, 3))
    assert cut.argmax() == 2 and cut[2] > 10 * cut[1]


def test_the_camera_moves_by_its_speed() -> None:
    """The shift at which two frames agree best is that of the camera, up to a pixel."""
    options = ClipOptions(frames=3, height=32, width=32, objects=0, camera=4.0)
    frames = made_clip(options, np.random.default_rng(3))
    first, *others = np.fft.fft2(frames - frames.mean(axis=(2, 3), keepdims=True))
    for time, other in enumerate(others, 1):
        agreement = np.fft.ifft2(np.conj(first) * other).real.sum(axis=0)
        shift = [(int(a) + 16) % 32 - 16 for a in np.unravel_index(agreement.argmax(), agreement.shape)]
        assert abs(np.hypot(*shift) - 4.0 * time) < 1


def test_recorded_clips_are_read(tmp_path: Path) -> None:
    frames = np.random.default_rng(0).integers(0, 256, (4, 6, 8, 3), dtype=np.uint8)
    changes = np.concatenate([frames[:1], np.diff(frames, axis=0)])
    buffer = io.BytesIO()
    np.save(buffer, changes)
    (tmp_path / "clip.npy.xz").write_bytes(lzma.compress(buffer.getvalue()))
    clip = read_clip(tmp_path / "clip.npy.xz")
    assert np.array_equal(np.round(clip * 255).astype("uint8"), frames.transpose(0, 3, 1, 2))
    assert np.array_equal(read_clip(tmp_path / "clip.npy.xz", size=4), clip[:, :, 1:5, 2:6])
    with pytest.raises(GraphError, match="size = 7"):
        read_clip(tmp_path / "clip.npy.xz", size=7)


def test_what_is_no_clip_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="cannot be read"):
        read_clip(tmp_path / "none.npy.xz")
    (tmp_path / "text.npy.xz").write_text("no clip")
    with pytest.raises(GraphError, match="cannot be read"):
        read_clip(tmp_path / "text.npy.xz")
    with pytest.raises(GraphError, match="at least 1"):
        ClipOptions(frames=0)


def test_clips_are_packed_and_read(tmp_path: Path) -> None:
    clip = made_clip(ClipOptions(3, 6, 8), np.random.default_rng(0))
    write_clip(tmp_path / "clip.npy.xz", clip)
    found = read_clip(tmp_path / "clip.npy.xz")
    assert found.shape == clip.shape and np.abs(found - np.clip(clip, 0, 1)).max() <= 0.5 / 255 + 1e-6
    with pytest.raises(GraphError, match="is packed to a file .npy.xz"):
        write_clip(tmp_path / "clip.npy", clip)


def test_an_enlarged_clip_lies_between_its_pixels() -> None:
    clip = made_clip(ClipOptions(2, 6, 8), np.random.default_rng(0))
    larger = enlarged(clip, 2)
    assert larger.shape == (2, 3, 12, 16) and larger.min() >= clip.min() and larger.max() <= clip.max()
    assert np.allclose(larger[..., 1, 1], 0.5625 * clip[..., 0, 0] + 0.1875 * (clip[..., 0, 1] + clip[..., 1, 0])
                       + 0.0625 * clip[..., 1, 1], atol=1e-5)  # fmt: skip
    assert np.array_equal(enlarged(clip, 1), clip)


def test_videos_need_a_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever is installed reads them; without any the message says what to install."""
    frames = np.arange(2 * 4 * 5 * 3, dtype=np.uint8).reshape(2, 4, 5, 3)
    file = tmp_path / "clip.mp4"
    with pytest.raises(GraphError, match="no such file"):
        read_clip(file)
    file.write_bytes(b"frames")
    for name in ("imageio", "imageio.v3", "cv2"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(GraphError, match="neither imageio.* nor cv2 is installed; pip install"):
        read_clip(file)
    reader = SimpleNamespace(imread=lambda path, **_: frames)
    monkeypatch.setitem(sys.modules, "imageio", SimpleNamespace(v3=reader))
    monkeypatch.setitem(sys.modules, "imageio.v3", reader)
    assert np.array_equal(read_clip(file), frames.transpose(0, 3, 1, 2) / np.float32(255))
