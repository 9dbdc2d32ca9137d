"""Operators on images, their windows and boxes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from benchmarks.onnx_models.elementwise import Step
from benchmarks.onnx_models.growing import Growing, Value
from benchmarks.onnx_models.layers import weight


def _image(g: Growing, *batches: int | str) -> Value:
    """A float32 image whose dims are known and hold something; a new one is of one of these batches."""
    x = g.pick("f", 4)
    known = (1, 2, 3) if "n" in batches else (0, 1, 2, 3)
    if x.dtype != np.float32 or any(map(x.free, known)) or 0 in x.shape:
        x = g.input(np.float32, [g.among(batches), g.integer(1, 4), g.integer(3, 6), g.integer(3, 6)])
    return x


def _places(g: Growing, *shape: int) -> Value:
    """Constant coordinates, of which some lie outside an image."""
    return g.constant(g.rng.uniform(-1.5, 1.5, shape).astype(np.float32))


def _grid(g: Growing) -> None:
    """A grid of places, by which an image is sampled."""
    x = _image(g, 1, 2)
    if g.flip(0.4):
        size = g.integers([x.shape[0], x.shape[1], 3, 4])
        (places,) = g.add("AffineGrid", [_places(g, x.shape[0], 2, 3), size], align_corners=g.among([None, 1]))
    else:
        places = _places(g, x.shape[0], 3, 4, 2)
    modes = ["bilinear", "nearest", "bicubic"] if g.opset < 20 else ["linear", "nearest", "cubic"]
    padding = g.among([None, "zeros", "border", "reflection"])
    g.add("GridSample", [x, places], mode=g.among(modes), padding_mode=padding, align_corners=g.among([None, 1]))


def _boxes(g: Growing, count: int, extent: int) -> np.ndarray:  # type: ignore[type-arg]
    """Boxes as two corners, the first above and left of the second."""
    low = g.rng.uniform(0, extent / 2, (count, 2))
    return np.concatenate([low, low + g.rng.uniform(0.5, extent / 2, (count, 2))], axis=1).astype(np.float32)


def _regions(g: Growing) -> None:
    x = _image(g, 1, 2, "n")
    count = g.integer(1, 3)
    if g.flip(0.4):
        first = np.zeros((count, 1), np.float32)
        regions = g.constant(np.concatenate([first, _boxes(g, count, 4)], axis=1), plain=True)
        g.add("MaxRoiPool", [x, regions], pooled_shape=[2, 2], spatial_scale=g.among([None, 0.5]))
        return
    which = g.constant(np.zeros(count, np.int64), plain=True)
    attrs = {"mode": g.among([None, "max", "avg"]), "sampling_ratio": g.among([None, 2]), "output_height": 2}
    if g.opset >= 16:
        attrs["coordinate_transformation_mode"] = g.among([None, "half_pixel", "output_half_pixel"])
    g.add("RoiAlign", [x, g.constant(_boxes(g, count, 4)), which], output_width=g.among([1, 2]), **attrs)


def _suppressed(g: Growing) -> None:
    """The boxes that others do not cover, of scores that the model makes or of constant ones."""
    count = g.integer(2, 5)
    boxes = g.constant(_boxes(g, count, 4)[None])
    fitting = [v for v in g.values if v.dtype == np.float32 and v.rank == 3 and v.shape[0] == 1]
    scores = fitting[-1] if fitting else g.input(np.float32, [1, g.among([1, 2]), count])
    limits = [g.constant(np.array([n], np.int64)) for n in (g.integer(1, 3),)]
    shares = [g.constant(np.array([s], np.float32)) for s in (0.5, 0.1)]
    g.add(
        "NonMaxSuppression", [boxes, scores, *limits, *shares[: g.integer(0, 2)]], center_point_box=g.among([None, 1])
    )


def _blocks(g: Growing) -> None:
    """Columns put back into an image."""
    channels = g.integer(1, 2)
    x = g.input(np.float32, [g.among([1, 2, "n"]), channels * 4, 4])
    attrs = {"pads": g.among([None, [0, 0, 0, 0]]), "strides": [1, 1]}
    g.add("Col2Im", [x, g.integers([3, 3]), g.integers([2, 2])], **attrs)


def _deformed(g: Growing) -> None:
    x = g.input(np.float32, [g.among([1, 2]), 2, 4, 4])
    offsets = g.constant(g.rng.normal(size=(x.shape[0], 8, 3, 3)).astype(np.float32))
    more = [weight(g, x, 3)] if g.flip() else []
    g.add("DeformConv", [x, weight(g, x, 3, 2, 2, 2), offsets, *more], kernel_shape=[2, 2])


def _unpooled(g: Growing) -> None:
    """The greatest of each window, and put back to where they were."""
    x = _image(g, 1, 2)
    pooled, places = g.add("MaxPool", [x], 2, kernel_shape=[2, 2], strides=[2, 2])
    g.add("MaxUnpool", [pooled, places], kernel_shape=[2, 2], strides=[2, 2])


def _determinant(g: Growing) -> None:
    size = g.integer(1, 3)
    fitting = [v for v in g.values if v.kind == "f" and v.rank >= 2 and v.dims[-1] == v.dims[-2]]
    g.add("Det", [fitting[-1] if fitting else g.input(np.float32, [*g.dims(g.integer(0, 1)), size, size])])


STEPS: Mapping[Step, float] = {
    _grid: 2, _regions: 1.5, _suppressed: 1, _blocks: 1, _deformed: 1, _unpooled: 1, _determinant: 1,
}  # fmt: skip
