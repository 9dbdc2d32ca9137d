"""Rules of floats: both sides have the same bits, also of zeros with a sign, subnormal and infinite numbers and NaN.

All others are rules of real numbers: their sides round differently, or differ where numbers are not finite.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from eqsat.language.arithmetic.floats import Floats
from eqsat.language.ops import spec
from eqsat.language.terms import Bindings
from eqsat.rewrites.instances.elements import Drawn
from eqsat.rewrites.instances.extremes import replaced
from eqsat.rewrites.instances.instance import draw, evaluated, operands
from eqsat.rewrites.proof.naturality.proof import is_natural
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.rules.term import both_sides

#: What the elements of operands are drawn from: numbers of which arithmetic loses a bit, or its laws.
SPECIAL = (0.0, -0.0, 1e-45, -1e-45, 1e-39, np.inf, -np.inf, np.nan, 1.0, -1.5, 1.0 / 3.0, 3e38, -3e38)
#: How many instances are tried, and how often each with other elements.
_INSTANCES, _TIMES = 24, 8
_HALF = 0.5
#: Operators that neither round nor lose a sign, beside those that move elements or choose among them.
_EXACT = frozenset({"neg", "abs", "not_", "and_", "or_", "xor", "fill", "relu"})

Numbers = Literal["float", "real"]


def numbers_of(rule: Rule) -> Numbers:
    """The numbers of which a rule is true: "float" where both sides are seen to have the same bits, else "real".

    They have where the sides are the same operators of the same elements, or operators that round nothing, and agree in
    bits on instances with special elements.

    >>> from eqsat.rewrites.rules.parser import parse_rules
    >>> numbers_of(*parse_rules("turned: relu(transpose(x, perm=p)) => transpose(relu(x), perm=p)"))
    'float'
    """
    return "float" if (_rounds_nothing(rule) or is_natural(rule, exact=True)) and has_equal_bits(rule) else "real"


def _rounds_nothing(rule: Rule) -> bool:
    """True if all operators of a rule move elements, choose among them, or change signs."""
    return all(_is_exact(name) for name in rule.operators())


def _is_exact(name: str) -> bool:
    declared = spec(name)
    return declared.is_shipped and (declared.movement or declared.selects or name in _EXACT)


def has_equal_bits(rule: Rule, seed: int = 0) -> bool:
    """True if both sides agree in bits on instances with special elements; false where there are none."""
    rng = np.random.default_rng(seed)
    tried = 0
    for bindings in draw(rule, _INSTANCES, seed):
        for _ in range(_TIMES):
            found = _sides(rule, _with_special(bindings, rng))
            if found is None:
                continue
            tried += 1
            if not all(_same_bits(one, other) for one, other in zip(*found, strict=True)):
                return False
    return tried >= _TIMES


def _with_special(bindings: Bindings, rng: Any) -> Bindings:
    """The instance with special elements; where conditions read them, at times those of one sign, or other zeros."""
    changed: dict[int, Drawn] = {}
    for operand in operands(bindings):
        if operand.type.dtype.is_float:
            drawn = rng.choice(SPECIAL, operand.array.shape).astype(operand.array.dtype)
            signs = np.where(rng.random(operand.array.shape) < _HALF, -1.0, 1.0)
            zeros = np.where(operand.array == 0, np.copysign(operand.array, signs), operand.array)
            above = np.where(np.abs(drawn) > 0, np.abs(drawn), drawn)
            choices = [drawn, zeros, above] if operand.read else [drawn]
            array = choices[rng.integers(len(choices))].astype(operand.array.dtype)
            changed[id(operand)] = dataclasses.replace(operand, array=array, finite=bool(np.isfinite(array).all()))
    return replaced(bindings, changed)


def _sides(rule: Rule, bindings: Bindings) -> Sequence[list[Any]] | None:
    """Both sides in the arithmetic of the operands' types; None where the rule does not fire."""
    sides = both_sides(rule, bindings) if rule.refused(bindings) is None else None
    return None if sides is None else evaluated(bindings, Floats(), *sides)


def _same_bits(one: Any, other: Any) -> bool:
    """True if two arrays have equal bits; NaN of any kind are one."""
    one, other = np.asarray(one), np.asarray(other)
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if one.dtype.kind != "f":
        return bool(np.array_equal(one, other))
    same = (one == other) & (np.signbit(one) == np.signbit(other))
    return bool((same | (np.isnan(one) & np.isnan(other))).all())
