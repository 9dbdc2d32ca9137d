"""Views of several operands: pads, concatenations and dims that are sums, against NumPy at several sizes."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
from hypothesis import event, given, settings
from numpy.typing import NDArray

from eqsat.language.terms.dims import Dim, Sym, evaluate, exact_quotient
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.theories.contractions import UnreadError
from eqsat.rewrites.theories.stating import term_of
from eqsat.rewrites.theories.views.arranging import written_views
from eqsat.rewrites.theories.views.naming import size_text
from eqsat.rewrites.theories.views.reading import ViewReading, states_view
from tests.support.view_terms import computed, filled

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
        op = draw(st.sampled_from(["reshape", "transpose", "slice", "pad", "concat", "halves", "expand"]))
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
    term = term_of(text, asked)
    assert term is not None
    try:
        view = ViewReading(frozenset(term[1])).map_of(term[0])
    except UnreadError:
        event("not read")
        return
    event("read")
    assert view.shape == shape
    proved = []
    for form in written_views(view, OPERANDS):
        (rule,) = parse_rules(f"%phase expand\none: {text} => {form} if {', '.join(asked)}", origin="identity")
        if states_view(rule):
            proved.append(form)
    event("written" if proved else "not written")
    for sizes in SIZES:
        given = operands(**sizes)
        wanted = computed(text, given["x0"], {"x1": given["x1"]})
        named = {str(N): sizes["n"], str(M): sizes["m"]}
        assert wanted.shape == tuple(evaluate(size, named) for size in shape)
        assert np.array_equal(filled(view, given, named), wanted)
        for form in proved:
            assert np.array_equal(computed(form, given["x0"], {"x1": given["x1"]}), wanted)
