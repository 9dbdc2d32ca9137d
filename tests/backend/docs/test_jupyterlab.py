"""Notebooks as readers see them: in a JupyterLab, in a real browser, wide and narrow."""

from __future__ import annotations

import shutil

import nbformat
import pytest

from notebooks.pairing import FOLDER
from tests.support.browser import chromium, overlapping, shown_texts
from tests.support.jupyterlab import jupyterlab

NAME = "first_hour.ipynb"
#: The cells of a notebook that is run here, and a mark of each that it shows.
LIVE = {
    "import numpy as np\nimport eqsat\ng = eqsat.Graph('two products')\nx = g.input('x', (4, 16))\n"
    "a, b = (g.constant(np.full((16, 16), k, np.float32)) for k in (1, 2))\ny = x @ a + x @ b\ng.output('y', y)": "",
    "explorer = eqsat.explore(g)\nexplorer.grow()": "fired",
    "explorer.eclass(y)": "tree cost",
    "result = explorer.optimize(measure=False)": "",
    "print(explorer.report)": "certify",
    "explorer": "Open the interactive page",
    "explorer.widget()": "e-nodes",
}
#: Tall enough to show a notebook without scrolling.
TALL = 9000
OUTPUT = ".jp-OutputArea-output"


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """The address of a JupyterLab with the recorded notebook, and one that is still to be run."""
    folder = tmp_path_factory.mktemp("lab")
    (folder / "notebooks").mkdir()
    shutil.copy(FOLDER / NAME, folder / "notebooks")
    cells = [nbformat.v4.new_code_cell(source) for source in LIVE]
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), folder / "notebooks" / "live.ipynb")
    with jupyterlab(folder) as address:
        yield address


@pytest.fixture(scope="module")
def browser():
    with chromium() as running:
        yield running


@pytest.fixture
def opened(browser, lab):
    """Opens a notebook in a tab of some width, once it stands there whole."""
    contexts = []

    def call(name, width, cells):
        context = browser.new_context(viewport={"width": width, "height": TALL})
        contexts.append(context)
        tab = context.new_page()
        tab.set_default_timeout(45_000)
        tab.goto(lab.format(name))
        tab.wait_for_function("(count) => document.querySelectorAll('.jp-CodeCell').length === count", arg=cells)
        return tab

    yield call
    for context in contexts:
        context.close()


def settled(tab):
    """The lines of text of a notebook, when two looks at it find the same."""
    before = None
    for _ in range(40):
        now = shown_texts(tab, ".jp-Notebook")
        if now == before:
            return now
        before = now
        tab.wait_for_timeout(250)
    raise AssertionError("the notebook keeps moving")


def shows_all_outputs(tab):
    """Asserts that no output is blank, of height 0 or an error, and that no text lies on another or is cut."""
    lines = settled(tab)
    outputs = tab.locator(OUTPUT).evaluate_all(
        """(all) => all.map((one) => ({ kind: one.dataset.mimeType ?? "", height: one.getBoundingClientRect().height,
             marks: one.innerText.trim().length + one.querySelectorAll("img, svg, canvas").length }))"""
    )
    assert outputs
    for output in outputs:
        assert output["height"] > 10 and output["marks"], output
        assert "stderr" not in output["kind"] and "error" not in output["kind"], output
    assert overlapping(lines) == []
    assert [line.text for line in lines if line.cut] == []
    assert tab.evaluate("document.scrollingElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("width", [1440, 420], ids=["wide", "narrow"])
def test_the_recorded_notebook_is_shown_with_all_its_outputs(opened, width):
    recorded = [cell for cell in nbformat.read(FOLDER / NAME, as_version=4).cells if cell.cell_type == "code"]
    tab = opened(NAME, width, len(recorded))
    tab.wait_for_function(
        "([select, count]) => document.querySelectorAll(select).length === count",
        arg=[OUTPUT, sum(len(cell.outputs) for cell in recorded)],
    )
    shows_all_outputs(tab)
    report = tab.locator(OUTPUT, has_text="saturate").first
    assert "certify" in report.inner_text() and "concat-of-matmuls" in report.inner_text()
    tables = tab.locator(f"{OUTPUT} table")
    assert tables.count() >= 2, "tables are tables"
    assert "tree cost" in tables.locator("th").all_inner_texts()


def test_a_notebook_that_is_run_shows_tables_a_page_and_a_widget_and_no_blank_block(opened):
    tab = opened("live.ipynb", 1440, len(LIVE))
    tab.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").first.wait_for(state="attached")
    tab.locator(".jp-Notebook .cm-content").first.click()
    tab.get_by_role("menuitem", name="Run", exact=True).click()
    tab.locator(".lm-Menu-item[data-command='runmenu:run-all']").click()
    tab.locator(f"{OUTPUT} .drawing .class").first.wait_for()
    shows_all_outputs(tab)
    cells = tab.locator(".jp-CodeCell").all()
    for cell, mark in zip(cells, LIVE.values(), strict=True):
        outputs = cell.locator(OUTPUT)
        assert outputs.count() == bool(mark), cell.inner_text()
        assert mark in (outputs.inner_text() if mark else "")
    tab.locator("summary", has_text="Open the interactive page").click()
    page = tab.frame_locator(f"{OUTPUT} iframe")
    page.get_by_role("tab", name="Report").click()
    page.get_by_text("certify").wait_for()
    tab.locator(f"{OUTPUT} .drawing .class").last.press("Enter")
    tab.locator(f"{OUTPUT} aside .forms").wait_for()
