"""Sizes at run time: symbols in registers, derived expressions computed by builtins once each, checks of extents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from searchlab.errors import GraphError
from searchlab.graph.symbols import SizeFacts, SizeRange
from searchlab.graph.vm.bytecode import Check, CodeWriter
from searchlab.ir.algebra import solvable
from searchlab.ir.expr import And, Binary, Compare, Const, Expr, Monomial, Poly, Var
from searchlab.ir.walk import variables

ANY = SizeRange()
UNBOUNDED = 1 << 48  # more elements than any address space holds: a size without an upper bound is below this


class SizeRegisters:
    """The registers of the symbols of a function, and of what is computed from them."""

    def __init__(self, code: CodeWriter, facts: SizeFacts) -> None:
        self.code, self.facts = code, facts
        self.symbols: dict[Var, int] = {}
        self._known: dict[Expr, int] = {}
        self._conditions: dict[Expr, int] = {}
        self._left: list[tuple[str, Expr, int]] = []  # what was matched but not compared: where, wanted, got

    def register(self, e: Expr) -> int:
        """The register that holds an index expression, which is computed where it is first needed."""
        if isinstance(e, Const):
            return self.code.word(int(e.value))
        if isinstance(e, Var):
            if e not in self.symbols:
                raise GraphError(f"no parameter or match_cast determines {e} before it is used")
            return self.symbols[e]
        if e not in self._known:
            self._known[e] = self._computed(e)
        return self._known[e]

    def _computed(self, e: Expr) -> int:
        check = Check(f"the size {e}", "memory")
        if isinstance(e, Binary) and e.op in ("floordiv", "mod", "min", "max"):
            return self.code.value(e.op, self.register(e.a), self.register(e.b), check=check)
        if not isinstance(e, Poly):
            raise GraphError(f"{e} is not a size that can be computed when a model runs")
        return self._folded("add", [self._term(*term) for term in e.terms], check)

    def _term(self, monomial: Monomial, scale: int) -> int:
        factors = [self.register(atom) for atom in monomial]
        if scale != 1 or not factors:
            factors.append(self.code.word(scale))
        return self.product(factors)

    def product(self, registers: Sequence[int]) -> int:
        """The product of registers."""
        return self._folded("mul", registers or [self.code.word(1)], Check("the product of sizes", "memory"))

    def _folded(self, builtin: str, registers: Sequence[int], check: Check) -> int:
        first, *rest = registers
        for other in rest:
            first = self.code.value(builtin, first, other, check=check)
        return first

    def condition(self, e: Expr) -> int:
        """The register that is 1 if a condition on sizes holds, else 0; it is computed where it is first needed."""
        if e not in self._conditions:
            self._conditions[e] = self._decided(e)
        return self._conditions[e]

    def _decided(self, e: Expr) -> int:
        value, word = self.code.value, self.code.word
        if isinstance(e, Const):
            return word(int(bool(e.value)))
        if isinstance(e, And):
            return self._folded("mul", [self.condition(c) for c in e.args], Check("a condition"))
        if not isinstance(e, Compare):
            raise GraphError(f"{e} is not a condition on sizes")
        a, b = self.register(e.a), self.register(e.b)
        if e.op == "le":
            return value("at_most", a, b)
        if e.op == "lt":
            return value("at_most", value("add", a, word(1)), b)
        same = value("mul", value("at_most", a, b), value("at_most", b, a))
        return same if e.op == "eq" else value("at_most", same, word(0))

    # --- binding and checking -----------------------------------------------------------------------------------------

    def match(self, what: str, wanted: Iterable[Expr], got: Sequence[int], known: Sequence[Expr] | None) -> None:
        """Binds the symbols that extents determine for the first time, and notes all other extents for `settle`.

        `got` are the registers of the actual extents, `known` what these are, as far as expressions say so.
        """
        for axis, want in enumerate(wanted):
            register = got[axis]
            symbol, scale, offset = solvable(want) or (None, 1, 0)
            if symbol is None or symbol in self.symbols:
                if known is None or not self.facts.equal(want, known[axis]):
                    self._left.append((f"{what}: extent {axis}", want, register))
                continue
            value = register
            if offset:
                value = self.code.value("add", value, self.code.word(-offset), check=Check(what))
            if scale != 1:
                value = self.code.value("floordiv", value, self.code.word(scale), check=Check(what))
            self.symbols[symbol] = value
            self.limit(f"{what}: {symbol}", value, self.facts.ranges.get(symbol, ANY), symbol.name)
            if (scale, offset) != (1, 0):
                self._left.append((f"{what}: extent {axis}", want, register))

    def settle(self) -> None:
        """Compares all extents that were noted, now that their symbols are known."""
        for what, want, got in self._left:
            wanted = f"{want} = " if variables(want) else ""
            self.code.call("check_equal", got, self.register(want), check=Check(what, "number", wanted))
        self._left.clear()

    def limit(self, what: str, register: int, allowed: SizeRange = ANY, name: str = "it") -> None:
        """Refuses a number that is out of a range."""
        high = UNBOUNDED if allowed.high is None else allowed.high
        most = "" if allowed.high is None else f" <= {allowed.high}"
        check = Check(what, "range", f"{allowed.low} <= {name}{most}")
        self.code.call("check_range", register, self.code.word(allowed.low), self.code.word(high), check=check)
