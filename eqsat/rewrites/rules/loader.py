"""Rules that are ready to use: the shipped ones whose evidence is current, those of operators that a user declares, and
a user's own rules; what is not shipped is checked on the spot."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from eqsat.errors import DeclarationError, RuleError, UnsoundRuleError
from eqsat.language.comprehension.graphs.operators import function_of, region_of
from eqsat.language.declaration.spec import OpSpec, Reference
from eqsat.language.declaration.trial import try_out
from eqsat.language.ops import OPS, spec
from eqsat.rewrites.rules.derive import derived_laws, derived_sources, stated_laws
from eqsat.rewrites.rules.evidence import Evidence, is_current, read_evidence, recalled, remember
from eqsat.rewrites.rules.parser import parse_file, parse_rules, rule_sources
from eqsat.rewrites.rules.rule import Origin, Rule, Trust
from eqsat.rewrites.rules.ruleset import RulesByName, RuleSet, RuleSource
from eqsat.rewrites.theories.evidence import theory_evidence

#: Laws written by hand, and the rules that the generator found, each with its record of evidence.
AXIOMS = Path(__file__).parents[1] / "axioms"
LIBRARY = Path(__file__).parents[1] / "library"
#: What a declaration claims and laws derive from.
_CLAIMS = "index=, multilinear=, pointwise=, monotone= or average="


class EvidenceWarning(UserWarning):
    """Rules were left out because their evidence is missing or out of date."""


def load_rules(paths: Iterable[str | Path] | None = None, trust: Trust = "proved") -> RuleSet:
    """The shipped rules, and those of more files or texts, which are checked before they count.

    A shipped rule is read when it is first asked for, and left out with an EvidenceWarning if it has no current
    evidence; one that is not proved for every size is left out unless `trust` is "bounded". The laws of operators that
    are declared outside this package come next. A law or given rule that is refuted is an UnsoundRuleError with a
    counterexample, a given one that cannot be settled a RuleError, and so is one that is trusted less than `trust`
    asks. A string that has an arrow in it is the text of rules, any other the path of a file.
    """
    shipped = rules_with_evidence(trust)
    rules = [rule for name, one in _declarations() for rule in _declared(name, one.reference)]
    names = {one.name for one in shipped_sources()} | {rule.name for rule in rules}
    for given in paths or ():
        for rule in _read(given):
            if rule.name in names:
                raise RuleError(f"rule {rule.name!r} is already there", where=rule.where, expected="another name")
            _demand(rule, trust)
            names.add(rule.name)
            rules.append(rule)
    return shipped.plus(rules) if rules else shipped


def shipped_rules() -> tuple[Rule, ...]:
    """Every rule that ships, with evidence or without: axioms, laws that declarations of operators imply, the library.

    A rule of the library that says what a law says has its name and stands in its place.
    """
    return tuple(RuleSet(shipped_sources()))


@cache
def shipped_sources() -> tuple[RuleSource, ...]:
    """Every rule that ships, to be read when it is asked for."""
    generated = {one.name: one for one in _files(LIBRARY, "library")}
    laws = (*_axioms(), *_implied())
    said = (_said_again(generated.pop(law.name), law) if law.name in generated else law for law in laws)
    return (*said, *generated.values())


def _said_again(generated: RuleSource, law: RuleSource) -> RuleSource:
    """The source of a generated rule that says what a law says: it has the law's numbers and reason."""

    def read() -> Rule:
        return replace(generated.rule, laws=law.rule.laws, reason=law.rule.reason)

    return RuleSource(generated.name, generated.phase, generated.operators, read)


def laws() -> tuple[Rule, ...]:
    """Laws taken for true of all operators: axioms, those that declarations state and imply, a user's once checked."""
    declared = (rule for name, one in _declarations() for rule in _declared(name, one.reference))
    return (*(one.rule for one in (*_axioms(), *_implied())), *declared)


def _declarations() -> Iterator[tuple[str, OpSpec]]:
    """The operators that are declared outside of this package, but for those that theories make of regions."""
    return ((name, one) for name, one in [*OPS.items()] if not is_shipped(one) and region_of(name) is None)


def is_shipped(one: OpSpec) -> bool:
    """True if an operator is declared in this package."""
    return one.reference.__module__.partition(".")[0] == __name__.partition(".")[0]


def check_rules(text: str) -> tuple[Evidence, ...]:
    """The evidence from checking each rule in a text: proved, refuted with a counterexample, or undecided.

    >>> [e.verdict for e in check_rules("wrong: relu(-x) => -relu(x) if floating(x)")]
    ['refuted']
    """
    from eqsat.rewrites.proof.check import check

    return tuple(check(rule) for rule in parse_rules(text))


@cache
def _axioms() -> tuple[RuleSource, ...]:
    return tuple(_files(AXIOMS, "axiom"))


@cache
def _implied() -> tuple[RuleSource, ...]:
    """The laws that the declarations of this package state and imply."""
    own = [one for one in OPS.values() if is_shipped(one)]
    return (*map(RuleSource.of, stated_laws(own)), *derived_sources(own))


def _files(folder: Path, origin: Origin) -> Iterator[RuleSource]:
    for path in sorted(folder.glob("*.rules")):
        yield from rule_sources(path.read_text(encoding="utf-8"), path.name, origin=origin)


@cache
def rules_with_evidence(trust: Trust = "proved") -> RuleSet:
    """The shipped rules whose evidence is current; an EvidenceWarning names those that are left out.

    Those that are not proved for every size are not among them, unless they are trusted.
    """
    evidence = shipped_evidence()
    by_name = RulesByName(shipped_sources())
    weaker = {name for name, one in evidence.items() if not one.is_for_every_size and trust == "proved"}
    sources = [one for one in shipped_sources() if one.name not in weaker]

    def admits(rule: Rule) -> bool:
        return is_current(rule, evidence.get(rule.name), by_name)

    def report(names: Sequence[str], count: int) -> None:
        what = f"of {count} rules have no current evidence and are left out"
        _warn(names, what, "run `eqsat rules verify` to check them again")

    return RuleSet((one.admitted_by(admits) for one in sources), report)


def shipped_evidence() -> dict[str, Evidence]:
    """The records of the axioms, of the derived laws, and of the library."""
    return {**read_evidence(AXIOMS / "evidence.jsonl"), **read_evidence(LIBRARY / "evidence.jsonl")}


@cache
def _declared(name: str, reference: Reference) -> tuple[Rule, ...]:
    """The laws of an operator declared elsewhere, those that can be settled; checked once for each user.

    Its reference tells operators apart that had a name one after the other.
    """
    from eqsat.rewrites.proof.check import Effort, check

    # What is implied has been checked for the operators that ship: here it is the declaration that may be wrong.
    efforts = {"axiom": Effort(), "derived": Effort(numeric=24, symbolic=6, turned=0)}
    one = spec(name)
    # Of a text, all is derived: what cannot be looked at, or is false, is no fault of its writer's, and left out.
    is_derived = function_of(name) is not None
    try:
        try_out(one)
    except DeclarationError as error:
        if not is_derived:
            raise
        _warn([name], "comprehension takes part without laws", error.what)
        return ()
    implied = (*stated_laws([one]), *derived_laws([one]))
    known = recalled(implied)
    fresh = []
    proved = []
    reasons: list[str] = []
    for rule in implied:
        evidence = known.get(rule.name)
        if evidence is None:
            try:
                evidence = check(rule, efforts[rule.origin])
            except DeclarationError as error:
                if not is_derived:
                    raise
                reasons.append(f"{rule.name}: {error.what}")
                continue
            fresh.append(evidence)
        if evidence.verdict == "refuted" and not is_derived:
            stated = rule.origin == "axiom"
            raise UnsoundRuleError(
                f"operator {name!r} {'states' if stated else 'implies'} a false law, {rule}: {evidence.detail}",
                where=rule.where,
                expected="laws that hold for the operator's reference",
                remedy=f"correct {'laws=' if stated else _CLAIMS} of its declaration",
            )
        if evidence.verdict == "proved":
            proved.append(rule)
        else:
            reasons.append(f"{rule.name}: {evidence.verdict}, {evidence.detail}")
    remember(fresh)
    if len(proved) < len(implied):
        usable = set(proved)
        missing = [r.name for r in implied if r not in usable]
        _warn(
            missing,
            f"of {len(implied)} laws of {name!r} could not be settled and are left out",
            next(iter(reasons), ""),
        )
    return tuple(proved)


def _warn(names: Sequence[str], what: str, remedy: str) -> None:
    shown = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
    tail = f"\n  {remedy}" if remedy else ""
    warnings.warn(f"{len(names)} {what}: {shown}{tail}", EvidenceWarning, stacklevel=4)


def _read(given: str | Path) -> Sequence[Rule]:
    if isinstance(given, str) and "=>" in given:
        return parse_rules(given)
    return parse_file(Path(given))


@cache
def _shipped_records() -> Mapping[str, Evidence]:
    """The records that the rules in use were loaded with."""
    return shipped_evidence()


@cache
def _checked(rule: Rule) -> Evidence:
    from eqsat.rewrites.proof.check import check

    return check(rule)


def evidence_of(rules: Iterable[Rule]) -> dict[str, Evidence]:
    """The evidence on rules that are in use, by name: the records they loaded with, and those of a user's own."""
    wanted = list(rules)
    shipped = _shipped_records()
    records = {r.name: shipped[r.name] for r in wanted if r.name in shipped and r.origin != "given"}
    records |= {r.name: _checked(r) for r in wanted if r.origin == "given"}
    records |= {r.name: theory_evidence(r) for r in wanted if r.origin == "identity"}
    missing = [r for r in wanted if r.name not in records]
    return records | recalled(missing) if missing else records


def _demand(rule: Rule, trust: Trust) -> None:
    """Check a rule; raise an error unless it is proved, for every size where no less is trusted."""
    evidence = _checked(rule)
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
    if trust == "proved" and not evidence.is_for_every_size:
        raise RuleError(
            f"rule {rule.name!r} is true of what was tried, and not proved for every size: {evidence.open}",
            where=rule.where,
            expected="a rule that is proved for every size",
            remedy='take it for true on these grounds with trust="bounded", or restate it',
        )
