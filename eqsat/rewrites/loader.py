"""Rules that are ready to use: the shipped ones whose evidence is current, and a user's own, checked on the spot."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from eqsat.errors import RuleError, UnsoundRuleError
from eqsat.rewrites.evidence import Evidence, is_current, read_evidence
from eqsat.rewrites.parser import parse_rules
from eqsat.rewrites.rule import Rule

AXIOMS = Path(__file__).parent / "axioms"


class EvidenceWarning(UserWarning):
    """Rules were left out because their evidence is missing or out of date."""


def load_rules(paths: Iterable[str | Path] | None = None) -> tuple[Rule, ...]:
    """The shipped rules, and those of more files or texts, which are checked before they count.

    A shipped rule without current evidence is left out with an EvidenceWarning. A given one that is refuted is an
    UnsoundRuleError with a counterexample, one that cannot be settled a RuleError. A string that has an arrow in it is
    the text of rules, any other the path of a file.
    """
    rules = list(_shipped())
    names = {r.name for r in rules}
    for given in paths or ():
        for rule in _read(given):
            if rule.name in names:
                raise RuleError(f"rule {rule.name!r} is already there", where=rule.where, expected="another name")
            _demand(rule)
            names.add(rule.name)
            rules.append(rule)
    return tuple(rules)


def shipped_rules() -> tuple[Rule, ...]:
    """Every rule of the shipped files, with evidence or without."""
    return tuple(r for path in sorted(AXIOMS.glob("*.rules")) for r in parse_rules(path.read_text(), path.name))


def check_rules(text: str) -> tuple[Evidence, ...]:
    """What checking says of each rule in a text: proved, refuted with a counterexample, or undecided.

    >>> [e.verdict for e in check_rules("wrong: relu(-x) => -relu(x) if floating(x)")]
    ['refuted']
    """
    from eqsat.rewrites.check import check

    return tuple(check(rule) for rule in parse_rules(text))


@cache
def _shipped() -> tuple[Rule, ...]:
    evidence = read_evidence()
    rules = shipped_rules()
    current = tuple(r for r in rules if is_current(r, evidence.get(r.name)))
    if len(current) < len(rules):
        kept = set(current)
        left = [r.name for r in rules if r not in kept]
        shown = ", ".join(left[:5]) + (", …" if len(left) > 5 else "")
        warnings.warn(
            f"{len(left)} of {len(rules)} rules have no current evidence and are left out: {shown}\n"
            "  run `eqsat rules verify` to check them again",
            EvidenceWarning,
            stacklevel=3,
        )
    return current


def _read(given: str | Path) -> Sequence[Rule]:
    if isinstance(given, str) and "=>" in given:
        return parse_rules(given)
    path = Path(given)
    try:
        return parse_rules(path.read_text(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise RuleError(f"cannot be read: {error}", where=str(path), expected="a text file of rules") from None


def _demand(rule: Rule) -> None:
    """Checks a rule; an error unless it is proved."""
    from eqsat.rewrites.check import check

    evidence = check(rule)
    if evidence.verdict == "refuted":
        raise UnsoundRuleError(
            f"rule {rule.name!r} is false: {evidence.detail}",
            where=rule.where,
            expected="sides that are equal wherever the conditions hold",
            remedy="add the missing condition",
        )
    if evidence.verdict != "proved":
        raise RuleError(
            f"rule {rule.name!r} could not be settled: {evidence.detail}",
            where=rule.where,
            expected="a rule that the checks can prove",
            remedy="state it for smaller cases, or with fewer operators",
        )
