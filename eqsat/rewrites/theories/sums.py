"""Sums and products of tensors, read from an e-graph as polynomials and brought back in forms with less work.

Rules that let sums and products associate, commute and distribute have as many results as there are orders, thousands
for eight terms. Here a choice of e-nodes is read instead: each region of it that adds and multiplies is one polynomial
over what it reads, of which a few good forms are made. Every form is an equation with a proof of its own: both sides
are expanded to polynomials, which must be the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod

from eqsat.egraph.egraph import EGraph
from eqsat.egraph.matching.match import Match
from eqsat.language.terms.types import TensorType
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.theories.chosen import ChosenNodes
from eqsat.rewrites.theories.forms import Leaf, PolynomialForms, Written
from eqsat.rewrites.theories.identities import IDENTITY, states_identity
from eqsat.rewrites.theories.polynomials import Polynomial, added, inverse, multiplied, number, power, variable
from eqsat.rewrites.theories.stating import stated
from eqsat.system.deadline import check

#: The operators that add and multiply element by element.
_RING = frozenset({"add", "sub", "mul", "neg", "div", "pow"})
#: The most terms and factors of a polynomial that is read; what has more is taken apart.
_MOST_TERMS, _MOST_DEGREE = 40, 24
#: The largest power that is read as a product.
_MOST_EXPONENT = 16
#: The largest whole number, and number of halvings, of a constant that is read as a number.
_WHOLE, _HALVINGS = 1024, 10
#: The forms of a region that are brought in, and the share of its work that they have to be below.
_FORMS, _LESS = 2, 0.999


@dataclass(frozen=True)
class _ReadClass:
    """A class as it was read: the term, its polynomial, and the form that it has now."""

    text: str
    polynomial: Polynomial
    form: Written
    uses: tuple[int, ...] = ()


@dataclass
class _SumRegion:
    """The names of the classes that a region reads, those of constants that are numbers, and what is asked of them."""

    leaves: dict[int, Leaf] = field(default_factory=dict)
    numbers: dict[int, tuple[str, Fraction]] = field(default_factory=dict)
    inverted: set[str] = field(default_factory=set)

    def classes(self) -> dict[str, int]:
        """The class of each name."""
        named = {leaf.name: leader for leader, leaf in self.leaves.items()}
        return named | {name: leader for leader, (name, _) in self.numbers.items()}


class _TooLargeError(Exception):
    """Leaves the reading of a region that has too many terms."""


def sum_matches(egraph: EGraph, chosen: Collection[int]) -> Iterator[Match]:
    """Matches of equations between regions of chosen e-nodes and forms of them with less work."""
    reader = _SumReader(ChosenNodes(egraph, chosen))
    for root in reader.roots():
        check()
        yield from reader.matches(root)


class _SumReader:
    def __init__(self, nodes: ChosenNodes) -> None:
        self.nodes, self.egraph = nodes, nodes.egraph

    def roots(self) -> list[int]:
        """The classes at which regions end, in the order they were made."""
        return [leader for leader in self.nodes.made if self._adds(leader) and not self._is_inner(leader)]

    def matches(self, root: int) -> Iterator[Match]:
        """The equations of the region that ends at a class."""
        region = _SumRegion()
        try:
            whole = self._read(root, region, top=True)
        except _TooLargeError:
            return
        known = [leaf for leaf in region.leaves.values() if not leaf.constant]
        if not known or len(whole.form.steps) < 2:
            return
        forms = PolynomialForms({leaf.name: leaf for leaf in region.leaves.values()}, known[0].name)
        found = {form.text: form for form in forms.of(whole.polynomial) if _is_less(form, whole.form)}
        for form in sorted(found.values(), key=lambda form: (form.work, len(form.text)))[:_FORMS]:
            rule = _rule(region, whole, form)
            if rule is not None:
                yield self.nodes.match(rule, root, region.classes(), whole.uses)

    def _adds(self, leader: int) -> bool:
        """True if what was chosen for a class adds or multiplies floats that are wide enough to be regrouped."""
        return self.nodes.op(leader) in _RING and self.nodes.is_wide(leader)

    def _is_inner(self, leader: int) -> bool:
        """True if a class is read by sums and products alone, and by one of them, or is itself but a product."""
        readers = self.nodes.readers.get(leader, set())
        if not readers or any(not self._adds(self.egraph.find(n)) for n in readers):
            return False
        if any(self._divides(n, leader) for n in readers):
            return False
        return len(readers) == 1 or self.nodes.op(leader) in ("mul", "neg")

    def _divides(self, number: int, leader: int) -> bool:
        """True if an e-node takes a power of a class, or divides by it or by what is no constant."""
        node = self.egraph.nodes[number]
        if node.op != "div":
            return node.op == "pow"
        divisor = self.egraph.find(node.operands[1])
        return divisor == leader or not self.egraph.eclass(divisor).constant

    def _read(self, leader: int, region: _SumRegion, top: bool = False) -> _ReadClass:
        leader = self.egraph.find(leader)
        if self.egraph.eclass(leader).constant or not self._adds(leader) or not (top or self._is_inner(leader)):
            return self._leaf(leader, region)
        enode = self.nodes.made[leader]
        node = self.egraph.nodes[enode]
        operands = [self._read(k, region) for k in node.operands]
        polynomial = self._combined(node.op, operands)
        if polynomial is None:
            return self._leaf(leader, region)
        degree = max((sum(abs(p) for _, p in m) for m in polynomial), default=0)
        if len(polynomial) > _MOST_TERMS or degree > _MOST_DEGREE:
            raise _TooLargeError
        if node.op == "div":
            region.inverted.add(operands[1].text)
        text = f"{node.op}({', '.join(one.text for one in operands)})"
        steps = {k: v for one in operands for k, v in one.form.steps.items()}
        shape = self.nodes.sizes(leader)
        form = Written(text, shape, steps={**steps, text: prod(shape)})
        return _ReadClass(text, polynomial, form, (enode, *(n for one in operands for n in one.uses)))

    def _combined(self, op: str, operands: list[_ReadClass]) -> Polynomial | None:
        """The polynomial of an operator; None where it is none."""
        one, other = operands[0].polynomial, operands[-1].polynomial
        if op == "neg":
            return added({}, one, Fraction(-1))
        if op in ("add", "sub"):
            return added(one, other, Fraction(1 if op == "add" else -1))
        if op == "mul":
            return multiplied(one, other)
        if not operands[1].form.constant or len(other) != 1:
            return None
        if op == "div":
            return multiplied(one, inverse(other))
        ((monomial, exponent),) = other.items()
        whole = not monomial and exponent.denominator == 1 and 1 < exponent <= _MOST_EXPONENT
        return power(one, int(exponent)) if whole else None

    def _leaf(self, leader: int, region: _SumRegion) -> _ReadClass:
        facts, type = self.egraph.eclass(leader), self.egraph.type(leader)
        if not facts.finite or not isinstance(type, TensorType) or type.shape is None:
            raise _TooLargeError  # sums of infinities may not be regrouped
        constant = facts.constant
        value = self._number(leader) if constant else None
        if value is not None:
            name, _ = region.numbers.setdefault(leader, (f"n{len(region.numbers)}", value))
            return _ReadClass(name, number(value), Written(name, self.nodes.sizes(leader), constant=True))
        name = f"{'c' if constant else 'x'}{len(region.leaves)}"
        leaf = region.leaves.setdefault(leader, Leaf(name, self.nodes.sizes(leader), constant))
        return _ReadClass(leaf.name, variable(leaf.name), Written(leaf.name, leaf.shape, constant))

    def _number(self, leader: int) -> Fraction | None:
        """The number that all elements of a constant are, where products of it with others stay exact."""
        uniform = self.nodes.uniform(leader)
        if uniform is None:
            return None
        value = Fraction(uniform)
        return value if abs(value) <= _WHOLE and value.denominator <= 2**_HALVINGS else None


def _is_less(form: Written, than: Written) -> bool:
    """True if a form computes fewer elements than another one, or as many with fewer products."""
    products = [sum(size for text, size in one.steps.items() if text.startswith("mul(")) for one in (form, than)]
    return form.work < _LESS * than.work or (form.work <= than.work and products[0] < products[1])


def _rule(region: _SumRegion, whole: _ReadClass, form: Written) -> Rule | None:
    """The equation of a region and a form of it, with its conditions; None where both are not the same polynomial."""
    tensors = [leaf.name for leaf in region.leaves.values()]
    conditions = [f"wide({', '.join(tensors)})", f"finite({', '.join(tensors)})"]
    conditions += [f"is_all({name}, {float(value)!r})" for name, value in region.numbers.values()]
    conditions += [f"invertible({name})" for name in sorted(region.inverted)]
    conditions.append(f"shape({whole.text}) == shape({form.text})")
    body = f"{whole.text} => {form.text} if {', '.join(conditions)}"
    return stated(IDENTITY, body, states_identity)
