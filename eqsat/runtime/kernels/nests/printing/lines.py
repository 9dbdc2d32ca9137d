"""Lines of C under construction, with names for values that a block computes once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

_SIMPLE = re.compile(r"\w+$|\w+\[\w+\]$|-?[\d.]+f?$")


class Lines:
    """Lines in blocks; a text that is defined twice in a block gets one name."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self._known: list[dict[tuple[str, str], str]] = [{}]
        self._taken: dict[str, int] = {}
        self._names: set[str] = set()

    def add(self, line: str) -> None:
        """Write a line."""
        self.text.append("  " * len(self._known) + line)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Lines in braces after a head; names that they define end with them."""
        self.add(f"{head} {{".lstrip())
        self._known.append({})
        yield
        self._known.pop()
        self.add("}")

    def name(self, stem: str) -> str:
        """A new name: the stem, with a number from the second time on."""
        name = stem
        while name in self._names:
            self._taken[stem] = self._taken.get(stem, 0) + 1
            name = f"{stem}_{self._taken[stem]}"
        self._names.add(name)
        return name

    def define(self, type: str, stem: str, text: str) -> str:
        """The name of a constant that holds the value of a text; simple texts stay themselves."""
        if _SIMPLE.match(text):
            return text
        for known in reversed(self._known):
            if (type, text) in known:
                return known[type, text]
        name = self.name(stem)
        self.add(f"const {type} {name} = {text};")
        self._known[-1][type, text] = name
        return name

    def forget(self, word: str) -> None:
        """Drop the texts that read a buffer, as it is written to."""
        pattern = re.compile(rf"\b{word}\b")
        for known in self._known:
            for key in [key for key in known if pattern.search(key[1])]:
                del known[key]


def is_simple(text: str) -> bool:
    """True of names, numbers and elements, which cost nothing to read twice."""
    return bool(_SIMPLE.match(text))
