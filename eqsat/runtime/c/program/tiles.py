"""Tiles that the registers of this processor hold, for each form of a product."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice

from eqsat.runtime.c.toolchain import toolchain
from eqsat.runtime.kernels.nests.groups.lowering import PANELS
from eqsat.runtime.kernels.nests.groups.statements import Form
from eqsat.runtime.kernels.nests.options import MappingOptions

#: Tiles: rows, vectors, and rounds of the innermost loop written out.
_TILES = ((6, 2, 4), (4, 3, 2), (6, 2, 1), (12, 1, 2), (1, 8, 4))
#: Tiles of the widest vectors: a processor that has them has twice as many registers.
_WIDE_TILES = ((13, 2, 4), (8, 3, 1), (13, 2, 1), (28, 1, 1), (1, 8, 4))
#: Tiles of panels that are copied: as above, and whether they are walked down their rows, one panel at a time.
_COPIED_TILES = ((8, 3, 2, True), (13, 2, 4, True), (6, 4, 1, False))
#: Rows and vectors by the panels that vectors are read of.
_WIDE_PANELS: Mapping[Form, tuple[int, int]] = {"packed": (28, 1), "packed_32": (13, 2), "packed_48": (8, 3)}
#: Bytes of the widest vectors, and of those that any processor is given.
_WIDE, _USUAL = 64, 32
#: Rows that share a panel: all that there are. Otherwise each few rows would read all panels.
_ALL = 1 << 20
#: Bytes that panels are fetched ahead: where a processor begins too late by itself, and not at all.
_AHEAD = (2048, 0)
#: Forms whose panels are copied anyway: they lie side by side.
_COPIED = frozenset({"unfolded", "winograd"})


def vector_width() -> int:
    """Bytes of the vectors that kernels are computed in by default."""
    return _WIDE if toolchain().vector_bytes >= _WIDE else _USUAL


def tiles(form: Form, most: int | None = None) -> list[MappingOptions]:
    """Options with the tiles that are tried for a form, the most promising first: all, or no more than so many."""
    if form in PANELS:
        found = _tiles_of_panels(form)
    elif form in _COPIED:
        found = _tiles_of_copies()
    else:
        found = _tiles_in_place()
    return list(islice(found, most))


def _tiles_in_place() -> Iterator[MappingOptions]:
    if vector_width() == _WIDE:
        for rows, vectors, unroll in _WIDE_TILES:
            yield MappingOptions(rows, vectors, unroll=unroll, vector_bytes=_WIDE)
    for rows, vectors, unroll in _TILES:
        yield MappingOptions(rows, vectors, unroll=unroll)


def _tiles_of_copies() -> Iterator[MappingOptions]:
    if vector_width() == _WIDE:
        for rows, vectors, unroll, is_down in _COPIED_TILES:
            options = MappingOptions(rows, vectors, unroll=unroll, vector_bytes=_WIDE, pack_near=True)
            yield replace(options, is_column_major=is_down)
        return
    for rows, vectors, unroll in _TILES[:2]:
        yield MappingOptions(rows, vectors, unroll=unroll, pack_near=True)


def _tiles_of_panels(form: Form) -> Iterator[MappingOptions]:
    if vector_width() == _WIDE:
        rows, vectors = _WIDE_PANELS[form]
        for ahead in _AHEAD:
            yield MappingOptions(rows, vectors, unroll=1, vector_bytes=_WIDE, prefetch=ahead, fused_rows=_ALL)
    elif form == "packed":  # as wide as two vectors: those of wider panels would be read of the middle of one
        for rows, vectors, unroll in _TILES[:2]:
            yield MappingOptions(rows, vectors, unroll=unroll, fused_rows=_ALL)
        yield MappingOptions(*_TILES[0][:2], unroll=1, prefetch=_AHEAD[0], fused_rows=_ALL)
