"""Whole-program rewrites that are no schedule: substitution of symbols, renaming, JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from searchlab.errors import ConstraintError, IRError
from searchlab.ir import expr as _expr
from searchlab.ir import program as _program
from searchlab.ir.bounds import Facts
from searchlab.ir.expr import FALSE, TRUE, Const, Expr, Substitution, Var
from searchlab.ir.program import Buffer, Layout, Program, Stmt, map_expressions


def substitute_program(program: Program, values: Mapping[str, int]) -> Program:
    """The program with integers in place of symbols."""
    mapping = _mapping(program, values)
    put = Substitution(mapping)
    left = []
    for assumption in program.assumptions:
        now = put(assumption)
        if now == FALSE:
            chosen = ", ".join(
                f"{v.name}={values[v.name]}" for v in sorted(_expr.variables(assumption), key=str) if v.name in values
            )
            raise ConstraintError(f"{program.name}: {chosen} breaks '{assumption}', which the schedule relies on")
        if now != TRUE:
            left.append(now)
    buffers = {n: dataclasses.replace(b, shape=tuple(put(e) for e in b.shape)) for n, b in program.buffers.items()}
    layouts = tuple(_put_layout(la, buffers[la.buffer], put) for la in program.layouts)
    body = map_expressions(_put_annotations(program.body, put), put)
    new = dataclasses.replace(program, body=body, buffers=buffers, assumptions=tuple(left), layouts=layouts)
    return dataclasses.replace(new, body=_settle(new.body, new.facts))


def _settle(s: Stmt, facts: Facts) -> Stmt:
    """Conditions that the numbers decide are dropped: a tile that fits leaves no trace of having been a symbol."""
    if isinstance(s, _program.Block):
        inner = facts.having({it.var: it.extent for it in s.iters})
        bindings = tuple(facts.simplify(e) for e in s.bindings)
        s = dataclasses.replace(s, bindings=bindings, predicate=facts.simplify(s.predicate))
        if isinstance(s.body, _program.Store):
            init = None if s.init is None else _settle_store(s.init, inner)
            return dataclasses.replace(s, body=_settle_store(s.body, inner), init=init)
    new = _program.map_children(s, lambda child: _settle(child, facts))
    assert new is not None
    return new


def _settle_store(s: _program.Store, facts: Facts) -> _program.Store:
    return _program.Store(s.buffer, tuple(facts.simplify(i) for i in s.indices), facts.simplify(s.value))


def _put_layout(la: Layout, buffer: Buffer, put: Substitution) -> Layout:
    facts = Facts(dict(zip(la.iters, buffer.shape, strict=True)))
    source = tuple(facts.simplify(put(e)) for e in la.source)
    return Layout(la.buffer, _put_buffer(la.original, put), la.iters, source, facts.simplify(put(la.predicate)))


def _put_buffer(buffer: Buffer, put: Substitution) -> Buffer:
    return dataclasses.replace(buffer, shape=tuple(put(e) for e in buffer.shape))


def _put_annotations(s: Stmt, put: Substitution) -> Stmt:
    new = _program.map_children(s, lambda child: _put_annotations(child, put))
    assert new is not None
    if isinstance(new, (_program.Loop, _program.Block)) and new.annotations:
        notes = ((k, _put_note(v, put)) for k, v in new.annotations)
        new = dataclasses.replace(new, annotations=tuple((k, v) for k, v in notes if v is not None))
        return _choose(new) if isinstance(new, _program.Loop) else new
    return new


def _put_note(note: Any, put: Substitution) -> Any:
    """The note with integers in place of symbols, or None if that leaves nothing of it: 0 iterations ahead is now."""
    if isinstance(note, _program.Ahead):
        distance = put(note.distance)
        return None if distance == _expr.ZERO else dataclasses.replace(note, distance=distance)
    return put(note) if isinstance(note, Expr) else note


def _choose(loop: _program.Loop) -> _program.Loop:
    """A loop whose choice of kind has become a number is of that kind."""
    choice = dict(loop.annotations).get("kind")
    if not isinstance(choice, Const):
        return loop
    notes = tuple((k, v) for k, v in loop.annotations if k not in ("kind", "kinds"))
    return dataclasses.replace(loop, kind=loop.kinds[int(choice.value)], annotations=notes)


def _mapping(program: Program, values: Mapping[str, int]) -> dict[Var, Expr]:
    known = {v.name: v for v in program.symbols}
    noted = set(program.symbols) - program.measures
    for a in program.assumptions:
        known.update({v.name: v for v in _expr.variables(a)})
    mapping: dict[Var, Expr] = {}
    for name, number in values.items():
        if name not in known:
            raise IRError(f"{program.name} has no symbol '{name}'; its symbols: {', '.join(sorted(known)) or 'none'}")
        least = 0 if known[name] in noted else 1
        if isinstance(number, bool) or not hasattr(number, "__index__") or number.__index__() < least:
            raise IRError(f"{program.name}: symbol '{name}' takes an integer >= {least}, got {number!r}")
        mapping[known[name]] = Const(number.__index__())
    return mapping


def rename_buffer(s: Stmt, old: str, new: str) -> Stmt:
    """Every access of `old` becomes one of `new`."""
    from searchlab.ir.expr import Load, transform

    def access(e: Expr) -> Expr | None:
        return Load(new, e.indices, e.type) if isinstance(e, Load) and e.buffer == old else None

    def visit(x: Stmt) -> Stmt:
        if isinstance(x, _program.Store):
            return dataclasses.replace(x, buffer=new) if x.buffer == old else x
        if isinstance(x, _program.Block) and x.init is not None and x.init.buffer == old:
            x = dataclasses.replace(x, init=dataclasses.replace(x.init, buffer=new))
        return _program.map_children(x, visit)  # type: ignore[return-value]

    return visit(map_expressions(s, lambda e: transform(e, access)))


# --- JSON -------------------------------------------------------------------------------------------------------------

_CLASSES = {
    c.__name__: c
    for c in (
        _expr.Const, _expr.Var, _expr.Poly, _expr.Binary, _expr.Compare, _expr.And, _expr.Select, _expr.Cast,
        _expr.Call, _expr.Load, _program.Buffer, _program.Iter, _program.Store, _program.Seq, _program.Loop,
        _program.Block, _program.If, _program.Alloc, _program.Layout, _program.Program, _program.Ahead,
        _program.Prefetch,
    )
}  # fmt: skip


def encode(value: Any) -> Any:
    """IR values as plain JSON data: a node is a list headed by its class name, a tuple is a list headed by 'tuple'."""
    if type(value).__name__ in _CLASSES:
        fields = (f.name for f in dataclasses.fields(value) if f.name != "trace")
        return [type(value).__name__, *(encode(getattr(value, name)) for name in fields)]
    if isinstance(value, (tuple, list)):
        return ["tuple", *(encode(v) for v in value)]
    if isinstance(value, Mapping):
        return {k: encode(v) for k, v in value.items()}
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if hasattr(value, "__index__"):
        return value.__index__()  # an integer of numpy
    raise IRError(f"{value!r} cannot be written as JSON")


def decode(data: Any) -> Any:
    """The IR values that `encode` wrote."""
    if isinstance(data, list):
        head, *rest = data
        if head == "tuple":
            return tuple(decode(v) for v in rest)
        if head not in _CLASSES:
            raise IRError(f"unknown node '{head}'; known: {', '.join(_CLASSES)}")
        return _CLASSES[head](*(decode(v) for v in rest))
    if isinstance(data, dict):
        return {k: decode(v) for k, v in data.items()}
    return data


def to_json(program: Program) -> str:
    """The program (without its trace) as text that any process can read back."""
    return json.dumps(encode(program), separators=(",", ":"))


def from_json(text: str) -> Program:
    """The program that `to_json` wrote."""
    try:
        program = decode(json.loads(text))
    except (ValueError, TypeError) as e:
        raise IRError(f"not a program in JSON: {e}") from e
    if not isinstance(program, Program):
        raise IRError("not a program in JSON: it holds another value")
    return program
