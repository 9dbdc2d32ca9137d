"""Pages on small and large screens: nothing overlaps, nothing is cut, and every text of the e-graph can be read."""

from __future__ import annotations

import pytest

import eqsat
from benchmarks.models.sru import sru_text_classifier
from eqsat.explorer.page.page import page
from tests.support.browser import overlapping, shown_texts

PANES = ("graphs", "egraph", "changes", "growth", "rules", "report")
#: Pixels of the smallest text that people read.
LEGIBLE = 11.0
PHONE, LAPTOP = {"width": 420, "height": 900}, {"width": 1440, "height": 900}
of_every_page = pytest.mark.parametrize("name", ["small", "hostile", "medium", "real"])


@pytest.fixture(scope="module")
def real(files):
    """The page of a run of a model, with a report as runs write it."""
    explorer = eqsat.explore(sru_text_classifier(steps=3, hidden=32), time_limit=20.0)
    explorer.grow()
    explorer.optimize(measure=False)
    (files / "real.html").write_text(page(explorer.view()), encoding="utf-8")


def settled(tab):
    """Waits until what a zoom or a tab draws anew is drawn."""
    tab.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return shown_texts(tab)


@of_every_page
def test_no_text_overlaps_or_is_cut_on_a_narrow_screen(visit, real, name):
    tab = visit(name, viewport=PHONE)
    for pane in PANES:
        for shown in ("", "&class=5"):
            tab.evaluate("(address) => { location.hash = address; }", f"pane={pane}{shown}")
            tab.locator(f"#pane-{pane}").wait_for()
            lines = settled(tab)
            assert len(lines) > 6, "tabs and a text at least"
            assert overlapping(lines) == [], (pane, shown)
            assert [line.text for line in lines if line.cut] == [], (pane, shown)
            width, height = tab.evaluate("[document.body.scrollWidth, document.scrollingElement.scrollHeight]")
            assert (width, height) == (PHONE["width"], PHONE["height"]), "only parts of the page scroll"


@of_every_page
def test_a_narrow_screen_shows_all_tabs_and_a_drawing_to_look_at(visit, real, name):
    tab = visit(name, viewport=PHONE)
    for label in ("Graphs", "E-graph", "Changes", "Growth", "Rules", "Report"):
        box = tab.get_by_role("tab", name=label).bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= PHONE["width"]
    for pane, least in (("graphs", 150), ("egraph", 300)):
        tab.locator(f"#tab-{pane}").click()
        box = tab.locator(f"#pane-{pane} .drawing").first.bounding_box()
        assert box["width"] == PHONE["width"] and box["height"] >= least
    tab.locator("#tab-rules").click()
    wide = "[...document.querySelectorAll('#pane-rules, #pane-rules *')].filter((one) => one.scrollWidth > innerWidth)"
    assert tab.evaluate(f"{wide}.length") == 0, "a rule is read without scrolling to its side"


@of_every_page
@pytest.mark.parametrize("screen", [PHONE, LAPTOP], ids=["narrow", "wide"])
def test_every_text_of_the_e_graph_is_legible_at_every_zoom(visit, real, name, screen):
    tab = visit(name, "#pane=egraph", viewport=screen)
    buttons = tab.get_by_role("tabpanel", name="E-graph")
    first = [line for line in settled(tab) if line.drawn]
    assert any("class " in line.text for line in first), "at first a class is shown with all of its texts"
    fitted = 0
    for press in ("", "Show it whole", "Zoom out", "Zoom out", "Zoom in", "Zoom in", "Zoom in"):
        if press:
            buttons.get_by_label(press).click()
        drawn = [line for line in settled(tab) if line.drawn]
        assert min((line.size for line in drawn), default=LEGIBLE) >= LEGIBLE - 1e-3, press
        assert overlapping(drawn) == [], press
        fitted = len(drawn) if press == "Show it whole" else fitted
    if screen is LAPTOP:
        assert fitted >= 9, "an overview has names"


@of_every_page
def test_graphs_are_legible_when_a_page_opens(visit, real, name):
    tab = visit(name, "#pane=graphs", viewport=LAPTOP)
    drawn = [line for line in settled(tab) if line.drawn]
    assert min(line.size for line in drawn) >= LEGIBLE - 1e-3


def test_charts_are_drawn_as_wide_as_the_screen_and_again_when_it_turns(visit):
    tab = visit("medium", "#pane=growth", viewport=PHONE)
    for width in (PHONE["width"], 800):
        tab.set_viewport_size({"width": width, "height": 900})
        lines = [line for line in settled(tab) if line.drawn]
        assert {line.size for line in lines} == {11.5}
        assert max(line.right for line in lines) <= width
        assert overlapping(lines) == []
        assert tab.locator(".chart").first.bounding_box()["width"] > 0.85 * width


def test_the_class_panel_names_the_tree_cost_as_what_it_is(visit):
    tab = visit("small", "#class=5")
    heads = tab.locator(".forms th")
    assert [heads.nth(at).inner_text() for at in range(3)] == ["3 forms", "Own cost", "Tree cost"]
    note = tab.locator(".eclass .note").inner_text()
    assert "shared parts counted each time" in note
    assert "The choice counts a shared part once (DAG cost)" in note
