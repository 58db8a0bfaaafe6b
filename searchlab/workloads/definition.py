"""Workload: an operator with fixed parameters, which provides its program, inputs, reference and cost.

A `Workload` is a value; its program is built on first use, so lists of hundreds of workloads are cheap.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from searchlab.dtype import DTYPES, FLOATS
from searchlab.errors import IRError, WorkloadError
from searchlab.ir.bfloat16 import numbers, stored
from searchlab.ir.expr import Var
from searchlab.ir.program import Program
from searchlab.named import Named
from searchlab.registry import nearest
from searchlab.workloads import counts
from searchlab.workloads.parameters import Parameter, Params, Value, parameters_of, text

Array = npt.NDArray[Any]
Reference = Callable[..., Array | tuple[Array, ...]]


@dataclass(frozen=True)
class Definition:
    """The result of an operator function: the plain computation, and its numpy reference.

    `reference` takes the inputs in order, already as float64 (so that its sums are exact to float32), and returns the
    output, or a tuple of outputs; `weights` names the inputs that do not change between calls.  Where inputs depend on
    one another, `arrange` makes such ones of random ones.  `ranges` are smallest and largest values of inputs that are
    integers: callers keep to them, so schedules may use instructions that are exact for such values only.
    """

    program: Program
    reference: Reference
    weights: tuple[str, ...] = ()
    arrange: Callable[[dict[str, Array]], dict[str, Array]] | None = None
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Tolerance:
    """The accepted deviation from the reference: |got - want| <= relative * |want| + scale * rms(want) + absolute.

    The second term allows for cancellation: elements near zero that are sums of large terms.  The third is the distance
    of subnormal numbers, where a type has so few bits that results are among them.
    """

    relative: float
    scale: float
    absolute: float = 0.0

    def allowed(self, want: Array) -> Array:
        """The largest accepted error of every element."""
        size = math.sqrt(float(np.mean(np.square(want)))) if want.size else 0.0
        found: Array = self.relative * np.abs(want) + self.scale * size + self.absolute
        return found


@dataclass(frozen=True, eq=False)
class Operator:
    """A named family of workloads; calling it with parameters returns a workload."""

    name: str
    function: Callable[..., Definition]
    parameters: tuple[Parameter, ...]
    _made: dict[Params, Workload] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(function: Callable[..., Definition], name: str | None = None) -> Operator:
        """The operator that a function defines."""
        return Operator(name or function.__name__, function, parameters_of(function))

    @property
    def summary(self) -> str:
        """The first line of the function's docstring."""
        return (self.function.__doc__ or "").strip().partition("\n")[0]

    @property
    def path(self) -> str:
        """The import path by which another process finds the operator."""
        return f"{self.function.__module__}:{self.function.__qualname__}"

    def __call__(self, **params: object) -> Workload:
        """The workload with these parameters, built at once, so that impossible ones are rejected here."""
        made = self.lazy(**params)
        made.definition  # noqa: B018
        return made

    def lazy(self, **params: object) -> Workload:
        """The workload with these parameters, its program not built yet; one object per set of parameters."""
        bound = self._bind(params)
        return self._made.setdefault(bound, Workload(self, bound))

    def renamed(self, name: str) -> Operator:
        """The operator under another name."""
        return self if name == self.name else replace(self, name=name, _made={})

    def _bind(self, params: Mapping[str, object]) -> Params:
        names = [p.name for p in self.parameters]
        for given in params:
            if given not in names:
                raise WorkloadError(f"{self.name}: unknown parameter '{given}'{nearest(given, names, 'accepted')}")
        try:
            return tuple((p.name, self._value(p, params)) for p in self.parameters)
        except WorkloadError as e:
            raise WorkloadError(f"{self.name}: {e}") from None

    def _value(self, p: Parameter, params: Mapping[str, object]) -> Value:
        if p.name in params:
            return p.read(params[p.name])
        if p.default is None:
            raise WorkloadError(f"parameter '{p.name}' must be given")
        return p.default


@dataclass(frozen=True)
class Workload:
    """One computation to optimise."""

    operator: Operator
    params: Params
    default_packs: ClassVar[bool] = False  # whether default schedules that others are compared with pack its weights

    @property
    def name(self) -> str:
        """The operator's name."""
        return self.operator.name

    @cached_property
    def label(self) -> str:
        """The readable form `matmul(m=512, n=512, k=512)`, without settings at their neutral default."""
        pairs = zip(self.operator.parameters, self.params, strict=True)
        return f"{self.name}({', '.join(f'{k}={text(v)}' for p, (k, v) in pairs if p.is_telling(v))})"

    def __str__(self) -> str:
        return self.label

    @cached_property
    def spec(self) -> str:
        """The form for files and command lines, `matmul:m=512,n=512,k=512,dtype=float32`, read back by `parse`."""
        return f"{self.name}:{','.join(f'{k}={text(v)}' for k, v in self.params)}" if self.params else self.name

    @cached_property
    def key(self) -> str:
        """A short id, the same in every process and for every version of the definition."""
        return f"{self.name.rpartition(':')[2]}-{hashlib.sha256(self.spec.encode()).hexdigest()[:12]}"

    @cached_property
    def definition(self) -> Definition:
        """The program and its reference, built on first use."""
        try:
            made = self.operator.function(**dict(self.params))
        except (IRError, WorkloadError) as e:
            raise WorkloadError(f"{self.label}: {e}") from e
        if not isinstance(made, Definition):
            raise WorkloadError(f"{self.label}: its function returned {type(made).__name__}, not a Definition")
        inputs = made.program.inputs
        for weight in made.weights:
            if weight not in inputs:
                raise WorkloadError(
                    f"{self.label}: weight '{weight}' is not an input{nearest(weight, inputs, 'inputs')}"
                )
        for name, (low, high) in made.ranges.items():
            if name not in inputs:
                raise WorkloadError(f"{self.label}: '{name}' has a range but is not an input; {', '.join(inputs)} are")
            least, most = DTYPES[made.program.buffers[name].dtype].limits
            if math.isinf(most) or not least <= low <= high <= most:
                type_ = made.program.buffers[name].dtype
                raise WorkloadError(f"{self.label}: {low} to {high} is no range of integers of '{name}', a {type_}")
        return made

    @property
    def program(self) -> Program:
        """The plain computation: one loop nest per stage."""
        return self.definition.program

    @property
    def weights(self) -> tuple[str, ...]:
        """Inputs that are constants of a model, so a schedule may store them in another layout ahead of time."""
        return self.definition.weights

    @property
    def ranges(self) -> Mapping[str, tuple[int, int]]:
        """The smallest and the largest value of inputs that keep to a part of their type."""
        return self.definition.ranges

    @property
    def sizes(self) -> tuple[str, ...]:
        """The names of the sizes that are known only at run time."""
        return tuple(sorted({v.name for _, v in self.params if isinstance(v, Var)}))

    def at(self, **sizes: int) -> Workload:
        """The same workload with run-time sizes fixed."""
        for name in sizes:
            if name not in self.sizes:
                raise WorkloadError(f"{self.label}: no run-time size '{name}'{nearest(name, self.sizes, 'its sizes')}")
        if not sizes:
            return self
        return self.operator(**{k: sizes.get(v.name, v) if isinstance(v, Var) else v for k, v in self.params})

    # --- cost ---------------------------------------------------------------------------------------------------------

    @cached_property
    def flops(self) -> int:
        """Arithmetic operations of the plain computation."""
        return counts.flops(self.program)

    @cached_property
    def bytes(self) -> int:
        """Bytes of all inputs and outputs."""
        return counts.bytes_moved(self.program)

    # --- data ---------------------------------------------------------------------------------------------------------

    def inputs(self, seed: int = 0, **sizes: int) -> dict[str, Array]:
        """Random arrays: floats in [-1, 1), integers so small that no int32 sum of products overflows."""
        fixed = self._fixed(sizes)
        limit = math.isqrt((2**31 - 1) // counts.reduction_length(fixed.program)) or 1
        found = {n: _random(fixed.program, n, seed, limit, self.ranges.get(n)) for n in fixed.program.inputs}
        arrange = fixed.definition.arrange
        return found if arrange is None else arrange(found)

    def reference(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs computed by numpy in double precision, then converted to the program's dtypes."""
        program = self.program
        for name in program.inputs:
            if name not in inputs:
                raise WorkloadError(f"{self.label}: input '{name}' is missing; it takes {', '.join(program.inputs)}")
        given = (_wide(numbers(inputs[n], program.buffers[n].dtype)) for n in program.inputs)
        found = self.definition.reference(*given)
        outputs = found if isinstance(found, tuple) else (found,)
        if len(outputs) != len(program.outputs):
            names = ", ".join(program.outputs)
            raise WorkloadError(f"{self.label}: the reference gives {len(outputs)} outputs, the program: {names}")
        pairs = zip(program.outputs, outputs, strict=True)
        made = {n: stored(y, program.buffers[n].dtype) for n, y in pairs}
        return {n: np.ascontiguousarray(y).reshape(y.shape) for n, y in made.items()}  # one number keeps rank 0

    def sizes_of(self, inputs: Mapping[str, Array]) -> dict[str, int]:
        """The run-time sizes, taken from the shapes of arrays."""
        found = {}
        for name in self.program.inputs:
            for extent, actual in zip(self.program.buffers[name].shape, np.shape(inputs[name]), strict=True):
                if isinstance(extent, Var):
                    found[extent.name] = int(actual)
        return found

    @cached_property
    def tolerance(self) -> dict[str, Tolerance]:
        """The tolerance of each output: rounding errors grow with the square root of the reduction length."""
        growth = math.sqrt(counts.reduction_length(self.program))
        return {n: _tolerance(self.program.buffers[n].dtype, growth) for n in self.program.outputs}

    def check(
        self,
        outputs: Mapping[str, Array] | Sequence[Array] | Array,
        inputs: Mapping[str, Array],
        expected: Mapping[str, Array] | None = None,
    ) -> str | None:
        """None if the outputs are correct, else the reason; `expected` is a reference computed before."""
        names = self.program.outputs
        if not isinstance(outputs, Mapping):
            arrays = [outputs] if isinstance(outputs, np.ndarray) else list(outputs)
            if len(arrays) != len(names):
                return f"{self.label}: {len(arrays)} outputs instead of {len(names)} ({', '.join(names)})"
            outputs = dict(zip(names, arrays, strict=True))
        if expected is None:
            expected = self.reference(inputs)
        tolerance = self.at(**self.sizes_of(inputs)).tolerance if self.sizes else self.tolerance
        for name in names:
            if name not in outputs:
                return f"{self.label}: output '{name}' is missing"
            dtype = self.program.buffers[name].dtype
            wrong = difference(outputs[name], expected[name], tolerance[name], dtype)
            if wrong:
                return f"{self.label}: {name} {wrong}"
        return None

    def _fixed(self, sizes: Mapping[str, int]) -> Workload:
        missing = [s for s in self.sizes if s not in sizes]
        if missing:
            names = ", ".join(f"{s}=..." for s in missing)
            raise WorkloadError(f"{self.label}: its run-time sizes are not given; write inputs({names})")
        return self.at(**sizes)

    def __reduce__(self) -> tuple[Any, ...]:
        # Functions cannot be sent between processes; import paths can.
        return _restore, (self.operator.path, self.name, self.params)


@cache
def imported(path: str, name: str) -> Operator:
    """The operator at a "module:function" path, under a name; the function need not be decorated."""
    named = Named(path, f"operator '{path}'", WorkloadError)
    found = named.found
    return found.renamed(name) if isinstance(found, Operator) else Operator.of(named.function(Definition), name)


def _restore(path: str, name: str, params: Params) -> Workload:
    return imported(path, name).lazy(**dict(params))


def difference(got: Array, want: Array, tolerance: Tolerance, dtype: str) -> str | None:
    """A description of how `got` differs from `want`, of a `dtype`; None if the difference is within the tolerance."""
    if got.shape != want.shape:
        return f"has shape {got.shape}, expected {want.shape}"
    if got.dtype != want.dtype:
        return f"has dtype {got.dtype}, expected {want.dtype}"
    got, want = numbers(got, dtype), numbers(want, dtype)
    wide = want.astype(np.float64)
    with np.errstate(invalid="ignore"):
        error = np.abs(got.astype(np.float64) - wide)
        allowed = tolerance.allowed(wide)
        wrong = ~((error <= allowed) | (got == want) | (np.isnan(got) & np.isnan(want)))
    if not wrong.any():
        return None
    rank = np.where(wrong, np.nan_to_num(error, nan=np.inf), -1.0)
    at = np.unravel_index(int(rank.argmax()), want.shape)
    place = ", ".join(str(int(i)) for i in at)
    return (
        f"differs from the reference in {int(wrong.sum())} of {want.size} elements; largest error at [{place}]: "
        f"got {got[at]!s}, expected {want[at]!s} (off by {error[at]:.3g}, allowed {allowed[at]:.3g})"
    )


_LAST_PLACE = {"float16": (2.0**-10, 2.0**-24), "bfloat16": (2.0**-7, 2.0**-133)}  # relative, and of subnormals


def _tolerance(dtype: str, growth: float) -> Tolerance:
    if dtype not in FLOATS:
        return Tolerance(0.0, 0.0)
    unit = float(np.finfo(DTYPES[dtype].arithmetic).eps) * max(growth, 8.0)
    # float16 and bfloat16: computed in float32, then rounded once, which may fall to either neighbour
    last, least = _LAST_PLACE.get(dtype, (0.0, 0.0))
    return Tolerance(2 * unit + last, 4 * unit, least)


def _random(program: Program, name: str, seed: int, limit: int, within: tuple[int, int] | None) -> Array:
    shape, dtype = counts.shape_of(program, name), program.buffers[name].dtype
    # Each input has its own random stream, so that adding an input does not change the others.
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    if dtype in FLOATS:
        values: Array = rng.random(shape, dtype=np.dtype(DTYPES[dtype].arithmetic).type)
        values *= 2
        values -= 1
        return stored(values, dtype)
    least, most = within or DTYPES[dtype].limits
    low, high = max(int(least), -limit, -1024), min(int(most), limit, 1024)
    return rng.integers(low, high, shape, dtype=dtype, endpoint=True)


def _wide(x: Array) -> Array:
    """Converts to double precision, which holds every smaller dtype exactly and multiplies faster than int64."""
    return np.asarray(x) if np.asarray(x).dtype == np.int64 else np.asarray(x, dtype=np.float64)
