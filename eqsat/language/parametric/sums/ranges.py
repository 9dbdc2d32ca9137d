"""Ranges of terms that are whole numbers, which rounding leaves alone, and of which a type has some."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any, TypeAlias

import ml_dtypes

from eqsat.language.arithmetic.algebra import fraction
from eqsat.language.parametric.atoms import Fold, Read
from eqsat.language.parametric.facts import Fact
from eqsat.language.parametric.paths import Path, current
from eqsat.language.parametric.sums.counts import without_divisors
from eqsat.language.terms import DType
from eqsat.language.terms.dims import Dim

#: The least and the largest that a whole number may be: numbers, or a formula and its negative.
Range: TypeAlias = tuple[Dim, Dim]
#: Functions that leave whole numbers as they are, and those that do if a type of integers has these.
_ROUNDINGS = frozenset({"round", "floor", "ceil", "trunc"})
_HELD = ("saturate-", "trunc to ")
#: Steps of the solver for whether a divisor is never 0.
_STEPS = 100_000


def limits_of(dtype: DType) -> tuple[int, int]:
    """The least and the largest integer of a type."""
    known = ml_dtypes.iinfo(dtype.numpy)
    return int(known.min), int(known.max)


class WholeRanges:
    """The ranges of whole terms, by those of the elements of operands."""

    def __init__(self, elements: Any) -> None:
        self._elements = elements
        #: The ranges of the elements of operands that are integers.
        self.of_operands: dict[str, tuple[int, int]] = {}
        #: The widest ranges of all types that one stands for.
        self.of_types: dict[str, tuple[int, int]] = {}

    def of(self, term: Any) -> Range | None:
        """The range of a term that is a whole number; None of one of which nothing is known."""
        z3, noted = self._elements.z3, self._noted(term)
        if noted is not None:
            return noted
        if z3.is_rational_value(term):
            number = fraction(term)
            return (int(number), int(number)) if number.denominator == 1 else None
        if z3.is_const(term):
            return self._of_atom(term.decl().name())
        parts = term.children()
        if z3.is_app_of(term, z3.Z3_OP_ITE):
            return _joined(map(self.of, parts[1:]))
        name = term.decl().name()
        if term.decl().kind() == z3.Z3_OP_UNINTERPRETED:
            if name.startswith("trunc to "):
                kind = name.removeprefix("trunc to ")
                return self.of_types.get(kind) or limits_of(DType.of(kind))
            return _joined(map(self.of, parts)) if name == f"max{len(parts)}" else None
        ranges = [self.of(part) for part in parts]
        if any(one is None for one in ranges):
            return None
        known = [one for one in ranges if one is not None]
        if z3.is_add(term):
            return reduce(_sum, known)
        if z3.is_mul(term):
            return reduce(_product, known)
        if z3.is_sub(term):
            return reduce(_sum, [known[0], *(_product((-1, -1), one) for one in known[1:])])
        return _product((-1, -1), known[0]) if z3.is_app_of(term, z3.Z3_OP_UMINUS) else None

    def _of_atom(self, name: str) -> Range | None:
        atom = self._elements.atoms.get(name)
        if isinstance(atom, Read):
            return self.of_operands.get(atom.operand)
        if isinstance(atom, Fold) and atom.kind == "sum":
            count, body = self._elements.count(atom.bound, atom.domain), self.of(atom.term)
            return None if count is None or body is None else _repeated(body, count)
        return None

    def fits(self, term: Any, limits: tuple[int, int]) -> bool:
        """True if a term is a whole number within limits, whatever the elements of operands are."""
        found = self.of(term) or self.of(self._elements.algebra.normal(term))
        if found is None:
            return False
        least, most = found
        return all(
            gap >= 0 if isinstance(gap, int) else current().holds(Fact.positive(gap + 1))
            for gap in (least - limits[0], limits[1] - most)
        )

    def unrounded(self, function: str, term: Any) -> Any | None:
        """The term that a function which rounds, or holds numbers within a type, leaves as it is; None of any other."""
        if not self.of_operands:
            return None
        term = self._elements.algebra.normal(term)
        if function in _ROUNDINGS:
            plain = self._divided(term)
            return plain if self.of(plain) is not None else None
        kind = next((function.removeprefix(prefix) for prefix in _HELD if function.startswith(prefix)), None)
        if kind is None:
            return None
        return term if self.fits(term, limits_of(DType.of(kind))) else None

    def _divided(self, term: Any) -> Any:
        """A term without factors that it is divided by and that are never 0."""
        algebra, z3 = self._elements.algebra, self._elements.z3
        facts = [*current().statements, *self._elements.said_of(term)]

        def is_never_zero(factor: Any) -> bool:
            return bool(algebra.settle(factor != 0, z3.BoolVal(True), _STEPS, facts) == "proved")

        return without_divisors(algebra, term, is_never_zero)

    def note_sum(self, total: Any, bodies: Iterable[Any], sizes: Sequence[Dim]) -> None:
        """Note the range of a sum over sizes, of terms before they are multiplied out: it is narrower than afterwards.

        Sums over parts of these have fewer terms.
        """
        if not self.of_operands:
            return
        whole = _joined([(0, 0), *map(self.of, map(self._elements.algebra.real, bodies))])
        if whole is not None:
            count: Dim = 1
            for size in sizes:
                count = count * size
            current().known["range", total.get_id()] = (total, _repeated(whole, count))

    def _noted(self, term: Any) -> Range | None:
        path: Path | None = current()
        while path is not None:
            if ("range", term.get_id()) in path.known:
                found: Range = path.known["range", term.get_id()][1]
                return found
            path = path.outer
        return None


def _size_of(one: Range) -> Dim:
    """A bound of the absolute value: a formula that is not below 0."""
    least, most = one
    return max(abs(least), abs(most)) if isinstance(least, int) and isinstance(most, int) else most


def _around(size: Dim) -> Range:
    return (-size, size)


def _sum(one: Range, other: Range) -> Range:
    if all(isinstance(end, int) for end in (*one, *other)):
        return one[0] + other[0], one[1] + other[1]
    return _around(_size_of(one) + _size_of(other))


def _product(one: Range, other: Range) -> Range:
    if all(isinstance(end, int) for end in (*one, *other)):
        ends = [a * b for a in one for b in other]
        return min(ends), max(ends)  # type: ignore[type-var]
    return _around(_size_of(one) * _size_of(other))


def _repeated(body: Range, count: Dim) -> Range:
    return _product(body, (0, count)) if isinstance(count, int) else _around(_size_of(body) * count)


def _joined(ranges: Iterable[Range | None]) -> Range | None:
    """A range that all of some are in."""
    found: Range | None = None
    for one in ranges:
        if one is None:
            return None
        if found is None:
            found = one
        elif all(isinstance(end, int) for end in (*found, *one)):
            found = min(found[0], one[0]), max(found[1], one[1])  # type: ignore[type-var]
        else:
            found = _around(_size_of(found) + _size_of(one))
    return found
