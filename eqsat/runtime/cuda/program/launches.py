"""Kernels on their way to a GPU, and the buffers they read and write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from eqsat.language.terms.graph import Node
from eqsat.runtime.cuda.libraries.calls import Call
from eqsat.runtime.kernels.source import KernelSource
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
    """An operator that has no kernel here: run by its reference, on CuPy's own functions."""

    node: Node


@dataclass(frozen=True)
class Launch:
    """One kernel on its way to the GPU, the views it reads and writes, and the graph's values it makes.

    For a KernelSource, `reads` and then `writes` are the views of its arguments, in their order.
    """

    work: KernelSource | Call | Fallback
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
        return "generated" if isinstance(self.work, KernelSource) else type(self.work).__name__.lower()
