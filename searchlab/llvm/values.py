"""Expressions of tensor values as LLVM IR: scalar, or in the lanes of the vectorised loop being emitted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from searchlab.dtype import BOOL, DTYPES, FLOAT16, FLOATS, HALVES, INDEX, UNSIGNED
from searchlab.errors import BuildError
from searchlab.ir.algebra import divides, flat_index, poly
from searchlab.ir.expr import And, Binary, Call, Cast, Compare, Const, Expr, Load, Lookup, Poly, Select, Var
from searchlab.ir.stmt import Buffer
from searchlab.ir.walk import loads, variables
from searchlab.llvm.abi import LINE
from searchlab.llvm.arithmetic import Arithmetic, suffix
from searchlab.llvm.interleaves import interleaved, rows_in_turns
from searchlab.llvm.squares import column
from searchlab.llvm.ssa import TYPES, Function, Linear
from searchlab.lower.registers import REGISTER
from searchlab.targets import Target


@dataclass(frozen=True, slots=True)
class Value:
    """An operand and its number of lanes (1: uniform)."""

    text: str
    lanes: int


@dataclass(frozen=True, slots=True)
class BufferPlace:
    """Where a buffer lives: pointer, alignment, and row-major strides."""

    buffer: Buffer
    pointer: str
    align: int

    def offset(self, indices: tuple[Expr, ...]) -> Expr:
        """The flat index of an element."""
        return flat_index(indices, self.buffer.shape)


@dataclass(frozen=True, slots=True)
class Lanes:
    """The vectorised loop variable and the number of its iterations per vector."""

    var: Var
    count: int


class ValueWriter(Arithmetic):
    """Writes expressions into a function."""

    def __init__(self, function: Function, places: dict[str, BufferPlace], target: Target) -> None:
        super().__init__(function, target)
        self.places = places
        self.lanes: Lanes | None = None
        self._offsets: dict[tuple[str, int], tuple[tuple[Expr, ...], Expr]] = {}  # by the identity of indices
        self._strides: dict[tuple[Expr, Var], int | None] = {}
        function.look_up = self.look_up

    def put(self, place: BufferPlace) -> None:
        """Sets the location of a buffer."""
        self.places[place.buffer.name] = place
        self._offsets.clear()
        self.f.known.tiles.pop(place.buffer.name, None)

    def spread(self, v: Value, dtype: str, lanes: int) -> str:
        """The operand broadcast to this number of lanes."""
        if v.lanes == lanes:
            return v.text
        assert v.lanes == 1
        if not v.text.startswith("%"):
            return v.text if lanes == 1 else f"splat ({TYPES[dtype]} {v.text})"
        key = (v.text, lanes)
        spreads = self.f.known.spreads
        known = spreads.get(key)
        if known is None:
            type_ = self.type(dtype, lanes)
            one = self.f.let(f"insertelement {type_} poison, {TYPES[dtype]} {v.text}, i64 0")
            known = self.f.let(f"shufflevector {type_} {one}, {type_} poison, <{lanes} x i32> zeroinitializer")
            spreads[key] = known
        return known

    # --- expressions --------------------------------------------------------------------------------------------------

    def write(self, e: Expr) -> Value:
        """The value of an expression; instructions are added as needed."""
        if isinstance(e, Const):
            return Value(self.constant(e.value, e.type, 1), 1)
        if isinstance(e, Load):
            return self.load(e)
        if isinstance(e, Binary):
            return self.index(e) if e.dtype == INDEX else self.binary(e)
        if isinstance(e, (Var, Poly, Lookup)):
            return self.index(e)
        if isinstance(e, Call):
            return self.call(e)
        if isinstance(e, Cast):
            return self.cast(e)
        if isinstance(e, Select):
            return self.select(e)
        if isinstance(e, (Compare, And)):
            return self.condition(e)
        raise BuildError(f"cannot generate code for '{e}'")

    def index(self, e: Expr) -> Value:
        """An index as a value: in lanes, if it moves with the vectorised loop."""
        base = self.f.wide(self.f.linear(e))
        stride = self.stride(e)
        if stride == 0 or self.lanes is None:
            return Value(base, 1)
        n = self.lanes.count
        if stride is None:
            return self.lane_by_lane(INDEX, lambda: self.f.wide(self.f.linear(e)))
        steps = ", ".join(f"i64 {lane * stride}" for lane in range(n))
        return Value(self.f.let(f"add <{n} x i64> {self.spread(Value(base, 1), INDEX, n)}, <{steps}>"), n)

    def binary(self, e: Binary) -> Value:
        """Arithmetic on two values."""
        a, b = self.write(e.a), self.write(e.b)
        n = max(a.lanes, b.lanes)
        op = e.op
        if op == "div" and b.lanes < n and e.dtype in FLOATS and e.dtype not in HALVES:
            # one division for all lanes: a vector division takes as long as a dozen multiplications
            one = self.constant(1.0, e.dtype, 1)
            op, b = "mul", Value(self.operate("div", one, b.text, e.dtype, TYPES[e.dtype]), 1)
        x, y, type_ = self.spread(a, e.dtype, n), self.spread(b, e.dtype, n), self.type(e.dtype, n)
        return Value(self.operate(op, x, y, e.dtype, type_), n)

    def call(self, e: Call) -> Value:
        """A mathematical function."""
        args = [self.write(a) for a in e.args]
        n = max(a.lanes for a in args)
        return Value(self.apply(e.function, [self.spread(a, e.dtype, n) for a in args], e.dtype, n), n)

    def cast(self, e: Cast) -> Value:
        """A value as another type."""
        a = self.write(e.a)
        if e.a.dtype == FLOAT16 and a.lanes == 1 and self.lanes is not None:
            # x86 inserts a scalar into a register whose earlier contents it waits for; it can broadcast one instead
            a = Value(self.spread(a, FLOAT16, self.lanes.count), self.lanes.count)
        return Value(self.convert(a.text, e.a.dtype, e.type, a.lanes), a.lanes)

    def condition(self, e: Expr) -> Value:
        """A condition: a comparison, a value of type bool, or a conjunction of such."""
        if isinstance(e, Const):
            return Value("true" if e.value else "false", 1)
        if isinstance(e, And):
            parts = [self.condition(c) for c in e.args]
            n = max(p.lanes for p in parts)
            text = self.spread(parts[0], BOOL, n)
            for p in parts[1:]:
                text = self.f.let(f"and {self.type(BOOL, n)} {text}, {self.spread(p, BOOL, n)}")
            return Value(text, n)
        if not isinstance(e, Compare):
            return self.write(e)
        a, b = self.write(e.a), self.write(e.b)
        n, dtype = max(a.lanes, b.lanes), e.a.dtype
        return Value(self.compare(e.op, self.spread(a, dtype, n), self.spread(b, dtype, n), dtype, n), n)

    def select(self, e: Select) -> Value:
        """One of two values, lane by lane."""
        if (
            self._moves_with_lanes(e.condition)
            and any(True for _ in loads(e.a))
            and e.condition.dtype == BOOL
            and self._on_index(e.condition)
        ):
            return self.lane_by_lane(e.dtype, lambda: self.write(e).text)
        condition = self.condition(e.condition)
        if condition.lanes > 1 or not self._on_index(e.condition):
            return self._choose(e, condition)
        return self._branch(e, condition.text)

    def _choose(self, e: Select, condition: Value) -> Value:
        a, b = self.write(e.a), self.write(e.b)
        n = max(condition.lanes, a.lanes, b.lanes)
        x, y, type_ = self.spread(a, e.dtype, n), self.spread(b, e.dtype, n), self.type(e.dtype, n)
        mask = self.type(BOOL, condition.lanes)
        return Value(self.f.let(f"select {mask} {condition.text}, {type_} {x}, {type_} {y}"), n)

    def _branch(self, e: Select, condition: str) -> Value:
        """A select as a branch: a condition on indices may guard an access, so only the chosen side is evaluated."""
        n = self.lanes.count if self.lanes is not None else 1
        type_, name = self.type(e.dtype, n), self.f.fresh("S")[1:]
        self.f.line(f"br i1 {condition}, label %{name}.a, label %{name}.b")
        sides = []
        for side, x in (("a", e.a), ("b", e.b)):
            self.f.start(f"{name}.{side}")
            text = self.spread(self.write(x), e.dtype, n)
            sides.append(f"[{text}, %{self.f.label}]")
            self.f.line(f"br label %{name}.end")
        self.f.start(f"{name}.end")
        return Value(self.f.let(f"phi {type_} {', '.join(sides)}"), n)

    def _on_index(self, e: Expr) -> bool:
        """Whether a condition, or a part of it, is one on indices, which may guard an access."""
        return any(isinstance(c, Compare) and c.a.dtype == INDEX for c in (e.args if isinstance(e, And) else (e,)))

    def _moves_with_lanes(self, e: Expr) -> bool:
        return self.lanes is not None and self.lanes.var in variables(e)

    # --- memory -------------------------------------------------------------------------------------------------------

    def offset(self, buffer: str, indices: tuple[Expr, ...]) -> Expr:
        """The flat index of an element in its buffer."""
        key = (buffer, id(indices))
        known = self._offsets.get(key)
        if known is None:
            known = self._offsets[key] = indices, self.places[buffer].offset(indices)
        return known[1]

    def stride(self, e: Expr) -> int | None:
        """How far an index moves from lane to lane; None if not by a constant."""
        if self.lanes is None:
            return 0
        key = (e, self.lanes.var)
        if key not in self._strides:
            self._strides[key] = _stride(*key)
        return self._strides[key]

    def look_up(self, e: Lookup) -> str:
        """An index from a buffer, which nothing writes; so it is loaded as early as other index arithmetic is done."""
        place, type_ = self.places[e.load.buffer], e.load.type
        address = self.f.pointer(place.pointer, type_, self.f.linear(self.offset(e.load.buffer, e.load.indices)))
        found = self.f.hoist(f"load {TYPES[type_]}, ptr {address}, align {DTYPES[type_].bytes}", address)
        return found if DTYPES[type_].bits == 64 else self.f.hoist(f"zext {TYPES[type_]} {found} to i64", found)

    def load(self, e: Load) -> Value:
        """Loads an element, or those of all lanes, unless it is already known."""
        place = self.places[e.buffer]
        offset = self.offset(e.buffer, e.indices)
        stride = self.stride(offset)
        if stride is None or stride not in (0, 1):
            return self._load_strided(e, stride)
        n = self.lanes.count if stride and self.lanes is not None else 1
        form = self.f.linear(offset)
        if not form.terms and (held := self.f.known.tiles.get(e.buffer)) is not None and held[0] == n:
            if (text := held[1].get(form.const)) is not None:
                self.f.fresh()  # terms of addresses are in the order of names, which stay what they are with a load
                return Value(text, n)
        key = (form.const, form.terms, n)
        loaded = self.f.known.loads.setdefault(e.buffer, {})
        known = loaded.get(key)
        if known is None:
            address = self.f.pointer(place.pointer, e.type, form)
            known = self.fetch(e.type, n, address, self.align(place, form, n))
            loaded[key] = known
        return Value(known, n)

    def _load_strided(self, e: Load, stride: int | None) -> Value:
        assert self.lanes is not None
        n = self.lanes.count
        offset = self.offset(e.buffer, e.indices)
        form = self.f.linear(offset)
        # the address of the first lane determines those of the others only if the stride is known
        where = stride if stride is not None else (offset, *((v, self.f.env[v]) for v in variables(offset)))
        key = (form, n, where)
        loaded = self.f.known.loads.setdefault(e.buffer, {})
        known = loaded.get(key)
        if known is None:
            if stride == 2 and n > 1:
                known = self._load_pairs(e, form, n)
            elif stride is not None and self._in_squares(e, form, stride):
                known = self._load_column(e, form, stride)
            else:
                known = self._load_in_turns(e) or self.lane_by_lane(e.type, lambda: self.load(e).text).text
            loaded[key] = known
        return Value(known, n)

    def _load_pairs(self, e: Load, form: Linear, n: int) -> str:
        """Loads with stride 2: two overlapping loads within the accessed range, and one shuffle."""
        place, type_ = self.places[e.buffer], self.type(e.type, n)
        size = DTYPES[e.type].bytes
        later = Linear(form.const + n - 1, form.terms)
        first, second = (self.fetch(e.type, n, self.f.pointer(place.pointer, e.type, at), size) for at in (form, later))
        half = n // 2
        picks = [2 * lane for lane in range(half)] + [n + 1 + 2 * lane for lane in range(half)]
        mask = ", ".join(f"i32 {p}" for p in picks)
        return self.f.let(f"shufflevector {type_} {first}, {type_} {second}, <{n} x i32> <{mask}>")

    def _in_squares(self, e: Load, form: Linear, stride: int) -> bool:
        """Whether lanes load a column of whole squares, each row of which begins at a multiple of its length."""
        assert self.lanes is not None
        n = self.lanes.count
        whole = stride > 0 and stride % n == 0 and divides(n, self.places[e.buffer].buffer.shape)
        return whole and n in (4, 8, 16) and DTYPES[e.type].bits == 32 and not any(c % n for _, c in form.terms)

    def _load_column(self, e: Load, form: Linear, stride: int) -> str:
        """Loads with a large stride: rows of a square, whose other columns unrolled copies of the statement load."""
        assert self.lanes is not None
        place, n = self.places[e.buffer], self.lanes.count
        loaded = self.f.known.loads.setdefault(e.buffer, {})
        number = form.const % n

        def row(lane: int) -> str:
            at = Linear(form.const - number + lane * stride, form.terms)
            key = (at.const, at.terms, n)
            if key not in loaded:
                address = self.f.pointer(place.pointer, e.type, at)
                loaded[key] = self.fetch(e.type, n, address, self.align(place, at, n))
            return loaded[key]

        def let(instruction: str) -> str:
            known = self.f.known.values
            if instruction not in known:
                known[instruction] = self.f.let(instruction)
            return known[instruction]

        return column(row, number, n, TYPES[e.type], let)

    def _load_in_turns(self, e: Load) -> str:
        """Loads of lanes that belong to a few rows in turns: a vector of each row, interleaved; "" if they do not."""
        assert self.lanes is not None
        place, lanes, at = self.places[e.buffer], self.lanes, self.f.env[self.lanes.var]
        offset = self.offset(e.buffer, e.indices)
        mixed = any(lanes.var in variables(a) != {lanes.var} for monomial in poly(offset) for a in monomial)
        if mixed or at.terms:
            return ""  # addresses would take arithmetic for every lane
        forms = []
        for lane in range(lanes.count):
            self.f.env[lanes.var] = Linear(at.const + lane)
            forms.append(self.f.linear(offset))
        self.f.env[lanes.var] = at
        count = rows_in_turns([form.const for form in forms]) if len({form.terms for form in forms}) == 1 else 0
        size = lanes.count // count if count else 0
        rows = [
            self.fetch(e.type, size, self.f.pointer(place.pointer, e.type, form), self.align(place, form, size))
            for form in forms[:count]
        ]
        return interleaved(rows, size, TYPES[e.type], self.f.let) if rows else ""

    def lane_by_lane(self, dtype: str, write: Callable[[], str]) -> Value:
        """A vector assembled from scalars, for operations without a vector form."""
        assert self.lanes is not None
        lanes, at = self.lanes, self.f.env[self.lanes.var]
        texts = []
        for lane in range(lanes.count):
            self.lanes = None
            self.f.env[lanes.var] = Linear(at.const + lane, at.terms)
            texts.append(write())
        self.f.env[lanes.var], self.lanes = at, lanes
        type_, vector = self.type(dtype, lanes.count), "poison"
        for lane, text in enumerate(texts):
            vector = self.f.let(f"insertelement {type_} {vector}, {TYPES[dtype]} {text}, i64 {lane}")
        return Value(vector, lanes.count)

    def align(self, place: BufferPlace, form: Linear, lanes: int) -> int:
        """The known alignment of an address: internal buffers are aligned to cache lines, all others to elements."""
        size = DTYPES[place.buffer.dtype].bytes
        best = size * lanes if lanes & (lanes - 1) == 0 else size
        while best > size and (
            place.align % best or (form.const * size) % best or any(c * size % best for _, c in form.terms)
        ):
            best //= 2
        return best

    def store(self, buffer: str, indices: tuple[Expr, ...], value: Expr) -> None:
        """Writes an element, or those of all lanes."""
        place = self.places[buffer]
        dtype = place.buffer.dtype
        offset = self.offset(buffer, indices)
        stride = self.stride(offset)
        if self.lanes is not None and stride == 0:
            self._join_lanes(buffer, indices, value)
            return
        if self.lanes is not None and stride != 1:
            self._scatter(buffer, indices, value)
            return
        n = self.lanes.count if self.lanes is not None else 1
        text = self.spread(self.write(value), dtype, n)
        form = self.f.linear(offset)
        address = self.f.pointer(place.pointer, dtype, form)
        self.put_away(dtype, n, text, address, self.align(place, form, n))
        self._hold(place, form, n, text)

    def prefetch(self, buffer: str, indices: tuple[Expr, ...]) -> None:
        """Prefetches the cache lines of an element, or of those in all lanes, each once per basic block."""
        place = self.places.get(buffer)
        if place is None:
            return  # the buffer is allocated inside inner loops
        offset, lanes = self.offset(buffer, indices), self.lanes
        if lanes is None or lanes.var not in variables(offset):
            self._prefetch_line(place, self.f.linear(offset))
            return
        stride, at = self.stride(offset), self.f.env[lanes.var]
        step = 1 if stride is None else max(1, LINE // (abs(stride) * DTYPES[place.buffer.dtype].bytes))
        for lane in range(0, lanes.count, step):
            self.f.env[lanes.var] = Linear(at.const + lane, at.terms)
            self._prefetch_line(place, self.f.linear(offset))
        self.f.env[lanes.var] = at

    def _prefetch_line(self, place: BufferPlace, form: Linear) -> None:
        dtype = place.buffer.dtype
        key = (place.pointer, form.terms, form.const * DTYPES[dtype].bytes // LINE)
        prefetched = self.f.known.prefetches
        if key not in prefetched:
            address = prefetched[key] = self.f.pointer(place.pointer, dtype, form, inside=False)
            self.f.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
            self.f.line(f"call void @llvm.prefetch.p0(ptr {address}, i32 0, i32 3, i32 1)")  # read, keep in cache

    def forget(self, buffer: str) -> None:
        """Drops what is known of a buffer's elements, which were written."""
        self.f.known.loads.pop(buffer, None)
        self.f.known.tiles.pop(buffer, None)

    def _hold(self, place: BufferPlace, form: Linear, n: int, text: str) -> None:
        """Remembers what was stored in a register tile, which LLVM would find out at the end of a longer text."""
        name = place.buffer.name
        held = self.f.known.tiles.get(name)
        self.forget(name)
        if place.buffer.scope == REGISTER and not form.terms and form.const % n == 0:
            values = held[1] if held is not None and held[0] == n else {}
            values[form.const] = text
            self.f.known.tiles[name] = (n, values)

    def _scatter(self, buffer: str, indices: tuple[Expr, ...], value: Expr) -> None:
        assert self.lanes is not None
        lanes, at = self.lanes, self.f.env[self.lanes.var]
        place = self.places[buffer]
        dtype, offset = place.buffer.dtype, self.offset(buffer, indices)
        vector = self.spread(self.write(value), dtype, lanes.count)
        for lane in range(lanes.count):
            text = self.f.let(f"extractelement {self.type(dtype, lanes.count)} {vector}, i64 {lane}")
            self.f.env[lanes.var] = Linear(at.const + lane, at.terms)
            address = self.f.pointer(place.pointer, dtype, self.f.linear(offset))
            self.put_away(dtype, 1, text, address, DTYPES[dtype].bytes)
        self.f.env[lanes.var] = at
        self.forget(buffer)

    def _join_lanes(self, buffer: str, indices: tuple[Expr, ...], value: Expr) -> None:
        """Emits x = x <op> term for all lanes: the lanes are reduced first."""
        own = Load(buffer, indices, value.dtype)
        assert isinstance(value, Binary) and own in (value.a, value.b) and self.lanes is not None
        term = self.write(value.b if value.a == own else value.a)
        self.join(buffer, indices, value.op, self.spread(term, value.dtype, self.lanes.count))

    def join(self, buffer: str, indices: tuple[Expr, ...], op: str, vector: str) -> None:
        """Reduces all lanes of a vector into one element."""
        assert self.lanes is not None
        lanes, self.lanes = self.lanes, None
        place = self.places[buffer]
        dtype = place.buffer.dtype
        joined = self._reduce(op, vector, dtype, lanes.count)
        old = self.write(Load(buffer, indices, dtype)).text
        total = self.operate(op, old, joined, dtype, TYPES[dtype])
        form = self.f.linear(self.offset(buffer, indices))
        address = self.f.pointer(place.pointer, dtype, form)
        self.put_away(dtype, 1, total, address, DTYPES[dtype].bytes)
        self.lanes = lanes
        self.forget(buffer)

    def _reduce(self, op: str, vector: str, dtype: str, lanes: int) -> str:
        """A tree reduction: halves are combined until one lane is left, the shortest dependency chain."""
        if dtype not in FLOATS and lanes > 1:
            return self._reduce_integers(op, vector, dtype, lanes)
        while lanes > 1:
            type_, half = self.type(dtype, lanes), lanes // 2
            a, b = (self._part(type_, vector, start, half) for start in (0, half))
            vector, lanes = self.operate(op, a, b, dtype, self.type(dtype, half)), half
        return vector

    def _part(self, type_: str, vector: str, start: int, count: int) -> str:
        """Some neighbouring lanes of a vector."""
        if count == 1:
            return self.f.let(f"extractelement {type_} {vector}, i64 {start}")
        lanes = ", ".join(f"i32 {start + n}" for n in range(count))
        return self.f.let(f"shufflevector {type_} {vector}, {type_} poison, <{count} x i32> <{lanes}>")

    def _reduce_integers(self, op: str, vector: str, dtype: str, lanes: int) -> str:
        """A reduction intrinsic: given halves of byte products, LLVM 22 forms a dot product of only the first four."""
        type_, element = self.type(dtype, lanes), TYPES[dtype]
        name = op if op in ("add", "mul") else f"{'u' if dtype in UNSIGNED else 's'}{op}"
        function = f"@llvm.vector.reduce.{name}.{suffix(dtype, lanes)}"
        self.f.declare(f"declare {element} {function}({type_})")
        return self.f.let(f"call {element} {function}({type_} {vector})")


def _stride(e: Expr, v: Var) -> int | None:
    """How far an index moves while `v` grows by one; None if not by a constant."""
    total = 0
    for monomial, c in poly(e).items():
        if monomial == (v,):
            total += c
        elif any(a == v or (not isinstance(a, Var) and v in variables(a)) for a in monomial):
            return None
    return total
