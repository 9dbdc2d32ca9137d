"""The views that operators make of views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eqsat.language.declaration.symbolic import at_least
from eqsat.language.ops import OPS
from eqsat.language.terms.dims import Dim, Sym, polynomial_quotient
from eqsat.rewrites.theories.contractions import UnreadError
from eqsat.rewrites.theories.views.naming import size_text
from eqsat.rewrites.theories.views.pieces import PiecewiseView

#: Operators whose results are elements of their operands.
VIEWS = frozenset({"reshape", "transpose", "slice", "expand", "tile", "gather", "gather_nd", "pad", "concat"})
#: Those that read indices.
GATHERS = frozenset({"gather", "gather_nd"})


def view_of(op: str, views: Sequence[PiecewiseView], fields: Mapping[str, Any]) -> PiecewiseView:
    """The view that an operator makes of others, but for one that reads indices; UnreadError for what is none."""
    if not views:
        raise UnreadError
    x = views[0]
    match op:
        case "transpose":
            return x.transposed(fields["perm"])
        case "reshape":
            return x.reshaped(fields["shape"])
        case "expand":
            return x.expanded(fields["shape"])
        case "tile":
            return x.tiled(fields["repeats"])
        case "pad" if fields["mode"] == "constant":
            return x.padded(fields["pads"], fields["value"])
        case "concat":
            return PiecewiseView.joined(views, fields["axis"] % len(x.axes))
        case "slice":
            steps = fields["steps"] or (1,) * len(fields["axes"])
            for axis, *bounds in zip(fields["axes"], fields["starts"], fields["ends"], steps, strict=True):
                x = x.sliced(axis % len(x.axes), *_kept(x.shape[axis], *bounds))
            return x
    if is_of_elements(op) and x.rest is None:
        return x.mapped(lambda operand: f"{op}({', '.join([operand, *written_fields(fields)])})")
    raise UnreadError


def is_of_elements(op: str) -> bool:
    """True for an operator that computes each element of its result from the one of its operand there."""
    declared = OPS.get(op)
    return declared is not None and declared.pointwise and declared.max_operands == 1 and not declared.random


def written_fields(fields: Mapping[str, Any]) -> list[str]:
    """Attributes as rules write them; ValueError where one is no literal and no size."""
    return [f"{name}={_text(value)}" for name, value in fields.items()]


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({''.join(f'{_text(one)}, ' for one in value)})"
    if isinstance(value, Sym):
        return size_text(value)
    if value is not None and not isinstance(value, (bool, int, float, str)):
        raise ValueError(f"{value!r} is no literal")
    return repr(value).replace("inf", "1e999") if isinstance(value, float) else repr(value)


def _kept(size: Dim, start: Dim, end: Dim, step: int) -> tuple[Dim, Dim, int]:
    """The first place that a slice takes, how many there are, and the step; there has to be one."""
    if isinstance(size, int) and isinstance(start, int) and isinstance(end, int):
        kept = range(size)[start : None if end < 0 and step < 0 else end : step]
        if not kept or end < -1 or (end < 0 and step > 0) or start < 0:
            raise UnreadError
        return kept[0], len(kept), step if len(kept) > 1 else 1
    if step == -1 and end == -1 and start == size - 1:
        return start, size, step
    end = size if at_least(end, size) else end
    if step == 1 and start != end and all(at_least(*pair) for pair in ((start, 0), (end, start), (size, end))):
        return start, end - start, 1
    count = polynomial_quotient(size, step) if step > 1 and end == size else None
    if count is None or not (at_least(start, 0) and at_least(step - 1, start)):
        raise UnreadError
    return start, count, step
