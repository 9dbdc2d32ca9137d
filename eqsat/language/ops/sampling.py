"""Small operand shapes and attributes for checking rules: the parts of sample rules."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from eqsat.errors import ShapeError
from eqsat.language.declaration import OpSpec, Sample, SampleRule
from eqsat.language.terms import Attrs, Shape, TensorType, broadcast_shapes

#: Draws one attribute for an operand of a shape, given the attributes settled so far; None gives the sample up.
Draw: TypeAlias = Callable[[random.Random, Shape, Mapping[str, Any]], Any]


def dim(rng: random.Random) -> int:
    """A dim of 1 to 3."""
    return rng.randint(1, 3)


def shape(rng: random.Random, least: int = 1, most: int = 4) -> Shape:
    """A shape of the ranks given, lower ranks more often than higher ones."""
    rank = min(rng.randint(least, most), rng.randint(least, most))
    return tuple(dim(rng) for _ in range(rank))


def broadcastable(rng: random.Random, target: Shape) -> Shape:
    """A shape that broadcasts with `target`: mostly equal to it, else with leading dims dropped and dims set to 1."""
    if rng.random() < 0.6:
        return target
    trailing = target[rng.randint(0, len(target)) :]
    return tuple(1 if rng.random() < 0.3 else d for d in trailing)


def pointwise(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    """Operands of shapes that broadcast together."""
    given = [s for s in known if s is not None]
    try:
        target = broadcast_shapes(*given) if given else shape(rng)
    except ShapeError:
        return None
    if len(given) < len(known) and given and rng.random() < 0.2:
        target = tuple(dim(rng) if d == 1 else d for d in target)
    return [s if s is not None else broadcastable(rng, target) for s in known], attrs


def one_operand(
    least: int = 1, most: int = 4, rank: Callable[[Mapping[str, Any]], int] | None = None, **draws: Draw
) -> SampleRule:
    """Operators of one operand, whose rank is in a range or fixed by attributes; others are drawn in order."""

    def sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
        x = known[0]
        if x is None:
            fixed = rank(attrs) if rank is not None else 0
            low = max(least, _needed_rank(attrs), fixed)
            x = shape(rng, low, fixed or max(most, low))
        if len(x) < least:
            return None
        full = complete(rng, x, attrs, draws)
        return None if full is None else ((x,), full)

    return sample


def complete(
    rng: random.Random, x: Shape, attrs: Mapping[str, Any], draws: Mapping[str, Draw]
) -> Mapping[str, Any] | None:
    """The attributes with missing ones drawn; None where one cannot be."""
    full = dict(attrs)
    for name, draw in draws.items():
        if name not in full:
            full[name] = draw(rng, x, full)
            if full[name] is None:
                return None
    return full


def _needed_rank(attrs: Mapping[str, Any]) -> int:
    """The least rank that the axes among the attributes allow."""
    axes = [a for a in (attrs.get("axis"), *(attrs.get("axes") or ())) if isinstance(a, int)]
    return max((a + 1 if a >= 0 else -a for a in axes), default=0)


def axis(rng: random.Random, x: Shape, attrs: Mapping[str, Any]) -> int | None:
    """One axis of the operand."""
    return rng.randrange(len(x)) if x else None


def axes(rng: random.Random, x: Shape, attrs: Mapping[str, Any]) -> tuple[int, ...]:
    """Some axes of the operand in ascending order, mostly not all."""
    count = min(rng.randint(0, len(x)), rng.randint(1, 2))
    return tuple(sorted(rng.sample(range(len(x)), count)))


def flag(rng: random.Random, x: Shape, attrs: Mapping[str, Any]) -> bool:
    """True or false."""
    return rng.random() < 0.5


def choice(*values: Any) -> Draw:
    """One of the values."""

    def draw(rng: random.Random, x: Shape, attrs: Mapping[str, Any]) -> Any:
        return rng.choice(values)

    return draw


def permutation(rng: random.Random, x: Shape, attrs: Mapping[str, Any]) -> tuple[int, ...]:
    """A permutation of the operand's axes."""
    return tuple(rng.sample(range(len(x)), len(x)))


def flat(x: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of one axis that has all elements."""
    return (math.prod(x),)


def matrix(x: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape with all axes but the first merged, for more than two axes."""
    return (x[0], math.prod(x[1:])) if len(x) > 2 else None


def draw(
    declared: OpSpec, rng: random.Random, attrs: Mapping[str, Any] | None = None
) -> tuple[list[TensorType], Attrs] | None:
    """Small operand types, optional ones now and then left out, and complete attributes that an operator accepts.

    None where its sample rule gave up or drew operands that do not fit.
    """
    if declared.sample is None:
        return None
    most = declared.max_operands if declared.max_operands is not None else declared.min_operands + 2
    count = rng.randint(declared.min_operands, most)
    drawn = declared.sample(rng, [None] * count, attrs or {})
    if drawn is None:
        return None
    shapes, full = drawn
    types = [TensorType.of(declared.dtypes.get(i, "float32"), s) for i, s in enumerate(shapes)]
    settled = declared.complete(full)
    try:
        declared.result_types(types, settled)
    except ShapeError:
        return None
    return types, settled
