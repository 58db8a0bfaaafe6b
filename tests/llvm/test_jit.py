"""IR text to object code to addresses: what is computed, what is refused, and that memory comes back."""

import ctypes
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from searchlab.errors import BuildError
from searchlab.llvm import jit
from searchlab.llvm.jit import LoadedObject, assembly, check_runs_here, compile_ir, optimized_ir
from searchlab.targets import Target, detect, parse

ROOT = Path(__file__).resolve().parents[2]
NATIVE = detect()

# A table of constants, calls into the process, and a local variable for SROA to remove.
IR = """
@table = internal constant [4 x i64] [i64 10, i64 20, i64 30, i64 40]
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare ptr @memcpy(ptr, ptr, i64)
define i64 @pick(i64 %i) {
  %slot = alloca i64
  store i64 %i, ptr %slot
  %j = load i64, ptr %slot
  %p = getelementptr i64, ptr @table, i64 %j
  %x = load i64, ptr %p
  ret i64 %x
}
define void @fill(ptr %p, i64 %n) {
  call void @llvm.memset.p0.i64(ptr %p, i8 7, i64 %n, i1 false)
  ret void
}
define ptr @copy(ptr %to, ptr %from, i64 %n) {
  %r = call ptr @memcpy(ptr %to, ptr %from, i64 %n)
  ret ptr %r
}
"""


@pytest.fixture(scope="module")
def code() -> bytes:
    return compile_ir(IR, NATIVE)


def pick(loaded: LoadedObject, index: int) -> int:
    result: int = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(loaded.address("pick"))(index)
    return result


def resident_kb() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4


@pytest.mark.parametrize("level", [0, 1, 2, 3])
@pytest.mark.parametrize("pipeline", [(), jit.PIPELINE, ("O1",), ("O3",)], ids="-".join)
def test_computes(level: int, pipeline: tuple[str, ...]) -> None:
    with LoadedObject(compile_ir(IR, NATIVE, level, pipeline), NATIVE) as loaded:
        assert [pick(loaded, i) for i in range(4)] == [10, 20, 30, 40]


def test_takes_missing_symbols_from_the_process(code: bytes) -> None:
    with LoadedObject(code, NATIVE) as loaded:
        source, copy = ctypes.create_string_buffer(5000), ctypes.create_string_buffer(5000)
        fill = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(loaded.address("fill"))
        move = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(loaded.address("copy"))
        fill(ctypes.addressof(source), 5000)
        move(ctypes.addressof(copy), ctypes.addressof(source), 4999)
        assert copy.raw == b"\x07" * 4999 + b"\0"


def test_every_known_pass_runs() -> None:
    singles = [name for name in jit.known_passes() if name not in ("O1", "O2", "O3")]
    assert "define i64 @pick" in optimized_ir(IR, NATIVE, pipeline=singles)


def test_the_pipeline_cleans_up() -> None:
    assert "alloca" in optimized_ir(IR, NATIVE, pipeline=())
    assert "alloca" not in optimized_ir(IR, NATIVE)


def test_repeated_compilation_gives_the_same_bytes(code: bytes) -> None:
    assert {compile_ir(IR, NATIVE) for _ in range(40)} == {code}


@pytest.mark.parametrize(("name", "register"), [("x86-64-v2", "xmm"), ("x86-64-v3", "ymm"), ("x86-64-v4", "zmm")])
def test_cross_compiles_vectors_of_the_target(name: str, register: str) -> None:
    target = parse(name)
    vector = f"<{target.lanes('float32')} x float>"
    text = assembly(f"define {vector} @f({vector} %a) {{\n %r = fadd {vector} %a, %a\n ret {vector} %r\n}}", target)
    assert f"%{register}0" in text


def test_cross_compiles_for_another_architecture() -> None:
    assert "ldr" in assembly(IR, parse("neoverse-n1"))


@pytest.mark.parametrize(
    ("ir", "message"),
    [
        ("define i32 @f() {\n  ret i32 %nowhere\n}", r"line 2: use of undefined value '%nowhere': ret i32 %nowhere"),
        ("define i32 @f( {", "line 1"),
        ("define i32 @f() {", "line 1"),
        ("define i32 @f() {\n %x = add i32 %y, 1\n br label %b\nb:\n %y = add i32 1, 1\n ret i32 %x\n}", "dominate"),
    ],
)
def test_invalid_ir_names_the_line(ir: str, message: str) -> None:
    with pytest.raises(BuildError, match=message):
        compile_ir(ir, NATIVE)


def test_refuses_unknown_passes_levels_and_triples() -> None:
    with pytest.raises(BuildError, match="unknown pass 'srao'; known: adce"):
        compile_ir(IR, NATIVE, pipeline=("srao",))
    with pytest.raises(BuildError, match="level must be"):
        compile_ir(IR, NATIVE, level=4)
    with pytest.raises(BuildError, match="cannot generate code for"):
        compile_ir(IR, replace(NATIVE, triple="pdp11-dec-unix"))


@pytest.mark.parametrize("junk", [b"", b"not an object", b"\x7fELF" + bytes(64)])
def test_junk_does_not_load(junk: bytes) -> None:
    with pytest.raises(BuildError, match="does not load"):
        LoadedObject(junk, NATIVE)


def test_missing_and_unresolvable_symbols(code: bytes) -> None:
    with LoadedObject(code, NATIVE) as loaded:
        with pytest.raises(BuildError, match="no usable symbol 'absent'"):
            loaded.address("absent")
        assert pick(loaded, 1) == 20
    needy = "declare void @no_such_function()\ndefine void @f() {\n call void @no_such_function()\n ret void\n}"
    with LoadedObject(compile_ir(needy, NATIVE), NATIVE) as loaded, pytest.raises(BuildError, match="does not have"):
        loaded.address("f")


def test_a_closed_object_gives_no_addresses(code: bytes) -> None:
    loaded = LoadedObject(code, NATIVE)
    loaded.address("pick")
    loaded.close()
    loaded.close()
    with pytest.raises(BuildError, match="unloaded"):
        loaded.address("pick")


def lacking_host(*missing: str) -> Target:
    features = ",".join(f for f in NATIVE.features.split(",") if f[1:] not in missing)
    return replace(NATIVE, features=features)


@pytest.mark.skipif(NATIVE.arch != "x86_64", reason="names x86 features")
def test_code_for_a_richer_cpu_is_refused(code: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    check_runs_here(NATIVE)
    check_runs_here(parse("x86-64-v2"))
    monkeypatch.setattr(jit, "detect", lambda: lacking_host("avx512f", "avx2", "clwb"))
    with pytest.raises(BuildError, match="needs .*avx2"):
        LoadedObject(code, parse("x86-64-v3"))
    with pytest.raises(BuildError, match="aarch64"):
        check_runs_here(parse("neoverse-n1"))
    with pytest.raises(BuildError, match="lists no features"):
        check_runs_here(replace(NATIVE, cpu="sapphirerapids", features=""))


@pytest.mark.skipif(NATIVE.arch != "x86_64", reason="names x86 features")
def test_features_no_compiler_uses_unasked_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "detect", lambda: lacking_host("clwb", "invpcid", "sha"))
    check_runs_here(NATIVE)


def test_loading_and_closing_keeps_memory_flat(code: bytes) -> None:
    def cycle(count: int) -> None:
        for _ in range(count):
            with LoadedObject(code, NATIVE) as loaded:
                assert pick(loaded, 3) == 40

    cycle(50)
    before = resident_kb()
    cycle(300)
    assert resident_kb() - before < 1024


def test_dropping_an_object_frees_it(code: bytes) -> None:
    for _ in range(50):
        LoadedObject(code, NATIVE).address("pick")
    before = resident_kb()
    for _ in range(300):
        LoadedObject(code, NATIVE).address("pick")
    assert resident_kb() - before < 1024


def test_compiling_keeps_memory_flat() -> None:
    for _ in range(64):
        compile_ir(IR, NATIVE)
    before = resident_kb()
    for _ in range(300):
        compile_ir(IR, NATIVE)
    assert resident_kb() - before < 1536


def test_objects_load_in_another_process(code: bytes, tmp_path: Path) -> None:
    path = tmp_path / "kernel.o"
    path.write_bytes(code)
    script = (
        "import ctypes, pathlib, sys\n"
        "from searchlab.llvm.jit import LoadedObject\n"
        "from searchlab.targets import detect\n"
        "loaded = LoadedObject(pathlib.Path(sys.argv[1]).read_bytes(), detect())\n"
        "print(ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(loaded.address('pick'))(2))\n"
    )
    command = [sys.executable, "-c", script, str(path)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "30"


def test_threads_compile_and_load_at_once(code: bytes) -> None:
    results: list[tuple[bytes, int]] = []

    def work() -> None:
        for _ in range(10):
            made = compile_ir(IR, NATIVE)
            with LoadedObject(made, NATIVE) as loaded:
                results.append((made, pick(loaded, 0)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [(code, 10)] * 40


def test_kept_code_outlives_its_object(code: bytes) -> None:
    loaded = LoadedObject(code, NATIVE)
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(loaded.address("pick"))
    loaded.keep()
    del loaded
    assert function(1) == 20
