"""Arrays of unknown sizes that are filled part by part before anything is read of them."""

from __future__ import annotations

from typing import Any

from eqsat.language.parametric.arrays import IndexedArray, Indices
from eqsat.language.parametric.integers import NotParametric


class WritableArray(IndexedArray):
    """An array whose parts along the first axis may be replaced as long as nothing was read of it.

    Elements are worked out where they are asked for, which may be later: what is read before a part is written would be
    what was written.
    """

    def __init__(self, filled: IndexedArray) -> None:
        super().__init__(filled.shape, self._part)
        self._filled, self._is_read = filled, False
        self._written: list[tuple[Any, IndexedArray]] = []

    def __setitem__(self, place: Any, part: Any) -> None:
        if self._is_read or not isinstance(place, int) or place < 0 or not isinstance(part, IndexedArray):
            raise NotParametric("elements of an array of unknown size that are written")
        if place >= self._filled.shape[0]:
            raise IndexError("elements behind the last one")
        wanted = self._filled.shape[1:]
        if part.ndim != len(wanted) or not all(bool(a == b) for a, b in zip(part.shape, wanted, strict=True)):
            raise NotParametric("elements of another shape that are written")
        self._written.append((place, part))

    @property
    def shape(self) -> tuple[Any, ...]:
        """The dims, which are asked for by all that reads elements then or later."""
        self._is_read = True
        return super().shape

    def at(self, indices: Indices) -> Any:
        """The element at indices."""
        self._is_read = True
        return super().at(indices)

    def __array_function__(self, function: Any, types: Any, operands: Any, named: Any) -> Any:
        self._is_read = True
        return super().__array_function__(function, types, operands, named)

    def _part(self, indices: Indices) -> Any:
        for place, part in reversed(self._written):
            if indices[0] == place:
                return part.at(indices[1:])
        return self._filled.at(indices)
