"""Windows of which more is known: those of one element are none, and those without pads lie inside the operand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from random import Random
from typing import Any

import numpy as np

from eqsat.language.arithmetic.floats import Floats
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
from eqsat.rewrites.proof.opaque.layout import OperatorAxes, layout, sizes_of
from eqsat.rewrites.proof.opaque.signatures import dims_of, takes
from eqsat.rewrites.rules.term import outputs

#: The attributes that say how windows are placed, with the number for which they are as if they were not there.
_PLACING: Mapping[str, int] = {"strides": 1, "pads": 0, "output_padding": 0, "kernel": 1}
_USUAL: Mapping[str, int] = {"strides": 1, "pads": 0, "output_padding": 0, "dilations": 1}
#: The largest pad, dilation and space that are looked at.
_WIDEST_PAD, _WIDEST, _WIDEST_SPACE = 4, 3, 4
#: How many samples at least have a result with what is usual left out.
_COMPARED = 8
#: How many ways to place windows are looked at for one sample, and which share of elements is 0.
_WAYS, _ZEROS = 3, 0.2


def are_single(declared: OpSpec, found: OperatorAxes, attrs: Attrs, types: Sequence[TensorType | None]) -> bool:
    """True if windows are known to be one element each, one for each element: the operator is a product of these."""
    return (
        declared.windowed
        and bool(found.linear)
        and len(types) <= len(declared.form.terms)  # type: ignore[union-attr]
        and all(_is_all(attrs[name], number) for name, number in _PLACING.items() if name in attrs)
        and all(_is_one(types[p].dims[k]) for p in found.operands if p for k in found.opaque(p))  # type: ignore[union-attr]
        and _seen(_is_product, declared.name, declared.reference, declared.infer)
    )


def lie_inside(declared: OpSpec, found: OperatorAxes, attrs: Attrs) -> bool:
    """True if windows are known to have no pads: each offset of each window reads one element, so that weights of
    the elements that it may read add up to 1."""
    return (
        declared.windowed
        and bool(found.linear)
        and _is_all(attrs.get("pads", ()), 0)
        and _seen(_keeps_constants, declared.name, declared.reference, declared.infer)
    )


def selects_by_order(declared: OpSpec, found: OperatorAxes) -> bool:
    """True if a result is an element of the only operand, or 0, chosen by nothing but the order of those it may be.

    Then a function that keeps order, and 0, may be applied before or after.
    """
    return (
        declared.selects
        and found.others == tuple(found.operands) == (0,)
        and _seen(_keeps_order, declared.name, declared.reference, declared.infer)
    )


def selects_elements(declared: OpSpec, found: OperatorAxes) -> bool:
    """True if a result is chosen by order and always an element: what keeps order without keeping 0 comes out, too."""
    return selects_by_order(declared, found) and _seen(_keeps_shifts, declared.name, declared.reference, declared.infer)


def selects_of_any_type(declared: OpSpec) -> bool:
    """True if operands of all types of numbers fit alike, and the same of their elements are chosen."""
    return declared.selects and _seen(_is_alike, declared.name, declared.reference, declared.infer)


def has_value_everywhere(declared: OpSpec) -> bool:
    """True if each result is a number whatever the pads are: windows of pads alone have a value, too."""
    return _seen(_is_finite, declared.name, declared.reference, declared.infer)


def has_usual(declared: OpSpec, name: str) -> bool:
    """True if an attribute that is left out is as if the number were written for which windows are as they are."""
    return (
        declared.is_shipped
        and name in _USUAL
        and _seen_to_have_usual(declared.name, name, declared.reference, declared.infer)
    )


@cache
def _seen_to_have_usual(name: str, attribute: str, _reference: Reference, _infer: InferRule) -> bool:
    def holds(declared: OpSpec, shapes: Sequence[Shape], drawn: Mapping[str, Any], rng: Random) -> bool:
        values = np.random.default_rng(rng.randrange(1 << 30))
        given = [values.normal(size=dims_of(shape)) for shape in shapes]
        types = [TensorType(DType.FLOAT64, one.shape) for one in given]
        count = (given[0].ndim - 2) * (2 if attribute == "pads" else 1)
        ways = [declared.complete({**drawn, attribute: one}) for one in ((), (_USUAL[attribute],) * count)]
        taken = {takes(declared, types, attrs) for attrs in ways}
        if taken == {False}:
            return True  # both are refused
        compared.append(attribute)
        return taken == {True} and np.array_equal(*(computed_in_floats(declared, attrs, given) for attrs in ways))

    compared: list[str] = []
    return holds_on_samples(spec(name), f"usual {name} {attribute}", holds) and len(compared) >= _COMPARED


def _is_all(value: Any, number: int) -> bool:
    """True if all numbers of a tuple are known to be one number, as they are of an empty one."""
    if not isinstance(value, tuple):
        return False
    return all(isinstance(one, int) and current().reduced(formula_of(one)) == number for one in value)


def _is_one(dim: Any) -> bool:
    return current().reduced(formula_of(dim)) == 1


@cache
def _seen(holds: Callable[..., bool], name: str, _reference: Reference, _infer: InferRule) -> bool:
    return holds_on_samples(spec(name), f"windows {name}", holds)


def _is_finite(declared: OpSpec, shapes: Sequence[Shape], drawn: Mapping[str, Any], rng: Random) -> bool:
    """True if results are finite, also where there are pads of more than a window, of operators that take some."""
    values = np.random.default_rng(rng.randrange(1 << 30))
    given = [values.normal(size=dims_of(shape)) for shape in shapes]
    types = [TensorType(DType.FLOAT64, one.shape) for one in given]
    count = 2 * (len(shapes[0]) - 2)
    for pads in (None, *((width,) * count for width in range(1, _WIDEST_PAD + 1))):
        attrs = declared.complete({**drawn, **({} if pads is None or "pads" not in declared.attrs else {"pads": pads})})
        if takes(declared, types, attrs) and not np.isfinite(computed_in_floats(declared, attrs, given)).all():
            return False
    return True


def _placed(declared: OpSpec, drawn: Mapping[str, Any], names: Sequence[str], count: int, rng: Random) -> Attrs:
    """The attributes with some of those that place windows as if they were not there, written out or left out."""
    plain: dict[str, Any] = {ACTIVATION: NO_ACTIVATION} if ACTIVATION in declared.attrs else {}
    for name in names:
        if name in declared.attrs:
            written = (_PLACING[name],) * (2 * count if name == "pads" else count)
            plain[name] = written if name == "kernel" or rng.random() < 1 / 2 else ()
    if "dilations" in declared.attrs and rng.random() < 1 / 2:
        plain["dilations"] = tuple(rng.randint(1, _WIDEST) for _ in range(count))
    return declared.complete({**drawn, **plain})


def _is_product(declared: OpSpec, shapes: Sequence[Shape], drawn: Mapping[str, Any], rng: Random) -> bool:
    """True if windows of one element make products of the elements at each place, whatever the space."""

    def holds(found: OperatorAxes, attrs: Attrs, arrays: Sequence[Any]) -> bool:
        whole = computed_in_floats(declared, attrs, arrays)
        space = found.opaque(0)
        if [whole.shape[k] for k in found.opaque(None)] != [arrays[0].shape[k] for k in space]:
            return False
        return are_near(whole, sums_of_products(declared, found, attrs, arrays, whole.shape, lambda at: at))

    return _holds_placed(declared, shapes, drawn, rng, tuple(_PLACING), holds)


def _keeps_constants(declared: OpSpec, shapes: Sequence[Shape], drawn: Mapping[str, Any], rng: Random) -> bool:
    """True if without pads an operand that does not vary in space gives sums over windows of products with it."""

    def holds(found: OperatorAxes, attrs: Attrs, arrays: Sequence[Any]) -> bool:
        first = arrays[0]
        for axis in found.opaque(0):
            first = np.repeat(np.take(first, [0], axis=axis), first.shape[axis], axis=axis)
        given = [first, *arrays[1:]]
        whole = computed_in_floats(declared, attrs, given)
        nowhere = (0,) * len(found.opaque(0))
        return are_near(whole, sums_of_products(declared, found, attrs, given, whole.shape, lambda _: nowhere))

    return _holds_placed(declared, shapes, drawn, rng, ("pads",), holds)


def _holds_placed(
    declared: OpSpec,
    shapes: Sequence[Shape],
    drawn: Mapping[str, Any],
    rng: Random,
    names: Sequence[str],
    holds: Callable[[OperatorAxes, Attrs, Sequence[Any]], bool],
) -> bool:
    """True if a claim holds of operands of random space, windows placed as if some attributes were not there."""
    values = np.random.default_rng(rng.randrange(1 << 30))
    count = len(shapes[0]) - 2
    for _ in range(_WAYS):
        attrs = _placed(declared, drawn, names, count, rng)
        found = layout(declared, attrs, [len(shape) for shape in shapes])
        if found is None or set(found.operands) != set(found.linear):
            return False
        dims = [list(dims_of(shape)) for shape in shapes]
        for place, own in enumerate(dims):
            for axis in found.opaque(place):
                if not place:
                    own[axis] = rng.randint(1, _WIDEST_SPACE)
                elif "kernel" in names or "strides" in names:
                    own[axis] = 1
        while not takes(declared, [TensorType(DType.FLOAT64, tuple(own)) for own in dims], attrs):
            if "strides" in names or max(dims[0]) > _WIDEST_SPACE**2:
                return False  # windows of one element fit into all there is
            for axis in found.opaque(0):
                dims[0][axis] += 1
        if not holds(found, attrs, [values.normal(size=own) for own in dims]):
            return False
    return True


def sums_of_products(
    declared: OpSpec,
    found: OperatorAxes,
    attrs: Attrs,
    arrays: Sequence[Any],
    shape: Sequence[int],
    space: Callable[[tuple[int, ...]], tuple[int, ...]],
) -> Any:
    """The sums of products of operands along what the result lacks, the first operand at the places that space has."""
    types = [TensorType(DType.FLOAT64, one.shape) for one in arrays]
    sizes = sizes_of(declared, found, attrs, types)
    others = [(place, axis) for place in found.linear if place for axis in found.opaque(place)]
    inner = [*(int(sizes[name]) for name in found.summed), *(arrays[place].shape[axis] for place, axis in others)]
    result = np.zeros(shape)
    for index in np.ndindex(*shape):
        walked: dict[str, int] = {}
        for axis, at in zip(found.result, index, strict=True):
            if axis.group:
                walked[axis.group], walked[axis.name] = divmod(at, int(sizes[axis.name]))
            elif not axis.is_opaque:
                walked[axis.name] = at
        first = space(tuple(index[k] for k in found.opaque(None)))
        free = {(0, axis): at for axis, at in zip(found.opaque(0), first, strict=True)}
        for below in np.ndindex(*inner):
            here = walked | dict(zip(found.summed, below, strict=False))
            free |= dict(zip(others, below[len(found.summed) :], strict=True))
            product = 1.0
            for place in found.linear:
                product *= arrays[place][
                    tuple(
                        free[place, number]
                        if axis.is_opaque
                        else here[axis.group] * int(sizes[axis.name]) + here[axis.name]
                        if axis.group
                        else here[axis.name]
                        for number, axis in enumerate(found.operands[place])
                    )
                ]
            result[index] += product
    return result


def _keeps_order(declared: OpSpec, shapes: Sequence[Shape], drawn: Mapping[str, Any], rng: Random) -> bool:
    """True if functions that keep order, and 0, may be applied before or after, of windows of pads alone, too."""
    return _comes_after(_ORDERLY, declared, shapes, drawn, rng)


def _keeps_shifts(declared: OpSpec, shapes: Sequence[Shape], drawn: Mapping[str, Any], rng: Random) -> bool:
    """True if numbers may be added before or after: no window is without an element."""
    return _comes_after(_SHIFTS, declared, shapes, drawn, rng)


def _is_alike(declared: OpSpec, shapes: Sequence[Shape], drawn: Mapping[str, Any], rng: Random) -> bool:
    """True if small whole numbers make the same results in every type of numbers."""
    values, attrs = np.random.default_rng(rng.randrange(1 << 30)), declared.complete(drawn)
    given = [values.integers(0, 100, dims_of(shape)) for shape in shapes]
    results = []
    for kind in NUMBERS:
        types = [TensorType(kind, one.shape) for one in given]
        if not takes(declared, types, attrs):
            return False
        made = declared.result_types(types, attrs)
        if made[0].dtype is not kind:
            return False
        operands = [array.astype(kind.numpy) for array in given]
        results.append(np.asarray(outputs(Floats(), declared.name, attrs, operands, list(types), made)[0]))
    return all(np.array_equal(one.astype(np.float64), results[0]) for one in results)


def _comes_after(
    functions: Sequence[Callable[[Any], Any]],
    declared: OpSpec,
    shapes: Sequence[Shape],
    drawn: Mapping[str, Any],
    rng: Random,
) -> bool:
    """True if functions may be applied before or after, with windows as drawn and placed in other ways."""
    values = np.random.default_rng(rng.randrange(1 << 30))
    given = [values.normal(size=dims_of(shape)) for shape in shapes]
    given[0] = np.where(values.random(given[0].shape) < _ZEROS, 0.0, given[0])
    count = given[0].ndim - 2
    ways: list[Mapping[str, Any]] = [drawn]
    if declared.windowed and "pads" in declared.attrs:
        for _ in range(_WAYS):
            pads = tuple(rng.randint(0, _WIDEST_PAD) for _ in range(2 * count))
            dilations = tuple(rng.randint(1, _WIDEST) for _ in range(count))
            ways.append({**drawn, "pads": pads, **({"dilations": dilations} if "dilations" in declared.attrs else {})})
    for way in ways:
        attrs = declared.complete(way)
        if way is not drawn and not takes(declared, [TensorType(DType.FLOAT64, one.shape) for one in given], attrs):
            continue
        plain = computed_in_floats(declared, attrs, given)
        for function in functions:
            if not np.array_equal(
                computed_in_floats(declared, attrs, [function(given[0]), *given[1:]]), function(plain)
            ):
                return False
    return True


#: Functions that keep order, and not 0.
_SHIFTS: tuple[Callable[[Any], Any], ...] = (lambda x: x + 2, lambda x: x - 3.5)
#: Types of numbers that operators on any may meet.
NUMBERS = (DType.FLOAT64, DType.FLOAT32, DType.INT8, DType.UINT8, DType.INT32, DType.INT64)
#: Functions that keep order, and 0.
_ORDERLY: tuple[Callable[[Any], Any], ...] = (
    lambda x: np.maximum(x, 0),
    lambda x: np.minimum(x, 0),
    lambda x: x**3,
    np.sign,
    np.floor,
    lambda x: np.where(x < 0, 3 * x, x / 7),
    lambda x: np.clip(x, -0.5, 0.25),
    lambda x: np.where(x > 0, x + 1, x),
    lambda x: np.where(x < 0, x - 1, x),
)
