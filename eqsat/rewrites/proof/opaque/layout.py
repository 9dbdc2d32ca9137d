"""Axes of operands and results by an operator's index form: those walked in step, and those that are opaque."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat.errors import ShapeError
from eqsat.language.declaration import OpSpec
from eqsat.language.declaration.indices import Index, IndexForm, IndexTerm
from eqsat.language.terms import Attrs, TensorType


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis, walked under a name, the slow part of it under that of a group; opaque without a name."""

    name: str = ""
    group: str = ""

    @property
    def is_opaque(self) -> bool:
        """True if elements along it are computed from one another, by nothing that the form says."""
        return not self.name


_OPAQUE = Axis()
#: An axis of one element, which is there in place of another.
SINGLE = Axis("1")


@dataclass(frozen=True)
class OperatorAxes:
    """The axes of an operator's operands and of its result, for operands of some ranks.

    `operands` has the axes of each operand that is there, by its place. `linear` are the operands that the result is
    linear in, `added` those that are added to it; all others the result depends on in any way. `summed` are names that
    the result lacks, over which products of linear operands are summed. An axis of `order` is one whose place among
    the opaque ones an attribute says.
    """

    operands: Mapping[int, tuple[Axis, ...]]
    result: tuple[Axis, ...]
    linear: tuple[int, ...]
    added: tuple[int, ...]
    summed: tuple[str, ...]
    order: tuple[int, ...]

    @property
    def others(self) -> tuple[int, ...]:
        """The operands that are neither added nor what the result is linear in."""
        return tuple(place for place in self.operands if place not in (*self.linear, *self.added))

    def opaque(self, place: int | None) -> tuple[int, ...]:
        """The opaque axes of an operand, or of the result, in the order that attributes name them in."""
        axes = self.result if place is None else self.operands[place]
        found = tuple(k for k, axis in enumerate(axes) if axis.is_opaque)
        return self.order if set(self.order) == set(found) else found


def is_opaque(declared: OpSpec) -> bool:
    """True of an operator that computes elements along axes from one another and keeps these, or moves windows."""
    form = declared.form
    if form is None or declared.pointwise or not declared.is_shipped or form.turns:
        return False
    computed = any(i.mixed or i.window for i in form.result.indices) or (
        form.result.attribute != "" and any(t.attribute == form.result.attribute for t in form.operands)
    )
    return computed or declared.windowed


def fitting_ranks(declared: OpSpec, place: int, known: Sequence[int | None], most: int) -> list[int]:
    """The ranks up to one that an operand may have beside those before it."""
    form = declared.form
    assert form is not None
    if place >= len(form.terms):
        return list(range(most + 1))
    term = form.terms[place]
    if not term.indices:
        return list(range((known[0] or most) + 1))
    if term.added and not term.open:
        return list(range(min(term.fixed, most) + 1))
    if not term.open:
        return [term.fixed] if term.fixed <= most else []
    if declared.windowed and place:
        return [] if known[0] is None else [known[0] - form.terms[0].fixed + term.fixed]
    return list(range(term.fixed + declared.windowed, most + 1))


def layout(declared: OpSpec, attrs: Mapping[str, Any], ranks: Sequence[int | None]) -> OperatorAxes | None:
    """The axes of operands of some ranks, None for one left out; None where the form has no such ranks."""
    form = declared.form
    assert form is not None
    order = _named(form, attrs, ranks[0])
    if order is None:
        return None
    walked = {i.name for i in _indices(form) if _is_walked(form, i)}
    counts: dict[str, int] = {}
    operands: dict[int, tuple[Axis, ...]] = {}
    for place, rank in enumerate(ranks):
        if rank is None:
            continue
        term = form.terms[place] if place < len(form.terms) else None
        axes = (
            None
            if rank is None
            else (_OPAQUE,) * rank
            if term is None
            else _axes(term, rank, walked, counts, _tail(order, term, ranks[0]))
        )
        if axes is None:
            return None
        operands[place] = axes
    if declared.windowed and (len(set(counts.values())) != 1 or 0 in counts.values()):
        return None
    result = _result(form.result, walked, counts, order, operands[0])
    kept = {axis.name for axis in result}
    linear = tuple(p for p in declared.multilinear if p in operands) if _is_linear(form, attrs) else ()
    added = tuple(
        p for p, t in enumerate(form.terms) if t.added and p in operands and not any(a.is_opaque for a in operands[p])
    )
    summed = tuple(sorted({a.name for p in linear for a in operands[p]} - kept - {""}))
    for place in set(operands) - {*linear, *added}:
        operands[place] = tuple(a if a.name in kept else _OPAQUE for a in operands[place])
    if {a.name for p in set(operands) - {*linear} for a in operands[p]} & set(summed):
        return None
    return OperatorAxes(operands, result, linear, added, summed, order)


def _is_linear(form: IndexForm, attrs: Mapping[str, Any]) -> bool:
    """True where the operator is linear but for an activation behind it."""
    return all(name == "activation" or attrs[name] == value for name, value in form.linear_if.items())


def _indices(form: IndexForm) -> list[Index]:
    return [i for t in (*form.terms, form.result) for i in t.indices]


def _is_walked(form: IndexForm, index: Index) -> bool:
    """True of a name that is nowhere a window, nor mixed, nor gone together with something that reads its size."""
    uses = [i for i in _indices(form) if i.name == index.name]
    is_offset = any(i.window == index.name for i in _indices(form))
    is_read = index.name in form.reads
    return index.name != "1" and not is_offset and not is_read and not any(i.window or i.mixed for i in uses)


def _named(form: IndexForm, attrs: Mapping[str, Any], rank: int | None) -> tuple[int, ...] | None:
    """The axes that an attribute of the form names, in its order; None where there are no such axes."""
    term = form.result
    if not term.attribute or rank is None:
        return ()
    value = attrs[term.attribute]
    axes = tuple(value) if isinstance(value, tuple) else (value,)
    if not all(-rank <= axis < rank for axis in axes) or len({axis % rank for axis in axes}) != len(axes):
        return None
    axes = tuple(axis % rank for axis in axes)
    return tuple(range(axes[0], rank)) if term.tail else axes


def _tail(order: tuple[int, ...], term: IndexTerm, rank: int | None) -> tuple[int, ...] | None:
    """The axes of a term that its attribute names; None, all of them, of one that has no others."""
    return None if term.attribute and not term.indices else order if term.attribute else ()


def _axes(
    term: IndexTerm, rank: int, walked: set[str], counts: dict[str, int], named: tuple[int, ...] | None
) -> tuple[Axis, ...] | None:
    if named is None:
        return (_OPAQUE,) * rank
    many = rank - term.fixed
    if many < 0 or (many and not term.open):
        return None
    axes: list[Axis] = []
    for index in term.indices:
        if index.many and (counts.setdefault(index.name, many) != many or (index.window and not many)):
            return None
        axes += _axes_of(index, walked, many)
    return tuple(_OPAQUE if k in named else axis for k, axis in enumerate(axes))


def _result(
    term: IndexTerm, walked: set[str], counts: dict[str, int], order: tuple[int, ...], first: tuple[Axis, ...]
) -> tuple[Axis, ...]:
    if term.attribute:
        return first
    axes: list[Axis] = []
    for index in term.indices:
        if index.many and index.name == "1":
            axes += [SINGLE] * next(iter(counts.values()))
        else:
            axes += _axes_of(index, walked, counts.get(index.name, 0))
    return tuple(axes)


def _axes_of(index: Index, walked: set[str], many: int) -> list[Axis]:
    """The axes of one index of a form, which may stand for so many."""
    if index.name not in walked:
        return [_OPAQUE] * (many if index.many else 1)
    return [Axis(f"{index.name}{k}") for k in range(many)] if index.many else [Axis(index.name, index.group)]


def sizes_of(
    declared: OpSpec, found: OperatorAxes, attrs: Attrs, operands: Sequence[TensorType | None]
) -> dict[str, Any]:
    """The sizes of walked axes by their names; ShapeError where operands do not agree."""
    sizes: dict[str, Any] = {"1": 1}
    for place, axes in sorted(found.operands.items()):
        operand = operands[place]
        assert operand is not None
        for axis, dim in zip(axes, operand.dims, strict=True):
            if axis.is_opaque:
                continue
            size: Any = dim
            if axis.group:
                count = _count(declared, attrs, axis)
                if dim % count != 0:
                    raise ShapeError(f"{dim} in groups of {declared.name}", expected=f"a multiple of {count}")
                size = dim // count
            if not sizes.setdefault(axis.name, size) == size:
                raise ShapeError(f"{declared.name} of dims {sizes[axis.name]} and {size}", expected="equal ones")
    return sizes


def _whole(declared: OpSpec, sizes: dict[str, Any], attrs: Attrs, axis: Any) -> Any:
    form = declared.form
    assert form is not None
    if axis == SINGLE:
        return 1
    return sizes[axis.name] * attrs[form.sizes[axis.group]] if axis.group else sizes[axis.name]


def whole_size(declared: OpSpec, sizes: Mapping[str, Any], attrs: Mapping[str, Any], axis: Axis) -> Any:
    """The size of a walked axis, all groups together."""
    return sizes[axis.name] * _count(declared, attrs, axis) if axis.group else sizes[axis.name]


def _count(declared: OpSpec, attrs: Mapping[str, Any], axis: Axis) -> Any:
    form = declared.form
    assert form is not None
    return attrs[form.sizes[axis.group]]
