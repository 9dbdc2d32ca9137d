"""The type of a value that has one of two types, and of one that a loop may change from run to run."""

from __future__ import annotations

from collections.abc import Callable, Collection

from eqsat.language.terms import UNKNOWN, Dim, Sym, TensorType, ValueType


def join(a: ValueType, b: ValueType, fresh: Callable[[], Sym]) -> ValueType:
    """The type of a value that has either of two types: a dim in which they differ is a new one.

    Unknown rank where the ranks differ, unknown where the element types do.
    """
    if not isinstance(a, TensorType) or not isinstance(b, TensorType):
        return a if a == b else UNKNOWN
    if a.dtype is not b.dtype:
        return UNKNOWN
    if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
        return a.with_shape(None)
    return a.with_shape(tuple(x if x == y else fresh() for x, y in zip(a.shape, b.shape, strict=True)))


def widened(state: ValueType, made: ValueType, wide: set[str], fresh: Callable[[], Sym]) -> ValueType:
    """The type of a state before any run, given its type before one run and after that.

    A dim that changes becomes a new one, whose name is added to `wide`; one in `wide` stays, being any dim already. So
    each dim changes once at most, and then the rank, and repeating this ends.
    """
    if not isinstance(state, TensorType) or not isinstance(made, TensorType):
        return state if state == made else UNKNOWN
    if state.dtype is not made.dtype:
        return UNKNOWN
    if state.shape is None or made.shape is None or len(state.shape) != len(made.shape):
        return state.with_shape(None)
    dims: list[Dim] = []
    for before, after in zip(state.shape, made.shape, strict=True):
        if before == after or (isinstance(before, Sym) and before.names() & wide):
            dims.append(before)
        else:
            new = fresh()
            wide |= new.names()
            dims.append(new)
    return state.with_shape(tuple(dims))


def seen_outside(type: ValueType, names: Collection[str], fresh: Callable[[], Sym]) -> ValueType:
    """The type as the graph around a body sees it: dims of names that it does not have become new ones."""
    if not isinstance(type, TensorType) or type.shape is None:
        return type
    known = frozenset(names)
    return type.with_shape(tuple(d if isinstance(d, int) or d.names() <= known else fresh() for d in type.shape))
