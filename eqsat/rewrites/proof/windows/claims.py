"""The claim that an operator sums products over the places of its windows, looked at on samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from random import Random
from typing import Any

import numpy as np

from eqsat.language.declaration import InferRule, OpSpec
from eqsat.language.declaration.spec import Reference
from eqsat.language.ops import spec
from eqsat.language.parametric.integers import formula_of
from eqsat.language.parametric.paths import current
from eqsat.language.terms import Attrs, DType, Shape, TensorType
from eqsat.rewrites.proof.naturality.claims import (
    ACTIVATION,
    NO_ACTIVATION,
    are_near,
    computed_in_floats,
    holds_on_samples,
)
from eqsat.rewrites.proof.opaque.claims import follows_form
from eqsat.rewrites.proof.opaque.layout import OperatorAxes, layout
from eqsat.rewrites.proof.opaque.signatures import dims_of, takes
from eqsat.rewrites.proof.opaque.windows import sums_of_products

#: The attributes that place windows, all of which an operator has, with the largest number of each in a sample.
PLACING: Mapping[str, int] = {"strides": 3, "pads": 3, "dilations": 3}
#: The attribute that says how large windows are, of operators that take no filter.
KERNEL = "kernel"
#: The widest window and space of samples, and how many ways to place windows are looked at for one.
_WIDEST, _WIDEST_SPACE, _WAYS = 3, 5, 3


def sums_over_windows(declared: OpSpec, attrs: Attrs, found: OperatorAxes) -> bool:
    """True if each result is the sum over the places of a window of products of what is read there.

    With strides s, dilations d and pads p, all begins first, window h reads at its place r the element h·s + r·d - p of
    the first operand, or 0 where there is none, and the element r of the second. Without a second operand the sum is
    divided by the number of places. That this is so is looked at on samples, with the attributes that are true or false
    as they are given, and where there may be pads also with these.
    """
    space = len(found.opaque(None))
    form = declared.form
    assert form is not None
    known = {*PLACING, KERNEL, ACTIVATION, *form.sizes.values()}
    if not (
        declared.windowed
        and declared.attrs.keys() >= PLACING.keys()
        and all(name in known or type(value) is bool for name, value in attrs.items())
        and found.linear in ((0,), (0, 1))
        and (KERNEL in declared.attrs) is (found.linear == (0,))
        and set(found.operands) == {*found.linear, *found.added}
        and space > 0
        and all(len(found.opaque(place)) == space for place in found.linear)
    ):
        return False
    switches = tuple(sorted((name, value) for name, value in attrs.items() if type(value) is bool))
    return follows_form(declared) and _seen_to_sum(
        declared.name, switches, are_padded(attrs["pads"]), declared.reference, declared.infer
    )


def are_padded(pads: Sequence[Any]) -> bool:
    """True unless all pads are known to be 0."""
    return not all(is_zero(pad) for pad in pads)


def is_zero(number: Any) -> bool:
    """True of an integer that is known to be 0 on the path that is followed."""
    return current().reduced(formula_of(number)) == 0


@cache
def _seen_to_sum(
    name: str, switches: tuple[tuple[str, bool], ...], is_padded: bool, _reference: Reference, _infer: InferRule
) -> bool:
    def holds(declared: OpSpec, shapes: Sequence[Shape], drawn: Mapping[str, Any], rng: Random) -> bool:
        fixed = {**drawn, **dict(switches), **({ACTIVATION: NO_ACTIVATION} if ACTIVATION in declared.attrs else {})}
        return all(_holds_once(declared, shapes, fixed, rng, is_padded=is_padded) for _ in range(_WAYS))

    return holds_on_samples(spec(name), f"sums over windows {name} {switches} {is_padded}", holds)


def _holds_once(
    declared: OpSpec, shapes: Sequence[Shape], fixed: Mapping[str, Any], rng: Random, *, is_padded: bool
) -> bool:
    """True if the claim holds of operands of random space, with windows of random size that are placed at random."""
    space, values = len(shapes[0]) - 2, np.random.default_rng(rng.randrange(1 << 30))
    kernel = tuple(rng.randint(1, _WIDEST) for _ in range(space))
    placing: dict[str, tuple[int, ...]] = {}
    for name, most in PLACING.items():
        least, count = (0, 2 * space) if name == "pads" else (1, space)
        numbers = tuple(rng.randint(least, most) for _ in range(count))
        placing[name] = numbers if name != "pads" or is_padded else (0,) * count
    left_out = {
        name: () for name, numbers in placing.items() if rng.random() < 1 / len(PLACING) and len({*numbers}) == 1
    }
    for name in left_out:
        placing[name] = tuple(0 if name == "pads" else 1 for _ in placing[name])
    own = {KERNEL: kernel} if KERNEL in declared.attrs else {}
    if own:  # an operator without a filter takes no pads that hold a whole window
        reach = [step * (count - 1) for step, count in zip(placing["dilations"], kernel, strict=True)]
        placing["pads"] = tuple(map(min, placing["pads"], reach + reach))
    attrs = declared.complete({**fixed, **placing, **left_out, **own})
    found = layout(declared, attrs, [len(shape) for shape in shapes])
    if found is None:
        return False
    dims = [list(dims_of(shape)) for shape in shapes]
    for place in found.linear:
        for number, axis in enumerate(found.opaque(place)):
            dims[place][axis] = kernel[number] if place else rng.randint(1, _WIDEST_SPACE)
    while not takes(declared, [TensorType(DType.FLOAT64, tuple(one)) for one in dims], attrs):
        if max(dims[0]) > _WIDEST_SPACE**2:
            return False
        for axis in found.opaque(0):
            dims[0][axis] += 1
    arrays = [values.normal(size=one) for one in dims]
    whole = computed_in_floats(declared, attrs, arrays)
    return are_near(whole, _summed(declared, found, attrs, arrays, placing, kernel, whole.shape))


def _summed(
    declared: OpSpec,
    found: OperatorAxes,
    attrs: Attrs,
    arrays: Sequence[Any],
    placing: Mapping[str, Sequence[int]],
    kernel: Sequence[int],
    shape: Sequence[int],
) -> Any:
    """The sum over the places of windows, of products of what lies there."""
    first, *others = arrays
    axes, space = found.opaque(0), len(kernel)
    border = [(0, 0)] * first.ndim
    for number, axis in enumerate(axes):
        border[axis] = (placing["pads"][number], placing["pads"][space + number])
    padded, total = np.pad(first, border), np.zeros(shape)
    counts = [shape[axis] for axis in found.opaque(None)]
    for offset in np.ndindex(*kernel):
        parts = [slice(None)] * first.ndim
        for number, axis in enumerate(axes):
            begin, step = offset[number] * placing["dilations"][number], placing["strides"][number]
            parts[axis] = slice(begin, begin + (counts[number] - 1) * step + 1, step)
        here = padded[tuple(parts)]
        if [here.shape[axis] for axis in axes] != counts:
            raise ValueError("a window that reaches over what there is")
        filters = []
        for place, other in enumerate(others, 1):
            for number, axis in enumerate(found.opaque(place)):
                other = np.take(other, [offset[number]], axis=axis)
            filters.append(other)
        total = total + sums_of_products(declared, found, attrs, [here, *filters], shape, lambda at: at)
    return total if others else total / np.prod(kernel)
