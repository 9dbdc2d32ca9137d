"""Objects of the explorer as a notebook shows them, in a Jupyter kernel."""

from __future__ import annotations

import re

import nbformat
import pytest
from nbclient import NotebookClient

BUILD = """
import numpy as np
import eqsat

g = eqsat.Graph("two products")
x = g.input("x", (4, 16))
weights = [g.constant(np.random.default_rng(k).random((16, 16), np.float32)) for k in (1, 2)]
scores = x @ weights[0] + x @ weights[1]
g.output("y", eqsat.relu(scores))
explorer = eqsat.explore(g)
"""
#: Cells, each of which shows one object.
SHOWN = (
    *("explorer", "explorer.step()", "explorer.grow()", "explorer.choose()", "explorer.best", "explorer.best[scores]"),
    *("explorer.eclass(scores)", "explorer.why(scores)", "explorer.reprice('matmul', 1.0)", "explorer.undo()"),
    *("explorer.choice", "explorer.diff()", "explorer.table()", "explorer.firings()", "explorer.costs()", "explorer"),
)
#: Cells that show nothing, or print.
QUIET = ("result = explorer.optimize(measure=False)", "explorer.save('page.html')", "print(explorer.report)")


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """The outputs of each cell, run in order, and the page that one of them writes."""
    folder = tmp_path_factory.mktemp("kernel")
    cells = [nbformat.v4.new_code_cell(source) for source in (BUILD, *SHOWN, *QUIET)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute(cwd=str(folder))
    by_source = [(cell.source, cell.outputs) for cell in notebook.cells]
    return by_source, (folder / "page.html").read_text(encoding="utf-8")


def test_a_page_saved_in_a_notebook_has_its_report(outputs):
    report = re.search(r'"report":"(.*?[^\\])"', outputs[1])
    assert report, "the page has no report"
    for phase in ("read", "saturate", "extract", "certify"):
        assert phase in report[1]


def test_a_cell_shows_one_object_once_and_nothing_blank(outputs):
    for source, found in outputs[0]:
        if source in SHOWN:
            (shown,) = found
            assert shown.output_type == "execute_result", source
            for kind, data in shown.data.items():
                text = re.sub(r"<[^>]*>|\s", "", data) if kind.startswith("text/") else data
                assert text or "<img" in data, (source, kind)


def test_a_cell_that_shows_nothing_stays_empty_and_one_that_prints_has_a_stream(outputs):
    cells = dict(outputs[0])
    optimised, saved, printed = (cells[source] for source in QUIET)
    assert optimised == [] and saved == []
    (stream,) = printed
    assert stream.output_type == "stream"
    assert "saturate" in stream.text


def test_a_form_is_shown_as_its_term_with_its_costs(outputs):
    (shown,) = dict(outputs[0])["explorer.best[scores]"]
    text = shown.data["text/plain"]
    assert re.match(r"matmul\(x, [^()]+\), cost .+, tree cost .+, by \S+, chosen$", text), text
