"""Views of several operands: pads, concatenations and dims that are sums, against NumPy at several sizes."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import event, given, settings
from numpy.typing import NDArray

import eqsat
from eqsat import concat, pad
from eqsat.language.terms.dims import Dim, Sym, evaluate, exact_quotient
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.theories.evidence import theory_evidence
from eqsat.rewrites.theories.views.naming import size_text
from eqsat.rewrites.theories.views.reading import states_view
from eqsat.runtime.backend import select
from tests.support.view_terms import computed, filled, proved_forms, view_read

#: The operands of regions: x1 may be of another size along its first axis than x0.
N, M = Sym.named("dim(x0, 0)"), Sym.named("dim(x1, 0)")
OPERANDS: dict[str, tuple[Dim, ...]] = {"x0": (N, 4, 6), "x1": (M, 4, 6)}
ASKED = ["rank(x0) == 3", "dim(x0, 1) == 4", "dim(x0, 2) == 6", "rank(x1) == 3", "dim(x1, 1) == 4", "dim(x1, 2) == 6"]
SIZES = ({"n": 0, "m": 0}, {"n": 1, "m": 0}, {"n": 0, "m": 3}, {"n": 1, "m": 1}, {"n": 3, "m": 2})

Term = tuple[str, tuple[Dim, ...]]


def shaped(shape: tuple[Dim, ...]) -> str:
    """A shape as terms write it."""
    return f"({''.join(f'{size_text(size)}, ' for size in shape)})"


def cut(term: Term, axis: int, start: Dim, end: Dim, count: Dim, step: int = 1) -> Term:
    """A slice along one axis."""
    text, shape = term
    bounds = f"starts=({size_text(start)},), ends=({size_text(end)},), steps=({step},)"
    return f"slice({text}, axes=({axis},), {bounds})", (*shape[:axis], count, *shape[axis + 1 :])


def joined(one: Term, other: Term, axis: int) -> Term:
    """Two terms one after the other."""
    total = one[1][axis] + other[1][axis]
    return f"concat({one[0]}, {other[0]}, axis={axis})", (*one[1][:axis], total, *one[1][axis + 1 :])


@st.composite
def sliced(draw: st.DrawFn, term: Term) -> Term:
    """A slice of a term: with numbers, all of it the other way round, or one part of a sum."""
    axis = draw(st.integers(0, len(term[1]) - 1))
    size = term[1][axis]
    if isinstance(size, int):
        start = draw(st.integers(0, max(size - 1, 0)))
        end = draw(st.integers(min(start + 1, size), size))
        return cut(term, axis, start, end, end - start)
    if draw(st.booleans()):
        return cut(term, axis, size - 1, -1, size, -1)
    first = evaluate_part(size)
    return cut(term, axis, 0, first, first) if draw(st.booleans()) else cut(term, axis, first, size, size - first)


def evaluate_part(size: Sym) -> Dim:
    """The part of a sum that stands first."""
    return Sym(size.terms[:1]) if len(size.terms) > 1 and size.terms[0][0] else size


@st.composite
def reshaped(draw: st.DrawFn, term: Term) -> Term:
    """A reshape of a term that merges two axes, or takes one apart."""
    text, shape = term
    at = draw(st.integers(0, len(shape) - 1))
    parts = [(k, q) for k in (2, 3, 4) if (q := exact_quotient(shape[at], k)) not in (None, 1)]
    if parts and draw(st.booleans()):
        inner, outer = draw(st.sampled_from(parts))
        pair = (outer, inner) if draw(st.booleans()) else (inner, outer)
        made = (*shape[:at], *(d for d in pair if d is not None), *shape[at + 1 :])
    elif at + 1 < len(shape):
        made = (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :])
    else:
        made = (1, *shape)
    return f"reshape({text}, shape={shaped(made)})", made


@st.composite
def regions(draw: st.DrawFn) -> Term:
    """A term of views of both operands, with its shape."""
    name = draw(st.sampled_from(["x0", "x1"]))
    term: Term = name, OPERANDS[name]
    for _ in range(draw(st.integers(2, 9))):
        text, shape = term
        op = draw(
            st.sampled_from(["reshape", "transpose", "slice", "pad", "concat", "halves", "expand", "neg", "tile"])
        )
        axis = draw(st.integers(0, len(shape) - 1))
        if op == "reshape":
            term = draw(reshaped(term))
        elif op == "slice":
            term = draw(sliced(term))
        elif op == "transpose":
            perm = tuple(draw(st.permutations(range(len(shape)))))
            term = f"transpose({text}, perm={perm!r})", tuple(shape[place] for place in perm)
        elif op == "pad":
            before, behind = draw(st.sampled_from([(0, 2), (1, 0), (2, 2), (4, 0), (-1, 1)]))
            if before < 0 and not isinstance(shape[axis], int):
                continue
            pads = [0] * (2 * len(shape))
            pads[axis], pads[len(shape) + axis] = before, behind
            made = (*shape[:axis], shape[axis] + before + behind, *shape[axis + 1 :])
            number = draw(st.sampled_from(["0.0", "0.0", "0.0", "1.5"]))
            term = f"pad({text}, pads={tuple(pads)!r}, mode='constant', value={number})", made
        elif op == "concat":
            other = draw(st.sampled_from(["x0", "x1", "fill", "same"]))
            if other == "fill":
                some = (*shape[:axis], draw(st.integers(1, 2)), *shape[axis + 1 :])
                term = joined(term, (f"fill(shape={shaped(some)}, value=0.0, dtype='float32')", some), axis)
            elif other == "same":
                term = joined(term, term, axis)
            elif len(shape) == 3 and all(shape[a] == OPERANDS[other][a] for a in range(3) if a != axis):
                term = joined(term, (other, OPERANDS[other]), axis)
        elif op == "halves":
            size = shape[axis]
            first = evaluate_part(size) if isinstance(size, Sym) else max(size // 2, 1)
            if first != size:
                parts = cut(term, axis, 0, first, first), cut(term, axis, first, size, size - first)
                parts = parts if draw(st.booleans()) else parts[::-1]
                term = joined(*parts, axis)
        elif op == "neg":
            term = f"neg({text})", shape
        elif op == "tile":
            repeats = tuple(2 if place == axis else 1 for place in range(len(shape)))
            term = f"tile({text}, repeats={repeats!r})", tuple(d * n for d, n in zip(shape, repeats, strict=True))
        elif shape[axis] == 1:
            made = (*shape[:axis], draw(st.sampled_from([OPERANDS[name][0], 3])), *shape[axis + 1 :])
            term = f"expand({text}, shape={shaped(made)})", made
        if len(term[0]) > 3000:
            break
    return term


def operands(n: int, m: int) -> dict[str, NDArray[Any]]:
    """Operands of which no two elements are equal."""
    one = np.arange(1, n * 24 + 1, dtype=float).reshape(n, 4, 6)
    return {"x0": one, "x1": np.arange(1001, m * 24 + 1001, dtype=float).reshape(m, 4, 6)}


@given(regions())
@settings(max_examples=400, deadline=None)
def test_what_is_written_for_views_of_two_operands_is_what_numpy_computes(region: Term) -> None:
    text, shape = region
    if text in OPERANDS:
        return
    asked = [one for one in ASKED if any(name in one and name in text for name in OPERANDS)]
    view = view_read(text, asked)
    event("not read" if view is None else "read")
    if view is None:
        return
    assert view.shape == shape
    proved = proved_forms(view, text, asked, OPERANDS)
    event("written" if proved else "not written")
    for sizes in SIZES:
        given = operands(**sizes)
        wanted = computed(text, given["x0"], {"x1": given["x1"]})
        named = {str(N): sizes["n"], str(M): sizes["m"]}
        assert wanted.shape == tuple(evaluate(size, named) for size in shape)
        assert np.array_equal(filled(view, given, named), wanted)
        for form in proved:
            assert np.array_equal(computed(form, given["x0"], {"x1": given["x1"]}), wanted)


ROWS = "rank(x0) == 2, dim(x0, 1) == 8"
BOTH = f"{ROWS}, rank(x1) == 2, dim(x1, 1) == 8"
BORDER = "mode='constant', value=0.0"
JOINED = "concat(x0, x1, axis=0)"
LAST = "slice(concat(x0, x1, axis=0), axes=(0,), starts=({},), ends=({},), steps=(1,))"
THREE = f"{BOTH}, rank(x2) == 2, dim(x2, 1) == 8"
REST = "concat(x1, slice(x0, axes=(0,), starts=(dim(x1, 0),), ends=({},)), x2, axis=0)"


@pytest.mark.parametrize(
    ("left", "right", "asked", "true"),
    [
        # What is padded and cut off again, through a transpose; and one place beside it.
        (f"slice(transpose(pad(x0, pads=(0, 2, 0, 1), {BORDER}), perm=(1, 0)), axes=(0,), starts=(2,), ends=(10,))",
         "transpose(x0, perm=(1, 0))", ROWS, True),
        (f"slice(transpose(pad(x0, pads=(0, 2, 0, 1), {BORDER}), perm=(1, 0)), axes=(0,), starts=(1,), ends=(9,))",
         "transpose(x0, perm=(1, 0))", ROWS, False),
        # Borders of one number are one, of two numbers are not.
        (f"pad(pad(x0, pads=(1, 0, 0, 0), {BORDER}), pads=(0, 2, 0, 0), {BORDER})",
         f"pad(x0, pads=(1, 2, 0, 0), {BORDER})", ROWS, True),
        ("pad(pad(x0, pads=(1, 0, 0, 0), mode='constant', value=1.0), pads=(0, 2, 0, 0), mode='constant', value=0.0)",
         f"pad(x0, pads=(1, 2, 0, 0), {BORDER})", ROWS, False),
        ("pad(x0, pads=(1, 0, 0, 0), mode='constant', value=0.0)",
         "pad(x0, pads=(1, 0, 0, 0), mode='constant', value=-0.0)", ROWS, False),
        ("pad(x0, pads=(0, 1, 0, 1), mode='edge', value=0.0)", f"pad(x0, pads=(0, 1, 0, 1), {BORDER})", ROWS, False),
        ("pad(x0, pads=(0, -1, 0, 1), mode='constant', value=0.0)",
         f"pad(slice(x0, axes=(1,), starts=(1,), ends=(8,)), pads=(0, 0, 0, 1), {BORDER})", ROWS, True),
        # Parts of what is joined, for any number of rows.
        (LAST.format("0", "dim(x0, 0)"), "x0", BOTH, True),
        (LAST.format("dim(x0, 0)", "dim(x0, 0) + dim(x1, 0)"), "x1", BOTH, True),
        (LAST.format("dim(x1, 0)", "dim(x0, 0) + dim(x1, 0)"), "x0", BOTH, False),
        (LAST.format("0", "dim(x1, 0)"), "x0", BOTH, False),
        (LAST.format("0", "1"), "slice(x0, axes=(0,), starts=(0,), ends=(1,))", BOTH, False),
        (JOINED, "concat(x1, x0, axis=0)", BOTH, False),
        (f"reshape({JOINED}, shape=(8 * (dim(x0, 0) + dim(x1, 0)),))",
         "concat(reshape(x0, shape=(8 * dim(x0, 0),)), reshape(x1, shape=(8 * dim(x1, 0),)), axis=0)", BOTH, True),
        (f"transpose({JOINED}, perm=(1, 0))", f"reshape({JOINED}, shape=(8, dim(x0, 0) + dim(x1, 0)))", BOTH, False),
        # Zeros beside an operand, as a pad; and other numbers, or those of a constant that may be anything.
        ("concat(x0, fill(shape=(3, 8), value=0.0, dtype='float32'), axis=0)",
         f"pad(x0, pads=(0, 0, 3, 0), {BORDER})", ROWS, True),
        ("concat(x0, fill(shape=(3, 8), value=1.0, dtype='float32'), axis=0)",
         f"pad(x0, pads=(0, 0, 3, 0), {BORDER})", ROWS, False),
        ("concat(x0, x1, axis=0)", f"pad(x0, pads=(0, 0, 3, 0), {BORDER})",
         f"{BOTH}, dim(x1, 0) == 3, is_all(x1, 0.0)", True),
        ("concat(x0, x1, axis=0)", f"pad(x0, pads=(0, 0, 3, 0), {BORDER})", f"{BOTH}, dim(x1, 0) == 3", False),
        # Columns taken apart and interleaved again.
        ("reshape(concat(reshape(slice(x0, axes=(1,), starts=(0,), ends=(8,), steps=(2,)), shape=(dim(x0, 0), 4, 1)), "
         "reshape(slice(x0, axes=(1,), starts=(1,), ends=(8,), steps=(2,)), shape=(dim(x0, 0), 4, 1)), axis=2), "
         "shape=(dim(x0, 0), 8))", "x0", ROWS, True),
        # A size that a condition states as a sum, and one that it does not.
        (REST.format("dim(x1, 0) + dim(x2, 0)"), REST.format("dim(x0, 0)"),
         f"{THREE}, dim(x0, 0) == dim(x1, 0) + dim(x2, 0)", True),
        (REST.format("dim(x1, 0) + dim(x2, 0)"), REST.format("dim(x0, 0)"), THREE, False),
        (REST.format("dim(x1, 0) + dim(x2, 0)"), REST.format("dim(x0, 0)"),
         f"{THREE}, dim(x0, 0) == dim(x1, 0) * dim(x2, 0)", False),
        # Rows as a term names them by the shape that they are brought to.
        ("reshape(transpose(transpose(reshape(x0, shape=s0), perm=(1, 0, 2)), perm=(1, 0, 2)), shape=(dim(x0, 0), 8))",
         "x0", f"{ROWS}, len(s0) == 3, dim(x0, 0) == s0[0] * s0[1], s0[2] == 8", True),
        ("reshape(transpose(transpose(reshape(x0, shape=s0), perm=(1, 0, 2)), perm=(1, 0, 2)), shape=(dim(x0, 0), 8))",
         "x0", f"{ROWS}, len(s0) == 3", False),
        ("concat(slice(x0, axes=(0,), starts=s0, ends=(3,)), slice(x0, axes=(0,), starts=(3,), ends=(5,)), axis=0)",
         "slice(x0, axes=(0,), starts=s0, ends=(5,))", f"{ROWS}, len(s0) == 1, s0[0] == 1, dim(x0, 0) == 9", False),
        # Functions of elements go with them; what fills the rest does not.
        ("transpose(neg(transpose(x0, perm=(1, 0))), perm=(1, 0))", "neg(x0)", ROWS, True),
        (f"exp(pad(x0, pads=(0, 0, 3, 0), {BORDER}))", f"pad(exp(x0), pads=(0, 0, 3, 0), {BORDER})", ROWS, False),
        ("transpose(neg(transpose(x0, perm=(1, 0))), perm=(1, 0))", "abs(x0)", ROWS, False),
    ],
)  # fmt: skip
def test_views_of_several_operands_are_equal_only_where_their_pieces_are(
    left: str, right: str, asked: str, true: bool
) -> None:
    (rule,) = parse_rules(f"%phase expand\none: {left} => {right} if {asked}", origin="candidate")
    assert states_view(rule) is true
    assert theory_evidence(rule).verdict == ("proved" if true else "undecided")


B, P, S = map(Sym.named, ("batch", "past", "new"))


def turned_pads(x: eqsat.Tensor) -> eqsat.Tensor:
    """Borders of two axes, with transposes between."""
    inner = pad(x, pads=(0, 1, 0, 0, 1, 0), value=-np.inf).transpose(0, 2, 1)
    return pad(inner, pads=(0, 0, 2, 0, 0, 2), value=-np.inf).transpose(0, 2, 1)


def focused(x: eqsat.Tensor) -> eqsat.Tensor:
    """Four images of every second pixel, as YOLOv5 begins."""
    return concat([x[:, :, row::2, column::2] for column in range(2) for row in range(2)], axis=1)


def turned_round(x: eqsat.Tensor, y: eqsat.Tensor) -> eqsat.Tensor:
    """Rows of two operands in the other order, and in theirs again."""
    last = {"starts": (P + S - 1,), "ends": (-1,), "steps": (-1,)}
    return eqsat.slice(eqsat.slice(concat([x, y], axis=0), axes=(0,), **last).transpose(1, 0), axes=(1,), **last)


def windows(x: eqsat.Tensor) -> eqsat.Tensor:
    """Windows of what is padded, put back and cut to size: Swin with sizes that windows do not divide."""
    parts = pad(x, pads=(0, 0, 0, 0, 0, 2, 2, 0)).reshape(1, 2, 8, 2, 8, 4).transpose(0, 1, 3, 2, 4, 5)
    back = parts.reshape(4, 64, 4).reshape(1, 2, 2, 8, 8, 4).transpose(0, 1, 3, 2, 4, 5)
    return back.reshape(1, 16, 16, 4)[:, :14, :14]


def shifted(x: eqsat.Tensor) -> eqsat.Tensor:
    """Rows rolled there, and back through a reshape."""
    there = concat([x[:, 3:], x[:, :3]], axis=1).reshape(2, 4, 2, 6)
    flat = there.transpose(0, 3, 1, 2).reshape(2, 6, 8).transpose(0, 2, 1)
    return concat([flat[:, 5:], flat[:, :5]], axis=1)


def cached(k: eqsat.Tensor, v: eqsat.Tensor) -> eqsat.Tensor:
    """The new rows of a cache, of which heads were split."""
    heads = [one.reshape(B, n, 4, 2).transpose(0, 2, 1, 3) for one, n in ((k, P), (v, S))]
    rows = eqsat.slice(concat(heads, axis=2), axes=(2,), starts=(P,), ends=(P + S,))
    return rows.transpose(0, 2, 1, 3).reshape(B, S, 8)


def causal(x: eqsat.Tensor) -> eqsat.Tensor:
    """Steps padded on the left and cut off again."""
    return eqsat.slice(pad(x.transpose(0, 2, 1), pads=(0, 0, 3, 0, 0, 0)), axes=(2,), starts=(3,), ends=(S + 3,))


def rows(x: eqsat.Tensor, y: eqsat.Tensor) -> eqsat.Tensor:
    """Rows of a batch that are one axis, taken apart, padded and cut, and joined again."""
    padded = pad(x.reshape(B, S, 8).transpose(0, 2, 1), pads=(0, 0, 1, 0, 0, 0))
    return concat([eqsat.slice(padded, axes=(2,), starts=(1,), ends=(S + 1,)).transpose(0, 2, 1), y], axis=1)


GRAPHS: dict[str, tuple[Any, list[tuple[Dim, ...]], list[str]]] = {
    "pads of two axes": (turned_pads, [(8, 4, 6)], ["pad", "relu"]),
    "every second pixel": (focused, [(2, 3, 8, 4)], ["relu", "reshape", "reshape", "transpose"]),
    "turned round twice": (turned_round, [(P, 4), (S, 4)], ["concat", "relu", "transpose"]),
    "windows of what is padded": (windows, [(1, 14, 14, 4)], ["relu"]),
    "rolled and rolled back": (shifted, [(2, 8, 6)], ["relu"]),
    "new rows of a cache": (cached, [(B, P, 8), (B, S, 8)], ["relu"]),
    "left padding cut off": (causal, [(B, S, 6)], ["relu", "transpose"]),
    "rows of a batch": (rows, [(B * S, 8), (B, S, 8)], ["concat", "relu", "reshape"]),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_what_is_padded_and_joined_is_put_back_for_every_size(name: str) -> None:
    make, shapes, wanted = GRAPHS[name]
    builder = eqsat.Graph("views")
    operands = [builder.input(f"x{n}", shape, "float32") for n, shape in enumerate(shapes)]
    builder.output("y", eqsat.relu(make(*operands)))
    graph = builder.build()
    found = eqsat.optimize(graph, device="onnxruntime-cpu", measure=False, cache=False).graph
    assert sorted(node.op for node in found.nodes) == wanted
    for sizes in ((2, 3, 4), (1, 0, 1), (2, 1, 0), (0, 2, 2)):
        named = dict(zip(("batch", "past", "new"), sizes, strict=True))
        random = np.random.default_rng(0)
        arrays = [random.standard_normal([evaluate(d, named) for d in shape]).astype(np.float32) for shape in shapes]
        feeds = {f"x{n}": array for n, array in enumerate(arrays)}
        one, other = (select("numpy").compile(g).run(feeds)["y"] for g in (graph, found))
        assert np.array_equal(one, other)


@pytest.mark.parametrize(("joined_with", "number", "ops"), [
    (0.0, 0.0, ["pad"]),
    (-0.0, 0.0, ["concat", "pad"]),
    (1.0, 0.0, ["concat", "pad"]),
    (np.inf, np.inf, ["concat", "pad"]),
])  # fmt: skip
def test_a_constant_is_a_border_where_it_is_the_number_bit_for_bit(
    joined_with: float, number: float, ops: list[str]
) -> None:
    builder = eqsat.Graph("border")
    x = builder.input("x", ("rows", 3), "float32")
    rows = builder.constant(np.full((2, 3), joined_with, np.float32))
    builder.output("y", pad(concat([rows, x], axis=0).transpose(1, 0), pads=(0, 0, 0, 1), value=number).transpose(1, 0))
    found = eqsat.optimize(builder.build(), device="onnxruntime-cpu", measure=False, cache=False).graph
    assert sorted(node.op for node in found.nodes) == ops
