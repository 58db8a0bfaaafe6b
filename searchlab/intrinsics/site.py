"""A call site: where the implementation of an intrinsic writes the LLVM IR of one call."""

from __future__ import annotations

from abc import ABC, abstractmethod


class CallSite(ABC):
    """One call in a kernel, in the terms of the intrinsic's description: its buffers are operands, its loops positions.

    An element is named by the loop values at which the description accesses it: `site.load("A", "i32", i=2)` loads four
    bytes from the element that A has in iteration i=2, all other loops at 0.  The strides between iterations are those
    of the program; they need not be constants.
    """

    @abstractmethod
    def address(self, operand: str, **at: int) -> str:
        """The address of an element, a `ptr`."""

    @abstractmethod
    def stride(self, operand: str, loop: str) -> str:
        """The distance of neighbouring iterations of a loop in an operand, in bytes: an `i64`."""

    @abstractmethod
    def load(self, operand: str, type_: str, **at: int) -> str:
        """A value of an LLVM type, loaded from the address of an element; loaded once for all calls in a row."""

    @abstractmethod
    def store(self, operand: str, type_: str, value: str, **at: int) -> None:
        """Stores a value of an LLVM type at the address of an element."""

    @abstractmethod
    def let(self, instruction: str) -> str:
        """The result of an instruction without side effects; written once for all calls in a row."""

    @abstractmethod
    def line(self, instruction: str) -> None:
        """An instruction without a result."""

    @abstractmethod
    def declare(self, text: str) -> None:
        """Adds a declaration to the module, once."""

    def call(self, result: str, function: str, *arguments: tuple[str, str]) -> str:
        """The result of an LLVM function without side effects; an argument is a type and a value."""
        self.declare(f"declare {result} @{function}({', '.join(type_ for type_, _ in arguments)})")
        return self.let(f"call {result} @{function}({', '.join(f'{type_} {value}' for type_, value in arguments)})")

    def splat(self, element: str, lanes: int, value: str) -> str:
        """A vector with the same value in all lanes."""
        type_ = f"<{lanes} x {element}>"
        one = self.let(f"insertelement {type_} poison, {element} {value}, i64 0")
        return self.let(f"shufflevector {type_} {one}, {type_} poison, <{lanes} x i32> zeroinitializer")

    def cast(self, operation: str, source: str, value: str, target: str) -> str:
        """A conversion, such as `bitcast` or `sext`."""
        return self.let(f"{operation} {source} {value} to {target}")
