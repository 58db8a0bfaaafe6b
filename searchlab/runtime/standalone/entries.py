"""The entry points of an exported kernel, and the start of its thread pool, as LLVM IR.

int      NAME(inputs and outputs)                              allocates the scratch memory it needs; 0: done
void     NAME_with(inputs and outputs, void *scratch, threads) takes scratch from the caller
int64_t  NAME_scratch(int64_t threads)                         its size in bytes
void     NAME_pack_X(const T *X, U *packed)                    packs the input X into the layout of the kernel
"""

from __future__ import annotations

from collections.abc import Sequence

from searchlab.llvm import abi

KERNEL, POOL, PACK = "kernel", "pool", "pack"  # the prefixes of the renamed symbols of each module
_KERNEL = f"@{KERNEL}.{abi.ENTRY}"


def entry_points(
    name: str, buffers: int, shared: int, stride: int, threads: int, parallel: bool, entry: str = ""
) -> str:
    """The entry points of a kernel with this number of buffers; `shared` and `stride` are bytes of scratch memory.

    With `entry` the first of them has this name instead, for another function to call.
    """
    passed = ", ".join(f"ptr %x{n}" for n in range(buffers))
    total = shared + stride * threads
    return "\n".join(
        [
            _with(name, buffers, passed, shared, stride, parallel),
            f"define i64 @{name}_scratch(i64 %threads) nounwind {{",
            f"  %private = mul i64 %threads, {stride}",
            f"  %all = add i64 %private, {shared}",
            "  ret i64 %all",
            "}",
            _allocating(name, passed, total, threads, entry) if total else _plain(name, passed, threads, entry),
        ]
    )


def _with(name: str, buffers: int, passed: str, shared: int, stride: int, parallel: bool) -> str:
    lines = [f"define void @{name}_with({passed}, ptr %scratch, i64 %threads) nounwind {{"]
    lines.append(f"  %arguments = alloca [{buffers} x ptr], align 8")
    for n in range(buffers):
        lines.append(f"  %p{n} = getelementptr ptr, ptr %arguments, i64 {n}")
        lines.append(f"  store ptr %x{n}, ptr %p{n}")
    pool = f"@{POOL}.parallel_for" if parallel else "null"
    lines += [
        f"  %private = getelementptr i8, ptr %scratch, i64 {shared}",
        f"  {abi.call(_KERNEL, '%arguments', 'null', '%scratch', '%private', str(stride), pool, '%threads')}",
        "  ret void",
        "}",
    ]
    return "\n".join(lines)


def _named(name: str, entry: str) -> str:
    return f"internal i32 @{entry}" if entry else f"i32 @{name}"


def _plain(name: str, passed: str, threads: int, entry: str) -> str:
    return "\n".join(
        [
            f"define {_named(name, entry)}({passed}) nounwind {{",
            f"  call void @{name}_with({passed}, ptr null, i64 {threads})",
            "  ret i32 0",
            "}",
        ]
    )


def _allocating(name: str, passed: str, total: int, threads: int, entry: str) -> str:
    return "\n".join(
        [
            "declare i32 @posix_memalign(ptr, i64, i64)",
            "declare void @free(ptr)",
            f"define {_named(name, entry)}({passed}) nounwind {{",
            "entry:",
            "  %place = alloca ptr, align 8",
            f"  %failed = call i32 @posix_memalign(ptr %place, i64 {abi.LINE}, i64 {total})",
            "  %ok = icmp eq i32 %failed, 0",
            "  br i1 %ok, label %run, label %out",
            "run:",
            "  %scratch = load ptr, ptr %place",
            f"  call void @{name}_with({passed}, ptr %scratch, i64 {threads})",
            "  call void @free(ptr %scratch)",
            "  br label %out",
            "out:",
            "  ret i32 %failed",
            "}",
        ]
    )


def packing_entry(name: str, buffer: str) -> str:
    """The function that packs one input."""
    # No sizes, no scratch memory, one thread.
    pack = abi.call(f"@{PACK}.{buffer}.{abi.ENTRY}", "%arguments", "null", "null", "null", "0", "null", "1")
    return "\n".join(
        [
            f"define void @{name}_pack_{buffer}(ptr %source, ptr %packed) nounwind {{",
            "  %arguments = alloca [2 x ptr], align 8",
            "  %second = getelementptr ptr, ptr %arguments, i64 1",
            "  store ptr %source, ptr %arguments",
            "  store ptr %packed, ptr %second",
            f"  {pack}",
            "  ret void",
            "}",
        ]
    )


# How many iterations workers spin before they sleep depends on the CPU, so the loop is timed when the code is loaded:
# the fastest of five trials of 500 iterations.  The child of a fork has no workers; if the C library supports
# fork handlers, the pool is restarted there, otherwise the child's loops run in one thread.
_SETUP = """
%time = type { i64, i64 }
declare i32 @clock_gettime(i32, ptr)
define internal i64 @pool.now() nounwind {
  %t = alloca %time, align 8
  %failed = call i32 @clock_gettime(i32 1, ptr %t)
  %fraction.p = getelementptr %time, ptr %t, i64 0, i32 1
  %whole = load i64, ptr %t
  %fraction = load i64, ptr %fraction.p
  %scaled = mul i64 %whole, 1000000000
  %all = add i64 %scaled, %fraction
  ret i64 %all
}
define internal void @pool.again() nounwind {
  %spins = load i64, ptr @pool.spins
  call void @pool.pool_reset(i64 %spins)
  ret void
}
define void @NAME_setup() nounwind {
entry:
  br label %trial
trial:
  %n = phi i64 [ 0, %entry ], [ %n1, %trial ]
  %least = phi i64 [ 1000000000, %entry ], [ %less, %trial ]
  %begin = call i64 @pool.now()
  call void @pool.pool_spin(i64 500)
  %end = call i64 @pool.now()
  %took = sub i64 %end, %begin
  %shorter = icmp slt i64 %took, %least
  %less = select i1 %shorter, i64 %took, i64 %least
  %n1 = add i64 %n, 1
  %more = icmp slt i64 %n1, 5
  br i1 %more, label %trial, label %known
known:
  %some = icmp sgt i64 %less, 0
  %safe = select i1 %some, i64 %less, i64 1
  %wanted = mul i64 500, SPIN_NS
  %turns = sdiv i64 %wanted, %safe
  %any = icmp sgt i64 %turns, 0
  %spins = select i1 %any, i64 %turns, i64 1
  call void @pool.pool_reset(i64 %spins)
FORK
  ret void
}
"""
_FORK = """  %can = icmp ne ptr @__register_atfork, null
  br i1 %can, label %tell, label %done
tell:
  %r = call i32 @__register_atfork(ptr null, ptr null, ptr @pool.again, ptr null)
  br label %done
done:"""


def pool_setup(name: str, spin_seconds: float, linux: bool) -> str:
    """The function NAME_setup, which runs once when a parallel kernel is loaded."""
    text = _SETUP.replace("FORK", _FORK if linux else "").replace("NAME", name)
    weak = "declare extern_weak i32 @__register_atfork(ptr, ptr, ptr, ptr)\n" if linux else ""
    return weak + text.replace("SPIN_NS", str(round(spin_seconds * 1e9)))


def at_loading(functions: Sequence[str]) -> str:
    """The list of functions that run when the code is loaded."""
    rows = ", ".join(f"%ctor {{ i32 65535, ptr @{f}, ptr null }}" for f in functions)
    return (
        f"%ctor = type {{ i32, ptr, ptr }}\n@llvm.global_ctors = appending global [{len(functions)} x %ctor] [{rows}]"
    )
