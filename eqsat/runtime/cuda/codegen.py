"""Kernels from groups of operators: by the first template that takes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eqsat.runtime.cuda import contraction, pointwise, reduction, rows, window
from eqsat.runtime.cuda.expression import UnsupportedError
from eqsat.runtime.cuda.group import Group
from eqsat.runtime.cuda.source import Source

Template = Callable[[Group], "Source | None"]

#: Templates in the order they are asked; each returns None for groups that it does not take.
TEMPLATES: Sequence[Template] = (
    pointwise.generate,
    rows.generate,
    reduction.generate,
    window.generate,
    contraction.generate,
)


def generate(group: Group) -> Source | None:
    """The kernel of a group; None where no template takes it, and its operators are to be run one by one."""
    for template in TEMPLATES:
        try:
            found = template(group)
        except UnsupportedError:
            continue
        if found is not None:
            return found
    return None
