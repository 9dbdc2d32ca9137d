"""Kernels in the order in which they run, and the buffers that they read and write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from eqsat.errors import BackendError
from eqsat.language.terms.graph import Graph, Node
from eqsat.language.terms.types import TensorType
from eqsat.runtime.kernels.source import KernelSource
from eqsat.runtime.kernels.view import View

Role = Literal["input", "weight", "value", "output", "flag"]


@dataclass(frozen=True)
class Buffer:
    """Memory of its own, its bytes and its role. Values lie in the arena; the rest lasts as a program does.

    A flag is 0 until a kernel that fails sets it.
    """

    name: str
    nbytes: int
    role: Role


@dataclass(frozen=True)
class Fallback:
    """An operator that has no kernel here: run by its reference."""

    node: Node


@dataclass(frozen=True)
class SessionRegion:
    """A part of a graph that a session of ONNX Runtime computes.

    The launch reads its inputs and writes its outputs, in their order.
    """

    graph: Graph


class LibraryCall:
    """A call of a library's kernel."""

    __slots__ = ()


class KernelWork(Protocol):
    """A generated kernel; `arguments` are the values whose views it is passed, operands first."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """The values by name."""


@dataclass(frozen=True)
class SeriesKernel:
    """One kernel of several: its arguments are the buffers that it reads, and then those that it writes."""

    source: KernelSource
    reads: tuple[str, ...]
    writes: tuple[str, ...]


@dataclass(frozen=True)
class KernelSeries:
    """Kernels that compute a group one after the other, over buffers by name.

    `values` are the values of the graph that buffers are; `temporaries` are buffers that these kernels alone use. What
    is neither is the flag that kernels set where they fail.
    """

    kernels: tuple[SeriesKernel, ...]
    values: Mapping[str, str]
    temporaries: Mapping[str, TensorType]


def kernel_failure(where: str) -> BackendError:
    """The error of a run in which a kernel failed: no one can say what it made."""
    return BackendError(
        "a kernel read beyond an operand, or divided an integer by 0",
        where=where,
        expected="indices within bounds",
        remedy="run it on the backend 'numpy', which names the operator that fails",
    )


@dataclass(frozen=True)
class Launch:
    """One kernel of a program, the views it reads and writes, and the graph's values it makes.

    For a generated kernel, `reads` and then `writes` are the views of its arguments, in their order.
    """

    work: KernelWork | LibraryCall | Fallback | SessionRegion
    reads: tuple[View, ...]
    writes: tuple[View, ...]
    values: tuple[str, ...]
    label: str = ""

    @property
    def kind(self) -> str:
        """The kind of its kernel: "generated", a call of a library's, "fallback" or "session".

        >>> Launch(Fallback(Node("topk", ("x",), ("y",))), (), (), ()).kind
        'fallback'
        """
        if isinstance(self.work, SessionRegion):
            return "session"
        return "generated" if hasattr(self.work, "arguments") else type(self.work).__name__.lower()
