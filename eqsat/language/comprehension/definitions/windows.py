"""Sums and extremes over windows: convolutions and pools, recognised by how their indices subscript what they read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

from eqsat.language.comprehension.definitions.parts import AxedTerm, tuple_of
from eqsat.language.comprehension.definitions.sources import AffineSubscript, Numbers, TensorRead, is_plain
from eqsat.language.comprehension.definitions.statement import StatementContext
from eqsat.language.terms.dims import floordiv

#: The most axes that windows slide along, and the least number of trials with windows.
_MOST, _LEAST = 3, 4


@dataclass(frozen=True)
class SlidingWindow:
    """Windows along one axis: the index that they are counted by, the one inside them, strides and dilations.

    Strides and dilations are numbers in each trial.
    """

    place: str
    offset: str
    strides: Numbers
    dilations: Numbers


@dataclass(frozen=True)
class WindowedImage:
    """A source that windows slide over: the indices of its axes, those with a window by the index of its place."""

    part: AxedTerm
    windows: tuple[SlidingWindow, ...]

    @property
    def plain(self) -> tuple[str, ...]:
        """The indices that walk an axis as it stands."""
        places = [one.place for one in self.windows]
        return tuple(index for index in self.part.named if index not in places)


def image_of(statement: StatementContext, source: TensorRead) -> WindowedImage | None:
    """A source as an image with windows, all of which fit into it; None where it is none, or has no window."""
    windows: list[SlidingWindow] = []
    names: dict[str, str] = {}
    for axis, subscript in source.subscripts.items():
        if axis not in source.part.axes:
            return None  # it is the same all along it
        if is_plain(statement, subscript):
            names[axis] = subscript.names[0]
            continue
        window = _window(statement, subscript)
        if window is None:
            return None
        windows.append(window)
        names[axis] = window.place
    used = [*names.values(), *(one.offset for one in windows)]
    if not windows or len(windows) > _MOST or len(set(used)) < len(used):
        return None
    part = source.part.renamed(lambda axis: names[axis])
    return WindowedImage(part.reshaped(part.named), tuple(sorted(windows, key=lambda one: part.axes.index(one.place))))


def _window(statement: StatementContext, subscript: AffineSubscript) -> SlidingWindow | None:
    """The windows along an axis: as many as fit, each from its place on."""
    indices, reduced = statement.one.indices, statement.one.reduced
    if len(subscript.names) != 2 or any(subscript.constants):
        return None
    for place, offset in permutations(subscript.names):
        if place not in indices or offset not in reduced:
            continue
        strides, dilations = subscript.factors(place), subscript.factors(offset)
        each = zip(
            statement.ranges(place), statement.ranges(offset), strides, dilations, subscript.extents, strict=True
        )
        # Strides and dilations that a caller passes may be less than 1, of which no operator makes windows either.
        fits = [
            here == (0, (extent - dilation * (inner[1] - 1) - 1) // stride + 1) and inner[0] == 0
            for here, inner, stride, dilation, extent in each
            if stride > 0 and dilation > 0
        ]
        is_one = all(fits) and len(fits) >= _LEAST and _fits(statement, subscript, place, offset)
        return SlidingWindow(place, offset, strides, dilations) if is_one else None
    return None


def _fits(statement: StatementContext, subscript: AffineSubscript, place: str, offset: str) -> bool:
    """True where the formulas of ranges, if there are some, say that windows are as many as fit."""
    if statement.symbolic is None:
        return not {place, offset} & {*statement.one.ranges} - {*statement.plain_ranges}
    here, inner = statement.symbolic_range(place), statement.symbolic_range(offset)
    whole, size = subscript.whole, subscript.size
    if whole is None or size is None or here is None or inner is None or inner[0] != 0:
        return False
    stride, dilation = whole.factors[place], whole.factors[offset]
    return here == (0, floordiv(size - dilation * (inner[1] - 1) - 1, stride) + 1)


def _require_fit(statement: StatementContext, part: AxedTerm, window: SlidingWindow) -> None:
    """Let a definition hold where a window fits into its axis, and strides and dilations are such."""
    for numbers in (window.strides, window.dilations):
        text = statement.text_of(numbers, None)
        if not text.isdecimal():
            statement.require(f"{text} > 0")
    count = statement.count_text(window.offset)
    if not count.isdecimal():
        statement.require(f"{count} > 0")
    if statement.symbolic_range(window.place) is None:
        dilation = statement.text_of(window.dilations, None)
        statement.require(f"{part.extent(window.place)} > {dilation} * ({count} - 1)")


def _attributes(statement: StatementContext, image: WindowedImage) -> str:
    """The strides and dilations of windows, as they are written in a call, which asks that they fit."""
    windows = image.windows
    for window in windows:
        _require_fit(statement, image.part, window)
    strides = tuple_of(statement.text_of(one.strides, None) for one in windows)
    dilations = tuple_of(statement.text_of(one.dilations, None) for one in windows)
    return f"strides={strides}, dilations={dilations}"


def convolution(statement: StatementContext, data: TensorRead, weights: Callable[[], AxedTerm]) -> AxedTerm | None:
    """The sum of products of windows of a tensor with weights; None where it is no convolution."""
    image = image_of(statement, data)
    return None if image is None else _convolved(statement, image, statement.bare(weights()))


def _convolved(statement: StatementContext, image: WindowedImage, filters: AxedTerm) -> AxedTerm | None:
    indices, reduced = statement.one.indices, statement.one.reduced
    offsets = [one.offset for one in image.windows]
    places = [one.place for one in image.windows]
    batch = [one for one in image.plain if one in indices and one not in filters.axes]
    groups = [one for one in image.plain if one in indices and one in filters.axes]
    channels = [one for one in image.plain if one in reduced and one in filters.axes]
    made = [one for one in filters.axes if one not in (*groups, *channels, *offsets)]
    if len(batch) + len(groups) + len(channels) < len(image.plain) or not {*offsets} <= {*filters.axes}:
        return None
    if {*batch, *groups, *made, *places} != {*indices} or {*channels, *offsets} != {*reduced} or {*made} & {*places}:
        return None
    data = merged(statement, image.part, (batch, [*groups, *channels]), places)
    weights = merged(statement, filters, ([*groups, *made], channels), offsets)
    group = product_text(filters.extent(one) for one in groups)
    grouped = f", group={group}" if groups else ""
    text = f"conv({data}, {weights}, {_attributes(statement, image)}{grouped})"
    return parted(statement, text, ((batch, image.part), ([*groups, *made], filters)), places)


def pooled(statement: StatementContext, source: TensorRead, reduction: str) -> AxedTerm | None:
    """The sum, the largest or the smallest element of each window of a tensor; None where there are other indices."""
    image = image_of(statement, source)
    if image is None:
        return None
    indices, places = statement.one.indices, [one.place for one in image.windows]
    if {*image.plain, *places} != {*indices} or {*statement.one.reduced} != {one.offset for one in image.windows}:
        return None
    counts = [tuple(high - low for low, high in statement.ranges(one.offset)) for one in image.windows]
    kernel = tuple_of(statement.text_of(one, None) for one in counts)
    first, second = (list(image.plain[:1]), list(image.plain[1:]))
    data = merged(statement, image.part, (first, second), places)
    given = f"kernel={kernel}, {_attributes(statement, image)}"
    if reduction == "+":
        count = product_text(statement.text_of(one, None) for one in counts)
        size = f"fill(shape=(), value={count}, dtype=dtype({data}))"
        text = f"mul(avg_pool({data}, {given}), {size})"
    else:
        text = f"max_pool({data}, {given})" if reduction == "max" else f"neg(max_pool(neg({data}), {given}))"
    return parted(statement, text, ((first, image.part), (second, image.part)), places)


def product_text(factors: Iterator[str]) -> str:
    """A product of expressions, as an expression."""
    return " * ".join(factors) or "1"


def merged(
    statement: StatementContext, part: AxedTerm, leading: tuple[Sequence[str], Sequence[str]], spatial: Sequence[str]
) -> str:
    """A term with two axes, each of the indices given, before those that windows slide along."""
    part = statement.shared(part)
    turned = part.turned([*leading[0], *leading[1], *spatial])
    if len(leading[0]) == len(leading[1]) == 1:
        return statement.named(turned.text)
    turned = statement.shared(turned)
    dims = [product_text(turned.extent(one) for one in group) for group in leading]
    return statement.named(f"reshape({turned.text}, shape={tuple_of([*dims, *map(turned.extent, spatial)])})")


def parted(
    statement: StatementContext, text: str, leading: Sequence[tuple[Sequence[str], AxedTerm]], spatial: Sequence[str]
) -> AxedTerm:
    """A result with an axis for each index, of which two hold several, or none."""
    axes = (*leading[0][0], *leading[1][0], *spatial)
    if all(len(names) == 1 for names, _ in leading):
        return AxedTerm(text, axes)
    whole = statement.named(text)
    dims = [part.extent(name) for names, part in leading for name in names]
    dims += [f"dim({whole}, {2 + place})" for place in range(len(spatial))]
    return AxedTerm(f"reshape({whole}, shape={tuple_of(dims)})", axes)
