"""Equality of elements on a path: of their terms, of what they read, and of sums by a map between their domains."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from eqsat.language.parametric.atoms import Fold, Read, Seen, SizeAtom
from eqsat.language.parametric.definedness import is_positive
from eqsat.language.parametric.elements import Elements
from eqsat.language.parametric.facts import Fact, number, substituted, term
from eqsat.language.parametric.integers import formula_of
from eqsat.language.parametric.paths import Path, current
from eqsat.language.parametric.sums.domains import asked, solution
from eqsat.language.terms.dims import Dim, Sym

#: Steps of the solver for one equality of terms, and ways to pair the factors of two sums.
STEPS, PAIRINGS = 200_000, 40
#: The most atoms of terms for which it is of use that some are positive.
_FEW = 4
#: How deep sums in sums are compared.
_DEEPEST = 4


class Equality:
    """Comparisons of terms on the path that is followed."""

    def __init__(self, elements: Elements) -> None:
        self.elements, self.z3 = elements, elements.z3

    def proved(self, left: Any, right: Any, depth: int = 0) -> bool:
        """True if two terms are equal for all that their atoms may be, on all sizes of this path."""
        if isinstance(left, int) and isinstance(right, int):
            return current().holds(Fact.equal(formula_of(left), formula_of(right)))
        if self._settled(left, right):
            return True
        if depth > _DEEPEST:
            return False
        if len(self.elements.consts(left)) > len(self.elements.consts(right)):
            left, right = right, left  # several of one side's atoms may be one of the other's
        merged = self._merged(left, right, depth)
        return merged is not None and self._settled(left, merged)

    def is_defined(self, asked: Sequence[Any], given: Sequence[Any]) -> bool:
        """True if the statements by which one element is defined follow from those by which another is."""
        seen = {one.get_id() for one in given if isinstance(one, Seen)}
        known = [one for one in given if not isinstance(one, Seen)]
        plain = [one for one in known if self.z3.is_bool(one)]
        return all(
            one.get_id() in seen or self._follows(one.statement, known, plain)
            if isinstance(one, Seen)
            else self._follows(one, known, plain)
            for one in asked
        )

    def _follows(self, asked: Any, given: Sequence[Any], plain: Sequence[Any]) -> bool:
        """True if a statement follows from others, those of no bound unknowns together, each of the rest by itself."""
        elements = self.elements
        if any(asked.eq(one) for one in given):
            return True
        if self.z3.is_bool(asked):
            sizes = elements.positive_sizes(asked, *plain)
            facts = [*current().statements, *elements.said_of(asked, *plain), *sizes, *plain]
            if elements.algebra.settle(asked, self.z3.BoolVal(True), STEPS, facts) == "proved":
                return True
            return any(self.proved(one, asked) for one in plain)
        atom = elements.atoms[asked.decl().name()]
        assert isinstance(atom, Fold)
        folds = [elements.atoms[one.decl().name()] for one in given if not self.z3.is_bool(one)]
        if any(self._same(one, atom, 0) for one in folds):
            return True
        if atom.kind != "every":
            return False
        atom = elements.renamed(atom)
        inner = self._within(atom)
        if inner is None:
            return True
        with inner:
            return self._follows(atom.term, plain, plain)

    def _settled(self, left: Any, right: Any) -> bool:
        """True if two terms are equal whatever their atoms are, of which the facts of this path hold."""
        elements = self.elements
        facts = [*current().statements, *elements.said_of(left, right)]
        if elements.algebra.settle(left, right, STEPS, facts) == "proved":
            return True
        atoms = elements.consts(left) | elements.consts(right)
        if len(atoms) > _FEW:  # of more, Z3 may be lost in products of inverses, whatever steps it has
            return False
        positive = [const > 0 for const in atoms.values() if is_positive(elements, const)]
        return bool(positive) and elements.algebra.settle(left, right, STEPS, [*facts, *positive]) == "proved"

    def _merged(self, left: Any, right: Any, depth: int) -> Any | None:
        """The right term with atoms that are equal to some of the left one's replaced by these; None without any."""
        ours = self.elements.consts(left)
        pairs = []
        taken: set[str] = set()
        for name, const in self.elements.consts(right).items():
            if name in ours:
                continue
            # Of several that are equal on the left each has one of the right, before one has several.
            for other, mine in sorted(ours.items(), key=lambda one: one[0] in taken):
                if self._same(self.elements.atoms[other], self.elements.atoms[name], depth):
                    pairs.append((const, mine))
                    if isinstance(self.elements.atoms[name], Fold):
                        taken.add(other)
                    break
        if not pairs:
            return None
        replaced = self.z3.substitute(right, *pairs)
        return self.elements.algebra.normal(replaced) if not self.z3.is_bool(replaced) else replaced

    def _same(self, a: Any, b: Any, depth: int) -> bool:
        """True if two atoms are equal on this path."""
        path = current()
        if isinstance(a, Read) and isinstance(b, Read):
            return a.operand == b.operand and all(
                x == y or path.holds(Fact.equal(x, y)) for x, y in zip(a.indices, b.indices, strict=True)
            )
        if isinstance(a, SizeAtom) and isinstance(b, SizeAtom):
            return path.holds(Fact.equal(a.atom, b.atom))
        if isinstance(a, Fold) and isinstance(b, Fold) and a.kind == b.kind:
            return len(a.bound) == len(b.bound) and self._corresponds(a, b, depth)
        return False

    def _corresponds(self, a: Fold, b: Fold, depth: int) -> bool:
        """True if a map takes the domain of one fold to that of the other, one to one, and its term to the other's."""
        a, b = self.elements.renamed(a), self.elements.renamed(b)
        for there in itertools.islice(self._maps(a, b), PAIRINGS):
            back = self._inverse(a, b, there)
            if back is None or not self._is_bijection(a, b, there, back):
                continue
            if self._equal_within(a, self.elements.replaced(b.term, there), depth):
                return True
        return False

    def _maps(self, a: Fold, b: Fold) -> Iterator[Mapping[str, Dim]]:
        """Formulas for the bound unknowns of one fold in those of another, by pairing what the two read."""
        reads = [self._reads(fold) for fold in (a, b)]
        groups: dict[str, tuple[list[Read], list[Read]]] = {}
        for side, found in enumerate(reads):
            for one in found:
                groups.setdefault(one.operand, ([], []))[side].append(one)
        choices = []
        for mine, theirs in groups.values():
            if len(mine) != len(theirs) or len(mine) > 3:
                return
            choices.append([list(zip(mine, order, strict=True)) for order in itertools.permutations(theirs)])
        seen: set[tuple[Any, ...]] = set()
        for chosen in itertools.product(*choices):
            equations = [
                (x, y)
                for pairs in chosen
                for one, other in pairs
                for x, y in zip(one.indices, other.indices, strict=True)
            ]
            found_map = _solved(b.bound, [(y, x) for x, y in equations])
            if found_map is None and len(a.bound) == len(b.bound):
                found_map = dict(zip(b.bound, map(Sym.named, a.bound), strict=True))
            if found_map is not None and tuple(found_map.items()) not in seen:
                seen.add(tuple(found_map.items()))
                yield found_map

    def _reads(self, fold: Fold) -> list[Read]:
        """The reads of a fold at its bound unknowns, without those of sums inside it."""
        atoms = [self.elements.atoms[name] for name in self.elements.consts(fold.term)]
        return [one for one in atoms if isinstance(one, Read) and not one.names().isdisjoint(fold.bound)]

    def _inverse(self, a: Fold, b: Fold, there: Mapping[str, Dim]) -> Mapping[str, Dim] | None:
        return _solved(a.bound, [(there[name], Sym.named(name)) for name in b.bound])

    def _is_bijection(self, a: Fold, b: Fold, there: Mapping[str, Dim], back: Mapping[str, Dim]) -> bool:
        z3, path = self.z3, current()
        for fold, other, way, other_way in ((a, b, there, back), (b, a, back, there)):
            inside = z3.And(*map(term, fold.domain))
            lands = [term(asked(question, way)) for question in other.domain]
            returns = [number(substituted(other_way[name], way)) == number(Sym.named(name)) for name in fold.bound]
            statement = z3.Implies(inside, z3.And(*lands, *returns))
            if not path.follows(statement):
                path.missed.append(statement)
                return False
        return True

    def _equal_within(self, fold: Fold, other: Any, depth: int) -> bool:
        """True if a fold's term equals another in the whole domain."""
        if self._settled(fold.term, other):
            return True
        inner = self._within(fold)
        if inner is None:
            return True
        with inner:
            return self.proved(fold.term, other, depth + 1)

    def _within(self, fold: Fold) -> Path | None:
        """A path in the domain of a fold; None where that is empty."""
        path = current()
        given = [*path.given, *path.facts, *fold.domain]
        inner = Path({**path.witness, **dict.fromkeys(fold.bound, 0)}, given, path.least, path, frozenset(fold.bound))
        inner.level, inner.statements = path.level + 1, path.statements
        if not all(question.at(inner.witness) for question in fold.domain):
            model = _witness(inner)
            if model is None:
                return None
            inner.witness |= model
        return inner


def _witness(path: Any) -> dict[str, int] | None:
    """Numbers for which all that is given holds; None where there are none."""
    import z3

    solver = z3.Solver()
    solver.set("rlimit", STEPS)
    solver.add(*map(term, path.given))
    if solver.check() != z3.sat:
        return None if solver.check() == z3.unsat else {}
    model = solver.model()
    return {one.name(): model[one].as_long() for one in model.decls() if one.arity() == 0}


def _solved(names: Sequence[str], equations: Sequence[tuple[Dim, Dim]]) -> dict[str, Dim] | None:
    """Formulas for unknowns by equations whose left sides they are in, None where these leave one open."""
    values: dict[str, Dim] = {}
    pending = list(equations)
    for _ in range(len(names) + 1):
        for left, right in pending:
            left = substituted(left, values)
            open_names = [n for n in names if n not in values and isinstance(left, Sym) and n in left.names()]
            if len(open_names) != 1:
                continue
            found = solution(left - right, open_names[0])
            if found is not None and not (isinstance(found, Sym) and open_names[0] in found.names()):
                values[open_names[0]] = found
    return values if all(name in values for name in names) else None
