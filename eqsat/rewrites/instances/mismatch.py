"""The mismatch of the sides of a rule on an instance, and of the types that they have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.errors import GraphError, RuleError
from eqsat.language.ops import spec
from eqsat.language.terms import Bindings
from eqsat.rewrites.instances.instance import Sampler, operands
from eqsat.rewrites.rules.rule import RIGHT, Rule, applications
from eqsat.rewrites.rules.term import left_terms, output_types, right_terms

#: How many instances are looked at, and how often one is tried; about ten milliseconds in all.
INSTANCES, TRIES = 24, 100


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Why an instance refutes a rule."""

    reason: str
    instance: Bindings

    def __str__(self) -> str:
        lines = [f"{o.name}: {o.type}" + (f" = {_show(o.array)}" if o.read else "") for o in operands(self.instance)]
        attrs = [f"{k} = {v!r}" for k, v in self.instance.attrs.items()]
        return "; ".join([self.reason, *lines, *attrs])


def _show(array: Any) -> str:
    flat: Iterable[Any] = np.asarray(array).ravel()[:6].tolist()
    return "[" + ", ".join(f"{v:.4g}" if isinstance(v, float) else str(v) for v in flat) + "]"


def check_types(rule: Rule) -> None:
    """RuleError where an instance has other types on the right side than on the left, or none on the right at all.

    A right side that types on some instances alone is let pass: a rule does not fire where it does not type. What
    cannot be decided, because no instance is soon found, is left to the check of the rule.
    """
    if any(spec(app.op).sample is None for root in rule.roots for app in applications(root)):
        return
    sampler = Sampler(rule)
    drawn = [b for b in (sampler.draw(TRIES) for _ in range(INSTANCES)) if b is not None]
    drawn.sort(key=_elements)
    untyped: Mismatch | None = None
    agreed = False
    for bindings in drawn:
        left = output_types(left_terms(rule, bindings))
        try:
            right = output_types(right_terms(rule, bindings))
        except GraphError as error:
            untyped = untyped or Mismatch(f"the right side does not type: {error.what}", bindings)
            continue
        if left != right:
            raise _refusal(
                Mismatch(f"types differ: {_listed(left)} on the left, {_listed(right)} on the right", bindings)
            )
        agreed = True
    if untyped is not None and not agreed:
        raise _refusal(untyped)


def _refusal(mismatch: Mismatch) -> RuleError:
    return RuleError(
        str(mismatch),
        where=RIGHT,
        expected="outputs of the same types on both sides wherever the conditions hold",
        remedy="correct the right side, or add the condition under which the types agree",
    )


def _listed(types: Sequence[object]) -> str:
    return " and ".join(map(str, types))


def _elements(bindings: Bindings) -> int:
    return sum(o.array.size for o in operands(bindings))
