"""Proofs that both sides of a rule have the same operators of elements of the same places, whatever the shapes.

An operator that copies elements takes each from a place that its attributes and the shapes of its operands say,
whatever the elements are: `relu(transpose(x, perm=p))` and `transpose(relu(x), perm=p)` have relu of the same element
of x at every index, of every shape. No rank and no size occurs in such a proof, so that it holds for all. That
operators do act on single elements, or copy them, is what their declarations say; those of shipped ones are tested
against proofs along paths, so that only these are followed.
"""

from __future__ import annotations

from eqsat.language.ops import spec
from eqsat.language.terms import App, Pattern, Siblings, Spread, Var
from eqsat.language.terms.pattern import ABSENT as LEFT_OUT
from eqsat.language.terms.pattern import Expression
from eqsat.rewrites.conditions.expression import compiled
from eqsat.rewrites.proof.naturality.claims import takes_single_parameters
from eqsat.rewrites.proof.naturality.elements import ABSENT
from eqsat.rewrites.proof.naturality.statements import Atom, ShapeStatements, member
from eqsat.rewrites.proof.naturality.values import Attributes, IndexedValue, Operations, Unfollowed
from eqsat.rewrites.rules.rule import Rule


def is_natural(rule: Rule, *, exact: bool = False) -> bool:
    """True if both sides are shown to be the same operators on single elements of the same places.

    An `exact` proof takes no operator for linear, and no function for one that keeps order: floats do not.

    >>> from eqsat.rewrites.rules.parser import parse_rules
    >>> (rule,) = parse_rules("turned: relu(transpose(x, perm=p)) => transpose(relu(x), perm=p)")
    >>> is_natural(rule)
    True
    """
    if isinstance(rule.left, Siblings) or rule.parts or len(rule.left) != len(rule.right):
        return False
    walk = _Walk(rule, exact=exact)
    try:
        left = [walk.value(root) for root in rule.left]
        walk.operations.is_left = False
        right = [walk.value(root) for root in rule.right]
    except Unfollowed:
        return False
    return all(walk.operations.are_equal(one, other) for one, other in zip(left, right, strict=True))


class _Walk:
    """A walk over both sides of a rule, which gives the value of each pattern."""

    def __init__(self, rule: Rule, *, exact: bool) -> None:
        self._statements = ShapeStatements(rule)
        self.operations = Operations(self._statements, exact=exact)
        for root in rule.roots:
            self._note_steps(root)

    def value(self, pattern: Pattern | Spread, loop: dict[str, str] | None = None) -> IndexedValue:
        """The value of a pattern, whose variables of a loop are members of sequences."""
        loop = loop or {}
        if isinstance(pattern, Spread):
            return self._spread(pattern)
        if isinstance(pattern, Var):
            return self._variable(pattern.name, loop)
        if pattern == LEFT_OUT:
            return IndexedValue(frozenset(), None, ABSENT)
        declared = spec(pattern.op)
        if declared.random or not declared.is_shipped or pattern.op == "split":
            raise Unfollowed
        operands = [self.value(operand, loop) for operand in pattern.operands]
        attributes = _attributes(pattern, loop)
        if pattern.op == "fill":
            return self.operations.filled(attributes)
        if declared.pointwise:
            return self.operations.on_each(declared, attributes, operands)
        if declared.movement:
            return self.operations.moved(declared, attributes, operands)
        if takes_single_parameters(declared):
            return self.operations.with_single_parameters(declared, attributes, operands)
        made = self.operations.reduced(declared, attributes, operands)
        plain = not pattern.fields and pattern.record is None
        if plain and all(isinstance(one, Var) and one.name not in loop for one in pattern.operands):
            names = ", ".join(one.name for one in pattern.operands if isinstance(one, Var))
            self.operations.name_result(made, f"{pattern.op}({names})")
        return made

    def _variable(self, name: str, loop: dict[str, str]) -> IndexedValue:
        if name in loop:
            each: Atom = member(loop[name])
            return IndexedValue(frozenset({each}), ("type", each), ("of", each))
        kind = "number" if name in self._statements.uniform else "of"
        return IndexedValue(frozenset({name}), ("type", name), (kind, name))

    def _spread(self, spread: Spread) -> IndexedValue:
        if spread.window is not None:
            raise Unfollowed
        over = dict(spread.over)
        if len(over) != len(spread.over):
            raise Unfollowed
        if isinstance(spread.item, Var) and not over:
            over = {spread.item.name: spread.item.name}
        one = self.value(spread.item, over)
        counts = {self._statements.counts.of(sequence) for sequence in over.values()}
        if len(counts) != 1:
            raise Unfollowed
        return IndexedValue(one.shape, one.dtype, one.element, ("as many as", counts.pop()))

    def _note_steps(self, app: App) -> None:
        """Note that sequences which the left side goes through in step are as long as each other."""
        for operand in app.operands:
            inner: Pattern | Spread = operand
            if isinstance(inner, Spread):
                sequences = [sequence for _, sequence in inner.over]
                for other in sequences[1:]:
                    self._statements.counts.join(sequences[0], other)
                inner = inner.item
            if isinstance(inner, App):
                self._note_steps(inner)


def _attributes(app: App, loop: dict[str, str]) -> Attributes:
    texts = []
    for name, field in app.fields.items():
        if not isinstance(field, Expression) or loop.keys() & set(compiled(field).names):
            raise Unfollowed
        texts.append((name, field.text))
    if app.record in loop:
        raise Unfollowed
    return Attributes(tuple(sorted(texts)), app.record)
