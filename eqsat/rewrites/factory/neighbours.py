"""Instances near a given one: other sizes where it has equal ones, and now and then another axis, order or attribute.

Instances drawn at random seldom fit a left side of several operators that must agree; those near one that fits do, and
where the two sides differ there, little has changed that can be the reason.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from eqsat.errors import GraphError
from eqsat.language.graph import Attrs
from eqsat.language.ops.sampling import draw
from eqsat.language.pattern import Bindings
from eqsat.language.spec import spec
from eqsat.language.types import TensorType
from eqsat.rewrites.elements import Drawn
from eqsat.rewrites.factory.cases import Case
from eqsat.rewrites.factory.menus import Scope, kind_of
from eqsat.rewrites.rule import Rule
from eqsat.rewrites.term import left_terms

_SIZED = frozenset({"shape", "dim", "kernel", "sizes"})
_TRIES = 10
#: Attribute sets that lend fields, and how often a field is lent.
_LENT, _LENDING = 12, 0.4


def neighbours(rule: Rule, scope: Scope, count: int, seed: int) -> Iterator[Case]:
    """Up to so many instances near that of a scope."""
    rng = random.Random(f"{seed}:{rule.text}")
    lent = {name: list(_records(op, rng)) for name, op in scope.records.items()}
    for number in range(count):
        for _ in range(_TRIES):
            bindings = _Neighbour(rng, scope, lent).bindings()
            if _types(rule, bindings):
                yield Case(rule, bindings, seed * 1000 + 500 + number)
                break


def _records(op: str, rng: random.Random) -> Iterator[Attrs]:
    """Attributes that an operator takes somewhere."""
    for _ in range(_LENT):
        found = draw(spec(op), rng)
        if found is not None:
            yield found[1]


def _types(rule: Rule, bindings: Bindings) -> bool:
    try:
        left_terms(rule, bindings)
    except GraphError:
        return False
    return True


class _Neighbour:
    """One instance near another."""

    def __init__(self, rng: random.Random, scope: Scope, lent: Mapping[str, Sequence[Attrs]]) -> None:
        self.rng, self.scope, self.lent = rng, scope, lent
        sizes = {d for o in _all(scope.bindings) for d in o.type.static if d != 1}
        numbers = list(range(1, 5))
        #: What becomes of each size; one of 1 stays, since operands are broadcast there.
        self.sizes = {d: rng.choice(numbers[1:] if rng.random() < 0.8 else numbers) for d in sorted(sizes)}
        if rng.random() < 0.3:
            self.sizes = {d: d for d in sizes}
        self.noise = rng.choice((0.0, 0.0, 0.1, 0.25))
        self.changes = rng.choice((0.0, 0.3, 0.7))
        #: More axes for every tensor that has two, in front of all others or after them.
        self.before = tuple(rng.randint(1, 3) for _ in range(rng.choice((0, 0, 0, 1, 2))))
        self.after = (rng.randint(1, 3),) if not self.before and rng.random() < 0.3 else ()
        #: In which order a permutation has those in front.
        self.order = tuple(rng.sample(range(len(self.before)), len(self.before)))

    def bindings(self) -> Bindings:
        made: dict[int, Drawn] = {}
        tensors: dict[str, Any] = {}
        for name, thing in self.scope.bindings.tensors.items():
            group = thing if isinstance(thing, tuple) else (thing,)
            for operand in group:
                if isinstance(operand, Drawn) and id(operand) not in made:
                    made[id(operand)] = self.operand(operand)
            tensors[name] = tuple(made[id(o)] for o in group) if isinstance(thing, tuple) else made[id(thing)]
        attrs = {name: self.attribute(name, value) for name, value in self.scope.bindings.attrs.items()}
        return Bindings(tensors, attrs)

    def operand(self, operand: Drawn) -> Drawn:
        shape = tuple(self.size(d) for d in operand.type.static)
        if len(shape) > 1 and self.rng.random() < 0.9:
            shape = self.longer(shape)
        type = operand.type.dtype
        made = Drawn(operand.name, TensorType.of("float64" if type.is_float else type, shape))
        if not type.is_float:
            made.array = (np.arange(int(np.prod(shape))) % 2).reshape(shape).astype(type.numpy)
        return made

    def size(self, dim: int) -> int:
        if self.rng.random() < self.noise:
            return self.rng.randint(1, 3)
        return self.sizes.get(dim, dim)

    def attribute(self, name: str, value: Any) -> Any:
        """Another value now and then, with sizes renamed as those of operands are."""
        kind = self.scope.fields.get(name, "record")
        if self.before or self.after:
            value = self.moved(kind, value)
        if kind == "dtype":
            return "float64"
        if kind in _SIZED:
            if not isinstance(value, tuple):
                return self.size(value)
            renamed = tuple(self.size(d) for d in value)
            return self.longer(renamed) if kind == "shape" and len(renamed) > 1 else renamed
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
            return (*self.order, *(p + by for p in value), *(len(value) + i for i in range(len(self.after))))
        if kind in ("axis", "axes"):
            return value + by if isinstance(value, int) else tuple(v + by for v in value)
        return value

    def record(self, name: str, value: Any) -> Any:
        """A record with some fields of another that the operator takes."""
        if not self.lent[name]:
            return value
        lender = self.rng.choice(self.lent[name])
        return Attrs({key: lender[key] if self.rng.random() < _LENDING else one for key, one in value.items()})


def _all(bindings: Bindings) -> Iterator[Any]:
    for thing in bindings.tensors.values():
        yield from thing if isinstance(thing, tuple) else (thing,)
