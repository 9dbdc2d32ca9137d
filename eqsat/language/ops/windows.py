"""Windows that convolutions and pools move over a tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eqsat.errors import ShapeError
from eqsat.language.terms import Dim, floordiv


def window_count(size: Dim, kernel: Dim, stride: int, begin: int, end: int, dilation: int) -> Dim:
    """The number of windows fit along one axis: (size + begin + end - dilation·(kernel - 1) - 1) // stride + 1."""
    room = size + (begin + end - 1) - dilation * (kernel - 1)
    if isinstance(room, int) and room < 0:
        raise ShapeError(
            f"a window of {kernel} with dilation {dilation} does not fit into {size} padded by {begin} and {end}",
            expected="a window no larger than the padded input",
        )
    return floordiv(room, stride) + 1


def conv_geometry(attrs: Mapping[str, Any], spatial: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Strides, dilations and pads of a windowed operator, with the defaults for left-out ones."""
    strides = attrs["strides"] or (1,) * spatial
    dilations = attrs["dilations"] or (1,) * spatial
    pads = attrs["pads"] or (0,) * (2 * spatial)
    if (len(strides), len(dilations), len(pads)) != (spatial, spatial, 2 * spatial):
        raise ShapeError(
            f"strides {strides}, dilations {dilations}, pads {pads} for {spatial} spatial dims",
            expected=f"{spatial} strides and dilations, {2 * spatial} pads",
        )
    return strides, dilations, pads


def windows(x: Any, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> Any:
    """Views of all windows over the trailing axes: shape (…, out…, kernel…)."""
    spatial = len(kernel)
    extents = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    axes = tuple(range(x.ndim - spatial, x.ndim))
    view = np.lib.stride_tricks.sliding_window_view(x, extents, axis=axes)
    lead = (slice(None),) * (x.ndim - spatial)
    return view[(*lead, *(slice(None, None, s) for s in strides), *(slice(None, None, d) for d in dilations))]


def pad_spatial(xp: Any, x: Any, pads: Sequence[int], value: float = 0.0) -> Any:
    """The array with a constant border on its trailing axes; `pads` holds all begins, then all ends."""
    spatial = len(pads) // 2
    if not any(pads):
        return x
    widths = [(0, 0)] * (x.ndim - spatial) + [(pads[i], pads[spatial + i]) for i in range(spatial)]
    return np.pad(x, widths, constant_values=xp.number(value, x))
