"""Forward substitution: definitions element by element go into the statements that read them, where little is done
twice."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from eqsat.language.comprehension.text.syntax import (
    Applied,
    Binary,
    Conditional,
    Expression,
    IndexEquation,
    Name,
    Number,
    RangeClause,
    Unary,
    children,
    rebuilt,
    walk,
)

#: The ranges of the indices of a statement.
Ranges: TypeAlias = Mapping[str, RangeClause]
#: The most operations that are done once for each statement that reads a definition, instead of once in all.
_MOST_TWICE = 2
#: The most parts of an expression that something is put into.
_MOST_PARTS = 200
_CHEAP = frozenset({"+", "-", "*"})


def forwarded(
    statements: Sequence[IndexEquation],
    tensors: Collection[str],
    kept: Collection[str],
    ranges: Sequence[Ranges | None] | None = None,
) -> tuple[IndexEquation, ...]:
    """Statements on tensors without the definitions of single elements that others can do without, but for those kept.

    A definition goes into the one statement that reads it, or into several where it is but a few additions and
    multiplications; never into one that would compute an element more than once. With the `ranges` of the indices of
    each statement, what moves elements goes in as well, wherever it is read, into sums where subscripts are multiples.
    A statement that lost what held its indices says their ranges.

    >>> from eqsat.language.comprehension.text.parser import parse
    >>> from eqsat.language.comprehension.text.printer import print_function
    >>> (f,) = parse("def f(float(N,M) x) -> (s) { t(i,j) = exp(x(i,j))  s(i) +=! t(i,k) }")
    >>> print(print_function(replace(f, statements=forwarded(f.statements, ["x", "t", "s"], ["s"]))))
    def f(float(N, M) x) -> (s) {
      s(i) +=! exp(x(i, k))
    }
    """
    reader = _Forwarding(frozenset(tensors), frozenset(kept))
    now = [_Statement(one, known) for one, known in zip(statements, ranges or [None] * len(statements), strict=True)]
    while (place := next((k for k in range(len(now)) if reader.may_go(now, k)), None)) is not None:
        gone = now.pop(place)
        now = [one.with_put_in(gone) for one in now]
    return tuple(one.text for one in now)


@dataclass(frozen=True)
class _Statement:
    """A statement with the ranges of its indices, where these may be said."""

    text: IndexEquation
    ranges: Ranges | None

    def with_put_in(self, gone: _Statement) -> _Statement:
        """The statement with a definition in place of what reads it, and its ranges where that held some of them."""
        value = _put_in(self.text.value, gone.text)
        clauses = self.text.clauses
        is_plain = not gone.text.clauses and all(_are_indices(one.arguments) for one in self.reads(gone.text.target))
        if value != self.text.value and not is_plain and self.ranges is not None:
            said = {one.index for one in clauses if isinstance(one, RangeClause)}
            clauses += tuple(clause for index, clause in self.ranges.items() if index not in said)
        return _Statement(replace(self.text, value=value, clauses=clauses), self.ranges)

    def reads(self, target: str) -> list[Applied]:
        """The elements that it reads of a tensor."""
        return [*_reads(self.text.value, target)]


@dataclass(frozen=True)
class _Forwarding:
    tensors: frozenset[str]
    kept: frozenset[str]

    def may_go(self, statements: Sequence[_Statement], place: int) -> bool:
        """True of a definition that goes into all that read it."""
        whole = statements[place]
        one = whole.text
        if one.reduction or one.target in self.kept or not _are_indices(one.subscripts):
            return False
        if [other.text.target for other in statements].count(one.target) > 1:
            return False
        readers = [other for other in statements if other.reads(one.target)]
        if not readers or any(_parts(reader.text.value) + _parts(one.value) > _MOST_PARTS for reader in readers):
            return False
        if whole.ranges is not None and self._is_moved(one.value):
            return all(self._may_read_moved(reader, one) for reader in readers)
        if one.clauses and any(reader.ranges is None for reader in readers):
            return False
        if len(readers) > 1 and self._work(one.value) > _MOST_TWICE:
            return False
        return all(self._reads_once(each.text, one.target) or self._moves(each, one.target) for each in readers)

    def _moves(self, reader: _Statement, target: str) -> bool:
        """True of a statement that does but move a tensor, by all its indices: it has as few elements."""
        if reader.ranges is None or reader.text.reduction or not self._is_moved(reader.text.value):
            return False
        reads = reader.reads(target)
        read = {part.name for access in reads for part in walk(access) if isinstance(part, Name)}
        return len(reads) == 1 and {*reader.ranges} <= read

    def _may_read_moved(self, reader: _Statement, one: IndexEquation) -> bool:
        """True of a statement that reads what is moved where that takes no more than it does: by plain multiples, or
        outside of what is added up."""
        if reader.ranges is None:
            return False
        inner = [part for access in reader.reads(one.target) for part in access.arguments]
        is_simple = not any(_is_long(part) for part in (one.value, *inner))
        return is_simple or not reader.text.reduction

    def _is_moved(self, value: Expression) -> bool:
        """True of an element, or a number, or a choice between these by indices alone."""
        match value:
            case Number():
                return True
            case Applied(name=name, arguments=arguments) if name in self.tensors:
                return not any(self._reads_some(part) for part in arguments)
            case Conditional(condition=condition, yes=yes, no=no):
                return self._is_moved(yes) and self._is_moved(no) and not self._reads_some(condition)
        return False

    def _reads_some(self, expression: Expression) -> bool:
        return any(isinstance(part, Applied) and part.name in self.tensors for part in walk(expression))

    def _reads_once(self, reader: IndexEquation, target: str) -> bool:
        """True of a statement that reads each element of a tensor once: by all its indices, each alone."""
        elements = [part for part in walk(reader.value) if isinstance(part, Applied) and part.name in self.tensors]
        walked = {part.name for element in elements for part in element.arguments if isinstance(part, Name)}
        return all(
            _are_indices(access.arguments) and walked == {one.name for one in access.arguments if isinstance(one, Name)}
            for access in _reads(reader.value, target)
        )

    def _work(self, expression: Expression) -> int:
        """The operations of an expression, each as one; more than may be done twice where one of them takes long."""
        match expression:
            case Binary(operator=operator) if operator in _CHEAP:
                return 1 + sum(map(self._work, children(expression)))
            case Unary(operator="-", operand=operand):
                return 1 + self._work(operand)
            case Name() | Number():
                return 0
            case Applied(name=name) if name in self.tensors:
                return 0
        return _MOST_TWICE + 1


def _is_long(expression: Expression) -> bool:
    """True of a choice, or of what takes a quotient."""
    return any(
        isinstance(part, Conditional) or (isinstance(part, Binary) and part.operator in ("/", "%"))
        for part in walk(expression)
    )


def _are_indices(subscripts: Sequence[Expression]) -> bool:
    """True of subscripts that are different names, one at least."""
    names = [one.name for one in subscripts if isinstance(one, Name)]
    return 0 < len({*names}) == len(subscripts)


def _reads(expression: Expression, target: str) -> Iterator[Applied]:
    return (part for part in walk(expression) if isinstance(part, Applied) and part.name == target)


def _parts(expression: Expression) -> int:
    return sum(1 for _ in walk(expression))


def _put_in(expression: Expression, one: IndexEquation) -> Expression:
    """An expression with a definition in place of what reads it."""
    if isinstance(expression, Applied) and expression.name == one.target:
        names = (part.name for part in one.subscripts if isinstance(part, Name))
        return _at(one.value, dict(zip(names, expression.arguments, strict=True)))
    return rebuilt(expression, lambda part: _put_in(part, one))


def _at(expression: Expression, indices: Mapping[str, Expression]) -> Expression:
    """An expression at other indices."""
    if isinstance(expression, Name):
        return indices.get(expression.name, expression)
    return rebuilt(expression, lambda part: _at(part, indices))
