"""Frames: the axes of terms, told apart by the operands that have them and by where movements put them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

#: The movement that leaves out one axis, counted from the last one as -1, and the one that leaves out the first axis.
#: No set of axes has a name with a space, as in the movement that leaves out some.
_WITHOUT_END = "without the end "
_WITHOUT_FIRST = "without the first"

#: Products of matrices, or of a vector beside others.
PRODUCTS = frozenset({"matmul"})


class NotRemovable(Exception):  # noqa: N818 - nothing is wrong
    """Ends the search for axes that an instance may lose, with what is not known to bear it."""


class Untyped(NotRemovable):
    """Ends the search where operands of such ranks have no product."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The axes of a term: as many as the longest of some operands has, in the order in which movements left them.

    Operands are aligned at their last axes. `fixed` is a rank that conditions or operators do not let it exceed, and
    that it has where it is `exact`: of such a term no axis is ever lost.
    """

    longest: frozenset[str] = frozenset()
    moves: tuple[str, ...] = ()
    fixed: int | None = None
    exact: bool = False

    def moved(self, move: str) -> Frame:
        """The frame after one more movement."""
        return replace(self, moves=(*self.moves, move)) if self.fixed is None else self

    def without_end(self, place: int) -> Frame:
        """The frame without one axis, counted from the last one as -1; it has to have so many."""
        return self._shorter(f"{_WITHOUT_END}{place}")

    def without_first(self, count: int) -> Frame:
        """The frame without some first axes; it has to have so many."""
        return self if not count else self._shorter(_WITHOUT_FIRST).without_first(count - 1)

    def _shorter(self, move: str) -> Frame:
        if self.fixed is None:
            return self.moved(move)
        if self.fixed == 0 or not self.exact:
            raise NotRemovable("an axis less of what may have none")
        return replace(self, fixed=self.fixed - 1)

    @property
    def dropped(self) -> int | None:
        """The number of axes that movements left out; None where that is not known."""
        removals = [move for move in self.moves if move.startswith("without ")]
        known = [move for move in removals if move.startswith(_WITHOUT_END) or move == _WITHOUT_FIRST]
        return len(known) if known == removals else None

    @property
    def is_counted(self) -> bool:
        """True if movements added no axes of other operands."""
        return not any(move.startswith("gathered ") for move in self.moves)


#: The frame of tensors of one number.
SCALAR = Frame(fixed=0, exact=True)


@dataclass
class Frames:
    """Everything that is known of the frames of one rule, and the axes in them that an instance has to keep."""

    #: Pairs of operands, the first of which has no more axes than the second.
    below: set[tuple[str, str]] = field(default_factory=set)
    #: Names of axes that are kept, and how many are at the left end of a frame, and at the right of those moved alike.
    names: set[str] = field(default_factory=set)
    lefts: dict[Frame, int] = field(default_factory=dict)
    rights: dict[tuple[str, ...], int] = field(default_factory=dict)
    #: Movements that leave the last axes where those that they are given with do, and how many last ones.
    ends: dict[tuple[str, ...], tuple[tuple[str, ...], int]] = field(default_factory=dict)
    #: Statements that one axis is both at a place from the left and, before a movement, at another.
    shared: set[str] = field(default_factory=set)
    #: How many axes conditions ask frames to have at least, and the frames in which windows move.
    asked: set[tuple[Frame, int]] = field(default_factory=set)
    spaces: set[Frame] = field(default_factory=set)

    def equate(self, one: Frame, other: Frame) -> None:
        """Take two frames for the same: the left side has an operator that takes no others."""
        if one.fixed is None and other.fixed is None and one.moves == other.moves:
            for a in one.longest:
                for b in other.longest:
                    self.below |= {(a, b), (b, a)}

    def is_below(self, one: str, other: str) -> bool:
        """True if one operand has no more axes than another."""
        seen, todo = {one}, [one]
        while todo:
            here = todo.pop()
            for low, high in self.below:
                if low == here and high not in seen:
                    seen.add(high)
                    todo.append(high)
        return other in seen

    def plain(self, frame: Frame) -> Frame:
        """A frame without operands that are no longer than others in it, of those of one length the first by name."""
        if frame.fixed is not None:
            return Frame(fixed=frame.fixed, exact=frame.exact)
        longest = {
            name
            for name in frame.longest
            if not any(
                self.is_below(name, other) and (other < name or not self.is_below(other, name))
                for other in frame.longest - {name}
            )
        }
        same = {min((o for o in self._known() if self._is_like(name, o)), default=name) for name in longest}
        return Frame(frozenset(same), frame.moves)

    def _known(self) -> set[str]:
        return {name for pair in self.below for name in pair}

    def _is_like(self, one: str, other: str) -> bool:
        return self.is_below(one, other) and self.is_below(other, one)

    def is_within(self, inner: Frame, outer: Frame) -> bool:
        """True if a frame is known to have no more axes than another."""
        if inner.fixed == 0:
            return True
        longest = inner.longest if inner.moves == outer.moves else frozenset()
        return bool(longest) and all(any(self.is_below(one, of) for of in outer.longest) for one in longest)

    def is_same(self, one: Frame, other: Frame) -> bool:
        """True if two frames are known to be the same."""
        return self.plain(one) == self.plain(other) or (one.fixed is not None and other.fixed is not None)

    def join(self, frames: Iterable[Frame]) -> Frame:
        """The frame of what is broadcast together; NotRemovable where movements put the axes at other places."""
        found: Frame | None = None
        for frame in frames:
            if found is None:
                found = frame
                continue
            if found.fixed is not None and frame.fixed is not None:
                longer = max(found, frame, key=lambda one: (one.fixed or 0, one.exact))
                found = Frame(fixed=longer.fixed, exact=longer.exact)
                continue
            short, long = (found, frame) if found.fixed is not None else (frame, found)
            if short.fixed is not None:
                # No axis of a short one is lost, so that those of the other beside them are kept, too.
                self.keep_right(long, short.fixed)
                if self.is_within(short, long) or self.has_at_least(long, short.fixed):
                    found = long
                elif short.exact:
                    found = replace(long, longest=long.longest | {f"#{short.fixed}"})
                else:
                    raise NotRemovable("an operand that may be shorter or longer than another")
                continue
            if frame.longest == found.longest and _is_without_first(frame, found):
                continue
            if frame.longest == found.longest and _is_without_first(found, frame):
                found = frame
                continue
            if frame.moves != found.moves:
                raise NotRemovable("operands whose axes are moved in different ways are broadcast")
            found = replace(found, longest=found.longest | frame.longest)
        return SCALAR if found is None else self.plain(found)

    def product(self, frames: Sequence[Frame], name: str) -> Frame:
        """The frame of a product of two operands, each of which is a vector, or has at least two axes.

        A vector has no row, or no column, and neither has the product. Untyped where an operand is a number.
        """
        if any(frame.fixed == 0 for frame in frames):
            raise Untyped(name)
        are_vectors = [frame.exact and frame.fixed == 1 for frame in frames]
        if not all(is_one or self.has_at_least(frame, 2) for is_one, frame in zip(are_vectors, frames, strict=True)):
            raise NotRemovable(f"{name} of operands that may have fewer axes")
        matrices = [frame for is_one, frame in zip(are_vectors, frames, strict=True) if not is_one]
        if not matrices:
            return SCALAR
        joined = self.join(matrices)
        self.keep_right(joined, 2)
        if len(matrices) == 2:
            return joined
        return joined.without_end(-2 if are_vectors[0] else -1)

    def keep(self, name: str) -> None:
        """Keep the axis that an attribute names."""
        self.names.add(name)

    def keep_left(self, frame: Frame, count: int) -> None:
        """Keep the first axes of a frame."""
        if frame.fixed is None:
            plain = self.plain(frame)
            self.lefts[plain] = max(self.lefts.get(plain, 0), count)

    def keep_right(self, frame: Frame, count: int) -> None:
        """Keep the last axes of all frames that are moved like one."""
        if frame.fixed is None:
            self.rights[frame.moves] = max(self.rights.get(frame.moves, 0), count)

    def ask(self, frame: Frame, least: int) -> None:
        """Leave a frame so many axes."""
        if frame.fixed is None:
            self.asked.add((frame, least))

    def has_at_least(self, frame: Frame, count: int) -> bool:
        """True if all terms of a frame have so many axes."""
        if frame.fixed is not None:
            return frame.exact and frame.fixed >= count
        if frame.dropped is None or not frame.is_counted:
            return False
        return any(self.is_below(f"#{count + frame.dropped}", name) for name in frame.longest)

    @property
    def kept(self) -> int:
        """The most axes that are kept of one operand; one that windows move along is left, where there is any."""
        spaces = {self.plain(frame) for frame in self.spaces}
        lefts: dict[Frame, int] = {}
        for frame, count in self.lefts.items():
            plain = self.plain(frame)
            lefts[plain] = max(lefts.get(plain, 0), count)
        rights = dict(self.rights)
        for moves, (source, count) in self.ends.items():
            if rights.get(moves, 0) <= count:
                rights[source] = max(rights.get(source, 0), rights.pop(moves, 0))
        for moves in sorted(rights, key=len, reverse=True):
            if moves and moves[-1].startswith(_WITHOUT_END):
                # The last axes are those of what has one more, which are counted once.
                count, place = rights.pop(moves), -int(moves[-1].removeprefix(_WITHOUT_END))
                source = moves[:-1]
                rights[source] = max(rights.get(source, 0), count + (count >= place))
            elif moves and moves[-1] == _WITHOUT_FIRST:
                rights[moves[:-1]] = max(rights.get(moves[:-1], 0), rights.pop(moves))
        for frame, least in sorted(self.asked, key=lambda one: one[1]):
            plain = self.plain(frame)
            if least > lefts.get(plain, 0) + (plain in spaces) and least > rights.get(frame.moves, 0):
                by_left = least - lefts.get(plain, 0) < least - rights.get(frame.moves, 0)
                if by_left:
                    lefts[plain] = least
                else:
                    rights[frame.moves] = least
        return len(self.names) + sum(lefts.values()) + sum(rights.values()) - len(self.shared)


def _is_without_first(one: Frame, other: Frame) -> bool:
    """True if a frame is another without some first axes: both end with the same axes."""
    more = one.moves[len(other.moves) :]
    return one.moves[: len(other.moves)] == other.moves and bool(more) and set(more) == {_WITHOUT_FIRST}
