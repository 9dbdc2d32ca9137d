"""Constants that several operators share: the first to read them brings them into the caches for the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from eqsat.costs.devices.device import Device
from eqsat.costs.kernels.applications import applications, is_free
from eqsat.costs.kernels.bottleneck import constant_bytes
from eqsat.costs.kernels.fusion import FUSED
from eqsat.costs.kernels.key import OpKey
from eqsat.costs.table.entry import Entry
from eqsat.language.ops import OPS
from eqsat.language.terms import Graph, TensorType

#: A hot time of at most this share of the cold one shows that constants stayed in a nearer memory.
_WARM = 0.9


@dataclass(frozen=True)
class Sharing:
    """Savings of operators whose constants another one has read, in a model in which `passing` bytes lie between.

    `here` are the entries that were measured in this environment.
    """

    device: Device
    here: Mapping[str, Entry]
    passing: int = 0

    @cached_property
    def reach(self) -> int:
        """The bytes that stay in the caches: those of the nearest memory, or constants that were measured to be hot."""
        hot = (text for text, e in self.here.items() if e.hot is not None and e.hot <= _WARM * e.seconds)
        sizes = [constant_bytes(OpKey.parse(text)) for text in hot if FUSED not in text]
        return max([self.device.near_bytes, *sizes])

    def saved(self, key: OpKey, entry: Entry) -> float:
        """The seconds that a measured operator saves if its constants were just read; 0 if they do not stay."""
        size = constant_bytes(key)
        if entry.hot is None or not size or max(size, self.passing) > self.reach:
            return 0.0
        return max(entry.seconds - entry.hot, 0.0)


def passing_bytes(graph: Graph, sizes: Mapping[str, int]) -> int:
    """The bytes that are read and written between two readers of one constant; 0 if none has two.

    Of all such pairs, in the order of the graph, the median weighed by the bytes of the constants.
    """
    passed = 0
    last: dict[str, int] = {}
    pairs: list[tuple[int, int]] = []
    for node, operands, results, const in applications(graph):
        if is_free(node.op, operands, const):
            continue
        written = sum(_bytes(t, sizes) for t in results)
        moves = node.op in OPS and OPS[node.op].movement
        read: dict[str, int] = {}
        for value, type, is_const in zip(node.inputs, operands, const, strict=True):
            if value is not None and is_const:
                read[value] = min(_bytes(type, sizes), written) if moves else _bytes(type, sizes)
        before = passed
        passed += written + sum(read.values())
        for value, size in () if moves else read.items():
            if value in last:
                pairs.append((before - last[value] + size, size))
            last[value] = passed
    half, counted = sum(size for _, size in pairs) / 2, 0
    for distance, size in sorted(pairs):
        counted += size
        if counted >= half:
            return distance
    return 0


def _bytes(type: TensorType | None, sizes: Mapping[str, int]) -> int:
    return 0 if type is None or type.shape is None else type.elements(sizes) * type.dtype.itemsize
