"""Updates in place: targets that are read where they are written, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable

from eqsat.errors import ComprehensionError, UpdateError
from eqsat.language.comprehension.meaning.scopes import ResolvedEquation
from eqsat.language.comprehension.text.syntax import Applied, Expression, Name, Position, walk

#: An error of a kind at a position: the fault, what was expected, the remedy.
Fault = Callable[[type[ComprehensionError], str, Position, str, str], ComprehensionError]
_REMEDY = "read a copy: define a tensor of another name first"


def check_in_place(
    resolved: ResolvedEquation,
    is_index: Callable[[Expression], bool],
    read: Callable[[Expression], Applied | None],
    fault: Fault,
) -> None:
    """UpdateError for a target that is read elsewhere than where it is written, or along an axis that is reduced."""
    target = resolved.statement.target
    for call in (*resolved.reads, *resolved.kept):
        for part in (part for argument in call.arguments for part in walk(argument)):
            inner = read(part)
            if inner is not None and inner.name == target:
                what = f"a subscript that depends on {target}, which is being defined"
                raise fault(UpdateError, what, inner.place, "subscripts of other tensors", _REMEDY)
        if call.name != target:
            continue
        names = [one.name if isinstance(one, Name) and is_index(one) else "" for one in call.arguments]
        pairs = zip(names, resolved.indices, strict=True)
        own = all(name == index or name in resolved.reduced for name, index in pairs)
        if not own or len(set(names)) != len(names):
            what = f"{target} is read at other elements than those it is written at"
            expected = f"{resolved.statement.element}, or an index that is reduced in place of one of these"
            raise fault(UpdateError, what, call.place, expected, _REMEDY)
