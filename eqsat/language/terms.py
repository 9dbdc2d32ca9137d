"""Symbolic arithmetic for operator references: Z3 real terms, functions of one variable uninterpreted."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from functools import cached_property, reduce
from typing import Any

import numpy as np

from eqsat.errors import ShapeError
from eqsat.language.floats import FloatNamespace
from eqsat.language.types import DType, TensorType


class Algebra:
    """Normal forms of real terms: what is equal by the laws of fields, maxima and exponentials gets one term.

    A maximum is a function of the set of its operands without what they share and at unit scale, so that
    max(x + c, y + c) = max(x, y) + c and max(2x, 2y) = 2·max(x, y) hold term by term; exp(x + y) is exp(x)·exp(y).
    """

    def __init__(self) -> None:
        self._sets: dict[int, tuple[Any, tuple[Any, ...]]] = {}

    @cached_property
    def z3(self) -> Any:
        """The solver's package, imported where a first term is made."""
        import z3

        return z3

    def real(self, value: Any) -> Any:
        """A term: numbers become exact rationals, and the floats next to √2 and √½ these themselves."""
        z3 = self.z3
        if isinstance(value, z3.ExprRef):
            return z3.If(value, z3.RealVal(1), z3.RealVal(0)) if z3.is_bool(value) else value
        if isinstance(value, bool | np.bool_):
            return z3.RealVal(int(value))
        if not math.isfinite(value):
            return z3.Real("nan" if math.isnan(value) else "-inf" if value < 0 else "inf")
        multiple = _root_two(value)
        if multiple is not None:
            return z3.Real("sqrt2") * _rational(z3, multiple if value > 0 else -multiple)
        return _rational(z3, Fraction(value))

    def normal(self, term: Any) -> Any:
        """The term as a sum of monomials in one order."""
        return self.z3.simplify(term, som=True, sort_sums=True)

    def monomials(self, term: Any) -> dict[int, tuple[Fraction, Any]]:
        """Coefficient and product of each monomial, keyed by the product's identity; the constant's product is 1."""
        z3 = self.z3
        found: dict[int, tuple[Fraction, Any]] = {}
        term = self.normal(term)
        for part in term.children() if z3.is_add(term) else [term]:
            coefficient, factors = Fraction(1), [part]
            if z3.is_mul(part):
                factors = part.children()
            if z3.is_rational_value(factors[0]):
                coefficient, factors = _fraction(factors[0]), factors[1:]
            product = self.normal(reduce(lambda a, b: a * b, factors)) if factors else z3.RealVal(1)
            found[product.get_id()] = (coefficient, product)
        return found

    def total(self, parts: Iterable[tuple[Fraction, Any]]) -> Any:
        """The sum of monomials, in normal form."""
        z3 = self.z3
        return self.normal(reduce(lambda a, b: a + b, (_rational(z3, c) * p for c, p in parts), z3.RealVal(0)))

    def function(self, name: str, *operands: Any) -> Any:
        """An uninterpreted function of terms in normal form."""
        real = self.z3.RealSort()
        return self.z3.Function(name, *(real for _ in operands), real)(*(self.normal(o) for o in operands))

    def inverse(self, term: Any) -> Any:
        """1 / term: of a product, the product of inverses; of a sum, that of the sum at unit scale."""
        z3 = self.z3
        parts = list(self.monomials(term).values())
        if len(parts) > 1:
            scale = max(abs(c) for c, _ in parts)
            return self.function("inverse", self.total((c / scale, p) for c, p in parts)) / _rational(z3, scale)
        coefficient, product = parts[0]
        if coefficient == 0:
            return z3.Real("1/0")
        result = _rational(z3, 1 / coefficient)
        for factor in product.children() if z3.is_mul(product) else [product]:
            result = result * self._inverse_atom(factor)
        return result

    def _inverse_atom(self, atom: Any) -> Any:
        z3 = self.z3
        if z3.is_rational_value(atom):
            return _rational(z3, 1 / _fraction(atom))
        if atom.eq(z3.Real("sqrt2")):
            return atom / 2
        if z3.is_app(atom) and atom.decl().name() == "inverse":
            return atom.arg(0)
        return self.function("inverse", atom)

    def exponential(self, term: Any) -> Any:
        """The product of the exponentials of the monomials."""
        z3 = self.z3
        result = z3.RealVal(1)
        for coefficient, product in self.monomials(term).values():
            if coefficient:
                result = result * self.function("exp", _rational(z3, coefficient) * product)
        return result

    def maximum(self, *operands: Any) -> Any:
        """The largest of terms."""
        z3 = self.z3
        members: dict[int, Any] = {}
        for operand in operands:
            operand = self.normal(operand)
            for member in self._sets.get(operand.get_id(), (None, (operand,)))[1]:
                if not member.eq(z3.Real("-inf")):
                    members[member.get_id()] = member
        if len(members) <= 1:
            return next(iter(members.values()), z3.Real("-inf"))
        forms = [self.monomials(m) for m in members.values()]
        shared = {k: v for k, v in forms[0].items() if all(k in f and f[k][0] == v[0] for f in forms)}
        rests = [{k: v for k, v in f.items() if k not in shared} for f in forms]
        scale = max(abs(c) for rest in rests for c, _ in rest.values())
        unit = sorted((self.total((c / scale, p) for c, p in r.values()) for r in rests), key=lambda t: t.get_id())
        if all(z3.is_rational_value(u) for u in unit):
            largest = _rational(z3, max(_fraction(u) for u in unit))
        else:
            largest = self.function(f"max{len(unit)}", *unit)
        result = self.normal(self.total(shared.values()) + _rational(z3, scale) * largest)
        self._sets[result.get_id()] = (result, tuple(members.values()))
        return result

    def choice(self, condition: Any, a: Any, b: Any) -> Any:
        """`a` where the condition is true, else `b`."""
        z3 = self.z3
        if not isinstance(condition, z3.ExprRef):
            return a if condition else b
        if _is_bool(z3, a) and _is_bool(z3, b):
            return z3.simplify(z3.If(condition, a, b))
        a, b = self.normal(self.real(a)), self.normal(self.real(b))
        return a if a.eq(b) else z3.If(condition, a, b)

    def compare(self, a: Any, b: Any, how: str) -> Any:
        """A truth value: a = b, a < b or a <= b."""
        z3 = self.z3
        if _is_bool(z3, a) and _is_bool(z3, b):
            return z3.simplify(a == b) if isinstance(a, z3.ExprRef) or isinstance(b, z3.ExprRef) else a == b
        difference = self.normal(self.real(a) - self.real(b))
        zero = z3.RealVal(0)
        made = difference == zero if how == "=" else difference < zero if how == "<" else difference <= zero
        made = z3.simplify(made)
        return True if z3.is_true(made) else False if z3.is_false(made) else made

    def settle(self, a: Any, b: Any, steps: int) -> str:
        """Whether two terms are equal for all values of their variables."""
        z3 = self.z3
        terms = [x for x in (a, b) if isinstance(x, z3.ExprRef)]
        if not terms:
            return "proved" if a == b else "differs"
        if _is_bool(z3, a):
            goal = z3.simplify(a != b)
        else:
            difference = self.normal(self.real(a) - self.real(b))
            if z3.is_rational_value(difference):
                return "proved" if _fraction(difference) == 0 else "differs"
            goal = difference != 0
        if z3.is_false(goal):
            return "proved"
        solver = z3.Solver()
        # Steps rather than time bound the search, so that verdicts do not depend on the load of the machine.
        solver.set("rlimit", steps)
        solver.add(goal, *self._facts(goal))
        return "proved" if solver.check() == z3.unsat else "unknown"

    def _facts(self, goal: Any) -> list[Any]:
        """What holds of the maxima and inverses inside a goal."""
        z3 = self.z3
        facts, seen, pending = [], set(), [goal]
        while pending:
            term = pending.pop()
            if term.get_id() in seen:
                continue
            seen.add(term.get_id())
            pending += term.children()
            name = term.decl().name() if z3.is_app(term) else ""
            if name.startswith("max") and term.num_args():
                facts.append(z3.Or(*(term == c for c in term.children())))
                facts += [term >= c for c in term.children()]
            elif name == "sqrt2":
                facts.append(z3.And(term > 0, term * term == 2))
        return facts


class TermNamespace:
    """Arithmetic on object arrays of Z3 terms, with the methods of FloatNamespace."""

    exact = True

    def __init__(self) -> None:
        self._algebra = Algebra()

    def _map(self, function: Any, *operands: Any) -> Any:
        result = np.frompyfunc(function, len(operands), 1)(*(_objects(o) for o in operands))
        return _objects(result)

    def _reals(self, x: Any) -> Any:
        return self._map(self._algebra.real, x)

    def add(self, a: Any, b: Any) -> Any:
        """Sum."""
        return _objects(np.add(self._reals(a), self._reals(b)))

    def subtract(self, a: Any, b: Any) -> Any:
        """Difference."""
        return _objects(np.subtract(self._reals(a), self._reals(b)))

    def multiply(self, a: Any, b: Any) -> Any:
        """Product."""
        return _objects(np.multiply(self._reals(a), self._reals(b)))

    def negative(self, a: Any) -> Any:
        """Negation."""
        return _objects(np.negative(self._reals(a)))

    def divide(self, a: Any, b: Any) -> Any:
        """Quotient: product with the inverse, a function of what is no number."""
        return self.multiply(a, self._map(self._algebra.inverse, self._reals(b)))

    def power(self, a: Any, b: Any) -> Any:
        """Power: repeated product for whole exponents up to 8, the root for 1/2, else uninterpreted."""
        return self._map(self._power, self._reals(a), self._reals(b))

    def _power(self, a: Any, b: Any) -> Any:
        z3, b = self._algebra.z3, self._algebra.normal(b)
        exponent = _fraction(b) if z3.is_rational_value(b) else None
        if exponent == Fraction(1, 2):
            return self._apply("sqrt", a)
        if exponent is None or exponent.denominator != 1 or abs(exponent) > 8:
            return self._algebra.function("power", a, b)
        whole = reduce(lambda x, y: x * y, [a] * abs(int(exponent)), z3.RealVal(1))
        return whole if exponent >= 0 else self._algebra.inverse(whole)

    def matmul(self, a: Any, b: Any) -> Any:
        """Matrix product."""
        return _objects(np.matmul(self._reals(a), self._reals(b)))

    def einsum(self, equation: str, *operands: Any) -> Any:
        """Sum of products by index notation."""
        return _objects(np.einsum(equation, *(self._reals(o) for o in operands)))

    def maximum(self, a: Any, b: Any) -> Any:
        """The larger element."""
        return self._map(self._algebra.maximum, self._reals(a), self._reals(b))

    def minimum(self, a: Any, b: Any) -> Any:
        """The smaller element: minus the larger of the negated ones."""
        return self.negative(self.maximum(self.negative(a), self.negative(b)))

    def equal(self, a: Any, b: Any) -> Any:
        """True where the elements are equal."""
        return self._map(lambda x, y: self._algebra.compare(x, y, "="), a, b)

    def less(self, a: Any, b: Any) -> Any:
        """True where the left element is smaller."""
        return self._map(lambda x, y: self._algebra.compare(x, y, "<"), a, b)

    def less_equal(self, a: Any, b: Any) -> Any:
        """True where the left element is smaller or equal."""
        return self._map(lambda x, y: self._algebra.compare(x, y, "<="), a, b)

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        """The element of `a` where the condition is true, else that of `b`."""
        return self._map(self._algebra.choice, condition, a, b)

    def apply(self, name: str, x: Any) -> Any:
        """A function of one variable."""
        return self._map(lambda e: self._apply(name, e), self._reals(x))

    def _apply(self, name: str, x: Any) -> Any:
        algebra, z3 = self._algebra, self._algebra.z3
        if name == "abs":
            return algebra.maximum(x, -x)
        if name == "exp":
            return algebra.exponential(x)
        if name == "sigmoid":
            return algebra.inverse(z3.RealVal(1) + algebra.exponential(-x))
        x = algebra.normal(x)
        if name == "sqrt" and z3.is_rational_value(x) and _fraction(x) >= 0:
            number = _fraction(x)
            root = Fraction(math.isqrt(number.numerator), math.isqrt(number.denominator))
            if root * root == number:
                return _rational(z3, root)
        return algebra.function(name, x)

    def number(self, value: float, like: Any) -> Any:
        """A number that combines with terms."""
        return _objects(self._algebra.real(value))

    def sum(self, x: Any, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Any:
        """Sum over axes."""
        return self._reals(np.sum(self._reals(x), axis=axis, keepdims=keepdims))

    def prod(self, x: Any, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Any:
        """Product over axes."""
        return self._reals(np.prod(self._reals(x), axis=axis, keepdims=keepdims))

    def max(self, x: Any, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Any:
        """Maximum over axes."""
        x = self._reals(x)
        axes = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
        axes = tuple(a % x.ndim for a in axes)
        kept = [a for a in range(x.ndim) if a not in axes]
        moved = x.transpose(*kept, *axes).reshape(*(x.shape[a] for a in kept), -1)
        result = np.empty(moved.shape[:-1], object)
        for index in np.ndindex(result.shape):
            result[index] = self._algebra.maximum(*moved[index])
        return result.reshape([1 if a in axes else n for a, n in enumerate(x.shape)]) if keepdims else result

    def min(self, x: Any, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Any:
        """Minimum over axes."""
        return self.negative(self.max(self.negative(x), axis, keepdims))

    def argsort(self, x: Any, axis: int) -> Any:
        """Refused: the order of terms is not known."""
        raise ShapeError("terms have no order", expected="an operator whose movement does not depend on values")

    def cast(self, x: Any, dtype: DType) -> Any:
        """Conversion: exact between floats, true is 1, to integers uninterpreted."""
        if dtype.is_float:
            return self._reals(x)
        if dtype is DType.BOOL:
            return self._map(lambda e: self._algebra.choice(self._algebra.compare(e, 0, "="), False, True), x)
        return self.apply("trunc", x)


class Terms:
    """The interpretation in Z3 reals; integers stay what they are.

    >>> x = Terms().variable("x", (2,))
    >>> x.shape
    (2,)
    """

    def __init__(self) -> None:
        self._terms = TermNamespace()
        self._plain = FloatNamespace()

    def variable(self, name: str, shape: tuple[int, ...], boolean: bool = False) -> Any:
        """An array of fresh real or truth variables."""
        z3 = self._terms._algebra.z3
        make = z3.Bool if boolean else z3.Real
        result = np.empty(shape, object)
        for index in np.ndindex(shape):
            result[index] = make(f"{name}{list(index)}")
        return result

    def settle(self, a: Any, b: Any, steps: int) -> str:
        """Whether two elements are equal for all values of the variables: "proved", "differs" or "unknown".

        Normal forms decide most; else the solver takes so many steps, knowing what a maximum is. A model it finds is a
        difference only where no function is left uninterpreted, so it counts as unknown.
        """
        return self._terms._algebra.settle(a, b, steps)

    def namespace(self, operands: list[TensorType | None], results: list[TensorType]) -> Any:
        """Symbolic arithmetic for nodes that read or make floats or truth values, plain arithmetic for the rest."""
        symbolic = any(t is not None and not t.dtype.is_integer for t in (*operands, *results))
        return self._terms if symbolic else self._plain

    def constant(self, array: Any, type: TensorType) -> Any:
        """The exact rational values of floats."""
        return self.finish(array, type)

    def finish(self, array: Any, type: TensorType) -> Any:
        """Terms for floats, truth values as they are, the declared element type for the rest."""
        if type.dtype.is_float:
            return self._terms._reals(array)
        return _objects(array) if type.dtype is DType.BOOL else np.asarray(array)


def _objects(x: Any) -> Any:
    """An object array, of rank 0 for a single term."""
    if isinstance(x, np.ndarray):
        return x if x.dtype == object else x.astype(object)
    result = np.empty((), object)
    result[()] = x
    return result


def _is_bool(z3: Any, x: Any) -> bool:
    return isinstance(x, bool | np.bool_) or (isinstance(x, z3.ExprRef) and z3.is_bool(x))


def _rational(z3: Any, value: Fraction) -> Any:
    return z3.Q(value.numerator, value.denominator)


def _fraction(term: Any) -> Fraction:
    return Fraction(term.numerator_as_long(), term.denominator_as_long())


def _root_two(value: float) -> Fraction | None:
    """The multiple of √2 that a float within single precision of √2 or √½ stands for."""
    square = value * value
    return Fraction(1) if abs(square / 2 - 1) < 1e-7 else Fraction(1, 2) if abs(square * 2 - 1) < 1e-7 else None
