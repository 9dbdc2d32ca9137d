"""The number of graphs and terms, counted by the types of operators and operands, without listing them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import combinations, product
from typing import TypeAlias

from eqsat.language.terms.types import TensorType
from eqsat.rewrites.discovery.enumerate.forms import OperatorForm

#: A type, and whether it is that of a constant.
Kind: TypeAlias = tuple[TensorType, bool]
#: The outputs of an application.
Outputs: TypeAlias = tuple[Kind, ...]
#: For each node of a graph, in topological order, the nodes whose outputs it reads.
Reads: TypeAlias = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Counted:
    """The number of graphs of each number of operators, and of terms: outputs of graphs all of which they need."""

    graphs: int
    terms: int


class Counting:
    """A counter of closed sets of applications, every operand being an input or the output of another of the set.

    No application stands twice in a set; each is applied to inputs and outputs of the set, and what no other reads is
    an output of the graph. The first inputs are `variables` many, the others constants; what is computed from constants
    alone is read by no other.
    """

    def __init__(self, forms: Sequence[OperatorForm], inputs: Sequence[TensorType], variables: int) -> None:
        self.forms, self.inputs, self.variables = forms, inputs, variables
        self._leaves = Counter((t, i >= variables) for i, t in enumerate(inputs))
        self._choices = lru_cache(maxsize=None)(self._count_choices)
        self._typed = lru_cache(maxsize=None)(self._type)

    def counted(self, size: int) -> Counted:
        """Graphs and terms of exactly so many applications."""
        graphs = terms = Fraction(0)
        for reads in _structures(size):
            orders = _linear_orders(reads)
            sinks = set(range(size)) - {i for r in reads for i in r}
            order = [i for i in range(size) if i not in sinks] + sorted(sinks)
            for number, outputs in self._ways(reads, order, {}):
                graphs += Fraction(number, orders)
                terms += Fraction(outputs, orders) if len(sinks) == 1 else 0
        return Counted(int(graphs), int(terms))

    def _ways(self, reads: Reads, order: list[int], outputs_of: dict[int, Outputs]) -> Iterator[tuple[int, int]]:
        """The number of sequences of distinct applications that read each other so, and of outputs of their last ones.

        Nodes come in `order`, those that nothing reads last, since their types matter to no other.
        """
        at = order[len(outputs_of)]
        choices = self._choices(tuple(outputs_of[i] for i in reads[at]))
        twins = [i for i in outputs_of if reads[i] == reads[at]]
        if not any(at in r for r in reads):
            total = sum(choices.values()) - len(twins)
            if total > 0 and len(outputs_of) + 1 < len(order):
                counts = self._ways(reads, order, {**outputs_of, at: ()})
                yield from ((total * n, total * m) for n, m in counts)
            elif total > 0:
                yield total, sum(n * len(outputs) for outputs, n in choices.items())
            return
        for outputs, count in choices.items():
            rest = count - sum(outputs_of[i] == outputs for i in twins)
            if rest > 0:
                yield from ((rest * n, rest * m) for n, m in self._ways(reads, order, {**outputs_of, at: outputs}))

    def _count_choices(self, used: tuple[Outputs, ...]) -> Counter[Outputs]:
        """Applications that read each of these, and inputs besides, by their outputs."""
        choices: Counter[Outputs] = Counter()
        if any(constant for u in used for _, constant in u):
            return choices
        counts = [Counter(u) for u in used]
        for index, form in enumerate(self.forms):
            if form.inputs_only and used:
                continue
            if form.arity == 1:
                sources: Counter[tuple[Kind, ...]] = Counter()
                if len(used) < 2:
                    sources = Counter({(t,): n for t, n in (counts[0] if used else self._leaves).items()})
            else:
                sources = self._pairs(counts)
            for types, number in sources.items():
                outputs = self._typed(index, types)
                if outputs is not None:
                    choices[outputs] += number
        return choices

    def _pairs(self, counts: list[Counter[Kind]]) -> Counter[tuple[Kind, ...]]:
        """Pairs of operands that read each source: by types, how many there are."""
        leaves = self._leaves
        if not counts:
            sides = [(leaves, leaves)]
        elif len(counts) == 1:
            sides = [(counts[0], leaves), (leaves, counts[0]), (counts[0], counts[0])]
        else:
            sides = [(counts[0], counts[1]), (counts[1], counts[0])]
        pairs: Counter[tuple[Kind, ...]] = Counter()
        for first, second in sides:
            for (a, n), (b, m) in product(first.items(), second.items()):
                pairs[a, b] += n * m
        return pairs

    def _type(self, index: int, kinds: tuple[Kind, ...]) -> Outputs | None:
        form = self.forms[index]
        typed = form.typed([*(t for t, _ in kinds), *(self.inputs[i] for i in form.tail)])
        constant = all(c for _, c in kinds) and all(i >= self.variables for i in form.tail)
        return None if typed is None else tuple((t, constant) for t in typed[1])


def _structures(size: int) -> Iterator[Reads]:
    """Every way in which applications in topological order can read one or two earlier ones, or none."""
    choices = [[c for n in range(3) for c in combinations(range(at), n)] for at in range(size)]
    yield from product(*choices)


def _linear_orders(reads: Reads) -> int:
    """In how many topological orders the nodes can stand."""

    def count(placed: frozenset[int]) -> int:
        if len(placed) == len(reads):
            return 1
        ready = (i for i in range(len(reads)) if i not in placed and placed.issuperset(reads[i]))
        return sum(count(placed | {i}) for i in ready)

    return count(frozenset())
