"""Canonical text of a comprehension: the same for functions that differ in names alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from eqsat.language.comprehension.meaning.element_types import NAME_OF, NAMED
from eqsat.language.comprehension.meaning.mathematics import function as math_function
from eqsat.language.comprehension.meaning.scopes import ResolvedEquation, Scope
from eqsat.language.comprehension.text.printer import print_function
from eqsat.language.comprehension.text.syntax import (
    Applied,
    Clause,
    ExistsClause,
    Expression,
    Function,
    IndexEquation,
    Name,
    RangeClause,
    rebuilt,
)


def canonical(scope: Scope) -> str:
    """The text of a function with names by position, ranges in one order, and what `where` names put in.

    Functions whose texts are equal compute the same. Operands keep their order: rounding may depend on it.
    """
    function = scope.function
    tensors = {one.name: f"p{number}" for number, one in enumerate(function.parameters)}
    tensors |= {one.name: f"r{number}" for number, one in enumerate(function.results)}
    tensors |= {name: f"t{number}" for number, name in enumerate(scope.temporaries)}
    sizes = {name: f"s{number}" for number, name in enumerate(scope.sizes)}

    def extents(given: tuple[str | int, ...]) -> tuple[str | int, ...]:
        return tuple(sizes[one] if isinstance(one, str) else one for one in given)

    def plain(type_: str) -> str:
        name: str = NAME_OF[NAMED[type_]]
        return name

    renamed = Function(
        "f",
        tuple(
            replace(one, name=tensors[one.name], type=plain(one.type), extents=extents(one.extents))
            for one in function.parameters
        ),
        tuple(
            replace(
                one,
                name=tensors[one.name],
                type=None if one.type is None else plain(one.type),
                extents=None if one.extents is None else extents(one.extents),
            )
            for one in function.results
        ),
        tuple(_statement(one, tensors, sizes) for one in scope.statements),
    )
    return print_function(renamed)


def _statement(one: ResolvedEquation, tensors: Mapping[str, str], sizes: Mapping[str, str]) -> IndexEquation:
    indices = {name: f"i{number}" for number, name in enumerate(one.every_index)}

    def put(expression: Expression) -> Expression:
        match expression:
            case Name(name=name):
                # A size goes before a tensor: those are subscripted.
                return replace(expression, name=indices.get(name) or sizes.get(name) or tensors.get(name, name))
            case Applied(name=name):
                known = math_function(name)
                plain = NAME_OF[NAMED[name]] if name in NAMED else known.name if known is not None else name
                made = rebuilt(expression, put)
                assert isinstance(made, Applied)
                return replace(made, name=tensors.get(name, plain))
        return rebuilt(expression, put)

    def clauses() -> Iterator[Clause]:
        ranges = sorted(one.ranges.values(), key=lambda clause: one.every_index.index(clause.index))
        for clause in ranges:
            yield RangeClause(indices[clause.index], put(clause.low), put(clause.high))
        for access in one.kept:
            made = put(access)
            assert isinstance(made, Applied)
            yield ExistsClause(made)

    statement = one.statement
    return IndexEquation(
        tensors[statement.target],
        tuple(Name(indices[index]) for index in one.indices),
        statement.reduction,
        statement.fresh,
        put(one.value),
        tuple(clauses()),
    )
