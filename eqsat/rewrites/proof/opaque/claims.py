"""Claims of index forms that proofs use, looked at on samples of each operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

import numpy as np

from eqsat.language.declaration import InferRule, OpSpec
from eqsat.language.declaration.spec import Reference
from eqsat.language.ops import spec
from eqsat.language.terms import Attrs, DType, Shape, TensorType
from eqsat.rewrites.proof.naturality.claims import (
    ACTIVATION,
    NO_ACTIVATION,
    are_near,
    computed_in_floats,
    holds_on_samples,
)
from eqsat.rewrites.proof.opaque.layout import OperatorAxes, is_opaque, layout, sizes_of
from eqsat.rewrites.proof.opaque.signatures import (
    dims_of,
    may_differ,
    refuses_ranks,
    replaced,
    takes,
    takes_several_types,
)

#: How many samples with operands are looked at that no term of a form is of.
_TRIES = 10


def follows_form(declared: OpSpec) -> bool:
    """True if an operator is seen to do what its index form says: along walked axes each place by itself, and no more.

    A result is compared with that of operands cut to one place along its walked axes, and with sums over those that it
    lacks; operands as large again along an axis make a result as large again; and what does not fit is refused.
    """
    return is_opaque(declared) and _seen(declared.name, declared.reference, declared.infer, declared.index)


@cache
def _seen(name: str, _reference: Reference, _infer: InferRule, index: str) -> bool:
    declared = replace(spec(name), index=index)
    return holds_on_samples(declared, f"form {name}", _holds_on) and _holds_with_others(declared)


def _holds_with_others(declared: OpSpec) -> bool:
    """True if operands that no term of the form is of leave all that it says of the others as it is."""
    form, most = declared.form, declared.max_operands
    assert form is not None
    if most is None or most <= len(form.terms):
        return True
    rng, seen = Random(declared.name), 0
    for _ in range(_TRIES):
        drawn = declared.drawn(rng, [None] * most, {})
        if drawn is None:
            continue
        values = np.random.default_rng(rng.randrange(1 << 30))
        arrays = [values.normal(size=dims_of(shape)) for shape in drawn[0]]
        sample = _Sample(declared, declared.complete(drawn[1]), arrays)
        if not _reads_its_places(sample, values, rng):
            return False
        seen += 1
    return seen > _TRIES // 2


def _reads_its_places(sample: _Sample, values: Any, rng: Random) -> bool:
    """True if a result at a place does not depend on operands at others, and is linear in operands as stated."""
    whole = sample.result()
    axes = sample.layout.result
    for name, size in sample.names.items():
        if not any(axis.name == name for axis in axes):
            continue
        place = rng.randrange(size)
        arrays = []
        for number, array in enumerate(sample.arrays):
            other = np.array(values.normal(size=array.shape))
            for axis, one in enumerate(sample.layout.operands[number]):
                if one.name == name:
                    kept = np.arange(array.shape[axis]) == place
                    array = np.where(kept.reshape([-1 if k == axis else 1 for k in range(array.ndim)]), array, other)
            arrays.append(array)
        changed = _Sample(sample.declared, sample.attrs, arrays).result()
        if not are_near(*(sample.taken(one, axes, name, [place]) for one in (changed, whole))):
            return False
    return not sample.layout.summed and _is_linear(sample, values)


class _Sample:
    """Operands of an operator, and their axes."""

    def __init__(self, declared: OpSpec, attrs: Attrs, arrays: Sequence[Any]) -> None:
        self.declared, self.attrs, self.arrays = declared, attrs, list(arrays)
        self.types = [TensorType(DType.FLOAT64, a.shape) for a in arrays]
        found = layout(declared, attrs, [a.ndim for a in arrays])
        if found is None:
            raise ValueError("ranks that the form does not have")
        self.layout: OperatorAxes = found
        self.sizes = sizes_of(declared, found, attrs, self.types)

    def result(self) -> Any:
        """The result that the reference makes of the operands."""
        return computed_in_floats(self.declared, self.attrs, self.arrays)

    @property
    def names(self) -> dict[str, int]:
        """The sizes of walked axes and groups by their names."""
        form = self.declared.form
        assert form is not None
        axes = [a for place in self.layout.operands.values() for a in place]
        groups = {a.group: int(self.attrs[form.sizes[a.group]]) for a in axes if a.group}
        return {a.name: int(self.sizes[a.name]) for a in axes if a.name} | groups

    def with_group(self, name: str, count: int) -> Attrs:
        """The attributes with another number of groups, where a name is that of groups."""
        form = self.declared.form
        assert form is not None
        return self.attrs | {form.sizes[name]: count} if name in form.sizes else self.attrs

    def taken(self, array: Any, axes: Sequence[Any], name: str, places: Sequence[int]) -> Any:
        """An array at some places along the axes of a name."""
        for number, axis in enumerate(axes):
            if name not in (axis.name, axis.group) or not name:
                continue
            if not axis.group:
                array = np.take(array, places, axis=number)
                continue
            size = int(self.sizes[axis.name])
            split = array.reshape(*array.shape[:number], -1, size, *array.shape[number + 1 :])
            cut = np.take(split, places, axis=number + (name == axis.name))
            array = cut.reshape(*array.shape[:number], -1, *array.shape[number + 1 :])
        return array

    def along(self, name: str, places: Sequence[int]) -> _Sample:
        """The sample at some places along the axes of a name."""
        arrays = [
            self.taken(array, self.layout.operands[place], name, places) for place, array in enumerate(self.arrays)
        ]
        return _Sample(self.declared, self.with_group(name, len(places)), arrays)


def _holds_on(declared: OpSpec, shapes: Sequence[Shape], drawn: Mapping[str, Any], rng: Random) -> bool:
    values = np.random.default_rng(rng.randrange(1 << 30))
    attrs = declared.complete(drawn)
    sample = _Sample(declared, attrs, [values.normal(size=dims_of(shape)) for shape in shapes])
    return (
        _keeps_type(sample)
        and _is_parallel(sample, rng)
        and _is_linear(sample, values)
        and _is_added(sample, values)
        and _has_activation_behind(sample)
        and _is_of_any_axes(sample, rng)
        and _refuses_others(sample)
        and (takes_several_types(declared) or not any(may_differ(declared, shapes, drawn)))
    )


def _keeps_type(sample: _Sample) -> bool:
    """True if the result has the element type of the operands, whatever it is."""
    for dtype in (DType.FLOAT16, DType.FLOAT32, DType.FLOAT64):
        types = [TensorType(dtype, one.shape) for one in sample.types]
        if [one.dtype for one in sample.declared.result_types(types, sample.attrs)] != [dtype]:
            return False
    return True


def _is_parallel(sample: _Sample, rng: Random) -> bool:
    """True if a result at a place is that of operands at that place, and one as large again of such operands."""
    whole = sample.result()
    axes = sample.layout.result
    for name, size in sample.names.items():
        if name in sample.layout.summed or not any(name in (a.name, a.group) for a in axes):
            continue
        for places in ([rng.randrange(size)], [*range(size), *range(size)], list(range(size))[::-1]):
            if not are_near(sample.along(name, places).result(), sample.taken(whole, axes, name, places)):
                return False
    return True


def _is_linear(sample: _Sample, values: Any) -> bool:
    """True if the result is linear in operands as stated, and a sum over the axes that it lacks."""
    if not sample.layout.linear:
        return True
    plain = sample.attrs | ({ACTIVATION: NO_ACTIVATION} if ACTIVATION in sample.attrs else {})
    sample = _Sample(sample.declared, plain, sample.arrays)
    whole = sample.result()
    for name in sample.layout.summed:
        parts = [sample.along(name, [place]).result() for place in range(sample.names[name])]
        if not are_near(sum(parts), whole):
            return False
        twice = sample.along(name, [*range(len(parts)), *range(len(parts))])
        if not are_near(twice.result(), 2 * whole):
            return False
    for place in sample.layout.linear:
        other = values.normal(size=sample.arrays[place].shape)
        added, apart = (
            [*sample.arrays[:place], one, *sample.arrays[place + 1 :]]
            for one in (2 * sample.arrays[place] + other, other)
        )
        both = _Sample(sample.declared, plain, added).result()
        if not are_near(both, 2 * whole + _Sample(sample.declared, plain, apart).result()):
            return False
    return True


def _is_added(sample: _Sample, values: Any) -> bool:
    """True if an operand that the form says is added to the result is."""
    form = sample.declared.form
    assert form is not None
    for place, term in enumerate(form.terms):
        if not term.added or place < len(sample.arrays) or not term.indices:
            continue
        lower = [TensorType(DType.FLOAT64, (1,) * rank) for rank in range(term.fixed)]
        mixed = [] if takes_several_types(sample.declared) else [TensorType(DType.FLOAT32, (1,) * term.fixed)]
        if any(takes(sample.declared, [*sample.types, one], sample.attrs) for one in (*lower, *mixed)):
            return False
        plain = sample.attrs | ({ACTIVATION: NO_ACTIVATION} if ACTIVATION in sample.attrs else {})
        without = _Sample(sample.declared, plain, sample.arrays).result()
        names = {(a.name, a.group): number for number, a in enumerate(sample.layout.result)}
        axes = [names[i.name, i.group] for i in term.indices if (i.name, i.group) in names]
        if len(axes) < len(term.indices):
            return False
        dims = [without.shape[axis] for axis in axes]
        added = values.normal(size=dims)
        spread = added.reshape([without.shape[k] if k in axes else 1 for k in range(without.ndim)])
        if axes != sorted(axes) or not are_near(
            _Sample(sample.declared, plain, [*sample.arrays, added]).result(), without + spread
        ):
            return False
    return True


def _has_activation_behind(sample: _Sample) -> bool:
    """True if an activation is a function of the result without one."""
    if ACTIVATION not in sample.attrs:
        return True
    plain = _Sample(sample.declared, sample.attrs | {ACTIVATION: NO_ACTIVATION}, sample.arrays).result()
    behind = _Sample(sample.declared, sample.attrs | {ACTIVATION: "relu"}, sample.arrays).result()
    return are_near(behind, np.maximum(plain, 0))


def _is_of_any_axes(sample: _Sample, rng: Random) -> bool:
    """True if it does not matter which axes an attribute names, but for those being the last ones."""
    form = sample.declared.form
    assert form is not None
    name, order = form.result.attribute, sample.layout.order
    if not name or form.result.tail:
        return True
    (array,) = sample.arrays
    perm = rng.sample(range(array.ndim), array.ndim)
    axes = tuple(perm.index(axis) for axis in order)
    attrs = sample.attrs | {name: axes if isinstance(sample.attrs[name], tuple) else axes[0]}
    turned = _Sample(sample.declared, attrs, [np.transpose(array, perm)])
    return are_near(turned.result(), np.transpose(sample.result(), perm))


def _refuses_others(sample: _Sample) -> bool:
    """True if operands of other ranks, or of sizes that do not agree, are refused."""
    declared, types = sample.declared, sample.types
    uses: dict[str, list[tuple[int, int]]] = {}
    for place, axes in sample.layout.operands.items():
        for number, axis in enumerate(axes):
            if axis.name:
                uses.setdefault(axis.name, []).append((place, number))
    for name, found in uses.items():
        for place, number in found if len({p for p, _ in found}) > 1 else ():
            dims = list(types[place].static)
            count = dims[number] // int(sample.sizes[name])
            for size in {1, int(sample.sizes[name]) + 1} - {int(sample.sizes[name])}:
                dims[number] = count * size
                if takes(declared, replaced(types, place, types[place].with_shape(tuple(dims))), sample.attrs):
                    return False
    return refuses_ranks(declared, len(types), sample.attrs)
