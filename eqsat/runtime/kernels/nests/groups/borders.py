"""Values with a border around them, whole or plane by plane."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, Coords
from eqsat.runtime.kernels.expressions.expression import Expr, UnsupportedError, computed
from eqsat.runtime.kernels.nests.extents import fixed
from eqsat.runtime.kernels.nests.groups.statements import GroupStatements


def padded(body: GroupStatements, name: str, pads: Sequence[int], value: Expr, lead: int = 2, into: str = "") -> str:
    """A buffer with a value that has a border, made new or `into` a known one; the value itself where there is none.

    `pads` are those before, then after each axis that follows the first `lead`.
    """
    shape = body.shape(name)
    spatial = len(shape) - lead
    if not any(pads) and not into:
        return body.in_memory(name)
    if min(pads, default=0) < 0:
        raise UnsupportedError("borders that are cut off")
    whole = (*shape[:lead], *(n + pads[i] + pads[spatial + i] for i, n in enumerate(shape[lead:])))
    buffer = into or body.temporary(computed(body.group.types[name].dtype), whole)
    _border(body, buffer, shape, pads, value, lead)
    starts = (*(0 for _ in range(lead)), *pads[:spatial])
    body.fill(buffer, lambda at, _: body.value(name, at), sizes=shape, place=_moved(starts))
    return buffer


def _border(
    body: GroupStatements, buffer: str, shape: Sequence[int], pads: Sequence[int], value: Expr, lead: int
) -> None:
    """Fill what lies around a box of a shape: per axis, as long as the box is along earlier axes."""
    extents, spatial = tuple(map(fixed, body.buffers[buffer].shape)), len(shape) - lead
    for axis in range(spatial):
        for begin, size in ((0, pads[axis]), (extents[lead + axis] - pads[spatial + axis], pads[spatial + axis])):
            if size:
                at = [0] * len(extents)
                box = list(extents)
                for earlier in range(axis):
                    at[lead + earlier], box[lead + earlier] = pads[earlier], shape[lead + earlier]
                at[lead + axis], box[lead + axis] = begin, size
                body.fill(buffer, lambda at, _: value, sizes=box, place=_moved(at))


@contextmanager
def planes(
    body: GroupStatements, name: str, pads: Sequence[int], value: Expr
) -> Iterator[tuple[AffineIndex, AffineIndex, Callable[[Coords], Expr]]]:
    """A loop over the planes of images, one channel after the other: image, channel, and elements of the padded plane.

    What lies around planes is filled once, before the loop.
    """
    images, channels, *sizes = body.shape(name)
    dtype = computed(body.group.types[name].dtype)
    buffer = ""
    if any(pads):
        if min(pads) < 0:
            raise UnsupportedError("borders that are cut off")
        spatial = len(sizes)
        buffer = body.temporary(dtype, [n + pads[i] + pads[spatial + i] for i, n in enumerate(sizes)])
        _border(body, buffer, sizes, pads, value, 0)
    with body.repeated(images * channels) as plane:
        image, channel = plane // channels, plane % channels
        if buffer:
            body.fill(
                buffer,
                lambda at, _: body.value(name, (image, channel, *at)),
                sizes=sizes,
                place=_moved(pads[: len(sizes)]),
            )
            yield image, channel, lambda at: body.read(buffer, at)
        else:
            yield image, channel, lambda at: body.value(name, (image, channel, *at))


def _moved(starts: Sequence[int]) -> Callable[[Coords], Coords]:
    """Coordinates from others that are counted from a start."""
    return lambda at: tuple(i + start for i, start in zip(at, starts, strict=True))
