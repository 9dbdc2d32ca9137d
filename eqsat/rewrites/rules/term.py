"""Both sides of a rule as terms over the bindings of a match, and their evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.errors import GraphError, ShapeError
from eqsat.language.declaration import OpSpec
from eqsat.language.graphs.interpret import Interpretation, run_node
from eqsat.language.ops import spec
from eqsat.language.terms import Attrs, Node, TensorType
from eqsat.language.terms.instantiation import instantiate_all
from eqsat.language.terms.pattern import App, Bindings, Operand, Spread, Var, element, spread_roots
from eqsat.rewrites.conditions.expression import Typing, Undefined
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


class OverBindings:
    """The part of a target of instantiation that reads concrete bindings: operands stand for themselves."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule

    def variable(self, name: str, bindings: Bindings) -> Any:
        """The operand that a variable is bound to."""
        return bindings.tensors[name]

    def members(self, spread: Spread, bindings: Bindings) -> list[Any]:
        """The operands of a sequence that a spread takes."""
        group = bindings.tensors[spread.item.name] if isinstance(spread.item, Var) else ()
        return [group[i] if isinstance(group, tuple) else group for i in self.rule.window(spread, bindings)]

    def elements(self, spread: Spread, bindings: Bindings) -> Iterator[Bindings]:
        """The bindings inside a loop, element by element."""
        return (element(bindings, spread.over, index) for index in self.rule.window(spread, bindings))

    def absent(self) -> Any:
        """None for an operand left out."""
        return None


class Terms(OverBindings):
    """A maker of typed terms of a rule's patterns, equal ones one object; ShapeError where one does not type."""

    def __init__(self, rule: Rule, typing: Typing | None = None) -> None:
        super().__init__(rule)
        self._typing = typing or result_types
        self._made: dict[Any, Term] = {}

    def apply(self, app: App, operands: Sequence[Any], bindings: Bindings) -> Term:
        """The term of an operator."""
        attrs = spec(app.op).complete(self.rule.attributes(app, bindings))
        key = (app.op, attrs, *map(id, operands))
        if key not in self._made:
            types = self._typing(app.op, attrs, types_of(operands))
            self._made[key] = Term(app.op, attrs, tuple(operands), types)
        return self._made[key]


def types_of(operands: Sequence[Any]) -> list[TensorType | None]:
    """The types of operands, None for one left out."""
    return [None if o is None else o.type for o in operands]


def result_types(
    op: str, attrs: Attrs, operands: Sequence[TensorType | None], declared: OpSpec | None = None
) -> tuple[TensorType, ...]:
    """The types that an operator returns; ShapeError also where its shape rule cannot make sense of an attribute.

    The shape rule is that of another declaration of the operator where one is given.
    """
    try:
        return tuple((declared or spec(op)).result_types(operands, attrs))
    except (TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
        shown = ", ".join(f"{name}={value!r}" for name, value in attrs.items())
        raise ShapeError(
            f"{op} does not take {shown}: {error}", expected="attributes of the kind it declares"
        ) from None


def outputs(
    interpretation: Interpretation,
    op: str,
    attrs: Attrs,
    operands: Sequence[Any],
    types: Sequence[TensorType | None],
    results: Sequence[TensorType],
    declared: OpSpec | None = None,
) -> list[Any]:
    """The outputs of an operator by its reference, or that of another declaration of it, in an interpretation."""
    result = (declared or spec(op)).reference(interpretation.namespace(list(types), list(results)), *operands, **attrs)
    arrays = list(result) if isinstance(result, tuple) else [result]
    return [interpretation.finish(array, type) for array, type in zip(arrays, results, strict=True)]


def left_terms(rule: Rule, bindings: Bindings) -> list[Any]:
    """The roots of the left side."""
    return instantiate_all(spread_roots(rule.left), bindings, Terms(rule))


def typed_left(rule: Rule, bindings: Bindings) -> list[Any] | None:
    """The roots of the left side; None where it does not type, or divides by a number that no graph has there."""
    try:
        return left_terms(rule, bindings)
    except (GraphError, ArithmeticError):
        return None


def right_terms(rule: Rule, bindings: Bindings, typing: Typing | None = None) -> list[Any]:
    """The roots of the right side, by another rule for result types where one is given; one split stands for all."""
    return instantiate_all(rule.right, bindings, Terms(rule, typing))


def both_sides(rule: Rule, bindings: Bindings) -> tuple[list[Any], list[Any]] | None:
    """The roots of both sides; None where one does not type, or their types differ."""
    try:
        left, right = left_terms(rule, bindings), right_terms(rule, bindings)
    except GraphError:
        return None
    return (left, right) if output_types(left) == output_types(right) else None


def is_defined(rule: Rule, bindings: Bindings) -> bool:
    """True if the right side's attributes have values; whether it types is for a check to say."""
    try:
        right_terms(rule, bindings)
    except Undefined:
        return False
    except GraphError:
        return True
    return True


def values(terms: list[Any], interpretation: Any, arrays: Mapping[int, Any]) -> list[Any]:
    """All outputs of the terms in order, `arrays` giving those of the operands by identity."""
    known = {id_: [array] for id_, array in arrays.items()}
    return [array for term in terms for array in _outputs(term, interpretation, known)]


def distinct(terms: Iterable[Any]) -> Iterable[Any]:
    """The terms of a side and in them, each once; bound operands as often as they are read."""
    pending, seen = list(terms), set[int]()
    while pending:
        term = pending.pop()
        if term is None or id(term) in seen:
            continue
        if isinstance(term, Term):
            seen.add(id(term))
            pending += term.operands
        yield term


def output_types(terms: Iterable[Any]) -> list[TensorType]:
    """The types of all outputs of the terms in order."""
    return [t for term in terms for t in getattr(term, "types", None) or (term.type,)]


def difference(left: list[Any], right: list[Any]) -> str | None:
    """The difference between outputs in float64, None where there is none.

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
    arrays = known[id(term)] = run_node(interpretation, node, operands, types_of(term.operands), list(term.types))
    return arrays
