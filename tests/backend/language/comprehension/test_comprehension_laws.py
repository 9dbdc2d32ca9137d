"""Laws that follow from texts: axes walked in step, orders that are kept, and the published laws of convolutions."""

from __future__ import annotations

import numpy as np
import pytest

import eqsat
from eqsat.language.comprehension.graphs.operators import operator_of
from eqsat.rewrites.proof.check import Effort, check
from eqsat.rewrites.rules.derive import PUBLISHED, derived_laws, stated_laws
from tests.support.comprehensions.comprehension_corpus import RIGHT

#: What the laws of a declaration are put to when rules are loaded.
AS_LOADED = Effort(numeric=24, symbolic=6, turned=0)

FORMS = {
    "rows apart": ("def f(float(M,N) x) -> (y) { m(i) max=! x(i,j)  y(i,j) = x(i,j) - m(i) }", "i0 [i1] -> i0 [i1]"),
    "columns apart": ("def f(float(M,N) x) -> (y) { m(j) max=! x(i,j)  y(i,j) = x(i,j) - m(j) }", "[i0] i1 -> [i0] i1"),
    "one sum": ("def f(float(M,N) x) -> (y) { y(i) +=! x(i,j) }", "i0 i1 -> i0"),
    "a sum of what is not linear": ("def f(float(M,N) x) -> (y) { y(i) +=! exp(x(i,j)) }", "i0 [i1] -> i0"),
    "two statements sum": (
        "def f(float(M,N) x) -> (y) { s(i) +=! x(i,j)  y(i) = s(i) * s(i) }",
        "i0 [i1] -> i0",
    ),
    "windows": (
        "def f(float(C,M) x, float(C,K) w) -> (y) { y(c,i) +=! x(c,2*i+k) * w(c,k) }",
        "i0 i1@i2, i0 [i3] -> i0 i1",
    ),
    "a size that is computed with": ("def f(float(M,N) x) -> (y) { y(i,j) = x(i,j) / M }", "[i0] i1 -> [i0] i1"),
    "an index that is computed with": ("def f(float(M,N) x) -> (y) { y(i,j) = x(i,j) * i }", "[i0] i1 -> [i0] i1"),
    "a stated size": ("def f(float(M,3) x) -> (y) { y(i,j) = x(i,j) + 1 }", "i0 [i1] -> i0 [i1]"),
    "sizes that have to agree": ("def f(float(M,M) x) -> (y) { y(i,j) = x(i,j) + 1 }", "[i0] [i1] -> [i0] [i1]"),
    "a shorter range": (
        "def f(float(M,N) x) -> (y) { y(i,j) = x(i,j) where i in 0:M-1 }",
        "[i0] i1 -> [i0] i1",
    ),
    "a tensor and itself turned": ("def f(float(M,M) x) -> (y) { y(i,j) = x(i,j) + x(j,i) }", "[i0] [i1] -> [i0] [i1]"),
    "places that elements name": (
        "def f(float(V,D) t, int(B) p) -> (y) { y(b,d) = t(p(b), d) }",
        "[i0] i1, [i2] -> [i0] i1",
    ),
    "an axis that no operand has": ("def f(float(M) x) -> (y) { y(i,k) = x(i) where k in 0:3 }", ""),
    "updated by a caller": ("def f(float(M) x) -> (y) { y(i) += x(i) }", ""),
}


@pytest.mark.parametrize(("text", "form"), FORMS.values(), ids=FORMS)
def test_axes_are_walked_in_step_where_the_text_says_so_and_no_law_of_it_is_false(text, form):
    declared = operator_of(eqsat.comprehension(text).f)
    assert declared.index == form
    laws = derived_laws([declared])
    assert bool(form) or not [rule for rule in laws if "concat" in rule.name]
    assert [rule.text for rule in laws if check(rule, AS_LOADED).verdict != "proved"] == []


ORDERS = {
    "the largest of a row": ("def f(float(M,N) x) -> (y) { y(i) max=! 2 * x(i,j) / 3 - 1 }", {"maximum"}),
    "the smallest of windows": ("def f(float(M) x) -> (y) { y(i) min=! tanh(x(i+k)) where k in 0:2 }", {"minimum"}),
    "cut off": (
        "def f(float(M) x) -> (y) { y(i) = max(min(x(i), 6), 0) + 2 * x(0) / 3 where i in 0:M }",
        set(),
    ),
    "cut off alone": ("def f(float(M) x) -> (y) { y(i) = max(min(3 * x(i), 6), 0) }", {"maximum", "minimum"}),
    "by a condition on indices": (
        "def f(float(M) x) -> (y) { y(i) = i < 2 ? x(i) : erf(x(i)) }",
        {"maximum", "minimum"},
    ),
    "by a condition on elements": ("def f(float(M) x) -> (y) { y(i) = x(i) < 2 ? x(i) : 7 }", set()),
    "turned round": ("def f(float(M) x) -> (y) { y(i) = -x(i) }", set()),
    "times a number below 0": ("def f(float(M) x) -> (y) { y(i) = x(i) * -2 }", set()),
    "functions that are not of every number": ("def f(float(M) x) -> (y) { y(i) = log(x(i)) }", set()),
    "a sum": ("def f(float(M,N) x) -> (y) { y(i) +=! x(i,j) }", set()),
    "the largest, then the smallest": (
        "def f(float(M,N) x) -> (y) { m(i) max=! x(i,j)  y min=! m(i) }",
        set(),
    ),
}


@pytest.mark.parametrize(("text", "extremes"), ORDERS.values(), ids=ORDERS)
def test_extremes_go_through_what_keeps_an_order(text, extremes):
    laws = stated_laws([operator_of(eqsat.comprehension(text).f)])
    found = {word for rule in laws for word in ("maximum", "minimum") if rule.text.startswith(f"f({word}(")}
    assert found == extremes
    assert [rule.text for rule in laws if check(rule, AS_LOADED).verdict != "proved"] == []


CONVOLUTION = """
def image(float(N,C,H,W) x, float(O,C,KH,KW) k) -> (y) { y(n,o,h,w) +=! x(n,c,h+i,w+j) * k(o,c,i,j) }
"""


def test_the_published_laws_of_convolutions_follow_from_its_text():
    """But for those of attributes, that it has none of: activations, pads, and filters of several sizes."""
    declared = operator_of(eqsat.comprehension(CONVOLUTION).image)
    laws = derived_laws([declared])
    names = {rule.name for rule in laws}
    axes = {"n": "i0", "o": "i6"}
    published: dict[int, set[str]] = {}
    for name, numbers in PUBLISHED.items():
        if "conv" in name and "bias" not in name:
            own = name.replace("conv-scaled", "conv-of-scaled-right").replace("conv", "image")
            for axis, index in axes.items():
                own = own.removesuffix(f"-along-{axis}") + f"-along-{index}" if own.endswith(f"-along-{axis}") else own
            for number in numbers:
                published.setdefault(number, set()).add(own)
    assert sorted(published) == [12, 13, 17, 18, 19, 23, 24]
    assert [number for number, found in published.items() if found - names] == []
    assert [rule.text for rule in laws if check(rule, AS_LOADED).verdict != "proved"] == []


def test_two_convolutions_of_one_image_merge_by_laws_of_the_text_alone():
    convolve = eqsat.comprehension(CONVOLUTION).image
    g = eqsat.Graph("siblings")
    x = g.input("x", (1, 3, 8, 8))
    for number, count in enumerate((4, 2)):
        g.output(f"y{number}", convolve(x, g.input(f"k{number}", (count, 3, 3, 3))))
    graph = g.build()
    costs = {"image": 10.0, "concat": 1.0, "split": 1.0, "slice": 1.0}
    result = eqsat.optimize(graph, cost=lambda one: costs.get(one.op, 100.0), measure=False, strict=True)
    assert sorted(node.op for node in result.graph.nodes) == ["concat", "image", "split"]
    rng = np.random.default_rng(0)
    feeds = {name: rng.standard_normal(graph.type(name).dims).astype("f") for name in graph.inputs}
    made = result(**feeds)
    for number in (0, 1):
        expected = convolve(feeds["x"], feeds[f"k{number}"])
        np.testing.assert_allclose(made[f"y{number}"], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("program", [one for one in RIGHT if one.function.operands], ids=lambda one: one.function.name)
def test_no_law_that_derives_from_a_program_of_the_corpus_is_false(program):
    for rule in derived_laws([operator_of(program.function)]):
        quick = Effort(numeric=8, extremes=4, symbolic=1, turned=0, questions=0, solver=100_000)
        assert check(rule, quick).verdict != "refuted", rule.text
