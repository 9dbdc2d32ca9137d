"""Functions of rules about convolutions and pools: kernels, pads, and what they leave of a size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eqsat.errors import ShapeError
from eqsat.rewrites.conditions.functions import Fail, function


def _spatial(record: Mapping[str, Any], name: str, count: int) -> tuple[int, ...]:
    default = (0,) * (2 * count) if name == "pads" else (1,) * count
    return tuple(record[name]) or default


@function
def padded_by(record: Mapping[str, Any], pads: Sequence[int]) -> tuple[int, ...]:
    """The pads of a convolution or pool that takes a pad of its operand, of all axes, upon itself."""
    rank = len(pads) // 2
    inner = _spatial(record, "pads", rank - 2)
    return tuple(a + b for a, b in zip(inner, (*pads[2:rank], *pads[rank + 2 :]), strict=True))


@function
def pads_space(pads: Sequence[int]) -> bool | Fail:
    """True for pads of N,C,spatial… that leave N and C alone and cut nothing off."""
    rank = len(pads) // 2
    fits = rank > 2 and not any((*pads[:2], *pads[rank : rank + 2])) and min(pads) >= 0
    return fits or Fail("pads more than space, or cuts off")


@function
def unpadded(record: Mapping[str, Any]) -> bool | Fail:
    """True for a convolution or pool without padding."""
    return not any(record["pads"]) or Fail("there is padding")


@function
def grown_pads(
    pads: Sequence[int], dilations: Sequence[int], kernel: Sequence[int], wide: Sequence[int]
) -> tuple[int, ...]:
    """The pads with which a filter enlarged from `kernel` to `wide` reads the same elements."""
    count = len(kernel)
    if any((w - k) % 2 or w < k for k, w in zip(kernel, wide, strict=True)):
        raise ShapeError("the sizes do not differ by even numbers")
    growth = [d * (w - k) // 2 for d, k, w in zip(dilations or (1,) * count, kernel, wide, strict=True)]
    return tuple(p + g for p, g in zip(pads or (0,) * (2 * count), growth * 2, strict=True))


@function
def shrunk_pads(
    pads: Sequence[int], dilations: Sequence[int], kernel: Sequence[int], wide: Sequence[int]
) -> tuple[int, ...]:
    """The pads with which a filter before it was enlarged reads the same elements."""
    growth = grown_pads((), dilations, kernel, wide)
    found = tuple(p - g for p, g in zip(pads or (0,) * len(growth), growth, strict=True))
    if min(found) < 0:
        raise ShapeError("the padding is smaller than the border of the filter")
    return found


@function
def keeps_size(record: Mapping[str, Any], kernel: Sequence[int]) -> bool | Fail:
    """True where windows of odd sizes with stride 1 are centred on every element."""
    count = len(kernel)
    strides, dilations = _spatial(record, "strides", count), _spatial(record, "dilations", count)
    border = tuple(d * (k - 1) // 2 for d, k in zip(dilations, kernel, strict=True))
    fits = all(k % 2 for k in kernel) and set(strides) <= {1} and _spatial(record, "pads", count) == border * 2
    return fits or Fail("windows are not centred on every element")


@function
def grows_evenly(kernel: Sequence[int], wide: Sequence[int]) -> bool | Fail:
    """True where a kernel grows to a larger one by as much on either side of each axis."""
    growth = [w - k for k, w in zip(kernel, wide, strict=True)]
    return (min(growth) >= 0 and max(growth) > 0 and not any(g % 2 for g in growth)) or Fail("does not grow evenly")


@function
def spatial_axes(rank: int) -> tuple[int, ...]:
    """The axes after batch and channels."""
    return tuple(range(2, rank))
