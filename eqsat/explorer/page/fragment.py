"""A run in a cell of a notebook: a summary that needs no scripts, then the page in a frame of its own."""

from __future__ import annotations

from html import escape

from eqsat.explorer.page.page import Pane, page
from eqsat.explorer.page.static import diff_svg, image
from eqsat.explorer.view.views import RunView
from eqsat.report.units import quantity

#: The largest page that goes into a cell, in characters; a notebook holds it anew for every cell that shows it.
MOST_CHARACTERS = 3_000_000


def fragment(view: RunView, *, pane: Pane | None = None, still: str = "", height: int = 560) -> str:
    """HTML for a cell: `still`, which needs no script, and below it the page or one pane, to be opened.

    The page is in a frame of its own, whose scripts reach neither the notebook nor a network; where a notebook is shown
    without scripts, or untrusted, the frame is missing and `still` remains. A page of over 3 million characters is left
    out, and a line says so.
    """
    text = page(view, pane=pane)
    if len(text) > MOST_CHARACTERS:
        size = quantity(float(len(text)), "B")
        return f"{still}<p>The interactive page has {size}, too much for a cell: write it to a file.</p>"
    frame = (
        f'<iframe sandbox="allow-scripts" title="{escape(view.title, quote=True)}" loading="lazy" '
        f'style="width:100%;height:{height}px;border:1px solid #8884;border-radius:6px" '
        f'srcdoc="{escape(text, quote=True)}"></iframe>'
    )
    return f"{still}<details><summary>Open the interactive page</summary>{frame}</details>"


def diff_html(view: RunView) -> str:
    """Both graphs as a picture, and the changes as a list, without scripts."""
    picture = image(diff_svg(view), f"{view.title}: original and result side by side")
    changes = "".join(f"<li value={change.number}>{escape(change.what)}</li>" for change in view.changes)
    return picture + (f"<ol>{changes}</ol>" if changes else "")
