"""The conformance suite of intrinsics: what an implementation computes is what its description says."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from searchlab.backend import Kernel, compile
from searchlab.dtype import BFLOAT16, DTYPES, FLOATS
from searchlab.errors import SearchLabError
from searchlab.intrinsics import Intrinsic, add_intrinsic
from searchlab.intrinsics.plain import PlainNest
from searchlab.ir.bfloat16 import from_bits, to_bits
from searchlab.ir.expr import Expr, Var, index, value_of
from searchlab.ir.program import Program
from searchlab.ir.statement_tree import map_accesses, statements
from searchlab.ir.stmt import Block, Buffer, Iter, Loop, Stmt
from searchlab.ir.walk import loads, variables
from searchlab.schedule import Schedule
from searchlab.targets import Target

Inputs = dict[str, npt.NDArray[np.generic]]
REPEATS = 37
LAPS = 1 << 32  # sums of integers are made long enough to wrap around
MOST = 20_000  # calls in a row
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 3e38, -3e38, 1.0)


def check_intrinsic(intrinsic: Intrinsic, target: Target, seed: int = 0) -> None:
    """Check an intrinsic on a target that this machine can run.

    Its description is compiled as loops and as calls, many of which add to the same elements, with dense operands and
    with others wherever strides are free.  Results are compared on random numbers and on the ends of their ranges.
    """
    missing = intrinsic.needs.missing(target)
    assert not missing, f"intrinsic '{intrinsic.name}' needs {', '.join(missing)}, which {target.name} lacks"
    add_intrinsic(intrinsic)
    rng = np.random.default_rng(seed)
    for spread in (False, True) if intrinsic.free else (False,):
        for repeats in sorted({2, REPEATS, _laps(intrinsic)}):
            trial = _Trial.built(intrinsic, calls_in_a_row(intrinsic, repeats, spread), target)
            for what, inputs in _cases(intrinsic, trial.program, rng):
                trial.compare(inputs, f"{what}, {repeats} calls, {'spread' if spread else 'dense'} operands")


def calls_in_a_row(intrinsic: Intrinsic, repeats: int, spread: bool = False) -> Program:
    """A program whose inner loops are the description, run `repeats` times on other inputs; not yet tensorised.

    With `spread`, dimensions are longer than what is used of them wherever free strides allow it.
    """
    described = intrinsic.description
    r, vr = Var("repeat"), Var("vrepeat")

    def moved(place: tuple[str, tuple[Expr, ...]]) -> tuple[str, tuple[Expr, ...]]:
        name, indices = place
        return (name, (vr, *indices)) if name in described.inputs else place

    body = map_accesses(described.body, moved)
    (block,) = (s for s in statements(body) if isinstance(s, Block))
    outer = replace(block, iters=(*block.iters, Iter(vr, index(repeats), "reduce")), bindings=(*block.bindings, r))
    body = Loop(r, index(repeats), _with_block(body, outer))
    buffers = {
        name: replace(
            b, shape=(*((index(repeats),) if name in described.inputs else ()), *_shape(intrinsic, b, spread))
        )
        for name, b in described.buffers.items()
    }
    return Program(f"{described.name}_in_a_row", described.inputs, described.outputs, buffers, body)


def _with_block(s: Stmt, block: Block) -> Stmt:
    if isinstance(s, Block):
        return block
    found = s.map_children(lambda child: _with_block(child, block))
    assert found is not None
    return found


def _shape(intrinsic: Intrinsic, buffer: Buffer, spread: bool) -> tuple[Expr, ...]:
    """The extents of an operand: one longer in each dimension that follows one with a free stride."""
    shape, nest = list(buffer.shape), intrinsic.nest
    for d, e in enumerate(_indices(nest, intrinsic, buffer.name)[:-1]):
        if spread and all(intrinsic.is_free(buffer.name, v) for v in variables(e)):
            shape[d + 1] = shape[d + 1] + 3
    return tuple(shape)


def _indices(nest: PlainNest, intrinsic: Intrinsic, operand: str) -> tuple[Expr, ...]:
    if operand == nest.store.buffer:
        return nest.store.indices
    return next(ld.indices for ld in loads(intrinsic.sum.term) if ld.buffer == operand)


def _laps(intrinsic: Intrinsic) -> int:
    """How many calls it takes for a sum of largest terms to wrap around; few where terms are not integers."""
    if DTYPES[intrinsic.nest.store.value.dtype].sort == "float":
        return REPEATS
    term = 1
    for name in intrinsic.description.inputs:
        term *= max(map(abs, _ends(intrinsic, name)))
    own = {v for e in intrinsic.nest.store.indices for v in variables(e)}
    for lp in intrinsic.nest.loops:
        term *= 1 if lp.var in own else value_of(lp.extent) or 1
    return min(MOST, LAPS // max(1, term) + 1)


def _ends(intrinsic: Intrinsic, name: str) -> tuple[int, int]:
    low, high = DTYPES[intrinsic.description.buffers[name].dtype].limits
    return intrinsic.promise.ranges.get(name, (int(low), int(high)))


# --- inputs -----------------------------------------------------------------------------------------------------------


def _cases(intrinsic: Intrinsic, program: Program, rng: np.random.Generator) -> Iterator[tuple[str, Inputs]]:
    names = program.inputs
    shapes = {n: tuple(value_of(e) or 0 for e in program.buffers[n].shape) for n in names}
    dtypes = {n: program.buffers[n].dtype for n in names}
    if any(d in FLOATS for d in dtypes.values()):
        yield "random numbers", {n: _stored(rng.standard_normal(shapes[n]), dtypes[n]) for n in names}
        picks = {n: rng.choice(SPECIAL, shapes[n], p=(0.01, 0.01, 0.01, 0.1, 0.1, 0.02, 0.02, 0.73)) for n in names}
        yield "special numbers", {n: _stored(x, dtypes[n]) for n, x in picks.items()}
        return
    ends = {n: _ends(intrinsic, n) for n in names}
    yield "random numbers", {n: rng.integers(*ends[n], shapes[n], dtype=dtypes[n], endpoint=True) for n in names}
    yield "random ends of ranges", {n: rng.choice(ends[n], shapes[n]).astype(dtypes[n]) for n in names}
    for chosen in itertools.product((0, 1), repeat=len(names)):
        what = " x ".join(str(ends[n][c]) for n, c in zip(names, chosen, strict=True))
        yield what, {n: np.full(shapes[n], ends[n][c], dtypes[n]) for n, c in zip(names, chosen, strict=True)}


def _stored(x: npt.NDArray[np.float64], dtype: str) -> npt.NDArray[np.generic]:
    return to_bits(x.astype(np.float32)) if dtype == BFLOAT16 else x.astype(dtype)


# --- comparison -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Trial:
    """A program in two forms: as calls of an intrinsic, and as the loops that describe it."""

    intrinsic: Intrinsic
    program: Program
    calls: Kernel
    loops: Kernel

    @classmethod
    def built(cls, intrinsic: Intrinsic, program: Program, target: Target) -> _Trial:
        s = Schedule(program)
        ranges = {n: list(r) for n, r in intrinsic.promise.ranges.items()}
        try:
            s.tensorize(next(name for name in program.loops if name != "repeat"), intrinsic.name, ranges)
            return cls(intrinsic, program, compile(s.program, target), compile(program, target))
        except SearchLabError as e:
            raise AssertionError(f"intrinsic '{intrinsic.name}' cannot be built: {e}") from e

    def compare(self, inputs: Inputs, what: str) -> None:
        nest = self.intrinsic.nest
        used = tuple(slice(0, _used(e, nest)) for e in nest.store.indices)
        got, expected = (np.asarray(kernel(*inputs.values()))[used] for kernel in (self.calls, self.loops))
        with np.errstate(all="ignore"):
            near = np.abs(got - expected) <= self.allowed(inputs)[used] if self.intrinsic.promise.tolerance else False
            same = (got == expected) | (np.isnan(expected) & np.isnan(got)) | near
        if not same.all():
            at = tuple(int(n) for n in np.argwhere(~same)[0])
            raise AssertionError(
                f"intrinsic '{self.intrinsic.name}' is not what its description says: on {what}, element {list(at)} of "
                f"'{self.intrinsic.output}' is {got[at]}, the description gives {expected[at]}"
            )

    def allowed(self, inputs: Inputs) -> npt.NDArray[np.float64]:
        """The difference that rounding may make: a part of the sum of absolute terms, for each of its additions."""
        sizes = (_sizes(x, self.program.buffers[n].dtype) for n, x in inputs.items())
        total = np.asarray(self.loops(*sizes), np.float64) * self.intrinsic.promise.tolerance
        return np.where(np.isfinite(total), total * len(next(iter(inputs.values()))), np.inf)


def _used(e: Expr, nest: PlainNest) -> int:
    """How many elements of a dimension of the output are written."""
    extents = {lp.var: value_of(lp.extent) or 1 for lp in nest.loops}
    return extents[e] if isinstance(e, Var) else 1


def _sizes(x: npt.NDArray[np.generic], dtype: str) -> npt.NDArray[np.generic]:
    return to_bits(np.abs(from_bits(x))) if dtype == BFLOAT16 else np.abs(x)
