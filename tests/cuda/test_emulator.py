"""The emulator of PTX on kernels written by hand: what each instruction does, and every kind of fault."""

import numpy as np
import pytest

from searchlab.cuda.ptx_machine import run_kernel
from searchlab.cuda.ptx_memory import PtxFault, TrackedMemory, Who
from searchlab.cuda.ptx_text import read_ptx
from searchlab.errors import BuildError

_HEAD = """
.version 7.8
.target sm_80
.address_size 64
.visible .entry k(
	.param .u64 .ptr .align 256 k_param_0,
	.param .u64 .ptr .align 256 k_param_1
)
.maxntid 32
{
	.reg .pred 	%p<9>;
	.reg .b16 	%rs<9>;
	.reg .b32 	%r<9>;
	.reg .b64 	%rd<9>;
	.shared .align 16 .b8 s[128];
	ld.param.b64 	%rd1, [k_param_0];
	ld.param.b64 	%rd2, [k_param_1];
	mov.u32 	%r1, %tid.x;
	mul.wide.u32 	%rd3, %r1, 4;
	add.s64 	%rd4, %rd1, %rd3;
	add.s64 	%rd5, %rd2, %rd3;
	mov.b64 	%rd6, s;
	add.s64 	%rd7, %rd6, %rd3;
	ld.global.b32 	%r2, [%rd4];
"""


def run(body: str, x: np.ndarray | None = None, blocks: int = 1) -> np.ndarray:
    """The second array after a kernel of 32 threads; %r1 is the thread, %r2 its element, %rd5 where it may store."""
    given = np.arange(32, dtype=np.float32) if x is None else x
    inputs = TrackedMemory("X", given.view(np.uint8), written=True, writable=False)
    outputs = TrackedMemory("Y", np.zeros(128, np.uint8), written=False)
    run_kernel(read_ptx(f"{_HEAD}{body}\tret;\n}}\n"), (blocks, 1, 1), (32, 1, 1), [inputs, outputs])
    return outputs.data


def test_neighbours_through_shared_memory() -> None:
    body = """
	st.shared.b32 	[%rd7], %r2;
	bar.sync 	0;
	xor.b32 	%r3, %r1, 1;
	mul.wide.u32 	%rd8, %r3, 4;
	add.s64 	%rd8, %rd6, %rd8;
	ld.shared.b32 	%r4, [%rd8];
	st.global.b32 	[%rd5], %r4;
"""
    assert run(body).view(np.float32).tolist() == [n ^ 1 for n in range(32)]
    with pytest.raises(PtxFault, match="race: a thread reads what another writes in shared memory"):
        run(body.replace("bar.sync 	0;", ""))


def test_overwriting_what_others_still_read() -> None:
    body = """
	st.shared.b32 	[%rd7], %r2;
	bar.sync 	0;
	ld.shared.b32 	%r4, [s];
	BARRIER
	st.shared.b32 	[%rd7], %r4;
	st.global.b32 	[%rd5], %r4;
"""
    assert not run(body.replace("BARRIER", "bar.sync 0;")).view(np.float32).any()
    with pytest.raises(PtxFault, match="race: a thread writes what another reads"):
        run(body.replace("BARRIER", ""))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("st.global.b32 [%rd2], %r2;", "race: two threads write one element of Y"),
        ("st.global.b32 [%rd5+64], %r2;", "out of bounds: 4 bytes at 188 of Y, which has 128"),
        ("ld.global.b32 %r3, [%rd4+-4];", "out of bounds: 4 bytes at -4 of X"),
        ("ld.shared.b32 %r3, [%rd7+128];", "out of bounds: 4 bytes at 252 of shared memory, which has 128"),
        ("st.global.b32 [%rd4], %r2;", "writes to the input X"),
        (
            "ld.global.b32 %r3, [%rd5];\n\tst.global.b32 [%rd5], %r3;",
            "uninitialised: a thread writes to Y what comes of",
        ),
        (
            "ld.shared.b32 %r3, [%rd7];\n\tst.global.b32 [%rd5], %r3;",
            "uninitialised: a thread writes to Y what comes of",
        ),
        ("add.s32 %r3, %r4, 1;\n\tst.global.b32 [%rd5], %r3;", "uninitialised: a thread writes to Y what comes of"),
        ("ld.global.v2.b32 {%r3, %r4}, [%rd4];", "misaligned: an access of 8 bytes"),
        ("ld.shared.b32 %r3, [%rd4];", "an access to shared memory with an address of global memory"),
    ],
)
def test_faults(body: str, words: str) -> None:
    with pytest.raises(PtxFault, match=words):
        run(f"\t{body}\n")


def test_what_has_no_value_may_be_read_but_nothing_may_come_of_it() -> None:
    memory, one = TrackedMemory("Y", np.zeros(8, np.uint8), written=False), np.zeros(1, np.int64)
    who = Who(one, one, one)
    memory.store(one, np.full((1, 4), 1, np.uint8), who)
    found, unset = memory.load(one, 8, who)
    assert np.isnan(found.view(np.float32)).tolist() == [[False, True]]
    assert unset is not None and unset.tolist() == [[False] * 4 + [True] * 4]
    assert memory.load(one, 4, who)[1] is None


LOADED = """
	ld.shared.b32 	%r3, [%rd7];
	setp.lt.s32 	%p1, %r1, 0;
	add.s32 	%r4, %r3, 1;
"""


def test_a_value_that_is_not_chosen_need_not_be_set() -> None:
    chosen = LOADED + "\tselp.b32 \t%r4, {}, {}, %p1;\n\tst.global.b32 \t[%rd5], %r4;\n"
    run(chosen.format("%r4", "%r2"))
    with pytest.raises(PtxFault, match="uninitialised: a thread writes to Y"):
        run(chosen.format("%r2", "%r4"))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("st.shared.b32 [%rd7], %r4;\n\tld.shared.b32 %r4, [%rd7];\n\tst.global.b32 [%rd5], %r4;", "writes to Y"),
        ("setp.lt.s32 %p1, %r4, 0;\n\t@%p1 st.global.b32 [%rd5], %r2;", "a condition of"),
        ("setp.lt.s32 %p1, %r4, 0;\n\tselp.b32 %r4, %r1, %r2, %p1;", "a choice of"),
        ("cvt.u64.u32 %rd1, %r4;\n\tst.global.b32 [%rd1], %r2;", "an address of"),
    ],
)
def test_nothing_comes_of_what_has_no_value(body: str, words: str) -> None:
    with pytest.raises(PtxFault, match=f"uninitialised: .*{words}"):
        run(f"{LOADED}\t{body}\n")


def test_a_register_without_a_value_need_not_be_chosen() -> None:
    body = "\tsetp.lt.s32 \t%p1, %r1, 0;\n\tselp.b32 \t%r3, %r4, %r2, %p1;\n\tst.global.b32 \t[%rd5], %r3;\n"
    assert run(body).view(np.float32).tolist() == list(range(32))


def test_a_register_with_a_new_value_is_set() -> None:
    run(LOADED + "\tmov.b32 \t%r4, 1;\n\tst.global.b32 \t[%rd5], %r4;\n")


def test_blocks_race_for_global_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    body = "\tst.global.b32 \t[%rd5], %r2;\n"
    with pytest.raises(PtxFault, match="race: two threads write one element of Y at once"):
        run(body, blocks=2)
    monkeypatch.setattr("searchlab.cuda.ptx_machine.MOST_THREADS", 32)  # one block after the other
    with pytest.raises(PtxFault, match="race: a thread of one block writes what another writes in Y"):
        run(body, blocks=2)


def test_a_divergent_barrier() -> None:
    body = """
	setp.lt.u32 	%p1, %r1, 16;
	@%p1 bra 	$L;
	bar.sync 	0;
$L:
"""
    with pytest.raises(PtxFault, match="divergent barrier"):
        run(body)
    with pytest.raises(PtxFault, match="divergent barrier"):
        run("\tsetp.lt.u32 %p1, %r1, 16;\n\t@%p1 ret;\n\tbar.sync 0;\n")


def test_lanes_exchange_values() -> None:
    body = """
	shfl.sync.bfly.b32 	%r4, %r1, 5, 31, -1;
	st.global.b32 	[%rd5], %r4;
"""
    assert run(body).view(np.int32).tolist() == [n ^ 5 for n in range(32)]


def test_lanes_wait_for_each_other() -> None:
    body = """
	setp.lt.u32 	%p1, %r1, 16;
	@%p1 bra 	$L;
	mul.lo.s32 	%r1, %r1, 3;
$L:
	shfl.sync.bfly.b32 	%r4, %r1, 16, 31, -1;
	st.global.b32 	[%rd5], %r4;
"""
    own = [n if n < 16 else 3 * n for n in range(32)]
    assert run(body).view(np.int32).tolist() == [own[n ^ 16] for n in range(32)]


def test_a_divergent_shuffle() -> None:
    body = """
	setp.lt.u32 	%p1, %r1, 16;
	@%p1 bra 	$L;
	shfl.sync.bfly.b32 	%r4, %r1, 1, 31, -1;
	bra.uni 	$E;
$L:
	bar.sync 	0;
$E:
"""
    with pytest.raises(PtxFault, match="divergent shuffle"):
        run(body)
    with pytest.raises(BuildError, match="does not know this instruction: shfl.sync.idx"):
        run("\tshfl.sync.idx.b32 \t%r4, %r1, 1, 31, -1;\n")


def test_copies_are_complete_after_a_wait() -> None:
    body = """
	cp.async.ca.shared.global 	[%rd7], [%rd4], 4;
	cp.async.wait_all;
	ld.shared.b32 	%r4, [%rd7];
	st.global.b32 	[%rd5], %r4;
"""
    assert run(body).view(np.float32).tolist() == list(range(32))
    with pytest.raises(PtxFault, match="uninitialised"):
        run(body.replace("cp.async.wait_all;", ""))
    with pytest.raises(BuildError, match="does not know this instruction: cp.async.bulk"):
        run("\tcp.async.bulk.commit_group;\n")


def test_threads_part_and_meet_again() -> None:
    body = """
	mov.b32 	%r3, 0;
	mov.b32 	%r4, 0;
$LOOP:
	setp.ge.u32 	%p1, %r4, %r1;
	@%p1 bra 	$DONE;
	add.s32 	%r4, %r4, 1;
	add.s32 	%r3, %r3, %r4;
	bra.uni 	$LOOP;
$DONE:
	bar.sync 	0;
	st.global.b32 	[%rd5], %r3;
"""
    assert run(body).view(np.int32).tolist() == [n * (n + 1) // 2 for n in range(32)]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("shr.s32 %r3, %r1, 1;", lambda n: n // 2),
        ("shl.b32 %r3, %r1, 33;", lambda n: 0),
        ("mad.lo.s32 %r3, %r1, 3, 7;", lambda n: 3 * n + 7),
        ("sub.s32 %r3, 5, %r1;", lambda n: 5 - n),
        ("sub.s32 %r4, 5, %r1; div.s32 %r3, %r4, 3;", lambda n: int((5 - n) / 3)),
        ("sub.s32 %r4, 5, %r1; rem.s32 %r3, %r4, 3;", lambda n: int(np.fmod(5 - n, 3))),
        ("cvt.rn.f32.s32 %r4, %r1; mul.f32 %r5, %r4, 0f3FC00000; cvt.rni.s32.f32 %r3, %r5;", lambda n: round(1.5 * n)),
        ("setp.gt.s32 %p1, %r1, 9; selp.b32 %r3, 1, %r1, %p1;", lambda n: 1 if n > 9 else n),
        ("mov.b32 {%rs1, %rs2}, %r1; mov.b32 %r3, {%rs2, %rs1};", lambda n: n << 16),
        ("cvt.u16.u32 %rs1, %r1; cvt.u32.u16 %r3, %rs1;", lambda n: n),
        ("mul.hi.u32 %r3, %r1, 2147483648;", lambda n: n // 2),
        ("min.s32 %r3, %r1, 4;", lambda n: min(n, 4)),
        ("bfe.u32 %r3, %r1, 1, 2;", lambda n: n >> 1 & 3),
        ("bfe.s32 %r3, %r1, 0, 4;", lambda n: (n & 15) - 16 * (n >> 3 & 1)),
    ],
)  # fmt: skip
def test_instructions(code: str, expected) -> None:  # type: ignore[no-untyped-def]
    lines = "".join(f"\t{part.strip()};\n" for part in code.split(";") if part.strip())
    found = run(f"{lines}\tst.global.b32 \t[%rd5], %r3;\n").view(np.int32)
    assert found.tolist() == [expected(n) for n in range(32)]


def test_unknown_instructions_are_refused() -> None:
    with pytest.raises(BuildError, match="does not know this instruction: ex2.approx.f32"):
        run("\tex2.approx.f32 \t%r3, %r2;\n")
    with pytest.raises(BuildError, match="cannot read this line"):
        read_ptx(_HEAD + "\t{ .reg .b16 x; }\n\tret;\n}\n")
