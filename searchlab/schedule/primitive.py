"""Infrastructure of the primitives: the `primitive` decorator, traces, and lookup in programs.

A primitive is a pure function Program -> Program.  The decorator binds its arguments, records the step in the program's
trace, verifies the result, and reports every refusal as the same type of error, prefixed with the primitive's name.
"""

from __future__ import annotations

import difflib
import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from searchlab.errors import IRError, ScheduleError, TraceError
from searchlab.intrinsics import check_tensorized
from searchlab.ir.bounds import Facts
from searchlab.ir.expr import Expr, Var
from searchlab.ir.jsonform import decode, encode
from searchlab.ir.program import Program
from searchlab.ir.statement_tree import kept, map_expressions, path_to, read, statements, swap, written
from searchlab.ir.stmt import Block, Loop, Seq, Stmt
from searchlab.ir.verify import verify
from searchlab.ir.walk import Substitution, variables

P = ParamSpec("P")
PRIMITIVES: dict[str, Callable[..., Program]] = {}


@dataclass(frozen=True, slots=True)
class Step:
    """One application of a primitive: its arguments, and the names it created."""

    name: str
    arguments: tuple[tuple[str, Any], ...]
    made: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MadeNames:
    """The result of a primitive's body: the new program and the names of the loops, block or buffer it created.

    `recorded` replaces arguments in the trace that cannot be serialised, such as functions.
    """

    program: Program
    names: tuple[str, ...] = ()
    recorded: tuple[tuple[str, Any], ...] = ()


def check(condition: bool, message: str | Callable[[], str]) -> None:
    """Refuses an illegal use of a primitive; an expensive message is passed as a function."""
    if not condition:
        raise ScheduleError(message if isinstance(message, str) else message())


def primitive(function: Callable[Concatenate[Program, P], MadeNames]) -> Callable[Concatenate[Program, P], Program]:
    """Decorates a schedule primitive: records its steps, verifies its results, and names it in errors."""
    signature = inspect.signature(function)
    name = function.__name__

    @wraps(function)
    def run(program: Program, *args: P.args, **kwargs: P.kwargs) -> Program:
        try:
            bound = signature.bind(program, *args, **kwargs)
        except TypeError as e:
            raise ScheduleError(f"{name}: {e}; it takes {signature}") from None
        try:
            made = function(program, *args, **kwargs)
            verify(made.program)
            check_tensorized(made.program)
        except (ScheduleError, IRError) as e:
            raise ScheduleError(f"{name}: {e}") from e
        given = dict(list(bound.arguments.items())[1:]) | dict(made.recorded)
        arguments = tuple((k, _freeze(v)) for k, v in given.items())
        return replace(made.program, trace=(*program.trace, Step(name, arguments, made.names)))

    PRIMITIVES[name] = run
    run.__signature__ = signature.replace(return_annotation="Program")  # type: ignore[attr-defined]
    return run  # type: ignore[return-value]


def _freeze(value: Any) -> Any:
    return tuple(_freeze(v) for v in value) if isinstance(value, (list, tuple)) else value


# --- traces -----------------------------------------------------------------------------------------------------------


def trace_json(program: Program) -> str:
    """The steps that made the program, as JSON."""
    return json.dumps([[s.name, {k: encode(v) for k, v in s.arguments}] for s in program.trace])


def replay(program: Program, trace: str) -> Program:
    """Applies the steps of `trace_json` to a program."""
    try:
        steps = [(name, {k: decode(v) for k, v in arguments.items()}) for name, arguments in json.loads(trace)]
    except (ValueError, AttributeError, TypeError, IRError) as e:
        raise TraceError(f"not a trace: {e}") from e
    for number, (name, arguments) in enumerate(steps):
        if not isinstance(name, str) or name not in PRIMITIVES:
            raise TraceError(f"step {number}: unknown primitive '{name}'; known: {', '.join(sorted(PRIMITIVES))}")
        parameters = inspect.signature(PRIMITIVES[name]).parameters.values()
        rest = [p.name for p in parameters if p.kind is p.VAR_POSITIONAL]
        try:
            many = [x for n in rest for x in arguments.pop(n, ())]
            program = PRIMITIVES[name](program, *many, **arguments)
        except TypeError as e:  # traces are untrusted input
            raise TraceError(f"step {number}: {name} does not take such arguments: {e}") from e
    return program


# --- lookup -----------------------------------------------------------------------------------------------------------


def nearest(kind: str, name: object, known: Iterable[str]) -> str:
    """The error message for an unknown name, with the closest known one."""
    names = list(known)
    near = difflib.get_close_matches(str(name), names, 1)
    return (
        f"there is no {kind} '{name}'" + (f" (nearest: '{near[0]}')" if near else "") + f"; known: {', '.join(names)}"
    )


def find_loop(program: Program, name: str) -> Loop:
    """The loop of that name."""
    check(name in program.loops, lambda: nearest("loop", name, program.loops))
    return program.loops[name]


def find_block(program: Program, name: str) -> Block:
    """The block of that name."""
    check(name in program.blocks, lambda: nearest("block", name, program.blocks))
    return program.blocks[name]


def loops_around(program: Program, block: str) -> list[Loop]:
    """The loops around a block, outermost first."""
    return [s for s in path_to(program.body, find_block(program, block)) if isinstance(s, Loop)]


def blocks_in(s: Stmt) -> Iterator[Block]:
    """All blocks in a statement."""
    return (x for x in statements(s) if isinstance(x, Block))


def leaves_in(s: Stmt) -> Iterator[Block]:
    """The leaf blocks in a statement."""
    return (b for b in blocks_in(s) if not any(isinstance(x, Block) for x in statements(b.body)))


def is_leaf(block: Block) -> bool:
    """Whether the body of a block is a single store."""
    return not any(isinstance(x, Block) for x in statements(block.body))


def replaced(program: Program, old: Stmt, new: Stmt) -> Stmt:
    """The program's body with one statement replaced."""
    return kept(swap(program.body, old, new))


def rewrite_nest(s: Stmt, mapping: dict[Var, Expr], facts: Facts) -> Stmt:
    """The statement with loop variables replaced in bindings, predicates and extents, then simplified."""
    put = Substitution(mapping)

    def change(e: Expr) -> Expr:
        return facts.simplify(put(e)) if variables(e) & mapping.keys() else e

    return map_expressions(s, change)


def fresh(program: Program, wanted: str, taken: Iterable[str] = ()) -> str:
    """A name derived from the wanted one that no loop, block or buffer has."""
    used = {*program.loops, *program.blocks, *program.buffers, *taken}
    name, number = wanted, 1
    while name in used:
        number += 1
        name = f"{wanted}{number}"
    return name


def top_statement(program: Program, s: Stmt) -> Stmt:
    """The statement of the program's outermost sequence that holds `s`."""
    path = path_to(program.body, s)
    return path[1] if isinstance(path[0], Seq) else path[0]


def consumers(program: Program, buffer: str) -> list[Block]:
    """The leaf blocks that read a buffer and do not write it."""
    return [b for b in leaves_in(program.body) if buffer in read(b) and buffer not in written(b)]


def producers(program: Program, buffer: str) -> list[Block]:
    """The leaf blocks that write a buffer."""
    return [b for b in leaves_in(program.body) if buffer in written(b)]


def names_of(items: Sequence[Any]) -> str:
    """Names joined for an error message."""
    return ", ".join(f"'{getattr(x, 'name', x)}'" for x in items)
