"""Terms of standard operators along indices of a statement, and how several come to lie along the same ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

#: An axis of one element, which broadcasts along any index.
UNIT = ""


@dataclass(frozen=True)
class AxedTerm:
    """A term in the syntax of rules, and the index that each of its axes lies along; `UNIT` of one element.

    The axes of what a statement has computed are the numbers of the axes of its target, as text.
    """

    text: str
    axes: tuple[str, ...] = ()

    @property
    def named(self) -> tuple[str, ...]:
        """The indices that it lies along, in their order."""
        return tuple(axis for axis in self.axes if axis != UNIT)

    def renamed(self, names: Callable[[str], str]) -> AxedTerm:
        """The same along other indices."""
        return AxedTerm(self.text, tuple(axis if axis == UNIT else names(axis) for axis in self.axes))

    def extent(self, index: str, known: Mapping[str, str] = MappingProxyType({})) -> str:
        """The number of elements along an index, as an expression; those that are `known` are shorter."""
        return known.get(index) or f"dim({self.text}, {self.axes.index(index)})"

    def reshaped(self, axes: Sequence[str], known: Mapping[str, str] = MappingProxyType({})) -> AxedTerm:
        """The elements in the same order, with axes of one element put in or left out."""
        if tuple(axes) == self.axes:
            return self
        dims = ["1" if axis == UNIT else self.extent(axis, known) for axis in axes]
        return AxedTerm(f"reshape({self.text}, shape={tuple_of(dims)})", tuple(axes))

    def turned(self, order: Sequence[str], known: Mapping[str, str] = MappingProxyType({})) -> AxedTerm:
        """The part with its indices in an order, which names them all, and without axes of one element."""
        plain = self.reshaped(self.named, known)
        if plain.axes == tuple(order):
            return plain
        perm = ", ".join(str(plain.axes.index(index)) for index in order)
        return AxedTerm(f"transpose({plain.text}, perm=({perm},))", tuple(order))

    def fits(self, axes: Sequence[str]) -> bool:
        """True where the part broadcasts to axes as it stands."""
        before = len(axes) - len(self.axes)
        if before < 0 or any(axis in self.named for axis in axes[:before]):
            return False
        return all(own in (UNIT, axis) for own, axis in zip(self.axes, axes[before:], strict=True))

    def laid_along(self, axes: Sequence[str], known: Mapping[str, str] = MappingProxyType({})) -> AxedTerm:
        """The part with these axes of which it may lack some; they broadcast."""
        if self.fits(axes):
            return self
        order = [axis for axis in axes if axis in self.named]
        whole = [axis if axis in self.named else UNIT for axis in axes]
        first = next((place for place, axis in enumerate(whole) if axis != UNIT), len(whole))
        return self.turned(order, known).reshaped(whole[first:], known)


def tuple_of(items: Iterable[str]) -> str:
    """A tuple of expressions, as an expression."""
    return "(" + "".join(f"{item}, " for item in items).rstrip(" ") + ")"


def common_axes(parts: Sequence[AxedTerm], every_index: Sequence[str]) -> tuple[str, ...]:
    """Axes that all parts broadcast along, those of one of them where they do as they are.

    >>> common_axes([AxedTerm("x", ("i", "j")), AxedTerm("m", ("i", ""))], ("i", "j"))
    ('i', 'j')
    """
    for part in sorted(parts, key=lambda one: -len(one.axes)):
        if all(other.fits(part.axes) for other in parts):
            return part.axes
    names = {index for part in parts for index in part.named}
    for part in sorted(parts, key=lambda one: -len(one.named)):
        if set(part.named) == names:
            return part.named
    return tuple(index for index in every_index if index in names)
