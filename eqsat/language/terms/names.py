"""Names of values and nodes that nothing has yet."""

from __future__ import annotations

from collections.abc import Container, Iterable


class Names:
    """The names in some place, which grow by those that are given out.

    >>> names = Names(["x", "x/1"])
    >>> names("x"), names("y"), names(""), names.numbered("z")
    ('x/2', 'y', '/1', 'z/1')
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)

    def __call__(self, base: str) -> str:
        """The base where it is no name yet, else the base with a number."""
        return self._given(unused(base, self._taken))

    def numbered(self, base: str) -> str:
        """The base with a number."""
        return self._given(unused(base, self._taken, number=1))

    def _given(self, name: str) -> str:
        self._taken.add(name)
        return name


def unused(base: str, *taken: Container[str], number: int = 0) -> str:
    """The first of base, base/1, base/2, … that is nowhere taken, from a number on; an empty base is none.

    >>> unused("x", {"x"})
    'x/1'
    """
    name = base if number == 0 else f"{base}/{number}"
    while not name or any(name in names for names in taken):
        number += 1
        name = f"{base}/{number}"
    return name
