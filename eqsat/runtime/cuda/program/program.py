"""A plan made ready for a GPU: buffers, and the launches that fill them, in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from eqsat.language.terms.constant import Constant
from eqsat.language.terms.graph import Node
from eqsat.runtime.cuda.libraries.calls import Call
from eqsat.runtime.kernels.source import KernelSource
from eqsat.runtime.kernels.view import View

if TYPE_CHECKING:
    from eqsat.runtime.cuda.program.arena import Arrangement

Role = Literal["input", "weight", "value", "output"]


@dataclass(frozen=True)
class Buffer:
    """Memory of its own: its purpose and its bytes. Values lie in the arena; the rest lasts as long as the program."""

    name: str
    nbytes: int
    role: Role


@dataclass(frozen=True)
class Fallback:
    """An operator that has no kernel here: run by its reference, on CuPy's own functions."""

    node: Node


@dataclass(frozen=True)
class Launch:
    """One kernel on its way to the GPU: its code, the views it reads and writes, and the graph's values it makes.

    For a KernelSource, `reads` and then `writes` are the views of its arguments, in their order.
    """

    work: KernelSource | Call | Fallback
    reads: tuple[View, ...]
    writes: tuple[View, ...]
    values: tuple[str, ...]
    label: str = ""

    @property
    def kind(self) -> str:
        """The kind of what runs it: "generated", a call of a library's, or "fallback".

        >>> Launch(Fallback(Node("topk", ("x",), ("y",))), (), (), ()).kind
        'fallback'
        """
        return "generated" if isinstance(self.work, KernelSource) else type(self.work).__name__.lower()


@dataclass(frozen=True)
class CudaProgram:
    """Launches over buffers. `inputs` and `outputs` say where the caller's tensors lie, `weights` what is put where.

    An input or output in a layout of its own has its axes in the order they are stored, as its caller holds it.

    A weight is a constant and the view it is put in before the first run: in the layout and element type it is read in.
    """

    name: str
    buffers: Mapping[str, Buffer]
    launches: tuple[Launch, ...]
    inputs: Mapping[str, View]
    outputs: Mapping[str, View]
    weights: Mapping[str, tuple[Constant, View]] = field(default_factory=dict)

    def memory(self) -> Arrangement:
        """The places of the values in one arena, its size, the sum without sharing, and the least possible size."""
        from eqsat.runtime.cuda.program.arena import arrange, check

        arrangement = arrange(self)
        check(self, arrangement)
        return arrangement

    def __str__(self) -> str:
        width = max((len(launch.kind) for launch in self.launches), default=0)
        lines = [f"{launch.kind:<{width}}  {launch.label}" for launch in self.launches]
        return "\n".join([f"{self.name}: {len(self.launches)} launches", *lines])
