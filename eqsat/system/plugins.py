"""Registries: entries by name that come with eqsat, and those that installed packages add by entry points."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from eqsat.errors import EqsatError, PluginError, first_line

Entry = TypeVar("Entry")


class Registry(MutableMapping[str, Entry]):
    """Entries by name: those that come with eqsat, then those of installed packages.

    A package adds entries by entry points of `group`. They are listed when names are listed, or one is looked up that
    eqsat does not have, and each is imported when its own name is looked up. `check` returns the entry for a name and
    an object, or raises EqsatError. A name of eqsat's own stays eqsat's own, with a warning. PluginError, which names
    the package, for an entry that cannot be imported or is refused, and for a name that two packages have.
    """

    def __init__(self, group: str, shipped: Mapping[str, Entry], check: Callable[[str, object], Entry]) -> None:
        self.group = group
        self._known = dict(shipped)
        self._check = check
        self._loaded: dict[str, Entry] = {}

    def __getitem__(self, name: str) -> Entry:
        if name in self._known:
            return self._known[name]
        if name not in self._loaded:
            if not isinstance(name, str) or name not in self._points:
                raise KeyError(name)
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def __setitem__(self, name: str, entry: Entry) -> None:
        self._known[name] = entry

    def __delitem__(self, name: str) -> None:
        del self._known[name]

    def __contains__(self, name: object) -> bool:
        return name in self._known or name in self._points

    def __iter__(self) -> Iterator[str]:
        yield from self._known
        yield from (name for name in sorted(self._points) if name not in self._known)

    def __len__(self) -> int:
        return len(self._known.keys() | self._points.keys())

    def usable(self) -> dict[str, Entry]:
        """Every entry but those of packages that fail, of which a warning tells each time."""
        entries: dict[str, Entry] = {}
        for name in self:
            try:
                entries[name] = self[name]
            except PluginError as error:
                warnings.warn(f"{error.where}: {error.what}", RuntimeWarning, stacklevel=2)
        return entries

    @cached_property
    def _points(self) -> Mapping[str, tuple[EntryPoint, ...]]:
        """The entry points of each name; a warning for those whose name is eqsat's own."""
        points: dict[str, tuple[EntryPoint, ...]] = {}
        for point in entry_points(group=self.group):
            if point.name in self._known:
                warnings.warn(
                    f"{_package(point)}: {self.group} has {point.name!r}, which is eqsat's own: it is left out",
                    RuntimeWarning,
                    stacklevel=3,
                )
            else:
                points[point.name] = (*points.get(point.name, ()), point)
        return points

    def _load(self, name: str) -> Entry:
        first, *others = self._points[name]
        where, place = _package(first), f"{name!r} of {self.group}"
        if others:
            packages = ", ".join(sorted({where, *map(_package, others)}))
            raise PluginError(
                f"{place} is defined twice",
                where=packages,
                expected="one package for a name",
                remedy="uninstall all of them but one",
            )
        try:
            return self._check(name, first.load())
        except EqsatError as error:
            raise PluginError(
                f"{place} is refused: {error.what}",
                where=where,
                expected=error.expected,
                remedy="report it to the authors of the package, or uninstall it",
            ) from error
        except Exception as error:
            raise PluginError(
                f"{place} cannot be imported: {type(error).__name__}: {first_line(error)}",
                where=where,
                expected=f"an object at {first.value}",
                remedy="install the package anew, or uninstall it",
            ) from error


def _package(point: EntryPoint) -> str:
    """The package that an entry point belongs to, with its version."""
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else point.value
