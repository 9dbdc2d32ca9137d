"""Figures of matplotlib that a notebook shows, whatever backend is on."""

from __future__ import annotations

import io
from functools import cache
from typing import TYPE_CHECKING

from eqsat.system.extras import missing

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches; MissingExtraError without matplotlib."""
    return figure_class()(figsize=(width, height), layout="constrained")


@cache
def figure_class() -> type[Figure]:
    """The class of figures; MissingExtraError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing("matplotlib") from error

    class Shown(Figure):
        """A figure that draws itself: Jupyter knows how to show one only where a backend of its own is on."""

        def _repr_png_(self) -> bytes:
            drawn = io.BytesIO()
            self.savefig(drawn, format="png")
            return drawn.getvalue()

    return Shown
