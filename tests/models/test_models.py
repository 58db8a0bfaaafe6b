"""The networks of experiments/models: published sizes, weights from seeds, and a cache that changes nothing."""

from types import ModuleType

import pytest
import torch
from torch import Tensor

from experiments.models import bert, decoder, mobilenet_v2, resnet, unet

SMALL = {"layers": 2, "width": 32, "heads": 4, "vocabulary": 50}


@pytest.mark.parametrize(
    ("model", "sizes", "parameters"),
    [
        (resnet, {"depth": 18}, 11_689_512),
        (resnet, {"depth": 50}, 25_557_032),
        (mobilenet_v2, {}, 3_504_872),
        (bert, {}, 109_482_240),
    ],
)
def test_they_have_the_published_number_of_parameters(
    model: ModuleType, sizes: dict[str, int], parameters: int
) -> None:
    with torch.device("meta"):  # no memory, no time
        made = model.make(**sizes)
    assert sum(p.numel() for p in made.parameters()) == parameters


def test_a_unet_halves_its_images_four_times_to_1024_channels() -> None:
    with torch.device("meta"):
        made = unet.make()
    assert [block[0].out_channels for block in made.down] == [64, 128, 256, 512, 1024]
    assert tuple(made(torch.empty(1, 3, 64, 96, device="meta")).shape) == (1, 2, 64, 96)


def test_weights_are_determined_by_the_seed_and_leave_the_generator_of_torch_alone() -> None:
    state = torch.get_rng_state()
    first, again, other = (unet.make(width=2, depth=1, seed=seed).state_dict() for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["head.weight"], other["head.weight"])
    assert first["down.0.1.running_mean"].std() > 0 and first["up.0.bias"].std() > 0


@torch.no_grad()
def test_values_neither_vanish_nor_explode() -> None:
    cases = [(resnet, resnet.make(50, width=8)), (mobilenet_v2, mobilenet_v2.make(last=64)), (unet, unet.make(width=4))]
    for model, made in cases:
        (x,) = model.example_inputs(1, 64, 64) if model is unet else model.example_inputs(1, 64)
        assert 0.02 < made(x).std() < 200, model.__name__


@torch.no_grad()
@pytest.mark.parametrize("parts", [(5, 1, 1, 1), (2, 4, 2), (1, 7)])
def test_a_cache_changes_nothing(parts: tuple[int, ...]) -> None:
    model = decoder.make(hidden=48, **SMALL)
    (tokens,) = decoder.example_inputs(batch=2, length=8, **SMALL)
    whole, cache = model(tokens)
    logits: list[Tensor] = []
    grown = None
    for part in tokens.split(parts, dim=1):
        made, grown = model(part, grown)
        logits.append(made)
    assert grown is not None
    torch.testing.assert_close(torch.cat(logits, dim=1), whole, rtol=1e-4, atol=1e-5)
    for a, b in zip(grown, cache, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_padding_changes_no_other_position() -> None:
    model = bert.make(layers=2, width=32, heads=4, hidden=64, vocabulary=50, positions=16)
    tokens, segments, mask = bert.example_inputs(batch=3, length=8, vocabulary=50)
    assert mask.sum(dim=1).tolist() == [8, 7, 6]
    changed = torch.where(mask == 1, tokens, (tokens + 1) % 50)
    a, b = model(tokens, segments, mask)[0], model(changed, segments, mask)[0]
    assert torch.equal(a[mask == 1], b[mask == 1]) and not torch.equal(a, b)
