"""A run as one self-contained HTML file, which asks nothing of any other place and runs no script but its own."""

from __future__ import annotations

import base64
import hashlib
import html
from functools import cache
from importlib import resources
from typing import Literal

from eqsat.explorer.page.payload import embedded, payload
from eqsat.explorer.view.views import RunView

Pane = Literal["graphs", "egraph", "changes", "growth", "rules", "report"]
#: The scripts of the drawings, which a page and a widget share, in the order in which they are joined.
DRAWING = ("data.js", "elements.js", "place.js", "viewport.js", "nodes.js", "graph.js", "egraph.js", "eclass.js")
_PAGE = ("panes.js", "growth.js", "search.js", "page.js")


def page(view: RunView, *, pane: Pane | None = None) -> str:
    """One HTML file that shows a run; with `pane`, that part of it alone.

    A content security policy allows the file's own script and style, by their hashes, and nothing else: no request
    leaves the page, and no name in a model can run.
    """
    script, style = asset(*DRAWING, *_PAGE), asset("page.css")
    policy = (
        "default-src 'none'; "
        f"script-src {_hashed(script)}; style-src {_hashed(style)}; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    )
    parts = {
        "policy": html.escape(policy, quote=True),
        "title": html.escape(view.title),
        "style": style,
        "pane": html.escape(pane or "", quote=True),
        "data": embedded(payload(view)),
        "script": script,
    }
    # split at the places to fill, so that nothing filled in is read as a place again
    first, *rest = asset("page.html").split("{{")
    pieces = [first]
    for piece in rest:
        name, _, after = piece.partition("}}")
        pieces += [parts[name], after]
    return "".join(pieces)


@cache
def asset(*names: str) -> str:
    """The texts of these files of the page, joined."""
    folder = resources.files("eqsat.explorer.page") / "assets"
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in names)


def _hashed(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
