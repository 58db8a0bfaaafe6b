"""Vector mathematics against numpy and scipy: accuracy over dense sweeps, special values, no calls in the code."""

import ctypes
import re
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from scipy import special

from searchlab.errors import BuildError
from searchlab.llvm.jit import LoadedObject, assembly, check_runs_here, compile_ir
from searchlab.llvm.vecmath import FUNCTIONS, expand
from searchlab.targets import Target, detect, parse

DTYPES = ("float32", "float64")
ELEMENT = {"float32": "float", "float64": "double"}
# The table in the module's docstring.
ULPS = {"exp": 0.95, "log": 0.95, "tanh": 2.5, "erf": 2.0, "sigmoid": 2.5, "rsqrt": 1.5, "sqrt": 0.5}
CALL = re.compile(r"^\s*(?:call|bl\b|b\s+[a-z]|jmp\s+[a-z]).*|.*@PLT.*", re.MULTILINE)
INF, NAN = np.inf, np.nan

# More precise than the format under test: 64 bits for float32, 80 for float64 where the machine has them.
REFERENCE: dict[str, Callable[..., np.ndarray]] = {
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "erf": lambda x: special.erf(x.astype(np.float64)),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sqrt": np.sqrt,
    "abs": np.abs,
    "floor": np.floor,
    "round": np.rint,
}


class Body:
    """The smallest emitter."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.declarations: dict[str, None] = {}

    def let(self, rhs: str) -> str:
        self.lines.append(f"  %t{len(self.lines)} = {rhs}")
        return f"%t{len(self.lines) - 1}"

    def declare(self, line: str) -> None:
        self.declarations[line] = None


def function_ir(name: str, dtype: str, lanes: int, body: Body) -> str:
    """A loop over arrays whose length is a multiple of `lanes`."""
    element = ELEMENT[dtype]
    vector = element if lanes == 1 else f"<{lanes} x {element}>"
    result = expand(name, body, dtype, lanes, ["%x"])
    lines, body.lines = body.lines, []
    return f"""
define void @{name}(ptr %from, ptr %to, i64 %n) {{
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %p = getelementptr {element}, ptr %from, i64 %i
  %q = getelementptr {element}, ptr %to, i64 %i
  %x = load {vector}, ptr %p, align 4
{chr(10).join(lines)}
  store {vector} {result}, ptr %q, align 4
  %next = add i64 %i, {lanes}
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""


@cache
def module_ir(dtype: str, lanes: int) -> str:
    """Every function for one type."""
    body = Body()
    functions = [function_ir(name, dtype, lanes, body) for name in FUNCTIONS]
    return "\n".join([*body.declarations, *functions])


@cache
def loaded(dtype: str, lanes: int, target: Target) -> LoadedObject:
    return LoadedObject(compile_ir(module_ir(dtype, lanes), target), target)


def apply(name: str, x: np.ndarray, lanes: int, target: Target | None = None) -> np.ndarray:
    padded = np.pad(x, (0, -len(x) % lanes))
    result = np.empty_like(padded)
    address = loaded(str(x.dtype), lanes, target or detect()).address(name)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(address)
    function(padded.ctypes.data, result.ctypes.data, len(padded))
    return result[: len(x)]


@cache
def sweep(name: str, dtype: str, count: int = 120_000) -> np.ndarray:
    """Arguments whose results are normal numbers: evenly spaced, dense near zero, and of every magnitude."""
    rng = np.random.default_rng(0)
    info = np.finfo(dtype)
    if name in ("log", "sqrt", "rsqrt"):
        magnitudes = np.exp2(rng.uniform(info.minexp, info.maxexp - 1e-3, count))
        return np.concatenate([magnitudes, rng.uniform(0.5, 2, count), 1 + rng.normal(0, 1e-3, count)]).astype(dtype)
    top = {"float32": 88.0, "float64": 708.0}[dtype]
    low, high = {"erf": (-6.5, 6.5), "tanh": (-22, 22), "floor": (-99, 99), "round": (-99, 99)}.get(
        name, (1 - top, top)
    )
    tiny = np.exp2(rng.uniform(info.minexp + 2, 0, count)) * rng.choice([-1, 1], count)
    return np.concatenate([rng.uniform(low, high, count), rng.uniform(-2, 2, count), tiny]).astype(dtype)


@cache
def exact(name: str, dtype: str) -> np.ndarray:
    wide = sweep(name, dtype).astype(np.float64 if dtype == "float32" else np.longdouble)
    return REFERENCE[name](wide)


def worst_ulps(got: np.ndarray, want: np.ndarray) -> float:
    spacing = np.spacing(np.abs(want).astype(got.dtype)).astype(want.dtype)
    return float(np.max(np.abs(got.astype(want.dtype) - want) / spacing))


def reference_slack(name: str, dtype: str) -> float:
    """What a float64 reference may itself be off by."""
    precise = dtype == "float32" or (name != "erf" and np.finfo(np.longdouble).nmant > 52)
    return 0.01 if precise else 1.5


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_accuracy(name: str, dtype: str, lanes: int) -> None:
    error = worst_ulps(apply(name, sweep(name, dtype), lanes), exact(name, dtype))
    assert error <= ULPS.get(name, 0) + reference_slack(name, dtype)


@pytest.mark.parametrize("cpu", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_accuracy_of_other_instruction_sets(dtype: str, cpu: str) -> None:
    target = parse(cpu)
    try:
        check_runs_here(target)
    except BuildError as reason:
        pytest.skip(str(reason))
    for name in FUNCTIONS:
        error = worst_ulps(apply(name, sweep(name, dtype), target.lanes(dtype), target), exact(name, dtype))
        assert error <= ULPS.get(name, 0) * 1.25 + reference_slack(name, dtype), name


SPECIAL = {
    "exp": [(0.0, 1), (-0.0, 1), (INF, INF), (-INF, 0), (1e5, INF), (-1e5, 0), (NAN, NAN)],
    "log": [(0.0, -INF), (-0.0, -INF), (1.0, 0), (INF, INF), (-1.0, NAN), (-INF, NAN), (NAN, NAN)],
    "tanh": [(0.0, 0), (-0.0, -0.0), (30.0, 1), (-30.0, -1), (INF, 1), (-INF, -1), (NAN, NAN)],
    "erf": [(0.0, 0), (-0.0, -0.0), (7.0, 1), (-7.0, -1), (INF, 1), (-INF, -1), (NAN, NAN)],
    "sigmoid": [(0.0, 0.5), (1e5, 1), (-1e5, 0), (INF, 1), (-INF, 0), (NAN, NAN)],
    "sqrt": [(0.0, 0), (4.0, 2), (INF, INF), (-1.0, NAN), (NAN, NAN)],
    "rsqrt": [(0.0, INF), (4.0, 0.5), (INF, 0), (-1.0, NAN), (NAN, NAN)],
    "abs": [(-0.0, 0.0), (-INF, INF), (-2.5, 2.5), (NAN, NAN)],
    "round": [
        (0.5, 0),
        (1.5, 2),
        (2.5, 2),
        (-0.5, -0.0),
        (-1.5, -2),
        (0.49999997, 0),
        (8388609.0, 8388609.0),
        (1e30, 1e30),
        (INF, INF),
        (NAN, NAN),
    ],
    "floor": [(-0.5, -1), (2.5, 2), (-INF, -INF), (1e30, 1e30), (NAN, NAN)],
}


@pytest.mark.parametrize("lanes", [1, 4, 8, 16])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values(name: str, dtype: str, lanes: int) -> None:
    arguments, results = np.array(SPECIAL[name], dtype).T
    got = apply(name, np.ascontiguousarray(arguments), lanes)
    np.testing.assert_array_equal(got, results)
    finite = ~np.isnan(results)
    np.testing.assert_array_equal(np.signbit(got[finite]), np.signbit(results[finite]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_nan_with_a_payload_stays_nan(name: str, dtype: str) -> None:
    bits = np.finfo(dtype).bits
    payloads = np.array([(1 << i) - 1 for i in range(1, np.finfo(dtype).nmant)], f"uint{bits}")
    nans = (payloads | np.array([NAN], dtype).view(payloads.dtype)).view(dtype)
    assert np.isnan(apply(name, nans, 4)).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_exp_at_the_ends_of_its_range(dtype: str) -> None:
    info = np.finfo(dtype)
    low, high = np.log(np.float64(info.smallest_normal)), np.log(np.float64(info.max))
    with np.errstate(over="ignore"):
        near = np.concatenate([low + np.linspace(-1, 1, 2000), high + np.linspace(-1, 1, 2000)]).astype(dtype)
        want = np.exp(near.astype(np.longdouble))
        want[want < info.smallest_normal] = 0
        want[want > info.max] = INF
    got = apply("exp", near, 8)
    normal = np.isfinite(want) & (want > 0)
    np.testing.assert_array_equal(got[~normal], want[~normal].astype(dtype))
    assert worst_ulps(got[normal], want[normal]) <= 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_log_of_subnormal_numbers(dtype: str) -> None:
    x = (np.finfo(dtype).smallest_subnormal * np.arange(1, 4000)).astype(dtype)
    assert worst_ulps(apply("log", x, 8), np.log(x.astype(np.longdouble))) <= 1


@pytest.mark.parametrize("name", ["tanh", "erf", "sigmoid"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_bounded_functions_stay_in_bounds(name: str, dtype: str) -> None:
    values = apply(name, sweep(name, dtype), 8)
    assert np.abs(values).max() <= 1


@pytest.mark.parametrize("lanes", [1, 4, 8, 16])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cpu", ["native", "x86-64-v2", "x86-64-v3", "x86-64-v4", "neoverse-n1"])
def test_no_calls(cpu: str, dtype: str, lanes: int) -> None:
    text = assembly(module_ir(dtype, lanes), parse(cpu))
    assert not CALL.findall(text)


@pytest.mark.parametrize("cpu", ["native", "neoverse-n1"])
def test_a_call_would_be_seen(cpu: str) -> None:
    exp = "call float @llvm.exp.f32(float %x)"
    ir = f"declare float @llvm.exp.f32(float)\ndefine float @f(float %x) {{\n %r = {exp}\n ret float %r\n}}"
    assert CALL.findall(assembly(ir, parse(cpu)))


def test_refusals() -> None:
    with pytest.raises(BuildError, match="unknown function 'sin'; known: exp"):
        expand("sin", Body(), "float32", 8, ["%x"])
    with pytest.raises(BuildError, match="no expansion for float16; known: float32"):
        expand("exp", Body(), "float16", 8, ["%x"])
    with pytest.raises(BuildError, match="exp takes 1 argument, got 2"):
        expand("exp", Body(), "float32", 8, ["%x", "%y"])
