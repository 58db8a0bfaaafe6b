"""The assembler: what it says of kernels, what it refuses, and where it is looked for."""

from pathlib import Path

import pytest

from searchlab.cuda import ptxas
from searchlab.cuda.ptxas import assemble, find_ptxas
from searchlab.errors import BuildError

needs_ptxas = pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed")

KERNEL = """
.version 7.8
.target sm_75
.address_size 64
.visible .entry k(.param .u64 a)
.maxntid 32
{
	.reg .b32 	%r<4>;
	.reg .b64 	%rd<4>;
	.shared .align 16 .b8 s[128];
	ld.param.b64 	%rd1, [a];
	mov.u32 	%r1, %tid.x;
	mul.wide.u32 	%rd2, %r1, 4;
	mov.b64 	%rd3, s;
	add.s64 	%rd3, %rd3, %rd2;
	st.shared.b32 	[%rd3], %r1;
	bar.sync 	0;
	ld.shared.b32 	%r2, [s];
	st.global.b32 	[%rd1], %r2;
	ret;
}
"""


@needs_ptxas
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90"])
def test_what_a_kernel_needs(arch: str) -> None:
    made = assemble(KERNEL, arch)
    assert (made.entry, made.arch, made.shared, made.barriers, made.spills) == ("k", arch, 128, 1, 0)
    assert 0 < made.registers <= 32
    assert made.cubin[:4] == b"\x7fELF"


@needs_ptxas
def test_errors_name_the_line() -> None:
    with pytest.raises(BuildError, match=r"ptxas refuses the kernel for sm_80: .*\(line \d+: bar.synch 0;\)"):
        assemble(KERNEL.replace("bar.sync \t0", "bar.synch 0"), "sm_80")
    with pytest.raises(BuildError, match="ptxas refuses the kernel for sm_75: SM version"):
        assemble(KERNEL.replace("sm_75", "sm_80"), "sm_75")
    with pytest.raises(BuildError, match="a PTX module with one kernel is needed, this one has 2: .*k2"):
        assemble(KERNEL + KERNEL[KERNEL.index(".visible") :].replace("entry k(", "entry k2("), "sm_80")


def test_where_it_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(ptxas, "find_spec", lambda name: None)
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    assert find_ptxas() is None
    with pytest.raises(BuildError, match="ptxas is not found: install the CUDA toolkit"):
        assemble(KERNEL, "sm_80")
    tool = tmp_path / "bin" / "ptxas"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert find_ptxas() == tool
