"""From LLVM IR text to object code to callable addresses, through llvmlite.

Object code is plain bytes: it can be kept, sent to another process, and loaded there in about a millisecond.
"""

from __future__ import annotations

import itertools
import re
import weakref
from collections.abc import Sequence
from functools import cache, lru_cache
from types import TracebackType
from typing import Any, Protocol

from searchlab.errors import BuildError
from searchlab.targets import CAP, CpuTarget, cap, detect

# Loops, vectors and unrolling are decided before IR is emitted, so LLVM only has to clean up. (Not newgvn: it
# finds next to nothing more, and in LLVM 22 fails an assertion on some kernels, which ends the process.)
PIPELINE: tuple[str, ...] = ("sroa", "instcombine", "simplifycfg")

# Our names are those of LLVM's `opt`; "O1" to "O3" stand alone and mean LLVM's default pipelines.
_PASSES = {
    "adce": "add_aggressive_dce_pass",
    "aggressive-instcombine": "add_aggressive_instcombine_pass",
    "always-inline": "add_always_inliner_pass",
    "constmerge": "add_constant_merge_pass",
    "dce": "add_dead_code_elimination_pass",
    "dse": "add_dead_store_elimination_pass",
    "globaldce": "add_global_dead_code_eliminate_pass",
    "globalopt": "add_global_opt_pass",
    "instcombine": "add_instruction_combine_pass",
    "ipsccp": "add_ipsccp_pass",
    "jump-threading": "add_jump_threading_pass",
    "lcssa": "add_lcssa_pass",
    "loop-deletion": "add_loop_deletion_pass",
    "loop-reduce": "add_loop_strength_reduce_pass",
    "loop-rotate": "add_loop_rotate_pass",
    "loop-simplify": "add_loop_simplify_pass",
    "loop-unroll": "add_loop_unroll_pass",
    "memcpyopt": "add_mem_copy_opt_pass",
    "newgvn": "add_new_gvn_pass",
    "reassociate": "add_reassociate_pass",
    "sccp": "add_sccp_pass",
    "simplifycfg": "add_simplify_cfg_pass",
    "sink": "add_sinking_pass",
    "sroa": "add_sroa_pass",
    "tailcallelim": "add_tail_call_elimination_pass",
}
_DEFAULT_PIPELINES = {"O1": 1, "O2": 2, "O3": 3}

# Instructions LLVM emits only when asked by name (system, cache control, transactions, cryptography): code made where
# they exist runs where they do not. Virtual machines often hide them, so requiring them would refuse valid code.
_NEVER_IMPLICIT = frozenset(
    (
        *("aes", "cldemote", "clflushopt", "clwb", "clzero", "enqcmd", "fsgsbase", "gfni", "hreset", "invpcid", "kl"),
        *("lwp", "movdir64b", "movdiri", "mwaitx", "pclmul", "pconfig", "pku", "prfchw", "ptwrite", "rdpid", "rdpru"),
        *("rdrnd", "rdseed", "rtm", "serialize", "sgx", "sha", "shstk", "tsxldtrk", "uintr", "vaes", "vpclmulqdq"),
        *("waitpkg", "wbnoinvd", "widekl", "xsave", "xsavec", "xsaveopt", "xsaves"),
    )
)
_RUNS_ANYWHERE = ("", "generic", "x86-64")
_LIBRARY = "kernel"
_RUNS_PER_BUILDER = 32
_runs = itertools.count()


class LlvmTarget(Protocol):
    """A machine as LLVM names it."""

    @property
    def triple(self) -> str:
        """The platform."""

    @property
    def cpu(self) -> str:
        """The processor."""

    @property
    def features(self) -> str:
        """What it has, with plus signs."""


def compile_ir(ir: str, target: CpuTarget, level: int = 2, pipeline: Sequence[str] = PIPELINE) -> bytes:
    """Object code of the module `ir`, optimised by `pipeline`; `level` (0-3) is the effort of code generation."""
    machine = _machine(target.triple, target.cpu, target.features, level)
    module = _optimized(ir, machine, pipeline)
    return bytes(machine.emit_object(module))


def optimized_ir(ir: str, target: LlvmTarget, level: int = 2, pipeline: Sequence[str] = PIPELINE) -> str:
    """The module after `pipeline`, as text."""
    return str(_optimized(ir, _machine(target.triple, target.cpu, target.features, level), pipeline))


def assembly(ir: str, target: LlvmTarget, level: int = 2, pipeline: Sequence[str] = PIPELINE) -> str:
    """The machine code `compile_ir` would give, as text."""
    machine = _machine(target.triple, target.cpu, target.features, level)
    return str(machine.emit_assembly(_optimized(ir, machine, pipeline)))


def known_passes() -> tuple[str, ...]:
    """The pass names that a pipeline may contain."""
    return (*_DEFAULT_PIPELINES, *_PASSES)


def check_runs_here(target: CpuTarget) -> None:
    """Raise `BuildError` unless this CPU has every feature that code for `target` may use."""
    host = detect()
    if target.arch != host.arch:
        raise BuildError(f"code for {target.cpu} is {target.arch} code, this machine is {host.arch}")
    needed = target.enabled_features() - _NEVER_IMPLICIT
    if not needed and target.cpu not in (*_RUNS_ANYWHERE, host.cpu):
        raise BuildError(f"cannot tell whether code for {target.cpu} runs here: its target lists no features")
    if missing := needed - host.enabled_features():
        capped = f" ({CAP} says so)" if cap() else ""
        needs = ", ".join(sorted(missing))
        raise BuildError(f"code for {target.cpu} needs {needs}, which this {host.cpu} lacks{capped}")


class LoadedObject:
    """Object code made executable in this process; its addresses are valid until `close` or garbage collection.

    Undefined symbols (`memset`, `pthread_create`, ...) are resolved in the process.
    """

    def __init__(self, code: bytes, target: CpuTarget) -> None:
        check_runs_here(target)
        if "amx-tile" in target.enabled_features():
            _ask_for_tiles()
        llvm = _llvm()
        # One linker per object: a shared one keeps about 10 kB for every library it ever held.
        self._jit = llvm.create_lljit_compiler(use_jit_link=True, suppress_errors=True)
        builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        try:
            library = builder.link(self._jit, _LIBRARY)
        except RuntimeError as error:
            raise BuildError(f"object code does not load: {error}") from None
        self._addresses: dict[str, int] = {}
        # Closing any one of these references unloads the library, so all are kept until the end.
        self._references = [library]
        self._finalizer = weakref.finalize(self, _release, self._references, self._jit)
        # At exit the system frees everything, and threads may still be inside the code.
        self._finalizer.atexit = False

    def address(self, symbol: str) -> int:
        """The address of the function or variable `symbol`."""
        if not self._finalizer.alive:
            raise BuildError(f"{symbol}: the object code was unloaded")
        if symbol not in self._addresses:
            try:
                found = self._jit.lookup(_LIBRARY, symbol)
            except RuntimeError as error:
                hint = "" if "not found" in str(error) else " (it may use a symbol this process does not have)"
                raise BuildError(f"object code has no usable symbol {symbol!r}: {error}{hint}") from None
            self._references.append(found)
            self._addresses[symbol] = found[symbol]
        return self._addresses[symbol]

    def close(self) -> None:
        """Free the memory; functions obtained from `address` must not be called afterwards."""
        self._finalizer()

    def keep(self) -> None:
        """Leave the code in memory until the process ends, whatever happens to this object."""
        self._finalizer.detach()
        for reference in (*self._references, self._jit):
            reference.detach()

    def __enter__(self) -> LoadedObject:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


@cache
def _ask_for_tiles() -> None:
    """Asks Linux to let this process use AMX tiles, which it keeps in memory only for those that have asked."""
    import ctypes

    arch_prctl, request, tile_data = 158, 0x1023, 18  # a refusal shows when code uses tiles, not before
    ctypes.CDLL(None, use_errno=True).syscall(arch_prctl, request, tile_data)


def _release(references: list[Any], jit: Any) -> None:
    for reference in (*references, jit):
        reference.close()


@cache
def _llvm() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()
    # Index arithmetic is hoisted before IR is emitted. LLVM's loop strength reduction took two thirds of the time of
    # code generation on unrolled kernels, doubled their code, and gained nothing beyond noise. (For the whole process.)
    llvm.set_option("searchlab", "-disable-lsr")
    return llvm


@cache
def _machine(triple: str, cpu: str, features: str, level: int) -> Any:
    # Shared by all threads: llvmlite lets one thread at a time into LLVM.
    llvm = _llvm()
    if level not in range(4):
        raise BuildError(f"code generation level must be 0, 1, 2 or 3, got {level}")
    try:
        # Position-independent code of the small model reaches constants by one instruction; the large model needs two.
        return llvm.Target.from_triple(triple).create_target_machine(
            cpu=cpu, features=features, opt=level, reloc="pic", codemodel="small", jit=True
        )
    except RuntimeError as error:
        raise BuildError(f"LLVM cannot generate code for {cpu} ({triple}): {error}") from None


def _optimized(ir: str, machine: Any, pipeline: Sequence[str]) -> Any:
    module = _parse(ir)
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    _run_passes(module, machine, tuple(pipeline))
    return module


def _parse(ir: str) -> Any:
    llvm = _llvm()
    try:
        module = llvm.parse_assembly(ir, llvm.create_context())
        # The parser accepts values used before they are defined; code generation would crash on them.
        module.verify()
    except RuntimeError as error:
        raise BuildError(_explain(str(error), ir)) from None
    return module


def _explain(message: str, ir: str) -> str:
    match = re.search(r"<string>:(\d+):\d+: error: (.*)", message)
    if match is None:
        return f"invalid LLVM IR: {' '.join(message.split())}"
    number = int(match[1])
    lines = ir.splitlines()
    source = lines[number - 1].strip() if number <= len(lines) else "end of text"
    return f"invalid LLVM IR, line {number}: {match[2]}: {source}"


def _run_passes(module: Any, machine: Any, pipeline: tuple[str, ...]) -> None:
    if len(pipeline) == 1 and pipeline[0] in _DEFAULT_PIPELINES:
        builder = _builder(machine, _DEFAULT_PIPELINES[pipeline[0]])
        manager = builder.getModulePassManager()
    else:
        manager, builder = _passes(machine, pipeline, next(_runs) // _RUNS_PER_BUILDER)
    manager.run(module, builder)


@lru_cache(maxsize=8)
def _passes(machine: Any, pipeline: tuple[str, ...], epoch: int) -> tuple[Any, Any]:
    # Each new pair leaks about 5 kB inside llvmlite, each run slows its pair down a little, so `epoch` renews it.
    manager = _llvm().create_new_module_pass_manager()
    for name in pipeline:
        if name not in _PASSES:
            raise BuildError(f"unknown pass {name!r}; known: {', '.join(_PASSES)}; alone: O1, O2, O3")
        getattr(manager, _PASSES[name])()
    return manager, _builder(machine, 2)


def _builder(machine: Any, speed_level: int) -> Any:
    llvm = _llvm()
    return llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=speed_level))
