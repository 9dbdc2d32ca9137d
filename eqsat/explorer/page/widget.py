"""A small e-graph as a widget of a notebook: a click selects a class; Python sees it, sets it, or pushes new data."""

from __future__ import annotations

from functools import cache
from typing import Any

from eqsat.explorer.page.page import DRAWING, asset
from eqsat.explorer.page.payload import payload
from eqsat.explorer.view.views import RunView
from eqsat.system.extras import missing


def egraph_widget(view: RunView, *, selected: int | None = None, height: int = 480) -> Any:
    """The e-graph of a run as an anywidget.

    Its trait `selected` is the number of the e-class in focus, or None, kept alike in Python and in the notebook.
    Setting its `view` shows another run, such as the same one at other costs. Above 300 e-nodes it draws the classes
    around the one in focus. Raises MissingExtraError without anywidget.
    """
    return widget_class()(view, selected=selected, height=height)


@cache
def widget_class() -> type[Any]:
    """The class, made when it is first needed: anywidget is optional."""
    try:
        import anywidget
        import traitlets
    except ImportError as error:
        raise missing("anywidget") from error

    class EGraphWidget(anywidget.AnyWidget):
        """The e-graph of a run."""

        _esm = asset(*DRAWING, "widget.js")
        _css = asset("page.css")
        data = traitlets.Dict().tag(sync=True)
        selected = traitlets.Int(None, allow_none=True).tag(sync=True)
        height = traitlets.Int(480).tag(sync=True)

        def __init__(self, view: RunView, **traits: Any) -> None:
            super().__init__(data=payload(_drawn(view)), **traits)
            self._view = view

        @property
        def view(self) -> RunView:
            """The run that is shown."""
            return self._view

        @view.setter
        def view(self, view: RunView) -> None:
            self._view = view
            self.data = payload(_drawn(view))

    return EGraphWidget


def _drawn(view: RunView) -> RunView:
    """The parts that the widget draws: not the graphs, changes and rules, which would only travel along."""
    return RunView(view.title, classes=view.classes)
