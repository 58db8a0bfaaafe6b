"""Whole networks, imported once and compared with torch at sizes that they were not exported with."""

from typing import Any

import numpy as np
import pytest
import torch
from tiny_networks import LLM, TINY, Network, arrays, flat, imported, tiny, tokens
from torch import Tensor

from experiments.models import bert, decoder, mobilenet_v2, resnet, unet
from searchlab.graph import (
    GraphModule,
    LibraryCall,
    OperatorCall,
    evaluate_graph,
    from_torch,
    legalise,
    verify_graph,
)
from searchlab.graph.legalising import everything

# float32 in torch against an interpreter that rounds after each operator; relative to the largest element
TOLERANCE = 2e-5


def assert_same(found: Any, wanted: Any) -> None:
    for number, (got, want) in enumerate(zip(flat(found), flat(wanted), strict=True)):
        assert got.dtype == want.numpy().dtype
        atol = TOLERANCE * max(1.0, float(want.abs().max()))
        np.testing.assert_allclose(got, want.numpy(), TOLERANCE, atol, err_msg=f"result {number}")


@torch.no_grad()
@pytest.mark.parametrize("name", TINY)
def test_results_are_those_of_torch(name: str) -> None:
    network, module = TINY[name], tiny(name)
    model = network.make()
    for sizes in network.tried:
        assert all(a != b for a, b in zip(sizes, network.exported, strict=True))
        inputs = network.inputs(*sizes)
        assert_same(evaluate_graph(module, *arrays(inputs)), model(*inputs))


@pytest.mark.parametrize("name", TINY)
def test_sizes_keep_the_names_they_were_declared_by(name: str) -> None:
    function = tiny(name)["main"]
    verify_graph(tiny(name))
    assert tuple(sorted(v.name for v in function.ranges)) == TINY[name].symbols


@pytest.mark.parametrize("name", TINY)
def test_weights_are_constants_under_their_names(name: str) -> None:
    state = TINY[name].make().state_dict()
    held = {key.replace(".", "_"): value for key, value in state.items() if not key.endswith("num_batches_tracked")}
    constants = tiny(name).constants
    assert constants.keys() == held.keys()
    assert all(np.array_equal(constants[key].array, value.numpy()) for key, value in held.items())


@pytest.mark.parametrize(("name", "count"), [("bert", 2), ("prompt", 2), ("extension", 2)])
def test_attention_is_kept_whole(name: str, count: int) -> None:
    calls = [c.operator.name for c in tiny(name)["main"].calls.values() if isinstance(c, OperatorCall)]
    assert calls.count("attention") == count and "softmax" not in calls


@pytest.mark.parametrize("name", TINY)
def test_every_call_becomes_one_of_a_program(name: str) -> None:
    lowered = legalise(tiny(name), everything)
    verify_graph(lowered)
    calls = list(lowered["main"].calls.values())
    assert not any(isinstance(call, OperatorCall) for call in calls)
    assert {call.callee for call in calls if isinstance(call, LibraryCall)} <= {"take"}  # embeddings


def decoding(model: decoder.Decoder) -> GraphModule:
    """A module with two functions that share their weights."""
    prompt = from_torch(model, tokens(3, 6), decoder.dynamic_shapes(layers=2), name="prompt")
    free = decoder.dynamic_shapes(length=1, past=1, layers=2)
    return from_torch(model, tokens(3, 1, 5), free, name="step", into=prompt)


@torch.no_grad()
def test_a_prompt_and_steps_of_decoding() -> None:
    model = decoder.make(hidden=48, **LLM)
    module = decoding(model)
    assert module.constants.keys() == {key.replace(".", "_") for key in model.state_dict()}
    (given,) = tokens(2, 4)
    logits, cache = model(given)
    found = evaluate_graph(module, given.numpy(), function="prompt")
    assert_same(found, (logits, cache))
    for _ in range(5):
        chosen: Tensor = logits[:, -1].argmax(dim=-1, keepdim=True)
        assert np.array_equal(found[0][:, -1].argmax(axis=-1), chosen[:, 0].numpy())
        logits, cache = model(chosen, cache)
        found = evaluate_graph(module, chosen.numpy(), *found[1:], function="step")
        assert_same(found, (logits, cache))
    assert found[1].shape == (2, 4, 9, 8)


# --- the published sizes ----------------------------------------------------------------------------------------------

REAL = {
    "resnet18": Network(resnet.make, resnet.example_inputs, resnet.dynamic_shapes, (2,), ((1,),), ()),
    "resnet50": Network(lambda: resnet.make(50), resnet.example_inputs, resnet.dynamic_shapes, (2,), ((1,),), ()),
    "mobilenet_v2": Network(
        mobilenet_v2.make, mobilenet_v2.example_inputs, mobilenet_v2.dynamic_shapes, (2,), ((1,),), ()
    ),
    "unet": Network(unet.make, unet.example_inputs, unet.dynamic_shapes, (2, 64, 96), ((1, 96, 64),), ()),
    "bert": Network(bert.make, bert.example_inputs, bert.dynamic_shapes, (2, 16), ((1, 128),), ()),
    "decoder": Network(decoder.make, decoder.example_inputs, decoder.dynamic_shapes, (2, 16), ((1, 64),), ()),
}


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("name", REAL)
def test_networks_of_published_sizes(name: str) -> None:
    network = REAL[name]
    module, model = imported(network), network.make()
    for sizes in network.tried:
        inputs = network.inputs(*sizes)
        assert_same(evaluate_graph(module, *arrays(inputs)), model(*inputs))
