"""Models by name: where a graph, its example inputs and the torch module it came from are made.

    model_source("model.py:make")                  a function of a file, relative to a folder
    model_source("my_lab.models:make:batch=4")     a function of an importable module, with arguments
    model_source("resnet18")                       a model of `experiments/models`, where this folder is

The function returns a torch module in evaluation mode with a tuple of example inputs, and with dynamic shapes as
`torch.export` takes them if sizes are to stay open; or a `GraphModule`, alone or with a tuple of example arrays.  One
of several functions comes with an `ExampleCall` for each:

    return module, {"prompt": ExampleCall((tokens,)), "step": ExampleCall((token, *cache), weight=64)}
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from searchlab.dtype import BFLOAT16, BOOL, DTYPES, FLOATS
from searchlab.errors import GraphError
from searchlab.graph.annotations import TensorType
from searchlab.graph.functions import GraphModule
from searchlab.graph.operator import Array
from searchlab.graph.torch_import import from_torch
from searchlab.ir.bfloat16 import stored
from searchlab.ir.expr import Var, value_of
from searchlab.named import Named

MAIN = "main"
SHIPPED_MODELS = "experiments.models.examples"  # comes with the sources, not with the installed package
_FORMS = "a model is module:function, file.py:function, or a name such as resnet18, with :key=value,... for arguments"


@dataclass(frozen=True, eq=False)
class ExampleCall:
    """A call of a function that a model is searched, checked and timed with.

    `weight` is how often the function is called where others are called once.  `sizes` says for open sizes which values
    occur, and how often: {"past": {100: 1, 164: 2}}; others occur log-uniformly.  `eager` runs torch on the inputs.
    """

    inputs: tuple[Array, ...] = field(repr=False)
    weight: float = 1
    sizes: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    eager: Callable[[], Any] | None = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class ModelSource:
    """A model, ready to be compiled and to be compared: its graph, and calls of its functions, by their names.

    `text` is how it was named, `name` what it is called.
    """

    text: str
    name: str
    module: GraphModule = field(repr=False)
    calls: Mapping[str, ExampleCall] = field(repr=False)

    @property
    def first(self) -> ExampleCall:
        """The call of its only function, or of the first."""
        return next(iter(self.calls.values()))

    def called(self, function: str, name: str) -> str:
        """What something in a function is called in the model as a whole."""
        return name if len(self.calls) == 1 else f"{function}.{name}"


def model_source(text: str, folder: str | Path = ".") -> ModelSource:
    """The model that a text names; files are sought relative to a folder."""
    path, arguments = _split(text)
    what = f"model '{text}'"
    if ":" not in path:
        named = Named(_shipped(path, what), what, GraphError)
    elif path.partition(":")[0].endswith(".py"):
        named = Named(_of_file(path, Path(folder), what), what, GraphError)
    else:
        named = Named(path, what, GraphError)
    function = named.function(GraphModule)
    try:
        made = function(**arguments)
    except TypeError as e:
        raise GraphError(f"{what} cannot be made with {arguments or 'no arguments'}: {e}") from e
    return source_of(made, text, _called(path, text))


def source_of(made: Any, text: str = "", name: str = "model") -> ModelSource:
    """The model that a function returned; its forms are those of `model_source`."""
    parts = made if isinstance(made, tuple) else (made,)
    model, *rest = parts
    if isinstance(model, GraphModule):
        if len(rest) > 1:
            raise GraphError(f"model '{text or name}': a graph comes alone or with a tuple of example arrays")
        given = rest[0] if rest else _random(model)
        calls = given if isinstance(given, Mapping) else {MAIN: ExampleCall(tuple(given))}
        return ModelSource(text or name, name, model, _checked(model, calls, f"model '{text or name}'"))
    if not callable(getattr(model, "named_parameters", None)) or not 1 <= len(rest) <= 2:
        said = ", ".join(type(part).__name__ for part in parts)
        raise GraphError(
            f"model '{text or name}': its function returned ({said}); accepted: a torch module and a tuple of example "
            "inputs (and dynamic shapes), or a GraphModule (and a tuple of arrays)"
        )
    return _of_torch(text or name, name, model, *rest)


def _of_torch(text: str, name: str, model: Any, inputs: Any, dynamic_shapes: Any = None) -> ModelSource:
    import torch
    from torch.utils import _pytree as pytree

    given = tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
    module = from_torch(model, given, dynamic_shapes)
    tensors = [leaf for leaf in pytree.tree_leaves(given) if isinstance(leaf, torch.Tensor)]

    def eager() -> Any:
        with torch.inference_mode():
            return model(*given)

    return ModelSource(text, name, module, {MAIN: ExampleCall(tuple(map(array_of, tensors)), eager=eager)})


def _checked(module: GraphModule, calls: Mapping[str, ExampleCall], what: str) -> dict[str, ExampleCall]:
    """The calls with arrays as numpy has them; refuses those of no function, and weights of sizes that do not occur."""
    made = {}
    for name, call in calls.items():
        if name not in module.functions:
            raise GraphError(f"{what}: the graph has no function '{name}'; it has {', '.join(module.functions)}")
        if not isinstance(call, ExampleCall):
            raise GraphError(f"{what}: the call of '{name}' is a {type(call).__name__}; accepted: an ExampleCall")
        weights = {f"'{name}'": call.weight}
        known = {s.name for s in module[name].symbols}
        for size, often in call.sizes.items():
            if size not in known:
                raise GraphError(f"{what}: '{name}' has no size '{size}'; it has {', '.join(sorted(known)) or 'none'}")
            for value, weight in often.items():
                module[name].facts.check({Var(size, "size"): value}, f"{what}: '{name}'")
                weights[f"{size} = {value} of '{name}'"] = weight
        for of, weight in weights.items():
            if not 0 < weight < math.inf:
                raise GraphError(f"{what}: {of} has the weight {weight}; it says how often this occurs, and is above 0")
        made[name] = replace(call, inputs=tuple(np.asarray(x) for x in call.inputs))
    return made


def array_of(tensor: Any) -> Array:
    """A tensor of torch as an array; bfloat16, which numpy lacks, as its bits."""
    import torch

    plain = tensor.detach().contiguous()
    if plain.dtype == torch.bfloat16:
        return stored(plain.float().numpy(), BFLOAT16)
    found: Array = plain.numpy()
    return found


def _random(module: GraphModule) -> tuple[Array, ...]:
    """Arrays for the parameters of a graph: floats in [-1, 1), integers 0 and 1, which are indices of any table."""
    rng = np.random.default_rng(0)
    found = []
    for p in module[MAIN].parameters:
        a = p.annotation
        shape = [value_of(e) for e in a.dims()]
        if not isinstance(a, TensorType) or not a.is_whole or a.dtype is None or None in shape:
            raise GraphError(f"'{p.name}' is {a}: a graph with open sizes comes with a tuple of example arrays")
        if a.dtype in FLOATS:
            found.append(stored(rng.random(shape) * 2 - 1, a.dtype))  # type: ignore[arg-type]
        else:
            found.append(rng.integers(0, 2, shape).astype(bool if a.dtype == BOOL else DTYPES[a.dtype].storage))  # type: ignore[arg-type]
    return tuple(found)


# --- names ------------------------------------------------------------------------------------------------------------


def _split(text: str) -> tuple[str, dict[str, Any]]:
    """The path of a function and the arguments behind it."""
    path, _, tail = text.strip().rpartition(":")
    if not path or "=" not in tail:
        path, tail = text.strip(), ""
    arguments: dict[str, Any] = {}
    for part in re.split(r",\s*(?=\w+\s*=)", tail) if tail else ():
        key, equals, value = (s.strip() for s in part.partition("="))
        if not equals or not key.isidentifier():
            raise GraphError(f"'{text}': '{part}' is not of the form key=value; {_FORMS}")
        arguments[key] = _value(value)
    if not path or path.count(":") > 1:
        raise GraphError(f"'{text}' names no model; {_FORMS}")
    return path, arguments


def _called(path: str, text: str) -> str:
    """The name of a model: that of its function, or of its module if all such functions are called `make`."""
    module, _, function = path.rpartition(":")
    named = function if function != "make" else Path(module.removesuffix(".py")).name.rpartition(".")[2]
    return named + text.strip().removeprefix(path)


_WORDS: Mapping[str, Any] = {"true": True, "false": False, "none": None}


def _value(text: str) -> Any:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return _WORDS.get(text.lower(), text)


def _of_file(path: str, folder: Path, what: str) -> str:
    """The import path of a function of a file, which is run as a module of its own; it finds modules beside it."""
    file, _, name = path.partition(":")
    place = (folder / file).resolve()
    if not place.is_file():
        raise GraphError(f"{what}: there is no file {place}")
    unique = f"model_{hashlib.sha256(str(place).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(unique, place)
    assert spec is not None and spec.loader is not None  # any file with this suffix has a loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[unique] = module
    sys.path.insert(0, str(place.parent))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as e:  # importing runs arbitrary code
        raise GraphError(f"{what} cannot be imported: {type(e).__name__}: {e}") from e
    finally:
        sys.path.remove(str(place.parent))
    return f"{unique}:{name}"


def _shipped(name: str, what: str) -> str:
    """The import path of a model with a short name; says where such models are, if they are not here."""
    path = f"{SHIPPED_MODELS}:{name}"
    beside = Path(__file__).resolve().parents[2]  # the folder of the sources, if that is where searchlab runs from
    if _importable(SHIPPED_MODELS):
        return path
    if (beside / "experiments" / "models").is_dir():
        sys.path.append(str(beside))
        return path
    raise GraphError(
        f"{what}: short names are those of experiments/models, which comes with the sources of searchlab and is not on "
        f"the path of modules here; {_FORMS}"
    )


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
