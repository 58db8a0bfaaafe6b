"""JSON files that may be damaged: what they hold, if it has the form that is expected, or what is wrong with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from searchlab.errors import SearchLabError

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError


def read(
    path: Path, form: type[BaseModel], error: Callable[[str], SearchLabError], remedy: str
) -> dict[str, Any] | None:
    """The object in a file, as it is written there; None where there is no file.

    Whatever has not the `form` is raised as `error`, with the file, what is wrong with it, and `remedy`: what to do.
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
    """The object that a text holds; ValueError says in one line why there is none of this form."""
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
