"""Limits of a choice: resources that add up over its nodes, and memory, which depends on the order too."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from eqsat.costs.model.cost import readable
from eqsat.errors import ExtractionError

PEAK = "peak_memory"
"""The name of peak memory among the amounts of a solution."""

ROUNDING = 1e-9
"""Relative amount by which rounding may make a sum exceed a limit."""


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `most` of a resource, summed over the chosen nodes and conversions.

    `nodes` and `conversions` give the amount of each node and conversion of the problem, by index; no conversions mean
    that none uses any. Several nodes that share an amount, such as the bytes of one weight, get it through a node that
    all of them need. With `most` infinite the resource is only added up.

    >>> Limit("launches", 1, [1.0, 1.0, 0.0]).total([0, 2])
    1.0
    """

    name: str
    most: float
    nodes: Sequence[float]
    conversions: Sequence[float] = ()

    def total(self, nodes: Sequence[int], conversions: Sequence[int] = ()) -> float:
        """The amount that these nodes and conversions use together."""
        terms = [float(self.nodes[n]) for n in nodes]
        if self.conversions:
            terms += [float(self.conversions[c]) for c in conversions]
        return math.fsum(terms)

    def amounts(self, conversions: int) -> list[float]:
        """The amount of every option of a program: nodes first, then as many conversions."""
        return [float(a) for a in self.nodes] + [float(a) for a in self.conversions or (0.0,) * conversions]

    def check(self, nodes: int, conversions: int) -> None:
        """Raise ExtractionError unless this fits a problem with so many nodes and conversions."""
        where = f"limit {self.name!r}"
        if not self.name:
            raise ExtractionError("a limit has no name", expected="the name of the resource")
        if math.isnan(self.most) or self.most < 0:
            raise ExtractionError(f"most={self.most!r}", where=where, expected="a number of 0 or more")
        for kind, given, count in (("nodes", self.nodes, nodes), ("conversions", self.conversions, conversions)):
            if len(given) != count and (kind == "nodes" or len(given)):
                raise ExtractionError(
                    f"{len(given)} amounts for {count} {kind}",
                    where=where,
                    expected=f"one amount for each of the {kind}",
                )
            for index, amount in enumerate(given):
                if not (math.isfinite(amount) and amount >= 0):
                    raise ExtractionError(
                        f"amount {amount!r} of {kind[:-1]} {index}",
                        where=where,
                        expected="a finite, non-negative number",
                    )


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory that values occupy while the program runs; its peak depends on the order of the steps.

    `sizes` gives the bytes of the value of each (e-class, state); nothing for those left out, such as constants. A
    value is live from the step that makes it to the last step that reads it, to the end if it is a root; what a node
    without operands delivers is there from the start. While a step runs, its operands and its result are live.
    `aliases` names, for a node or conversion by its index among nodes and then conversions, the operand whose storage
    the result shares: a view. `most` bounds the peak; `weight` is the cost of a byte of it.
    """

    sizes: Mapping[tuple[int, int], float]
    aliases: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    most: float = math.inf
    weight: float = 0.0

    @property
    def matters(self) -> bool:
        """True if the peak is bounded or priced."""
        return self.weight > 0 or self.most < math.inf


def exceeds(amount: float, most: float) -> bool:
    """Return whether an amount is more than a limit, by more than rounding."""
    return amount > most + ROUNDING * abs(most)


def written(name: str, amount: float) -> str:
    """An amount of a term as messages show it: with enough digits that the choice it is of meets it as a limit.

    Errors add up as squares, and are shown as they are stated.

    >>> written("launches", 3.0), written("error", 0.25)
    ('3', '0.5')
    """
    amount = readable({name: amount})[name]
    return f"{amount:.0f}" if amount == round(amount) and abs(amount) < 1e15 else f"{amount:.10g}"
