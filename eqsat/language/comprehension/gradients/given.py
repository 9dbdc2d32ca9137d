"""Gradients that a caller writes: of the types that a function asks for, and the differences of its results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eqsat.errors import BoundsError, RangeError, ShapeError, UsageError, nearest
from eqsat.language.comprehension.functions import TensorFunction
from eqsat.language.comprehension.gradients.statements import needed
from eqsat.language.comprehension.meaning.element_types import NAMED
from eqsat.language.comprehension.meaning.resolver import resolve
from eqsat.language.comprehension.text.parser import parse
from eqsat.language.comprehension.text.printer import print_function
from eqsat.language.comprehension.text.syntax import Applied, Expression, Function, IndexEquation, rebuilt
from eqsat.language.terms import Array

#: What the name of a result begins with that is the gradient of the parameter of the rest of it.
PREFIX = "d_"
#: Draws of sizes that are tried, those that are kept, the largest size, and elements of a parameter that are looked at.
_TRIED, _KEPT, _LARGEST, _ELEMENTS = 300, 3, 5, 24
#: The step of differences in float64, what they may be off by, and where those on either side show a kink.
_STEP, _OFF, _KINK = 1e-4, 1e-5, 1e-2


@dataclass(frozen=True)
class GivenGradient:
    """A function that a caller states as the gradient of another one: of `names` among its parameters."""

    function: TensorFunction
    names: tuple[str, ...]

    def part(self, wanted: Sequence[str] = ()) -> Function:
        """The gradient in parameters, of all that there are by default; UsageError for others."""
        given = self.function.scope.function
        for name in wanted:
            if name not in self.names:
                raise UsageError(
                    f"no gradient in {name!r}",
                    where=self.function.name,
                    expected=", ".join(self.names),
                    remedy=nearest(name, self.names) or f"state {PREFIX}{name} in the gradient that is given",
                )
        if not wanted or tuple(wanted) == self.names:
            return given
        results = tuple(given.results[self.names.index(name)] for name in wanted)
        return replace(given, results=results, statements=needed(given.statements, [one.name for one in results]))


def given_gradient(function: TensorFunction, gradient: TensorFunction) -> GivenGradient:
    """A gradient by the names of its results; UsageError where its parameters or results are not those of one."""
    floats = [name for name in function.results if function.types[name].is_float]
    wanted = [*function.parameters, *floats]
    if function.scope.updated or gradient.scope.updated:
        name = (*function.scope.updated, *gradient.scope.updated)[0]
        raise UsageError(f"{name}, which is updated in place, has no gradient", where=gradient.name)
    if gradient.name == function.name:
        raise UsageError(f"a gradient named {gradient.name}", expected=f"another name than that of {function.name}")
    if len(gradient.parameters) != len(wanted):
        names = [*function.parameters, *(f"the gradient of {name}" for name in floats)]
        raise UsageError(
            f"{gradient.name} of {len(gradient.parameters)} parameters",
            where=f"the gradient of {function.name}",
            expected=f"{len(names)}: {', '.join(names)}",
        )
    for mine, theirs in zip(gradient.parameters, wanted, strict=True):
        _check_type(gradient, mine, function, theirs)
    parameters = [name for name in function.parameters if function.types[name].is_float]
    names = []
    for name in gradient.results:
        of = name.removeprefix(PREFIX)
        if not name.startswith(PREFIX) or of not in parameters:
            known = [f"{PREFIX}{one}" for one in parameters]
            raise UsageError(
                f"{name}, a result of {gradient.name}",
                where=f"the gradient of {function.name}",
                expected=", ".join(known) or "a parameter of floats",
                remedy=nearest(name, known),
            )
        _check_type(gradient, name, function, of)
        names.append(of)
    return GivenGradient(gradient, tuple(names))


def _check_type(gradient: TensorFunction, mine: str, function: TensorFunction, theirs: str) -> None:
    texts = [
        f"{one.types[name].value} of {one.scope.ranks[name]} axes"
        for one, name in ((gradient, mine), (function, theirs))
    ]
    if texts[0] != texts[1]:
        raise UsageError(
            f"{mine} is {texts[0]}", where=gradient.name, expected=f"{texts[1]}, as {theirs} of {function.name} is"
        )


def check_by_differences(
    function: TensorFunction, given: GivenGradient, arguments: Sequence[Any] | None = None
) -> None:
    """Hold a gradient against the differences of a function, both in float64; UsageError where they are apart.

    Sizes and elements are drawn, or are the arguments that a caller passes. Elements at which the differences on
    either side are apart, as at a kink, are passed over.
    """
    double, gradient = _in_double(function), _in_double(given.function)
    rng = np.random.default_rng(0)
    if arguments is not None:
        taken = _widened(function, double, arguments)
        if not _is_finite(double, taken):
            raise UsageError("arguments at which results are not finite", where=function.name)
        draws = [taken]
    else:
        draws = list(_drawn(double, rng))
    if not draws:
        raise UsageError(
            f"no small arguments are found that {function.name} takes",
            where=f"the gradient of {function.name}",
            expected="some, to hold it against differences",
            remedy="pass them: with_gradient(source, arguments=(…))",
        )
    for drawn in draws:
        _compare(double, gradient, given, drawn, rng)


def _compare(
    function: TensorFunction,
    gradient: TensorFunction,
    given: GivenGradient,
    drawn: Mapping[str, Array],
    rng: np.random.Generator,
) -> None:
    results = _listed(function(*drawn.values()))
    above = [rng.standard_normal(one.shape) for one in results if one.dtype.kind == "f"]

    def total(arguments: Mapping[str, Array]) -> float:
        made = [one for one in _listed(function(*arguments.values())) if one.dtype.kind == "f"]
        return float(sum(np.sum(one * weight) for one, weight in zip(made, above, strict=True)))

    here, shapes = total(drawn), {name: list(one.shape) for name, one in drawn.items() if one.ndim}
    for name, made in zip(given.names, _listed(gradient(*drawn.values(), *above)), strict=True):
        if made.shape != drawn[name].shape:
            raise UsageError(
                f"{PREFIX}{name} of shape {list(made.shape)}",
                where=given.function.name,
                expected=f"{list(drawn[name].shape)}, as {name} has",
            )
        size = drawn[name].size
        scale = max(1.0, float(np.abs(made).max(initial=0.0)))
        for place in rng.permutation(size)[:_ELEMENTS]:
            index = np.unravel_index(int(place), made.shape)
            sides = []
            for step in (_STEP, -_STEP):
                moved = drawn[name].copy()
                moved[index] += step
                sides.append((total({**drawn, name: moved}) - here) / step)
            slope = sum(sides) / 2
            if not abs(sides[0] - sides[1]) <= _KINK * max(scale, abs(slope)):
                continue
            if not abs(slope - made[index]) <= _OFF * max(scale, abs(slope)):
                at = ", ".join(map(str, index))
                raise UsageError(
                    f"{given.function.name} is not the gradient of {function.name} in {name}: {made[index]:.6g} at "
                    f"[{at}], where differences are {slope:.6g}",
                    where=f"arguments of shapes {shapes}",
                    expected="the gradient of what is passed for each result, summed over all results",
                )


def _drawn(function: TensorFunction, rng: np.random.Generator) -> Iterator[dict[str, Array]]:
    """Small arguments at which results are finite: positive ones, then of both signs."""
    kept = 0
    for number in range(_TRIED):
        sizes = {size: int(rng.integers(1, _LARGEST + 1)) for size in function.scope.sizes}
        drawn: dict[str, Array] = {}
        for one in function.scope.function.parameters:
            shape = tuple(sizes[extent] if isinstance(extent, str) else extent for extent in one.extents)
            dtype = NAMED[one.type]
            if dtype.is_float:
                positive = rng.uniform(0.25, 1.75, shape)
                drawn[one.name] = np.asarray(positive if kept % 2 == 0 else rng.standard_normal(shape))
            else:
                drawn[one.name] = np.asarray(rng.integers(0, 2, shape) + (not shape)).astype(dtype.numpy)
        if _is_finite(function, drawn):
            yield drawn
            kept += 1
        if kept == _KEPT or (kept and number > _TRIED // 2):
            return


def _is_finite(function: TensorFunction, drawn: Mapping[str, Array]) -> bool:
    try:
        with np.errstate(all="ignore"):
            made = _listed(function(*drawn.values()))
    except (BoundsError, RangeError, ShapeError):
        return False  # sizes, or places, that the function does not take
    floats = [one for one in made if one.dtype.kind == "f"]
    return any(one.size for one in floats) and all(bool(np.isfinite(one).all()) for one in floats)


def _widened(function: TensorFunction, double: TensorFunction, arguments: Sequence[Any]) -> dict[str, Array]:
    """The arguments of a caller's as those of the function in float64."""
    _, tensors = function.bind(arguments, {})
    return {name: np.array(tensors[name], double.types[name].numpy) for name in function.parameters}


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
