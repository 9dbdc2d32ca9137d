"""Terms and forms of views computed by NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eqsat.language.terms.dims import Dim, evaluate
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.theories.contractions import UnreadError
from eqsat.rewrites.theories.stating import term_of
from eqsat.rewrites.theories.views.arranging import written_views
from eqsat.rewrites.theories.views.pieces import PiecewiseView
from eqsat.rewrites.theories.views.reading import ViewReading, states_view

Bounds = tuple[int, ...]

_NAMESPACE = {
    "reshape": lambda x, shape: np.reshape(x, shape),
    "transpose": lambda x, perm: np.transpose(x, perm),
    "expand": lambda x, shape: np.broadcast_to(x, shape),
    "gather": lambda x, i, axis: np.take(x, i, axis=axis),
    "concat": lambda *xs, axis: np.concatenate(xs, axis=axis),
    "fill": lambda shape, value, dtype: np.full(shape, value),
    "gather_nd": lambda x, i: x[tuple(np.moveaxis(i, -1, 0))],
    "iota": lambda start, step, size, dtype: start + step * np.arange(size),
    "shape": lambda x, start=0, end=None: np.array(x.shape[start:end]),
    "add": np.add,
    "mul": np.multiply,
    "neg": np.negative,
    "tile": lambda x, repeats: np.tile(x, repeats),
}


def _pad(x: NDArray[Any], pads: Bounds, mode: str, value: float) -> NDArray[Any]:
    rank = x.ndim
    x = x[tuple(slice(max(-b, 0), n - max(-e, 0)) for n, b, e in zip(x.shape, pads[:rank], pads[rank:], strict=True))]
    borders = [(max(b, 0), max(e, 0)) for b, e in zip(pads[:rank], pads[rank:], strict=True)]
    return np.pad(x, borders, mode="constant", constant_values=value)


def _slice(x: NDArray[Any], axes: Bounds, starts: Bounds, ends: Bounds, steps: Bounds) -> NDArray[Any]:
    cuts = [slice(None)] * x.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        cuts[axis] = slice(start, None if end < 0 else end, step)
    return x[tuple(cuts)]


def view_read(text: str, asked: Sequence[str]) -> PiecewiseView | None:
    """The view that a term is under conditions; None for one that is not read."""
    term = term_of(text, asked)
    assert term is not None
    try:
        return ViewReading(frozenset(term[1])).map_of(term[0])
    except UnreadError:
        return None


def proved_forms(
    view: PiecewiseView, text: str, asked: Sequence[str], operands: Mapping[str, tuple[Dim, ...]]
) -> list[str]:
    """The forms that a view of operands is written in and that are proved to be the term."""
    forms = list(written_views(view, operands))
    stated = (f"%phase expand\none: {text} => {form} if {', '.join(asked)}" for form in forms)
    rules = [parse_rules(one, origin="identity")[0] for one in stated]
    return [form for form, rule in zip(forms, rules, strict=True) if states_view(rule)]


def computed(text: str, x: NDArray[Any], indices: Mapping[str, NDArray[Any]] = MappingProxyType({})) -> NDArray[Any]:
    """The value of a term of views of x0 by NumPy, with indices by their names."""
    names = {**_NAMESPACE, "slice": _slice, "pad": _pad, "x0": x, "dim": lambda a, axis: a.shape[axis], **indices}
    found: NDArray[Any] = eval(text, names)
    return found


def filled(view: PiecewiseView, operands: Mapping[str, NDArray[Any]], sizes: Mapping[str, int]) -> NDArray[Any]:
    """The elements of a view of operands where dims have sizes; each is filled by one piece, or by the rest."""
    digits = [evaluate(size, sizes) for size in view.sizes]
    found = np.full(digits, np.nan if view.rest is None else view.rest)
    taken = np.zeros(digits, bool)
    for piece in view.pieces:
        extents = [tuple(evaluate(one, sizes) for one in extent) for extent in piece.extents]
        places = np.full([count for _, count, _ in extents], evaluate(piece.offset, sizes))
        for axis, (_, count, stride) in enumerate(extents):
            places = places + (np.arange(count) * stride).reshape([-1 if a == axis else 1 for a in range(len(extents))])
        box = tuple(slice(start, start + count) for start, count, _ in extents)
        assert not taken[box].any()
        taken[box] = True
        whole: NDArray[Any] = eval(piece.operand, {**_NAMESPACE, **operands})
        found[box] = whole.reshape(-1)[places] if places.size else 0
    assert view.rest is not None or taken.all()
    return found.reshape([evaluate(size, sizes) for size in view.shape])
