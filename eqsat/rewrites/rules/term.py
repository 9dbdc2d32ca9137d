"""Both sides of a rule as terms over what a match bound, and their evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.errors import ShapeError
from eqsat.language.graphs.interpret import run_node
from eqsat.language.ops import spec
from eqsat.language.terms.graph import Attrs, Node
from eqsat.language.terms.pattern import ABSENT, Bindings, Operand, Pattern, Siblings, Spread, Var, element
from eqsat.language.terms.types import TensorType
from eqsat.rewrites.rules.rule import Rule

#: Relative difference in float64 above which two results are not the same.
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Term:
    """An operator over terms and operands, typed; None for an operand left out."""

    op: str
    attrs: Attrs
    operands: tuple[Term | Operand | None, ...]
    types: tuple[TensorType, ...]

    @property
    def type(self) -> TensorType:
        """The type of the first output."""
        return self.types[0]


def expand(rule: Rule, pattern: Pattern | Spread, bindings: Bindings, made: dict[Any, Term]) -> Iterator[Any]:
    """The terms a pattern stands for, one of a spread for each element; ShapeError where one does not type.

    Equal terms are one object, kept in `made`.
    """
    if isinstance(pattern, Var):
        yield bindings.tensors[pattern.name]
    elif pattern == ABSENT:
        yield None
    elif isinstance(pattern, Spread):
        if not pattern.over and isinstance(pattern.item, Var):
            group = bindings.tensors[pattern.item.name]
            elements = group if isinstance(group, tuple) else (group,)
            yield from (elements[i] for i in rule.window(pattern, bindings))
            return
        for index in rule.window(pattern, bindings):
            yield from expand(rule, pattern.item, element(bindings, pattern.over, index), made)
    else:
        declared = spec(pattern.op)
        operands = tuple(term for o in pattern.operands for term in expand(rule, o, bindings, made))
        attrs = declared.complete(rule.attributes(pattern, bindings))
        key = (pattern.op, attrs, *map(id, operands))
        if key not in made:
            made[key] = Term(pattern.op, attrs, operands, result_types(pattern.op, attrs, types_of(operands)))
        yield made[key]


def types_of(operands: Sequence[Any]) -> list[TensorType | None]:
    """The types of operands, None for one left out."""
    return [None if o is None else o.type for o in operands]


def result_types(op: str, attrs: Attrs, operands: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
    """What an operator returns; ShapeError also where its shape rule cannot make sense of an attribute."""
    try:
        return tuple(spec(op).result_types(operands, attrs))
    except (TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
        shown = ", ".join(f"{name}={value!r}" for name, value in attrs.items())
        raise ShapeError(
            f"{op} does not take {shown}: {error}", expected="attributes of the kind it declares"
        ) from None


def left_terms(rule: Rule, bindings: Bindings) -> list[Any]:
    """The roots of the left side."""
    made: dict[Any, Term] = {}
    if isinstance(rule.left, Siblings):
        return list(expand(rule, Spread(rule.left.item, rule.left.over), bindings, made))
    return [term for app in rule.left for term in expand(rule, app, bindings, made)]


def right_terms(rule: Rule, bindings: Bindings) -> list[Any]:
    """The roots of the right side; one split stands for all roots."""
    made: dict[Any, Term] = {}
    return [term for pattern in rule.right for term in expand(rule, pattern, bindings, made)]


def values(terms: list[Any], interpretation: Any, arrays: Mapping[int, Any]) -> list[Any]:
    """All outputs of the terms in order, `arrays` giving those of the operands by identity."""
    known = {id_: [array] for id_, array in arrays.items()}
    return [array for term in terms for array in _outputs(term, interpretation, known)]


def output_types(terms: list[Any]) -> list[TensorType]:
    """The types of all outputs of the terms in order."""
    return [t for term in terms for t in getattr(term, "types", None) or (term.type,)]


def difference(left: list[Any], right: list[Any]) -> str | None:
    """How outputs in float64 differ, None where they do not.

    Where both are not finite, as after a division by zero, which of NaN and infinity they are is not compared.
    """
    for a, b in zip(left, right, strict=True):
        if a.shape != b.shape:
            return f"shapes {a.shape} and {b.shape} differ"
        if a.dtype.kind != "f":
            if not (a == b).all():
                return "elements differ"
            continue
        known = np.isfinite(a) & np.isfinite(b)
        if (np.isfinite(a) != np.isfinite(b)).any():
            return "one side is finite where the other is not"
        if known.any():
            scale = max(1.0, float(np.abs(a[known]).max()))
            error = float(np.abs(a[known] - b[known]).max()) / scale
            if error > TOLERANCE:
                return f"float64 differs by {error:.3g}"
    return None


def _outputs(term: Any, interpretation: Any, known: dict[int, list[Any]]) -> list[Any]:
    if id(term) in known:
        return known[id(term)]
    operands = [None if o is None else _outputs(o, interpretation, known)[0] for o in term.operands]
    node = Node(term.op, tuple("x" for _ in operands), tuple("y" for _ in term.types), term.attrs)
    made = known[id(term)] = run_node(interpretation, node, operands, types_of(term.operands), list(term.types))
    return made
