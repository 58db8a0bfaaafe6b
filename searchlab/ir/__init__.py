"""The tensor IR: expressions with symbols, programs of blocks and loops, printer, verifier, interpreter."""

from searchlab.ir.algebra import ceildiv
from searchlab.ir.bounds import Facts
from searchlab.ir.compute import Builder, Tensor, largest, smallest, total
from searchlab.ir.expr import Expr, Var, call, cast, const, index, knob, maximum, minimum, select, size
from searchlab.ir.interpret import interpret
from searchlab.ir.jsonform import from_json, to_json
from searchlab.ir.program import Program
from searchlab.ir.stmt import Block, Buffer, Iter, Loop, Seq, Store
from searchlab.ir.verify import verify

__all__ = [
    "Block", "Buffer", "Builder", "Expr", "Facts", "Iter", "Loop", "Program", "Seq", "Store", "Tensor", "Var", "call",
    "cast", "ceildiv", "const", "from_json", "index", "interpret", "knob", "largest", "maximum", "minimum", "select",
    "size", "smallest", "to_json", "total", "verify",
]  # fmt: skip
