"""Functions of rules over convolutions and pooling: kernels, pads, and what they leave of a size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eqsat.errors import ShapeError
from eqsat.language.graph import Attrs
from eqsat.rewrites.functions import Fail, function


@function
def grows_evenly(kernel: Sequence[int], larger: Sequence[int]) -> bool | Fail:
    """True where a kernel grows to the larger one by as much on either side of each axis."""
    growth = [n - k for k, n in zip(kernel, larger, strict=True)]
    return (all(g >= 0 and g % 2 == 0 for g in growth) and any(growth)) or Fail("does not grow evenly on both sides")


@function
def grown_pads(a: Attrs, kernel: Sequence[int], larger: Sequence[int]) -> tuple[int, ...]:
    """The pads of a convolution whose kernel is enlarged by zeros: each grows by half the growth times the dilation."""
    spatial = len(kernel)
    pads = a["pads"] or (0,) * (2 * spatial)
    dilations = a["dilations"] or (1,) * spatial
    more = [d * (n - k) // 2 for d, k, n in zip(dilations, kernel, larger, strict=True)]
    return tuple(p + m for p, m in zip(pads, more * 2, strict=True))


@function
def spatial_pads(pads: Sequence[int]) -> bool | Fail:
    """True for pads of a whole tensor that leave batch and channels alone and remove nothing."""
    rank = len(pads) // 2
    outer = [pads[i] for i in (0, 1, rank, rank + 1)] if rank > 2 else [1]
    return (not any(outer) and all(p >= 0 for p in pads)) or Fail("pads more than the spatial axes")


@function
def joined_pads(a: Attrs, pads: Sequence[int]) -> tuple[int, ...]:
    """The pads of a window after a pad of the whole tensor."""
    rank = len(pads) // 2
    inner = (*pads[2:rank], *pads[rank + 2 :])
    own = a["pads"] or (0,) * len(inner)
    if len(own) != len(inner):
        raise ShapeError("the pads are for another number of axes")
    return tuple(p + q for p, q in zip(own, inner, strict=True))


@function
def keeps_size(a: Attrs, kernel: Sequence[int]) -> bool | Fail:
    """True for windows of odd size, stride 1 and pads that keep every size and centre each window on its element."""
    spatial = len(kernel)
    dilations = a["dilations"] or (1,) * spatial
    half = [d * (k // 2) for d, k in zip(dilations, kernel, strict=True)]
    odd = all(k % 2 for k in kernel) and all(s == 1 for s in a["strides"])
    return (odd and tuple(a["pads"] or (0,) * (2 * spatial)) == tuple(half * 2)) or Fail("does not keep the size")


@function
def spatial_axes(rank: int) -> tuple[int, ...]:
    """The axes after batch and channels."""
    return tuple(range(2, rank))
