"""Text generation by the decoder: a prompt of any length, then a token at a time behind a cache that grows.

    model = decoder.make()
    run = compiled(imported(model))
    tokens, logits = generate(run, prompt, 32)

The decoder is imported once, as two functions of one module that share their weights: `prompt` for any number of
tokens, and `step` for one token behind a past of any length. What runs them is a function of a name and arrays: torch,
the interpreter of graphs or a compiled model.

    python -m experiments.models.generation --new 16 --bits 4
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from experiments.models import decoder
from searchlab.graph import GraphModule, compile, evaluate_graph, from_torch, quantise_weights
from searchlab.graph.ops.quantised_ops import quantised, unpacked

Array = npt.NDArray[Any]
Run = Callable[..., Sequence[Array]]  # the name of a function and its inputs to logits and the cache


def imported(model: decoder.Decoder, sequences: int | None = 1, longest: int = 2048) -> GraphModule:
    """The functions `prompt` and `step`, for as many sequences at once as are given (None: any number)."""
    layers, heads = len(model.layers), model.layers[0].attention.heads
    vocabulary, width = model.tokens.weight.shape
    sizes = dict(layers=layers, width=width, heads=heads, vocabulary=vocabulary, batch=sequences or 2)
    free = dict(layers=layers, longest=longest, sequences=sequences)
    prompt, step = decoder.example_inputs(length=8, **sizes), decoder.example_inputs(length=1, past=8, **sizes)
    module = from_torch(model, prompt, decoder.dynamic_shapes(**free), name="prompt")
    return from_torch(model, step, decoder.dynamic_shapes(length=1, past=8, **free), name="step", into=module)


def rounded(model: decoder.Decoder, group: int = 32) -> decoder.Decoder:
    """A copy of the decoder with the weights that those of 4 bits stand for."""
    made = copy.deepcopy(model)
    for layer in made.modules():
        if isinstance(layer, nn.Linear):
            data, scale, _ = quantised(layer.weight.detach().numpy().T, group)
            steps = torch.from_numpy(np.repeat(scale, group, axis=0))
            layer.weight.data = (torch.from_numpy(unpacked(data, group)) * steps).T.contiguous()
    return made


def eager(model: decoder.Decoder) -> Run:
    """The module itself."""

    def run(name: str, tokens: Array, *cache: Array) -> list[Array]:
        with torch.no_grad():
            past = tuple(torch.from_numpy(np.array(part)) for part in cache)
            logits, new = model(torch.from_numpy(tokens), past if name == "step" else None)
        return [logits.numpy(), *(part.numpy() for part in new)]

    return run


def interpreted(module: GraphModule) -> Run:
    """The interpreter of graphs."""
    return lambda name, *inputs: evaluate_graph(module, *inputs, function=name)


def compiled(module: GraphModule, **options: Any) -> Run:
    """A compiled model."""
    model = compile(module, **options)
    return lambda name, *inputs: model[name](*inputs)


def generate(run: Run, prompt: Array, count: int) -> tuple[Array, list[Array]]:
    """The prompt (sequences, length) with `count` tokens more, the likeliest each time, and the logits of each."""
    tokens, said = prompt, []
    logits, *cache = run("prompt", prompt)
    for number in range(count):
        said.append(np.array(logits[:, -1]))
        token = said[-1].argmax(axis=-1)[:, None].astype(np.int64)
        tokens = np.concatenate([tokens, token], axis=1)
        if number < count - 1:
            logits, *cache = run("step", token, *cache)
    return tokens, said


def timed(run: Run, prompt: Array, count: int) -> tuple[float, float]:
    """Seconds of the prompt, and of one further token on average."""
    start = perf_counter()
    generate(run, prompt, 1)
    first = perf_counter() - start
    generate(run, prompt, count)
    return first, (perf_counter() - start - 2 * first) / (count - 1)


def main() -> None:
    """Compares the compiled decoder with torch: what they say, and how long they take."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prompts", type=int, nargs="+", default=[1, 5, 37, 100, 137])
    parser.add_argument("--new", type=int, default=16)
    parser.add_argument("--bits", type=int, choices=(4, 32), default=32, help="4: weights of linear layers quantised")
    given = parser.parse_args()
    model = decoder.make().eval()
    module = imported(model)
    start = perf_counter()
    run = compiled(quantise_weights(module) if given.bits == 4 else module)
    print(f"compiled in {perf_counter() - start:.1f} s")
    peer = eager(rounded(model) if given.bits == 4 else model)
    for length in given.prompts:
        prompt = np.random.default_rng(length).integers(0, 32000, (1, length))
        (mine, said), (theirs, wanted) = generate(run, prompt, given.new), generate(peer, prompt, given.new)
        worst = max(float(np.abs(a - b).max()) for a, b in zip(said, wanted, strict=True))
        same = int((mine == theirs).all(axis=0).sum()) - length
        (first, each), (other, another) = timed(run, prompt, given.new), timed(peer, prompt, given.new)
        print(
            f"prompt of {length:4d}: {same} of {given.new} tokens as torch, logits within {worst:.1e}; "
            f"prompt {first * 1e3:.1f} ms (torch {other * 1e3:.1f}), "
            f"token {each * 1e3:.2f} ms (torch {another * 1e3:.2f})"
        )


if __name__ == "__main__":
    main()
