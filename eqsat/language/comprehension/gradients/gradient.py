"""The gradient of a function as a function: of its parameters and of the gradients of its results."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from eqsat.errors import UsageError, nearest
from eqsat.language.comprehension.extents.affine import affine
from eqsat.language.comprehension.extents.ranges import Inferred
from eqsat.language.comprehension.functions import TensorFunction
from eqsat.language.comprehension.gradients.derivatives import ONE, ZERO, inside, partials, replaced
from eqsat.language.comprehension.meaning.scopes import ResolvedEquation
from eqsat.language.comprehension.meaning.typed import ElementTypes
from eqsat.language.comprehension.text.parser import parse
from eqsat.language.comprehension.text.syntax import (
    Applied,
    Binary,
    Clause,
    Conditional,
    Expression,
    Function,
    IndexEquation,
    Name,
    Number,
    Parameter,
    RangeClause,
    Returned,
    Unary,
    rebuilt,
    walk,
)
from eqsat.language.terms import Dim

#: Sums of sizes that the language has no text for in ranges.
_QUOTIENT = re.compile(r"\b(floordiv|mod)\(")


def gradient_of(function: TensorFunction, wanted: Sequence[str] = ()) -> Function:
    """The function that a gradient is: `f_gradient(parameters, d_result, …)` returns `d_parameter, …`.

    Elements that an affine subscript reads are gathered by solving it for one of its indices; others are compared with
    each element. Maxima and minima share among those that are equal. UsageError for names that are no parameters of
    floats, and for statements that have no gradient: products over an index, parts of a tensor, and tensors that are
    updated in place.
    """
    return _Gradient(function, tuple(wanted)).made()


@dataclass(frozen=True)
class _Version:
    """A statement with the name of what its target holds after it; `before` is what it updates, if it does.

    `names` are those that tensors had before it, and `stored` an element that holds its value.
    """

    name: str
    one: ResolvedEquation
    ranges: Mapping[str, tuple[Dim, Dim]]
    names: Mapping[str, str]
    stored: Expression
    before: str | None


@dataclass
class _Gradient:
    """A gradient under construction: the statements of the function, each target under a name of its own, then back."""

    function: TensorFunction
    wanted: tuple[str, ...]
    statements: list[IndexEquation] = field(default_factory=list)

    def __post_init__(self) -> None:
        scope = self.function.scope
        floats = [one.name for one in scope.function.parameters if self.function.types[one.name].is_float]
        for name in self.wanted:
            if name not in floats:
                raise UsageError(
                    f"no gradient in {name!r}",
                    where=self.function.name,
                    expected=", ".join(floats) or "a parameter of floats",
                    remedy=nearest(name, floats),
                )
        self.wanted = tuple(dict.fromkeys(self.wanted)) or tuple(floats)
        self._types = ElementTypes(scope, self.function.types)
        self._names = {*scope.ranks, *scope.sizes, *(i for one in scope.statements for i in one.every_index)}
        self._last: dict[str, str] = {}
        self._begun: set[str] = set()
        self._target_of: dict[str, str] = {}

    @property
    def _inferred(self) -> Inferred:
        found = self.function.symbolic
        if found is None:
            raise self._refused("ranges that depend on integer scalars")
        return found

    def made(self) -> Function:
        """The function."""
        scope, types = self.function.scope, self.function.types
        if scope.updated:
            raise self._refused(f"{scope.updated[0]}, which is updated in place")
        versions = self._forward()
        results = [name for name in self.function.results if types[name].is_float]
        given = {name: self._fresh(f"d_{name}") for name in results}
        made = {name: self._fresh(f"d_{name}") for name in self.wanted}
        self._adjoints = {**made}
        passed = [Parameter(types[name].value, given[name], self._extents(name)) for name in results]
        for one, name in zip(passed, results, strict=True):
            self._begin(one, name)
        for version in reversed(versions):
            if self._adjoints.get(version.name) in self._begun:
                self._back(version)
        for name, target in made.items():
            if target not in self._begun:
                self._define(target, name, lambda at: ZERO)
        returned = tuple(
            Returned(made[name], types[name].value, scope.parameters[name].extents or None) for name in self.wanted
        )
        name = f"{self.function.name}_gradient"
        return Function(name, (*scope.function.parameters, *passed), returned, self._needed(made.values()))

    def _begin(self, passed: Parameter, result: str) -> None:
        """Begin the gradient of a result with what a caller passes: an error where its extents are others."""
        target = self._adjoints[self._last[result]] = self._fresh(f"g_{result}")
        if all(isinstance(one, int) or one in self.function.scope.sizes for one in passed.extents):
            self._define(target, result, lambda at: _element(passed.name, at))
            return
        self._define(target, result, lambda at: ZERO)
        indices = [self._fresh("p") for _ in passed.extents]
        # Without ranges of its own: extents by two statements have to agree.
        self._add(target, indices, _element(passed.name, [Name(one) for one in indices]), "+", False, ())

    def _needed(self, results: Iterable[str]) -> tuple[IndexEquation, ...]:
        """The statements that results follow from."""
        names, kept = set(results), []
        for one in reversed(self.statements):
            if one.target in names:
                kept.append(one)
                names |= {part.name for part in walk(one.value) if isinstance(part, (Applied, Name))}
        return tuple(reversed(kept))

    def _refused(self, what: str) -> UsageError:
        return UsageError(
            f"{what} has no gradient here",
            where=self.function.name,
            expected="whole tensors, defined or added to, or least and largest elements",
        )

    def _fresh(self, stem: str) -> str:
        """A name that nothing has."""
        name, number = stem, 1
        while name in self._names:
            name, number = f"{stem}_{number}", number + 1
        self._names.add(name)
        return name

    def _extents(self, name: str) -> tuple[str | int, ...]:
        """The extents of a result as a parameter states them: sizes, numbers, and names for what is neither."""
        dims = self._inferred.shapes[name]
        sizes = self.function.scope.sizes
        return tuple(d if isinstance(d, int) else str(d) if str(d) in sizes else self._fresh("L") for d in dims)

    # ---- the function ---------------------------------------------------------------------------------------------

    def _forward(self) -> list[_Version]:
        """Add the statements of the function, each with a target that no other one has."""
        versions = []
        scope = self.function.scope
        for one, ranges in zip(scope.statements, self._inferred.ranges, strict=True):
            statement, target = one.statement, one.statement.target
            whole = [(0, dim) for dim in self._inferred.shapes[target]]
            if [ranges[index] for index in one.indices] != whole:
                raise self._refused(f"a part of {target}")
            if statement.reduction == "*" or (statement.reduction in ("min", "max") and not statement.fresh):
                raise self._refused(f"{statement.element} {statement.assignment} …")
            names = dict(self._last)
            value = _renamed(one.value, names, scope.ranks)
            if self._types.of(one.value) is not self.function.types[target]:
                value = Applied(self.function.types[target].value, (value,))  # nothing else says so of this name
            if statement.reduction in ("min", "max"):
                value = self._stored(one, ranges, value)
            before = None if statement.is_definition else self._last[target]
            name = self._last[target] = self._fresh(target) if target in self._last else target
            self._target_of[name] = target
            versions.append(_Version(name, one, ranges, names, value, before))
            clauses = self._ranges(one.every_index, ranges)
            if before is not None:
                kept = _element(before, [Name(index) for index in one.indices])
                self._add(name, one.indices, kept, "", False, self._ranges(one.indices, ranges))
            self._add(name, one.indices, value, statement.reduction, statement.fresh, clauses)
        return versions

    def _stored(self, one: ResolvedEquation, ranges: Mapping[str, tuple[Dim, Dim]], value: Expression) -> Expression:
        """An element that holds a value, which is compared with others: computed again, it may be rounded otherwise."""
        if isinstance(value, (Applied, Name)) and value.name in (*self.function.scope.ranks, *self._last.values()):
            return value
        name = self._fresh("value")
        at = [self._fresh("p") for _ in one.every_index]
        lows = [self._size(ranges[index][0]) for index in one.every_index]
        moved = [
            place if low == Number(0) else Binary("+", place, low)
            for place, low in zip(map(Name, at), lows, strict=True)
        ]
        extents = {
            place: (0, ranges[index][1] - ranges[index][0]) for place, index in zip(at, one.every_index, strict=True)
        }
        made = replaced(value, dict(zip(one.every_index, moved, strict=True)))
        self._add(name, at, made, "", False, self._ranges(at, extents))
        back = zip(map(Name, one.every_index), lows, strict=True)
        return _element(name, [index if low == Number(0) else Binary("-", index, low) for index, low in back])

    def _add(
        self,
        target: str,
        indices: Sequence[str],
        value: Expression,
        reduction: str,
        fresh: bool,
        clauses: tuple[Clause, ...],
    ) -> None:
        subscripts = tuple(Name(index) for index in indices)
        self.statements.append(IndexEquation(target, subscripts, reduction, fresh, value, clauses))

    # ---- back -----------------------------------------------------------------------------------------------------

    def _define(self, target: str, like: str, value: Callable[[list[Name]], Expression]) -> None:
        """Define a whole tensor of the shape of another one."""
        shape = self._inferred.shapes[like]
        at = [self._fresh("p") for _ in shape]
        clauses = self._ranges(at, dict(zip(at, ((0, dim) for dim in shape), strict=True)))
        self._add(target, at, value([Name(one) for one in at]), "", False, clauses)
        self._begun.add(target)

    def _back(self, version: _Version) -> None:
        """Add what a statement contributes to the gradients of what it reads."""
        one, name = version.one, version.name
        at = [Name(index) for index in one.indices]
        above: Expression = _element(self._adjoints[name], at)
        if one.statement.reduction in ("min", "max"):
            is_it = Binary("==", version.stored, _element(name, at))
            ties = self._fresh("ties")
            clauses = self._ranges(one.every_index, version.ranges)
            self._add(ties, one.indices, Conditional(is_it, ONE, ZERO), "+", True, clauses)
            above = Conditional(is_it, Binary("/", above, _element(ties, at)), ZERO)
        if version.before is not None:
            self._contribute(version, _element(version.before, at), above, one.indices)
        for read, factor in partials(one.value, above, self._types):
            subscripts = read.arguments if isinstance(read, Applied) else ()
            known = [_renamed(subscript, version.names, self.function.scope.ranks) for subscript in subscripts]
            self._contribute(version, _element(version.names.get(read.name, read.name), known), factor, one.every_index)

    def _contribute(self, version: _Version, read: Applied | Name, value: Expression, indices: Sequence[str]) -> None:
        """Add a value, over indices of a statement, to the gradient of the element that it reads."""
        source = self._target_of.get(read.name, read.name)
        is_parameter = read.name in self.function.scope.parameters
        if not self.function.types[source].is_float or (is_parameter and read.name not in self.wanted):
            return
        subscripts = read.arguments if isinstance(read, Applied) else ()
        shape = self._inferred.shapes[source]
        at = [self._fresh("p") for _ in shape]
        solved, guards, compared = self._solved(version, subscripts, at, shape)
        made = replaced(_renamed(value, version.names, self.function.scope.ranks), solved)
        for guard in compared:  # what they read may be read only where the value may
            made = inside(made, lambda one, guard=guard: Conditional(guard, one, ZERO))  # type: ignore[misc]
        for guard in reversed(guards):
            made = Conditional(guard, made, ZERO)
        left = []
        used = {part.name for part in walk(made) if isinstance(part, Name)}
        for index in indices:
            if index in used:
                left.append(index)
            elif index not in solved:  # it is added up for each value of an index that it does not depend on
                low, high = version.ranges[index]
                count = Applied("max", (self._size(high - low), Number(0)))
                made = inside(made, lambda one, count=count: Binary("*", one, count))  # type: ignore[misc]
        if len({type_ for type_ in self.function.types.values() if type_.is_float}) > 1:
            made = Applied(self.function.types[source].value, (made,))
        ranges = {**{one: (0, dim) for one, dim in zip(at, shape, strict=True)}, **version.ranges}
        if read.name not in self._adjoints:
            self._adjoints[read.name] = self._fresh(f"g_{read.name}")
        target = self._adjoints[read.name]
        fresh = target not in self._begun
        self._begun.add(target)
        self._add(target, at, made, "+", fresh, self._ranges([*at, *left], ranges))

    def _solved(
        self, version: _Version, subscripts: Sequence[Expression], at: Sequence[str], shape: Sequence[Dim]
    ) -> tuple[dict[str, Expression], list[Expression], list[Expression]]:
        """Indices by the element that subscripts give, the conditions under which these are in range, and others.

        The others are those under which subscripts that no index follows from give the element.
        """
        solved: dict[str, Expression] = {}
        guards: list[Expression] = []
        compared: list[Expression] = []
        for subscript, place, dim in zip(subscripts, at, shape, strict=True):
            given = replaced(subscript, solved)
            form = affine(given, self._inferred.known)
            unit = [i for i in version.one.every_index if form is not None and abs(form.factors.get(i, 0)) == 1]
            index = next((i for i in unit if i not in solved), None)
            if index is None or form is None:
                compared.append(Binary("==", given, Name(place)))
                continue
            rest = replaced(given, {index: Number(0)})
            own: Expression = Name(place) if given == Name(index) else Binary("-", Name(place), rest)
            own = own if form.factors[index] == 1 else Unary("-", own)
            solved = {name: replaced(one, {index: own}) for name, one in solved.items()} | {index: own}
            low, high = version.ranges[index]
            if not (isinstance(own, Name) and (low, high) == (0, dim)):
                guards += [Binary(">=", own, self._size(low)), Binary("<", own, self._size(high))]
        return solved, [replaced(one, solved) for one in guards], [replaced(one, solved) for one in compared]

    def _ranges(self, indices: Sequence[str], ranges: Mapping[str, tuple[Dim, Dim]]) -> tuple[Clause, ...]:
        return tuple(RangeClause(i, self._size(ranges[i][0]), self._size(ranges[i][1])) for i in indices)

    def _size(self, dim: Dim) -> Expression:
        """An extent as an expression of sizes."""
        if isinstance(dim, int):
            return Number(dim)
        if _QUOTIENT.search(str(dim)):
            raise self._refused(f"the range {dim}")
        (function,) = parse(f"def extent(float x) -> (r) {{ r = {dim} }}")
        return function.statements[0].value


def _element(name: str, at: Sequence[Expression]) -> Applied | Name:
    return Applied(name, tuple(at)) if at else Name(name)


def _renamed(value: Expression, names: Mapping[str, str], ranks: Mapping[str, int]) -> Expression:
    """A value that reads tensors under other names; a size may have the name of a tensor."""

    def change(part: Expression) -> Expression:
        is_read = isinstance(part, Applied) or (isinstance(part, Name) and ranks.get(part.name) == 0)
        if is_read and isinstance(part, (Applied, Name)) and part.name in names:
            part = replace(part, name=names[part.name])
        return rebuilt(part, change)

    return change(value)
