"""Equations of sums of products that movement takes apart and joins, proved by following the label of every element."""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from eqsat.language.arithmetic.floats import FloatNamespace
from eqsat.language.ops import OPS
from eqsat.language.terms.pattern import App, Pattern, Spread, Var
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.theories.contractions import UnreadError

#: The first part of the names of such equations.
JOINED = "joined"
#: The elements of one side up to which labels are followed, the most products of a sum, and the most factors of one.
MOST_ELEMENTS, _MOST_TERMS, _MOST_FACTORS = 2**20, 2, 2
_FLOATS = FloatNamespace()
LabelArray: TypeAlias = "np.ndarray[Any, Any]"


@dataclass(frozen=True)
class LabelledTerm:
    """One product of each element of a tensor: its sign, 0 where there is none, and the labels of its factors."""

    sign: LabelArray
    factors: tuple[LabelArray, ...]

    def moved(self, move: Any) -> LabelledTerm:
        """The same products elsewhere."""
        return LabelledTerm(move(self.sign), tuple(move(one) for one in self.factors))


@dataclass
class ElementLabels:
    """Gives the elements of operands of stated sizes labels of their own, from 1 on."""

    sizes: dict[str, tuple[int, ...]]
    begun: dict[str, int] = field(default_factory=dict)

    def followed(self, pattern: Pattern | Spread) -> list[LabelledTerm]:
        """The products that each element of a term is the sum of, none of which is rounded in another order."""
        match pattern:
            case Var(name):
                return [self._labelled(name)]
            case App("neg", (x,)):
                return [LabelledTerm(-one.sign, one.factors) for one in self.followed(x)]
            case App("add" | "sub" as op, (x, y)):
                terms, others = self.followed(x), self.followed(y)
                if op == "sub":
                    others = [LabelledTerm(-one.sign, one.factors) for one in others]
                shape = np.broadcast_shapes(_shape(terms), _shape(others))
                return _few([one.moved(lambda a: np.broadcast_to(a, shape)) for one in (*terms, *others)])
            case App("mul", (x, y)):
                (one,), (other,) = self.followed(x), self.followed(y)
                shape = np.broadcast_shapes(one.sign.shape, other.sign.shape)
                factors = [np.broadcast_to(a, shape) for a in (*one.factors, *other.factors)]
                if len(factors) > _MOST_FACTORS:
                    raise UnreadError
                return [LabelledTerm(np.multiply(one.sign, other.sign), tuple(factors))]
            case App("concat", operands):
                return self._joined([self.followed(one) for one in operands], _literal(pattern, "axis"))
            case App(op, (x,)) if op in ("reshape", "slice", "expand", "transpose"):
                attrs = OPS[op].complete({name: _literal(pattern, name) for name in pattern.fields})
                return [one.moved(lambda a: OPS[op].reference(_FLOATS, a, **attrs)) for one in self.followed(x)]
        raise UnreadError

    def _labelled(self, name: str) -> LabelledTerm:
        shape = self.sizes[name]
        first = self.begun.setdefault(name, 1 + sum(math.prod(self.sizes[known]) for known in self.begun))
        labels = np.arange(first, first + math.prod(shape)).reshape(shape)
        if labels.size > MOST_ELEMENTS:
            raise UnreadError
        return LabelledTerm(np.ones(shape, np.int8), (labels,))

    def _joined(self, parts: Sequence[list[LabelledTerm]], axis: int) -> list[LabelledTerm]:
        """Sums side by side: the first products of all, then the second ones, where all parts have as many."""
        counts = {(len(part), *(len(one.factors) for one in part)) for part in parts}
        if len(counts) > 1:
            raise UnreadError
        return [
            LabelledTerm(
                np.concatenate([one.sign for one in terms], axis),
                tuple(np.concatenate(some, axis) for some in zip(*(one.factors for one in terms), strict=True)),
            )
            for terms in zip(*parts, strict=True)
        ]


def states_joined(rule: Rule) -> bool:
    """True if each element of both sides is the sum of the same two products of the same elements.

    They are the same numbers then, rounded alike, infinities and NaN among them: a sum of two, a product of two, and
    the negation of a factor or of an addend do not depend on their order. Conditions have to state all sizes.
    """
    sides = rule.sides
    if sides is None:
        return False
    sizes = stated_shapes({condition.text for condition in rule.conditions})
    if not rule.tensors <= sizes.keys():
        return False
    labels = ElementLabels({name: sizes[name] for name in sorted(rule.tensors)})
    try:
        left, right = (_sorted(labels.followed(side)) for side in sides)
        return len(left) == len(right) and all(map(np.array_equal, left, right))
    except (UnreadError, ValueError, TypeError, KeyError, IndexError):
        return False


def stated_shapes(conditions: set[str]) -> dict[str, tuple[int, ...]]:
    """The shapes that conditions state in full."""
    found: dict[str, tuple[int, ...]] = {}
    for text in conditions:
        if not text.startswith("rank(") or not (rank := text.rpartition(" == ")[2]).isdigit():
            continue
        name = text[len("rank(") : text.index(")")]
        stated = [t.rpartition(" == ")[2] for a in range(int(rank)) for t in conditions if t.startswith(_dim(name, a))]
        if len(stated) == int(rank) and all(size.isdigit() for size in stated):
            found[name] = tuple(map(int, stated))
    return found


def _dim(name: str, axis: int) -> str:
    return f"dim({name}, {axis}) == "


def _sorted(terms: Sequence[LabelledTerm]) -> tuple[LabelArray, ...]:
    """The products of each element in one order, each with its factors in one order: keys and signs."""
    shape = _shape(terms)
    keys = []
    for one in terms:
        factors = np.sort(
            np.stack([*one.factors, *([np.zeros(shape, int)] * (_MOST_FACTORS - len(one.factors)))]), axis=0
        )
        keys.append(factors[0] * (1 << 31) + factors[1])
    signs = np.stack([one.sign for one in terms])
    order = np.lexsort((signs, np.stack(keys)), axis=0)
    return np.take_along_axis(np.stack(keys), order, 0), np.take_along_axis(signs, order, 0)


def _shape(terms: Sequence[LabelledTerm]) -> tuple[int, ...]:
    return tuple(terms[0].sign.shape)


def _few(terms: list[LabelledTerm]) -> list[LabelledTerm]:
    if len(terms) > _MOST_TERMS or math.prod(_shape(terms)) > MOST_ELEMENTS:
        raise UnreadError
    return terms


def _literal(pattern: App, name: str) -> Any:
    return ast.literal_eval(pattern.fields[name].text)
