"""The forms that values may take in a file, as JSON schema; what they become is always one form."""

from __future__ import annotations

from typing import Any

from searchlab.lab.config.measuring import KINDS

Schema = dict[str, Any]

NAMED: Schema = {"type": "object", "minProperties": 1, "maxProperties": 1}
_OPTIONS: Schema = {"type": ["object", "null"]}
_ONE_OR_MORE_TEXTS: Schema = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}

_WEIGHTS: Schema = {"type": "object", "minProperties": 1, "additionalProperties": {"type": "number"}}
_NETWORK: Schema = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "tasks": _WEIGHTS, "tables": _WEIGHTS, "graph": {"type": "string"}},
    "required": ["name"],
    "additionalProperties": False,
}

COMPONENT: Schema = {
    "description": 'a name, {name: {options}}, or "module:Class"',
    "anyOf": [{"type": "string"}, {**NAMED, "additionalProperties": _OPTIONS}, {"type": "null"}],
}
TARGET: Schema = {
    "description": "native, a CPU by name, or {native: {threads: 2}}",
    "anyOf": [
        {"type": "string"},
        {
            **NAMED,
            "additionalProperties": {"type": ["object", "null"], "properties": {"threads": {"type": "integer"}}},
        },
    ],
}
WORKLOAD: Schema = {
    "description": "matmul:m=512, matmul:m=dyn(1..512), {matmul: {m: 512}}, {suite: ansor-ops}, {network: resnet18}, "
    "{graph: model.py:make}, {table: matmul-256}, "
    "{video: {model: resnet18, clip: street.mp4, bound: {relative_error: 0.01}}}",
    "anyOf": [
        {"type": "string"},
        {
            **NAMED,
            "properties": {
                "suite": _ONE_OR_MORE_TEXTS,
                "table": _ONE_OR_MORE_TEXTS,
                "graph": _ONE_OR_MORE_TEXTS,
                "video": {"type": ["object", "array"]},
                "network": {"anyOf": [*_ONE_OR_MORE_TEXTS["anyOf"], _NETWORK]},
            },
        },
    ],
}
WORKLOADS: Schema = {"anyOf": [{"type": "array", "items": WORKLOAD, "minItems": 1}, WORKLOAD]}
CHANGES: Schema = {"type": "object", "description": "setting: value, such as {strategy.population: 64}"}
SELECTOR: Schema = {
    "description": "an entry by its name (with * for several), or {factor: value}",
    "anyOf": [{"type": "string"}, {"type": "object", "additionalProperties": {"type": "string"}}],
}
BASE: Schema = {"anyOf": [{"type": "string"}, CHANGES]}
SEEDS: Schema = {
    "description": "one number, a range such as 0..9, or a list of both",
    "anyOf": [
        {"type": ["integer", "string"]},
        {"type": "array", "items": {"type": ["integer", "string"]}, "minItems": 1},
    ],
}
HISTORY: Schema = {"anyOf": [*_ONE_OR_MORE_TEXTS["anyOf"], {"type": "null"}]}
INCLUDE: Schema = _ONE_OR_MORE_TEXTS
_LISTS: Schema = {"type": "object", "additionalProperties": {"type": "array", "minItems": 1}}
SWEEP: Schema = {
    "anyOf": [
        {
            "type": "object",
            "properties": {"grid": _LISTS, "zip": _LISTS, "list": {"type": "array", "items": CHANGES}},
            "additionalProperties": False,
        },
        _LISTS,
        {"type": "array", "items": CHANGES, "minItems": 1},
    ]
}


def measure() -> Schema:
    """Of `measure`: a kind, or a kind with its settings."""
    kinds = {kind: {"anyOf": [model.model_json_schema(), {"type": "null"}]} for kind, model in KINDS.items()}
    one = {**NAMED, "properties": kinds, "additionalProperties": False}
    return {"anyOf": [{"enum": list(KINDS)}, one]}
