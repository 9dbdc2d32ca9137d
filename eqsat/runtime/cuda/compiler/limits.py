"""The most that one launch of a kernel may ask of a GPU: threads, registers, shared memory and blocks.

From the table of compute capabilities in NVIDIA's CUDA C++ Programming Guide, release 13.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from eqsat.errors import BackendError
from eqsat.runtime.kernels.source import Extent, KernelSource

#: Shared memory of a block in KiB where a kernel may ask for all there is, by compute capability.
_SHARED_KIB = {
    70: 96, 72: 96, 75: 64, 80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 110: 227, 120: 99, 121: 99,
}  # fmt: skip
#: Registers of a warp are given out in portions of so many.
_PORTION, _WARP = 256, 32


@dataclass(frozen=True, slots=True)
class LaunchLimits:
    """The most of each resource that a block, and a grid, may have; `shared` in bytes."""

    shared: int
    threads: int = 1024
    registers: int = 65_536
    grid: Extent = (2**31 - 1, 65_535, 65_535)

    @classmethod
    def of(cls, arch: str) -> LaunchLimits:
        """The limits of an architecture; of one that is not known, the smallest that any known has.

        >>> LaunchLimits.of("sm_90").shared, LaunchLimits.of("sm_80").shared
        (232448, 166912)
        """
        digits = arch.removeprefix("sm_").rstrip("af")
        kib = _SHARED_KIB.get(int(digits)) if digits.isdecimal() else None
        return cls(shared=(min(_SHARED_KIB.values()) if kib is None else kib) << 10)

    def check(self, source: KernelSource, *, registers: int = 0, static: int = 0, where: str = "") -> None:
        """BackendError where a launch asks for more: `registers` a thread and `static` shared memory as compiled."""
        for what, within, expected in (
            self._threads(source.block),
            self._shared(source.shared, static),
            self._registers(source.block, registers),
            self._blocks(source.grid),
        ):
            if not within:
                raise BackendError(what, where=where or source.entry, expected=expected)

    def _threads(self, block: Extent) -> tuple[str, bool, str]:
        threads = math.prod(block)
        return f"a block of {threads} threads", 1 <= threads <= self.threads, f"1 to {self.threads}"

    def _shared(self, dynamic: int, static: int) -> tuple[str, bool, str]:
        total = dynamic + static
        said = f"{total} bytes of shared memory" + (f", {static} of them static" if static else "")
        return said, dynamic >= 0 and total <= self.shared, f"0 to {self.shared}"

    def _registers(self, block: Extent, registers: int) -> tuple[str, bool, str]:
        warps = -(-math.prod(block) // _WARP)
        taken = warps * (-(-registers * _WARP // _PORTION) * _PORTION)
        said = f"{registers} registers in each of {warps} warps: {taken}"
        return said, taken <= self.registers, f"at most {self.registers} registers in a block"

    def _blocks(self, grid: Extent) -> tuple[str, bool, str]:
        within = all(0 <= have <= most for have, most in zip(grid, self.grid, strict=True))
        return f"a grid of {grid} blocks", within, f"at most {self.grid}"
