"""Decoding with prompts of any length and a cache that grows, by a module that is imported once."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from experiments.models import decoder
from experiments.models.generation import Run, compiled, eager, generate, imported, interpreted, rounded
from searchlab.graph import GraphModule, quantise_weights

PROMPTS = (1, 5, 37, 100, 137)
NEW = 9


@cache
def model() -> decoder.Decoder:
    return decoder.make(layers=2, width=32, heads=4, hidden=64, vocabulary=50).eval()


@cache
def module(sequences: int | None = None) -> GraphModule:
    return imported(model(), sequences, longest=256)


def prompt(length: int, sequences: int = 1) -> np.ndarray:
    return np.random.default_rng(length).integers(0, 50, (sequences, length))


def check(run: Run, length: int, sequences: int = 1, like: decoder.Decoder | None = None) -> None:
    tokens, said = generate(run, prompt(length, sequences), NEW)
    wanted, logits = generate(eager(like or model()), prompt(length, sequences), NEW)
    assert tokens.shape == (sequences, length + NEW)
    for got, want in zip(said, logits, strict=True):
        assert np.abs(got - want).max() <= 1e-4 * np.abs(want).max()
    assert (tokens == wanted).all()


def test_functions_share_their_weights() -> None:
    assert list(module().functions) == ["prompt", "step"]
    assert len(module().constants) == len(list(model().parameters())) + 1  # and the frequencies of positions
    assert "past" in str(module()["step"]) and "length" in str(module()["prompt"])


@pytest.mark.parametrize("length", [pytest.param(n, marks=[pytest.mark.slow] * (n not in (1, 37))) for n in PROMPTS])
def test_the_interpreter_says_what_torch_says(length: int) -> None:
    check(interpreted(module()), length, sequences=2)


@pytest.mark.cpu
@pytest.mark.parametrize("sequences", [pytest.param(None, marks=pytest.mark.slow), 1])
def test_a_compiled_model_says_what_torch_says(sequences: int | None) -> None:
    run = compiled(module(sequences))
    for length in PROMPTS:
        check(run, length, sequences or 3)


@pytest.mark.cpu
def test_weights_of_four_bits_say_what_torch_says_with_these_weights() -> None:
    small = quantise_weights(module(1), least=1)
    assert "linear_q4" in str(small["step"]) and "= linear(" not in str(small)
    for run in (interpreted(small), compiled(small)):
        check(run, 37, like=rounded(model()))
