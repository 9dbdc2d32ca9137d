"""Instances near a given one: other sizes where it has equal ones, and now and then another axis, order or attribute.

Instances drawn at random seldom fit a left side of several operators that must agree; those near one that fits do, and
where the two sides differ there, little has changed that can be the reason.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from eqsat.errors import GraphError
from eqsat.language.ops import spec
from eqsat.language.ops.sampling import draw
from eqsat.language.terms import Attrs, Bindings, TensorType
from eqsat.rewrites.discovery.equations.equation import example_operand
from eqsat.rewrites.discovery.generalise.attribute_expressions import BindingScope, kind_of
from eqsat.rewrites.discovery.generalise.cases import LeftSideInstance
from eqsat.rewrites.instances.elements import Drawn
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.rules.term import left_terms

_SIZED = frozenset({"shape", "dim", "kernel", "sizes"})
#: Attempts at one instance, and at sizes that change together.
_TRIES, _TRIALS = 10, 160
#: Attribute sets that lend fields, and how often a field is lent.
_LENT, _LENDING = 12, 0.4

#: A size in an instance: the tensor or attribute, which element of a sequence, and which axis.
Place: TypeAlias = tuple[str, int, int]


class Neighbours:
    """The instances near that of a scope."""

    def __init__(self, rule: Rule, scope: BindingScope) -> None:
        self.rule, self.scope = rule, scope
        self._sizes = dict(_places(scope))
        rng = random.Random(rule.text)
        self._lent = {name: list(_records(op, rng)) for name, op in scope.records.items()}
        self._moves = self._together(rng)

    def draw(self, count: int, seed: int) -> Iterator[LeftSideInstance]:
        """Up to so many instances."""
        rng = random.Random(f"{seed}:{self.rule.text}")
        for number in range(count):
            for _ in range(_TRIES):
                bindings = _Neighbour(rng, self.scope, self._lent, self._chosen(rng)).bindings()
                if self._fits(bindings):
                    yield LeftSideInstance(self.rule, bindings, seed * 1000 + 500 + number)
                    break

    def _chosen(self, rng: random.Random) -> dict[Place, int]:
        """Other sizes: each size renamed throughout, and some that may change apart from those that equal them."""
        numbers = range(2 if rng.random() < 0.8 else 1, 5)
        renamed = {d: rng.choice(numbers) for d in sorted(set(self._sizes.values())) if d != 1}
        sizes = {p: renamed.get(d, d) for p, d in self._sizes.items()} if rng.random() < 0.7 else dict(self._sizes)
        share = rng.choice((0.0, 0.3, 0.6))
        for move in self._moves:
            if rng.random() < share:
                sizes.update(dict.fromkeys(move, rng.choice((1, 2, 2, 3, 3, 4))))
        noise = rng.choice((0.0, 0.0, 0.0, 0.1, 0.25))
        return {p: rng.randint(1, 3) if rng.random() < noise else d for p, d in sizes.items()}

    def _together(self, rng: random.Random) -> list[tuple[Place, ...]]:
        """Smallest sets of up to three equal sizes that can change together, the others staying as they are."""
        moves: list[tuple[Place, ...]] = []
        trials = 0
        for count in (1, 2, 3):
            sets = list(itertools.combinations(self._sizes, count))
            rng.shuffle(sets)
            for places in sets:
                if len({self._sizes[p] for p in places}) > 1 or any(set(f) <= set(places) for f in moves):
                    continue
                trials += 1
                if trials > _TRIALS:
                    return moves
                changed = {**self._sizes, **dict.fromkeys(places, self._sizes[places[0]] + 1)}
                if self._fits(_Neighbour(None, self.scope, {}, changed).bindings()):
                    moves.append(places)
        return moves

    def _fits(self, bindings: Bindings) -> bool:
        try:
            left_terms(self.rule, bindings)
        except (GraphError, IndexError):
            return False
        return True


def _places(scope: BindingScope) -> Iterator[tuple[Place, int]]:
    """Every size of an instance."""
    for name, thing in scope.bindings.tensors.items():
        for index, operand in enumerate(thing if isinstance(thing, tuple) else (thing,)):
            yield from (((name, index, axis), d) for axis, d in enumerate(operand.type.static))
    for name, kind in scope.fields.items():
        if kind in _SIZED:
            value: Any = scope.bindings.attrs[name]
            yield from (((name, 0, i), d) for i, d in enumerate(value if isinstance(value, tuple) else (value,)))


def _records(op: str, rng: random.Random) -> Iterator[Attrs]:
    """Attributes that an operator takes somewhere."""
    for _ in range(_LENT):
        sample = draw(spec(op), rng)
        if sample is not None:
            yield sample[1]


class _Neighbour:
    """One instance near another, with the sizes given; without chance, it differs in those alone."""

    def __init__(
        self,
        rng: random.Random | None,
        scope: BindingScope,
        lent: Mapping[str, list[Attrs]],
        sizes: Mapping[Place, int],
    ) -> None:
        self.rng, self.scope, self.lent, self.sizes = rng or random.Random(0), scope, lent, sizes
        plain = rng is None
        self.changes = 0.0 if plain else self.rng.choice((0.0, 0.3, 0.7))
        #: More axes for every tensor that has two, in front of all others or after them.
        more = 0 if plain else self.rng.choice((0, 0, 0, 1, 2))
        self.before = tuple(self.rng.randint(1, 3) for _ in range(more))
        behind = not plain and not more and self.rng.random() < 0.3
        self.after = (self.rng.randint(1, 3),) if behind else ()
        #: Number of elements of sequences, 0 for any number.
        self.length = 0 if plain else self.rng.choice((0, 0, 0, 1, 3))
        #: In which order a permutation has those in front.
        self.order = tuple(self.rng.sample(range(more), more))

    def bindings(self) -> Bindings:
        tensors: dict[str, Any] = {}
        for name, thing in self.scope.bindings.tensors.items():
            if isinstance(thing, tuple):
                order = [min(i, len(thing) - 1) for i in range(self.length or len(thing))]
                tensors[name] = tuple(self.operand(name, i, thing[i]) for i in order)
            else:
                tensors[name] = self.operand(name, 0, thing)
        attrs = {name: self.attribute(name, value) for name, value in self.scope.bindings.attrs.items()}
        return Bindings(tensors, attrs)

    def operand(self, name: str, index: int, operand: Any) -> Drawn:
        shape = tuple(self.sizes[name, index, axis] for axis in range(operand.type.rank))
        if len(shape) > 1 and self.rng.random() < 0.9:
            shape = self.longer(shape)
        type = operand.type.dtype
        return example_operand(f"{name}{index}", TensorType.of("float64" if type.is_float else type, shape))

    def attribute(self, name: str, value: Any) -> Any:
        """Another value now and then, with sizes as those of operands are."""
        kind = self.scope.fields.get(name, "record")
        if self.before or self.after:
            value = self.moved(kind, value)
        if kind == "dtype":
            return "float64"
        if kind in _SIZED:
            if not isinstance(value, tuple):
                return self.sizes[name, 0, 0]
            sizes = tuple(self.sizes[name, 0, i] for i in range(len(value)))
            return self.longer(sizes) if kind == "shape" and len(sizes) > 1 else sizes
        if self.rng.random() >= self.changes:
            return value
        if kind == "axis":
            return self.rng.randrange(4) if isinstance(value, int) else value
        if kind == "perm":
            return tuple(self.rng.sample(range(len(value)), len(value)))
        if kind == "axes":
            return tuple(i for i in range(max((*value, 1)) + 1) if self.rng.random() < 0.5)
        return self.record(name, value)

    def longer(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape with the axes that every tensor gets."""
        return (*self.before, *shape, *self.after)

    def moved(self, kind: str, value: Any) -> Any:
        """An attribute that names axes, as the axes stand with the others."""
        if isinstance(value, Mapping):
            return Attrs({key: self.moved(kind_of(key), one) for key, one in value.items()})
        by = len(self.before)
        if kind == "perm":
            return (*self.order, *(p + by for p in value), *(len(value) + by + i for i in range(len(self.after))))
        if kind in ("axis", "axes"):
            return value + by if isinstance(value, int) else tuple(v + by for v in value)
        return value

    def record(self, name: str, value: Any) -> Any:
        """A record with some fields of another that the operator takes."""
        if not self.lent.get(name):
            return value
        lender = self.rng.choice(self.lent[name])
        return Attrs({key: lender[key] if self.rng.random() < _LENDING else one for key, one in value.items()})
