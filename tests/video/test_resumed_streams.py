"""Streams that are saved and resumed, at any frame, by any rule, and after the process was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_videos import RandomNetwork
from stream_network import make

from searchlab.video import (
    ClipOptions,
    ResidualModel,
    ResidualOptions,
    Stream,
    StreamOptions,
    made_clip,
    relative_error,
)
from searchlab.video.residual_options import FLOAT32, GRANULARITIES, KERNELS, PRODUCTS, RULES

ONE = {"threads": 1}


@st.composite
def videos(draw: st.DrawFn) -> tuple[ResidualModel, float, StreamOptions, np.ndarray, int]:
    """A random network with options, a threshold, and a clip with a place in it."""
    network = RandomNetwork(lambda low, high: draw(st.integers(low, high))).module(draw(st.integers(0, 3)))
    chosen = ResidualOptions(
        draw(st.sampled_from(RULES)), draw(st.sampled_from(GRANULARITIES)), draw(st.sampled_from(KERNELS)), smallest=0
    )
    if chosen.follows:
        chosen = replace(chosen, products=draw(st.sampled_from(PRODUCTS)))
    fallback = draw(st.sampled_from([None, 0.0, 0.3, 0.8]))
    options = StreamOptions(draw(st.sampled_from([None, 1, 3])), draw(st.sampled_from([None, 0.5])), fallback)
    cuts = (draw(st.integers(1, 6)),) if draw(st.booleans()) else ()
    clip = ClipOptions(
        7, 8, 8, noise=draw(st.sampled_from([0, 0.02])), camera=draw(st.sampled_from([0, 1.5])), cuts=cuts
    )
    frames = made_clip(clip, np.random.default_rng(draw(st.integers(0, 99))))
    model = ResidualModel(network, chosen, options=ONE)
    return model, draw(st.sampled_from([0.0, 0.05])), options, frames, draw(st.integers(1, 6))


def check(video: tuple[ResidualModel, float, StreamOptions, np.ndarray, int], folder: Path) -> None:
    """A stream goes on as if nothing had happened, whatever it went through; and is exact without a threshold."""
    model, threshold, options, frames, place = video
    stream, again = Stream(model, threshold, options), Stream(model, threshold, options)
    for number, frame in enumerate(frames):
        if number == place:
            again.save(folder / "stream.npz")
            again = Stream.resumed(model, folder / "stream.npz", options)
        wanted = stream.frame(frame)
        assert np.array_equal(np.asarray(again.frame(frame)), np.asarray(wanted))
        assert again.dense == stream.dense and again.account == stream.account
        if not threshold:
            exact = model.plan.options.products == FLOAT32
            assert relative_error(wanted, model.dense(frame[None])) < (1e-4 if exact else 0.03)


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(video=videos())
def test_random_streams_are_resumed(tmp_path_factory: pytest.TempPathFactory, video: object) -> None:
    check(video, tmp_path_factory.mktemp("saved"))  # type: ignore[arg-type]


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(video=videos())
def test_many_random_streams_are_resumed(tmp_path_factory: pytest.TempPathFactory, video: object) -> None:
    check(video, tmp_path_factory.mktemp("saved"))  # type: ignore[arg-type]


# --- killed -----------------------------------------------------------------------------------------------------------

_RUN = """
import sys
from test_resumed_streams import killed_stream, killed_clip
stream = killed_stream()
for number, frame in enumerate(killed_clip()):
    stream.frame(frame)
    stream.save(sys.argv[1])
    print(number, flush=True)
"""


def killed_clip() -> np.ndarray:
    return made_clip(ClipOptions(40, 24, 24, noise=0.004, cuts=(5,)), np.random.default_rng(2))


def killed_stream() -> Stream:
    model = ResidualModel(make(), ResidualOptions(granularity="pixel", kernel="skip"), options=ONE)
    return Stream(model, 0.03, StreamOptions(refresh=7, dense_above=0.9))


def test_a_killed_stream_goes_on(tmp_path: Path) -> None:
    """Whatever a process did last, its file holds the state after some frame, and all outputs after it are the same."""
    file, here = tmp_path / "stream.npz", Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-c", _RUN, str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}) as run:
        assert run.stdout is not None
        while run.stdout.readline().strip() != "12":
            assert run.poll() is None, "the process ended early"
        run.send_signal(signal.SIGKILL)
    assert run.returncode == -signal.SIGKILL
    whole = killed_stream()
    resumed = Stream.resumed(whole.model, file, whole.options)
    clip = killed_clip()
    done = resumed.number
    assert 13 <= done < len(clip)
    for frame in clip[:done]:
        whole.frame(frame)
    for frame in clip[done : done + 10]:
        assert np.array_equal(resumed.frame(frame), whole.frame(frame))
    assert resumed.account == whole.account
