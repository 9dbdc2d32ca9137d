"""Index forms of functions: which axes of the operands and of the result are walked in step, from which laws derive.

Axes belong together where each statement reads them by one index that walks all of them, and defines its target along
it. A place of the result along such axes depends on the same place of the operands alone, so that operands that are
joined or cut along them make results that are. Where one sum is all there is, the axes of its index are summed in step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from eqsat.language.comprehension.definitions.sources import is_plain, subscript_of
from eqsat.language.comprehension.definitions.statement import StatementContext, TermNames
from eqsat.language.comprehension.definitions.trials import formulas_of, trials_of
from eqsat.language.comprehension.functions import TensorFunction
from eqsat.language.comprehension.meaning.typed import ElementTypes
from eqsat.language.comprehension.text.syntax import Applied, Expression, Name, children, expressions_of, walk
from eqsat.language.terms import Sym

#: An axis of a tensor, by name and number.
Axis = tuple[str, int]


def index_form(function: TensorFunction, linear: Collection[int]) -> str:
    """The index form of a function with one result, `linear` in the operands at some places; empty where none fits.

    >>> from eqsat.language.comprehension.engine import comprehension
    >>> softmax = comprehension('''def softmax(float(M,N) x) -> (y) {
    ...   m(i) max=! x(i,j)  e(i,j) = exp(x(i,j) - m(i))  s(i) +=! e(i,j)  y(i,j) = e(i,j) / s(i)
    ... }''').softmax
    >>> index_form(softmax, ())
    'i0 [i1] -> i0 [i1]'
    """
    scope = function.scope
    ranks = [scope.ranks[name] for name in (*function.operands, *function.results)]
    trials = trials_of(function)
    if len(function.results) != 1 or scope.updated or not trials or 0 in ranks[:-1]:
        return ""
    classes = _Classes()
    types, symbolic = ElementTypes(scope, function.types), formulas_of(function, trials)
    for number in range(len(scope.statements)):
        statement = StatementContext(scope, types, number, trials, symbolic, {}, TermNames(), {}, {})
        _take(statement, classes)
    _take_sizes(function, classes)
    summed = _summed(function, classes, linear)
    classes.mixed |= {axis for axis in classes.reduced if axis[1] >= 0 and axis not in summed}
    return _written(function, classes, summed)


class _Classes:
    """Axes that are walked in step, and those that are not."""

    def __init__(self) -> None:
        self.parents: dict[Axis, Axis] = {}
        self.mixed: set[Axis] = set()
        #: The axes that a statement reads by an index that its target lacks, and the indices.
        self.reduced: dict[Axis, str] = {}
        #: The axes that windows slide along, with the axis of the target that counts them and the index inside them.
        self.windows: dict[Axis, tuple[Axis, str]] = {}

    def root(self, axis: Axis) -> Axis:
        """The axis that stands for those walked in step with one."""
        while (parent := self.parents.get(axis, axis)) != axis:
            axis = parent
        return axis

    def join(self, a: Axis, b: Axis) -> None:
        """Take two axes to be walked in step."""
        self.parents.setdefault(a, a)
        self.parents.setdefault(b, b)
        self.parents[self.root(a)] = self.root(b)

    def members(self, axis: Axis) -> list[Axis]:
        """The axes that are walked in step with one, itself included."""
        root = self.root(axis)
        return [one for one in {*self.parents, axis} if self.root(one) == root]

    def walked_with(self, axis: Axis) -> object:
        """The same of axes that are walked in step, or read by one index that is reduced."""
        return self.reduced.get(axis) or self.root(axis)

    def in_step(self, axis: Axis) -> bool:
        """True if all axes that belong to one are walked in step, at most one of each tensor."""
        members = self.members(axis)
        return len({name for name, _ in members}) == len(members) and not self.mixed & {*members}


def _take(statement: StatementContext, classes: _Classes) -> None:
    """Take in how a statement walks the axes of what it reads and defines."""
    one = statement.one
    target = one.statement.target
    places = {index: (target, axis) for axis, index in enumerate(one.indices)}
    for axis, index in enumerate(one.indices):
        classes.join((target, axis), (target, axis))
        sizes = [trial.inferred.shapes[target][axis] for trial in statement.trials]
        if any(found != (0, size) for found, size in zip(statement.ranges(index), sizes, strict=True)):
            classes.mixed.add((target, axis))
    for index in _values(statement, one.value):
        classes.mixed |= {places[index]} if index in places else set()
        classes.reduced |= {(target, -1): index}
    for call in (*one.reads, *one.kept):
        for axis, expression in enumerate(call.arguments):
            here = (call.name, axis)
            classes.join(here, here)
            subscript = subscript_of(statement, call.name, axis, expression)
            if subscript is not None and is_plain(statement, subscript):
                (index,) = subscript.names
                if index in places:
                    classes.join(here, places[index])
                else:
                    classes.reduced[here] = index
            else:
                moved = [index for index in _values(statement, expression) if index in places]
                within = [name for name in subscript.names if name not in places] if subscript is not None else []
                if len(moved) == len(within) == 1:
                    classes.windows[here] = places[moved[0]], within[0]
                # Where elements decide what is read, more of them may pass the bounds.
                inner = {part.name for part in walk(expression) if isinstance(part, Applied)} & {*statement.scope.ranks}
                classes.mixed |= {here, *(places[index] for index in moved)}
                classes.mixed |= {(name, k) for name in inner for k in range(statement.scope.ranks[name])}


def _values(statement: StatementContext, expression: Expression) -> Iterator[str]:
    """The indices that an expression reads as numbers, outside of subscripts."""
    if isinstance(expression, Name) and expression.name in statement.one.every_index:
        yield expression.name
    if isinstance(expression, Applied) and expression.name in statement.scope.ranks:
        return
    for child in children(expression):
        yield from _values(statement, child)


def _take_sizes(function: TensorFunction, classes: _Classes) -> None:
    """Axes whose size is a number that is computed with are not walked in step: part of one has another size."""
    scope = function.scope
    clauses = [clause for one in scope.statements for clause in one.ranges.values()]
    computed = [one.value for one in scope.statements] + [end for one in clauses for end in expressions_of(one)]
    read = {*scope.sizes} & {name for expression in computed for name in _names(expression)}
    stated = [(one.name, one.extents) for one in scope.function.parameters]
    stated += [(one.name, one.extents) for one in scope.function.results if one.extents is not None]
    by_size: dict[str | int, list[Axis]] = {}
    for name, extents in stated:
        for axis, extent in enumerate(extents):
            by_size.setdefault(extent, []).append((name, axis))
    for extent, axes in by_size.items():
        # An axis of a stated size is not cut, nor is one of two that have to stay of one size.
        if extent in read or isinstance(extent, int) or len({classes.walked_with(axis) for axis in axes}) > 1:
            classes.mixed |= {*axes}
    symbolic = function.symbolic
    for name, dims in symbolic.shapes.items() if symbolic is not None else ():
        classes.mixed |= {(name, k) for k, dim in enumerate(dims) if isinstance(dim, Sym) and dim.names() & read}


def _summed(function: TensorFunction, classes: _Classes, linear: Collection[int]) -> Mapping[Axis, str]:
    """The axes of operands that are summed over in step, with the index: of a single sum that is linear in them."""
    scope = function.scope
    if len(scope.statements) != 1 or scope.statements[0].statement.reduction != "+":
        return {}
    found: dict[Axis, str] = {}
    (one,) = scope.statements
    values = {index for axis, index in classes.reduced.items() if axis[1] < 0}
    for index in one.reduced:
        axes = [axis for axis, other in classes.reduced.items() if other == index]
        reads = [call for call in one.reads if any(index in _names(part) for part in call.arguments)]
        holders = [name for name, _ in axes]
        if index in values or any(classes.mixed & {axis} for axis in axes) or len({*holders}) < len(holders):
            continue
        within = [(call.name, k) for call in reads for k, part in enumerate(call.arguments) if index in _names(part)]
        places = [function.operands.index(name) for name in holders if name in function.operands]
        if {*within} <= {*axes} and len(places) == len(holders) and all(place in linear for place in places):
            found |= dict.fromkeys(axes, index)
    return found


def _names(expression: Expression) -> set[str]:
    return {part.name for part in walk(expression) if isinstance(part, Name)}


def _written(function: TensorFunction, classes: _Classes, summed: Mapping[Axis, str]) -> str:
    """The form: names by position, one for axes that are walked in step."""
    (result,) = function.results
    letters: dict[object, str] = {}

    def named(key: object) -> str:
        return letters.setdefault(key, f"i{len(letters)}")

    ends = {(result, axis) for axis in range(function.scope.ranks[result])}
    slid = {place for axis, (place, _) in classes.windows.items() if axis[0] in function.operands}
    counted = [(axis[0], place) for axis, (place, _) in classes.windows.items()]
    twice = {place for name, place in counted if counted.count((name, place)) > 1}
    mixed: list[str] = []
    terms = []
    for name in (*function.operands, result):
        term = []
        for axis in range(function.scope.ranks[name]):
            here = (name, axis)
            members = classes.members(here)
            held = any(other in function.operands for other, _ in members)
            if here in summed:
                term.append(named(("sum", summed[here])))
            elif classes.in_step(here) and held and {*members} & ends:
                term.append(named(classes.root(here)))
            elif here in classes.windows and classes.windows[here][0] in ends - twice:
                place, offset = classes.windows[here]
                term.append(f"{named(place)}@{named(('window', offset))}")
            elif here in slid - twice:
                term.append(named(here))
            elif name == result:
                if not mixed:
                    return ""  # an axis of the result that is none of the operands'
                term.append(f"[{mixed.pop(0)}]")
            else:
                mixed.append(named(here))
                term.append(f"[{mixed[-1]}]")
        terms.append(" ".join(term))
    return f"{', '.join(terms[:-1])} -> {terms[-1]}"
