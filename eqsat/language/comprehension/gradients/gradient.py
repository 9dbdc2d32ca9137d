"""The gradient of a function as a function: of its parameters and of the gradients of its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from eqsat.errors import UsageError, nearest
from eqsat.language.comprehension.extents.affine import Affine, affine
from eqsat.language.comprehension.functions import TensorFunction
from eqsat.language.comprehension.gradients.derivatives import ONE, ZERO, inside, partials, replaced
from eqsat.language.comprehension.gradients.solving import in_wide_integers, undivided, without_index
from eqsat.language.comprehension.gradients.statements import StatementWriter, element_of, moved, needed
from eqsat.language.comprehension.meaning.scopes import ResolvedEquation
from eqsat.language.comprehension.meaning.typed import ElementTypes
from eqsat.language.comprehension.text.syntax import (
    Applied,
    Binary,
    Conditional,
    Expression,
    Function,
    Name,
    Number,
    Parameter,
    Returned,
    Unary,
    rebuilt,
    walk,
)
from eqsat.language.terms import Dim


def gradient_of(function: TensorFunction, wanted: Sequence[str] = ()) -> Function:
    """The function that a gradient is: `f_gradient(parameters, d_result, …)` returns `d_parameter, …`.

    Elements that an affine subscript reads are gathered by solving it for one of its indices; others are compared with
    each element. Maxima and minima share among those that are equal. Of a product over indices each factor is given
    the product of all others, which takes the square of its time. UsageError for names that are no parameters of
    floats, and for what has no gradient: tensors that are updated in place, and ranges that integer scalars decide.
    """
    return _Gradient(function, tuple(wanted)).made()


@dataclass(frozen=True)
class _Version:
    """A statement with the name of what its target holds after it; `before` is what it updates or keeps a part of.

    `names` are those that tensors had before it, and `stored` an element that holds its value.
    """

    name: str
    one: ResolvedEquation
    ranges: Mapping[str, tuple[Dim, Dim]]
    names: Mapping[str, str]
    stored: Expression
    before: str | None
    is_part: bool

    @property
    def reduction(self) -> str:
        """The reduction of the statement."""
        return self.one.statement.reduction

    @property
    def reads_before(self) -> bool:
        """True where what the target held before goes into its new elements."""
        return not self.one.statement.is_definition

    @property
    def at(self) -> list[Expression]:
        """The place of the element that the statement is of."""
        return [Name(index) for index in self.one.indices]


@dataclass
class _Gradient(StatementWriter):
    """A gradient under construction: the statements of the function, each target under a name of its own, then back."""

    wanted: tuple[str, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
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
        if not floats:
            raise self.refused("a function without a parameter of floats")
        self.wanted = tuple(dict.fromkeys(self.wanted)) or tuple(floats)
        self._types = ElementTypes(scope, self.function.types)
        self._last: dict[str, str] = {}
        self._target_of: dict[str, str] = {}

    def made(self) -> Function:
        """The function."""
        scope, types = self.function.scope, self.function.types
        if scope.updated:
            raise self.refused(f"{scope.updated[0]}, which is updated in place")
        versions = self._forward()
        results = [name for name in self.function.results if types[name].is_float]
        given = {name: self.fresh(f"d_{name}") for name in results}
        made = {name: self.fresh(f"d_{name}") for name in self.wanted}
        self._adjoints = {**made}
        passed = [Parameter(types[name].value, given[name], self.extents(name)) for name in results]
        for one, name in zip(passed, results, strict=True):
            self._begin(one, name)
        for version in reversed(versions):
            if self._adjoints.get(version.name) in self.begun:
                self._back(version)
        for name, target in made.items():
            if target not in self.begun:
                self.define(target, name, lambda at: ZERO)
        returned = tuple(
            Returned(made[name], types[name].value, scope.parameters[name].extents or None) for name in self.wanted
        )
        name = f"{self.function.name}_gradient"
        return Function(name, (*scope.function.parameters, *passed), returned, needed(self.statements, made.values()))

    def _begin(self, passed: Parameter, result: str) -> None:
        """Begin the gradient of a result with what a caller passes: an error where its extents are others."""
        target = self._adjoints[self._last[result]] = self.fresh(f"g_{result}")
        if all(isinstance(one, int) or one in self.function.scope.sizes for one in passed.extents):
            self.define(target, result, lambda at: element_of(passed.name, at))
            return
        self.define(target, result, lambda at: ZERO)
        indices = [self.fresh("p") for _ in passed.extents]
        # Without ranges of its own: extents by two statements have to agree.
        self.add(target, indices, element_of(passed.name, [Name(one) for one in indices]), "+", False, ())

    # ---- the function ---------------------------------------------------------------------------------------------

    def _forward(self) -> list[_Version]:
        """Add the statements of the function, each with a target that no other one has."""
        versions = []
        scope = self.function.scope
        for one, ranges in zip(scope.statements, self.inferred.ranges, strict=True):
            statement, target = one.statement, one.statement.target
            whole = [(0, dim) for dim in self.inferred.shapes[target]]
            is_part = [ranges[index] for index in one.indices] != whole
            names = dict(self._last)
            value = _renamed(one.value, names, scope.ranks)
            if self._types.of(one.value) is not self.function.types[target]:
                value = Applied(self.function.types[target].value, (value,))  # nothing else says so of this name
            if statement.reduction in ("min", "max", "*"):
                value = self._stored(one, ranges, value)
            before = self._last.get(target) if is_part or not statement.is_definition else None
            name = self._last[target] = self.fresh(target) if target in self._last else target
            self._target_of[name] = target
            versions.append(_Version(name, one, ranges, names, value, before, is_part))
            clauses = self.ranges(one.every_index, ranges)
            if is_part or before is not None:
                self._hold(name, target, before)
            self.add(name, one.indices, value, statement.reduction, statement.fresh, clauses)
        return versions

    def _hold(self, name: str, target: str, before: str | None) -> None:
        """Define a whole tensor as what a target held before, 0 where that was nothing."""
        nothing = Applied(self.function.types[target].value, (Number(0),))
        self.define(name, target, lambda at: nothing if before is None else element_of(before, at))

    def _stored(self, one: ResolvedEquation, ranges: Mapping[str, tuple[Dim, Dim]], value: Expression) -> Expression:
        """An element that holds a value, which is compared with others: computed again, it may be rounded otherwise."""
        if isinstance(value, (Applied, Name)) and value.name in (*self.function.scope.ranks, *self._last.values()):
            return value
        name = self.fresh("value")
        at = [self.fresh("p") for _ in one.every_index]
        lows = [self.size(ranges[index][0]) for index in one.every_index]
        places = [moved(place, "+", low) for place, low in zip(map(Name, at), lows, strict=True)]
        extents = {
            place: (0, ranges[index][1] - ranges[index][0]) for place, index in zip(at, one.every_index, strict=True)
        }
        made = replaced(value, dict(zip(one.every_index, places, strict=True)))
        self.add(name, at, made, "", False, self.ranges(at, extents))
        back = zip(map(Name, one.every_index), lows, strict=True)
        return element_of(name, [moved(index, "-", low) for index, low in back])

    # ---- back -----------------------------------------------------------------------------------------------------

    def _back(self, version: _Version) -> None:
        """Add what a statement contributes to the gradients of what it reads."""
        one = version.one
        of_value, of_before = self._shares(version)
        if version.before is not None and version.reads_before:
            self._contribute(version, element_of(version.before, version.at), of_before, one.indices)
        if version.before is not None and version.is_part:
            self._contribute_kept(version, version.before)
        for read, factor in partials(one.value, of_value, self._types):
            subscripts = read.arguments if isinstance(read, Applied) else ()
            known = [_renamed(subscript, version.names, self.function.scope.ranks) for subscript in subscripts]
            self._contribute(
                version, element_of(version.names.get(read.name, read.name), known), factor, one.every_index
            )

    def _shares(self, version: _Version) -> tuple[Expression, Expression]:
        """The gradients of the value of a statement, and of what its target held before, at each of its indices."""
        one, at = version.one, version.at
        above: Expression = element_of(self._adjoints[version.name], at)
        before = element_of(version.before or version.name, at)
        if version.reduction in ("min", "max"):
            made = element_of(version.name, at)
            is_value, is_before = (Binary("==", part, made) for part in (version.stored, before))
            ties = self._reduced(version, "ties", Conditional(is_value, ONE, ZERO), "+")
            if version.reads_before:
                one_more = Conditional(is_before, ONE, ZERO)
                self.add(ties, one.indices, one_more, "+", False, self.ranges(one.indices, version.ranges))
            share = Binary("/", above, element_of(ties, at))
            return Conditional(is_value, share, ZERO), Conditional(is_before, share, ZERO)
        if version.reduction == "*":
            of_value = Binary("*", above, before) if version.reads_before else above
            others = self._others(version)
            return of_value if others is None else Binary("*", of_value, others), self._of_product(version, above)
        return above, above

    def _reduced(self, version: _Version, stem: str, value: Expression, reduction: str) -> str:
        """A tensor like the target of a statement that reduces another value where the statement does."""
        name, one = self.fresh(stem), version.one
        if version.is_part:  # all elements are defined before a part is
            self.define(name, one.statement.target, lambda at: ZERO if reduction == "+" else ONE)
        clauses = self.ranges(one.every_index, version.ranges)
        self.add(name, one.indices, value, reduction, not version.is_part, clauses)
        return name

    def _of_product(self, version: _Version, above: Expression) -> Expression:
        """The gradient of what a statement multiplies: that of the target times all factors."""
        if not version.reads_before:
            return ZERO
        factors = self._reduced(version, "factors", version.stored, "*")
        return Binary("*", above, element_of(factors, version.at))

    def _others(self, version: _Version) -> Expression | None:
        """For each factor of a product over indices the product of the others; None of one that is alone.

        Each is multiplied anew: a quotient is none where a factor is 0.
        """
        every, kept = version.one.every_index, version.one.indices
        if len(every) == len(kept):
            return None
        others = self.fresh("others")
        lows = {index: version.ranges[index][0] for index in every}
        extents = {index: version.ranges[index][1] - lows[index] for index in every}
        at = {index: self.fresh("p") for index in every}
        walked = {index: self.fresh("p") if index not in kept else at[index] for index in every}
        places = {index: moved(Name(walked[index]), "+", self.size(lows[index])) for index in every}
        same = [Binary("==", Name(walked[index]), Name(at[index])) for index in every if index not in kept]
        value = Conditional(_all(same), ONE, replaced(version.stored, places))
        ranges = {name: (0, extents[index]) for index in every for name in (at[index], walked[index])}
        self.add(others, list(at.values()), value, "*", True, self.ranges(list(ranges), ranges))
        return element_of(others, [moved(Name(index), "-", self.size(lows[index])) for index in every])

    def _contribute_kept(self, version: _Version, before: str) -> None:
        """Add the gradient of what a statement that is of a part leaves as it was: of all beside that part."""
        source = self._target_of[before]
        if not self.function.types[source].is_float:
            return
        shape = self.inferred.shapes[source]
        at = [self.fresh("p") for _ in shape]
        inside_: list[Expression] = []
        for place, index, dim in zip(at, version.one.indices, shape, strict=True):
            low, high = version.ranges[index]
            inside_ += [Binary(">=", Name(place), self.size(low))] if low != 0 else []
            inside_ += [Binary("<", Name(place), self.size(high))] if high != dim else []
        above = element_of(self._adjoints[version.name], [Name(place) for place in at])
        clauses = self.ranges(at, dict(zip(at, ((0, dim) for dim in shape), strict=True)))
        target, fresh = self._adjoint(before)
        self.add(target, at, Conditional(_all(inside_), ZERO, above), "+", fresh, clauses)

    def _contribute(self, version: _Version, read: Applied | Name, value: Expression, indices: Sequence[str]) -> None:
        """Add a value, over indices of a statement, to the gradient of the element that it reads."""
        source = self._target_of.get(read.name, read.name)
        is_parameter = read.name in self.function.scope.parameters
        if not self.function.types[source].is_float or (is_parameter and read.name not in self.wanted):
            return
        subscripts = read.arguments if isinstance(read, Applied) else ()
        shape = self.inferred.shapes[source]
        at = [self.fresh("p") for _ in shape]
        value, places = undivided(
            value, subscripts, [(one, self.size(dim)) for one, dim in zip(at, shape, strict=True)]
        )
        solved, guards, compared = self._solved(version, places, at, shape)
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
                count = Applied("max", (self.size(high - low), Number(0)))
                made = inside(made, lambda one, count=count: Binary("*", one, count))  # type: ignore[misc]
        if len({type_ for type_ in self.function.types.values() if type_.is_float}) > 1:
            made = Applied(self.function.types[source].value, (made,))
        ranges = {**{one: (0, dim) for one, dim in zip(at, shape, strict=True)}, **version.ranges}
        target, fresh = self._adjoint(read.name)
        self.add(target, at, made, "+", fresh, self.ranges([*at, *left], ranges))

    def _adjoint(self, name: str) -> tuple[str, bool]:
        """The gradient of a tensor, and whether what is added to it now is the first."""
        if name not in self._adjoints:
            self._adjoints[name] = self.fresh(f"g_{name}")
        target = self._adjoints[name]
        fresh = target not in self.begun
        self.begun.add(target)
        return target, fresh

    def _solved(
        self,
        version: _Version,
        places: Sequence[tuple[Expression, Expression]],
        at: Sequence[str],
        shape: Sequence[Dim],
    ) -> tuple[dict[str, Expression], list[Expression], list[Expression]]:
        """Indices by the element that subscripts give, the conditions under which these are in range, and others.

        The others are those under which subscripts that no index follows from give the element.
        """
        solved: dict[str, Expression] = {}
        guards: list[Expression] = []
        compared: list[Expression] = []
        for (subscript, wanted), place, dim in zip(places, at, shape, strict=True):
            given = replaced(subscript, solved)
            form = affine(given, self.inferred.known)
            index = None if form is None else self._solvable(version, form, solved)
            rest = None if form is None or index is None else without_index(form, index)
            if index is None or form is None or rest is None:
                compared.append(Binary("==", given, wanted))
                continue
            own: Expression = wanted if rest == Number(0) else Binary("-", wanted, rest)
            if isinstance(rest, Unary):
                own = Binary("+", wanted, rest.operand)
            own = own if form.factors[index] > 0 else Unary("-", own)
            step = abs(form.factors[index])
            if step > 1:
                guards.append(Binary("==", Binary("%", own, Number(step)), Number(0)))
                own = Binary("/", own, Number(step))
            solved = {name: replaced(one, {index: own}) for name, one in solved.items()} | {index: own}
            low, high = version.ranges[index]
            if not (own == Name(place) and (low, high) == (0, dim)):
                guards += [Binary(">=", own, self.size(low)), Binary("<", own, self.size(high))]
        guards, compared = (
            [in_wide_integers(replaced(one, solved), self.function.types) for one in some]
            for some in (guards, compared)
        )
        return solved, guards, compared

    def _solvable(self, version: _Version, form: Affine, solved: Mapping[str, Expression]) -> str | None:
        """The index that a subscript is solved for: one of the target rather than one that is reduced."""
        known = [index for index in version.one.every_index if index in form.factors and index not in solved]
        order = {index: (index not in version.one.indices, abs(form.factors[index]) != 1) for index in known}
        return min(known, key=order.__getitem__, default=None)


def _all(conditions: Sequence[Expression]) -> Expression:
    first, *more = conditions
    for one in more:
        first = Binary("&&", first, one)
    return first


def _renamed(value: Expression, names: Mapping[str, str], ranks: Mapping[str, int]) -> Expression:
    """A value that reads tensors under other names; a size may have the name of a tensor."""

    def change(part: Expression) -> Expression:
        is_read = isinstance(part, Applied) or (isinstance(part, Name) and ranks.get(part.name) == 0)
        if is_read and isinstance(part, (Applied, Name)) and part.name in names:
            part = replace(part, name=names[part.name])
        return rebuilt(part, change)

    return change(value)
