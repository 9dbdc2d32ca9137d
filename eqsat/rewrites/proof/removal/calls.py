"""Sorts of what functions of rules make of their arguments."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from eqsat.rewrites.proof.removal.frames import Frame
from eqsat.rewrites.proof.removal.sorts import NUMBER, ONES, Sort, Sorts, unknown


def _rank(sorts: Sorts, tree: ast.Call, one: ast.expr) -> Sort:
    frame = sorts.frame(one)
    return NUMBER if frame.fixed is not None else Sort("rank", frame)


def _size(sorts: Sorts, tree: ast.Call, one: ast.expr) -> Sort:
    if not (isinstance(one, ast.Name) and (one.id in sorts.thin or sorts.frame(one).fixed is not None)):
        raise unknown(tree)
    return NUMBER


def _len(sorts: Sorts, tree: ast.Call, one: ast.expr) -> Sort:
    sort = sorts.of(one)
    if sort.kind == "places":
        return replace(sort, kind="count")
    frame = sort.target if sort.kind == "perm" else sorts.dims(sort)
    return NUMBER if frame.fixed is not None else Sort("rank", frame)


def _shape(sorts: Sorts, tree: ast.Call, one: ast.expr) -> Sort:
    return Sort("dims", sorts.frame(one))


def _dim(sorts: Sorts, tree: ast.Call, one: ast.expr, axis: ast.expr) -> Sort:
    sorts.place(sorts.of(axis), sorts.frame(one))
    return NUMBER


def _broadcast(sorts: Sorts, tree: ast.Call, *shapes: ast.expr) -> Sort:
    return Sort("dims", sorts.frames.join(sorts.dims(sorts.of(one)) for one in shapes))


def _without(sorts: Sorts, tree: ast.Call, shape: ast.expr, axis: ast.expr) -> Sort:
    frame, place = sorts.dims(sorts.of(shape)), sorts.of(axis)
    sorts.place(place, frame)
    # Shapes that lack the same axis from the right are alike, whatever operand its number is counted with.
    name = (
        f"end {place.offset}"
        if place.kind == "rank"
        else place.name or (ast.unparse(axis) if place.literal is None else str(place.literal))
    )
    return Sort("dims", frame, name=name, offset=-1, side="inside")


def _without_all(sorts: Sorts, tree: ast.Call, shape: ast.expr, axes: ast.expr) -> Sort:
    frame = sorts.dims(sorts.of(shape))
    places = sorts.places(sorts.of(axes), frame)
    if places.side or not places.name:
        raise unknown(tree)
    rest = Frame(fixed=frame.fixed) if frame.fixed is not None else frame.moved(f"without {places.name}")
    return Sort("dims", rest, name="dropped")


def _ones_at(sorts: Sorts, tree: ast.Call, shape: ast.expr, axes: ast.expr) -> Sort:
    frame = sorts.dims(sorts.of(shape))
    places = sorts.places(sorts.of(axes), frame)
    if places.side:
        raise unknown(tree)
    return Sort("dims", frame, name=f"ones at {places.name}" if places.name else "")


def _ones(sorts: Sorts, tree: ast.Call, count: ast.expr) -> Sort:
    sort = sorts.of(count)
    if sort.kind == "rank":
        return Sort("dims", sort.frame, name=ONES, offset=sort.offset, side="any" if sort.offset else "")
    if sort.kind == "gap":
        return replace(sort, side="ones")
    if sort.literal is not None:
        return Sort("tuple", items=(NUMBER,) * sort.literal)
    raise unknown(tree)


def _replaced(sorts: Sorts, tree: ast.Call, shape: ast.expr, axis: ast.expr, new: ast.expr) -> Sort:
    frame = sorts.dims(sorts.of(shape))
    sorts.place(sorts.of(axis), frame)
    sorts.number(new)
    return Sort("dims", frame, name=ONES if sorts.of(shape).name == ONES else "")


def _mapped(sorts: Sorts, tree: ast.Call, axes: ast.expr, perm: ast.expr) -> Sort:
    turned = _perm(sorts, perm)
    return replace(sorts.places(sorts.of(axes), turned.target), frame=turned.frame)


def _place(sorts: Sorts, tree: ast.Call, perm: ast.expr, axis: ast.expr) -> Sort:
    turned = _perm(sorts, perm)
    return Sort("place", turned.target, name=sorts.place(sorts.of(axis), turned.frame).name)


def _permuted(sorts: Sorts, tree: ast.Call, shape: ast.expr, perm: ast.expr) -> Sort:
    turned, frame = _perm(sorts, perm), sorts.dims(sorts.of(shape))
    if not sorts.frames.is_same(frame, turned.frame):
        raise unknown(tree)
    return Sort("dims", turned.target)


def _inverse(sorts: Sorts, tree: ast.Call, perm: ast.expr) -> Sort:
    turned = _perm(sorts, perm)
    return replace(turned, frame=turned.target, target=turned.frame)


def _compose(sorts: Sorts, tree: ast.Call, first: ast.expr, second: ast.expr) -> Sort:
    one, other = _perm(sorts, first), _perm(sorts, second)
    if not sorts.frames.is_same(one.target, other.frame):
        raise unknown(tree)
    return Sort("perm", one.frame, other.target)


def _identity_perm(sorts: Sorts, tree: ast.Call, rank: ast.expr) -> Sort:
    sort = sorts.of(rank)
    if sort.kind != "rank" or sort.offset:
        raise unknown(tree)
    return Sort("perm", sort.frame, sort.frame)


def _dropped_perm(sorts: Sorts, tree: ast.Call, perm: ast.expr, axes: ast.expr) -> Sort:
    turned = _perm(sorts, perm)
    places = sorts.places(sorts.of(axes), turned.target)
    if places.side or not places.name:
        raise unknown(tree)
    move = f"without {places.name}"
    return Sort("perm", turned.frame.moved(move), turned.target.moved(move))


def _lowered(sorts: Sorts, tree: ast.Call, axes: ast.expr, count: ast.expr) -> Sort:
    gap, sort = sorts.of(count), sorts.of(axes)
    if gap.kind != "gap":
        raise unknown(tree)
    if sort.kind == "tuple":
        return Sort("tuple", items=tuple(replace(sorts.place(i, gap.frame), frame=gap.target) for i in sort.items))
    return replace(sorts.places(sort, gap.frame), frame=gap.target)


def _union(sorts: Sorts, tree: ast.Call, one: ast.expr, other: ast.expr) -> Sort:
    first, second = sorts.of(one), sorts.of(other)
    both = sorts.places(second, first.frame)
    one_of_both = sorts.places(first, first.frame)
    return replace(one_of_both, name=f"{first.name}+{both.name}", side=first.side or both.side)


def _spatial_axes(sorts: Sorts, tree: ast.Call, rank: ast.expr) -> Sort:
    sort = sorts.of(rank)
    if sort.kind != "rank" or sort.offset:
        raise unknown(tree)
    sorts.frames.keep_left(sort.frame, 2)
    sorts.frames.spaces.add(sort.frame)
    return Sort("places", sort.frame, name="space")


def _axes_to(sorts: Sorts, tree: ast.Call, record: ast.expr, perm: ast.expr) -> Sort:
    turned, sort = _perm(sorts, perm), sorts.of(record)
    if sort.kind != "slice" or not sorts.frames.is_same(sort.frame, turned.target):
        raise unknown(tree)
    return replace(sort, frame=turned.frame)


def _cut(sorts: Sorts, tree: ast.Call, axis: ast.expr, start: ast.expr, end: ast.expr) -> Sort:
    place = sorts.of(axis)
    if place.kind == "rank":
        place = sorts.place(place, place.frame)
    if place.kind != "place":
        raise unknown(tree)
    sorts.number(start)
    sorts.number(end)
    # Along an axis that is kept, so that it says nothing of those that are lost.
    return Sort("slice", place.frame)


def _prod(sorts: Sorts, tree: ast.Call, of: ast.expr) -> Sort:
    sort = sorts.of(of)
    if sort.side != "sizes" or not sort.name:
        raise unknown(tree)
    sorts.multiplied.add(sort.name)
    return NUMBER


def _tuple(sorts: Sorts, tree: ast.Call, of: ast.expr) -> Sort:
    sort = sorts.of(of)
    if sort.kind != "places":
        raise unknown(tree)
    return sort


def _perm(sorts: Sorts, tree: ast.expr) -> Sort:
    sort = sorts.of(tree)
    if sort.kind != "perm":
        raise unknown(tree)
    return sort


#: The sorts of the functions that are followed, by name.
CALLS: Mapping[str, Callable[..., Sort]] = MappingProxyType(
    {
        "rank": _rank,
        "size": _size,
        "len": _len,
        "shape": _shape,
        "dim": _dim,
        "broadcast": _broadcast,
        "without": _without,
        "without_all": _without_all,
        "ones_at": _ones_at,
        "ones": _ones,
        "replaced": _replaced,
        "mapped": _mapped,
        "place": _place,
        "permuted": _permuted,
        "inverse": _inverse,
        "compose": _compose,
        "identity_perm": _identity_perm,
        "dropped_perm": _dropped_perm,
        "lowered": _lowered,
        "union": _union,
        "spatial_axes": _spatial_axes,
        "axes_to": _axes_to,
        "cut": _cut,
        "prod": _prod,
        "tuple": _tuple,
    }
)
