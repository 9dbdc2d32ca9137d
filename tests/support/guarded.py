"""Kernels run on host memory in which every byte that is not a result's is watched, and every result begins as NaN."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from eqsat.language.terms.constant import Array
from eqsat.runtime.kernels.source import KernelSource
from eqsat.runtime.kernels.view import BUFFER_ALIGNMENT, View
from eqsat.runtime.programs.arrays import aligned, strided
from eqsat.testing.cuda.emulator import emulate

#: NaN in every float, -1 in signed integers.
POISON = 0xFF


def run(
    source: KernelSource,
    operands: Mapping[str, tuple[View, Array]],
    results: Mapping[str, View],
    *,
    descending: bool = False,
) -> dict[str, Array]:
    """What a kernel makes of operands; AssertionError where it writes a byte that belongs to no result.

    Values in one buffer share its memory. What no operand holds there, and what surrounds it, is poison.
    """
    views = {**{name: view for name, (view, _) in operands.items()}, **results}
    memory = {}
    for buffer in {view.buffer for view in views.values()}:
        high = max(view.extent[1] for view in views.values() if view.buffer == buffer)
        memory[buffer] = aligned(high + 2 * BUFFER_ALIGNMENT)
        memory[buffer][:] = POISON
    inner = {name: held[BUFFER_ALIGNMENT : held.nbytes - BUFFER_ALIGNMENT] for name, held in memory.items()}
    for view, array in operands.values():
        strided(inner[view.buffer], view)[...] = array
    before = {name: held.copy() for name, held in memory.items()}
    emulate(source, [_address(inner[views[n].buffer], views[n]) for n in source.arguments], descending=descending)
    made = {name: np.array(strided(inner[view.buffer], view)) for name, view in results.items()}
    for view in results.values():
        for held in (inner, {n: b[BUFFER_ALIGNMENT : b.nbytes - BUFFER_ALIGNMENT] for n, b in before.items()}):
            strided(held[view.buffer], view)[...] = np.zeros((), view.dtype.numpy)
    for name, held in memory.items():
        changed = np.flatnonzero(held != before[name])
        assert not changed.size, f"{source.text}\nwrites byte {changed[0] - BUFFER_ALIGNMENT} of {name}, no result's"
    return made


def _address(memory: Array, view: View) -> int:
    return int(memory.ctypes.data) + view.offset * view.dtype.itemsize
