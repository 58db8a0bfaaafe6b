"""A program for NVIDIA GPUs as files: PTX, machine code where ptxas is found, a launcher in C++, facts for a loader."""

from __future__ import annotations

from typing import Any

from searchlab.backend import Argument, Package
from searchlab.cuda.cuda_kernel import CudaArtifact, shape_of, size_of
from searchlab.cuda.kernel_use import checked_use, use_notes
from searchlab.cuda.ptx_module import PtxKernel
from searchlab.cuda.ptxas import assemble, find_ptxas
from searchlab.dtype import DTYPES
from searchlab.errors import ExportError
from searchlab.ir.stmt import Buffer

_PTX, _CUBIN, HEADER = "kernel{}.ptx", "kernel{}.cubin", "kernel.hpp"


def cuda_package(name: str, artifact: CudaArtifact, title: str) -> Package:
    """The files of a program, and how its kernels are launched."""
    if artifact.layouts:
        packed = ", ".join(la.buffer for la in artifact.layouts)
        raise ExportError(f"{artifact.name}: exports for GPUs take inputs as they are, the schedule packs {packed}")
    files: dict[str, str | bytes] = {_PTX.format(n): k.text for n, k in enumerate(artifact.kernels)}
    uses, missing = [], "ptxas is not found, so the driver assembles the PTX when it is loaded"
    if find_ptxas() is not None:
        missing = ""
        for n, kernel in enumerate(artifact.kernels):
            made = assemble(kernel.text, artifact.target.arch)
            files[_CUBIN.format(n)] = made.cubin
            uses.append(checked_use(kernel, artifact.target, made.registers, made.spills))
    files[HEADER] = launcher_header(name, artifact, title)
    described: dict[str, Any] = {
        "kernels": [_described(n, k) for n, k in enumerate(artifact.kernels)],
        "scratch": [size_of(b) for b in artifact.scratch],
        "arch": artifact.target.arch,
        "code": use_notes(uses),
    }
    arrays = [Argument(b.name, b.dtype, shape_of(b)) for b in (*artifact.inputs, *artifact.outputs)]
    count = len(artifact.inputs)
    about = {
        "kernel.py": "loader for Python: needs numpy and pycuda",
        HEADER: "launcher for C++: needs cuda.h and libcuda, no CUDA compiler",
        "kernel*.ptx": f"the kernels as PTX, which drivers assemble for {artifact.target.arch} and newer",
        **({} if missing else {"kernel*.cubin": f"the same as machine code for {artifact.target.arch}"}),
    }
    inputs, outputs = tuple(arrays[:count]), tuple(arrays[count:])
    return Package(name, inputs, outputs, files, about, _usage(name, inputs, outputs), described, missing)


def _usage(name: str, inputs: tuple[Argument, ...], outputs: tuple[Argument, ...]) -> str:
    given, made = (", ".join(a.name for a in arrays) for arrays in (inputs, outputs))
    return f"""From Python:

```python
from kernel import load

kernel = load()
{made} = kernel({given})    # arrays of numpy; kernel.launch takes addresses on the device
```

From C++ (`{HEADER}` says what each argument is):

```cpp
#include "{HEADER}"

{name}::Kernel kernel;    // in a current context
CUresult result = kernel.run({given}, {made});
```

```sh
g++ -O2 -I$CUDA_HOME/include main.cpp -o main -lcuda
```"""


def _described(number: int, kernel: PtxKernel) -> dict[str, Any]:
    return {
        "entry": kernel.entry,
        "file": _PTX.format(number),
        "grid": list(kernel.grid),
        "block": list(kernel.block),
        "dynamic": kernel.dynamic,
    }


# --- C++ --------------------------------------------------------------------------------------------------------------

_TEMPLATE = """\
/* {title}
 * for {arch} and newer GPUs of NVIDIA; needs cuda.h and libcuda (-lcuda), no CUDA compiler.
 *
 *     cuInit(0);  // and a current context, as by cuDevicePrimaryCtxRetain and cuCtxSetCurrent
 *     {name}::Kernel kernel;
 *     if (kernel.status() != CUDA_SUCCESS) ...
 *     CUresult result = kernel.run({names});  // returns at once; errors of the kernel show at the next synchronisation
 *
 * Arrays are in the memory of the device, dense and row-major, aligned to 256 bytes as by cuMemAlloc:
{arrays}
 */
#ifndef {guard}
#define {guard}

#include <cuda.h>

namespace {name} {{

class Kernel {{
public:
    /* Loads the code into the current context and allocates {scratch} bytes that kernels pass to each other. */
    Kernel() {{
        static const char *const code[] = {{{codes}}};
        static const char *const entries[] = {{{entries}}};
        static const unsigned dynamic[] = {{{dynamics}}};
        for (int n = 0; n < {count} && status_ == CUDA_SUCCESS; ++n) {{
            note(cuModuleLoadData(&modules_[n], code[n]));
            if (status_ == CUDA_SUCCESS) note(cuModuleGetFunction(&functions_[n], modules_[n], entries[n]));
            if (status_ == CUDA_SUCCESS && dynamic[n] > 0)
                note(cuFuncSetAttribute(functions_[n], CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                        static_cast<int>(dynamic[n])));
        }}
{allocations}    }}

    ~Kernel() {{
{frees}        for (CUmodule module : modules_)
            if (module) cuModuleUnload(module);
    }}

    Kernel(const Kernel &) = delete;
    Kernel &operator=(const Kernel &) = delete;

    /* The first error of the constructor, or CUDA_SUCCESS. */
    CUresult status() const {{ return status_; }}

    /* Launches the kernels, in order, on a stream; one call at a time{reason}. */
    CUresult run({parameters}, CUstream stream = nullptr) {{
        if (status_ != CUDA_SUCCESS) return status_;
        void *arguments[] = {{{arguments}}};
        CUresult result = CUDA_SUCCESS;
{launches}        return result;
    }}

private:
    void note(CUresult result) {{
        if (status_ == CUDA_SUCCESS) status_ = result;
    }}

    CUresult status_ = CUDA_SUCCESS;
    CUmodule modules_[{count}] = {{}};
    CUfunction functions_[{count}] = {{}};
{members}}};

}}  // namespace {name}

#endif  // {guard}
"""
_LAUNCH = """\
        if (result == CUDA_SUCCESS)
            result = cuLaunchKernel(functions_[{n}], {grid}, {block}, {dynamic}, stream, arguments, nullptr);
"""


def launcher_header(name: str, artifact: CudaArtifact, title: str) -> str:
    """A class in C++ that loads the PTX, which is part of the text, and launches its kernels."""
    kernels, scratch = artifact.kernels, artifact.scratch
    arrays, held = (*artifact.inputs, *artifact.outputs), [f"scratch{n}_" for n in range(len(scratch))]
    names = [b.name for b in arrays]
    lines = [f" *     {b.name:<8} {'in ' if b in artifact.inputs else 'out'}  {_type(b)}" for b in arrays]
    return _TEMPLATE.format(
        title=title.replace("*/", "* /"),
        arch=artifact.target.arch,
        name=name,
        guard=f"{name.upper()}_HPP",
        names=", ".join(names),
        arrays="\n".join(lines),
        scratch=sum(size_of(b) for b in scratch),
        codes=",\n            ".join(f'R"ptx({k.text})ptx"' for k in kernels),
        entries=", ".join(f'"{k.entry}"' for k in kernels),
        dynamics=", ".join(str(k.dynamic) for k in kernels),
        count=len(kernels),
        allocations="".join(
            f"        if (status_ == CUDA_SUCCESS) note(cuMemAlloc(&{h}, {size_of(b)}));\n"
            for h, b in zip(held, scratch, strict=True)
        ),
        frees="".join(f"        if ({h}) cuMemFree({h});\n" for h in held),
        reason=", since calls share the memory between kernels" if scratch else "",
        parameters=", ".join(f"CUdeviceptr {n}" for n in names),
        arguments=", ".join(f"&{n}" for n in (*names, *held)),
        launches="".join(
            _LAUNCH.format(n=n, grid=_listed(k.grid), block=_listed(k.block), dynamic=k.dynamic)
            for n, k in enumerate(kernels)
        ),
        members="".join(f"    CUdeviceptr {h} = 0;\n" for h in held),
    )


def _listed(numbers: tuple[int, int, int]) -> str:
    return ", ".join(map(str, numbers))


def _type(buffer: Buffer) -> str:
    return DTYPES[buffer.dtype].c + "".join(f"[{n}]" for n in shape_of(buffer))
