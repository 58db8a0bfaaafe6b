"""LLVM IR text with scopes: each loop is a scope, and index arithmetic goes to the outermost scope that can hold it.

Offsets are linear forms: an integer plus integer multiples of SSA values.  Unrolled loops only change the integer, so
all copies of a statement share one pointer per loop nest and differ by a constant that the processor adds for free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from searchlab.dtype import DTYPES, INDEX
from searchlab.errors import BudgetError, BuildError
from searchlab.ir.expr import Binary, Const, Expr, Lookup, Monomial, Poly, Var
from searchlab.ir.walk import variables
from searchlab.llvm.abi import LINE

TYPES = {INDEX: "i64", **{name: d.llvm for name, d in DTYPES.items()}}

# Beyond these, LLVM takes longer than ten seconds: it needs some 30 to 50 us for an instruction, and in straight-line
# code a time that grows almost with the square of its length.  The largest programs of the search spaces have 175,000
# instructions (eight seconds), or 27,000 in a row (seven seconds).
MOST_INSTRUCTIONS = 250_000
MOST_IN_A_ROW = 48_000


@dataclass(frozen=True, slots=True)
class Linear:
    """const + sum of coefficient * value over SSA values of the type of indices."""

    const: int
    terms: tuple[tuple[str, int], ...] = ()


_ONE = Linear(1)


@dataclass(slots=True)
class Scope:
    """The straight-line beginning of a loop body (`head`), where hoisted arithmetic goes, and the body (`lines`)."""

    head: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Known:
    """Values that hold until the basic block ends: loads by buffer, what was stored in register tiles (the number of
    lanes, and vectors by their offsets), spread operands, prefetched lines, and the results of pure instructions by
    their texts."""

    loads: dict[str, dict[object, str]] = field(default_factory=dict)
    tiles: dict[str, tuple[int, dict[int, str]]] = field(default_factory=dict)
    spreads: dict[tuple[str, int], str] = field(default_factory=dict)
    prefetches: dict[object, str] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)


class Function:
    """One LLVM function under construction."""

    linkage = "internal"
    bits = 64  # of indices
    index = "i64"

    def __init__(self, name: str, parameters: list[str], module: Module) -> None:
        self.name = name
        self.parameters = parameters
        self.module = module
        self.scopes = [Scope()]
        self.allocas: list[str] = []
        self.label = "entry"
        self.env: dict[Var, Linear] = {}
        self.fixed: set[Var] = set()  # variables that have one value, in the function or in the loop that is written
        self.forms: dict[Expr, Linear] = {}  # of quotients and the like that such variables alone decide
        # by the identity of sums: what such variables decide of them, and the other terms
        self._sums: dict[int, tuple[Poly, Linear, tuple[tuple[Monomial, int], ...]]] = {}
        self.depth: dict[str, int] = {}  # scope in which an SSA value is defined
        self.memo: dict[object, str] = {}  # hoisted values
        self.known = Known()
        self.look_up: Callable[[Lookup], str] = _nothing_to_look_up_in
        self._count = 0
        self._row = 0  # instructions since the last label

    # --- text ---------------------------------------------------------------------------------------------------------

    def fresh(self, prefix: str = "t") -> str:
        """A new, unique value name."""
        self._count += 1
        return f"%{prefix}{self._count}"

    def line(self, text: str) -> None:
        """Adds an instruction to the innermost scope."""
        self.scopes[-1].lines.append(f"  {text}")
        self._row += 1
        self.module.count(self._row)

    def let(self, rhs: str) -> str:
        """Adds an instruction with a result, and returns the name of the result."""
        name = self.fresh()
        self.line(f"{name} = {rhs}")
        return name

    def declare(self, text: str) -> None:
        """Adds a declaration to the module."""
        self.module.declare(text)

    def start(self, label: str) -> None:
        """Begins a basic block, which invalidates the values known from loads."""
        self.scopes[-1].lines.append(f"{label}:")
        self.label = label
        self.known = Known()
        self._row = 0

    def alloca(self, type_: str, align: int = LINE) -> str:
        """Stack memory with the lifetime of the function."""
        name = self.fresh("a")
        self.allocas.append(f"  {name} = alloca {type_}, align {align}")
        self.depth[name] = 0
        return name

    def text(self) -> str:
        """The function as LLVM IR."""
        (scope,) = self.scopes
        head = f"define {self.linkage} void @{self.name}({', '.join(self.parameters)}) #0 {{\nentry:"
        return "\n".join([head, *self.allocas, *scope.head, *scope.lines, "  ret void", "}"])

    # --- hoisted index arithmetic -------------------------------------------------------------------------------------

    def hoist(self, rhs: str, *operands: str) -> str:
        """The value of a pure instruction, computed once in the outermost scope where its operands exist."""
        known = self.memo.get(rhs)
        if known is None:
            depth = max((self.depth.get(o, 0) for o in operands), default=0)
            known = self.fresh("h")
            head = self.scopes[depth].head
            head.append(f"  {known} = {rhs}")
            self.module.count(len(head))
            self.depth[known] = depth
            self.memo[rhs] = known
        return known

    def linear(self, e: Expr) -> Linear:
        """An index expression as a linear form, with variables replaced by their values in the environment."""
        if isinstance(e, Const):
            return Linear(int(e.value))
        if isinstance(e, Var):
            try:
                return self.env[e]
            except KeyError:
                raise BuildError(f"'{e}' has no value here") from None
        if isinstance(e, Poly):
            return self._linear_poly(e)
        if isinstance(e, Binary):
            return self._linear_binary(e)
        if isinstance(e, Lookup):
            return Linear(0, ((self.look_up(e), 1),))
        raise BuildError(f"'{e}' is no index")

    def _linear_poly(self, e: Poly) -> Linear:
        known = self._sums.get(id(e))
        if known is None:
            products = [(monomial, self._product(monomial), c) for monomial, c in e.terms]
            still = [(p, c) for monomial, p, c in products if all(variables(atom) <= self.fixed for atom in monomial)]
            moving = [x for x in products if not all(variables(atom) <= self.fixed for atom in x[0])]
            known = self._sums[id(e)] = e, _sum(Linear(0), still), tuple((m, c) for m, _, c in moving)
            return _sum(known[1], ((p, c) for _, p, c in moving))
        return self._moved(known[1], known[2]) if known[2] else known[1]

    def _moved(self, start: Linear, moving: tuple[tuple[Monomial, int], ...]) -> Linear:
        """A linear form plus products, most of which are single variables of unrolled loops, which have constants."""
        const, left = start.const, []
        for monomial, c in moving:
            value = self.env.get(monomial[0]) if len(monomial) == 1 else None  # type: ignore[call-overload]
            if value is None or value.terms:
                left.append((value or self._product(monomial), c))
            else:
                const += c * value.const
        return _sum(Linear(const, start.terms), left) if left else Linear(const, start.terms)

    def _product(self, monomial: Monomial) -> Linear:
        if not monomial:
            return _ONE
        product = self.env.get(monomial[0]) if type(monomial[0]) is Var else None
        if product is None:
            product = self.linear(monomial[0])
        for atom in monomial[1:]:
            product = self._times(product, self.linear(atom))
        return product

    def _times(self, a: Linear, b: Linear) -> Linear:
        if not a.terms:
            return Linear(a.const * b.const, tuple((n, c * a.const) for n, c in b.terms) if a.const else ())
        if not b.terms:
            return self._times(b, a)
        x, y = self.value(a), self.value(b)
        return Linear(0, ((self.hoist(f"mul nsw {self.index} {x}, {y}", x, y), 1),))

    def _linear_binary(self, e: Binary) -> Linear:
        known = self.forms.get(e)
        if known is None:
            known = self._divided(e)
            if self.fixed and variables(e) <= self.fixed:
                self.forms[e] = known
        return known

    def _divided(self, e: Binary) -> Linear:
        """A quotient, a remainder, or the smaller or larger of two."""
        a, b = self.linear(e.a), self.linear(e.b)
        if not a.terms and not b.terms:
            fold: Mapping[str, Callable[[int, int], int]] = {
                "floordiv": lambda x, y: x // y, "mod": lambda x, y: x % y, "min": min, "max": max,
            }  # fmt: skip
            return Linear(fold[e.op](a.const, b.const))
        x, y = self.value(a), self.value(b)
        if e.op in ("min", "max"):
            type_ = self.index
            self.declare(f"declare {type_} @llvm.s{e.op}.{type_}({type_}, {type_})")
            called = f"call {type_} @llvm.s{e.op}.{type_}({type_} {x}, {type_} {y})"
            return Linear(0, ((self.hoist(called, x, y), 1),))
        return Linear(0, ((self._divide(e.op, x, y, b), 1),))

    def _divide(self, op: str, x: str, y: str, divisor: Linear) -> str:
        """Floor division and modulo; shifts and masks for powers of two, else corrected for negative numerators."""
        n = divisor.const
        if not divisor.terms and n & (n - 1) == 0:
            by_two = f"ashr {self.index} {x}, {n.bit_length() - 1}"
            return self.hoist(by_two if op == "floordiv" else f"and {self.index} {x}, {n - 1}", x)
        rest = self.hoist(f"srem {self.index} {x}, {y}", x, y)
        negative = self.hoist(f"ashr {self.index} {rest}, {self.bits - 1}", rest)
        if op == "mod":
            lift = self.hoist(f"and {self.index} {negative}, {y}", negative, y)
            return self.hoist(f"add {self.index} {rest}, {lift}", rest, lift)
        quotient = self.hoist(f"sdiv {self.index} {x}, {y}", x, y)
        return self.hoist(f"add {self.index} {quotient}, {negative}", quotient, negative)

    def value(self, form: Linear) -> str:
        """A linear form as an operand."""
        if not form.terms:
            return str(form.const)
        total = ""
        for name, c in self._by_depth(form.terms):
            term = name if c == 1 else self.hoist(f"mul nsw {self.index} {name}, {c}", name)
            total = term if not total else self.hoist(f"add nsw {self.index} {total}, {term}", total, term)
        return total if not form.const else self.hoist(f"add nsw {self.index} {total}, {form.const}", total)

    def wide(self, form: Linear) -> str:
        """A linear form as a value of 64 bits."""
        text = self.value(form)
        narrow = self.bits < 64 and text.startswith("%")
        return self.hoist(f"sext {self.index} {text} to i64", text) if narrow else text

    def pointer(self, base: str, dtype: str, form: Linear, *, inside: bool = True) -> str:
        """The address of an element: outer loops' terms first, so that each loop adds only its own.

        An address that may lie outside its buffer needs `inside=False`; otherwise it would be poison.
        """
        step = f"getelementptr {'inbounds ' if inside else ''}{TYPES[dtype]}"
        for name, c in self._by_depth(form.terms):
            term = name if c == 1 else self.hoist(f"mul nsw {self.index} {name}, {c}", name)
            base = self.hoist(f"{step}, ptr {base}, {self.index} {term}", base, term)
        return base if not form.const else self.hoist(f"{step}, ptr {base}, {self.index} {form.const}", base)

    def _by_depth(self, terms: tuple[tuple[str, int], ...]) -> list[tuple[str, int]]:
        return sorted(terms, key=lambda t: (self.depth.get(t[0], 0), t[0])) if len(terms) > 1 else list(terms)

    # --- control flow -------------------------------------------------------------------------------------------------

    def iterate(self, v: Var, extent: Linear, body: Callable[[], None], start: str = "0") -> None:
        """for v in [start, extent): body(); what is known of index arithmetic with v is known inside only."""

        def inside(i: str) -> None:
            self.env[v] = Linear(0, ((i, 1),))
            self.fixed.add(v)
            self._forget_forms()
            body()
            self.fixed.discard(v)
            self._forget_forms()

        self.loop(extent, inside, start)

    def _forget_forms(self) -> None:
        self.forms.clear()
        self._sums.clear()

    def loop(self, extent: Linear, body: Callable[[str], None], start: str = "0") -> None:
        """for i in [start, extent): body(i)"""
        known = not extent.terms and start == "0"
        if known and extent.const <= 0:
            return
        end = self.value(extent)
        name = self.fresh("L")[1:]
        head, latch, out = f"{name}.body", f"{name}.next", f"{name}.end"
        if known:
            self.line(f"br label %{head}")
        else:
            self.line(f"br i1 {self.let(f'icmp slt {self.index} {start}, {end}')}, label %{head}, label %{out}")
        before = self.label
        i, following = self.fresh("i"), self.fresh("n")
        scope = Scope()
        self.scopes.append(scope)
        self.depth[i] = len(self.scopes) - 1
        self.label, self.known, self._row = head, Known(), 0
        body(i)
        self.line(f"br label %{latch}")
        self.scopes.pop()
        # values hoisted into this loop must not be used after it; those hoisted further out stay known
        self.memo = {k: v for k, v in self.memo.items() if self.depth[v] < len(self.scopes)}
        lines = self.scopes[-1].lines
        lines.append(f"{head}:")
        lines.append(f"  {i} = phi {self.index} [{start}, %{before}], [{following}, %{latch}]")
        lines += scope.head
        lines += scope.lines
        lines.append(f"{latch}:")
        lines.append(f"  {following} = add nuw nsw {self.index} {i}, 1")
        test = f"{following}.c"
        lines.append(f"  {test} = icmp slt {self.index} {following}, {end}")
        lines.append(f"  br i1 {test}, label %{head}, label %{out}")
        self.start(out)

    def branch(self, condition: str, then: Callable[[], None]) -> None:
        """if condition: then()"""
        name = self.fresh("B")[1:]
        self.line(f"br i1 {condition}, label %{name}.then, label %{name}.end")
        self.start(f"{name}.then")
        then()
        self.line(f"br label %{name}.end")
        self.start(f"{name}.end")


def _sum(start: Linear, more: Iterable[tuple[Linear, int]]) -> Linear:
    """The sum of a linear form and multiples of others."""
    const = start.const
    terms: dict[str, int] | None = None
    for form, coefficient in more:
        const += coefficient * form.const
        if form.terms:
            terms = dict(start.terms) if terms is None else terms
            for name, c in form.terms:
                terms[name] = terms.get(name, 0) + coefficient * c
    if terms is None:
        return Linear(const, start.terms)
    found = tuple((n, c) for n, c in terms.items() if c)
    return Linear(const, tuple(sorted(found)) if len(found) > 1 else found)


def _nothing_to_look_up_in(e: Lookup) -> str:
    raise BuildError(f"'{e}' is looked up where there are no buffers")


class Module:
    """Functions and declarations of one kernel, refused as soon as it becomes too large to compile."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.size = 0  # instructions
        self.declarations: dict[str, None] = {}
        self.functions: list[str] = []

    def declare(self, text: str) -> None:
        """Adds a declaration, once."""
        self.declarations[text] = None

    def count(self, row: int) -> None:
        """Counts an instruction, the `row`-th of its basic block."""
        self.size += 1
        if self.size > MOST_INSTRUCTIONS:
            raise self._too_large(f"more than {MOST_INSTRUCTIONS:,} instructions")
        if row > MOST_IN_A_ROW:
            raise self._too_large(f"more than {MOST_IN_A_ROW:,} instructions in a row")

    def _too_large(self, found: str) -> BudgetError:
        return BudgetError(
            f"{self.name}: its code has {found}, which is the limit, since compiling it would take too long; "
            "unroll less (smaller unrolled or vectorised tiles, a smaller unroll_up_to)"
        )

    def text(self) -> str:
        """The module as LLVM IR."""
        attributes = 'attributes #0 = { nounwind noinline "prefer-vector-width"="512" "no-builtins" }'
        return "\n\n".join(["\n".join(sorted(self.declarations)), *self.functions, attributes]) + "\n"
