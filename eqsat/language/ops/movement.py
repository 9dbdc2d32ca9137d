"""Operators that move whole blocks of elements: reshape, transpose, concat; and dims in order."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eqsat.errors import ShapeError
from eqsat.language.declaration import Operands, Sample, op, present, same_dtype, symbolic, unchanged
from eqsat.language.ops import sampling
from eqsat.language.ops.operands import demands, enumeration
from eqsat.language.terms import Attrs, Dim, Shape, TensorType, dim_max, product
from eqsat.language.terms.dims import Atom, dim_min
from eqsat.language.terms.types import merge_shapes


def at_most(a: Dim, b: Dim) -> bool:
    """True only where `a` is provably no more than `b`, whatever the named dims are.

    >>> from eqsat.language.terms.dims import Sym
    >>> at_most(Sym.named("n"), Sym.named("n") + 1), at_most(Sym.named("n"), 4)
    (True, False)
    """
    gap = b - a
    if isinstance(gap, int):
        return gap >= 0
    return all(c > 0 and all(_never_negative(atom) for atom, _ in monomial) for monomial, c in gap.terms)


def _never_negative(atom: Atom) -> bool:
    if isinstance(atom, str):
        return True
    name, a, b = atom
    signs = at_most(0, a), at_most(0, b)
    return any(signs) if name == "max" else all(signs)


def _bounded(a: Any, b: Any) -> tuple[Any, Any] | None:
    """Two dims, first one that says by itself what bounds it, as those do whose comparisons are recorded."""
    if hasattr(type(a), "smaller"):
        return a, b
    return (b, a) if hasattr(type(b), "smaller") else None


def smaller(a: Dim, b: Dim) -> Dim:
    """The smaller of two dims, a symbol only where neither is provably so."""
    one = _bounded(a, b)
    if one is not None:
        least: Dim = one[0].smaller(one[1])
        return least
    return a if at_most(a, b) else b if at_most(b, a) else dim_min(a, b)


def larger(a: Dim, b: Dim) -> Dim:
    """The larger of two dims, a symbol only where neither is provably so."""
    one = _bounded(a, b)
    if one is not None:
        most: Dim = one[0].larger(one[1])
        return most
    return b if at_most(a, b) else a if at_most(b, a) else dim_max(a, b)


def _checked_shape(shape: Any) -> Shape:
    if not isinstance(shape, tuple) or any(isinstance(d, int) and d < 0 for d in shape):
        raise ShapeError(f"shape {shape}", expected="dims of 0 or more", remedy="work out -1 before")
    return shape


def _reshape_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    x, shape = present(operands, 0), _checked_shape(attrs["shape"])
    if x.shape is not None:
        before, after = x.size, product(shape)
        gap = before - after
        if isinstance(gap, int) and gap:
            raise ShapeError(f"reshape of {x} to {list(shape)}", expected=f"{before} elements, not {after}")
    return (x.with_shape(shape),)


def _factors(rng: random.Random, x: Shape, attrs: Mapping[str, Any]) -> Shape:
    """Another shape of as many elements: neighbours merged, dims split, or ones put in."""
    dims: list[Dim] = list(x)
    for _ in range(rng.randint(1, 2)):
        kind, at = rng.choice(("merge", "one", "rotate")), rng.randrange(len(dims) + 1)
        if kind == "merge" and 0 < at < len(dims):
            dims[at - 1 : at + 1] = [dims[at - 1] * dims[at]]
        elif kind == "one" and len(dims) < 5:
            dims.insert(at, 1)
        elif kind == "rotate":
            dims = dims[at:] + dims[:at]
    return tuple(dims)


def _reshape_sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    shape = attrs.get("shape")
    if known[0] is None and shape is not None:
        return (_factors(rng, shape, {}),), attrs
    return sampling.one_operand(shape=_factors)(rng, known, attrs)


#: Permutations of the axes of matrices, all but the identity, and of stacks of matrices.
_PERMUTATIONS = [(1, 0), *(p for p in itertools.permutations(range(3)) if p != (0, 1, 2))]


@op(
    infer=_reshape_type,
    sample=_reshape_sample,
    multilinear=(0,),
    view=True,
    onnx="Reshape",
    instances=({"shape": sampling.flat}, {"shape": sampling.matrix}),
    shapes="The dims of `shape`, as many elements as x has.",
    total="static",
    choices={"shape": enumeration.regrouped},
    on_dims=symbolic.reshape,
    unchanged=unchanged.same_shape,
    demands=demands.as_many,
    hands_on=True,
    strided=True,
)
def reshape(xp: Any, x: Any, *, shape: tuple[int, ...]) -> Any:
    """The elements in row-major order under another shape, given in full: 0 and -1 have no meaning of their own."""
    return np.reshape(x, shape)


def _transpose_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    x, perm = present(operands, 0), attrs["perm"]
    if sorted(perm) != list(range(len(perm))):
        raise ShapeError(f"perm {list(perm)}", expected="a permutation of the axes")
    if x.shape is None:
        return (x,)
    if len(perm) != x.rank:
        raise ShapeError(f"perm {list(perm)} for {x}", expected=f"a permutation of {x.rank} axes")
    return (x.with_shape(tuple(x.shape[p] for p in perm)),)


@op(
    infer=_transpose_type,
    sample=sampling.one_operand(rank=lambda a: len(a.get("perm", ())), perm=sampling.permutation),
    multilinear=(0,),
    movement=True,
    onnx="Transpose",
    instances=[{"perm": p} for p in _PERMUTATIONS],
    shapes="Dim i of the result is dim perm[i] of x.",
    total="all",
    on_dims=symbolic.transpose,
    unchanged=unchanged.in_order,
    hands_on=True,
    strided=True,
)
def transpose(xp: Any, x: Any, *, perm: tuple[int, ...]) -> Any:
    """Axis i of the result is axis perm[i] of the operand."""
    return np.transpose(x, perm)


def axis_of(operand: TensorType, axis: int) -> int:
    """An axis of a tensor of known rank, counted from the left; ShapeError where there is none such."""
    if not -operand.rank <= axis < operand.rank:
        raise ShapeError(
            f"axis {axis} of {operand}",
            expected=f"an axis from {-operand.rank} to {operand.rank - 1}" if operand.rank else "a tensor with axes",
        )
    return axis % operand.rank


def _concat_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    given = [present(operands, i) for i in range(len(operands))]
    same_dtype(given)
    shapes = [t.shape for t in given if t.shape is not None]
    if len({len(s) for s in shapes}) > 1:
        raise ShapeError("concat of " + ", ".join(map(str, given)), expected="operands of one rank")
    if not shapes:
        return (given[0],)
    axis = axis_of(next(t for t in given if t.shape is not None), attrs["axis"])
    rest: Shape | None = None
    for shape in shapes:
        try:
            rest = merge_shapes(rest, (*shape[:axis], 0, *shape[axis + 1 :]))
        except ShapeError:
            raise ShapeError(
                "concat of " + ", ".join(map(str, given)) + f" along axis {axis}",
                expected="shapes that differ along that axis only",
            ) from None
    if rest is None or len(shapes) < len(given):
        return (given[0].with_shape(None),)
    total: Dim = 0
    for shape in shapes:
        total = total + shape[axis]
    return (given[0].with_shape((*rest[:axis], total, *rest[axis + 1 :])),)


def _concat_sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    base = next((s for s in known if s is not None), None)
    drawn = sampling.one_operand(axis=sampling.axis)(rng, [base], attrs)
    if drawn is None:
        return None
    (base,), full = drawn
    if not -len(base) <= full["axis"] < len(base):
        return None
    axis = full["axis"] % len(base)
    return [s if s is not None else (*base[:axis], sampling.dim(rng), *base[axis + 1 :]) for s in known], full


@op(
    infer=_concat_type,
    operands=(1, None),
    sample=_concat_sample,
    movement=True,
    onnx="Concat",
    instances=({"axis": 0}, {"axis": 1}),
    shapes="Operands of one rank whose dims agree but at `axis`, where the result has their sum.",
    total="static",
    beside=enumeration.beside_concat,
    on_dims=symbolic.concat,
    unchanged=unchanged.alone,
    demands=demands.joined,
    pulled=True,
    along_axes=True,
)
def concat(xp: Any, *xs: Any, axis: int) -> Any:
    """The operands one after the other along an axis."""
    return np.concatenate(xs, axis=axis)
