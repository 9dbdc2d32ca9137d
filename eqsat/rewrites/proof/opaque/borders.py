"""Pads of windowed operators as borders of zeros around what they read, where they are seen to be that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from random import Random
from typing import Any

import numpy as np

from eqsat.language.declaration import InferRule, OpSpec
from eqsat.language.declaration.spec import Reference
from eqsat.language.ops import spec
from eqsat.language.parametric.arrays import IndexedArray
from eqsat.language.parametric.elements import Elements
from eqsat.language.parametric.integers import NotParametric
from eqsat.language.terms import Attrs, DType, Shape, TensorType
from eqsat.rewrites.proof.naturality.claims import are_near, computed_in_floats, holds_on_samples
from eqsat.rewrites.rules.rule import Rule, applications

#: The attribute that says how many places around what an operator reads are taken for some number.
PADS = "pads"
#: The widest border of a sample.
_WIDEST = 2


@cache
def moves_pads(rule: Rule) -> bool:
    """True if a rule says what pads of a windowed operator are on its right side."""
    apps = (app for root in rule.right for app in applications(root))
    return any(PADS in app.fields and spec(app.op).windowed for app in apps)


def widths(declared: OpSpec, attrs: Attrs, rank: int) -> list[tuple[Any, Any]] | None:
    """The border along each axis that pads of an operator are; None where it has none, or one that is not zeros."""
    pads = attrs.get(PADS)
    if not declared.windowed or not isinstance(pads, tuple) or not pads or len(pads) != 2 * (rank - 2):
        return None
    switches = tuple(sorted((name, value) for name, value in attrs.items() if type(value) in (bool, str)))
    if not declared.is_shipped or not _seen_to_pad_zeros(declared.name, switches, declared.reference, declared.infer):
        return None
    if not all(pad >= 0 for pad in pads):
        raise NotParametric("pads below 0")
    return [(0, 0), (0, 0), *zip(pads[: rank - 2], pads[rank - 2 :], strict=True)]


def unpadded(
    declared: OpSpec, attrs: Attrs, types: Sequence[TensorType | None]
) -> tuple[Attrs, list[TensorType | None]]:
    """The attributes without pads, and the types of operands of which the first has these as a border."""
    first = types[0]
    border = None if first is None else widths(declared, attrs, first.rank)
    if first is None or border is None:
        return attrs, list(types)
    dims = tuple(dim + (before + behind) for dim, (before, behind) in zip(first.dims, border, strict=True))
    return Attrs({**attrs, PADS: ()}), [first.with_shape(dims), *types[1:]]


def with_border(
    elements: Elements, declared: OpSpec, attrs: Attrs, operands: Sequence[Any], types: Sequence[TensorType | None]
) -> list[Any]:
    """The operands of which the first has pads as a border of zeros."""
    border = None if types[0] is None else widths(declared, attrs, types[0].rank)
    if border is None:
        return list(operands)
    zero = IndexedArray((), lambda _: elements.algebra.real(0))
    return [np.pad(operands[0], border, constant_values=zero), *operands[1:]]


@cache
def _seen_to_pad_zeros(
    name: str, switches: tuple[tuple[str, Any], ...], _reference: Reference, _infer: InferRule
) -> bool:
    def holds(declared: OpSpec, shapes: Sequence[Shape], drawn: Mapping[str, Any], rng: Random) -> bool:
        sizes = [TensorType(DType.FLOAT64, shape).static for shape in shapes]
        space, values = len(sizes[0]) - 2, np.random.default_rng(rng.randrange(1 << 30))
        # Windows may be as wide as the sample's own pads let them.
        pads = tuple(pad + rng.randint(0, _WIDEST) for pad in drawn.get(PADS) or (0,) * (2 * space))
        plain = declared.complete({**drawn, **dict(switches), PADS: ()})
        arrays = [values.normal(size=one) for one in sizes]
        border = [(0, 0), (0, 0), *zip(pads[:space], pads[space:], strict=True)]
        one = computed_in_floats(declared, Attrs({**plain, PADS: pads}), arrays)
        other = computed_in_floats(declared, plain, [np.pad(arrays[0], border), *arrays[1:]])
        return are_near(one, other)

    return holds_on_samples(spec(name), f"pads {name} {switches}", holds)
