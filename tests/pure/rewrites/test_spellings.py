"""Attributes left out or written out, and axes counted from either end, are the same in proofs."""

import pytest

from eqsat.language.ops import OPS
from eqsat.language.terms import Attrs, Bindings
from eqsat.rewrites.instances.instance import draw
from eqsat.rewrites.proof.check import Effort, check, mismatch
from eqsat.rewrites.proof.prove import prove
from eqsat.rewrites.rules.derive import spellings
from eqsat.rewrites.rules.loader import laws
from eqsat.rewrites.rules.parser import parse_rules

LAWS = laws()
#: Fewer instances than for a law by hand: one schema is shown for many operators.
EFFORT = Effort(numeric=24, symbolic=6)
SPELLINGS = {rule.name: rule for rule in spellings(OPS)}
#: Instances are drawn with axes from the left, so that laws for those from the right are shown by their inverses.
FROM_THE_LEFT = {name: rule for name, rule in SPELLINGS.items() if "-from-the-left" in name}
DEFAULTS = {name: rule for name, rule in SPELLINGS.items() if "-default-" in name}


def equation(text):
    return parse_rules(f"equation: {text}", origin="candidate")[0]


def test_every_spelling_is_one_of_two_kinds():
    assert FROM_THE_LEFT.keys() | DEFAULTS.keys() == SPELLINGS.keys()
    named = {"softmax-default-axis", "conv-default-pads", "conv-default-strides-of-3", "slice-default-steps"}
    assert named < DEFAULTS.keys()
    assert {"concat-axis-from-the-left", "reduce_sum-axes-from-the-left"} < FROM_THE_LEFT.keys()


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_default_means_what_is_written_out(name):
    evidence = check(DEFAULTS[name], EFFORT)
    assert (evidence.verdict, evidence.detail) == ("proved", "")


@pytest.mark.parametrize("name", FROM_THE_LEFT)
def test_an_axis_from_the_right_means_one_from_the_left(name):
    rule = FROM_THE_LEFT[name]
    left, _, right = rule.text.partition(" if ")[0].partition(" => ")
    shifted = right.replace("k + ", "k - (").replace(", **a", "), **a").replace("i % ", "i - ")
    shifted = shifted if "k - (" in shifted else right.replace("i % ", "i - ")
    conditions = "k >= 0" if "k - (" in shifted else "all(i >= 0 for i in k)"
    (inverse,) = parse_rules(f"inverse: {left} => {shifted} if {conditions}", origin="axiom")
    evidence = check(inverse, EFFORT)
    assert (evidence.verdict, evidence.detail) == ("proved", "")

    held = 0
    key = "axis" if "axis=" in left else "axes"
    for bindings in draw(inverse, 24):
        moved = Attrs(k=inverse.attributes(inverse.right[0], bindings)[key])["k"]
        attrs = {"k": moved, "a": Attrs({**bindings.attrs["a"], key: moved})}
        turned = Bindings(bindings.tensors, {**bindings.attrs, **attrs})
        if rule.refused(turned) is None:
            assert mismatch(rule, turned) is None
            held += 1
    assert held >= 6


@pytest.mark.parametrize(
    "text",
    [
        "conv(x, w, pads=(0, 0, 0, 0)) => conv(x, w)",
        "conv(x, w) => conv(x, w, pads=(0, 0, 0, 0), strides=(1, 1), dilations=[1, 1]) if rank(x) == 4",
        "conv(x, w, b, pads=(0, 0, 0, 0)) => conv(x, w, b)",
        "conv(x, w, pads=p) => conv(x, w) if p == (0,) * len(p)",
        "relu(max_pool(x, kernel=(2, 2), strides=(1, 1))) => relu(max_pool(x, kernel=(2, 2)))",
        "softmax(x, axis=-1) => softmax(x, axis=rank(x) - 1) if rank(x) >= 1",
        "softmax(X) => softmax(X, axis=1) if rank(X) == 2",
        "softmax(softmax(x, axis=-1), axis=1) => softmax(softmax(x, axis=1)) if rank(x) == 2",
        "log(softmax(x, axis=1)) => log_softmax(x) if rank(x) == 2, finite(x), wide(x)",
        "concat(x, y, axis=-1) => concat(x, y, axis=1) if rank(x) == 2",
        "reduce_sum(x, axes=(-1,)) => reduce_sum(x, axes=(rank(x) - 1,), keepdims=1) if rank(x) >= 1",
        "slice(x, axes=(-1,), starts=(0,), ends=(1,), steps=(1,)) => slice(x, axes=(1,), starts=(0,), ends=(1,)) "
        "if rank(x) == 2",
        "one_hot(i, v, depth=3, axis=-1) => one_hot(i, v, depth=3, axis=rank(i))",
    ],
)
def test_equations_that_differ_in_spelling_are_proved(text):
    proof = prove(equation(text), LAWS)
    assert proof.verdict == "proved", proof.detail or proof.counterexample
    assert set(proof.rules) & SPELLINGS.keys() or "steps" in text


@pytest.mark.parametrize(
    "text",
    [
        "conv(x, w, pads=(1, 1, 1, 1)) => conv(x, w)",
        "conv(x, w, strides=(1, 2)) => conv(x, w)",
        "conv(x, w) => conv(x, w, pads=(0, 0, 0, 0))",  # of images alone
        "max_pool(x, kernel=(2, 2), dilations=(2, 2)) => max_pool(x, kernel=(2, 2))",
        "softmax(x, axis=-1) => softmax(x, axis=0) if rank(x) == 2",
        "softmax(x) => softmax(x, axis=1)",
        "concat(x, y, axis=-1) => concat(x, y, axis=0)",
        "reduce_sum(x, axes=(-1,), keepdims=0) => reduce_sum(x, axes=(rank(x) - 1,)) if rank(x) >= 1",
        "reduce_sum(x, axes=(-1,)) => reduce_sum(x, axes=(0,)) if rank(x) >= 1",
    ],
)
def test_equations_of_other_attributes_than_the_defaults_are_refuted(text):
    assert prove(equation(text), LAWS).verdict == "refuted"
