"""Text generation beside other systems: 64 new tokens after a prompt, each the likeliest one, with a growing cache.

The decoder is the one of `experiments.models` (8 layers of width 512).  Every system keeps its own arrays from step to
step; torch.compile and onnxruntime are prepared for any length, as the compiled model is.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.networks import Peers, Run, onnx_bytes, onnx_session
from experiments.models import decoder, generation

NEW = 64
PROMPTS = (100, 137)
Step = Callable[[Any, Sequence[Any] | None], tuple[Any, Sequence[Any]]]  # tokens and cache to logits and cache


def generating(step: Step, prompt: Any, chosen: Callable[[Any], Any], count: int = NEW) -> Run:
    """A function that generates and returns all new tokens; `chosen` makes the next token of logits."""

    def run() -> np.ndarray[Any, Any]:
        logits, cache = step(prompt, None)
        said = []
        for _ in range(count):
            token = chosen(logits)
            said.append(int(token[0, 0]))
            logits, cache = step(token, cache)
        return np.array(said)

    return run


def ours(model: Any, prompt: np.ndarray[Any, Any]) -> Run:
    """The compiled functions `prompt` and `step` of a model."""

    def step(tokens: Any, cache: Sequence[Any] | None) -> tuple[Any, Sequence[Any]]:
        logits, *new = model["prompt"](tokens) if cache is None else model["step"](tokens, *cache)
        return logits, new

    return generating(step, prompt, _likeliest)


def _likeliest(logits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return logits[:, -1].argmax(axis=-1)[:, None].astype(np.int64)


def decoding_peers(module: decoder.Decoder, prompt: np.ndarray[Any, Any], threads: int) -> Peers:
    """All systems that run the decoder here, as functions that generate."""
    torch.set_num_threads(threads)
    given = torch.from_numpy(prompt)
    with torch.no_grad():
        expected = generating(module, given, _likeliest_tensor)()
    found = Peers()
    found.add("torch", lambda: _without_gradients(module, given), expected)
    found.add("torch.compile", lambda: _without_gradients(torch.compile(module, dynamic=True), given), expected)
    found.add("onnxruntime", lambda: _onnxruntime(module, prompt, threads), expected)
    return found


def _likeliest_tensor(logits: Tensor) -> Tensor:
    return logits[:, -1].argmax(dim=-1)[:, None]


def _without_gradients(module: Any, given: Tensor) -> Run:
    inner = generating(module, given, _likeliest_tensor)

    def run() -> Any:
        with torch.no_grad():
            return inner()

    run()
    return run


class _RootMeanSquare(nn.Module):
    """What nn.RMSNorm computes, in operators that every exporter has."""

    def __init__(self, norm: nn.RMSNorm) -> None:
        super().__init__()
        self.weight, self.eps = norm.weight, norm.eps or torch.finfo(torch.float32).eps

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.eps) * self.weight


def _exportable(module: nn.Module) -> nn.Module:
    made = copy.deepcopy(module)
    for parent in list(made.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.RMSNorm):
                setattr(parent, name, _RootMeanSquare(child))
    return made


def _onnxruntime(module: decoder.Decoder, prompt: np.ndarray[Any, Any], threads: int) -> Run:
    made, layers = _exportable(module), len(module.layers)
    names = ["tokens", *(f"past{n}" for n in range(2 * layers))]
    first = onnx_bytes(made, decoder.example_inputs(1, 8), {"tokens": {1: "length"}})
    axes = {"tokens": {0: "one"}} | {name: {2: "past"} for name in names[1:]}
    later = onnx_bytes(made, decoder.example_inputs(1, 1, past=8), axes)
    sessions = onnx_session(first, threads), onnx_session(later, threads)

    def step(tokens: Any, cache: Sequence[Any] | None) -> tuple[Any, Sequence[Any]]:
        session = sessions[cache is not None]
        fed = dict(zip((p.name for p in session.get_inputs()), [tokens, *(cache or ())], strict=True))
        logits, *new = session.run(None, fed)
        return logits, new

    return generating(step, prompt, _likeliest)


def prompt_of(length: int) -> np.ndarray[Any, Any]:
    """Random tokens."""
    return np.random.default_rng(length).integers(0, 32000, (1, length))


def decoder_module() -> Any:
    """The decoder of torch, and its functions `prompt` and `step` as a graph."""
    module = decoder.make().eval()
    return module, generation.imported(module)
