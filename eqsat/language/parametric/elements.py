"""Elements of arrays of unknown sizes: real terms over what operands hold at formulas, and sums and extremes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from typing import Any

from eqsat.language.arithmetic.algebra import rational
from eqsat.language.parametric.atoms import Fold, Read, Seen, SizeAtom
from eqsat.language.parametric.facts import Fact, substituted
from eqsat.language.parametric.integers import NotParametric, formula_of, integer
from eqsat.language.parametric.numbers import FiniteAlgebra, size_name, size_term
from eqsat.language.parametric.paths import Path, Restart, TooManyQuestions, current, explored
from eqsat.language.parametric.sums.counts import without_counts
from eqsat.language.parametric.sums.digits import positive_digits
from eqsat.language.parametric.sums.domains import asked, innermost, joined, limits, pinned, solution
from eqsat.language.parametric.sums.extremes import extreme
from eqsat.language.parametric.sums.pieces import Piece, with_shared_terms
from eqsat.language.parametric.sums.ranges import WholeRanges
from eqsat.language.terms.dims import Dim, Sym

#: The most pieces that the elements of one sum are told apart in.
PIECES = 24
#: Sums over so many indices are written out.
FEW = 4


class Elements:
    """Terms of Z3 over atoms, each of which has one name: reads, sizes and folds."""

    def __init__(self) -> None:
        self.algebra = FiniteAlgebra()
        self.z3 = self.algebra.z3
        #: What atoms are, by their names.
        self.atoms: dict[str, Read | SizeAtom | Fold] = {}
        #: What conditions say of all elements of operands: functions from an element to a statement.
        self.said: dict[str, list[Callable[[Any], Any]]] = {}
        #: Between which formula and its negative all elements of operands of indices are.
        self.index_bounds: dict[str, list[Dim]] = {}
        self.ranges = WholeRanges(self)
        self._folds: dict[Any, Any] = {}
        #: How many folds there are inside each other, by the names of their atoms.
        self._depths: dict[str, int] = {}
        self._names: dict[int, tuple[Any, frozenset[str]]] = {}
        self._fresh = itertools.count()

    def read(self, operand: str, indices: Sequence[Dim], boolean: bool = False) -> Any:
        """The element of an operand at indices."""
        name = f"{operand}[{', '.join(map(str, indices))}]"
        self.atoms[name] = Read(operand, tuple(indices), boolean)
        return (self.z3.Bool if boolean else self.z3.Real)(name)

    def integer(self, operand: str, indices: Sequence[Dim]) -> Any:
        """The integer that an operand holds at indices: an unknown; NotParametric where a fold binds the indices."""
        index = integer_read(operand, indices)
        for bound in self.index_bounds.get(operand, ()):
            current().assume(Fact.positive(bound - index))
            current().assume(Fact.positive(index + bound + 1))
        return integer(index)

    def number(self, formula: Dim) -> Any:
        """An integer as a real number."""
        formula = current().reduced(formula)
        for monomial, _ in formula.terms if isinstance(formula, Sym) else ():
            for atom, _power in monomial:
                one = Sym([(((atom, 1),), 1)])
                self.atoms[size_name(one)] = SizeAtom(one)
        return size_term(formula)

    def consts(self, term: Any) -> dict[str, Any]:
        """The atoms of a term by their names."""
        found: dict[str, Any] = {}
        pending, seen = [term], set[int]()
        while pending:
            one = pending.pop()
            if not isinstance(one, self.z3.ExprRef) or one.get_id() in seen:
                continue
            seen.add(one.get_id())
            if self.z3.is_const(one) and one.decl().name() in self.atoms:
                found[one.decl().name()] = one
            pending += one.children()
        return found

    def said_of(self, *terms: Any) -> list[Any]:
        """The statements that conditions make of the elements that terms read."""
        found = []
        for name, const in {name: c for one in terms for name, c in self.consts(one).items()}.items():
            atom = self.atoms[name]
            if isinstance(atom, Read):
                found += [say(const) for say in self.said.get(atom.operand, ())]
        return found

    def positive_sizes(self, *terms: Any) -> list[Any]:
        """The statements that sizes in terms are above 0."""
        path = current()
        return [
            const > 0
            for one in terms
            for name, const in self.consts(one).items()
            if isinstance(atom := self.atoms[name], SizeAtom)
            and path.known_answer(Fact.positive(path.reduced(atom.atom)))
        ]

    def names(self, term: Any) -> frozenset[str]:
        """The unknowns that a term depends on."""
        if not isinstance(term, self.z3.ExprRef):
            return frozenset()
        key = term.get_id()
        if key not in self._names:
            names = frozenset[str]().union(*(self.atoms[name].names() for name in self.consts(term)))
            self._names[key] = (term, names)
        return self._names[key][1]

    def replaced(self, term: Any, values: Mapping[str, Dim]) -> Any:
        """A term with unknowns replaced by formulas."""
        if not isinstance(term, self.z3.ExprRef):
            return term
        pairs = []
        for name, const in self.consts(term).items():
            atom = self.atoms[name]
            if atom.names().isdisjoint(values):
                continue
            if isinstance(atom, Read):
                new = self.read(atom.operand, [substituted(i, values) for i in atom.indices], atom.boolean)
            elif isinstance(atom, SizeAtom):
                new = self.number(substituted(atom.atom, values))
            else:
                taken = {*values}.union(*(v.names() for v in values.values() if isinstance(v, Sym)))
                fold = atom if taken.isdisjoint(atom.bound) else self.renamed(atom)
                domain = tuple(asked(q, values) for q in fold.domain)
                new = self.fold(fold.kind, fold.bound, domain, self.replaced(fold.term, values))
            pairs.append((const, new))
        return self.z3.substitute(term, *pairs) if pairs else term

    def renamed(self, fold: Fold) -> Fold:
        """The same fold with bound unknowns that nothing else has the names of."""
        fresh = {name: Sym.named(f"k{next(self._fresh)}'") for name in fold.bound}
        domain = tuple(asked(q, fresh) for q in fold.domain)
        return Fold(fold.kind, tuple(map(str, fresh.values())), domain, self.replaced(fold.term, fresh), fold.free)

    def fold(self, kind: str, bound: tuple[str, ...], domain: tuple[Fact, ...], term: Any) -> Any:
        """The atom of a fold, one for all that differ in the names of bound unknowns alone."""
        inner = [self._depths.get(name, 0) for name in self.consts(term)]
        depth = max(inner, default=0) + 1
        plain = {name: Sym.named(f"k'{depth}.{place}") for place, name in enumerate(bound)}
        if bound != tuple(map(str, plain.values())):
            domain = tuple(asked(question, plain) for question in domain)
            bound, term = tuple(map(str, plain.values())), self.replaced(term, plain)
        key = (kind, bound, domain, term.get_id())
        if key not in self._folds:
            free = (self.names(term) | frozenset[str]().union(*(q.names() for q in domain))) - {*bound}
            const = self.z3.Real(f"{kind}#{len(self._folds)}")
            self.atoms[const.decl().name()] = Fold(kind, bound, domain, term, free)
            self._folds[key] = const
            self._depths[const.decl().name()] = depth
        return self._folds[key]

    # --- folds over axes -------------------------------------------------------------------------------------------

    def folded(self, kind: str, sizes: Sequence[Any], body: Callable[[tuple[Any, ...]], Any]) -> Any:
        """The sum or the largest of a body over all indices below some sizes."""
        path = current()
        level = path.level
        formulas = [path.reduced(formula_of(size)) for size in sizes]
        if not all(path.decide(Fact.positive(formula)) for formula in formulas):
            return self.z3.RealVal(0) if kind == "sum" else self.z3.Real(f"{kind} of nothing")
        for written in itertools.islice(itertools.product(*map(positive_digits, formulas)), 6):
            found = self.pieces(written, level, body, few=True, shared=kind == "sum")
            if not self._is_split(found):
                break
        whole = [(formula,) for formula in formulas]
        if len(found) > 1 and list(written) != whole:
            # What is joined along an axis is cut where no digit begins: its pieces are ranges of one unknown.
            with suppress(NotParametric, TooManyQuestions):
                undivided = self.pieces(whole, level, body, shared=kind == "sum")
                found = undivided if len(undivided) <= len(found) and not self._is_split(undivided) else found
        self.need_everywhere(found)
        if kind == "sum":
            total = self._sum(found)
            self.ranges.note_sum(total, [term for _, _, term, _ in found], formulas)
            return total
        return extreme(self, kind, found)

    def _is_split(self, pieces: Sequence[Piece]) -> bool:
        """True if something is read at quotients of what is bound."""
        return any("floordiv" in str(self.consts(term)) for _, _, term, _ in pieces)

    def whole(self, sizes: Sequence[Any], body: Callable[[tuple[Any, ...]], Any]) -> Any:
        """All that a body is at indices below some sizes, as one term: it is equal to another where all of that is."""
        path = current()
        formulas = [path.reduced(formula_of(size)) for size in sizes]
        if not all(path.decide(Fact.positive(formula)) for formula in formulas):
            raise NotParametric("all elements of nothing")
        found = self.pieces([positive_digits(formula)[0] for formula in formulas], path.level, body)
        if len(found) != 1:
            raise NotParametric("all elements of what has several parts")
        self.need_everywhere(found)
        ((bound, domain, term, _),) = found
        return self.fold("all", bound, domain, self.algebra.normal(term))

    def need_everywhere(self, pieces: Sequence[Piece]) -> None:
        """Note that the bodies of pieces are defined; of one piece, which is not empty, what is everywhere the same."""
        path = current()
        for bound, domain, _, needed in pieces:
            for one in needed:
                statement = one.statement if isinstance(one, Seen) else one
                names = self.names(statement) | (one.names if isinstance(one, Seen) else frozenset())
                is_same = len(pieces) == 1 and names.isdisjoint(bound)
                noted = one if is_same else self.fold("every", bound, domain, statement)
                if isinstance(one, Seen) and not is_same:
                    noted = Seen((*one.tag, bound, domain), noted, one.names - {*bound})
                path.needed[noted.get_id()] = noted

    def pieces(
        self,
        written: Sequence[Sequence[Dim]],
        level: int,
        body: Callable[[tuple[Any, ...]], Any],
        *,
        few: bool = False,
        shared: bool = False,
    ) -> list[Piece]:
        """The terms that a body has, each with the bound unknowns, and the domain in which it has that term.

        Of `few` indices that a number is above there are as many terms, and no bound unknown. What all pieces of a sum
        add is `shared`: a piece of its own.
        """
        numbers = [size for parts in written for size in parts if few and isinstance(size, int) and 1 < size <= FEW]
        found: list[Piece] = []
        for values in itertools.product(*map(range, numbers)):
            apart = self._pieces_at(written, level, body, list(values))
            found += with_shared_terms(self, apart) if shared else apart
        return found

    def _pieces_at(
        self, written: Sequence[Sequence[Dim]], level: int, body: Callable[[tuple[Any, ...]], Any], values: list[int]
    ) -> list[Piece]:
        outer = current()
        bound: list[str] = []
        ranges: list[Fact] = []
        indices: list[Any] = []
        is_few = bool(values)
        for axis, parts in enumerate(written):
            index: Dim = 0
            for place, size in enumerate(parts):
                if size == 1:
                    continue
                if is_few and isinstance(size, int) and size <= FEW:
                    index = index * size + values.pop(0)
                    continue
                name = f"k{level}.{axis}.{place}"
                bound.append(name)
                ranges += [Fact.positive(Sym.named(name) + 1), Fact.positive(size - Sym.named(name))]
                index = index * size + Sym.named(name)
            indices.append(integer(index))
        if not bound:
            return [((), (), body(tuple(indices)), [])]
        own = frozenset(bound)

        def run() -> Any:
            inner = current()
            inner.level, inner.statements = level + 1, outer.statements
            return body(tuple(indices))

        while True:
            given = [*outer.given, *outer.facts, *ranges]
            witness = {**outer.witness, **dict.fromkeys(bound, 0)}
            least = {**outer.least, **dict.fromkeys(bound, 0)}
            known = len(outer.facts)
            found = []
            try:
                for path, term in explored(run, witness, given, least, PIECES, outer, own):
                    found.append((tuple(bound), (*ranges, *path.facts), term, list(path.needed.values())))
            except Restart:
                continue
            if len(outer.facts) == known:
                return found

    def _sum(self, pieces: Sequence[Piece]) -> Any:
        total = self.z3.RealVal(0)
        #: The domains of each product, by its coefficient too.
        domains: dict[Any, tuple[Any, Any, list[tuple[Fact, ...]]]] = {}
        for bound, domain, term, _ in pieces:
            for key, (coefficient, factor) in self.algebra.monomials(self.algebra.real(term)).items():
                if coefficient:
                    domains.setdefault((key, coefficient, bound), (bound, factor, []))[2].append(domain)
        for (_, coefficient, _), (bound, factor, found) in domains.items():
            for domain in joined(found):
                total = total + rational(self.z3, coefficient) * self._sum_of_product(bound, domain, factor)
        return self.algebra.normal(total)

    def _sum_of_product(self, bound: tuple[str, ...], domain: tuple[Fact, ...], term: Any) -> Any:
        """The sum of a product: what does not depend on bound unknowns comes out, and sums inside join it."""
        factors = self.algebra.factors(term)
        outside = [f for f in factors if self.names(f).isdisjoint(bound)]
        inside = [f for f in factors if not self.names(f).isdisjoint(bound)]
        inner: list[Any] = []
        for factor in inside:
            atom = self.atoms.get(factor.decl().name()) if self.z3.is_const(factor) else None
            if isinstance(atom, Fold) and atom.kind == "sum":
                joined = self.renamed(atom)
                bound, domain = (*bound, *joined.bound), (*domain, *joined.domain)
                inner += self.algebra.factors(self.algebra.normal(joined.term))
            else:
                inner.append(factor)
        bound, domain, inner = self._without_solved(bound, domain, inner)
        result = reduce(lambda a, b: a * b, outside, self.z3.RealVal(1))
        term = self.algebra.normal(reduce(lambda a, b: a * b, inner, self.z3.RealVal(1)))
        apart = next((q for q in domain if _is_one_place(q, bound)), None)
        if apart is not None:  # the sum of all, without that of the one place that is left out
            rest = tuple(q for q in domain if q is not apart)
            whole = self._sum_of_product(bound, rest, term)
            return self.algebra.normal(result * (whole - self._sum_of_product(bound, (*rest, apart.turned), term)))
        if not bound:
            path = current()
            return result * term if all(path.decide(question) for question in domain) else self.z3.RealVal(0)
        count = self.count(bound, domain) if self.z3.is_rational_value(term) else None
        if count is not None:
            return without_counts(self, result * term * self.number(count))
        return result * self.fold("sum", bound, domain, term)

    def count(self, bound: tuple[str, ...], domain: tuple[Fact, ...]) -> Dim | None:
        """The number of values of bound unknowns, where each has a range of its own."""
        total: Dim = 1
        left = set(domain)
        for name in bound:
            said = [q for q in domain if name in q.names()]
            lows, highs = limits(name, said)
            if len(lows) + len(highs) < len(said):
                return None
            least, most = innermost(lows), innermost([-one for one in highs])
            if least is None or most is None:
                return None
            size = -most - least + 1
            if isinstance(size, Sym) and not size.names().isdisjoint(bound):
                return None
            if not current().holds(Fact.positive(size + 1)):
                return None
            left -= set(said)
            total = total * size
        return None if left else total

    def is_somewhere(self, bound: tuple[str, ...], domain: tuple[Fact, ...]) -> bool:
        """True if equations say what all bound unknowns are at a place of a domain."""
        return self._without_solved(bound, domain, [])[:2] == ((), ())

    def _without_solved(
        self, bound: tuple[str, ...], domain: tuple[Fact, ...], factors: list[Any]
    ) -> tuple[tuple[str, ...], tuple[Fact, ...], list[Any]]:
        """The same sum without the unknowns that an equation of the domain says what they are."""
        for question in (*domain, *pinned(bound, domain)):
            if not (question.is_zero and question.held):
                continue
            for name in bound:
                solved = solution(question.formula, name)
                if solved is None:
                    continue
                values = {name: solved}
                rest = [asked(q, values) for q in domain if q is not question]
                path = current()
                left = tuple(q for q in rest if not path.holds(q))
                replaced = [self.replaced(f, values) for f in factors]
                return self._without_solved(tuple(n for n in bound if n != name), left, replaced)
        return bound, domain, factors


def _is_one_place(question: Fact, bound: Sequence[str]) -> bool:
    """True if a fact leaves out one value of a bound unknown."""
    is_apart = question.is_zero and not question.held
    return is_apart and any(solution(question.formula, name) is not None for name in bound)


def integer_read(operand: str, indices: Sequence[Dim]) -> Sym:
    """The unknown that stands for an integer of an operand; NotParametric where a fold binds the indices."""
    path: Path | None = current()
    names = frozenset[str]().union(*(i.names() for i in indices if isinstance(i, Sym)))
    while path is not None:
        if not names.isdisjoint(path.own):
            raise NotParametric("integers that are read at bound indices")
        path = path.outer
    name = f"{operand}[{', '.join(map(str, indices))}]"
    current().anywhere(name)
    return Sym.named(name)
