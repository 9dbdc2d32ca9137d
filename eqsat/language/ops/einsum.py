"""Sums of products in index notation."""

from __future__ import annotations

import random
import string
from collections.abc import Mapping, Sequence
from typing import Any

from eqsat.errors import ShapeError
from eqsat.language.declaration import Operands, Sample, op, present, same_dtype
from eqsat.language.ops import sampling
from eqsat.language.terms import Attrs, Dim, Shape, TensorType, product
from eqsat.language.terms.dims import broadcast_dims


def explicit(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The indices of each operand and of the result, with the ellipsis and the arrow written out.

    >>> explicit("...ij,jk", [3, 2])
    (['Aij', 'jk'], 'Aik')
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ShapeError(f"einsum {equation!r} of {len(ranks)} operands", expected=f"{len(terms)} operands")
    free = [c for c in string.ascii_uppercase + string.ascii_lowercase if c not in equation]
    hidden = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=True)]
    for term, more in zip(terms, hidden, strict=True):
        if more < 0 or (more and "..." not in term):
            raise ShapeError(
                f"einsum {equation!r} of operands of ranks {list(ranks)}", expected="an index for each axis"
            )
    most = max((h for h, t in zip(hidden, terms, strict=True) if "..." in t), default=0)
    letters = "".join(free[:most])
    written = [
        term.replace("...", letters[most - more :]) if "..." in term else term
        for term, more in zip(terms, hidden, strict=True)
    ]
    if arrow:
        return written, right.replace("...", letters)
    joined = "".join(written)
    once = sorted(c for c in set(joined) if c not in letters and joined.count(c) == 1)
    return written, letters + "".join(once)


def _sizes(operands: Operands, equation: str) -> tuple[dict[str, Dim], str]:
    """The size of every index, and the indices of the result."""
    shapes = [present(operands, i).dims for i in range(len(operands))]
    terms, result = explicit(equation, [len(s) for s in shapes])
    sizes: dict[str, Dim] = {}
    for term, shape in zip(terms, shapes, strict=True):
        own: dict[str, Dim] = {}
        for index, dim in zip(term, shape, strict=True):
            # Operands broadcast against each other, not the axes of one.
            if isinstance(dim, int) and isinstance(other := own.setdefault(index, dim), int) and other != dim:
                raise ShapeError(
                    f"einsum {equation!r} of " + ", ".join(str(t) for t in operands),
                    expected=f"one size for index {index!r} of one operand, not {other} and {dim}",
                )
            joined = broadcast_dims(sizes.get(index, dim), dim)
            if joined is None:
                raise ShapeError(
                    f"einsum {equation!r} of " + ", ".join(str(t) for t in operands),
                    expected=f"one size for index {index!r}, not {sizes[index]} and {dim}",
                )
            sizes[index] = joined
    if any(c not in sizes for c in result):
        raise ShapeError(f"einsum {equation!r} has a result index that no operand has")
    return sizes, result


def _einsum_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    given = [present(operands, i) for i in range(len(operands))]
    same_dtype(given)
    if any(t.shape is None for t in given):
        return (given[0].with_shape(None),)
    sizes, result = _sizes(operands, attrs["equation"])
    return (given[0].with_shape(tuple(sizes[c] for c in result)),)


def _einsum_flops(operands: Operands, results: Sequence[TensorType], attrs: Attrs) -> Dim:
    sizes, _ = _sizes(operands, attrs["equation"])
    return product(sizes.values()) * max(len(operands), 1)


_EQUATIONS: Mapping[int, Sequence[str]] = {
    1: ("ij->ji", "ii->i", "ijk->ik", "...i->..."),
    2: ("ij,jk->ik", "bij,bjk->bik", "...ij,...jk->...ik", "i,j->ij", "bhid,bhjd->bhij", "ij,ij"),
    3: ("ij,jk,kl->il", "i,ij,j->"),
}


def _einsum_sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    equation = attrs.get("equation") or rng.choice(_EQUATIONS.get(len(known), _EQUATIONS[2]))
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    if len(terms) != len(known):
        return None
    sizes: dict[str, Dim] = {}
    for term, shape in zip(terms, known, strict=True):
        if shape is not None and "..." not in term:
            sizes.update(zip(term, shape, strict=False))
    shapes = []
    for term, shape in zip(terms, known, strict=True):
        lead = (2,) if "..." in term and rng.random() < 0.5 else ()
        drawn = tuple(sizes.setdefault(c, sampling.dim(rng)) for c in term.replace("...", ""))
        shapes.append(shape if shape is not None else (*lead, *drawn))
    return shapes, {**attrs, "equation": equation}


@op(
    infer=_einsum_type,
    operands=(1, None),
    flops=_einsum_flops,
    sample=_einsum_sample,
    multilinear=(0, 1, 2, 3),
    onnx="Einsum",
    shapes="Letters of `equation` are dims, equal where the letter is; `...` is dims that broadcast.",
)
def einsum(xp: Any, *operands: Any, equation: str) -> Any:
    """Sum of products by index notation, with or without ellipsis and arrow (ONNX Einsum)."""
    terms, result = explicit(equation, [x.ndim for x in operands])
    return xp.einsum(",".join(terms) + "->" + result, *operands)
