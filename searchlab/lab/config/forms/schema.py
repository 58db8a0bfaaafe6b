"""The JSON schema of experiments, with which editors complete keys, show what they mean and mark mistakes."""

from __future__ import annotations

import inspect
from typing import Any

from searchlab.lab.config.experiment import Source
from searchlab.lab.config.forms import alternatives
from searchlab.registry import Registry, accepted_options, summary
from searchlab.search import REGISTRIES

DIALECT = "http://json-schema.org/draft-07/schema#"  # what editors understand
_PLAIN = (bool, int, float, str, type(None))


def schema() -> dict[str, Any]:
    """The schema; it knows the components that are installed, with their options."""
    made = Source.model_json_schema(by_alias=True, ref_template="#/definitions/{model}")
    made["definitions"] = made.pop("$defs")
    made.pop("required", None)  # what a file leaves out may be in one that it includes, or has a default
    made |= {"$schema": DIALECT, "title": "searchlab experiment"}
    for key, registry in REGISTRIES.items():
        old = made["properties"][key]
        made["properties"][key] = {"description": old["description"], **_component(registry)}
    return {k: made[k] for k in ("$schema", "title", *sorted(made.keys() - {"$schema", "title"}))}


def _component(registry: Registry[Any]) -> dict[str, Any]:
    known = registry.all()
    named = {
        name: {
            "description": summary(cls),
            "type": ["object", "null"],
            "properties": {k: _option(d) for k, d in accepted_options(cls).items() if k not in ("space", "rng")},
            "additionalProperties": False,
        }
        for name, cls in known.items()
    }
    by_name = {**alternatives.NAMED, "properties": named}
    return {"anyOf": [{"enum": [*known]}, {"type": "string", "pattern": ":"}, by_name, {"type": "null"}]}


def _option(default: Any) -> dict[str, Any]:
    plain = isinstance(default, _PLAIN) and default is not inspect.Parameter.empty
    return {"default": default} if plain else {}
