"""A made-up GPU behind the names of real packages, for this process and for those that it starts."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from searchlab.cuda import driver, nvml
from searchlab.targets import cuda_devices

FAKES = Path(__file__).parents[1] / "fake_gpu"
_TOP = ("pycuda", "cuda", "pynvml", "gpu_model")


def _forget() -> None:
    cuda_devices._asked.cache_clear()
    driver.open_gpu.cache_clear()
    nvml._nvml.cache_clear()
    for name in [n for n in sys.modules if n.partition(".")[0] in _TOP]:
        del sys.modules[name]


@pytest.fixture
def package() -> str:
    """The package that reaches the made-up GPU; tests may be repeated for others."""
    return "pycuda"


@pytest.fixture
def gpu_log(package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A machine with a made-up GPU; the value is the file with all calls of its driver."""
    log = tmp_path / "calls.jsonl"
    monkeypatch.syspath_prepend(str(FAKES))
    monkeypatch.setenv("SEARCHLAB_CUDA", package)
    monkeypatch.setenv("FAKE_GPU_LOG", str(log))
    _forget()
    yield log
    _forget()
