"""A model for C programs: a shared library, a header that says how it is called, and a README."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from searchlab.dtype import DTYPES
from searchlab.errors import ExportError
from searchlab.graph.annotations import Annotation, TensorType, TupleType
from searchlab.graph.model.library_code import prefix_of
from searchlab.graph.model.model_parts import ModelParts
from searchlab.graph.model.shared_library import write_library
from searchlab.graph.vm.lowering import LoweredFunction
from searchlab.graph.vm.machine import DTYPE_NUMBERS, MOST_AXES
from searchlab.runtime.standalone.cpu_needs import cpu_needs


def export_model(parts: ModelParts, folder: Path, name: str) -> Path:
    """Writes libNAME.so, NAME.h and README.md to a folder; models that call Python cannot be exported."""
    for function in parts.functions.values():
        if function.libraries:
            site = function.libraries[0]
            raise ExportError(f"{site.where}: '{site.function}' is a function of Python, which a C library cannot call")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise ExportError(f"{folder}: cannot be written: {e.strerror}") from e
    library = folder / f"lib{name}.so"
    write_library(parts, library, name)
    (folder / f"{name}.h").write_text(header(parts, name), encoding="utf-8")
    (folder / "README.md").write_text(_readme(parts, name), encoding="utf-8")
    return library


def header(parts: ModelParts, name: str) -> str:
    """The text of the C header."""
    dtypes = ", ".join(f"SEARCHLAB_{d.upper()} = {n}" for d, n in DTYPE_NUMBERS.items())
    functions = "\n".join(
        _prototypes(prefix_of(name, f.name, len(parts.functions)), f) for f in parts.functions.values()
    )
    return f"""/* A model compiled by searchlab for {parts.target.name} ({parts.target.triple}). */
#ifndef {name.upper()}_H
#define {name.upper()}_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {{
#endif

#ifndef SEARCHLAB_TENSOR
#define SEARCHLAB_TENSOR
/* A dense, row-major array. Set everything that is not mentioned to 0.
 * Inputs: data (aligned to its elements), dtype, rank and shape.
 * Outputs: with data = NULL the model allocates memory, sets `owned`, and the caller frees it with free();
 *          else data has room for `bytes`. The model sets dtype, rank and shape. */
typedef struct {{
  void *data;
  int64_t dtype, rank, shape[{MOST_AXES}], bytes, owned;
}} searchlab_tensor;
enum {{ {dtypes} }};
#endif
{functions}
#ifdef __cplusplus
}}
#endif
#endif
"""


def _prototypes(prefix: str, function: LoweredFunction) -> str:
    inputs = [line for name, a in function.parameters for line in _described(name, a)]
    outputs = list(_described("result", function.result))
    listed = "\n".join([*(f" *   inputs[{n}]   {x}" for n, x in enumerate(inputs)),
                        *(f" *   outputs[{n}]  {x}" for n, x in enumerate(outputs))])  # fmt: skip
    return f"""
/* {function.name}:
{listed}
 */
enum {{ {prefix.upper()}_INPUTS = {len(inputs)}, {prefix.upper()}_OUTPUTS = {len(outputs)} }};
typedef struct {prefix}_state {prefix}_state;
/* A state runs one call at a time, and keeps its memory for the next; threads have states of their own.
 * NULL if there is no memory; 0 threads means the number that it was compiled for. */
{prefix}_state *{prefix}_create(int64_t threads);
void {prefix}_destroy({prefix}_state *state);
/* 0, or a number that says why the run failed; then no output is allocated. */
int64_t {prefix}_run({prefix}_state *state, const searchlab_tensor *inputs, searchlab_tensor *outputs);
/* What was wrong with the last run, as text, for the number that it returned. Returns the length, as snprintf does. */
int64_t {prefix}_message(const {prefix}_state *state, int64_t status, char *text, int64_t size);
"""


def _described(name: str, annotation: Annotation) -> Iterator[str]:
    if isinstance(annotation, TupleType):
        for n, part in enumerate(annotation.parts):
            yield from _described(f"{name}[{n}]", part)
        return
    c = f" ({DTYPES[annotation.dtype].c})" if isinstance(annotation, TensorType) and annotation.dtype else ""
    yield f"{name}: {annotation}{c}"


def _readme(parts: ModelParts, name: str) -> str:
    first = next(iter(parts.functions.values()))
    prefix = prefix_of(name, first.name, len(parts.functions))
    size = sum(a.nbytes for a in parts.constants.values())
    needs: Any = ", ".join(cpu_needs(parts.target, "amx-tile" in parts.target.enabled_features())) or "nothing special"
    return f"""# {name}

A model compiled by searchlab for {parts.target.name}: {len(parts.kernels)} kernels, {size} bytes of constants, all in
`lib{name}.so`. It needs the C library, threads, and a CPU with: {needs}.

    cc main.c -I. -L. -l{name} -Wl,-rpath,. -o main

```c
#include "{name}.h"
#include <stdio.h>
#include <stdlib.h>

{prefix}_state *state = {prefix}_create(0);
searchlab_tensor inputs[{prefix.upper()}_INPUTS] = {{0}}, outputs[{prefix.upper()}_OUTPUTS] = {{0}};
/* set data, dtype, rank and shape of the inputs */
int64_t status = {prefix}_run(state, inputs, outputs);
if (status) {{
  char text[512];
  {prefix}_message(state, status, text, sizeof text);
  fprintf(stderr, "%s\\n", text);
}}
/* use outputs, then free() their data */
{prefix}_destroy(state);
```

`searchlab.graph.load_model("lib{name}.so")` loads the same file in Python.
"""
