"""What a rule set can prove, compared with another: the rules of one that the other does not derive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from eqsat.egraph.saturation import Limits
from eqsat.errors import RuleError
from eqsat.rewrites.proof.chains.search import both_ways
from eqsat.rewrites.proof.prove import LIMITS, prove
from eqsat.rewrites.rules.rule import Rule

#: How far the search goes for one rule.
_LIMITS = replace(LIMITS, nodes=4000, seconds=10.0, radius=6)


def lacking(
    rules: Sequence[Rule],
    others: Sequence[Rule],
    limits: Limits = _LIMITS,
    progress: Callable[[int], None] | None = None,
) -> tuple[Rule, ...]:
    """The rules that the others, taken as equations, do not prove within the limits."""
    equations = both_ways(others)
    without: list[Rule] = []
    for done, rule in enumerate(rules):
        if prove(rule, equations, limits).verdict != "proved":
            without.append(rule)
        if progress is not None:
            progress(done + 1)
    return tuple(without)


def lacking_table(rules: Sequence[Rule], others: Sequence[Rule], limits: Limits = _LIMITS) -> str:
    """Those rules as a table in Markdown, by the operators of their left sides, under a line that counts them."""
    missing = lacking(rules, others, limits)
    lines = [
        f"{len(missing)} of {len(rules)} rules are not derived from the {len(others)} laws.",
        "",
        "| rule | equation |",
        "|---|---|",
    ]
    ordered = sorted(missing, key=lambda r: (sorted(r.operators()), r.name))
    return "\n".join([*lines, *(f"| {r.name} | `{_cell(r.text)}` |" for r in ordered)]) + "\n"


def false_table(rules: Sequence[Rule]) -> str:
    """Equations that are false, each with its smallest counterexample, as a table in Markdown."""
    lines = ["| equation | counterexample |", "|---|---|"]
    for rule in rules:
        proof = prove(rule, ())
        if proof.verdict != "refuted":
            raise RuleError(f"{rule.name} is not refuted", where=rule.where, expected="a false equation")
        lines.append(f"| {rule.name}: `{_cell(rule.text)}` | {_cell(proof.counterexample)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
