"""JSON: values as it can write them, and files that may be damaged, which have the expected form or are refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from searchlab.errors import SearchLabError

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError


def plain(value: Any, digits: int | None = None) -> Any:
    """The value as JSON can write it: objects and lists of text, numbers, true, false and null.

    Dataclasses become objects and arrays lists; null stands for numbers that are not finite, text for what else there
    is.  With `digits`, floats keep this number of significant ones.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return _finite(value, digits)
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name), digits) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(k): plain(v, digits) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(v, digits) for v in value]
    if hasattr(value, "tolist"):  # numpy's arrays and scalars, without importing numpy
        return plain(value.tolist(), digits)
    return str(value)


def _finite(value: float, digits: int | None) -> float | None:
    if not math.isfinite(value):
        return None
    return float(value) if digits is None else float(f"{value:.{digits}g}")


def read(
    path: Path, form: type[BaseModel], error: Callable[[str], SearchLabError], remedy: str
) -> dict[str, Any] | None:
    """The object in a file, as written; None if there is no file.

    A file that does not match `form` raises `error` with the path, the reason and the `remedy`.
    """
    try:
        return parse(path.read_bytes(), form)
    except FileNotFoundError:
        return None
    except IsADirectoryError:
        raise error(f"{path} is a folder where a file should be: move it away") from None
    except OSError as e:
        raise error(f"{path} cannot be read: {e.strerror or e}; {remedy}") from None
    except ValueError as e:
        raise error(f"{path} is damaged: {e}; {remedy}") from None


def parse(raw: bytes, form: type[BaseModel]) -> dict[str, Any]:
    """The object in a text; ValueError with a one-line reason if it does not match the form."""
    from pydantic import ValidationError

    try:
        form.model_validate_json(raw, strict=True)
    except ValidationError as e:
        raise ValueError(reason(e)) from None
    found: dict[str, Any] = json.loads(raw)  # the form would have made floats of some integers
    return found


def reason(error: ValidationError) -> str:
    """The first thing that is wrong, and where."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(step) for step in first["loc"])
    what = str(first["msg"]).removeprefix("Value error, ")
    return f"{where}: {what}" if where else what
