"""The networks of this package at their published sizes, with inputs: what `searchlab tune resnet18` tunes.

Every function returns a network and example inputs, as any function does that names a model. Sizes are fixed, but for
the past of `decoder_step`, and the lengths of `text`.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from experiments.models import bert as bert_network
from experiments.models import decoder as decoder_network
from experiments.models import generation, resnet
from experiments.models import mobilenet_v2 as mobilenet_network
from experiments.models import unet as unet_network
from searchlab.graph import ExampleCall

Example = tuple[Any, tuple[Any, ...]]


def resnet18(batch: int = 1, size: int = 224, width: int = 64) -> Example:
    """ResNet-18 on images of 224 x 224 pixels."""
    return resnet.make(18, width), resnet.example_inputs(batch, size)


def resnet18_features(batch: int = 1, size: int = 224, width: int = 64) -> Example:
    """ResNet-18 up to its last map of features, before they are pooled."""
    made = resnet.make(18, width)
    return nn.Sequential(made.stem, made.stages), resnet.example_inputs(batch, size)


def resnet50(batch: int = 1, size: int = 224, width: int = 64) -> Example:
    """ResNet-50 on images of 224 x 224 pixels."""
    return resnet.make(50, width), resnet.example_inputs(batch, size)


def mobilenet_v2(batch: int = 1, size: int = 224) -> Example:
    """MobileNet-V2 on images of 224 x 224 pixels."""
    return mobilenet_network.make(), mobilenet_network.example_inputs(batch, size)


def bert(batch: int = 1, length: int = 128, layers: int = 12) -> Example:
    """BERT-base on sentences of 128 tokens."""
    return bert_network.make(layers=layers), bert_network.example_inputs(batch, length)


def unet(batch: int = 1, height: int = 96, width: int = 160) -> Example:
    """U-Net on images of 96 x 160 pixels."""
    return unet_network.make(), unet_network.example_inputs(batch, height, width)


def decoder(batch: int = 1, length: int = 16, past: int | None = None, layers: int = 8) -> Example:
    """A decoder on a prompt of 16 tokens, or on tokens behind a past."""
    inputs = decoder_network.example_inputs(batch, length, past, layers=layers)
    return decoder_network.make(layers=layers), inputs


def decoder_step(past: int = 132, layers: int = 8) -> tuple[Any, tuple[Any, ...], Any]:
    """The next token of a decoder behind a past of any length, which is what generating text mostly computes."""
    inputs = decoder_network.example_inputs(1, 1, past, layers=layers)
    shapes = decoder_network.dynamic_shapes(length=1, past=past, layers=layers, sequences=1)
    return decoder_network.make(layers=layers), inputs, shapes


def text(prompt: int = 100, new: int = 64, layers: int = 8) -> tuple[Any, dict[str, ExampleCall]]:
    """The decoder as it generates text: once a prompt of about this length, then a token at a time behind its past."""
    module = generation.imported(decoder_network.make(layers=layers))
    (tokens,) = decoder_network.example_inputs(1, prompt)
    token, cache = decoder_network.example_inputs(1, 1, prompt + new // 2, layers=layers)
    lengths = {prompt: 1.0, prompt + prompt // 3: 1.0}
    pasts = {prompt + share * new // 4: 1.0 for share in (0, 2, 4)}
    return module, {
        "prompt": ExampleCall((tokens,), sizes={"length": lengths}),
        "step": ExampleCall((token, *cache), weight=new, sizes={"past": pasts}),
    }
