"""Arrays of callers and of the machine: numpy, torch and whatever speaks DLPack, as descriptors and back."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from searchlab.dtype import BFLOAT16, DTYPES
from searchlab.errors import GraphError
from searchlab.graph.annotations import Annotation, ShapeType, TensorType, TupleType
from searchlab.graph.vm.machine import DTYPE_NUMBERS, MOST_AXES, SHAPE_NUMBER

Array = npt.NDArray[Any]
Convert = Callable[[Array, str], Any]  # an array of elements of a dtype, as the caller's kind of array


class Passed(NamedTuple):
    """An argument: where it is, what it holds, its extents, and the object that keeps it alive."""

    address: int
    dtype: int
    shape: tuple[int, ...]
    keep: object


def flatten(where: str, annotation: Annotation, value: Any) -> Iterator[tuple[str, Annotation, Any]]:
    """The tensors and shapes of an argument, each with what is expected of it."""
    if not isinstance(annotation, TupleType):
        yield where, annotation, value
        return
    if not isinstance(value, (tuple, list)) or len(value) != len(annotation.parts):
        got = f"{len(value)} values" if isinstance(value, (tuple, list)) else type(value).__name__
        raise GraphError(f"{where}: expected {annotation}, got {got}")
    for number, (part, item) in enumerate(zip(annotation.parts, value, strict=True)):
        yield from flatten(f"{where}[{number}]", part, item)


def passed(where: str, annotation: Annotation, value: Any) -> Passed:
    """An argument as the machine takes it; what is not contiguous or not aligned is copied."""
    if isinstance(annotation, ShapeType):
        return _shape(where, annotation, value)
    assert isinstance(annotation, TensorType)
    if type(value) is not np.ndarray and _is_torch(value):
        return _of_torch(where, annotation, value)
    array = _as_numpy(where, annotation, value)
    kind, flags = array.dtype, array.flags
    if not (kind.isnative and flags.c_contiguous and flags.aligned):
        array = np.ascontiguousarray(array, kind.newbyteorder("=")).reshape(array.shape)
        array = array if array.flags.aligned else array.copy()
    name = _name(kind)
    if annotation.dtype == BFLOAT16 and name == DTYPES[BFLOAT16].storage:
        name = BFLOAT16
    address = int(array.__array_interface__["data"][0])
    return Passed(address, _dtype_number(where, annotation, name), _extents(where, array.shape), array)


@cache
def _name(kind: np.dtype[Any]) -> str:
    return kind.name  # which numpy computes at every call


@cache
def _typestr(dtype: str) -> str:
    return np.dtype(DTYPES[dtype].storage).str


def _shape(where: str, annotation: ShapeType, value: Any) -> Passed:
    try:
        extents = tuple(int(n.__index__()) for n in value)
    except (TypeError, AttributeError):
        raise GraphError(f"{where}: expected {annotation}, a tuple of integers, got {type(value).__name__}") from None
    return Passed(0, SHAPE_NUMBER, _extents(where, extents), None)


def _extents(where: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(shape) > MOST_AXES:
        raise GraphError(f"{where}: {len(shape)} axes, of which there may be {MOST_AXES}")
    return tuple(shape)


def _dtype_number(where: str, annotation: TensorType, name: str) -> int:
    if name not in DTYPE_NUMBERS:
        raise GraphError(f"{where}: an array of {name}, expected {annotation}")
    return DTYPE_NUMBERS[name]


def _as_numpy(where: str, annotation: TensorType, value: Any) -> Array:
    if isinstance(value, np.ndarray):
        return np.asarray(value)
    if hasattr(value, "__dlpack__"):
        try:
            return np.from_dlpack(value)
        except (TypeError, BufferError, RuntimeError, ValueError) as e:
            raise GraphError(f"{where}: cannot be read through DLPack: {e}") from e
    got = type(value).__name__
    raise GraphError(f"{where}: expected {annotation} as an array of numpy or torch, or with __dlpack__; got {got}")


def _is_torch(value: Any) -> bool:
    torch = sys.modules.get("torch")  # who passes a tensor has imported it
    return torch is not None and isinstance(value, torch.Tensor)


def _of_torch(where: str, annotation: TensorType, value: Any) -> Passed:
    if value.device.type != "cpu":
        raise GraphError(f"{where}: a tensor on {value.device}; models run on the CPU")
    held = value.detach().contiguous()
    if held.is_conj() or held.is_neg():
        held = held.resolve_conj().resolve_neg()
    number = _dtype_number(where, annotation, str(held.dtype).removeprefix("torch."))
    return Passed(held.data_ptr(), number, _extents(where, tuple(held.shape)), held)


def converter(value: Any) -> Convert:
    """How results are given to whoever passes such arrays."""
    if isinstance(value, np.ndarray) or value is None:
        return lambda array, dtype: array
    if _is_torch(value):
        return _to_torch
    namespace = getattr(value, "__array_namespace__", None)
    if namespace is not None and hasattr(namespace(), "from_dlpack"):
        return lambda array, dtype: namespace().from_dlpack(array)
    return lambda array, dtype: array


def _to_torch(array: Array, dtype: str) -> Any:
    torch = sys.modules["torch"]
    made = torch.from_numpy(array)
    return made.view(torch.bfloat16) if dtype == BFLOAT16 else made


class _Block:
    """Memory that the machine has allocated for a result; freed with the last array that refers to it."""

    __slots__ = ("__array_interface__", "_address")

    def __init__(self, address: int, dtype: str, shape: tuple[int, ...]) -> None:
        self._address = address
        self.__array_interface__ = {"data": (address, False), "typestr": _typestr(dtype), "shape": shape, "version": 3}

    def __del__(self) -> None:
        if _free is not None:  # at exit, when modules have been emptied, the system frees everything
            _free()(self._address)


@cache
def _free() -> Any:
    free = ctypes.CDLL(None).free
    free.argtypes, free.restype = [ctypes.c_void_p], None
    return free


_DTYPE_NAMES = {number: name for name, number in DTYPE_NUMBERS.items()}


def received(address: int, dtype: int, shape: tuple[int, ...], convert: Convert) -> Any:
    """A result: an array that owns its memory, or a shape as a tuple."""
    if dtype == SHAPE_NUMBER:
        _free()(address)
        return shape
    name = _DTYPE_NAMES[dtype]
    return convert(np.asarray(_Block(address, name, shape)), name)


def dtype_name(number: int) -> str:
    """The dtype of a number, for messages."""
    return "a shape" if number == SHAPE_NUMBER else _DTYPE_NAMES.get(number, f"dtype {number}")
