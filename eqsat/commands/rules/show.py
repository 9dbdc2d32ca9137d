"""`eqsat rules show`: one rule with all that is known of it."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import click

from eqsat.commands.output import console, debug_option
from eqsat.errors import RuleError
from eqsat.report.units import count

if TYPE_CHECKING:
    from eqsat.rewrites.rules.evidence import Evidence
    from eqsat.rewrites.rules.rule import Rule


@click.command()
@click.argument("name")
@debug_option
def show(name: str) -> None:
    """Print a rule with its conditions, origin, evidence, the laws that entail it, and where it fired."""
    from eqsat.rewrites.discovery.library import read_usage
    from eqsat.rewrites.rules.loader import shipped_evidence, shipped_rules

    rules = {r.name: r for r in shipped_rules()}
    if name not in rules:
        close = difflib.get_close_matches(name, rules, n=3)
        raise RuleError(
            f"no rule {name!r}",
            expected="the name of a shipped rule",
            remedy="did you mean " + " or ".join(close) + "?" if close else "`eqsat rules report` lists them",
        )
    out = console()
    for line in described(rules[name], shipped_evidence().get(name)):
        out.print(line, soft_wrap=True)
    uses = [u for u in read_usage() if u.rule == name]
    out.print("fired:      " + ("" if uses else "on none of the benchmark models"), soft_wrap=True)
    for use in sorted(uses, key=lambda u: (-u.chosen, -u.fired, u.model)):
        out.print(f"  {use.model}: {count(use.fired, 'time')}, {count(use.chosen, 'value')} of the result")


def described(rule: Rule, evidence: Evidence | None) -> list[str]:
    """A rule and its evidence in lines of text."""
    from eqsat.rewrites.rules.evidence import is_current

    sides, _, _ = rule.text.partition(" if ")
    lines = [f"{rule.name}: {sides}", f"phase:      {rule.phase}"]
    lines += [f"condition:  {c.text}" for c in rule.conditions] or ["condition:  none"]
    reason = f", {rule.reason}" if rule.reason else ""
    lines.append(f"origin:     {rule.origin}{f' ({rule.where})' if rule.where else ''}{reason}")
    if rule.laws:
        lines.append(f"published:  law {', '.join(map(str, rule.laws))}")
    if evidence is None:
        return [*lines, "evidence:   none"]
    state = "" if is_current(rule, evidence) else ", out of date: run `eqsat rules verify`"
    lines.append(f"evidence:   {evidence.scope}{state}")
    lines.append(f"numbers:    {evidence.bits}")
    if evidence.open:
        lines.append(f"  no further: {evidence.open}")
    lines.append(
        f"  instances: {evidence.symbolic} by Z3, {evidence.numeric} in float64, {evidence.bounded} modulo a prime"
        + (", all up to the bound" if evidence.exhaustive else "")
    )
    if evidence.entailed:
        lines.append(f"  entailed:  {evidence.entailed}, from {', '.join(evidence.laws) or 'no law'}")
    return lines + [f"    {step}" for step in evidence.chain]
