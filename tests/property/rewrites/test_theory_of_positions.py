"""Gathers by integers that are computed from where they stand: views of the operand, where these stay within it."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import onnx
import pytest
from hypothesis import event, given, settings

import eqsat
from eqsat.language.terms.dims import Dim, Sym, evaluate, product
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.theories.evidence import theory_evidence
from eqsat.rewrites.theories.views.naming import size_text
from eqsat.rewrites.theories.views.reading import states_view
from eqsat.runtime.backend import select
from tests.support.view_terms import computed, filled, proved_forms, view_read

N, M = Sym.named("dim(x0, 0)"), Sym.named("dim(x0, 2)")
SHAPE: tuple[Dim, ...] = (N, 4, M)
ASKED = ["rank(x0) == 3", "dim(x0, 1) == 4"]


@st.composite
def gathers(draw: st.DrawFn) -> str:
    """Elements of a tensor that is flat, chosen by a sum of ranges along new axes, each times the elements within."""
    order = draw(st.permutations(range(3)))
    off = draw(st.sampled_from([0, 0, 0, 0, 1, -1]))
    parts = []
    for place, axis in enumerate(order):
        size, stride = SHAPE[axis], product(SHAPE[axis + 1 :])
        start, step = draw(st.sampled_from([(0, 1), (0, 1), (0, 1), (size - 1, -1), (0, 2)]))
        shape = [1] * 3
        column = f"({''.join(f'{size_text(size) if p == place else one}, ' for p, one in enumerate(shape))})"
        numbers = f"iota(start={size_text(start)}, step={step}, size={size_text(size)}, dtype='int64')"
        scaled = f"reshape({numbers}, shape={column})"
        for factor in (stride,) if draw(st.booleans()) else SHAPE[axis + 1 :]:
            times = f"iota(start={size_text(factor)}, step=1, size=1, dtype='int64')"
            scaled = f"mul({times}, {scaled})" if draw(st.booleans()) else f"mul({scaled}, {times})"
        parts.append(scaled)
    total = f"add(add({parts[0]}, {parts[1]}), {parts[2]})"
    if off:
        total = f"add({total}, iota(start={off}, step=1, size=1, dtype='int64'))"
    flat = f"reshape(x0, shape=({size_text(product(SHAPE))},))"
    text = f"gather({flat}, {total}, axis=0)"
    return f"transpose({text}, perm=(2, 0, 1))" if draw(st.booleans()) else text


@given(gathers())
@settings(max_examples=200, deadline=None)
def test_what_ranges_choose_is_what_numpy_computes(text: str) -> None:
    view = view_read(text, ASKED)
    if view is None:
        event("not read")
        return
    proved = proved_forms(view, text, ASKED, {"x0": SHAPE})
    event("written" if proved else "not written")
    for n, m in ((0, 2), (1, 1), (2, 0), (2, 3)):
        x = np.arange(float(n * 4 * m)).reshape(n, 4, m)
        wanted = computed(text, x)
        assert np.array_equal(filled(view, {"x0": x}, {str(N): n, str(M): m}), wanted)
        assert all(np.array_equal(computed(form, x), wanted) for form in proved)


def column(size: str, shape: str, start: str = "0", step: int = 1) -> str:
    """A range along one axis of several."""
    return f"reshape(iota(start={start}, step={step}, size={size}, dtype='int64'), shape={shape})"


BATCH, STEPS = column("dim(x0, 0)", "(dim(x0, 0), 1)"), column("dim(x0, 1)", "(1, dim(x0, 1))")
FLAT = "reshape(x0, shape=(dim(x0, 0) * dim(x0, 1),))"
WIDTH, HEIGHT = "gather(shape(x0), x1, axis=0)", "gather(shape(x0, start=0, end=1), x1, axis=0)"
BOTH = "(dim(x0, 0), dim(x0, 1), 1)"
PAIRS = (
    "gather_nd(x0, concat(reshape(expand({}, shape={}), shape={}), reshape(expand({}, shape={}), shape={}), axis=2))"
)
WIDE = "(dim(x0, 0), dim(x0, 1))"
TALL = column("dim(x0, 1)", "(1, dim(x0, 1))"), column("dim(x0, 0)", "(dim(x0, 0), 1)")
MATRIX, LAST, FIRST = (
    "rank(x0) == 2",
    "rank(x1) == 0, is_strided(x1, 1, (), ())",
    "rank(x1) == 0, is_strided(x1, 0, (), ())",
)


@pytest.mark.parametrize(
    ("left", "right", "asked", "true"),
    [
        # The mask of a batch at each batch and step, by its place in what is flat.
        (f"gather({FLAT}, add(mul({WIDTH}, {BATCH}), {STEPS}), axis=0)", "x0", f"{MATRIX}, {LAST}", True),
        (f"gather({FLAT}, add({STEPS}, mul({BATCH}, {WIDTH})), axis=0)", "x0", f"{MATRIX}, {LAST}", True),
        # The other size of the shape, another place of it, and a first that is not 0.
        (f"gather({FLAT}, add(mul({WIDTH}, {BATCH}), {STEPS}), axis=0)", "x0", f"{MATRIX}, {FIRST}", False),
        (f"gather({FLAT}, add(mul({HEIGHT}, {BATCH}), {STEPS}), axis=0)", "x0", f"{MATRIX}, {FIRST}", False),
        (f"gather({FLAT}, add({BATCH}, {STEPS}), axis=0)", "x0", MATRIX, False),
        (f"gather(x0, {column('dim(x0, 1)', '(dim(x0, 1),)', '1')}, axis=1)", "x0", MATRIX, False),
        (f"gather(x0, {column('dim(x0, 1)', '(dim(x0, 1),)')}, axis=0)", "x0", MATRIX, False),
        (f"gather(x0, {column('dim(x0, 1)', '(dim(x0, 1),)')}, axis=1)", "x0", MATRIX, True),
        (f"gather(x0, {column('dim(x0, 1)', '(dim(x0, 1),)', 'dim(x0, 1) - 1', -1)}, axis=1)",
         "slice(x0, axes=(1,), starts=(dim(x0, 1) - 1,), ends=(-1,), steps=(-1,))", MATRIX, True),
        # Pairs of places; a step may not stand where a batch does.
        (PAIRS.format(BATCH, WIDE, BOTH, STEPS, WIDE, BOTH), "x0", MATRIX, True),
        (PAIRS.format(STEPS, WIDE, BOTH, BATCH, WIDE, BOTH), "x0", MATRIX, False),
        (PAIRS.format(BATCH, WIDE, BOTH, BATCH, WIDE, BOTH), "x0", MATRIX, False),
    ],
)  # fmt: skip
def test_what_is_gathered_by_ranges_is_a_view_only_where_they_stay_within(
    left: str, right: str, asked: str, true: bool
) -> None:
    (rule,) = parse_rules(f"%phase expand\none: {left} => {right} if {asked}", origin="candidate")
    assert states_view(rule) is true
    assert theory_evidence(rule).verdict == ("proved" if true else "undecided")


def test_a_diagonal_is_read_and_not_a_matrix() -> None:
    """Both places may be one range where the sizes are equal: what comes out is no view that is written."""
    left = PAIRS.format(BATCH, WIDE, BOTH, BATCH, WIDE, BOTH)
    (rule,) = parse_rules(f"%phase expand\none: {left} => x0 if {MATRIX}, dim(x0, 0) == dim(x0, 1)", origin="candidate")
    assert not states_view(rule)


#: The mask of a batch as PyTorch exports it, by its scripts and by torch.export.
MASKS = {
    "flat": """
      sh = Shape(m)  b = Gather(sh, first)  s = Gather(sh, second)
      rb = Range(first, b, second)  rs = Range(first, s, second)
      f = Flatten<axis=2>(m)  sv = Gather(sh, one)
      bu = Unsqueeze(rb, behind)  su = Unsqueeze(rs, before)
      bm = Mul(sv, bu)  i = Add(bm, su)  g = Gather(f, i)  q = Squeeze(g, last)  y = Not(q)""",
    "pairs": """
      sh = Shape(m)  b = Gather(sh, first)  s = Gather(sh, second)
      rb = Range(first, b, second)  rs = Range(first, s, second)
      bu = Unsqueeze(rb, behind)  su = Unsqueeze(rs, before)
      bv = Unsqueeze(b, zero)  sv = Unsqueeze(s, zero)
      shape = Concat<axis=0>(bv, one, one, sv)
      be = Expand(bu, shape)  se = Expand(su, shape)
      bl = Unsqueeze(be, last)  sl = Unsqueeze(se, last)
      i = Concat<axis=-1>(bl, sl)  g = GatherND(m, i)  y = Not(g)""",
}
CONSTANTS = """int64[1] zero = {0}, int64[1] one = {1}, int64 first = {0}, int64 second = {1},
    int64[3] behind = {1, 2, 3}, int64[3] before = {0, 1, 2}, int64[1] last = {4}"""


@pytest.mark.parametrize("name", MASKS)
def test_the_mask_of_a_batch_is_reshaped_and_not_gathered(name: str) -> None:
    lines = MASKS[name].replace("  ", "\n")
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 17]>\n'
        f"g (bool[batch, steps] m) => (bool[batch, 1, 1, steps] y) <{CONSTANTS}> {{ {lines} }}"
    )
    onnx.checker.check_model(model)
    result = eqsat.optimize(model, device="onnxruntime-cpu", measure=False, cache=False)
    assert sorted(node.op for node in result.graph.nodes) == ["not_", "reshape"]
    for sizes in ((2, 3), (1, 1), (0, 4), (3, 0)):
        mask = np.random.default_rng(0).random(sizes) < 0.5
        found = select("numpy").compile(result.graph).run({"m": mask})["y"]
        assert np.array_equal(found, ~mask[:, None, None, :])
    assert evaluate(result.graph.type(result.graph.outputs["y"]).shape[3], {"steps": 5}) == 5
