"""Sizes of named dims that meet constraints: an integer search over arrays of candidates, then Z3."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal, TypeAlias

import numpy as np

from eqsat.language.terms import Constraint, Dim, Sym
from eqsat.system.deadline import check, current

#: Sizes up to this one are tried, and as many about a size that is wished for.
LARGEST = 4096
#: How many of the candidates for a dim are looked at first; the rest only where none of these will do.
_FIRST = 256
#: The budget of a search: elements of arrays that a function of dims is evaluated on. Some second on one core.
BUDGET = 30_000_000
#: The budget of Z3, in units of its own that do not depend on the machine, and the most a dim may be there.
_RLIMIT, _MOST = 1_000_000, 1 << 24

#: Where the sizes of a name are looked for: nearest to a number, or from a number on upwards and then below it.
Order: TypeAlias = "tuple[Literal['near', 'from'], int]"


class Exhausted(Exception):  # noqa: N818  (nothing is wrong)
    """The budget was spent before an answer was known."""


@dataclass
class SizeSearch:
    """Assignments that meet constraints, the first names as near to what is wished for them as can be.

    `elements` leaves no tensor empty; `equal` lets no dim of 1 be repeated where it need not be 1.
    """

    constraints: Sequence[Constraint]
    elements: bool = True
    equal: bool = True
    budget: int = BUDGET
    _products: list[tuple[Mapping[str, int], int]] = field(default_factory=list, init=False)

    def first(self, orders: Mapping[str, Order]) -> dict[str, int] | None:
        """The first assignment in the order of preference, None where there is none; Exhausted where that is open."""
        sizes: dict[str, int] = {}
        self._products = [p for p in map(_product, self.constraints) if p is not None] if self.elements else []
        for group in _groups(list(orders), self.constraints):
            names = {n for n, _ in group}
            part = next(self._assignments(group, 0, orders, {}, names), None)
            if part is None:
                return None
            sizes |= part
        return sizes

    def _assignments(
        self,
        group: Sequence[tuple[str, Sequence[Constraint]]],
        depth: int,
        orders: Mapping[str, Order],
        sizes: dict[str, int],
        names: set[str],
    ) -> Iterator[dict[str, int]]:
        if depth == len(group):
            yield dict(sizes)
            return
        name, constraints = group[depth]
        for size in self._candidates(name, orders[name], constraints, sizes):
            yield from self._assignments(group, depth + 1, orders, sizes | {name: size}, names)

    def _candidates(
        self, name: str, order: Order, constraints: Sequence[Constraint], sizes: Mapping[str, int]
    ) -> Iterator[int]:
        """The sizes of a name that go with those of the names before it."""
        check(0)
        domain = self._factors(name, candidates(order), sizes)
        for part in (domain[:_FIRST], domain[_FIRST:]):
            for constraint in constraints:
                if not part.size:
                    break
                env: dict[str, Any] = {**sizes, name: part}
                met = constraint.met(
                    self._values(constraint.a, env),
                    self._values(constraint.b, env),
                    elements=self.elements,
                    equal=self.equal,
                )
                part = part[np.broadcast_to(met, part.shape)]
            yield from part.tolist()

    def _factors(self, name: str, domain: Any, sizes: Mapping[str, int]) -> Any:
        """The candidates for a name that divide the number it is a factor of, beside those of the names before it."""
        for powers, number in self._products:
            if name in powers:
                beside = prod(sizes[n] ** p for n, p in powers.items() if n in sizes)
                self._spend(domain)
                powered = np.maximum(domain, 1).astype(object) ** powers[name] if powers[name] > 1 else domain
                domain = domain[(domain > 0) & (number % np.maximum(beside * powered, 1) == 0)]
        return domain

    def _values(self, dim: Dim, env: Mapping[str, Any]) -> Any:
        if not isinstance(dim, Sym):
            return dim
        total: Any = 0
        for monomial, coefficient in dim.terms:
            product: Any = coefficient
            for atom, power in monomial:
                if isinstance(atom, str):
                    value = env[atom]
                else:
                    value = _FUNCTIONS[atom[0]](self._values(atom[1], env), self._values(atom[2], env))
                self._spend(value)
                product = product * value**power
            total = total + product
        return total

    def _spend(self, value: Any) -> None:
        self.budget -= 64 + np.size(value)
        if self.budget < 0:
            raise Exhausted


def candidates(order: Order) -> Any:
    """The sizes that are tried for a dim, in order, as an array."""
    kind, goal = order
    if kind == "near":
        near = np.arange(max(goal - LARGEST // 2, 0), goal + LARGEST // 2)
        sizes = np.union1d(np.arange(LARGEST + 1), near)
        # The larger one of two that are as near.
        return sizes[np.lexsort((-sizes, np.abs(sizes - goal)))]
    return np.concatenate([np.arange(goal, max(LARGEST, goal) + 1), np.arange(goal)[::-1]])


def _quotient(a: Any, b: Any) -> Any:
    with np.errstate(divide="ignore"):
        return np.floor_divide(a, b)


def _remainder(a: Any, b: Any) -> Any:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.mod(a, b)


_FUNCTIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "floordiv": _quotient,
    "mod": _remainder,
    "max": np.maximum,
    "min": np.minimum,
    "broadcast": lambda a, b: np.where(np.equal(b, 1), a, b),
}


def _product(constraint: Constraint) -> tuple[Mapping[str, int], int] | None:
    """Names with their powers and the number that is their product, where no dim is 0; None for other constraints.

    >>> a, b, c = map(Sym.named, "abc")
    >>> _product(Constraint("equal", a * b * c, 20 * a))
    ({'b': 1, 'c': 1}, 20)
    """
    if constraint.kind != "equal":
        return None
    powers: dict[str, int] = {}
    numbers = []
    for dim, sign in ((constraint.a, 1), (constraint.b, -1)):
        terms = dim.terms if isinstance(dim, Sym) else (((), dim),)
        if len(terms) != 1:
            return None
        ((monomial, coefficient),) = terms
        numbers.append(coefficient)
        for atom, power in monomial:
            if not isinstance(atom, str):
                return None
            powers[atom] = powers.get(atom, 0) + sign * power
    powers = {name: power for name, power in powers.items() if power}
    if powers and max(powers.values()) < 0:
        powers, numbers = {n: -p for n, p in powers.items()}, numbers[::-1]
    if not powers or min(powers.values()) < 0 or min(numbers) <= 0 or numbers[1] % numbers[0]:
        return None
    return powers, numbers[1] // numbers[0]


def _groups(names: Sequence[str], constraints: Sequence[Constraint]) -> Iterator[list[tuple[str, list[Constraint]]]]:
    """Names that constraints tie together, in their order; each with the constraints that are decided once it is."""
    rank = {name: i for i, name in enumerate(names)}
    leader = {name: name for name in names}

    def root(name: str) -> str:
        while leader[name] != name:
            name = leader[name]
        return name

    decided: dict[str, list[Constraint]] = {name: [] for name in names}
    for constraint in constraints:
        involved = sorted(constraint.names, key=rank.__getitem__)
        decided[involved[-1]].append(constraint)
        for name in involved[1:]:
            one, two = sorted((root(involved[0]), root(name)), key=rank.__getitem__)
            leader[two] = one
    for name in names:
        if root(name) == name:
            yield [(n, decided[n]) for n in names if root(n) == name]


def proved(
    constraints: Sequence[Constraint], orders: Mapping[str, Order], *, elements: bool, equal: bool
) -> dict[str, int] | None:
    """An assignment that Z3 finds, drawn towards what is wished for while its budget lasts; None for none."""
    import z3

    context = z3.Context()
    names = {name: z3.Int(f"d{i}", context) for i, name in enumerate(orders)}
    solver = z3.Solver(ctx=context)
    solver.set("rlimit", _RLIMIT)
    solver.set("random_seed", 0)
    if math.isfinite(current().seconds):
        solver.set("timeout", max(int(1000 * current().seconds), 1))
    for term in names.values():
        solver.add(term >= 0, term <= _MOST)
    for constraint in constraints:
        solver.add(_formula(constraint, _Terms(names, z3), elements, equal))
    gaps = [z3.Abs(names[name] - goal) for name, (_, goal) in orders.items()]
    gap = z3.Sum([z3.IntVal(0, context), *gaps])
    best: dict[str, int] | None = None
    while solver.check() == z3.sat:
        check(0)
        model = solver.model()
        best = {name: model.eval(term, model_completion=True).as_long() for name, term in names.items()}
        distance = model.eval(gap, model_completion=True).as_long()
        if not distance:
            break
        solver.add(gap <= distance // 2)
    return best


@dataclass
class _Terms:
    names: Mapping[str, Any]
    z3: Any

    def term(self, dim: Dim) -> Any:
        if not isinstance(dim, Sym):
            return dim
        total: Any = 0
        for monomial, coefficient in dim.terms:
            product: Any = coefficient
            for atom, power in monomial:
                factor = self.names[atom] if isinstance(atom, str) else self._function(*atom)
                for _ in range(power):
                    product = product * factor
            total = total + product
        return total

    def _function(self, name: str, a: Dim, b: Dim) -> Any:
        one, two = self.term(a), self.term(b)
        match name:
            # Z3 rounds down for divisors above 0, and constraints keep divisors there.
            case "floordiv":
                return one / two
            case "mod":
                return one % two
            case "max":
                return self.z3.If(one >= two, one, two)
            case "min":
                return self.z3.If(one <= two, one, two)
        return self.z3.If(two == 1, one, two)


def _formula(constraint: Constraint, terms: _Terms, elements: bool, equal: bool) -> Any:
    a, b = terms.term(constraint.a), terms.term(constraint.b)
    match constraint.kind:
        case "equal":
            return a == b
        case "at_least":
            return a >= b
        case "present":
            return a >= int(elements)
        case "grows":
            return terms.z3.Or(a == b, a <= 0)
    if equal:
        return a == b
    alternatives = [a == b, a == 1] if constraint.kind == "extends" else [a == b, a == 1, b == 1]
    return terms.z3.Or([c for c in alternatives if not isinstance(c, bool)])
