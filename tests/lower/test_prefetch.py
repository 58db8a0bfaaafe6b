"""Prefetching: where it goes, one request per cache line, addresses that may lie outside, and the same values."""

import re
from collections.abc import Callable

import pytest
from checked_run import run_checked

from searchlab.backend import compile
from searchlab.errors import BuildError
from searchlab.ir import Program, knob, size
from searchlab.ir.statement_tree import statements
from searchlab.ir.stmt import Prefetch
from searchlab.llvm.module import generate
from searchlab.lower.passes import lower
from searchlab.schedule import Schedule
from searchlab.targets import detect, parse
from searchlab.workloads import parse as workload

ONE = detect(1)
WIDE = parse("x86-64-v4")  # only written, not run


def scheduled(spec: str, steps: Callable[[Schedule], object]) -> Program:
    s = Schedule(workload(spec).program)
    steps(s)
    return s.program


def plain(program: Program) -> str:
    return str(lower(program, ONE)).partition("\n")[2]


def calls(program: Program) -> int:
    return generate(lower(program, WIDE), WIDE).ir.count("call void @llvm.prefetch")


def tiled(s: Schedule) -> None:
    s.split("i", [None, 4])
    s.reorder("i_0", "k", "i_1", "j")
    s.unroll("i_1")
    s.vectorize("j")


def next_row(s: Schedule) -> None:
    s.vectorize("j")
    s.prefetch("Y", "X", "i", 1)


def next_row_to_reduce(s: Schedule) -> None:
    outer, inner = s.loops("Y")
    s.vectorize(inner)
    s.prefetch("Y", "X", outer, 1)


def rows_of_b(s: Schedule) -> None:
    tiled(s)
    s.prefetch("C", "B", "k", 2)


def next_rows_of_a(s: Schedule) -> None:
    tiled(s)
    s.prefetch("C", "A", "i_0", 1)


def next_panel(s: Schedule) -> None:
    s.split("j", [None, 16])
    s.reorder("j_0", "i", "k", "j_1")
    s.vectorize("j_1")
    s.prefetch("C", "B", "j_0", 1)


def test_beside_the_statement_that_reads() -> None:
    program = scheduled("elementwise:rows=3,cols=20,ops=exp", next_row)
    assert plain(program) == (
        "  for i in 3:\n    for j in 20 vectorized:\n      prefetch X[i + 1, j]\n      Y[i, j] = exp(X[i, j])\n"
    )


def test_unrolled_loops_that_do_not_move_it_are_left_out() -> None:
    text = plain(scheduled("matmul:m=8,n=64,k=6", rows_of_b))
    assert (
        "    for k in 6:\n      for j in 64 vectorized:\n        prefetch B[k + 2, j]\n      for i_1 in 4 unr" in text
    )
    text = plain(scheduled("matmul:m=8,n=64,k=6", next_rows_of_a))
    assert "for i_1 in 4 unrolled:\n        prefetch A[i_0*4 + i_1 + 4, k]\n        for j in 64 vec" in text


def test_what_serial_loops_repeat_is_asked_for_in_their_last_iteration() -> None:
    text = plain(scheduled("matmul:m=8,n=64,k=6", next_panel))
    assert text.count("prefetch") == 1 and "for i in 7:" in text and "if" not in text
    assert "prefetch B[k, j_0*16 + j_1 + 16]\n" in text[text.index("for i in 7:") :].partition("C.r1")[2]


def test_what_the_loop_does_not_move_is_left_out() -> None:
    assert "prefetch" not in plain(scheduled("matmul:m=8,n=64,k=6", lambda s: s.prefetch("C", "B", "i", 1)))


def test_nothing_lies_beyond_the_loop() -> None:
    for distance, count in ((2, 1), (3, 0), (10**30, 0)):
        program = scheduled("elementwise:rows=3,cols=20,ops=exp", lambda s, d=distance: s.prefetch("Y", "X", "i", d))
        found = [x for x in statements(lower(program, ONE).body) if isinstance(x, Prefetch)]
        assert len(found) == count


@pytest.mark.parametrize(
    ("spec", "steps", "count"),
    [
        ("elementwise:rows=3,cols=16,ops=exp", next_row, 1),
        ("elementwise:rows=3,cols=48,ops=exp", next_row, 3),
        ("elementwise:rows=3,cols=1024,ops=exp", next_row, 1),  # in a loop over registers
        ("elementwise:rows=3,cols=48,ops=abs,dtype=float64", next_row, 6),
        ("reduce:shape=3x128,op=max,dtype=int8", next_row_to_reduce, 2),
        ("matmul:m=8,n=64,k=6", rows_of_b, 4),
        ("matmul:m=8,n=64,k=16", next_rows_of_a, 4),
        ("elementwise:rows=3,cols=23,ops=exp", next_row, 2),
    ],
)
def test_one_request_for_each_line(spec: str, steps: Callable[[Schedule], object], count: int) -> None:
    assert calls(scheduled(spec, steps)) == count


def test_addresses_may_lie_outside() -> None:
    """An `inbounds` address beyond its buffer has no value at all, and must not be used."""
    ir = generate(lower(scheduled("elementwise:rows=3,cols=48,ops=exp", next_row), ONE), ONE).ir
    used = set(re.findall(r"prefetch\.p0\(ptr (%\w+)", ir))
    chain = {
        n: (flag, base) for n, flag, base in re.findall(r"(%\w+) = getelementptr (inbounds )?float, ptr (%\w+)", ir)
    }
    assert used and used <= chain.keys()
    for name in used:
        while name in chain:
            flag, name = chain[name]
            assert not flag


@pytest.mark.parametrize(
    ("spec", "steps"),
    [
        ("elementwise:rows=3,cols=20,ops=exp", next_row),
        ("matmul:m=8,n=64,k=6", rows_of_b),
        ("matmul:m=8,n=64,k=6", next_rows_of_a),
        ("matmul:m=8,n=64,k=6", next_panel),
    ],
)
def test_values_stay(spec: str, steps: Callable[[Schedule], object]) -> None:
    w, program = workload(spec), scheduled(spec, steps)
    inputs = w.inputs(seed=1)
    assert w.check(run_checked(lower(program, ONE), program, inputs), inputs) is None
    for target in (ONE, detect(min(2, detect().cores))):
        assert w.check(compile(program, target)(*inputs.values()), inputs) is None


def test_joined_lanes_keep_their_registers() -> None:
    """A sum over several registers is joined once, with or without prefetching."""

    def steps(s: Schedule) -> None:
        s.vectorize(s.loops("Y")[-1])

    def ahead(s: Schedule) -> None:
        steps(s)
        s.prefetch("Y", "X", s.loops("Y")[0], 1)

    spec = "reduce:shape=8x64,op=sum"
    before, after = (generate(lower(scheduled(spec, f), WIDE), WIDE).ir for f in (steps, ahead))
    assert after.count("shufflevector") == before.count("shufflevector") and after.count("@llvm.prefetch") == 5


def test_a_copy_made_inside_is_not_asked_for_before_it_exists() -> None:
    def steps(s: Schedule) -> None:
        s.cache_read("C", "B")
        s.reorder("k", "i", "j")
        s.compute_at("B_local", "i")
        s.unroll("i")
        s.unroll("j")
        s.prefetch("C", "B_local", "k", 1)

    w, program = workload("matmul:m=4,n=8,k=6"), scheduled("matmul:m=4,n=8,k=6", steps)
    inputs = w.inputs()
    assert w.check(compile(program, ONE)(*inputs.values()), inputs) is None


def test_symbols_must_have_become_numbers() -> None:
    program = scheduled("matmul:m=4,n=8,k=6", lambda s: s.prefetch("C", "A", "k", knob("far")))
    assert program.knobs == ("far",)
    with pytest.raises(BuildError, match="still has knobs: far"):
        compile(program, ONE)
    assert program.substitute({"far": 0}).hash == workload("matmul:m=4,n=8,k=6").program.hash
    with pytest.raises(BuildError, match="'A' is prefetched n iterations ahead, which is not a number"):
        compile(scheduled("matmul:m=4,n=8,k=6", lambda s: s.prefetch("C", "A", "k", size("n"))), ONE)
