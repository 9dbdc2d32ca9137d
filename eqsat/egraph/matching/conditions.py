"""Conditions of rules asked in an e-graph, each once for all matches that it cannot tell apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from eqsat.egraph.egraph import EGraph
from eqsat.egraph.matching.query import Query, Row
from eqsat.language.terms.graph import Attrs
from eqsat.language.terms.pattern import Bindings, Expression


class _Condition(NamedTuple):
    """A condition, the places of the variables it reads, and its answers so far by what it sees of them.

    An answer is the reason why it does not hold, or empty. A condition that reads tensors alone has the same answers
    in every rule that states it.
    """

    expression: Expression
    places: tuple[int, ...]
    reads_attributes: bool
    answers: dict[Any, str]


class ConditionAnswers:
    """The answers that a rule's conditions gave, by the facts of classes and by attributes.

    Conditions see no more of a class than `EGraph.facts_seen` tells apart, so what one said of other classes holds for
    all of equal facts.
    """

    def __init__(self, egraph: EGraph, query: Query) -> None:
        self._egraph, self._rule = egraph, query.rule
        places = {name: place for place, name in enumerate(query.variables)}
        self._conditions: list[_Condition] = []
        for condition in query.rule.conditions:
            names = query.rule.reads(condition)
            read = tuple(places[name] for name in names if name in places)
            by_attributes = len(read) < len(names)
            answers = {} if by_attributes else egraph.answers.setdefault(condition.text, {})
            self._conditions.append(_Condition(condition, read, by_attributes, answers))
        self._right: dict[Row, dict[int, Attrs]] = {}

    def seen(self, classes: Sequence[int]) -> list[int]:
        """A number for the facts of each class."""
        alike = self._egraph.alike
        seen = [alike[leader] for leader in classes]
        return seen if -1 not in seen else [self._egraph.facts_seen(leader) for leader in classes]

    def refused(self, attributes: Row, seen: Sequence[int], bindings: Bindings | None = None) -> str | None:
        """Why the rule does not fire, an empty text where it does.

        A condition that was not asked before is asked under the bindings; without any, nothing is known then: None.
        """
        for condition in self._conditions:
            key = _key(condition, attributes, seen)
            answer = condition.answers.get(key)
            if answer is None:
                if bindings is None:
                    return None
                answer = condition.answers[key] = self._rule.refused_by(condition.expression, bindings) or ""
            if answer:
                return answer
        return ""

    def right(self, attributes: Row, classes: Sequence[int]) -> dict[int, Attrs]:
        """The attributes of the right side where facts and attributes are these, by the identity of the operator."""
        return self._right.setdefault((*attributes, *self.seen(classes)), {})


def _key(condition: _Condition, attributes: Row, seen: Sequence[int]) -> Any:
    places = condition.places
    read = seen[places[0]] if len(places) == 1 else tuple([seen[place] for place in places])
    return (attributes, read) if condition.reads_attributes else read
