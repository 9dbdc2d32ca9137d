"""Instances of a rule with elements that break the laws of real numbers: infinities, NaN and integers."""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

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
    """An instance with integers in place of floats whose sides differ, and why; None where there is none."""
    named = ((_SMALL, "integers"), (_LIMITS, "integers at their limits"))
    instances = ((name, integer_instance(rule, bindings, numbers)) for numbers, name in named)
    return _differing(rule, ((n, i) for n, i in instances if i is not None), _same, "elements differ")


def _same(a: Any, b: Any) -> bool:
    return bool(np.array_equal(a, b, equal_nan=a.dtype.kind == "f"))


def integer_instance(rule: Rule, bindings: Bindings, numbers: Sequence[int] = _SMALL) -> Bindings | None:
    """The instance with integers in place of floats; None where a condition reads elements that are no integers.

    None as well where an operator of the rule takes no integers, by its ONNX schema where it has one.
    """
    if not all(_takes_integers(spec(name).onnx or "") for name in rule.operators()):
        return None
    changed: dict[int, Drawn] = {}
    for place, operand in enumerate(operands(bindings)):
        if not operand.type.dtype.is_float:
            continue
        array = operand.array
        if not operand.read:
            drawn = np.random.default_rng(_chance(place, array.shape)).integers(0, len(numbers), array.shape)
            array = np.array(numbers)[drawn]
        elif (array != np.rint(array)).any():
            return None
        kind = dataclasses.replace(operand.type, dtype=DType.INT64)
        changed[id(operand)] = dataclasses.replace(operand, type=kind, array=array.astype(np.int64))
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
def _takes_integers(onnx_name: str) -> bool:
    """True if ONNX lets an operator's operands be int64; operators without a name of its own decide by their types."""
    from onnx import defs

    if not onnx_name or not defs.has(onnx_name):
        return True
    schema = defs.get_schema(onnx_name)
    allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    first = schema.inputs[0].type_str if schema.inputs else ""
    return first not in allowed or "tensor(int64)" in allowed[first]
