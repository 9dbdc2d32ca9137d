"""Premises that a rule lacks: conditions of the usual kinds with which laws entail it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from eqsat.rewrites.proof.entail import STEPS, Entailment, entail
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.rules.rule import Rule


def with_premises(rule: Rule, laws: Sequence[Rule], *, steps: int = STEPS) -> tuple[Rule, Entailment]:
    """The rule, under more conditions where laws entail it only so, and how they entail it.

    Laws of arithmetic ask for wide floats and finite operands, and instances in float64 of ordinary numbers do not show
    why. No more operands are asked to be finite than the proof needs.

    >>> from eqsat.rewrites.rules.parser import parse_rules
    >>> (law,) = parse_rules("law: (x + y) * z => x * z + y * z if wide(x), finite(z)")
    >>> (rule,) = parse_rules("rule: (x + y) * z => x * z + y * z")
    >>> with_premises(rule, [law])[0].text
    '(x + y) * z => x * z + y * z if wide(x), finite(z)'
    """
    plain = entail(rule, laws, steps=steps, explain=False)
    if plain.verdict == "proved":
        return rule, plain
    names = (*sorted(rule.tensors), *sorted(rule.tensor_groups))
    wide = next((n for n in names if n in rule.tensors), "")
    stronger = _under(rule, wide, names)
    found = entail(stronger, laws, steps=steps)
    if found.verdict != "proved":
        return rule, found
    finite = names
    for fewer in ("", *names):
        less = (wide, tuple(n for n in finite if n != fewer)) if fewer else ("", finite)
        result = entail(candidate := _under(rule, *less), laws, steps=steps, explain=False)
        if result.verdict == "proved":
            (wide, finite), stronger, found = less, candidate, result
    return stronger, found


def _under(rule: Rule, wide: str, finite: Sequence[str]) -> Rule:
    """The rule under these conditions beside its own."""
    single = [n for n in finite if n in rule.tensors]
    more = [f"wide({wide})"] if wide else []
    more += [f"finite({', '.join(single)})"] if single else []
    more += [f"all(finite(x) for x in {n})" for n in finite if n not in rule.tensors]
    known = {c.text for c in rule.conditions}
    added = [text for text in more if text not in known]
    if not added:
        return rule
    text = rule.text + (", " if rule.conditions else " if ") + ", ".join(added)
    (made,) = parse_rules(f"{rule.name}: {text}", rule.where, origin=rule.origin)
    return replace(made, phase=rule.phase, laws=rule.laws, reason=rule.reason, where=rule.where)
