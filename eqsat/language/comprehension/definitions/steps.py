"""Ranges of indices that a subscript alone holds by a step that a caller passes: `x(s * i + at)`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eqsat.language.comprehension.definitions.trials import size_text
from eqsat.language.comprehension.extents.affine import affine
from eqsat.language.comprehension.meaning.scopes import ResolvedEquation, Scope
from eqsat.language.comprehension.text.syntax import Applied, Binary, Expression, walk
from eqsat.language.terms.dims import Dim, Sym


@dataclass(frozen=True)
class SteppedSubscript:
    """A subscript `start + step * index`, as expressions of sizes and scalars.

    A definition holds where `step` is not 0.
    """

    start: str
    step: str

    def count(self, extent: str) -> str:
        """The number of places inside an axis of so many elements, one at least, as an expression."""
        return f"((({extent} - 1 if {self.step} > 0 else 0) - {self.start}) // {self.step} + 1)"

    def end(self, count: str) -> str:
        """The place behind the last, as an expression."""
        return f"{self.start} + {self.step} * ({count} - 1) + (1 if {self.step} > 0 else -1)"


def stepped(scope: Scope, sizes: Mapping[str, str], expression: Expression, index: str) -> SteppedSubscript | None:
    """A subscript as a start and a step, both computed from sizes and scalars; None of one that is none.

    Quotients are none: those of scalars below 0 round towards 0.
    """
    parts = list(walk(expression))
    if any(isinstance(part, Applied) or (isinstance(part, Binary) and part.operator in "/%") for part in parts):
        return None
    names = {*scope.sizes, *sizes, index}
    form = affine(expression, {name: Sym.named(name) for name in names})
    if form is None or form.factors:
        return None
    start, step = _split(form.constant, index)
    texts = size_text(start, sizes), size_text(step, sizes)
    if step == 0 or texts[0] is None or texts[1] is None:
        return None
    first, by = (f"({text})" if " " in text or text[0] == "-" else text for text in texts if text is not None)
    return SteppedSubscript(first, by)


def _split(total: Dim, index: str) -> tuple[Dim, Dim]:
    """The value of a sum where an index is 0, and what it grows by with it; a power of the index stays a name."""
    start: Dim = 0
    step: Dim = 0
    for monomial, coefficient in () if isinstance(total, int) else total.terms:
        if (index, 1) in monomial:
            step = step + Sym([(tuple(one for one in monomial if one[0] != index), coefficient)])
        else:
            start = start + Sym([(monomial, coefficient)])
    return (total, 0) if isinstance(total, int) else (start, step)


def stepped_count(
    scope: Scope, sizes: Mapping[str, str], one: ResolvedEquation, index: str
) -> tuple[str, SteppedSubscript] | None:
    """The number of values of an index that one subscript of a parameter holds, and that; None of any other one.

    A definition holds where it is not below 1.
    """
    if index in one.ranges:
        return None
    held = [
        (call.name, axis, part)
        for call in (*one.reads, *one.kept)
        for axis, part in enumerate(call.arguments)
        if any(getattr(each, "name", None) == index for each in walk(part))
    ]
    if len(held) != 1:
        return None
    ((tensor, axis, part),) = held
    parameter = scope.parameters.get(tensor)
    found = None if parameter is None else stepped(scope, sizes, part, index)
    if parameter is None or found is None:
        return None
    extent = parameter.extents[axis]
    return found.count(sizes[extent] if isinstance(extent, str) else str(extent)), found
