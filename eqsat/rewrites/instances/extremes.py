"""Instances of a rule with elements that break the laws of real numbers: infinities, NaN and integers."""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from eqsat.errors import ShapeError
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.ops import spec
from eqsat.language.terms import Bindings, DType
from eqsat.rewrites.instances.elements import Drawn
from eqsat.rewrites.instances.instance import evaluated, operands
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.rules.term import both_sides

#: What is put in place of one element, and how messages call it.
_SPECIAL = ((math.inf, "an infinity"), (-math.inf, "a negative infinity"), (math.nan, "NaN"))
#: What stands in place of floats: small numbers, and those of which sums and negatives wrap around.
_SMALL = (1, 2, 3, 4, -1, -2, -3, -4)
_LIMITS = (-(1 << 63), -(1 << 63) + 1, -2, -1, 1, 2, (1 << 63) - 1)
#: Numbers of which products wrap around: the first has a square below 0, that of the third is 0, the fourth's cube is
#: the least number.
_FACTORS = (3_037_000_500, -3_037_000_500, 1 << 32, 1 << 21, -1, 1, 3)
#: Numbers without a sign, of which differences wrap around to others than those of numbers with one.
_UNSIGNED = (0, 1, 2, 3, 127, 128, 200, 255)
_KINDS = (
    (_SMALL, DType.INT64, "integers"),
    (_LIMITS, DType.INT64, "integers at their limits"),
    (_FACTORS, DType.INT64, "integers whose products wrap around"),
    (_UNSIGNED, DType.UINT8, "integers without a sign"),
)
Found = tuple[str, Bindings]


def nonfinite_mismatch(rule: Rule, bindings: Bindings) -> Found | None:
    """An instance where an infinite or NaN element is not on both sides, and why; None where none is found.

    One element of one operand at a time is replaced, so that what is found is made or lost by the rule itself: by
    ``x * 0 => 0``, ``x - x => 0``, products with an identity matrix, or a product distributed over a sum. Two
    infinities in one instance are not tried: which of NaN and infinity their sum is depends on its order, and rules
    that merely reassociate may change that.
    """
    return _differing(rule, nonfinite_instances(bindings), _alike, "infinities or NaN differ")


def _differing(
    rule: Rule, instances: Iterable[Found], same: Callable[[Any, Any], bool], difference: str
) -> Found | None:
    """The first of some instances in which outputs of the two sides are not the same, and why."""
    for name, instance in instances:
        sides = _sides(rule, instance)
        if sides is not None and not all(same(a, b) for a, b in zip(*sides, strict=True)):
            return f"with {name}, {difference}", instance
    return None


def nonfinite_instances(bindings: Bindings) -> Iterator[Found]:
    """The instance with one element that is not finite, for each operand in turn, and how to call it.

    Elements of both signs meet it, as far as nothing has looked at them.
    """
    bindings = replaced(bindings, {id(o): _both_signs(o) for o in operands(bindings)})
    for place, operand in enumerate(operands(bindings)):
        if not operand.type.dtype.is_float or not operand.array.size:
            continue
        for value, name in _SPECIAL:
            array = operand.array.copy()
            array.flat[_chance(place, array.shape) % array.size] = value
            instance = replaced(bindings, {id(operand): dataclasses.replace(operand, array=array, finite=False)})
            yield f"{name} in {operand.name}", instance


def _both_signs(operand: Drawn) -> Drawn:
    array = operand.array
    if operand.read or not operand.type.dtype.is_float or array.size < 2 or not (array > 0).all():
        return operand
    signs = np.where(np.arange(array.size) % 2, -1.0, 1.0).reshape(array.shape)
    return dataclasses.replace(operand, array=array * signs)


def integer_mismatch(rule: Rule, bindings: Bindings) -> Found | None:
    """An instance with integers in place of floats whose sides differ, and why; None where there is none.

    None as well where a reference refuses integers, as one does that calls a comprehension of floats.
    """
    instances = ((name, integer_instance(rule, bindings, numbers, kind)) for numbers, kind, name in _KINDS)
    try:
        return _differing(rule, ((n, i) for n, i in instances if i is not None), _same, "elements differ")
    except ShapeError:
        return None


def _same(a: Any, b: Any) -> bool:
    return bool(np.array_equal(a, b, equal_nan=a.dtype.kind == "f"))


def integer_instance(
    rule: Rule, bindings: Bindings, numbers: Sequence[int] = _SMALL, kind: DType = DType.INT64
) -> Bindings | None:
    """The instance with integers in place of floats; None where a condition reads elements that are none of the kind.

    None as well where an operator of the rule takes no such integers, by its ONNX schema where it has one.
    """
    if not all(_takes_integers(spec(name).onnx or "", kind) for name in rule.operators()):
        return None
    changed: dict[int, Drawn] = {}
    for place, operand in enumerate(operands(bindings)):
        if not operand.type.dtype.is_float:
            continue
        array = operand.array
        if not operand.read:
            drawn = np.random.default_rng(_chance(place, array.shape)).integers(0, len(numbers), array.shape)
            array = np.array(numbers)[drawn]
        elif (array != np.rint(array)).any() or (kind is DType.UINT8 and not ((array >= 0) & (array < 1 << 8)).all()):
            return None
        made = dataclasses.replace(operand.type, dtype=kind)
        changed[id(operand)] = dataclasses.replace(operand, type=made, array=array.astype(kind.numpy))
    return replaced(bindings, changed) if changed else None


def _sides(rule: Rule, bindings: Bindings) -> list[list[Any]] | None:
    """Both sides in float64; None where a condition refuses or a side does not type."""
    sides = both_sides(rule, bindings) if rule.refused(bindings) is None else None
    return None if sides is None else evaluated(bindings, Floats(wide=True), *sides)


def _alike(a: Any, b: Any) -> bool:
    """True if infinities and NaN are at the same places; truth values and integers must be equal."""
    if a.dtype.kind != "f":
        return bool(np.array_equal(a, b))
    a, b = (np.where(np.isfinite(x), 0.0, x) for x in (a, b))
    return bool(np.array_equal(a, b, equal_nan=True))


def replaced(bindings: Bindings, changed: dict[int, Drawn]) -> Bindings:
    """The bindings with other operands in place of those whose identities are the keys."""

    def one(thing: Any) -> Any:
        return tuple(one(t) for t in thing) if isinstance(thing, tuple) else changed.get(id(thing), thing)

    return Bindings({name: one(thing) for name, thing in bindings.tensors.items()}, dict(bindings.attrs))


def _chance(place: int, shape: tuple[int, ...]) -> int:
    """A number that looks random, the same in every run and for every name of the operand at this place."""
    return zlib.crc32(f"{place}{shape}".encode())


@cache
def _takes_integers(onnx_name: str, kind: DType) -> bool:
    """True if ONNX lets an operator's operands be of a type; those without a name of its own decide by their types."""
    from onnx import defs

    if not onnx_name or not defs.has(onnx_name):
        return True
    schema = defs.get_schema(onnx_name)
    allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    first = schema.inputs[0].type_str if schema.inputs else ""
    return first not in allowed or f"tensor({kind.value})" in allowed[first]
