"""Kernels whose sizes are arguments: launched with the blocks that a call's sizes ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eqsat.errors import BackendError
from eqsat.runtime.kernels.nests.extents import Extent, product_at, value_at
from eqsat.runtime.kernels.nests.gpu_options import MOST_FREE, MOST_POINTS
from eqsat.runtime.kernels.nests.tree import BlockCount, Named
from eqsat.runtime.kernels.source import KernelSource


@dataclass(frozen=True)
class FreeKernel:
    """A kernel that holds for every value of `sizes`, whole numbers from 1 on, which are its last arguments.

    `source` is launched by no block. `boxes` are those that threads share, whose elements an int has to count, and
    `constants` what it computes of sizes, by which `blocks` are stated.
    """

    source: KernelSource
    sizes: tuple[str, ...]
    blocks: int | BlockCount
    boxes: frozenset[tuple[Extent, ...]]
    constants: tuple[Named, ...] = ()

    @property
    def text(self) -> str:
        """The code as a person reads it."""
        return self.source.text

    def at(self, sizes: Mapping[str, int]) -> KernelSource:
        """The launch for sizes by their names in the kernel; BackendError for more elements than an int counts."""
        self._check(sizes)
        known = dict(sizes)
        for one in self.constants:
            known[one.variable] = value_at(one.value, known)
        blocks = self.blocks if isinstance(self.blocks, int) else self.blocks.at(known)
        made = self.source
        return KernelSource(
            made.entry,
            made.code,
            made.arguments,
            (blocks, 1, 1),
            made.block,
            made.shared,
            made.comment,
            tuple(sizes[name] for name in self.sizes),
        )

    def _check(self, sizes: Mapping[str, int]) -> None:
        most = max((product_at(box, sizes) for box in self.boxes), default=0)
        longest = max([*sizes.values(), *(value_at(extent, sizes) for box in self.boxes for extent in box)], default=0)
        if most > MOST_POINTS or longest > MOST_FREE:
            given = ", ".join(f"{name} = {sizes[name]}" for name in self.sizes)
            raise BackendError(
                f"{most} elements of a statement, {longest} along an axis",
                where=f"{self.source.comment}, with {given}",
                expected=f"at most {MOST_POINTS} elements, {MOST_FREE} along an axis",
                remedy="call the function itself, which NumPy computes",
            )
