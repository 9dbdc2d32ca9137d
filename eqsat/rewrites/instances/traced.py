"""Integers that record what is asked of them, so that a solver finds others of which the answers differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

#: A number, the name of an unknown, or an operation on two of these.
Formula: TypeAlias = "int | str | tuple[str, Formula, Formula]"

#: Operations deeper than this are taken for the numbers they are: what depends on so much is no matter of one bound.
_DEEPEST = 12


@dataclass(frozen=True, slots=True)
class Question:
    """A comparison, "<", "<=" or "==", of two formulas, and whether it held."""

    comparison: str
    left: Formula
    right: Formula
    held: bool

    @property
    def turned(self) -> Question:
        """The same question with the other answer."""
        return Question(self.comparison, self.left, self.right, not self.held)

    def unknowns(self) -> frozenset[str]:
        """The names of the unknowns that it is about."""
        return _unknowns(self.left) | _unknowns(self.right)


@dataclass(slots=True)
class Trace:
    """The questions that were asked of traced integers, each once, in order."""

    asked: dict[Question, None] = field(default_factory=dict)

    def record(self, comparison: str, left: Formula, right: Formula, held: bool) -> None:
        """Note a question and its answer."""
        self.asked.setdefault(Question(comparison, left, right, held))


def _unknowns(formula: Formula) -> frozenset[str]:
    if isinstance(formula, str):
        return frozenset((formula,))
    return frozenset() if isinstance(formula, int) else _unknowns(formula[1]) | _unknowns(formula[2])


def _depth(formula: Formula) -> int:
    return 1 + max(_depth(formula[1]), _depth(formula[2])) if isinstance(formula, tuple) else 0


def _formula(number: int) -> Formula:
    return number.formula if isinstance(number, Traced) else int(number)


def _made(operation: str, left: int, right: int, trace: Trace, value: int) -> int:
    formula = (operation, _formula(left), _formula(right))
    return int(value) if _depth(formula) > _DEEPEST else Traced(value, formula, trace)


def _arithmetic(name: str, operation: str, *, reflected: bool = False) -> Callable[[Traced, Any], Any]:
    plain = getattr(int, name)

    def apply(self: Traced, other: Any) -> Any:
        value = plain(self, other)
        if value is NotImplemented or not isinstance(other, int):
            return value
        left, right = (other, self) if reflected else (self, other)
        if operation in ("//", "%") and int(right) <= 0:
            return value  # solvers round quotients by negative numbers in another direction
        return _made(operation, left, right, self.trace, value)

    return apply


def _comparison(name: str, operation: str, *, swapped: bool = False, negated: bool = False) -> Callable[..., Any]:
    plain = getattr(int, name)

    def compare(self: Traced, other: Any) -> Any:
        held = plain(self, other)
        if held is NotImplemented or not isinstance(other, int):
            return held
        left, right = (other, self) if swapped else (self, other)
        self.trace.record(operation, _formula(left), _formula(right), held is not negated)
        return held

    return compare


class Traced(int):
    """An integer of a trace: arithmetic makes formulas, comparisons are recorded, and everything else is an integer's.

    What an index, a range or a hash is made of is not recorded: a trace shows boundaries to look behind, and is no
    proof that there are no others.

    >>> trace = Trace()
    >>> n = Traced(3, "n", trace)
    >>> min(n * 2, 224), [(q.comparison, q.left, q.right, q.held) for q in trace.asked]
    (6, [('<', 224, ('*', 'n', 2), False)])
    """

    formula: Formula
    trace: Trace

    def __new__(cls, value: int, formula: Formula, trace: Trace) -> Traced:
        """An integer with its formula."""
        made = super().__new__(cls, value)
        made.formula, made.trace = formula, trace
        return made

    def __hash__(self) -> int:
        return int.__hash__(self)

    def __bool__(self) -> bool:
        held = int.__eq__(self, 0)
        self.trace.record("==", self.formula, 0, held)
        return not held

    def __neg__(self) -> int:
        return _made("-", 0, self, self.trace, -int(self))

    def __abs__(self) -> int:
        return -self if self < 0 else self

    __add__ = _arithmetic("__add__", "+")
    __radd__ = _arithmetic("__radd__", "+", reflected=True)
    __sub__ = _arithmetic("__sub__", "-")
    __rsub__ = _arithmetic("__rsub__", "-", reflected=True)
    __mul__ = _arithmetic("__mul__", "*")
    __rmul__ = _arithmetic("__rmul__", "*", reflected=True)
    __floordiv__ = _arithmetic("__floordiv__", "//")
    __rfloordiv__ = _arithmetic("__rfloordiv__", "//", reflected=True)
    __mod__ = _arithmetic("__mod__", "%")
    __rmod__ = _arithmetic("__rmod__", "%", reflected=True)
    __lt__ = _comparison("__lt__", "<")
    __le__ = _comparison("__le__", "<=")
    __gt__ = _comparison("__gt__", "<", swapped=True)
    __ge__ = _comparison("__ge__", "<=", swapped=True)
    __eq__ = _comparison("__eq__", "==")
    __ne__ = _comparison("__ne__", "==", negated=True)
