"""Instances of a rule on both sides of every bound that its types and conditions ask about: solved for, not drawn.

The dims and whole numbers of an instance are traced through the types of both sides and the conditions. Z3 then turns
one answer at a time, the others before it kept: a slice that ends at 224 is the whole of an axis of three, and the
question whether it is leads to an axis of 225 (compare directed automated random testing: P. Godefroid and others,
DART, 2005). What solving finds is run like any other instance: no verdict rests on the trace.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from eqsat.errors import GraphError
from eqsat.language.ops import spec
from eqsat.language.terms import Bindings
from eqsat.rewrites.instances.edges import EdgeElements, literals
from eqsat.rewrites.instances.elements import Drawn, Filler
from eqsat.rewrites.instances.instance import operands
from eqsat.rewrites.instances.paths import SIZES, InstanceNumbers, SolverPath
from eqsat.rewrites.instances.ranks import raised, settled
from eqsat.rewrites.instances.traced import Question, Trace
from eqsat.rewrites.rules.naming import renamed
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.rules.term import (
    Term,
    distinct,
    is_defined,
    left_terms,
    output_types,
    right_terms,
    typed_left,
    types_of,
)

#: The questions turned for one rule, and the answers looked for to one.
TURNS, ANSWERS = 300, 3
#: The part of a turn that a question counts for which has no other answer, as most have that ask for signs.
_IN_VAIN = 0.2
#: The size that each dim is given once, beyond those that are drawn.
_USUAL = 5
#: The most elements of an instance's operands, and of all that is computed of them.
_ELEMENTS, _WORK = 200_000, 2_000_000
#: The forms of instances that solving begins at, and those that get more axes.
_FORMS, _HIGHER = 10, 3


class DirectedSearch:
    """The instances that solving finds from some seeds, each of another path through types and conditions."""

    def __init__(self, rule: Rule, seed: int = 0, most: int = TURNS) -> None:
        import z3

        self.rule, self._most = rule, most
        self._context = z3.Context()
        self._filler = Filler(rule)
        self._rng = random.Random(f"{seed}:directed:{renamed(rule)}")
        self._turned: Counter[tuple[Question, Any, bool]] = Counter()
        self._seen: set[Any] = set()
        numbers = {number for number in literals(rule) if isinstance(number, int) and 1 < number <= max(SIZES) // 2}
        self._sizes = sorted({_USUAL, *(size for number in numbers for size in (number + 1, 2 * number + 1))})
        self.turns = 0.0

    def instances(self, seeds: Iterable[Bindings]) -> Iterator[Bindings]:
        """The instances on paths that no seed is on, until all questions were turned, or as many as there may be.

        Seeds need not meet the conditions: these are questions like others.
        """
        queues = {True: deque[Bindings](), False: deque[Bindings]()}
        for bindings in seeds:
            queues[self.meets(bindings)].append(bindings)
        turn = True
        while any(queues.values()) and self.turns < self._most:
            turn = not turn  # what meets the conditions and what does not are looked at in turn
            meets = turn if queues[turn] else not turn
            bindings = queues[meets].popleft()
            path, source = SolverPath(self._context, bindings), (_form(bindings), meets)
            for question in self._questions(bindings):
                for wanted in dict.fromkeys((question.turned, question.apart)):
                    if question.unknowns():
                        yield from self._found(path, wanted, source, queues)
                path.keep(question)

    def resized(self, seeds: Iterable[Bindings]) -> Iterator[Bindings]:
        """The instances in which one dim of a seed is larger than is drawn, beside a number of the rule, or another
        than it was; as many as `instances` may turn questions."""
        before = self.turns
        for bindings in seeds:
            path = SolverPath(self._context, bindings)
            for question in self._questions(bindings):
                path.keep(question)
            for wanted in path.others(self._sizes):
                yield from self._found(path, wanted, (_form(bindings), True), {True: deque(), False: deque()})
        self.turns = before

    def _found(
        self, path: SolverPath, wanted: Question, source: tuple[Any, bool], queues: Mapping[bool, deque[Bindings]]
    ) -> Iterator[Bindings]:
        """The instance that answers a question so, if it meets the conditions; in any case it is a seed."""
        if self.turns >= self._most or self._turned[wanted, *source] >= ANSWERS:
            return
        answer = path.answer(wanted)
        self.turns += _IN_VAIN if answer is None else 1.0
        found = None if answer is None else self._filled(answer)
        if found is None:
            return
        self._turned[wanted, *source] += 1
        meets = self.meets(found)
        queues[meets].append(found)
        if meets:
            yield found

    def _questions(self, bindings: Bindings) -> list[Question]:
        """The questions that the types of both sides and the conditions ask of an instance's numbers, in order."""
        trace = Trace()
        traced = InstanceNumbers(trace=trace).bindings(bindings)
        try:
            left = output_types(left_terms(self.rule, traced))
            if self.rule.refused(traced) is None:
                _ = left == output_types(right_terms(self.rule, traced))  # asks whether the dims are equal
        except (GraphError, ArithmeticError):
            pass
        return list(trace.asked)

    def filled(self, instances: Iterable[Bindings]) -> Iterator[Bindings]:
        """The instances that were not there before, with elements."""
        return (one for bindings in instances if (one := self._filled(bindings)) is not None)

    def _filled(self, bindings: Bindings) -> Bindings | None:
        """The instance with elements; None where it has too many, or is one that was found before."""
        drawn = operands(bindings)
        shapes = [o.type.static for o in drawn]
        if sum(math.prod(shape) for shape in shapes) > _ELEMENTS:
            return None
        key = (tuple(shapes), repr(sorted(bindings.attrs.items(), key=lambda item: item[0])))
        if key in self._seen:
            return None
        self._seen.add(key)
        least = max(min((size for shape in shapes for size in shape), default=1), 1)
        for operand in drawn:
            if operand.type.dtype.is_integer:
                operand.limit = min(operand.limit or least, least)  # indices select of the smallest axis there is
            self._filler.fill(operand, bindings, self._rng)
        return bindings

    def meets(self, bindings: Bindings) -> bool:
        """Return whether the left side types, the conditions hold, the right side's attributes have values, and both
        sides are soon computed."""
        left = typed_left(self.rule, bindings)
        if left is None or self.rule.refused(bindings) is not None or not is_defined(self.rule, bindings):
            return False
        try:
            right = right_terms(self.rule, bindings)
        except GraphError:
            right = []  # that it does not type is for the comparison to say
        return sum(map(_work, distinct([*left, *right]))) <= _WORK


def _work(term: Any) -> int:
    """The operations, and the elements, that computing a term takes; of an operand its elements."""
    if not isinstance(term, Term):
        return math.prod(term.type.static)
    elements = sum(type.elements({}) for type in term.types)
    flops = spec(term.op).flops
    types = types_of(term.operands)
    return elements if flops is None else elements + int(flops(types, term.types, term.attrs))  # type: ignore[arg-type]


def beyond(
    rule: Rule, drawn: Sequence[Bindings], refused: Sequence[Bindings] = (), seed: int = 0, most: int = TURNS
) -> Iterator[Bindings]:
    """The instances that solving finds from drawn ones, each also with elements at edges; those drawn with these first.

    Seeds are the smallest instances of each form, by ranks, lengths of sequences and permutations, some of those that
    conditions refused, and some with more axes; `most` questions are turned.
    """
    search = DirectedSearch(rule, seed, most)
    elements = EdgeElements(rule, random.Random(f"{seed}:edges:{renamed(rule)}"))
    smallest, others = ({_form(b): b for b in sorted(some, key=_size, reverse=True)} for some in (drawn, refused))
    seeds = [*smallest.values()][-_FORMS:] + [b for form, b in others.items() if form not in smallest][-_FORMS:]
    largest = {_form(b): b for b in sorted(drawn or refused, key=_size)}  # dims of one hide much
    higher = [one for b in [*largest.values()][-_HIGHER:] for one in search.filled(raised(rule, b))]
    for bindings in (*seeds, *drawn[:_FORMS], *higher):
        if search.meets(bindings):
            yield elements.of(bindings)
    said = list(search.filled(settled(rule, b) for b in (*seeds, *refused) if not search.meets(b)))
    for bindings in said:
        if search.meets(bindings):
            yield bindings
    meeting = [bindings for bindings in (*said, *largest.values()) if search.meets(bindings)]
    found = itertools.chain(search.resized(meeting[-_HIGHER:]), search.instances([*seeds, *said, *higher[:_FORMS]]))
    for bindings in found:
        yield bindings
        yield elements.of(bindings)


def _size(bindings: Bindings) -> int:
    return sum(math.prod(o.type.static) for o in operands(bindings))


def _form(bindings: Bindings) -> Any:
    """A key of the ranks of an instance, of the lengths of its sequences, and of its permutations."""
    ranks = tuple(
        tuple(o.type.rank if isinstance(o, Drawn) else 0 for o in (t if isinstance(t, tuple) else (t,)))
        for t in bindings.tensors.values()
    )
    return ranks, tuple(value for value in bindings.attrs.values() if _is_permutation(value))


def _is_permutation(value: Any) -> bool:
    numbers = isinstance(value, tuple) and all(type(one) is int for one in value)
    return numbers and sorted(value) == list(range(len(value))) and len(value) > 1
