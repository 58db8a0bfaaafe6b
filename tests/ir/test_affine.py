"""Validation of bindings, compared with the enumeration of all iterations: nothing wrong is ever accepted."""

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from searchlab.ir import Builder, knob, size, total
from searchlab.ir.affine import Inverse, IterationMap, Need, Rejection, iteration_map, validated
from searchlab.ir.algebra import ceildiv
from searchlab.ir.bounds import Facts
from searchlab.ir.evaluate import evaluate
from searchlab.ir.expr import TRUE, Binary, Expr, Like, Poly, Var, all_of, conditions, index, value_of
from searchlab.ir.stmt import Iter
from searchlab.ir.walk import transform
from searchlab.schedule import Schedule
from searchlab.workloads import parse

Rng = np.random.Generator
BIJECTIVE = Need.BIJECTIVE
i, j, k, f = map(Var, "ijkf")
n, t, u = size("n"), knob("t"), knob("u")
NOTHING: tuple[Expr, ...] = ()


def made(bindings: list[Like], domain: list[Like], loops: dict[Var, Like], where: Expr = TRUE) -> IterationMap:
    iters = tuple(Iter(Var(f"v{at}"), index(e)) for at, e in enumerate(domain))
    return IterationMap(iters, tuple(map(index, bindings)), {v: index(e) for v, e in loops.items()}, where)


# --- what is accepted, and why not ------------------------------------------------------------------------------------

fused = f * 4 + j
ACCEPTED: dict[str, tuple[IterationMap, Need, tuple[Expr, ...]]] = {
    "digits": (made([i // 4, i % 4], [4, 4], {i: 16}), BIJECTIVE, NOTHING),
    "middle digit": (made([i // 12, (i // 4) % 3, i % 4], [2, 3, 4], {i: 24}), BIJECTIVE, NOTHING),
    "nested sum": (made([i * 12 + j * 4 + k], [24], {i: 2, j: 3, k: 4}), BIJECTIVE, NOTHING),
    "guarded": (made([i * 4 + j], [10], {i: 3, j: 4}, i * 4 + j < 10), BIJECTIVE, NOTHING),
    "guarded, fused before": (made([fused // 10, fused % 10], [3, 10], {f: 8, j: 4}, fused < 30), BIJECTIVE, NOTHING),
    "guarded twice, fused after": (
        made(
            [f // 3 * 4 + i, f % 3 * 5 + j],
            [10, 13],
            {f: 9, i: 4, j: 5},
            (f // 3 * 4 + i < 10) & (f % 3 * 5 + j < 13),
        ),
        BIJECTIVE,
        NOTHING,
    ),
    "reversed": (made([i * 4 + 3 - j], [12], {i: 3, j: 4}), BIJECTIVE, NOTHING),
    "loops of one iteration": (made([i + j, 0], [4, 1], {i: 4, j: 1}), BIJECTIVE, NOTHING),
    "symbols": (made([i // t, i % t], [n, t], {i: n * t}), BIJECTIVE, NOTHING),
    "symbols that divide": (made([i * t + j], [512], {i: 512 // t, j: t}), BIJECTIVE, ((512 % t).equals(0),)),
    "symbols that cover": (made([i * t + j], [8], {i: u, j: t}, i * t + j < 8), BIJECTIVE, (t * u >= 8,)),
    "symbols with a tail": (made([i * t + j], [n], {i: ceildiv(n, t), j: t}, i * t + j < n), BIJECTIVE, NOTHING),
    "a part": (made([i * 4 + j], [20], {i: 3, j: 4}), Need.INJECTIVE, NOTHING),
    "overlaps": (made([i * 4 + j], [18], {i: 4, j: 6}), Need.COVERING, NOTHING),
    "overlaps with a guard": (made([i * 4 + j], [17], {i: 4, j: 6}, i * 4 + j < 17), Need.COVERING, NOTHING),
    "overlaps with symbols": (made([i * t + j], [n * t + 2], {i: n, j: t + 2}), Need.COVERING, NOTHING),
    "repeated": (made([i], [4], {i: 4, j: 3}), Need.COVERING, NOTHING),
}
REJECTED: dict[str, tuple[IterationMap, Need, str]] = {
    "dependent": (made([i, 2 * i], [4, 8], {i: 4}), BIJECTIVE, "'v1' = 'i*2' does not take every value below 8"),
    "gaps": (made([2 * i], [8], {i: 4}), Need.COVERING, "'v0' = 'i*2' does not take every value"),
    "a digit is missing": (made([i // 4], [4], {i: 16}), BIJECTIVE, "'(i % 4)' is in no binding"),
    "uneven digits": (made([i // 4, i % 4], [3, 4], {i: 10}), BIJECTIVE, "would have to be 'v0*4 + v1'"),
    "repeated": (made([i], [4], {i: 4, j: 3}), BIJECTIVE, "'j' is in no binding, so that iterations repeat"),
    "overlaps": (made([i * 4 + j], [18], {i: 4, j: 6}), BIJECTIVE, "'i' does not follow from the values"),
    "outside": (made([i * 4 + j], [10], {i: 3, j: 4}), Need.INJECTIVE, "'v0' = 'i*4 + j' may leave its domain of 10"),
    "still": (made([i, 0], [4, 2], {i: 4}), Need.COVERING, "'v1' = '0' does not move, but its domain has extent 2"),
    "cut off": (made([i, j], [4, 4], {i: 4, j: 4}, i + j < 6), Need.COVERING, "may exclude elements of the domain"),
    "not below the end": (made([i * t + j], [8], {i: u, j: t}, i * t + j < 8), Need.COVERING, "'i' would have to be"),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name: str) -> None:
    m, need, assumptions = ACCEPTED[name]
    assert isinstance(validated(m, need, Facts({}, assumptions)), Inverse)


@pytest.mark.parametrize("name", REJECTED)
def test_rejected(name: str) -> None:
    m, need, words = REJECTED[name]
    found = validated(m, need, Facts())
    assert isinstance(found, Rejection) and not found
    assert words in found.words


def test_the_inverse_takes_values_back_to_loops() -> None:
    found = validated(made([fused // 10, fused % 10], [3, 10], {f: 8, j: 4}, fused < 30), BIJECTIVE, Facts())
    assert isinstance(found, Inverse)
    assert {str(v): str(e) for v, e in found.loops.items()} == {"f": "(v0*10 + v1) // 4", "j": "(v0*10 + v1) % 4"}


def test_reductions_are_not_bound_to_parallel_loops() -> None:
    b = Builder("s")
    X, r = b.input("X", (4, 6)), b.axis("r", 6)
    program = b.program(b.compute("Y", (4,), lambda i: total(X[i, r], r)))
    m = iteration_map(program.body, program.blocks["Y"])
    assert validated(m, BIJECTIVE, program.facts)
    for v, fine in ((Var("i"), True), (Var("r"), False)):
        found = validated(replace(m, shared=frozenset((v,))), Need.INJECTIVE, program.facts)
        assert bool(found) == fine
    assert "reduction 'vr' is bound to parallel loop 'r'" in found.words


def test_shared_regions_cover_without_being_injective() -> None:
    """A convolution's padded input, computed per tile: windows of neighbouring tiles overlap."""
    s = Schedule(parse("conv1d:ci=2,co=3,w=16,k=3,padding=1").program)
    w0, _ = s.split(s.loops("Y")[2], [None, 4])
    s.reorder(w0, *[lp for lp in s.loops("Y") if lp != w0])
    s.compute_at("P", w0)
    m = iteration_map(s.program.body, s.program.blocks["P"])
    assert validated(m, Need.COVERING, s.program.facts)
    assert not validated(m, Need.INJECTIVE, s.program.facts)


# --- the oracle -------------------------------------------------------------------------------------------------------


def truth(m: IterationMap) -> dict[Need, bool]:
    """What the map is, by visiting all iterations."""
    points = np.array(list(itertools.product(*(range(value_of(e) or 0) for e in m.loops.values()))), np.int64)
    points = points.reshape(-1, len(m.loops))
    env = {v.name: points[:, at] for at, v in enumerate(m.loops)}
    kept = np.broadcast_to(evaluate(m.where, env), len(points)).astype(bool)
    values = np.stack([np.broadcast_to(evaluate(e, env), len(points)) for e in m.bindings], 1)[kept]
    sizes = [value_of(it.extent) or 0 for it in m.iters]
    inside = bool(((values >= 0) & (values < sizes)).all())
    different = len(np.unique(values, axis=0)) if len(values) else 0
    injective, covering = inside and different == len(values), inside and different == np.prod(sizes)
    return {Need.INJECTIVE: injective, Need.COVERING: covering, BIJECTIVE: injective and covering}


def leads_back(m: IterationMap, inverse: Inverse) -> bool:
    """Whether the inverse names the iteration that each value comes from."""
    points = np.array(list(itertools.product(*(range(value_of(e) or 0) for e in m.loops.values()))), np.int64)
    env = {v.name: points[:, at] for at, v in enumerate(m.loops)}
    kept = np.broadcast_to(evaluate(m.where, env), len(points)).astype(bool)
    values = {it.var.name: evaluate(e, env) + 0 * points[:, 0] for it, e in zip(m.iters, m.bindings)}
    return all(
        (np.broadcast_to(evaluate(e, values), len(points)) == env[v.name])[kept].all() for v, e in inverse.loops.items()
    )


def scheduled(rng: Rng) -> IterationMap:
    """The bindings of a block after random splits, fusions and reorderings."""
    b = Builder("p")
    shape = [int(rng.integers(1, 8)) for _ in range(int(rng.integers(1, 4)))]
    X = b.input("X", shape)
    names = "abc"[: len(shape)]
    body = eval(f"lambda {', '.join(names)}: X[{', '.join(names)}] + 1.0", {"X": X})
    s = Schedule(b.program(b.compute("Y", shape, body)))
    for _ in range(int(rng.integers(0, 6))):
        loops = s.loops("Y")
        move = rng.choice(["split", "fuse", "reorder"])
        if move == "split":
            name = str(rng.choice(loops))
            s.split(name, [None, int(rng.integers(1, 6))], tail=True)
        elif move == "fuse" and len(loops) > 1:
            at = int(rng.integers(len(loops) - 1))
            s.fuse(*loops[at : at + 2])
        elif move == "reorder" and len(loops) > 1:
            s.reorder(*map(str, rng.permutation(loops)))
    return iteration_map(s.program.body, s.program.blocks["Y"])


def corrupted(m: IterationMap, rng: Rng) -> IterationMap:
    """The map with one number or variable in it changed."""
    what = rng.choice(["binding", "binding", "binding", "condition", "loop", "domain"])
    if what == "condition" and m.where != TRUE:
        left = list(conditions(m.where))
        left.pop(int(rng.integers(len(left))))
        return replace(m, where=all_of(left))
    if what == "loop" and m.loops:
        v = list(m.loops)[int(rng.integers(len(m.loops)))]
        return replace(
            m, loops={**m.loops, v: index(max(1, (value_of(m.loops[v]) or 1) + int(rng.choice([-1, 1, 2]))))}
        )
    at = int(rng.integers(len(m.iters)))
    if what == "domain":
        it = m.iters[at]
        size = max(1, (value_of(it.extent) or 1) + int(rng.choice([-1, 1, 2])))
        return replace(m, iters=(*m.iters[:at], replace(it, extent=index(size)), *m.iters[at + 1 :]))
    return replace(m, bindings=(*m.bindings[:at], bent(m.bindings[at], m, rng), *m.bindings[at + 1 :]))


def bent(e: Expr, m: IterationMap, rng: Rng) -> Expr:
    """An expression with a coefficient, a divisor or a variable changed here and there."""

    def change(x: Expr) -> Expr | None:
        if rng.random() < 0.6:
            return None
        if isinstance(x, Poly):
            return sum((index(c + int(rng.integers(-1, 2))) * _product(m) for m, c in x.terms), index(0))
        if isinstance(x, Binary) and (known := value_of(x.b)) is not None:
            other = index(max(1, known + int(rng.integers(-1, 2))))
            return x.a // other if rng.random() < 0.5 else x.a % other
        return list(m.loops)[int(rng.integers(len(m.loops)))] if isinstance(x, Var) else None

    return transform(e, change) if m.loops else e + 1


def _product(monomial: tuple[Expr, ...]) -> Expr:
    whole: Expr = index(1)
    for atom in monomial:
        whole = whole * atom
    return whole


def anything(rng: Rng) -> IterationMap:
    """Random bindings of random loops."""
    loops = {Var(name): int(rng.integers(1, 7)) for name in "pqr"[: int(rng.integers(1, 4))]}

    def term(depth: int) -> Expr:
        v: Expr = list(loops)[int(rng.integers(len(loops)))]
        if depth == 0 or rng.random() < 0.3:
            return v
        way, c = rng.integers(4), int(rng.integers(1, 6))
        inner = term(depth - 1)
        return [inner * c + term(depth - 1), inner // c, inner % c, (inner + c - 1) % (c + 1)][way]

    bindings: list[Like] = [term(2) for _ in range(int(rng.integers(1, 3)))]
    whole = made(bindings, [1] * len(bindings), dict(loops))
    tops = [value_of(Facts(whole.loops).upper(e)) for e in whole.bindings]
    domain: list[Like] = [max(1, (top or 0) + 1 + int(rng.choice([0, 0, 0, -1, 1]))) for top in tops]
    where = term(1) < int(rng.integers(1, 8)) if rng.random() < 0.3 else TRUE
    return made(bindings, domain, dict(loops), where)


def judge(count: int, seed: int) -> Counter[str]:
    """Judges random maps and compares with the truth; raises at the first that is wrongly accepted."""
    rng = np.random.default_rng([5, seed])
    figures: Counter[str] = Counter()
    for number in range(count):
        kind = ("scheduled", "corrupted", "corrupted", "anything")[number % 4]
        m = anything(rng) if kind == "anything" else scheduled(rng)
        m = corrupted(m, rng) if kind == "corrupted" else m
        for need, holds in truth(m).items():
            found = validated(m, need, Facts())
            assert holds or not found, f"{need}: {m}"
            if isinstance(found, Inverse) and need is not Need.COVERING:
                assert leads_back(m, found), f"{need}: {m} {found}"
            figures[f"{kind}, {need}, {'true' if holds else 'false'}, {'accepted' if found else 'rejected'}"] += 1
    return figures


def test_nothing_wrong_is_accepted() -> None:
    figures = judge(400, 0)
    # all schedules must be recognised; of bindings that are right by chance, most are
    assert figures["scheduled, bijective, true, accepted"] == 100
    right, missed = (
        sum(c for name, c in figures.items() if name.endswith(f"true, {word}")) for word in ("accepted", "rejected")
    )
    assert missed <= 0.1 * right, figures


@pytest.mark.slow
def test_nothing_wrong_is_accepted_of_many() -> None:
    figures = judge(10_000, 1)
    for name, c in sorted(figures.items()):
        print(c, name)
    assert figures["scheduled, bijective, true, rejected"] <= 10
