"""Dimensions: plain integers, named dims, and polynomials over named dims."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

#: One factor of a monomial: a name, or a function of dims such as ("floordiv", a, b).
Atom: TypeAlias = "str | tuple[str, Dim, Dim]"
#: A product of atoms, each with its power, sorted; the empty product is 1.
Monomial: TypeAlias = "tuple[tuple[Atom, int], ...]"

_FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "max": max,
    "min": min,
    "broadcast": lambda a, b: a if b == 1 else b,
}


#: The most terms of a quotient of polynomials.
_LONGEST_QUOTIENT = 64


class Sym:
    """A dimension known by name only: an integer polynomial over named dims, in canonical form.

    Two symbols are equal exactly when their canonical forms are; names beginning with ``?`` were invented for dims the
    model leaves unnamed, and each is equal to itself alone. A named dim may be 0, 1 or more.

    >>> batch = Sym.named("batch")
    >>> (batch + 1) * 2 == 2 * batch + 2
    True
    """

    __slots__ = ("_hash", "terms")

    terms: tuple[tuple[Monomial, int], ...]

    def __init__(self, terms: Iterable[tuple[Monomial, int]]) -> None:
        kept = [t for t in terms if t[1]]
        self.terms = tuple(sorted(kept, key=repr) if len(kept) > 1 else kept)
        self._hash = hash(self.terms)

    @staticmethod
    def named(name: str) -> Sym:
        """The dimension called `name`."""
        return Sym([(((name, 1),), 1)])

    @staticmethod
    def function(name: str, a: Dim, b: Dim) -> Sym:
        """An atom that stands for a function of two dims, such as floordiv."""
        return Sym([((((name, a, b), 1),), 1)])

    @property
    def is_anonymous(self) -> bool:
        """True for a dim that the model left without a name."""
        return any(n.startswith("?") for n in self.names())

    def names(self) -> frozenset[str]:
        """Every name this dimension depends on."""
        names: set[str] = set()
        for monomial, _ in self.terms:
            for atom, _power in monomial:
                if isinstance(atom, str):
                    names.add(atom)
                else:
                    for part in atom[1:]:
                        if isinstance(part, Sym):
                            names |= part.names()
        return frozenset(names)

    def evaluate(self, sizes: Mapping[str, int]) -> int:
        """The integer this is when every name has the size given; KeyError names the first that is missing."""
        total = 0
        for monomial, coefficient in self.terms:
            product = coefficient
            for atom, power in monomial:
                product *= _evaluate_atom(atom, sizes) ** power
            total += product
        return total

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sym) and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    def __add__(self, other: Dim) -> Dim:
        return _sum(self, _plain(other))

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return _from_terms([(m, -c) for m, c in self.terms])

    def __sub__(self, other: Dim) -> Dim:
        return _difference(self, _plain(other))

    def __rsub__(self, other: Dim) -> Dim:
        return _difference(_plain(other), self)

    def __mul__(self, other: Dim) -> Dim:
        return _multiple(self, _plain(other))

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return floordiv(self, other)

    def __mod__(self, other: Dim) -> Dim:
        quotient = exact_quotient(self, other)
        return 0 if quotient is not None else Sym.function("mod", self, other)

    def __str__(self) -> str:
        return " + ".join(_show(m, c) for m, c in self.terms).replace("+ -", "- ") or "0"

    def __repr__(self) -> str:
        return f"Sym({str(self)!r})"


Dim: TypeAlias = "int | Sym"


def _evaluate_atom(atom: Atom, sizes: Mapping[str, int]) -> int:
    if isinstance(atom, str):
        return sizes[atom]
    name, a, b = atom
    return _FUNCTIONS[name](evaluate(a, sizes), evaluate(b, sizes))


def _show(monomial: Monomial, coefficient: int) -> str:
    factors = []
    for atom, power in monomial:
        text = atom if isinstance(atom, str) else f"{atom[0]}({atom[1]}, {atom[2]})"
        factors.append(text if power == 1 else f"{text}**{power}")
    if not factors:
        return str(coefficient)
    return "*".join(factors if coefficient == 1 else [str(coefficient), *factors])


def _terms(dim: Dim) -> tuple[tuple[Monomial, int], ...]:
    if isinstance(dim, Sym):
        return dim.terms
    return (((), int(dim)),) if dim else ()


def _product(a: Monomial, b: Monomial) -> Monomial:
    if not a or not b:
        return a or b
    powers: dict[Atom, int] = dict(a)
    for atom, power in b:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=repr))


def _from_terms(terms: Iterable[tuple[Monomial, int]]) -> Dim:
    total: dict[Monomial, int] = {}
    for monomial, coefficient in terms:
        total[monomial] = total.get(monomial, 0) + coefficient
    remaining = {m: c for m, c in total.items() if c}
    if not remaining:
        return 0
    if set(remaining) == {()}:
        return remaining[()]
    return Sym(remaining.items())


def _plain(dim: Dim) -> Dim:
    """A dim, of another kind of number as an int: arrays have no hash."""
    return dim if isinstance(dim, Sym | int) else int(dim)


# Proofs form the same sums on every path through a rule, where these save a ninth of their time.
_remembered = lru_cache(maxsize=1 << 14)


@_remembered
def _sum(a: Dim, b: Dim) -> Dim:
    return _from_terms([*_terms(a), *_terms(b)])


@_remembered
def _difference(a: Dim, b: Dim) -> Dim:
    return _from_terms([*_terms(a), *((monomial, -coefficient) for monomial, coefficient in _terms(b))])


@_remembered
def _multiple(a: Dim, b: Dim) -> Dim:
    return _from_terms([(_product(m, n), c * d) for m, c in _terms(a) for n, d in _terms(b)])


def evaluate(dim: Dim, sizes: Mapping[str, int]) -> int:
    """The integer a dimension is when every named dim has the size given."""
    return dim.evaluate(sizes) if isinstance(dim, Sym) else dim


def exact_quotient(a: Dim, b: Dim) -> Dim | None:
    """`a / b` where that is an integer polynomial for every size of the named dims, else None.

    >>> exact_quotient(Sym.named("n") * 12, 12)
    Sym('n')
    """
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b and a % b == 0 else None
    divisor = _terms(b)
    if len(divisor) != 1:
        return 1 if a == b else None
    monomial, coefficient = divisor[0]
    quotient = []
    for m, c in _terms(a):
        powers: dict[Atom, int] = dict(m)
        for atom, power in monomial:
            powers[atom] = powers.get(atom, 0) - power
        ratio = Fraction(c, coefficient)
        if ratio.denominator != 1 or any(p < 0 for p in powers.values()):
            return None
        quotient.append((tuple(sorted(((x, p) for x, p in powers.items() if p), key=repr)), int(ratio)))
    return _from_terms(quotient)


def polynomial_quotient(a: Dim, b: Dim) -> Dim | None:
    """`a / b` as by `exact_quotient`, where the divisor may be a sum too: by long division.

    >>> past, new, heads = map(Sym.named, ("past", "new", "heads"))
    >>> polynomial_quotient(heads * past + heads * new, past + new)
    Sym('heads')
    """
    if not isinstance(b, Sym) or len(b.terms) == 1:
        return exact_quotient(a, b)
    atoms = sorted({atom for dim in (a, b) for monomial, _ in _terms(dim) for atom, _ in monomial}, key=repr)

    def leading(dim: Dim) -> Dim:
        return _from_terms([max(_terms(dim), key=lambda term: [dict(term[0]).get(atom, 0) for atom in atoms])])

    lead, found, left = leading(b), list[Dim](), a
    while left != 0:
        part = exact_quotient(leading(left), lead)
        if part is None or len(found) > _LONGEST_QUOTIENT:
            return None
        found.append(part)
        left = left - part * b
    return sum(found, start=0)


def linear_in(dim: Dim, name: str) -> tuple[int, Dim] | None:
    """The factor and the rest, free of a name, that make up a dim: dim = factor·name + rest; None where none do.

    >>> linear_in(2 * Sym.named("n") + 1, "n")
    (2, 1)
    """
    factor = next((c for monomial, c in _terms(dim) if monomial == ((name, 1),)), 0)
    rest = dim - factor * Sym.named(name)
    if not factor or (isinstance(rest, Sym) and name in rest.names()):
        return None
    return factor, rest


def floordiv(a: Dim, b: Dim) -> Dim:
    """`a // b`, exact where it divides evenly, else a symbol of its own."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    quotient = exact_quotient(a, b)
    return quotient if quotient is not None else Sym.function("floordiv", a, b)


def ceildiv(a: Dim, b: Dim) -> Dim:
    """`a / b` rounded up."""
    return -floordiv(-a, b)


def dim_max(a: Dim, b: Dim) -> Dim:
    """The larger of two dims; a symbol where the names decide."""
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    difference = a - b
    if isinstance(difference, int):
        return a if difference >= 0 else b
    return Sym.function("max", a, b)


def dim_min(a: Dim, b: Dim) -> Dim:
    """The smaller of two dims; a symbol where the names decide."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    difference = a - b
    if isinstance(difference, int):
        return a if difference <= 0 else b
    if _is_of("min", a, b):
        return a
    return b if _is_of("min", b, a) else Sym.function("min", a, b)


def _is_of(function: str, dim: Dim, argument: Dim) -> bool:
    """True where a dim is this function of the argument and something else."""
    if not isinstance(dim, Sym) or len(dim.terms) != 1:
        return False
    (monomial, coefficient), *_ = dim.terms
    if coefficient != 1 or len(monomial) != 1:
        return False
    atom, power = monomial[0]
    return power == 1 and not isinstance(atom, str) and atom[0] == function and argument in atom[1:]


def _is_capped(dim: Dim, whole: Dim) -> bool:
    """True for min(whole, c) with an integer c above 1."""
    if not _is_of("min", dim, whole) or not isinstance(dim, Sym):
        return False
    atom = dim.terms[0][0][0][0]
    return any(isinstance(part, int) and part > 1 for part in atom[1:])


def product(dims: Iterable[Dim]) -> Dim:
    """The product of dims; 1 for none."""
    total: Dim = 1
    for dim in dims:
        total = total * dim
    return total


def broadcast_dims(a: Dim, b: Dim) -> Dim | None:
    """The broadcast of two dims by NumPy's rule, or None where they conflict.

    A named dim against an integer above 1 gives the integer: the name must be 1 or that integer when the program runs.
    """
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    if isinstance(a, int) and isinstance(b, int):
        return None
    if isinstance(a, int):
        return a
    if isinstance(b, int):
        return b
    # min(n, c) meets n, c above 1: beyond c the two would differ and neither be 1, so where this is legal it is n.
    if _is_capped(a, b) or _is_of("broadcast", b, a):
        return b
    if _is_capped(b, a) or _is_of("broadcast", a, b):
        return a
    first, second = sorted((a, b), key=str)
    return Sym.function("broadcast", first, second)


def fresh_dims() -> Callable[[], Sym]:
    """A source of anonymous dims ``?0``, ``?1``, …, each equal to itself alone."""
    count = 0

    def fresh() -> Sym:
        nonlocal count
        count += 1
        return Sym.named(f"?{count - 1}")

    return fresh
