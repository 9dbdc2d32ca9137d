"""Resolution of names: what each one in a function means, with errors for those that mean nothing, or two things."""

from __future__ import annotations

from collections.abc import Mapping, Set

from eqsat.errors import (
    ComprehensionError,
    ComprehensionNameError,
    ComprehensionSyntaxError,
    RangeError,
    UpdateError,
    nearest,
)
from eqsat.language.comprehension.meaning import mathematics
from eqsat.language.comprehension.meaning.element_types import NAMED, is_integer
from eqsat.language.comprehension.meaning.scopes import ResolvedEquation, Scope
from eqsat.language.comprehension.meaning.updates import check_in_place
from eqsat.language.comprehension.text.parser import DEEPEST, fault
from eqsat.language.comprehension.text.syntax import (
    Applied,
    Clause,
    ExistsClause,
    Expression,
    Function,
    IndexEquation,
    LetClause,
    Name,
    Parameter,
    Position,
    RangeClause,
    Returned,
    expressions_of,
    measure,
    rebuilt,
    walk,
)

#: The most parts of an expression with what `where` puts in.
MOST_PARTS = 50_000


def resolve(function: Function, source: str) -> Scope:
    """The scope of a function; ComprehensionNameError, UpdateError or RangeError for one that means nothing."""
    return _Resolver(function, source).scope()


class _Resolver:
    def __init__(self, function: Function, source: str) -> None:
        self.function, self.source = function, source
        extents = [one.extents for one in function.parameters]
        self.sizes = tuple(dict.fromkeys(e for given in extents for e in given if isinstance(e, str)))
        self.ranks: dict[str, int] = {}
        self.measured: dict[int, tuple[int, int]] = {}
        types = {one.name: NAMED.get(one.type) for one in function.parameters if not one.extents}
        self.whole = {name for name, dtype in types.items() if dtype is not None and is_integer(dtype)}

    def fault(
        self, kind: type[ComprehensionError], what: str, place: Position, expected: str = "", remedy: str = ""
    ) -> ComprehensionError:
        name = self.function.name
        return fault(kind, what, self.source, place, function=name, expected=expected, remedy=remedy)

    def scope(self) -> Scope:
        """The whole function, resolved."""
        self._check_header()
        for statement in self.function.statements:
            self._take_target(statement)
        statements, updated = [], dict[str, None]()
        defined: set[str] = {one.name for one in self.function.parameters}
        for statement in self.function.statements:
            found = self._resolved(statement)
            statements.append(found)
            own = [] if statement.is_definition else [statement.target]
            for name in (*(call.name for call in found.reads), *own):
                if name not in defined:
                    updated[name] = None
            defined.add(statement.target)
        returned = {one.name for one in self.function.results}
        targets = tuple(dict.fromkeys(one.target for one in self.function.statements))
        for one in self.function.results:
            if one.name not in targets:
                raise self.fault(
                    ComprehensionNameError,
                    f"{one.name} is returned and never defined",
                    one.place,
                    "a statement that defines each result",
                )
        for name in updated:
            if name not in returned:
                place = next(one.place for one in self.function.statements if one.target == name)
                raise self.fault(
                    ComprehensionNameError,
                    f"{name} is read before it is defined",
                    place,
                    "a definition with = or a reduction that begins anew, such as +=!",
                )
        warnings = tuple(f"{name} is read before it is defined: it is 0 unless {name}=… is passed" for name in updated)
        return Scope(
            self.source,
            self.function,
            self.sizes,
            tuple(statements),
            dict(self.ranks),
            tuple(name for name in targets if name not in returned),
            tuple(updated),
            warnings,
        )

    def _check_header(self) -> None:
        function = self.function
        seen: dict[str, Position] = {}
        parts: tuple[Parameter | Returned, ...] = (*function.parameters, *function.results)
        for part in parts:
            if part.type is not None and part.type not in NAMED:
                raise self.fault(
                    ComprehensionNameError,
                    f"no element type {part.type}",
                    part.place,
                    "one of " + ", ".join(NAMED),
                    nearest(part.type, NAMED),
                )
            if part.name in seen:
                raise self.fault(
                    ComprehensionNameError, f"{part.name} is declared twice", part.place, "one declaration of each name"
                )
            self._check_free(part.name, part.place)
            seen[part.name] = part.place
            if part.name in self.sizes and not part.extents and isinstance(part, Parameter):
                raise self.fault(
                    ComprehensionNameError,
                    f"{part.name} is a size and a scalar",
                    part.place,
                    "another name for one of the two",
                )
        for result in function.results:
            for extent in result.extents or ():
                if isinstance(extent, str) and extent not in self.sizes:
                    raise self.fault(
                        ComprehensionNameError,
                        f"no size {extent}",
                        result.place,
                        "sizes of parameters, " + ", ".join(self.sizes) if self.sizes else "a number",
                        nearest(extent, self.sizes),
                    )
        for size in self.sizes:
            self._check_free(size, function.place)
        self.ranks = {one.name: len(one.extents) for one in function.parameters}
        if not function.results:
            raise self.fault(ComprehensionNameError, "nothing is returned", function.place, "a result after ->")

    def _check_free(self, name: str, place: Position) -> None:
        taken = "an element type" if name in NAMED else "a function" if name in mathematics.CHOOSING else ""
        if taken:
            raise self.fault(ComprehensionNameError, f"{name} is {taken}", place, "another name")

    def _take_target(self, statement: IndexEquation) -> None:
        name, rank, place = statement.target, len(statement.subscripts), statement.place
        if name in {one.name for one in self.function.parameters}:
            raise self.fault(
                UpdateError, f"{name} is a parameter, which stays as it is", place, "a tensor of another name"
            )
        self._check_free(name, place)
        if name in self.sizes and not rank:
            raise self.fault(ComprehensionNameError, f"{name} is a size", place, "another name")
        if self.ranks.setdefault(name, rank) != rank:
            raise self.fault(
                UpdateError, f"{name} has {rank} subscripts here", place, f"{self.ranks[name]}, as it has before"
            )
        stated = next((one.extents for one in self.function.results if one.name == name), None)
        if stated is not None and len(stated) != rank:
            raise self.fault(
                UpdateError, f"{name} has {rank} subscripts here", place, f"{len(stated)}, as it is returned"
            )

    def _resolved(self, statement: IndexEquation) -> ResolvedEquation:
        lets, ranges, kept = self._clauses(statement)
        indices: list[str] = []
        for subscript in statement.subscripts:
            if not isinstance(subscript, Name) or self._is_taken(subscript.name) or subscript.name in lets:
                raise self.fault(
                    UpdateError,
                    f"a subscript of the target {statement.target} that is no index",
                    subscript.place,
                    "an index of its own for each axis, so that each element is defined once",
                    "subscript what is read instead",
                )
            if subscript.name in indices:
                raise self.fault(
                    UpdateError,
                    f"{statement.target} is subscripted by {subscript.name} twice",
                    subscript.place,
                    "another index for each axis, so that each element is defined once",
                )
            indices.append(subscript.name)
        value = self._with_lets(statement.value, lets)
        self._check(value)
        reads = tuple(one for one in walk(value) if self._is_read(one))
        found = dict.fromkeys(self._indices_of(value))
        for access in kept:
            self._check(access)
            found |= dict.fromkeys(self._indices_of(access))
        for name, clause in ranges.items():
            if name not in found and name not in indices:
                raise self.fault(
                    RangeError, f"where gives a range to {name}, which is not used", clause.place, "an index"
                )
        reduced = tuple(name for name in found if name not in indices)
        if reduced and not statement.reduction:
            raise self.fault(
                UpdateError,
                f"= with {', '.join(reduced)}, which {statement.target} is not subscripted by",
                statement.place,
                "a reduction over it",
                f"write {statement.element} +=! …, or min=! or max=!",
            )
        calls = [self._as_call(one) for one in reads]
        resolved = ResolvedEquation(statement, tuple(indices), reduced, value, ranges, tuple(calls), tuple(kept))
        check_in_place(resolved, self._is_index, self._read, self.fault)
        return resolved

    def _clauses(self, statement: IndexEquation) -> tuple[dict[str, Expression], dict[str, RangeClause], list[Applied]]:
        lets: dict[str, Expression] = {}
        ranges: dict[str, RangeClause] = {}
        kept: list[Applied] = []
        self.measured.clear()
        named = {clause.name for clause in statement.clauses if isinstance(clause, LetClause)}
        for clause in statement.clauses:
            self._check_order(clause, named - lets.keys())
            match clause:
                case LetClause(name=name, value=value, place=place):
                    self._check_new(name, place, lets, ranges)
                    lets[name] = self._with_lets(value, lets)
                case RangeClause(index=name, place=place):
                    self._check_new(name, place, lets, ranges)
                    low, high = self._with_lets(clause.low, lets), self._with_lets(clause.high, lets)
                    for one in (part for bound in (low, high) for part in walk(bound)):
                        self._check_bound(one, name)
                    ranges[name] = RangeClause(name, low, high, place)
                case ExistsClause(access=access):
                    put = self._with_lets(access, lets)
                    assert isinstance(put, Applied)
                    if put.name not in self.ranks:
                        raise self.fault(
                            ComprehensionNameError,
                            f"no tensor {put.name}",
                            put.place,
                            "one of " + ", ".join(self.ranks),
                            nearest(put.name, self.ranks),
                        )
                    kept.append(put)
        return lets, ranges, kept

    def _check_order(self, clause: Clause, later: Set[str]) -> None:
        """A clause has no names that `where` gives a value to later, or to themselves: they would be indices."""
        for part in (below for top in expressions_of(clause) for below in walk(top)):
            if isinstance(part, Name) and part.name in later:
                raise self.fault(
                    ComprehensionNameError,
                    f"{part.name} is used before where gives it a value",
                    part.place,
                    "clauses in the order in which they use each other",
                    f"put {part.name} = … before",
                )

    def _check_new(self, name: str, place: Position, *taken: Mapping[str, object]) -> None:
        meaning = self._meaning(name) or "a tensor"
        if self._is_taken(name):
            raise self.fault(ComprehensionNameError, f"{name} is {meaning}", place, "another name")
        self._check_free(name, place)
        if any(name in one for one in taken):
            raise self.fault(
                ComprehensionNameError, f"where gives {name} a meaning twice", place, "one clause for each name"
            )

    def _check_bound(self, part: Expression, index: str) -> None:
        if self._is_index(part):
            assert isinstance(part, Name)
            raise self.fault(
                RangeError,
                f"the range of {index} depends on {part.name}, which is no size",
                part.place,
                "numbers, sizes and integer scalars: ranges are boxes",
                nearest(part.name, self.sizes),
            )
        if isinstance(part, Applied) and part.name in self.ranks:
            raise self.fault(
                RangeError, f"the range of {index} depends on elements of {part.name}", part.place, "sizes alone"
            )

    def _with_lets(self, expression: Expression, lets: Mapping[str, Expression]) -> Expression:
        """An expression with its names put in; ComprehensionSyntaxError of one that grows beyond measure by that."""
        made = self._put_in(expression, lets)
        parts, depth = measure(made, self.measured)
        if parts > MOST_PARTS or depth > DEEPEST:
            raise self.fault(
                ComprehensionSyntaxError,
                "an expression that is too large with what where puts in",
                expression.place,
                f"at most {MOST_PARTS} parts, and {DEEPEST} inside each other",
                "define a tensor of a part of it",
            )
        return made

    def _put_in(self, expression: Expression, lets: Mapping[str, Expression]) -> Expression:
        """An expression with the values of the names that `where` has given one.

        A scalar becomes the element that it is, unless its value is known where ranges are inferred.
        """
        if isinstance(expression, Name):
            if expression.name in lets:
                return lets[expression.name]
            held = self._meaning(expression.name) == "a scalar" and expression.name not in self.whole
            return Applied(expression.name, (), expression.place) if held else expression
        return rebuilt(expression, lambda one: self._put_in(one, lets))

    def _meaning(self, name: str) -> str:
        """The kind of thing that a bare name stands for, an index aside; empty for an index."""
        if name in self.sizes:
            return "a size"
        rank = self.ranks.get(name)
        return "" if rank is None else "a tensor" if rank else "a scalar"

    def _is_taken(self, name: str) -> bool:
        """True of names of sizes, scalars and tensors: an index has another one."""
        return name in self.sizes or name in self.ranks

    def _indices_of(self, value: Expression) -> list[str]:
        return [part.name for part in walk(value) if isinstance(part, Name) and self._is_index(part)]

    def _is_index(self, part: Expression) -> bool:
        return isinstance(part, Name) and not self._meaning(part.name)

    def _is_read(self, part: Expression) -> bool:
        if isinstance(part, Name):
            return part.name not in self.sizes and self.ranks.get(part.name) == 0
        return isinstance(part, Applied) and part.name in self.ranks

    def _read(self, part: Expression) -> Applied | None:
        """The element that a part of an expression is; None of one that is none."""
        return self._as_call(part) if self._is_read(part) else None

    def _as_call(self, part: Expression) -> Applied:
        assert isinstance(part, Name | Applied)
        return part if isinstance(part, Applied) else Applied(part.name, (), part.place)

    def _check(self, value: Expression) -> None:
        """Every call is of a tensor with as many subscripts as it has axes, of a function, or of a type."""
        for part in walk(value):
            if isinstance(part, Name) and self.ranks.get(part.name, 0) and part.name not in self.sizes:
                raise self.fault(
                    ComprehensionNameError,
                    f"{part.name} without subscripts",
                    part.place,
                    f"{self.ranks[part.name]} subscripts",
                )
            if not isinstance(part, Applied):
                continue
            given = len(part.arguments)
            if part.name in self.ranks:
                asked, kind = self.ranks[part.name], "subscript"
            elif part.name in NAMED:
                asked, kind = 1, "argument"
            elif part.name in mathematics.CHOOSING:
                asked, kind = 2, "argument"
            elif (known := mathematics.function(part.name)) is not None:
                asked, kind = known.arity, "argument"
            else:
                names = (*self.ranks, *mathematics.FUNCTIONS, *NAMED, *mathematics.CHOOSING)
                raise self.fault(
                    ComprehensionNameError,
                    f"no tensor or function {part.name}",
                    part.place,
                    "a tensor, a function or an element type",
                    nearest(part.name, names),
                )
            if given != asked:
                raise self.fault(
                    ComprehensionNameError,
                    f"{part.name} with {given} {kind}{'s' * (given != 1)}",
                    part.place,
                    f"{asked} {kind}{'s' * (asked != 1)}",
                )
