"""From candidates to verified rules: repeated and derived ones are set aside, the rest is generalised and verified."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

from eqsat.egraph.saturation import Limits
from eqsat.language.terms.pattern import App, Var
from eqsat.rewrites.discovery.equations.candidate import (
    CONSTANT,
    DERIVED,
    FAILED,
    NEUTRAL,
    OPEN,
    PLAUSIBLE,
    PROVED,
    REPEATED,
    CandidateEquation,
    CandidateOutcome,
    is_proved,
)
from eqsat.rewrites.discovery.equations.canonical import canonical
from eqsat.rewrites.discovery.equations.derivable import (
    BY_LAWS,
    CHEAP,
    ON_REQUEST,
    THOROUGH,
    derivations,
)
from eqsat.rewrites.discovery.equations.equation import equations
from eqsat.rewrites.discovery.equations.sides import RuleStatement, parts
from eqsat.rewrites.discovery.equations.subgraph import lifted
from eqsat.rewrites.discovery.generalise.ancestor import ancestor
from eqsat.rewrites.discovery.generalise.general_rules import Generaliser, claim, general_rules, of_law, phases
from eqsat.rewrites.discovery.journal import Follow, Journal, silent
from eqsat.rewrites.rules.evidence import Evidence
from eqsat.rewrites.rules.rule import Rule

#: Operators in a candidate that is verified though laws do not derive it.
_SMALL = 2
#: The phases of rules that save work.
_SAVES = frozenset({"simplify", "fuse", "merge"})
#: Candidates whose ancestors are looked for together, that are derived together, and that are verified before the rest
#: is derived again.
_TRACED, _DERIVE, _VERIFY = 256, 512, 24
#: The limits under which both sides of a candidate are put into the e-graph and any rule may run.
_ANY = (BY_LAWS, ON_REQUEST)

#: Outcomes of some candidates, and then the candidates to be verified and the large ones.
Parted: TypeAlias = "Generator[CandidateOutcome, None, tuple[list[CandidateEquation], list[CandidateEquation]]]"


def verify_candidates(
    candidates: Iterable[CandidateEquation],
    laws: Sequence[Rule],
    *,
    known: Sequence[Rule] | None = None,
    everything: bool = False,
    generaliser: Generaliser | None = None,
    executor: Executor | None = None,
    journal: Journal | None = None,
    progress: Follow | None = None,
) -> Iterator[CandidateOutcome]:
    """The outcome of each candidate, small ones first; the same for every executor.

    Rules follow from `laws`; candidates that `known` rules derive, by default the laws, are set aside. With none known
    all that is set aside follows from rules that the candidates themselves led to: a candidate that laws prove leads to
    the laws of its proof. `everything` verifies those too that save no work either way round, and large ones that
    neither laws nor known rules derive.

    `generaliser` generalises and verifies one candidate. Rules that come out true, even those that no law entails, set
    aside later candidates that they derive, so that what lacks a law is listed once.
    """
    generaliser = generaliser or partial(general_rules, laws=tuple(laws))
    base = tuple(laws if known is None else known)
    journal = journal if journal is not None else Journal()
    verification = _Verification(base, tuple(laws), everything, generaliser, executor, journal, progress or silent)
    yield from verification.run(list(candidates))


def _effort(candidate: CandidateEquation) -> tuple[int, int, int, int, str]:
    """Few operators first; of as many, more variables first: equations of fewer are mostly cases of theirs."""
    most, least = max(candidate.left_ops, candidate.right_ops), min(candidate.left_ops, candidate.right_ops)
    return most, len(candidate.left), least, -len(candidate.shapes), candidate.text


@dataclass
class _Verification:
    base: tuple[Rule, ...]
    laws: tuple[Rule, ...]
    everything: bool
    generaliser: Generaliser
    executor: Executor | None
    journal: Journal
    progress: Follow
    taken: dict[str, str] = field(default_factory=dict)
    accepted: dict[str, Rule] = field(default_factory=dict)

    def run(self, candidates: Sequence[CandidateEquation]) -> Iterator[CandidateOutcome]:
        general = sorted(self._ancestors(candidates), key=_effort)
        yield from (pending := Repeated(general)).outcomes()
        self.taken = {r.name: r.text for r in self.base}
        if self.base:
            rest, large = yield from self._beyond(pending.kept)
        else:
            rest, large = yield from self._by_laws(pending.kept)
        yield from self._generalised(rest, pending.forms)
        if large and self.accepted:
            large = yield from self._without(large, self.accepted.values(), "of the large ones", _ANY)
        yield from (CandidateOutcome(c.name, c.text, OPEN) for c in large)

    def _ancestors(self, candidates: Sequence[CandidateEquation]) -> Iterator[CandidateEquation]:
        """The most general candidates of which these are cases, under the names of these."""
        batches = [candidates[i : i + _TRACED] for i in range(0, len(candidates), _TRACED)]
        keys = [f"ancestors:{batch[0].name}:{len(batch)}" for batch in batches]
        todo = [(k, b) for k, b in zip(keys, batches, strict=True) if k not in self.journal]
        for done, ((key, _), general) in enumerate(zip(todo, self._map(_traced, [b for _, b in todo]), strict=True), 1):
            self.journal[key] = general
            self._follow("looked for what they are cases of", done * _TRACED, len(todo) * _TRACED)
        for key in keys:
            yield from map(CandidateEquation.of, self.journal[key])

    def _beyond(self, rest: list[CandidateEquation]) -> Parted:
        """Drop candidates that known rules derive or that are worth no rule; the rest, and the large ones."""
        rest = yield from self._without(rest, self.base, "by known rules", (CHEAP,), strict=True)
        if self.everything:
            return rest, []
        saving = {c.name for c in rest if phases(c) & _SAVES}
        yield from (CandidateOutcome(c.name, c.text, NEUTRAL) for c in rest if c.name not in saving)
        rest = [c for c in rest if c.name in saving]
        by = self._derived(rest, self.base, "on request", (ON_REQUEST,))
        large = [c for c in rest if c.name not in by and _effort(c)[0] > _SMALL]
        return [c for c in rest if c.name in by or _effort(c)[0] <= _SMALL], large

    def _by_laws(self, rest: list[CandidateEquation]) -> Parted:
        """Replace candidates that laws prove by the laws of their proofs; the rest, of which only small ones go on."""
        proofs = self._derived(rest, self.laws, "by laws", _ANY)
        laws = {law.name: law for law in self.laws}
        for candidate in rest:
            used = proofs.get(candidate.name)
            if used is None:
                continue
            new = [name for name in used if name not in self.accepted]
            if not new:
                yield _derived_outcome(candidate, used)
                continue
            if f"settled:{candidate.name}" not in self.journal:
                rules = [of_law(laws[name], self.laws) for name in new]
                self.journal[f"settled:{candidate.name}"] = asdict(_outcome(candidate, rules))
            yield self._accepted(candidate)
        rest = [c for c in rest if c.name not in proofs]
        large = [] if self.everything else [c for c in rest if _effort(c)[0] > _SMALL]
        large_names = {c.name for c in large}
        return [c for c in rest if c.name not in large_names], large

    def _generalised(self, rest: list[CandidateEquation], forms: dict[str, str]) -> Iterator[CandidateOutcome]:
        """Candidates a few at a time, each only if the rules so far do not derive it.

        Of one size and one of each form at a time: what small ones say derives large ones, and what holds for one axis
        or perm often holds for all, once it is generalised.
        """
        names = {c.name: c for c in rest}
        limits, strict = ((CHEAP, THOROUGH), True) if self.base else (_ANY, False)
        total, swept = len(rest), len(self.accepted)
        while rest:
            first: dict[str, CandidateEquation] = {}
            for candidate in rest:
                if _effort(candidate)[0] == _effort(rest[0])[0]:
                    first.setdefault(forms[candidate.name], candidate)
            chosen = list(first.values())[:_VERIFY]
            taken = {c.name for c in chosen}
            rest = [c for c in rest if c.name not in taken]
            rules = (*self.base, *self.accepted.values())
            stage = f"by {len(self.accepted)} rules, {len(rest)} open"
            by = self._derived(chosen, rules, stage, limits, strict=strict)
            yield from (_derived_outcome(names[n], used) for n, used in by.items())
            yield from self._verified([c for c in chosen if c.name not in by])
            if len(rest) > _DERIVE and len(self.accepted) - swept >= max(_VERIFY, swept // 4):
                # What the rules so far derive goes many at a time, before the rest is looked at a few at a time.
                swept = len(self.accepted)
                rules = (*self.base, *self.accepted.values())
                rest = yield from self._without(rest, rules, f"of the rest by {swept} rules", limits[:1], strict)
            self._follow("verified", total - len(rest), total)

    def _without(
        self,
        rest: Sequence[CandidateEquation],
        rules: Iterable[Rule],
        stage: str,
        limits: Sequence[Limits],
        strict: bool = False,
    ) -> Generator[CandidateOutcome, None, list[CandidateEquation]]:
        """The candidates that rules do not derive."""
        by = self._derived(rest, tuple(rules), stage, limits, strict=strict)
        yield from (_derived_outcome(c, by[c.name]) for c in rest if c.name in by)
        return [c for c in rest if c.name not in by]

    def _derived(
        self,
        candidates: Sequence[CandidateEquation],
        rules: Sequence[Rule],
        stage: str,
        limits: Sequence[Limits],
        strict: bool = False,
    ) -> dict[str, list[str]]:
        """For each candidate that rules derive, those that do.

        What is derived in the `strict` sense, an optimisation would find from its left side alone.
        """
        batches = [candidates[i : i + _DERIVE] for i in range(0, len(candidates), _DERIVE)]
        keys = [f"{stage}:{batch[0].name}:{len(batch)}" for batch in batches]
        todo = [(k, b) for k, b in zip(keys, batches, strict=True) if k not in self.journal]
        derive = partial(_derive, rules=tuple(rules), limits=tuple(limits), strict=strict)
        proofs = self._map(derive, [b for _, b in todo])
        done = len(batches) - len(todo)
        for (key, _), by in zip(todo, proofs, strict=True):
            self.journal[key] = by
            done += 1
            if len(batches) > 1:
                self._follow(f"derived {stage}", done * _DERIVE, len(candidates))
        return {name: used for key in keys for name, used in self.journal[key].items()}

    def _verified(self, candidates: Sequence[CandidateEquation]) -> Iterator[CandidateOutcome]:
        todo = [c for c in candidates if f"settled:{c.name}" not in self.journal]
        for candidate, rules in zip(todo, self._map(self.generaliser, todo), strict=True):
            named = [self._named(rule, evidence) for rule, evidence in rules]
            self.journal[f"settled:{candidate.name}"] = asdict(_outcome(candidate, named))
        yield from (self._accepted(candidate) for candidate in candidates)

    def _accepted(self, candidate: CandidateEquation) -> CandidateOutcome:
        """The outcome of a generalised candidate, whose rules count from now on."""
        outcome = CandidateOutcome.of(self.journal[f"settled:{candidate.name}"])
        self.taken |= {name: text for name, _, text in outcome.rules}
        self.accepted |= {r.name: r for r, e in outcome.as_rules() if e.verdict == "proved"}
        return outcome

    def _named(self, rule: Rule, evidence: Evidence) -> tuple[Rule, Evidence]:
        """The rule under a name that no other rule has."""
        if self.taken.setdefault(rule.name, rule.text) == rule.text:
            return rule, evidence
        name = f"{rule.name}-{hashlib.blake2b(rule.text.encode(), digest_size=3).hexdigest()}"
        self.taken[name] = rule.text
        return replace(rule, name=name), replace(evidence, name=name)

    def _map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterable[Any]:
        return map(function, items) if self.executor is None else self.executor.map(function, items)

    def _follow(self, stage: str, done: int, total: int) -> None:
        self.progress(stage, min(done, total), total)


def _traced(candidates: Sequence[CandidateEquation]) -> list[dict[str, Any]]:
    return [asdict(ancestor(c)) for c in candidates]


def _derive(
    candidates: Sequence[CandidateEquation], rules: Sequence[Rule], limits: Sequence[Limits], strict: bool
) -> dict[str, list[str]]:
    claims = [c for c in map(claim, candidates) if c is not None]
    if not strict:
        claims = [replace(c, associates=True, saves=False) for c in claims]
    return {n: list(d.rules) for n, d in derivations(claims, rules, limits).items() if d}


def _derived_outcome(candidate: CandidateEquation, by: Iterable[str]) -> CandidateOutcome:
    return CandidateOutcome(candidate.name, candidate.text, DERIVED, tuple(by))


def _outcome(candidate: CandidateEquation, verified: Sequence[tuple[Rule, Evidence]]) -> CandidateOutcome:
    status = FAILED
    if any(is_proved(e) for _, e in verified):
        status = PROVED
    elif any(e.verdict == "proved" for _, e in verified):
        status = PLAUSIBLE
    rules = tuple((r.name, r.phase, r.text) for r, _ in verified)
    return CandidateOutcome(candidate.name, candidate.text, status, (), rules, tuple(e for _, e in verified))


class Repeated:
    """Candidates apart from those that say nothing new: on constants alone, the same in other names, or with a common
    subgraph. `forms` are the texts of those that are kept, without numbers."""

    def __init__(self, candidates: Sequence[CandidateEquation]) -> None:
        self.kept: list[CandidateEquation] = []
        self.forms: dict[str, str] = {}
        self._apart: list[CandidateOutcome] = []
        self._first: dict[str, str] = {}
        for candidate in candidates:
            statement = _statement(candidate)
            if statement is not None and _computes_constants(statement):
                self._apart.append(CandidateOutcome(candidate.name, candidate.text, CONSTANT))
            elif statement is None or not self._repeats(candidate, statement):
                self.kept.append(candidate)
                self.forms.setdefault(candidate.name, candidate.name)

    def _repeats(self, candidate: CandidateEquation, statement: RuleStatement) -> bool:
        key = canonical(statement, directed=False)
        self.forms[candidate.name] = re.sub(r"\b\d+\b", "#", key)
        without = (canonical(e, directed=False) for e in lifted(statement))
        stands = self._first.get(key) or next((self._first[k] for k in without if k in self._first), None)
        self._first.setdefault(key, stands or candidate.name)
        if stands is not None:
            self._apart.append(CandidateOutcome(candidate.name, candidate.text, REPEATED, (stands,)))
        return stands is not None

    def outcomes(self) -> Iterator[CandidateOutcome]:
        """The outcomes of the candidates that were set apart."""
        yield from self._apart


def _computes_constants(statement: RuleStatement) -> bool:
    """Return whether an operator is applied to constants alone; one such operator states a fact about constants."""
    sides = (*statement.roots, *statement.right)
    apps = [part for side in sides for part in parts(side) if isinstance(part, App)]
    closed = [a for a in apps if a.operands and not any(isinstance(p, Var) for p in parts(a))]
    return bool(closed) and not (len(closed) == 1 and closed[0] in sides)


def _statement(candidate: CandidateEquation) -> RuleStatement | None:
    return next(equations(candidate), None)
