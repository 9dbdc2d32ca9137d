"""Conditions that operators put on the named dims of their operands, read from dims and attributes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eqsat.language.terms import Attrs, Constraint, Dim, Shape, Sym, product
from eqsat.language.terms.constraint import extends


def as_many(operands: Sequence[Shape], result: Shape, attrs: Attrs) -> Iterator[Constraint]:
    """As many elements as there are."""
    yield Constraint("equal", product(operands[0]), product(attrs["shape"]))


def parts(operands: Sequence[Shape], result: Shape, attrs: Attrs) -> Iterator[Constraint]:
    """Sizes that add up to the axis."""
    total: Dim = 0
    for size in attrs["sizes"]:
        total = total + size
    yield Constraint("equal", operands[0][attrs["axis"]], total)


def joined(operands: Sequence[Shape], result: Shape, attrs: Attrs) -> Iterator[Constraint]:
    """Dims that agree but along the axis."""
    axis = attrs["axis"] % len(result)
    for shape in operands:
        for at, (a, b) in enumerate(zip(shape, result, strict=True)):
            if at != axis:
                yield Constraint("equal", a, b)


def product_dims(operands: Sequence[Shape], result: Shape, attrs: Attrs) -> Iterator[Constraint]:
    """Inner dims that agree, and leading dims that broadcast."""
    a, b = operands[:2]
    if attrs.get("trans_a"):
        a = a[::-1]
    if attrs.get("trans_b"):
        b = b[::-1]
    yield Constraint("equal", a[-1], b[0] if len(b) == 1 else b[-2])
    batch = result[: max(len(a), len(b)) - 2]
    yield from extends(a[:-2], batch)
    yield from extends(b[:-2], batch)
    if len(operands) > 2:
        yield from extends(operands[2], result)


def channels(operands: Sequence[Shape], result: Shape, attrs: Attrs) -> Iterator[Constraint]:
    """Channels for every group, and a place for a window at least."""
    yield Constraint("equal", operands[0][1], operands[1][1] * attrs["group"])
    yield from windows(operands, result, attrs)


def repeated(operands: Sequence[Shape], result: Shape, attrs: Attrs) -> Iterator[Constraint]:
    """Dims that are repeated to the result."""
    yield from extends(operands[0], result)
    yield from extends(attrs["shape"], result)


def bounds_from_left(operands: Sequence[Shape], result: Shape, attrs: Attrs) -> Iterator[Constraint]:
    """Bounds that are computed count from the left; below 0 they would count from the right when the model runs."""
    steps = attrs["steps"] or (1,) * len(attrs["axes"])
    for start, end, step in zip(attrs["starts"], attrs["ends"], steps, strict=True):
        yield Constraint("at_least", start, 0)
        if step > 0:
            yield Constraint("at_least", end, 0)


def mirrored(operands: Sequence[Shape], result: Shape, attrs: Attrs) -> Iterator[Constraint]:
    """Dims wide enough to be mirrored into a border."""
    rank = len(result)
    if attrs["mode"] != "reflect":
        return
    for axis, dim in enumerate(operands[0]):
        for pad in (attrs["pads"][axis], attrs["pads"][rank + axis]):
            if pad != 0:
                yield Constraint("at_least", dim, pad + 1)


def enough(operands: Sequence[Shape], result: Shape, attrs: Attrs) -> Iterator[Constraint]:
    """As many elements along the axis as are taken."""
    axis = attrs.get("axis", -1) % len(result)
    yield Constraint("at_least", operands[0][axis], result[axis])


def as_many_after(operands: Sequence[Shape], result: Shape, attrs: Attrs) -> Iterator[Constraint]:
    """As many elements after as before, which is what blocks that must divide the axes come to."""
    yield Constraint("equal", product(operands[0]), product(result))


def trailing(operands: Sequence[Shape], result: Shape, attrs: Attrs) -> Iterator[Constraint]:
    """Parameters that are repeated to the last axes."""
    for shape in operands[1:]:
        yield from extends(shape, result)


def cached(operands: Sequence[Shape], result: Shape, attrs: Attrs) -> Iterator[Constraint]:
    """A cache grows by the new positions or has room for them; after earlier ones, several are new in one sequence."""
    batch, length, total = *operands[0][:2], attrs["total"]
    past = operands[4][2] if len(operands) > 4 and operands[4] else 0
    yield Constraint("at_least", total, length)
    yield Constraint("grows", total - past, length)
    yield Constraint("equal", (batch - 1) * (length - 1) * (total - length), 0)


def windows(operands: Sequence[Shape], result: Shape, attrs: Attrs) -> Iterator[Constraint]:
    """A place for a window at least, along every axis: no result has room for one that does not fit."""
    yield from (Constraint("at_least", d, 1) for d in result[2:] if isinstance(d, Sym))
