"""Composition of programs: outputs of some become inputs of others, and all other names are kept distinct.

    compose("mlp", [up, relu, down], {(1, "X"): (0, "Y"), (2, "X"): (1, "Y")})

A run-time size that is an extent of a fed input is replaced by the extent of the output that feeds it; sizes that mean
the same in all programs are named as `shared`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from searchlab.errors import IRError
from searchlab.ir.expr import Expr, Var
from searchlab.ir.program import Program
from searchlab.ir.rename import Renaming, rename
from searchlab.ir.stmt import Buffer, seq
from searchlab.ir.verify import verify
from searchlab.ir.walk import Substitution

Port = tuple[int, str]  # the position of a program and the name of one of its inputs or outputs


@dataclass(frozen=True)
class Composition:
    """A composed program, and what the inputs and outputs of its parts are called in it."""

    program: Program
    names: Mapping[Port, str]


def compose(
    name: str,
    programs: Sequence[Program],
    feeds: Mapping[Port, Port],
    outputs: Sequence[Port] | None = None,
    shared: Collection[str] = (),
) -> Program:
    """One program that runs several in order; `feeds` maps inputs to outputs, or to inputs, of earlier programs.

    Its inputs are those that nothing feeds; its outputs are `outputs`, by default those that feed nothing.  Names used
    by an earlier program get a numeric suffix, but for the sizes that are `shared`; the programs' traces are dropped.
    """
    return composed(name, programs, feeds, outputs, shared).program


def composed(
    name: str,
    programs: Sequence[Program],
    feeds: Mapping[Port, Port],
    outputs: Sequence[Port] | None = None,
    shared: Collection[str] = (),
) -> Composition:
    """Composes programs, and tells what became of their inputs and outputs."""
    _check_ports(programs, feeds)
    taken: set[str] = set()
    done: list[Program] = []
    called: dict[Port, str] = {}  # the names of ports in the composed program
    for number, program in enumerate(programs):
        names = _free(program, taken)
        called |= {(number, n): names[n] for n in (*program.inputs, *program.outputs)}
        sources = {own: called[_origin((at, own), feeds)] for at, own in feeds if at == number}
        called |= {(number, n): source for n, source in sources.items()}
        fed = {names[own]: source for own, source in sources.items()}
        symbols = {old: old if old in shared else new for old, new in names.items()}
        new = _sized(rename(program, Renaming(names, names, names, symbols)), fed, done, shared)
        done.append(rename(new, Renaming(buffers=fed)))
        taken |= _names(done[-1])
    unfed = [p for p in _ports(programs, "inputs") if p not in feeds]
    if outputs is None:
        used = set(feeds.values())
        outputs = [p for p in _ports(programs, "outputs") if p not in used]
    whole = _joined(name, done, [called[p] for p in unfed], [called[p] for p in outputs])
    verify(whole)
    return Composition(whole, called)


def _joined(name: str, parts: Sequence[Program], inputs: Sequence[str], outputs: Sequence[str]) -> Program:
    """The concatenation of programs whose only common names are those of shared buffers."""
    buffers = {n: b for p in reversed(parts) for n, b in p.buffers.items()}
    assumptions = dict.fromkeys(a for p in parts for a in p.assumptions)
    layouts = tuple(la for p in parts for la in p.layouts)
    body = seq(*(p.body for p in parts))
    return Program(name, tuple(inputs), tuple(outputs), buffers, body, tuple(assumptions), layouts)


def _origin(port: Port, feeds: Mapping[Port, Port]) -> Port:
    """The port that an input is, in the end, fed by."""
    while port in feeds:
        port = feeds[port]
    return port


def _ports(programs: Sequence[Program], role: str) -> list[Port]:
    return [(number, n) for number, p in enumerate(programs) for n in getattr(p, role)]


def _check_ports(programs: Sequence[Program], feeds: Mapping[Port, Port]) -> None:
    for program in (p for p in programs if p.updates):
        raise IRError(f"compose: {program.name} updates {', '.join(program.updates)}, which it can do only by itself")
    for (number, name), (source, output) in feeds.items():
        if (number, name) not in _ports(programs, "inputs"):
            raise IRError(f"compose: program {number} has no input '{name}'")
        given = _ports(programs, "inputs")  # an input may be one of a program before, or an earlier one of its own
        if (source, output) not in given and (source, output) not in _ports(programs, "outputs"):
            raise IRError(f"compose: program {source} has no output '{output}'")
        own = (source, output) in given and given.index((source, output)) < given.index((number, name))
        if source >= number and not own:
            raise IRError(
                f"compose: input '{name}' of program {number} cannot be fed by program {source}, which runs later"
            )
        for at, port in ((number, name), (source, output)):
            if any(la.buffer == port for la in programs[at].layouts):
                raise IRError(f"compose: '{port}' of program {at} is stored in another layout, which cannot be fed")


def _names(program: Program) -> set[str]:
    return {*program.buffers, *program.blocks, *program.loops, *(v.name for v in program.symbols)}


def _free(program: Program, taken: set[str]) -> dict[str, str]:
    """Unused names for the program's buffers, blocks, loops and symbols, by their old names."""
    used = taken | _names(program)
    names: dict[str, str] = {}
    for old in sorted(_names(program)):
        new, number = old, 2
        while new in taken or (new != old and new in used):
            new, number = f"{old}_{number}", number + 1
        used.add(new)
        names[old] = new
    return names


def _sized(program: Program, fed: Mapping[str, str], done: Sequence[Program], shared: Collection[str]) -> Program:
    """The program with its run-time sizes replaced by the extents of the outputs that feed it, which must match."""
    mapping: dict[Var, Expr] = {}
    pairs = [(program.buffers[own], _made(source, [*done, program])) for own, source in fed.items()]
    for own, made in pairs:
        for extent, known in zip(own.shape, made.shape, strict=False):
            if isinstance(extent, Var) and extent.role == "size" and extent.name not in shared:
                mapping.setdefault(extent, known)
    put = Substitution({v: e for v, e in mapping.items() if v != e})
    for own, made in pairs:
        if own.dtype != made.dtype or tuple(map(put, own.shape)) != made.shape:
            raise IRError(f"compose: an input {_said(own)} of {program.name} is fed with {_said(made)}")
    return program.with_symbols(put.mapping) if put.mapping else program


def _made(name: str, done: Sequence[Program]) -> Buffer:
    return next(p.buffers[name] for p in done if name in p.buffers)


def _said(b: Buffer) -> str:
    return f"{b.dtype}[{', '.join(map(str, b.shape))}]"
