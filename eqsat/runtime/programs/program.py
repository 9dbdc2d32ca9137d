"""A plan made ready to run: buffers, and the launches that fill them, in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eqsat.language.terms.constant import Constant
from eqsat.runtime.kernels.view import View
from eqsat.runtime.programs.arena import Arrangement, arrange, check
from eqsat.runtime.programs.launches import Buffer, Launch


@dataclass(frozen=True)
class KernelProgram:
    """Launches over buffers. `inputs` and `outputs` say where the caller's tensors lie, `weights` where constants do.

    An input or output in a layout of its own has its axes in the order they are stored, as its caller holds it.

    A weight is a constant and the view it is put in before the first run: in the layout and element type it is read in.
    Where kernels can fail, `flag` is the number that they set to 1 then.
    """

    name: str
    buffers: Mapping[str, Buffer]
    launches: tuple[Launch, ...]
    inputs: Mapping[str, View]
    outputs: Mapping[str, View]
    weights: Mapping[str, tuple[Constant, View]] = field(default_factory=dict)
    flag: View | None = None

    def memory(self) -> Arrangement:
        """The places of the values in one arena, its size, the sum without sharing, and the least possible size."""
        arrangement = arrange(self)
        check(self, arrangement)
        return arrangement

    def __str__(self) -> str:
        width = max((len(launch.kind) for launch in self.launches), default=0)
        lines = [f"{launch.kind:<{width}}  {launch.label}" for launch in self.launches]
        return "\n".join([f"{self.name}: {len(self.launches)} launches", *lines])
