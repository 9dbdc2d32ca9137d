"""Kernels in the order in which they run, and the buffers that they read and write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from eqsat.language.terms.graph import Node
from eqsat.runtime.kernels.view import View

Role = Literal["input", "weight", "value", "output"]


@dataclass(frozen=True)
class Buffer:
    """Memory of its own, its bytes and its role. Values lie in the arena; the rest lasts as a program does."""

    name: str
    nbytes: int
    role: Role


@dataclass(frozen=True)
class Fallback:
    """An operator that has no kernel here: run by its reference."""

    node: Node


class LibraryCall:
    """A call of a library's kernel."""

    __slots__ = ()


class KernelWork(Protocol):
    """A generated kernel; `arguments` are the values whose views it is passed, operands first."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """The values by name."""


@dataclass(frozen=True)
class Launch:
    """One kernel of a program, the views it reads and writes, and the graph's values it makes.

    For a generated kernel, `reads` and then `writes` are the views of its arguments, in their order.
    """

    work: KernelWork | LibraryCall | Fallback
    reads: tuple[View, ...]
    writes: tuple[View, ...]
    values: tuple[str, ...]
    label: str = ""

    @property
    def kind(self) -> str:
        """The kind of its kernel: "generated", a call of a library's, or "fallback".

        >>> Launch(Fallback(Node("topk", ("x",), ("y",))), (), (), ()).kind
        'fallback'
        """
        return "generated" if hasattr(self.work, "arguments") else type(self.work).__name__.lower()
