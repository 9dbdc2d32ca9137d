"""Sums of products written as terms, each product in the order of least work."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from eqsat.rewrites.theories.contractions import Axis, UnreadError
from eqsat.rewrites.theories.linear.combinations import ProductTerm, SumOfTerms
from eqsat.rewrites.theories.orders import PairwiseSteps, PartialProduct, least_work

#: The ways to write one product that are offered, those of the others being the best.
_FORMS = 2


@dataclass(frozen=True)
class CombinationWriter:
    """Writes sums of products over operands, of which some are `constants`; `like` is one of the element type."""

    steps: PairwiseSteps
    constants: frozenset[str]
    like: str

    def written(self, whole: SumOfTerms) -> Iterator[PartialProduct]:
        """Terms for a sum, with the work of each; UnreadError where operators for one are missing."""
        terms = [list(itertools.islice(self._products(term, whole.axes), _FORMS)) for term in whole.terms]
        if not terms or not all(terms):
            raise UnreadError
        best = [forms[0] for forms in terms]
        yield self._summed(whole, best)
        for place, forms in enumerate(terms):
            for other in forms[1:]:
                yield self._summed(whole, [*best[:place], other, *best[place + 1 :]])

    def _products(self, term: ProductTerm, axes: Sequence[Axis]) -> Iterator[PartialProduct]:
        """One product, without its sign, in the orders of least work; its axes are those of the sum, or of size 1."""
        flat = [i for axis in axes for i in axis]
        held = [[i for axis in its for i in axis] for _, its in term.factors]
        if any(len({*indices}) < len(indices) for indices in held):
            raise UnreadError  # the diagonal of an operand
        known = {i for indices in held for i in indices}
        free = [i for i in flat if i in known]
        groups = [tuple(i for i in axis if i in known) for axis in axes]
        if any(group and group != axis for group, axis in zip(groups, axes, strict=True)):
            raise UnreadError  # an axis along which a part of the indices is spread
        scale = abs(term.scale)
        if not term.factors:
            value = f"fill(shape=(), value={float(scale)!r}, dtype=dtype({self.like}))"
            yield PartialProduct(value, (), constant=True)
            return
        parts = [self.steps.leaf(name, its, name in self.constants) for name, its in term.factors]
        for made in least_work(parts, free, self.steps):
            ordered = self.steps.ordered(self.steps.summed(made, free), free)
            first = next((place for place, group in enumerate(groups) if group), len(groups))
            shaped = self.steps.with_units(ordered, groups[first:], len(groups))
            yield self.steps.scaled(shaped or self.steps.reshaped(ordered, groups[first:]), scale, self.like)

    def _summed(self, whole: SumOfTerms, parts: Sequence[PartialProduct]) -> PartialProduct:
        """The sum of parts by the signs of its products, constants and small ones first."""
        signed = list(zip(whole.terms, parts, strict=True))
        signed.sort(key=lambda one: (not one[1].constant, self.steps.size(one[1].axes), one[1].text))
        plus, minus = ([part for term, part in signed if (term.scale < 0) is is_minus] for is_minus in (False, True))
        total = self._added(plus or minus)
        if not plus:
            total = replace(total, text=f"neg({total.text})", work=total.work + self._step(total, total))
        elif minus:
            total = self._applied("sub", total, self._added(minus))
        held = {i for part in parts for i in part.axes}
        if any(i not in held for axis in whole.axes for i in axis) or not self._has_rank(whole, parts):
            shape = "".join(f"{' * '.join(self.steps.dims[i] for i in axis) or '1'}, " for axis in whole.axes)
            total = replace(total, text=f"expand({total.text}, shape=({shape}))")
        return total

    def _has_rank(self, whole: SumOfTerms, parts: Sequence[PartialProduct]) -> bool:
        """True if the first axis of the sum is one of a part."""
        return not whole.axes or any(i in part.axes for i in whole.axes[0] for part in parts)

    def _added(self, parts: Sequence[PartialProduct]) -> PartialProduct:
        total = parts[0]
        for part in parts[1:]:
            total = self._applied("add", total, part)
        return total

    def _applied(self, op: str, one: PartialProduct, other: PartialProduct) -> PartialProduct:
        constant = one.constant and other.constant
        work = one.work + other.work + (0.0 if constant else self._step(one, other))
        axes = tuple(dict.fromkeys((*one.axes, *other.axes)))
        return PartialProduct(f"{op}({one.text}, {other.text})", axes, work, constant)

    def _step(self, one: PartialProduct, other: PartialProduct) -> float:
        return self.steps.step + self.steps.size({*one.axes, *other.axes})
