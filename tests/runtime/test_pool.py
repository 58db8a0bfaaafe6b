"""The thread pool under stress: every index exactly once, whoever calls, however often, in forks and at exit too."""

import ctypes
import os
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from searchlab.lab.records import identity
from searchlab.llvm.jit import LoadedObject, assembly, compile_ir
from searchlab.runtime.threadpool import parallel_for_address, pool_ir
from searchlab.targets import detect, parse

ROOT = Path(__file__).resolve().parents[2]
SLOTS = 64
LONGEST = 64

# A context holds: parallel_for, threads, errors, what to write, calls that were not the caller's own, a flag per slot,
# and two cells per index: how often it ran, and (written without atomics, so that only the pool can make it visible)
# what the loop had to write there. `stress` draws n and threads from a generator, runs a loop, checks and clears the
# cells, and returns the errors.
IR = """
%context = type { ptr, i64, i64, i64, i64, [SLOTS x i64], [LONGEST x i64], [LONGEST x i64] }
declare i32 @usleep(i32)

define void @touch(i64 %begin, i64 %end, i64 %slot, ptr %c) {
entry:
  %threads.p = getelementptr %context, ptr %c, i64 0, i32 1
  %errors = getelementptr %context, ptr %c, i64 0, i32 2
  %value.p = getelementptr %context, ptr %c, i64 0, i32 3
  %flag = getelementptr %context, ptr %c, i64 0, i32 5, i64 %slot
  %threads = load i64, ptr %threads.p
  %value = load i64, ptr %value.p
  %before = atomicrmw add ptr %flag, i64 1 seq_cst
  %shared = icmp ne i64 %before, 0
  %foreign = icmp uge i64 %slot, %threads
  %empty = icmp sge i64 %begin, %end
  %bad1 = or i1 %shared, %foreign
  %bad2 = or i1 %bad1, %empty
  %bad = zext i1 %bad2 to i64
  %e = atomicrmw add ptr %errors, i64 %bad seq_cst
  %helped = getelementptr %context, ptr %c, i64 0, i32 4
  %helper = icmp ne i64 %slot, 0
  %help = zext i1 %helper to i64
  %h = atomicrmw add ptr %helped, i64 %help seq_cst
  br label %loop
loop:
  %i = phi i64 [%begin, %entry], [%next, %loop]
  %cell = getelementptr %context, ptr %c, i64 0, i32 6, i64 %i
  %data = getelementptr %context, ptr %c, i64 0, i32 7, i64 %i
  %old = atomicrmw add ptr %cell, i64 1 monotonic
  store i64 %value, ptr %data
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %out
out:
  %after = atomicrmw sub ptr %flag, i64 1 seq_cst
  ret void
}

; The caller is slow, so that others get work; they are slower still, so that it has to wait and falls asleep.
define void @dawdle(i64 %begin, i64 %end, i64 %slot, ptr %c) {
  %caller = icmp eq i64 %slot, 0
  %duration = select i1 %caller, i32 100, i32 4000
  %r = call i32 @usleep(i32 %duration)
  call void @touch(i64 %begin, i64 %end, i64 %slot, ptr %c)
  ret void
}

; A loop inside the loop, over the same indices, from a context of its own.
define void @nest(i64 %begin, i64 %end, i64 %slot, ptr %c) {
entry:
  %inner = alloca %context
  call void @llvm.memset.p0.i64(ptr %inner, i8 0, i64 SIZE, i1 false)
  %pf = load ptr, ptr %c
  %threads.p = getelementptr %context, ptr %inner, i64 0, i32 1
  store i64 4, ptr %threads.p
  %n = sub i64 %end, %begin
  call void %pf(ptr @touch, ptr %inner, i64 %n, i64 4)
  %e = call i64 @check(ptr %inner, i64 %n, i64 0)
  %errors = getelementptr %context, ptr %c, i64 0, i32 2
  %x = atomicrmw add ptr %errors, i64 %e seq_cst
  call void @touch(i64 %begin, i64 %end, i64 %slot, ptr %c)
  ret void
}
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

; Waits (for long, but not for ever) until as many calls have arrived as there are indices.
define void @meet(i64 %begin, i64 %end, i64 %slot, ptr %c) {
entry:
  %cell = getelementptr %context, ptr %c, i64 0, i32 6, i64 0
  %arrived = atomicrmw add ptr %cell, i64 1 seq_cst
  %n.p = getelementptr %context, ptr %c, i64 0, i32 3
  %n = load i64, ptr %n.p
  br label %wait
wait:
  %i = phi i64 [0, %entry], [%i1, %again]
  %seen = load atomic i64, ptr %cell seq_cst, align 8
  %all = icmp eq i64 %seen, %n
  br i1 %all, label %out, label %count
count:
  %i1 = add i64 %i, 1
  %late = icmp sgt i64 %i1, 20000
  br i1 %late, label %alone, label %again
again:
  %r = call i32 @usleep(i32 100)
  br label %wait
alone:
  %errors = getelementptr %context, ptr %c, i64 0, i32 2
  %e = atomicrmw add ptr %errors, i64 1 seq_cst
  br label %out
out:
  ret void
}

define internal i64 @check(ptr %c, i64 %n, i64 %value) {
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %e = phi i64 [0, %entry], [%e1, %loop]
  %cell = getelementptr %context, ptr %c, i64 0, i32 6, i64 %i
  %data = getelementptr %context, ptr %c, i64 0, i32 7, i64 %i
  %runs = load i64, ptr %cell
  %written = load i64, ptr %data
  %inside = icmp slt i64 %i, %n
  %want = zext i1 %inside to i64
  %wrong1 = icmp ne i64 %runs, %want
  %other = icmp ne i64 %written, %value
  %wrong2 = and i1 %inside, %other
  %wrong = or i1 %wrong1, %wrong2
  %one = zext i1 %wrong to i64
  %e1 = add i64 %e, %one
  store i64 0, ptr %cell
  store i64 -1, ptr %data
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, LONGEST
  br i1 %more, label %loop, label %out
out:
  %errors = getelementptr %context, ptr %c, i64 0, i32 2
  %inner = load i64, ptr %errors
  store i64 0, ptr %errors
  %sum = add i64 %e1, %inner
  ret i64 %sum
}

define i64 @stress(ptr %fn, ptr %c, i64 %loops, i64 %most, ptr %pf) {
entry:
  store ptr %pf, ptr %c
  %threads.p = getelementptr %context, ptr %c, i64 0, i32 1
  %value.p = getelementptr %context, ptr %c, i64 0, i32 3
  br label %loop
loop:
  %k = phi i64 [0, %entry], [%k1, %loop]
  %x = phi i64 [88172645463325252, %entry], [%x1, %loop]
  %e = phi i64 [0, %entry], [%e1, %loop]
  %m = mul i64 %x, 6364136223846793005
  %x1 = add i64 %m, 1442695040888963407
  %high = lshr i64 %x1, 33
  %n = urem i64 %high, LONGEST
  %higher = lshr i64 %x1, 45
  %t = urem i64 %higher, %most
  %threads = add i64 %t, 1
  store i64 %threads, ptr %threads.p
  store i64 %k, ptr %value.p
  call void %pf(ptr %fn, ptr %c, i64 %n, i64 %threads)
  %wrong = call i64 @check(ptr %c, i64 %n, i64 %k)
  %e1 = add i64 %e, %wrong
  %k1 = add i64 %k, 1
  %more = icmp slt i64 %k1, %loops
  br i1 %more, label %loop, label %out
out:
  ret i64 %e1
}
"""


class Context(ctypes.Structure):
    _fields_ = [
        ("parallel_for", ctypes.c_void_p),
        ("threads", ctypes.c_int64),
        ("errors", ctypes.c_int64),
        ("value", ctypes.c_int64),
        ("helped", ctypes.c_int64),
        ("flags", ctypes.c_int64 * SLOTS),
        ("runs", ctypes.c_int64 * LONGEST),
        ("data", ctypes.c_int64 * LONGEST),
    ]


@cache
def code() -> LoadedObject:
    text = IR
    for name, value in {"SLOTS": SLOTS, "LONGEST": LONGEST, "SIZE": ctypes.sizeof(Context)}.items():
        text = text.replace(name, str(value))
    return LoadedObject(compile_ir(text, detect()), detect())


def parallel_for(threads: int) -> Callable[..., None]:
    signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    return signature(parallel_for_address(threads))


def stress(body: str, loops: int, threads: int, helped: bool = False) -> int:
    """Runs loops over 0 to LONGEST - 1 indices on 1 to `threads` threads; the number of things that went wrong.

    With `helped`, a pool in which only the caller ever works is wrong, too.
    """
    context = Context()
    signature = ctypes.CFUNCTYPE(
        ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
    )
    run = signature(code().address("stress"))
    address = code().address(body)
    errors: int = run(address, ctypes.addressof(context), loops, threads, parallel_for_address(threads))
    return errors + int(helped and context.helped == 0)


def test_the_check_itself_sees_errors() -> None:
    """Contexts of two concurrent loops mixed up, or an index left out, would be counted."""
    context = Context(threads=1)
    signature = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    body = signature(code().address("touch"))
    body(0, 3, 0, ctypes.addressof(context))
    assert list(context.runs[:4]) == [1, 1, 1, 0] and context.errors == 0
    body(2, 2, 1, ctypes.addressof(context))
    assert context.errors == 1


def test_every_index_exactly_once() -> None:
    assert stress("touch", 200_000, 4, helped=True) == 0


def test_more_threads_than_cores() -> None:
    assert stress("touch", 3_000, 16) == 0


def test_loops_inside_loops() -> None:
    assert stress("nest", 5_000, 4) == 0


def test_callers_at_once() -> None:
    results: list[int] = []
    threads = [threading.Thread(target=lambda: results.append(stress("touch", 20_000, 3))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [0] * 4


def test_a_caller_that_waits_long() -> None:
    assert stress("dawdle", 50, 3, helped=True) == 0


def test_workers_that_fell_asleep_are_woken() -> None:
    for _ in range(100):
        time.sleep(0.001)
        assert stress("touch", 2, 3) == 0


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_run_at_the_same_time(threads: int) -> None:
    context = Context(threads=threads, value=threads)
    parallel_for(threads)(code().address("meet"), ctypes.addressof(context), threads, threads)
    assert context.errors == 0


@pytest.mark.parametrize(("n", "threads"), [(0, 4), (-5, 4), (0, 1), (5, 0), (5, -3), (1, 4), (LONGEST, 1)])
def test_degenerate_loops(n: int, threads: int) -> None:
    context = Context(threads=1)
    parallel_for(max(threads, 1))(code().address("touch"), ctypes.addressof(context), n, threads)
    assert list(context.runs) == [1] * max(n, 0) + [0] * (LONGEST - max(n, 0))
    assert context.errors == 0


def test_the_address_does_not_change() -> None:
    assert parallel_for_address(1) == parallel_for_address(3) == parallel_for_address(2)


def in_child(work: Callable[[], int]) -> int:
    """What `work` returns in a forked child; -signal if it died, -1 if it took a minute."""
    child = os.fork()
    if child == 0:
        result = 99
        try:
            result = min(work(), 98)
        finally:
            os._exit(result)
    for _ in range(6000):
        finished, status = os.waitpid(child, os.WNOHANG)
        if finished:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return -1


def test_a_forked_child_starts_its_own_workers() -> None:
    assert stress("touch", 1000, 3) == 0

    def meet() -> int:
        context = Context(threads=2, value=2)
        parallel_for(2)(code().address("meet"), ctypes.addressof(context), 2, 2)
        return int(context.errors) + stress("touch", 2000, 4) + in_child(lambda: stress("touch", 2000, 4))

    assert in_child(meet) == 0
    assert stress("touch", 1000, 4) == 0


def test_fork_during_a_loop() -> None:
    assert stress("touch", 1000, 3) == 0
    results: list[int] = []
    caller = threading.Thread(target=lambda: results.append(stress("dawdle", 40, 3)))
    caller.start()
    while caller.is_alive():
        assert in_child(lambda: stress("touch", 200, 3)) == 0
    caller.join()
    assert results == [0]


SCRIPT = """
import ctypes, time
from searchlab.runtime.threadpool import parallel_for_address
body = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
signature = ctypes.CFUNCTYPE(None, body, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
seen = []
take = body(lambda begin, end, slot, context: seen.extend(range(begin, end)))
signature(parallel_for_address(THREADS))(take, None, 1000, THREADS)
time.sleep(PAUSE)
assert sorted(seen) == list(range(1000))
"""


@pytest.mark.parametrize(("threads", "pause"), [(3, 0), (3, 0.01), (10**9, 0)], ids=["spinning", "asleep", "too-many"])
def test_exit_does_not_hang(threads: int, pause: float) -> None:
    """With bodies in Python, and (far too many threads being asked for) as many workers as there may be."""
    script = SCRIPT.replace("THREADS", str(threads)).replace("PAUSE", str(pause))
    run = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stderr) == (0, "")


def test_its_source_is_installed_and_counts_as_source_of_the_toolchain(tmp_path: Path) -> None:
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["searchlab"]
    files = [path.relative_to(ROOT / "searchlab") for path in (ROOT / "searchlab").rglob("*.ll")]
    assert files and all(any(path.match(pattern) for pattern in patterns) for path in files)
    (tmp_path / "pool.ll").write_text("; one")
    one = identity._sources(tmp_path)
    (tmp_path / "pool.ll").write_text("; two")
    assert identity._sources(tmp_path) != one


def test_compiles_for_other_systems() -> None:
    arm = parse("neoverse-n1")
    assert "yield" in assembly(pool_ir(arm), arm)
    mac = replace(parse("apple-m1"), triple="arm64-apple-macosx14.0")
    text = assembly(pool_ir(mac), mac)
    assert "_parallel_for:" in text and "sched_getcpu" not in text
