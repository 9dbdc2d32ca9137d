"""Gradients that a caller writes: of the types that a function asks for, in the parameters that they name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from eqsat.errors import UsageError, nearest
from eqsat.language.comprehension.functions import TensorFunction
from eqsat.language.comprehension.gradients.statements import needed
from eqsat.language.comprehension.text.syntax import Function

#: What the name of a result begins with that is the gradient of the parameter of the rest of it.
PREFIX = "d_"


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
        wanted = tuple(dict.fromkeys(wanted))
        if not wanted or wanted == self.names:
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
