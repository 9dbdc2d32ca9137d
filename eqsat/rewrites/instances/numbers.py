"""Instances of equations with numbers: what stands beside a number is of any rank.

Operands are drawn to fit those that are known, and what is beside a scalar would be a scalar as well. So a tensor is
drawn in its place, and left out of the instance: a scalar fits wherever a tensor does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from eqsat.errors import RuleError
from eqsat.language.terms.pattern import App, Bindings, Pattern, Spread, Var
from eqsat.rewrites.instances.instance import Sampler
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.rules.term import is_defined, typed_left


def numberless(rule: Rule) -> Rule:
    """The left side and the conditions of a rule with a variable, called as the number, for each of its numbers."""
    if not isinstance(rule.left, tuple):
        return rule
    left = tuple(App(a.op, tuple(map(_numberless, a.operands)), a.fields, a.record) for a in rule.left)
    if left == rule.left:
        return rule
    try:
        return replace(rule, left=left, right=left, text=f"numberless: {rule.text}", swapped=False)
    except RuleError:  # a number's element type is bound to a name
        return rule


def instances_with_numbers(rule: Rule, count: int, tries: int) -> Iterator[Bindings]:
    """Instances of a rule that has numbers on its left side; none of any other."""
    loose = numberless(rule)
    if loose is rule:
        return
    sampler, names = Sampler.unnamed(loose), loose.tensors - rule.tensors
    for bindings in islice(iter(lambda: sampler.draw(tries), None), 4 * count):
        tensors = {name: operand for name, operand in bindings.tensors.items() if name not in names}
        instance = Bindings(tensors, bindings.attrs)
        if count and typed_left(rule, instance) and rule.refused(instance) is None and is_defined(rule, instance):
            count -= 1
            yield instance


def _numberless(pattern: Pattern | Spread) -> Pattern | Spread:
    if isinstance(pattern, Spread):
        item = _numberless(pattern.item)
        return pattern if isinstance(item, Spread) else replace(pattern, item=item)
    if isinstance(pattern, Var):
        return pattern
    if pattern.op == "fill" and pattern.fields.keys() == {"shape", "value", "dtype"}:
        shape, value, dtype = (pattern.fields[name].text for name in ("shape", "value", "dtype"))
        if shape == "()" and dtype.startswith(("dtype(", "'")):
            return Var(value if dtype.startswith("dtype(") else f"{value} of {dtype}")
    return App(pattern.op, tuple(map(_numberless, pattern.operands)), pattern.fields, pattern.record)
