"""From a scheduled Program to plain loops: blocks dissolved, buffers placed, tails peeled, accumulators in registers.

`lower` runs the passes in order; each has its own module:
    flatten     blocks become guarded stores; a reduction becomes an Update, a store that carries its init
    lookups     indices are looked up within the bounds of their buffers, whatever conditions hold there
    fusion      loops that read what the loop before them wrote in the same iteration become part of it
    in_place    stages that become the output element by element are kept in its memory
    storage     intermediate buffers shrink to the region needed by one iteration of the loop they are allocated in
    partition   loops are cut so that their main part is free of conditions
    registers   reduction tiles are accumulated in registers; other reductions get explicit inits
    transposes  vectors along the columns of a buffer are taken in squares of its rows
    side_by_side
                groups of a few lanes that are stored next to each other become whole vectors
    invariants  divisions and functions that a loop does not change are computed before it
"""

from __future__ import annotations

from dataclasses import dataclass

from searchlab.errors import BuildError
from searchlab.ir.printer import buffer_text, stmt_lines
from searchlab.ir.program import Program
from searchlab.ir.stmt import Buffer, Stmt
from searchlab.lower.flatten import flatten
from searchlab.lower.fusion import fuse_loops
from searchlab.lower.in_place import keep_in_outputs
from searchlab.lower.invariants import hoist_invariants
from searchlab.lower.looking_up import look_up_inside
from searchlab.lower.partition import partition
from searchlab.lower.registers import place_reductions
from searchlab.lower.side_by_side import join_groups
from searchlab.lower.storage import place_buffers
from searchlab.lower.transposes import read_in_squares
from searchlab.targets import Target


@dataclass(frozen=True)
class Lowered:
    """Plain loops over parameters, the input of code generation."""

    name: str
    parameters: tuple[Buffer, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    body: Stmt

    def __str__(self) -> str:
        head = f"lowered {self.name}({', '.join(map(buffer_text, self.parameters))}):"
        return "\n".join([head, *stmt_lines(self.body, "  ")]) + "\n"


def lower(program: Program, target: Target) -> Lowered:
    """The program as plain loops for a target; its knobs must have become numbers."""
    if program.knobs:
        raise BuildError(
            f"{program.name} still has knobs: {', '.join(program.knobs)}; give them values with substitute()"
        )
    if program.assumptions:
        raise BuildError(f"{program.name} assumes {', '.join(f'{a!r}' for a in program.assumptions)} of run-time sizes")
    for lp in program.loops.values():
        if lp.kind.is_thread:
            raise BuildError(
                f"{program.name}: loop '{lp.name}' is bound to {lp.kind}, which target {target.name} does not have"
            )
    body = fuse_loops(look_up_inside(flatten(program), program.buffers))
    body = place_buffers(program, keep_in_outputs(program, body))
    body = partition(body)
    body = read_in_squares(place_reductions(body, target), program.buffers, target)
    body = hoist_invariants(join_groups(body, program.buffers, target))
    parameters = tuple(program.buffers[n] for n in (*program.inputs, *program.outputs))
    return Lowered(program.name, parameters, program.inputs, program.outputs, body)
