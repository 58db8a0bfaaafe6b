"""Decoding with prompts of any length and a cache that grows, by a module that is imported once."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from experiments.models import decoder
from experiments.models.generation import compiled, eager, generate, imported, interpreted
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


def check(run: object, length: int, sequences: int = 1, tolerance: float = 1e-4) -> None:
    tokens, said = generate(run, prompt(length, sequences), NEW)  # type: ignore[arg-type]
    wanted, logits = generate(eager(model()), prompt(length, sequences), NEW)
    assert tokens.shape == (sequences, length + NEW)
    for got, want in zip(said, logits, strict=True):
        assert np.abs(got - want).max() <= tolerance * np.abs(want).max()
    assert (tokens == wanted).all()


def test_functions_share_their_weights() -> None:
    assert list(module().functions) == ["prompt", "step"]
    assert len(module().constants) == len(list(model().parameters())) + 1  # and the frequencies of positions
    assert "past" in str(module()["step"]) and "length" in str(module()["prompt"])


@pytest.mark.parametrize("length", PROMPTS)
def test_the_interpreter_says_what_torch_says(length: int) -> None:
    check(interpreted(module()), length, sequences=2)


@pytest.mark.cpu
@pytest.mark.parametrize("sequences", [None, 1])
def test_a_compiled_model_says_what_torch_says(sequences: int | None) -> None:
    run = compiled(module(sequences))
    for length in PROMPTS:
        check(run, length, sequences or 3)


@pytest.mark.cpu
def test_weights_of_four_bits_are_those_of_the_interpreter() -> None:
    small = quantise_weights(module(1), least=1)
    assert "linear_q4" in str(small["step"])
    wanted, logits = generate(interpreted(small), prompt(37), NEW)
    tokens, said = generate(compiled(small), prompt(37), NEW)
    assert (tokens == wanted).all()
    for got, want in zip(said, logits, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)
