"""Subscripts held against the bounds of their tensors: for the sizes of one call, and before any is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from eqsat.errors import BoundsError, RangeError
from eqsat.language.comprehension.extents.affine import Range, affine
from eqsat.language.comprehension.extents.ranges import Inferred
from eqsat.language.comprehension.meaning.scopes import ResolvedEquation, Scope
from eqsat.language.comprehension.text.printer import shown
from eqsat.language.comprehension.text.syntax import Applied, Binary, Conditional, Expression, Unary, children
from eqsat.language.terms import Dim
from eqsat.language.terms.dims import evaluate as size_of

#: Intervals of subscripts that reach this far are given up: int64 might not hold what they are made of.
FARTHEST = 2**62


@dataclass(frozen=True)
class Guarded:
    """An element that is read where all of some conditions hold, each with whether it has to be true."""

    call: Applied
    conditions: tuple[tuple[Expression, bool], ...]


def guarded_reads(expression: Expression, tensors: Mapping[str, int]) -> Iterator[Guarded]:
    """The elements that an expression reads, with the conditions of ?:, && and || that they are read under."""
    yield from _guarded(expression, tensors, ())


def _guarded(
    expression: Expression, tensors: Mapping[str, int], conditions: tuple[tuple[Expression, bool], ...]
) -> Iterator[Guarded]:
    match expression:
        case Conditional(condition=condition, yes=yes, no=no):
            yield from _guarded(condition, tensors, conditions)
            yield from _guarded(yes, tensors, (*conditions, (condition, True)))
            yield from _guarded(no, tensors, (*conditions, (condition, False)))
            return
        case Binary(operator=("&&" | "||") as operator, left=left, right=right):
            yield from _guarded(left, tensors, conditions)
            yield from _guarded(right, tensors, (*conditions, (left, operator == "&&")))
            return
        case Applied(name=name) if name in tensors:
            yield Guarded(expression, conditions)
    for child in children(expression):
        yield from _guarded(child, tensors, conditions)


def check_bounds(scope: Scope, inferred: Inferred) -> None:
    """Refuse subscripts that pass their bounds, as far as sizes say: BoundsError.

    These are subscripts of what is read, of what `where exists` keeps inside, and of the target. Those that are no sum
    of indices, or read under a condition, are looked at when they are computed.
    """
    for one, ranges in zip(scope.statements, inferred.ranges, strict=True):
        if not any(_is_empty(ranges[index]) for index in one.indices):
            _check_written(scope, one, inferred, ranges)
        if any(map(_is_empty, ranges.values())):
            continue
        for call in one.kept:
            _check(scope, one, call, inferred, ranges)
        for read in guarded_reads(one.value, scope.ranks):
            if not read.conditions:
                _check(scope, one, read.call, inferred, ranges)
        statement = one.statement
        written = Applied(statement.target, statement.subscripts, statement.place)
        for call in (*one.kept, written):
            _check(scope, one, call, inferred, ranges)


def check_defined(scope: Scope, inferred: Inferred) -> None:
    """Refuse results of a stated shape that statements define in part alone, where sizes are given: RangeError."""
    for result in scope.function.results:
        if result.extents is None or result.name in scope.updated:
            continue
        boxes = [
            [ranges[index] for index in one.indices]
            for one, ranges in zip(scope.statements, inferred.ranges, strict=True)
            if one.statement.target == result.name and one.statement.is_definition
        ]
        ends = [*inferred.shapes[result.name], *(end for box in boxes for span in box for end in span)]
        if all(isinstance(end, int) for end in ends) and not _cover(inferred.shapes[result.name], boxes):
            raise scope.fault(
                RangeError,
                f"elements of {result.name} are not defined",
                result.place,
                expected=f"statements that define all of {list(inferred.shapes[result.name])}",
                remedy=f"define {result.name} with a whole range before, such as by 0",
            )


def _cover(shape: Sequence[Dim], boxes: list[list[Range]]) -> bool:
    """True where every element of a shape is in one of some boxes."""
    if not shape or not boxes:
        return bool(boxes) or 0 in shape
    if any(all(span == (0, extent) for span, extent in zip(box, shape, strict=True)) for box in boxes):
        return True
    ends = {0, size_of(shape[0], {}), *(size_of(end, {}) for box in boxes for end in box[0])}
    return all(
        _cover(
            shape[1:], [box[1:] for box in boxes if size_of(box[0][0], {}) <= low and high <= size_of(box[0][1], {})]
        )
        for low, high in pairwise(sorted(end for end in ends if 0 <= end <= size_of(shape[0], {})))
    )


def _check_written(scope: Scope, one: ResolvedEquation, inferred: Inferred, ranges: Mapping[str, Range]) -> None:
    """Refuse ranges of `where` that pass the bounds of the target: NumPy would wrap them, or cut them off."""
    target = one.statement.target
    for axis, (index, extent) in enumerate(zip(one.indices, inferred.shapes[target], strict=True)):
        low, high = ranges[index]
        if index in one.ranges and (_is_negative(low) or _is_negative(extent - high)):
            raise scope.fault(
                BoundsError,
                f"{target}({', '.join(one.indices)}) passes the bounds of {target} on axis {axis}",
                one.statement.subscripts[axis].place,
                expected=f"a range inside 0:{extent}; it is {low}:{high}",
                remedy=f"give {index} a smaller range, or the first statement that defines {target} a larger one",
            )


def _is_empty(span: Range) -> bool:
    low, high = span
    return isinstance(low, int) and isinstance(high, int) and low >= high


def _check(scope: Scope, one: ResolvedEquation, call: Applied, inferred: Inferred, ranges: Mapping[str, Range]) -> None:
    for axis, (subscript, extent) in enumerate(zip(call.arguments, inferred.shapes[call.name], strict=True)):
        form = affine(subscript, inferred.known)
        if form is None or not form.factors.keys() <= ranges.keys():  # scalars that are computed are no indices
            continue
        least, most = form.least(ranges), form.most(ranges)
        if _is_negative(least):
            reached = f"begins at {least}"
        elif _is_negative(extent - 1 - most):
            reached = f"ends at {most}"
        else:
            continue
        spans = {name: f"{low}:{high}" for name, (low, high) in ranges.items() if name in form.factors}
        given = ", ".join(f"{name} in {text}" for name, text in spans.items())
        raise scope.fault(
            BoundsError,
            f"{shown(call)} passes the bounds of {call.name} on axis {axis}",
            subscript.place,
            expected=f"a subscript of 0 to {extent - 1}; it {reached}{' for ' if given else ''}{given}",
            remedy=f"give {', '.join(form.factors) or one.statement.target} a smaller range in where",
        )


def _is_negative(dim: Dim) -> bool:
    """True of what is below 0 for every size, or at the sizes given."""
    return isinstance(dim, int) and dim < 0


def is_inside(subscript: Expression, extent: Dim, ranges: Mapping[str, Range], known: Mapping[str, Dim]) -> bool:
    """True where intervals show that a subscript stays inside an extent, whatever sizes that are left free are."""
    form = affine(subscript, known)
    if form is not None and form.factors.keys() <= ranges.keys():
        least, most = form.least(ranges), form.most(ranges)
        if not all(isinstance(dim, int) for dim in (least, most, extent)):
            return _is_never_negative(least) and _is_never_negative(extent - 1 - most)
    span = _interval(subscript, ranges, known)
    return span is not None and isinstance(extent, int) and span[0] >= 0 and span[1] < extent


def _is_never_negative(dim: Dim) -> bool:
    """True of a sum and product of sizes, which are not negative, without negative numbers."""
    if isinstance(dim, int):
        return dim >= 0
    return all(factor > 0 and all(isinstance(atom, str) for atom, _ in monomial) for monomial, factor in dim.terms)


def _interval(expression: Expression, ranges: Mapping[str, Range], known: Mapping[str, Dim]) -> tuple[int, int] | None:
    """The least and the largest value of an expression of integers, or bounds of these; None of elements of tensors."""
    form = affine(expression, known)
    if form is not None and form.factors.keys() <= ranges.keys():
        least, most = form.least(ranges), form.most(ranges)
        if isinstance(least, int) and isinstance(most, int) and max(abs(least), abs(most)) < FARTHEST:
            return least, most
        return None
    match expression:
        case Unary(operator="-", operand=operand):
            inner = _interval(operand, ranges, known)
            return None if inner is None else (-inner[1], -inner[0])
        case Conditional(yes=yes, no=no):
            a, b = _interval(yes, ranges, known), _interval(no, ranges, known)
            return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))
        case Applied(name="min" | "max", arguments=(left, right)):
            return _between(expression.name, _interval(left, ranges, known), _interval(right, ranges, known))
        case Binary(operator=operator, left=left, right=right):
            made = _combined(operator, _interval(left, ranges, known), _interval(right, ranges, known))
            return made if made is not None and max(map(abs, made)) < FARTHEST else None
    return None


def _between(name: str, a: tuple[int, int] | None, b: tuple[int, int] | None) -> tuple[int, int] | None:
    """The interval of a minimum or maximum, one of whose operands may be unknown."""
    if a is None and b is None:
        return None
    if a is not None and b is not None:
        choose = min if name == "min" else max
        return choose(a[0], b[0]), choose(a[1], b[1])
    return None


def _combined(operator: str, a: tuple[int, int] | None, b: tuple[int, int] | None) -> tuple[int, int] | None:
    if a is None or b is None:
        return None
    match operator:
        case "+":
            return a[0] + b[0], a[1] + b[1]
        case "-":
            return a[0] - b[1], a[1] - b[0]
        case "*":
            corners = [x * y for x in a for y in b]
            return min(corners), max(corners)
        case "/" if b[0] > 0:
            corners = [int(x / y) if abs(x) < 2**52 else x // y for x in a for y in b]
            return min(corners), max(corners)
        case "%" if b[0] > 0 and a[0] >= 0:
            return 0, min(a[1], b[1] - 1)
    return None
