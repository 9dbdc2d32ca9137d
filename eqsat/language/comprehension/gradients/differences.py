"""Differences of the results of a function, which a gradient that a caller writes is held against."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import frexp, isfinite
from typing import Any

import numpy as np

from eqsat.errors import ComprehensionError, ShapeError, UsageError
from eqsat.language.comprehension.functions import TensorFunction
from eqsat.language.comprehension.gradients.given import PREFIX, GivenGradient
from eqsat.language.comprehension.meaning.element_types import NAMED
from eqsat.language.comprehension.meaning.resolver import resolve
from eqsat.language.comprehension.text.parser import parse
from eqsat.language.comprehension.text.printer import print_function
from eqsat.language.comprehension.text.syntax import Applied, Expression, IndexEquation, rebuilt
from eqsat.language.terms import Array, DType

#: Draws that are tried for each kind of numbers, the largest size, and elements of a parameter that are looked at.
_TRIED, _LARGEST, _ELEMENTS = 100, 5, 24
#: Kinds of numbers to draw: floats of both signs or positive ones, the most that integers are in magnitude (0 for
#: 0 and 1, which subscripts are likely to allow), and the draws that are kept where there are integers.
_KINDS = ((False, 0, 1), (True, _LARGEST, 4), (False, 127, 4))
#: The first step of differences and those after it, each half of the one before, as powers of two.
_FIRST, _STEPS = -2, 28
#: What two extrapolations may be apart, by their size, to be settled; those of a lower order before them, and the
#: difference of a far smaller step that confirms them, which is no power of two as all others are.
_SETTLED, _NEARLY, _FAR = 1e-6, 1e-3, 1 / 77
#: What a gradient may be off by: of its size, of the largest one in its parameter, and of the error of differences.
_OFF, _ROUNDING, _MARGIN = 1e-5, 1e-13, 4
#: The error of differences, by their size, at which they still tell a gradient; and the size below which they are 0.
_TOLD, _NOTHING = 0.05, 1e-6


@dataclass(frozen=True)
class _Held:
    """An element of a gradient beside the difference there, and the error of that; `weight` is the most passed."""

    name: str
    index: tuple[int, ...]
    shapes: Mapping[str, list[int]]
    made: float
    slope: float
    error: float
    weight: float


def check_by_differences(
    function: TensorFunction, given: GivenGradient, arguments: Sequence[Any] | None = None
) -> None:
    """Hold a gradient against the differences of a function, both in float64; UsageError where they are apart.

    Sizes and elements are drawn, or are the arguments that a caller passes. Elements at which differences do not
    settle, as at a kink, are passed over; UsageError where those are all of a parameter.
    """
    double, gradient = _in_double(function), _in_double(given.function)
    rng = np.random.default_rng(0)
    draws = list(_drawn(double, rng)) if arguments is None else [_passed(function, double, arguments)]
    if not draws:
        raise UsageError(
            f"no small arguments are found that {function.name} takes",
            where=f"the gradient of {function.name}",
            expected="some, to hold it against differences",
            remedy="pass them: with_gradient(source, arguments=(…))",
        )
    held = [one for drawn in draws for one in _held(double, gradient, given, drawn, rng)]
    for name in given.names:
        _judge(function, given, name, [one for one in held if one.name == name])


def _judge(function: TensorFunction, given: GivenGradient, name: str, held: Sequence[_Held]) -> None:
    """Compare the elements of a gradient in one parameter, each by its own size."""
    told = 0
    largest = max((abs(one.slope) for one in held), default=0.0)
    for one in held:
        # What sums round off, in the gradient too; where no result changes, that of what is passed for it.
        error = _MARGIN * one.error + _ROUNDING * (largest or one.weight)
        if not isfinite(one.made) or abs(one.slope - one.made) > _OFF * abs(one.slope) + error:
            at = ", ".join(map(str, one.index))
            raise UsageError(
                f"{given.function.name} is not the gradient of {function.name} in {name}: {one.made:.6g} at "
                f"[{at}], where differences are {one.slope:.6g}",
                where=f"arguments of shapes {one.shapes}",
                expected="the gradient of what is passed for each result, summed over all results",
            )
        told += error <= _TOLD * max(abs(one.slope), abs(one.made), _NOTHING * one.weight)
    if not told:
        raise UsageError(
            f"no element of {PREFIX}{name} could be compared with differences",
            where=f"the gradient of {function.name}",
            expected=f"arguments at which {function.name} is smooth in {name}, and changes by more than rounding",
            remedy="pass others: with_gradient(source, arguments=(…))",
        )


def _held(
    function: TensorFunction,
    gradient: TensorFunction,
    given: GivenGradient,
    drawn: Mapping[str, Array],
    rng: np.random.Generator,
) -> Iterator[_Held]:
    """The elements of a gradient at which the differences of a function settle."""
    results = [one for one in _listed(function(*drawn.values())) if one.dtype.kind == "f"]
    # Each element is weighed by its size, so that the rounding of a large one hides no other.
    above = [np.asarray(rng.standard_normal(one.shape) / np.maximum(np.abs(one), 1)) for one in results]
    weights, shapes = _joined(above), {name: list(one.shape) for name, one in drawn.items() if one.ndim}
    for name, made in zip(given.names, _listed(gradient(*drawn.values(), *above)), strict=True):
        if made.shape != drawn[name].shape:
            raise UsageError(
                f"{PREFIX}{name} of shape {list(made.shape)}",
                where=given.function.name,
                expected=f"{list(drawn[name].shape)}, as {name} has",
            )
        for place in rng.permutation(made.size)[:_ELEMENTS]:
            index = tuple(int(one) for one in np.unravel_index(int(place), made.shape))
            slope = _slope(_along(function, drawn, name, index), float(drawn[name][index]), weights)
            if slope is not None:
                weight = float(np.abs(weights).max(initial=0))
                yield _Held(name, index, shapes, float(made[index]), *slope, weight)


def _along(
    function: TensorFunction, drawn: Mapping[str, Array], name: str, index: tuple[int, ...]
) -> Callable[[float], Array | None]:
    """The results of a function by the value of one element; None where they are not finite, or it takes none."""

    def results(value: float) -> Array | None:
        moved = drawn[name].copy()
        moved[index] = value
        try:
            made = _joined(_listed(function(*{**drawn, name: moved}.values())))
        except (ComprehensionError, ShapeError):
            return None
        return made if bool(np.isfinite(made).all()) else None

    return results


def _slope(results: Callable[[float], Array | None], here: float, weights: Array) -> tuple[float, float] | None:
    """The derivative of a weighted sum, and what it may be off by; None where differences do not settle.

    Differences of ever smaller steps are extrapolated to a step of 0 (Richardson), until that changes no more. On
    either side of a kink they stay apart; elsewhere those are apart by less with each step. A far smaller step tells
    a slope from what a function that is faster than the steps repeats at each of them.
    """
    middle = results(here)
    if middle is None:
        return None

    def on_sides(step: float) -> tuple[float, float, Array] | None:
        ends = here + step, here - step
        high, low = map(results, ends)
        if high is None or low is None or here in ends:
            return None
        # Element by element, before the sum, which a large one would otherwise round.
        up = float(np.sum(weights * (high - middle))) / (ends[0] - here)
        down = float(np.sum(weights * (middle - low))) / (here - ends[1])
        return up, down, np.maximum(np.maximum(np.abs(high), np.abs(low)), np.abs(middle))

    central: list[float] = []
    sides: list[float] = []
    exponent = frexp(here)[1]
    first = max(exponent, 0) + _FIRST
    for power in range(first, first - _STEPS - min(max(-exponent, 0), _STEPS), -1):
        found = on_sides(2.0**power)
        if found is None:
            central, sides = [], []
            continue
        up, down, most = found
        central, sides = [*central[-3:], (up + down) / 2], [*sides[-3:], up - down]
        if len(central) < 4:
            continue
        rounding = float(np.sum(np.abs(weights) * most)) * float(np.finfo(np.float64).eps) / 2.0**power
        fourth = [(4 * b - a) / 3 for a, b in pairwise(central)]
        before, value = ((16 * b - a) / 15 for a, b in pairwise(fourth))
        bends = [abs(2 * b - a) for a, b in pairwise(sides)]
        off, noise = abs(value - before), 8 * rounding
        settled = off <= max(_SETTLED * abs(value), noise)
        settled = settled and abs(fourth[2] - fourth[1]) <= max(_NEARLY * abs(value), noise)
        is_smooth = bends[2] <= max(_SETTLED * abs(value), noise)
        if settled and (is_smooth or 4 * bends[2] <= 2 * bends[1] <= bends[0]):
            near = on_sides(2.0**power * _FAR)
            if near is not None and abs(sum(near[:2]) / 2 - value) <= _NEARLY * abs(value) + (off + noise) / _FAR:
                return value, off + rounding
    return None


def _drawn(function: TensorFunction, rng: np.random.Generator) -> Iterator[dict[str, Array]]:
    """Small arguments at which results are finite, of each kind of numbers."""
    parameters = function.scope.function.parameters
    is_float = all(NAMED[one.type].is_float for one in parameters)
    for both, most, wanted in _KINDS:
        left = 1 if is_float else wanted
        for number in range(_TRIED):
            sizes = {size: int(rng.integers(1, _LARGEST + 1)) for size in function.scope.sizes}
            drawn: dict[str, Array] = {}
            for place, one in enumerate(parameters):
                shape = tuple(sizes[extent] if isinstance(extent, str) else extent for extent in one.extents)
                dtype = NAMED[one.type]
                if dtype.is_float:
                    made = rng.standard_normal(shape) if both else rng.uniform(0.25, 1.75, shape)
                    drawn[one.name] = np.asarray(made)
                else:
                    # Few draws are kept of a scalar: they take turns, in each order with those of others.
                    turn = -1 if number >> place & 1 else 1
                    drawn[one.name] = _integers(rng, shape, dtype, most, turn)
            if _is_finite(function, drawn):
                yield drawn
                left -= 1
            if not left:
                break


def _integers(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, most: int, turn: int) -> Array:
    """Integers up to a magnitude, small ones more often, as more places allow them; for 0, 0 and 1, scalars 1 and 2.

    `turn` is the sign of a scalar.
    """
    if not most or dtype is DType.BOOL:
        made = rng.integers(0, 2, shape) + (not shape and dtype is not DType.BOOL)
    else:
        small = np.floor(np.exp2(rng.uniform(0, np.log2(most + 1), shape))) - 1
        made = np.where(rng.integers(0, 2, shape), small, rng.integers(0, most + 1, shape))
        if most > _LARGEST and np.iinfo(dtype.numpy).min < 0:
            made = made * (rng.choice([-1, 1], shape) if shape else turn)
    return np.asarray(made).astype(dtype.numpy)


def _is_finite(function: TensorFunction, drawn: Mapping[str, Array]) -> bool:
    try:
        made = _listed(function(*drawn.values()))
    except (ComprehensionError, ShapeError):
        return False  # sizes, places or divisors that the function does not take
    floats = [one for one in made if one.dtype.kind == "f"]
    return (not floats or any(one.size for one in floats)) and all(bool(np.isfinite(one).all()) for one in floats)


def _passed(function: TensorFunction, double: TensorFunction, arguments: Any) -> dict[str, Array]:
    """The arguments of a caller's as those of the function in float64; UsageError for those that tell nothing."""
    names = ", ".join(function.parameters)
    if isinstance(arguments, str | bytes) or not isinstance(arguments, Sequence):
        raise UsageError(
            f"arguments={arguments!r:.40}", where=function.name, expected=f"a tuple of {names}", remedy="arguments=(…,)"
        )
    _, tensors = function.bind(arguments, {})
    taken = {name: np.array(tensors[name], double.types[name].numpy) for name in function.parameters}
    results = _joined(_listed(double(*taken.values())))
    if not results.size and any(function.types[name].is_float for name in function.results):
        raise UsageError(
            "arguments at which results have no elements",
            where=function.name,
            expected=f"{names} of sizes above 0",
            remedy="pass others: with_gradient(source, arguments=(…))",
        )
    if not np.isfinite(results).all():
        raise UsageError(
            "arguments at which results are not finite",
            where=function.name,
            expected=f"{names} inside of what the function is defined for",
            remedy="pass others: with_gradient(source, arguments=(…))",
        )
    return taken


def _in_double(function: TensorFunction) -> TensorFunction:
    """A function that computes in float64 what another one does with floats of any type."""
    floats = {name for name, dtype in NAMED.items() if dtype.is_float}

    def wide(type_: Any) -> Any:
        return "double" if type_ in floats else type_

    def change(one: Expression) -> Expression:
        made = rebuilt(one, change)
        return replace(made, name="double") if isinstance(made, Applied) and made.name in floats else made

    def changed(one: IndexEquation) -> IndexEquation:
        return replace(one, value=change(one.value))

    given = function.scope.function
    made = replace(
        given,
        parameters=tuple(replace(one, type=wide(one.type)) for one in given.parameters),
        results=tuple(replace(one, type=wide(one.type)) for one in given.results),
        statements=tuple(map(changed, given.statements)),
    )
    source = print_function(made)
    (read,) = parse(source)
    return TensorFunction(resolve(read, source))


def _listed(made: Any) -> list[Array]:
    return [np.asarray(one) for one in (made if isinstance(made, tuple) else (made,))]


def _joined(results: Sequence[Array]) -> Array:
    """The elements of all results of floats, in more than float64 where the machine has that."""
    floats = [one.reshape(-1).astype(np.longdouble) for one in results if one.dtype.kind == "f"]
    return np.concatenate(floats) if floats else np.zeros(0, np.longdouble)
