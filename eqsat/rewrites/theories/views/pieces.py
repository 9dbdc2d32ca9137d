"""Views of several operands: boxes of a result that are strided maps of operands, and one number for all the rest.

An axis of a view is a list of digits, each with a size: an index along the axis is written in the mixed radix of these
sizes. A piece is a box of digits, with a stride through its operand for each. Transposes reorder axes, reshapes regroup
digits, slices cut boxes, expands have digits of stride 0, pads and concatenations move boxes along an axis. Sizes,
bounds and strides are polynomials of dims, and what is said of them holds for every size: where the dims decide, there
is no such form.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from eqsat.language.declaration.symbolic import at_least
from eqsat.language.terms.dims import Dim, polynomial_quotient, product
from eqsat.rewrites.theories.contractions import UnreadError
from eqsat.rewrites.theories.views.boxes import ViewPiece, shifted, united
from eqsat.rewrites.theories.views.extents import Extent, merged, met, ranges_of, refinement, taken_apart

#: The most pieces of one form.
_MOST_PIECES = 24


@dataclass(frozen=True)
class PiecewiseView:
    """The sizes of the digits of each axis, pieces that do not overlap, and the number that fills the rest, if any.

    `rest` is None only where pieces cover the whole. Digits and pieces are merged where two are as one, so that equal
    views of fixed sizes are written alike.
    """

    axes: tuple[tuple[Dim, ...], ...]
    pieces: tuple[ViewPiece, ...]
    rest: float | None = None

    @staticmethod
    def of_operand(name: str, shape: Sequence[Dim]) -> PiecewiseView:
        """An operand as it is, in row-major order."""
        if 0 in shape:
            raise UnreadError
        extents = [(0, size, product(shape[place + 1 :])) for place, size in enumerate(shape)]
        return PiecewiseView(tuple((n,) for n in shape), (ViewPiece(name, 0, tuple(extents)),)).normalised()

    @staticmethod
    def of_number(number: float, shape: Sequence[Dim]) -> PiecewiseView:
        """One number everywhere."""
        if 0 in shape:
            raise UnreadError
        return PiecewiseView(tuple((n,) for n in shape), (), _said(number)).normalised()

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The sizes of the axes."""
        return tuple(map(product, self.axes))

    @property
    def sizes(self) -> tuple[Dim, ...]:
        """The sizes of all digits."""
        return tuple(itertools.chain(*self.axes))

    def places(self, axis: int) -> range:
        """Where the digits of an axis stand among all."""
        begun = sum(map(len, self.axes[:axis]))
        return range(begun, begun + len(self.axes[axis]))

    def mapped(self, function: Callable[[str], str]) -> PiecewiseView:
        """The view with other operands in the place of these."""
        return self._with(self.axes, (replace(one, operand=function(one.operand)) for one in self.pieces))

    def transposed(self, perm: Sequence[int]) -> PiecewiseView:
        """The view with its axes in another order."""
        if sorted(perm) != list(range(len(self.axes))):
            raise UnreadError
        order = [place for axis in perm for place in self.places(axis)]
        return self._with(
            (self.axes[axis] for axis in perm),
            (replace(one, extents=tuple(one.extents[place] for place in order)) for one in self.pieces),
        )

    def flattened(self) -> PiecewiseView:
        """The view with all its digits in one axis."""
        return replace(self, axes=(self.sizes,)).normalised()

    def reshaped(self, shape: Sequence[Dim]) -> PiecewiseView:
        """The view with its digits in other groups, taken apart where a size ends within one."""
        flat = self.flattened()
        left, counts = len(flat.sizes), list[int]()
        for wanted in reversed(shape):
            begun = left
            while wanted != 1:
                if not left or wanted == 0:
                    raise UnreadError
                left -= 1
                size = flat.sizes[left]
                rest, outer = polynomial_quotient(wanted, size), polynomial_quotient(size, wanted)
                if rest is not None:
                    wanted = rest
                elif outer is not None:
                    flat = flat.split(left, wanted)
                    left, begun, wanted = left + 1, begun + 1, 1
                else:
                    raise UnreadError
            counts.insert(0, begun - left)
        if left:
            raise UnreadError
        return flat.regrouped(counts).normalised()

    def regrouped(self, counts: Sequence[int]) -> PiecewiseView:
        """The view with so many of its digits in each axis."""
        ends = list(itertools.accumulate(counts))
        return replace(self, axes=tuple(self.sizes[end - n : end] for end, n in zip(ends, counts, strict=True)))

    def expanded(self, shape: Sequence[Dim]) -> PiecewiseView:
        """The view with axes of size 1 repeated, and with more axes before."""
        if len(shape) < len(self.axes) or 0 in shape:
            raise UnreadError
        view = replace(self, axes=((),) * (len(shape) - len(self.axes)) + self.axes)
        for axis, wanted in enumerate(shape):
            if not view.axes[axis]:
                view = view._with_digits(axis, 0, [wanted])
            elif wanted not in (1, product(view.axes[axis])):
                raise UnreadError
        return view.normalised()

    def tiled(self, repeats: Sequence[Dim]) -> PiecewiseView:
        """The view with its axes repeated as a whole."""
        if len(repeats) != len(self.axes) or 0 in repeats:
            raise UnreadError
        view = self
        for axis, count in enumerate(repeats):
            view = view._with_digits(axis, 0, [count])
        return view.normalised()

    def sliced(self, axis: int, start: Dim, count: Dim, step: int = 1) -> PiecewiseView:
        """The view of some places along an axis, all of which there are."""
        if not self.axes[axis] and (start, count) != (0, 1):
            raise UnreadError
        view, begun = self, self.places(axis).start
        for place, (first, many, by) in enumerate(ranges_of(self.axes[axis], start, count, step)):
            view = view._walked(begun + place, first, [(many, by)])
        return view.normalised()

    def padded(self, pads: Sequence[Dim], number: float) -> PiecewiseView:
        """The view with so much of a number before each axis, then behind each; what is negative is cut off."""
        view, rank = self, len(self.axes)
        if len(pads) != 2 * rank:
            raise UnreadError
        for axis, (before, behind) in enumerate(zip(pads[:rank], pads[rank:], strict=True)):
            if before == behind == 0:
                continue
            off = [-n if at_least(0, n) else 0 for n in (before, behind)]
            if off != [0, 0]:
                left = view.shape[axis] - off[0] - off[1]
                if not at_least(left, 1):
                    raise UnreadError
                view = view.sliced(axis, off[0], left)
            more = before + off[0], behind + off[1]
            if more == (0, 0):
                continue
            if not all(at_least(n, 0) for n in more) or view.rest not in (None, _said(number)):
                raise UnreadError
            view = replace(view._moved(axis, *more), rest=_said(number))
        return view.normalised()

    @staticmethod
    def aligned(views: Sequence[PiecewiseView], axis: int = -1) -> Sequence[PiecewiseView]:
        """Views of one shape with the same digits; along an axis sizes may differ, and so may its first digit."""
        for place in range(len(views[0].axes)):
            along = place == axis
            inner = refinement([view.axes[place][along:] for view in views if view.axes[place][along:] or not along])
            views = [view._refined(place, inner, along=along) for view in views]
        return views

    @staticmethod
    def joined(views: Sequence[PiecewiseView], axis: int) -> PiecewiseView:
        """Views one after the other along an axis."""
        rests = {view.rest for view in views if view.rest is not None}
        if len(rests) > 1 or len({len(view.axes) for view in views}) != 1:
            raise UnreadError
        views = PiecewiseView.aligned(views, axis)
        digit = views[0].places(axis)[0]
        total: Dim = 0
        pieces: list[ViewPiece] = []
        for view in views:
            pieces += (shifted(one, digit, total) for one in view.pieces)
            total = total + view.axes[axis][0]
        axes = (*views[0].axes[:axis], (total, *views[0].axes[axis][1:]), *views[0].axes[axis + 1 :])
        return PiecewiseView(axes, tuple(pieces), next(iter(rests), None)).normalised()

    def gathered(self, axis: int, start: int, indices: Sequence[Sequence[tuple[Dim, Dim]]]) -> PiecewiseView:
        """The view of what indices along an axis choose: the first, and for each of their axes sizes and strides."""
        known = [digit for its in indices for digit in its]
        own, left = self.places(axis), start
        moved: dict[int, tuple[int, int]] = {}
        view, block = self, product(self.axes[axis])
        if not isinstance(block, int):
            raise UnreadError
        chosen: list[tuple[int, list[int]]] = []
        for place in own:
            size = self.sizes[place]
            assert isinstance(size, int)
            block //= size
            first, left = divmod(left, block)
            lowest = highest = first
            for number, (count, stride) in enumerate(known):
                step = polynomial_quotient(stride, block)
                if number not in moved and isinstance(step, int) and isinstance(count, int):
                    moved[number] = place, step
                    lowest, highest = lowest + min(0, (count - 1) * step), highest + max(0, (count - 1) * step)
            # Two digits may be equal, and each adds to a place.
            if lowest < 0 or highest >= size:
                raise UnreadError
            chosen.append((first, [number for number in moved if moved[number][0] == place]))
        if left or len(moved) < len(known):
            raise UnreadError
        for place, (first, numbers) in reversed([*zip(own, chosen, strict=True)]):
            view = view._walked(place, first, [(known[number][0], moved[number][1]) for number in numbers])
        # What moved a digit of the axis stands in its order; put it in the order of the indices.
        order = [number for _, numbers in chosen for number in numbers]
        begun = own.start
        spots = [*range(begun), *(begun + order.index(number) for number in range(len(known)))]
        spots += range(begun + len(known), len(view.sizes))
        counts = [*map(len, self.axes[:axis]), *map(len, indices), *map(len, self.axes[axis + 1 :])]
        view = replace(
            view,
            axes=(tuple(view.sizes[spot] for spot in spots),),
            pieces=tuple(replace(one, extents=tuple(one.extents[s] for s in spots)) for one in view.pieces),
        )
        return view.regrouped(counts).normalised()

    def split(self, place: int, inner: Dim) -> PiecewiseView:
        """The view with a digit taken apart in two, the second of a size that divides it; pieces are cut as needed."""
        outer = polynomial_quotient(self.sizes[place], inner)
        if outer is None:
            raise UnreadError
        pieces = []
        for one in self.pieces:
            start, _, stride = one.extents[place]
            for begun, pair in taken_apart(one.extents[place], inner):
                extents = (*one.extents[:place], *pair, *one.extents[place + 1 :])
                pieces.append(ViewPiece(one.operand, one.offset + stride * (begun - start), extents))
        if len(pieces) > _MOST_PIECES:
            raise UnreadError
        return self._with(self._digits_at(place, [outer, inner]), pieces, normal=False)

    def normalised(self) -> PiecewiseView:
        """The view with digits and pieces merged."""
        if len(self.pieces) > _MOST_PIECES:
            raise UnreadError
        view = self._without_units()
        while True:
            before = view
            view = replace(view, pieces=united(view.pieces))
            view = view._with_merged_digits()
            if view == before:
                view = view._with_fewer_pieces()
            if view == before:
                break
        total: Dim = sum((one.size for one in view.pieces), start=0)
        rest = None if total == product(view.sizes) else view.rest
        return replace(view, pieces=tuple(sorted(view.pieces, key=repr)), rest=rest)

    def _with(
        self, axes: Iterable[tuple[Dim, ...]], pieces: Iterable[ViewPiece], *, normal: bool = True
    ) -> PiecewiseView:
        found = replace(self, axes=tuple(axes), pieces=tuple(pieces))
        return found.normalised() if normal else found

    def _digits_at(self, place: int, sizes: Sequence[Dim]) -> list[tuple[Dim, ...]]:
        """The axes with other digits in the place of one."""
        found, begun = list(self.axes), 0
        for axis, digits in enumerate(self.axes):
            if begun <= place < begun + len(digits):
                at = place - begun
                found[axis] = (*digits[:at], *sizes, *digits[at + 1 :])
            begun += len(digits)
        return found

    def _with_digits(self, axis: int, at: int, sizes: Sequence[Dim]) -> PiecewiseView:
        """The view with more digits in an axis, along which pieces are repeated."""
        place = self.places(axis).start + at
        extents: list[Extent] = [(0, size, 0) for size in sizes]
        digits = self.axes[axis]
        return self._with(
            (*self.axes[:axis], (*digits[:at], *sizes, *digits[at:]), *self.axes[axis + 1 :]),
            (replace(one, extents=(*one.extents[:place], *extents, *one.extents[place:])) for one in self.pieces),
            normal=False,
        )

    def _walked(self, place: int, start: Dim, moves: Sequence[tuple[Dim, int]]) -> PiecewiseView:
        """The view with a digit replaced by others, as sizes and steps, that move along it from a place on."""
        size, pieces = self.sizes[place], []
        for one in self.pieces:
            extent = one.extents[place]
            if extent[:2] == (0, size):
                offset = extent[2] * start
                extents: list[Extent] = [(0, count, extent[2] * step) for count, step in moves]
            elif len(moves) > 1:
                raise UnreadError
            else:
                part = met(extent, start, *(moves[0] if moves else (1, 1)))
                if part is None:
                    continue
                if not moves and part[1][1] != 1:
                    raise UnreadError
                offset, extents = part[0], [part[1]][: len(moves)]
            all_extents = (*one.extents[:place], *extents, *one.extents[place + 1 :])
            pieces.append(ViewPiece(one.operand, one.offset + offset, all_extents))
        return self._with(self._digits_at(place, [count for count, _ in moves]), pieces, normal=False)

    def _moved(self, axis: int, before: Dim, behind: Dim) -> PiecewiseView:
        """The view with more places before an axis and behind it, which nothing fills."""
        view = self if self.axes[axis] else self._with_digits(axis, 0, [1])
        inner = product(view.axes[axis][1:])
        shift, more = polynomial_quotient(before, inner), polynomial_quotient(before + behind, inner)
        if shift is None or more is None:
            raise UnreadError
        place = view.places(axis).start
        sizes = view._digits_at(place, [view.sizes[place] + more])
        return view._with(sizes, (shifted(one, place, shift) for one in view.pieces), normal=False)

    def _refined(self, axis: int, inner: Sequence[Dim], *, along: bool) -> PiecewiseView:
        """The view with these digits in an axis, and one before them if views are joined along it."""
        view, at = self, len(self.axes[axis])
        for wanted in reversed(inner):
            at -= 1
            if at < 0:
                raise UnreadError
            if view.axes[axis][at] != wanted:
                view = view.split(view.places(axis).start + at, wanted)
                at += 1
        if along and at == 0:
            return view._with_digits(axis, 0, [1])
        if at != along:
            raise UnreadError
        return view

    def _without_units(self) -> PiecewiseView:
        """The view without digits of size 1 and empty pieces; strides of single elements are 0."""
        kept = [place for place, size in enumerate(self.sizes) if size != 1]
        axes = tuple(tuple(size for size in axis if size != 1) for axis in self.axes)
        pieces = []
        for one in self.pieces:
            extents = tuple(one.extents[place] for place in kept)
            if all(count != 0 for _, count, _ in one.extents):
                pieces.append(replace(one, extents=tuple((s, n, 0 if n == 1 else t) for s, n, t in extents)))
        return self._with(axes, pieces, normal=False)

    def _with_fewer_pieces(self) -> PiecewiseView:
        """The view with a digit taken apart where pieces end, if some then go on as one: parts that are interleaved."""
        for place, size in enumerate(self.sizes) if len(self.pieces) > 1 else ():
            bounds = [n for one in self.pieces for n in (*one.extents[place][:2], size)]
            inner = math.gcd(*(n for n in bounds if isinstance(n, int)))
            if 1 < inner != size and all(isinstance(n, int) for n in bounds):
                view = self.split(place, inner)
                pieces = united(view.pieces)
                if len(pieces) < len(self.pieces):
                    return replace(view, pieces=pieces)
        return self

    def _with_merged_digits(self) -> PiecewiseView:
        """The view with one digit for neighbours of an axis where every piece moves as one along these."""
        axes = [list(axis) for axis in self.axes]
        extents = [list(one.extents) for one in self.pieces]
        begun = 0
        for digits in axes:
            place = 0
            while place + 1 < len(digits):
                at, size = begun + place, digits[place + 1]
                found = [merged(one[at], one[at + 1], size) for one in extents]
                if None in found:
                    place += 1
                    continue
                digits[place : place + 2] = [digits[place] * size]
                for one, extent in zip(extents, found, strict=True):
                    one[at : at + 2] = [extent] if extent else []
            begun += len(digits)
        pieces = (replace(one, extents=tuple(its)) for one, its in zip(self.pieces, extents, strict=True))
        return self._with(map(tuple, axes), pieces, normal=False)


def _said(number: float) -> float:
    """A number that fills a view; UnreadError for one that is equal to another, or not to itself."""
    if number != number or (number == 0 and math.copysign(1, number) < 0):
        raise UnreadError
    return number
