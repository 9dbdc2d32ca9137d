"""Results, reports, explanations, plans, fronts and graphs as cells of notebooks show them."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

import eqsat
from eqsat.report.explanation import Explanation
from eqsat.report.parts import ControlChange
from eqsat.system.markup import MOST_ROWS, MOST_TEXT, folded, html_block, html_listing
from tests.pure.report.test_report import CHANGED, UNCHANGED

EVIL = "<script>alert('x')</script>"


class Cell(HTMLParser):
    """The tags, the attributes and the text of HTML; text within <details> is apart, as it is folded."""

    VOID = frozenset({"br", "img"})

    def __init__(self, html):
        super().__init__()
        self.tags, self.attributes, self.open, self.texts, self.rows = [], [], [], [], 0
        self.feed(html)
        self.close()
        assert self.open == [], "tags are closed"

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self.rows += tag == "tr" and "details" not in self.open
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "details" not in self.open:
            self.texts.append(data)

    @property
    def text(self):
        return " ".join(self.texts)

    @property
    def lines(self):
        return self.rows + sum(text.count("\n") for text in self.texts)


def chain(length, name="g"):
    builder = eqsat.Graph(name)
    x = builder.input(f"{name} in", ("batch", 4))
    for _ in range(length):
        x = eqsat.tanh(x) + 1.0
    builder.output(f"{name} out", x)
    return builder


@pytest.fixture(scope="module")
def result():
    g = eqsat.Graph(EVIL)
    x = g.input(EVIL, (4, 8))
    w = np.arange(64, dtype=np.float32).reshape(8, 8) / 64
    g.output("y", eqsat.relu((x @ w) + (x @ (2 * w))))
    return eqsat.optimize(g, measure=False)


@pytest.fixture(scope="module")
def front():
    g = eqsat.Graph("front")
    x = g.input("x", (4, 8))
    w = np.arange(64, dtype=np.float32).reshape(8, 8) / 64
    g.output("y", (x @ w) + (x @ (2 * w)))
    return eqsat.pareto(g, "time", "flops", time_limit=5)


@pytest.fixture(scope="module")
def bucketed():
    return eqsat.optimize(chain(3), buckets={"batch": [1, 4]}, measure=False)


@pytest.fixture
def shown(result, front, bucketed):
    builder = chain(40, EVIL)
    many = [ControlChange(f"change {i} of {EVIL}", rules=[EVIL]) for i in range(40)]
    return {
        "result": result,
        "report": result.report,
        "changed": replace(CHANGED, name=EVIL, changes=many, warnings=[EVIL] * 20),
        "unchanged": replace(UNCHANGED, kept_because=EVIL),
        "explanation": result.explanation,
        "many changes": Explanation(CHANGED.changes[:1] * 40),
        "no change": Explanation(()),
        "plan": result.plan,
        "front": front,
        "builder": builder,
        "graph": builder.build(),
        "buckets": bucketed,
    }


def test_each_fits_a_screen_is_escaped_and_runs_no_script(shown):
    for name, thing in shown.items():
        cell = Cell(thing._repr_html_())
        assert cell.lines <= 45, name
        assert "script" not in cell.tags, name
        assert not [a for a, value in cell.attributes if a.startswith("on") or "javascript" in (value or "")], name
        assert cell.text.strip(), name


def test_names_of_models_are_shown_as_they_are(shown):
    for name in ("result", "changed", "unchanged", "builder", "graph", "plan"):
        assert EVIL in Cell(shown[name]._repr_html_()).text, name


def test_colours_are_those_of_the_page(shown):
    for name, thing in shown.items():
        assert not re.search(r"color|background", thing._repr_html_()), name


def test_long_ones_are_cut_with_a_count(shown):
    assert f"{MOST_ROWS} of 80 nodes" in shown["graph"]._repr_html_()
    assert f"{MOST_ROWS} of 80 nodes" in shown["builder"]._repr_html_()
    assert f"{MOST_ROWS} of 40 changes" in shown["changed"]._repr_html_()
    assert f"{MOST_ROWS} of 40 changes" in shown["many changes"]._repr_html_()
    assert "more lines in the whole report" in Cell(shown["changed"]._repr_html_()).text


def test_a_report_shows_its_finalists_and_holds_its_text():
    html = UNCHANGED._repr_html_()
    assert "it was measured to be no faster than the original" in Cell(html).text
    assert html_block(str(UNCHANGED)) in html


def test_a_result_is_shown_as_its_report_and_a_graph_with_types(result, shown):
    assert result._repr_html_() == result.report._repr_html_()
    assert "float32[batch, 4]" in shown["graph"]._repr_html_()


def test_a_plan_says_what_runs_in_which_states(result):
    text = Cell(result.plan._repr_html_()).text
    assert "matmul" in text
    assert " as row" in text
    assert f"{len(result.plan.steps)} step" in text


def test_a_front_has_its_units_and_its_text_is_no_dump(front):
    assert "time (s)" in front._repr_html_()
    assert repr(front) == str(front)
    assert len(repr(front)) < 2000


def test_what_a_prompt_shows_is_the_text_and_no_dump(result, shown):
    for name in ("report", "changed", "explanation", "no change"):
        assert repr(shown[name]) == str(shown[name]), name
    kernels = len(result.plan.kernels)
    assert repr(result.plan) == f"Plan({EVIL!r}, {kernels} kernels, 0 conversions, boundary={{}})"


def test_buckets_have_a_row_for_each_choice(bucketed):
    text = Cell(bucketed._repr_html_()).text
    assert text.startswith("2 buckets: 1 different choice")
    assert "the largest, batch=4:" in text


def test_a_builder_says_how_far_it_is():
    g = eqsat.Graph("g")
    assert repr(g) == "Builder('g', 0 nodes so far, inputs=[], outputs=[])"
    eqsat.relu(g.input("x", (2,)))
    assert repr(g) == "Builder('g', 1 node so far, inputs=['x'], outputs=[])"
    assert "relu" in g._repr_html_()


def test_text_beyond_a_cell_is_cut_and_says_so():
    assert "print() shows all" in folded("all", "a" * (MOST_TEXT + 1))
    assert "print() shows all" not in folded("all", "a" * MOST_TEXT)


def test_only_the_rows_that_are_shown_are_computed():
    seen = []
    html_listing("t", "row", ("a",), ((seen.append(i) or i,) for i in range(1000)), 1000)
    assert len(seen) == MOST_ROWS


def test_characters_that_a_page_would_obey_are_shown():
    assert "\u202e" not in html_block("a\u202eb")
    assert "\\u202e" in html_block("a\u202eb")
