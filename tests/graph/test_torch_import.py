"""What importing a torch module keeps (names, sizes, state), and what it refuses with which message."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from searchlab.errors import GraphError
from searchlab.graph import MatchCast, evaluate_graph, from_torch, verify_graph
from searchlab.graph.torch_import import CONVERTERS
from searchlab.graph.torch_import.importing import constant_name

N = Dim("n", min=2, max=20)


class Of(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def floats(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)))


# --- what is kept -----------------------------------------------------------------------------------------------------


class Counter(nn.Module):
    """Counts its calls in a buffer, and doubles its input in place."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(2))
        self.scale = torch.full((3,), 2.0)

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        self.calls.add_(1.0)
        x.mul_(2.0)
        return torch.relu_(x + self.scale + torch.tensor([1.0, 2.0, 3.0])), None


def test_state_that_changes_goes_in_and_out() -> None:
    module = from_torch(Counter(), (floats(4, 3),), ({0: N},))
    verify_graph(module)
    assert [p.name for p in module["main"].parameters] == ["x", "calls"]
    assert "scale" in module.constants and "calls" not in module.constants
    x, counter = floats(5, 3), Counter()
    before = x.numpy().copy()
    wanted, _ = counter(x)
    found, calls, doubled = evaluate_graph(module, before, np.zeros(2, "float32"))
    assert np.array_equal(found, wanted.numpy())
    assert np.array_equal(calls, counter.calls.numpy()) and np.array_equal(doubled, x.numpy())


def test_sizes_without_a_declared_name_are_called_by_their_input() -> None:
    module = from_torch(Of(lambda x: x * 2), (floats(4, 6, 3),), ({0: Dim.AUTO, 1: 2 * Dim("half", max=8)},))
    assert {str(v): (r.low, r.high) for v, r in module["main"].ranges.items()} == {"x_0": (2, None), "half": (2, 8)}
    assert str(module["main"].parameters[0].annotation) == "float32[x_0, half*2, 3]"
    assert evaluate_graph(module, np.zeros((7, 10, 3), "float32")).shape == (7, 10, 3)
    with pytest.raises(GraphError, match=r"expected float32\[x_0, half\*2, 3\] with .*half = 4"):
        evaluate_graph(module, np.zeros((7, 9, 3), "float32"))


def test_arguments_may_be_nested() -> None:
    class Nested(nn.Module):
        def forward(self, pair: tuple[Tensor, Tensor], named: dict[str, Tensor], count: int) -> dict[str, Tensor]:
            return {"sum": pair[0] + named["y"] * count, "other": pair[1]}

    given = ((floats(3, 2), floats(4)), {"y": floats(3, 2)}, 3)
    free = {"pair": ({0: N}, None), "named": {"y": {0: N}}, "count": None}
    module = from_torch(Nested(), given, free)
    assert [p.name for p in module["main"].parameters] == ["pair_0", "pair_1", "named_y"]
    a, b, y = (t.numpy() for t in (floats(5, 2), floats(4), floats(5, 2) + 1))
    total, other = evaluate_graph(module, a, b, y)
    assert np.allclose(total, a + 3 * y, 1e-6) and np.array_equal(other, b)


def strided(x: Tensor) -> Tensor:
    return nn.functional.conv1d(x, torch.ones(2, 2, 3), stride=2, padding=1)


def derived(x: Tensor) -> tuple[Tensor, ...]:
    n = x.shape[2]
    kept = x[:, :, ::2], x[:, :, 1::2], x[:, :, n - 3 :], torch.arange(1, n, 3)
    return *kept, strided(x), torch.cat([strided(x), x], dim=2), nn.functional.pad(x, (1, 2))


@torch.no_grad()
def test_sizes_that_torch_derives() -> None:
    module = from_torch(Of(derived), (floats(1, 2, 11),), ({2: Dim("length", min=8, max=64)},))
    verify_graph(module)
    assert str(module["main"].returns).startswith("(float32[1, 2, (length + 1) // 2], float32[1, 2, length // 2],")
    for length in (8, 9, 19):
        x = floats(1, 2, length)
        for got, want in zip(evaluate_graph(module, x.numpy()), derived(x), strict=True):
            np.testing.assert_allclose(got, want.numpy(), 1e-5, 1e-6)


@torch.no_grad()
def test_a_size_that_is_not_known_to_be_that_of_torch_is_checked_at_run_time() -> None:
    def twice(x: Tensor) -> Tensor:
        return strided(strided(x))

    module = from_torch(Of(twice), (floats(1, 2, 11),), ({2: Dim("length", min=8, max=64)},))
    verify_graph(module)
    (cast,) = [b for b in module["main"].bindings if isinstance(b.call, MatchCast)]
    assert str(cast.annotation) == "float32[1, 2, (length + 3) // 4]"
    for length in (8, 9, 10, 15, 20):
        x = floats(1, 2, length)
        np.testing.assert_allclose(evaluate_graph(module, x.numpy()), twice(x).numpy(), 1e-5, 1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@torch.no_grad()
def test_weights_of_other_types(dtype: torch.dtype) -> None:
    layer = nn.Linear(6, 4).to(dtype)
    module = from_torch(layer, (floats(3, 6).to(dtype),), ({0: N},))
    assert module.constants["weight"].dtype == str(dtype).removeprefix("torch.")
    x = floats(5, 6).to(dtype)
    bits = x.view(torch.uint16).numpy() if dtype is torch.bfloat16 else x.numpy()
    found = evaluate_graph(module, bits)
    if dtype is torch.bfloat16:
        found = torch.from_numpy(found).view(torch.bfloat16).float().numpy()
    tolerance = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float64: 1e-12}[dtype]
    np.testing.assert_allclose(found, layer(x).to(torch.float64).numpy(), tolerance, tolerance)


@torch.no_grad()
@pytest.mark.parametrize(
    "layer", [nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.LSTM(8, 4, batch_first=True)], ids=type
)
def test_layers_of_torch_that_are_decomposed(layer: nn.Module) -> None:
    layer.eval()
    module = from_torch(layer, (floats(4, 5, 8),), ({0: N},))
    for n in (2, 3, 7):
        x = floats(n, 5, 8)
        wanted = layer(x)
        wanted = [wanted] if isinstance(wanted, Tensor) else [wanted[0], *wanted[1]]
        found = evaluate_graph(module, x.numpy())
        for got, want in zip(found if isinstance(found, tuple) else [found], wanted, strict=True):
            np.testing.assert_allclose(got, want.numpy(), 1e-5, 1e-5)


def test_constants_do_not_follow_the_module() -> None:
    layer = nn.Linear(2, 2)
    module = from_torch(layer, (floats(1, 2),))
    before = module.constants["weight"].array.copy()
    with torch.no_grad():
        layer.weight.fill_(7.0)
    assert np.array_equal(module.constants["weight"].array, before)


def test_functions_of_one_module_share_weights_of_the_same_name() -> None:
    layer = nn.Linear(2, 2)
    first = from_torch(layer, (floats(1, 2),), name="row")
    both = from_torch(layer, (floats(4, 2),), ({0: N},), name="rows", into=first)
    assert list(both.functions) == ["row", "rows"] and sorted(both.constants) == ["bias", "weight"]
    with pytest.raises(GraphError, match="rows: there is another constant 'weight' already"):
        from_torch(nn.Linear(2, 2), (floats(4, 2),), name="rows", into=first)


def test_names_of_constants_are_identifiers_of_their_own() -> None:
    taken = {"x"}
    names = [constant_name(n, taken) for n in ("a.0.weight", "a_0.weight", "x", "0.bias", "a.0.weight")]
    assert names == ["a_0_weight", "a_0_weight_", "x_", "_0_bias", "a_0_weight__"]


def test_torch_is_not_imported_before_it_is_needed() -> None:
    check = "import sys, searchlab.graph; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", check], check=True, timeout=60)


def test_the_documentation_lists_what_is_covered() -> None:
    page = (Path(__file__).parents[2] / "docs" / "torch.md").read_text()
    rows = page.partition("| group | operators |")[2].partition("\n\n")[0].splitlines()[2:]
    listed = [re.findall(r"`(\w+)`", row) for row in rows]
    covered: dict[str, set[str]] = {}
    for overload, convert in CONVERTERS.items():
        covered.setdefault(convert.__module__, set()).add(overload.split(".")[1])
    assert sorted(listed) == sorted(sorted(names) for names in covered.values())


# --- what is refused --------------------------------------------------------------------------------------------------


class Inner(nn.Module):
    """Calls what no converter exists for."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cumsum(x, 0) + torch.special.bessel_j0(x)


def test_operators_that_are_not_covered_are_listed_with_their_places() -> None:
    model = nn.Sequential(nn.ReLU(), Inner(), nn.Sequential(Inner())).eval()
    with pytest.raises(GraphError) as caught:
        from_torch(model, (floats(3, 2),), ({0: N},))
    first, *lines = str(caught.value).splitlines()
    assert first == "Sequential: 2 operators are not covered (docs/torch.md lists those that are):"
    assert [line.partition(" at ")[0].strip() for line in lines] == [
        "aten.cumsum.default",
        "aten.special_bessel_j0.default",
    ]
    for line in lines:
        assert " at 1 (Inner), test_torch_import.py:" in line
        assert "return torch.cumsum(x, 0) + torch.special.bessel_j0(x), and 1 more" in line


def control(x: Tensor) -> Tensor:
    return x if x.sum() > 0 else -x


REFUSED: dict[str, tuple[Any, Any, str]] = {
    "not a module": (len, (floats(2),), "from_torch takes a torch.nn.Module, got builtin_function_or_method"),
    "not a tuple": (nn.ReLU(), floats(2), "ReLU: example_inputs is a tuple of arguments, got Tensor"),
    "dtype": (
        nn.ReLU(),
        (torch.zeros(2, dtype=torch.complex64),),
        "the input 'input' has dtype complex64; graphs have",
    ),
    "inner dtype": (Of(lambda x: torch.complex(x, x).real), (floats(2),), "aten.complex.default at the module itself"),
    "training": (nn.Dropout().train(), (floats(2),), "dropout while training is not covered; call module.eval()"),
    "statistics": (nn.BatchNorm2d(2).train(), (floats(2, 2, 3, 3),), "is in training mode; call eval() first"),
    "control flow": (Of(control), (floats(2),), "Of: torch.export refuses the module: "),
    "a number": (Of(lambda x: (x, 3)), (floats(2),), "Of: result 1 is 3, not a tensor"),
    "where": (Of(lambda x: x.max(0)), (floats(2, 2),), "result 1 of aten.max.dim is not covered"),
    "dilation": (nn.MaxPool2d(2, dilation=2), (floats(1, 1, 5, 5),), "dilation = (2, 2) is not covered"),
    "ceil_mode": (nn.AvgPool2d(2, ceil_mode=True), (floats(1, 1, 5, 5),), "ceil_mode with padding that counts"),
    "divisor": (nn.AvgPool2d(3, divisor_override=2), (floats(1, 1, 5, 5),), "a mean, without divisor_override"),
    "output_padding": (
        nn.ConvTranspose2d(2, 2, 2, stride=2, output_padding=1),
        (floats(1, 2, 5, 5),),
        "output_padding = (1, 1) beyond the padding is not covered",
    ),
    "groups": (
        nn.ConvTranspose2d(2, 2, 2, groups=2),
        (floats(1, 2, 5, 5),),
        "transposed convolutions are covered without groups",
    ),
    "volume": (nn.Conv3d(1, 1, 1), (floats(1, 1, 2, 2, 2),), "an operand of rank 5; convolutions over one or two"),
    "negative padding": (Of(lambda x: nn.functional.pad(x, (-1, 0))), (floats(3),), "padding by [-1, 0]"),
    "two indices": (Of(lambda x: x[[0, 1], [1, 0]]), (floats(2, 2),), "indices for 2 axes at once; one is covered"),
    "steps": (Of(lambda x: x + torch.arange(0, 1, 0.5)), (floats(2),), "numbers from 0 to 1 by 0.5; whole numbers"),
    "data": (Of(lambda x: x * x.sum().item()), (floats(2),), "aten.mul.Tensor at the module itself (Of), test_torch_"),
    "bits": (Of(lambda x: x.int() & x.int()), (floats(2),), "bits of int32; it is covered for bool"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    module, inputs, message = REFUSED[name]
    with pytest.raises(GraphError) as caught:
        from_torch(module, inputs)
    assert message in str(caught.value)


def test_a_size_as_a_result_is_refused() -> None:
    with pytest.raises(GraphError, match="Of: result 1 is a size, not a tensor"):
        from_torch(Of(lambda x: (x, x.shape[0])), (floats(4),), ({0: N},))


def test_examples_out_of_range_are_refused() -> None:
    with pytest.raises(GraphError, match=r"ReLU: torch.export refuses the module: 40 not in range \[2, 20\]$"):
        from_torch(nn.ReLU(), (floats(40),), ({0: N},))


def test_errors_say_where_in_the_module_they_arose() -> None:
    with pytest.raises(GraphError) as caught:
        from_torch(nn.Sequential(nn.ReLU(), Of(lambda x: x[[0, 1], [1, 0]])), (floats(2, 2),))
    assert "Sequential: aten.index.Tensor at 1 (Of), test_torch_import.py:" in str(caught.value)


def test_arguments_that_do_not_fit_are_refused_when_the_graph_runs() -> None:
    module = from_torch(nn.Linear(3, 2), (floats(4, 3),), ({0: N},))
    with pytest.raises(GraphError, match="main: n = 21 is out of its range, 2 <= n <= 20"):
        evaluate_graph(module, np.zeros((21, 3), "float32"))
    with pytest.raises(GraphError, match="main: input: an array of float64, expected float32"):
        evaluate_graph(module, np.zeros((4, 3)))
    with pytest.raises(GraphError, match=r"main: input: the value is float32\[4, 5\], expected float32\[n, 3\]"):
        evaluate_graph(module, np.zeros((4, 5), "float32"))


def test_without_torch_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(GraphError, match=r"from_torch needs torch: pip install 'searchlab\[torch\]'"):
        from_torch(object(), ())
