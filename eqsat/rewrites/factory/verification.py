"""From candidates to verified rules: what known rules derive is set aside, the rest is generalised and verified."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from eqsat.egraph.saturate import Limits
from eqsat.errors import GraphError, RuleError
from eqsat.language.pattern import App, Bindings, Var
from eqsat.rewrites.evidence import Evidence
from eqsat.rewrites.factory.candidate import Candidate
from eqsat.rewrites.factory.canonical import canonical
from eqsat.rewrites.factory.derivable import CHEAP, ON_REQUEST, SAVING, THOROUGH, Claim, derivations
from eqsat.rewrites.factory.direction import phase_of
from eqsat.rewrites.factory.equation import equations
from eqsat.rewrites.factory.journal import Journal
from eqsat.rewrites.factory.sides import Statement, parts
from eqsat.rewrites.factory.subgraph import lifted
from eqsat.rewrites.parser import parse_rules
from eqsat.rewrites.rule import Rule
from eqsat.rewrites.term import left_terms, right_terms

#: What became of a candidate: it computes with constants alone, which no program does when it runs; it is another but
#: for names and order, or with a common subgraph; known rules derive it; neither way round does it save work, so that
#: a rule of it would only grow graphs; it is large, and laws do not derive it even on request, which something small
#: that they lack mostly explains; rules that generalise it are proved; they hold wherever they were tried, but no law
#: entails them; nothing that generalises it holds, or nothing does generalise it.
CONSTANT, REPEATED, DERIVED, NEUTRAL, OPEN = "constant", "repeated", "derived", "neutral", "open"
PROVED, PLAUSIBLE, FAILED = "proved", "plausible", "failed"
STATUSES = (CONSTANT, REPEATED, DERIVED, NEUTRAL, OPEN, PROVED, PLAUSIBLE, FAILED)
#: Operators in a candidate that is verified though laws do not derive it.
_SMALL = 2
#: The phases of rules that save work.
_SAVES = frozenset({"simplify", "fuse", "merge"})
#: Candidates that are derived together, and that are verified before the rest is derived again.
_DERIVE, _VERIFY = 512, 24

Follow = Callable[[str, int, int], None]
#: The rules that generalise a candidate, each with its evidence.
Settle = Callable[[Candidate], "list[tuple[Rule, Evidence]]"]


@dataclass(frozen=True)
class Outcome:
    """What became of one candidate.

    `by` names the rules or the candidate that stand for it; `rules` are name, phase and text of those that generalise
    it, `evidence` what was found out about each.
    """

    name: str
    text: str
    status: str
    by: tuple[str, ...] = ()
    rules: tuple[tuple[str, str, str], ...] = ()
    evidence: tuple[Evidence, ...] = ()

    def as_rules(self) -> Iterator[tuple[Rule, Evidence]]:
        """The rules that generalise it, with their evidence."""
        for (name, phase, text), evidence in zip(self.rules, self.evidence, strict=True):
            (rule,) = parse_rules(f"%phase {phase}\n{name}: {text}", self.name)
            yield rule, evidence


def verified_rules(outcomes: Iterable[Outcome], on_request: bool = True) -> dict[str, tuple[Rule, Evidence]]:
    """The proved rules of all candidates by name, each once; `on_request` with those that only run on request."""
    found = (pair for outcome in outcomes for pair in outcome.as_rules())
    return {
        rule.name: (rule, evidence)
        for rule, evidence in found
        if _is_proved(evidence) and (on_request or rule.phase != "associate")
    }


def verify_candidates(
    candidates: Iterable[Candidate],
    laws: Sequence[Rule],
    *,
    known: Sequence[Rule] | None = None,
    everything: bool = False,
    settle: Settle | None = None,
    executor: Executor | None = None,
    journal: Journal | None = None,
    progress: Follow | None = None,
) -> Iterator[Outcome]:
    """What becomes of each candidate, small ones first; the same for every executor.

    Rules follow from `laws`; candidates that `known` rules derive, by default the laws, are set aside. With none known
    all that is set aside follows from rules that the candidates themselves led to. `everything` verifies those too that
    save no work either way round, and large ones that known rules do not derive.

    `settle` generalises and verifies one candidate. Rules that come out true, even those that no law entails, set aside
    later candidates that they derive, so that what lacks a law is listed once.
    """
    settle = settle or partial(settled, laws=tuple(laws))
    work = _Verification(tuple(laws if known is None else known), everything, settle, executor, journal, progress)
    yield from work.run(sorted(candidates, key=_effort))


def settled(candidate: Candidate, laws: tuple[Rule, ...]) -> list[tuple[Rule, Evidence]]:
    """The general rules of a candidate, each checked on instances and against the laws.

    One that says what a law says takes the law's name and phase, in which its declaration put it.
    """
    from eqsat.rewrites.factory.generalise import generalise
    from eqsat.rewrites.premises import with_premises
    from eqsat.rewrites.verify import verify_rule

    said = _by_form(laws)
    found: dict[str, tuple[Rule, Evidence]] = {}
    for rule in generalise(candidate):
        law = said.get(canonical(Statement.of(rule)))
        if law is None:
            rule, _ = with_premises(rule, laws)
            law = said.get(canonical(Statement.of(rule)))
        rule = replace(law, origin="given") if law is not None else rule
        if rule.text not in {r.text for r, _ in found.values()}:
            found[rule.name] = rule, verify_rule(rule, laws)
    return list(found.values())


@lru_cache(maxsize=2)
def _by_form(laws: tuple[Rule, ...]) -> dict[str, Rule]:
    """Laws by their canonical texts."""
    return {canonical(Statement.of(law)): law for law in reversed(laws)}


def claim(candidate: Candidate) -> Claim | None:
    """The candidate at its own shapes, from more work to less; None where the rules' syntax has no place for it."""
    found = [(e, phase_of(e.left, e.right)) for e in equations(candidate)]
    phases = {phase for _, phase in found}
    for equation, phase in sorted(found, key=lambda pair: pair[1] not in SAVING):
        rule = Statement(equation.left, equation.right).rule("candidate", "simplify")
        bindings = Bindings(dict(equation.operands))
        try:
            left, right = left_terms(rule, bindings), right_terms(rule, bindings)
        except GraphError:
            continue
        merges, associates = len(candidate.left) > 1, phases <= {"associate", None}
        return Claim(candidate.name, tuple(left), tuple(right), merges, associates, phase in SAVING)
    return None


def _phases(candidate: Candidate) -> set[str | None]:
    """The phases of the rules that a candidate makes, this way round and the other."""
    return {phase_of(e.left, e.right) for e in equations(candidate)}


def _effort(candidate: Candidate) -> tuple[int, int, int, int, str]:
    """Few operators first; of as many, more variables first: equations of fewer are mostly cases of theirs."""
    most, least = max(candidate.left_ops, candidate.right_ops), min(candidate.left_ops, candidate.right_ops)
    return most, len(candidate.left), least, -len(candidate.shapes), candidate.text


@dataclass
class _Verification:
    base: tuple[Rule, ...]
    everything: bool
    settle: Settle
    executor: Executor | None
    journal: Journal | None
    progress: Follow | None
    taken: dict[str, str] = field(default_factory=dict)

    def run(self, candidates: Sequence[Candidate]) -> Iterator[Outcome]:
        known = self.journal if self.journal is not None else Journal()
        names = {c.name: c for c in candidates}
        yield from (pending := _Repeated(candidates)).outcomes()
        rest = pending.kept
        if self.base:
            found = self._derived(rest, self.base, "by known rules", known, (CHEAP,))
            yield from (_derived_outcome(names[n], by) for n, by in found.items())
            rest = [c for c in rest if c.name not in found]
        if not self.everything:
            saving = {c.name for c in rest if _phases(c) & _SAVES}
            yield from (Outcome(c.name, c.text, NEUTRAL) for c in rest if c.name not in saving)
            rest = [c for c in rest if c.name in saving]
            by = self._derived(rest, self.base, "on request", known, (ON_REQUEST,))
            large = {c.name for c in rest if c.name not in by and _effort(c)[0] > _SMALL}
            yield from (Outcome(c.name, c.text, OPEN) for c in rest if c.name in large)
            rest = [c for c in rest if c.name not in large]
        accepted: dict[str, Rule] = {}
        self.taken = {r.name: r.text for r in self.base}
        total, swept = len(rest), 0
        while rest:
            # Of one size and one of each form at a time: what small ones say derives large ones, and what holds for one
            # axis or perm often holds for all, once it is generalised.
            first: dict[str, Candidate] = {}
            for candidate in rest:
                if _effort(candidate)[0] == _effort(rest[0])[0]:
                    first.setdefault(pending.forms[candidate.name], candidate)
            chosen = list(first.values())[:_VERIFY]
            taken = {c.name for c in chosen}
            rest = [c for c in rest if c.name not in taken]
            stage = f"by {len(accepted)} rules, {len(rest)} open"
            by = self._derived(chosen, (*self.base, *accepted.values()), stage, known, (CHEAP, THOROUGH))
            yield from (_derived_outcome(names[n], used) for n, used in by.items())
            for outcome in self._settled([c for c in chosen if c.name not in by], known):
                accepted |= {r.name: r for r, e in outcome.as_rules() if e.verdict == "proved"}
                yield outcome
            if len(rest) > _DERIVE and len(accepted) - swept >= max(_VERIFY, swept // 2):
                # What the rules so far derive goes many at a time, before the rest is looked at a few at a time.
                swept = len(accepted)
                stage = f"of the rest by {swept} rules"
                by = self._derived(rest, (*self.base, *accepted.values()), stage, known, (CHEAP,))
                yield from (_derived_outcome(names[n], used) for n, used in by.items())
                rest = [c for c in rest if c.name not in by]
            self._follow("verified", total - len(rest), total)

    def _derived(
        self,
        candidates: Sequence[Candidate],
        rules: Sequence[Rule],
        stage: str,
        known: Journal,
        limits: Sequence[Limits],
    ) -> dict[str, list[str]]:
        """The rules that derive each of the candidates which rules derive."""
        batches = [candidates[i : i + _DERIVE] for i in range(0, len(candidates), _DERIVE)]
        keys = [f"{stage}:{batch[0].name}:{len(batch)}" for batch in batches]
        todo = [(k, b) for k, b in zip(keys, batches, strict=True) if k not in known]
        made = self._map(partial(_derive, rules=tuple(rules), limits=tuple(limits)), [b for _, b in todo])
        done = len(batches) - len(todo)
        for (key, _), by in zip(todo, made, strict=True):
            known[key] = by
            done += 1
            if len(batches) > 1:
                self._follow(f"derived {stage}", done * _DERIVE, len(candidates))
        return {name: used for key in keys for name, used in known[key].items()}

    def _settled(self, candidates: Sequence[Candidate], known: Journal) -> Iterator[Outcome]:
        todo = [c for c in candidates if f"settled:{c.name}" not in known]
        for candidate, found in zip(todo, self._map(self.settle, todo), strict=True):
            named = [self._named(rule, evidence) for rule, evidence in found]
            known[f"settled:{candidate.name}"] = as_record(_outcome(candidate, named))
        for candidate in candidates:
            outcome = from_record(known[f"settled:{candidate.name}"])
            self.taken |= {name: text for name, _, text in outcome.rules}
            yield outcome

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
        if self.progress is not None:
            self.progress(stage, min(done, total), total)


def _derive(candidates: Sequence[Candidate], rules: Sequence[Rule], limits: Sequence[Limits]) -> dict[str, list[str]]:
    made = [c for c in map(claim, candidates) if c is not None]
    if ON_REQUEST in limits:
        made = [replace(c, associates=True, saves=False) for c in made]
    return {n: list(d.rules) for n, d in derivations(made, rules, limits).items() if d}


class _Repeated:
    """Candidates apart from those that say nothing new: on constants alone, the same in other names, or with a common
    subgraph. `forms` are the texts of those that are kept, without numbers."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self.kept: list[Candidate] = []
        self.forms: dict[str, str] = {}
        self._apart: list[Outcome] = []
        self._first: dict[str, str] = {}
        for candidate in candidates:
            statement = _statement(candidate)
            if statement is not None and _computes_constants(statement):
                self._apart.append(Outcome(candidate.name, candidate.text, CONSTANT))
            elif statement is None or not self._repeats(candidate, statement):
                self.kept.append(candidate)
                self.forms.setdefault(candidate.name, candidate.name)

    def _repeats(self, candidate: Candidate, statement: Statement) -> bool:
        key = canonical(statement, directed=False)
        self.forms[candidate.name] = re.sub(r"\b\d+\b", "#", key)
        without = (canonical(e, directed=False) for e in lifted(statement))
        stands = self._first.get(key) or next((self._first[k] for k in without if k in self._first), None)
        self._first.setdefault(key, stands or candidate.name)
        if stands is not None:
            self._apart.append(Outcome(candidate.name, candidate.text, REPEATED, (stands,)))
        return stands is not None

    def outcomes(self) -> Iterator[Outcome]:
        """What became of those that were set apart."""
        yield from self._apart


def _computes_constants(statement: Statement) -> bool:
    """Whether an operator is applied to constants alone; one such operator by itself states a fact about constants."""
    sides = (*statement.roots, *statement.right)
    apps = [part for side in sides for part in parts(side) if isinstance(part, App)]
    closed = [a for a in apps if a.operands and not any(isinstance(p, Var) for p in parts(a))]
    return bool(closed) and not (len(closed) == 1 and closed[0] in sides)


def _statement(candidate: Candidate) -> Statement | None:
    for equation in equations(candidate):
        return Statement(equation.left, equation.right)
    return None


def _derived_outcome(candidate: Candidate, by: Iterable[str]) -> Outcome:
    return Outcome(candidate.name, candidate.text, DERIVED, tuple(by))


def _outcome(candidate: Candidate, found: Sequence[tuple[Rule, Evidence]]) -> Outcome:
    status = FAILED
    if any(_is_proved(e) for _, e in found):
        status = PROVED
    elif any(e.verdict == "proved" for _, e in found):
        status = PLAUSIBLE
    rules = tuple((r.name, r.phase, r.text) for r, _ in found)
    return Outcome(candidate.name, candidate.text, status, (), rules, tuple(e for _, e in found))


def _is_proved(evidence: Evidence) -> bool:
    """Whether a rule holds on every instance and follows from the laws."""
    return evidence.verdict == "proved" and bool(evidence.entailed)


def as_record(outcome: Outcome) -> dict[str, Any]:
    """The outcome as plain values."""
    return asdict(outcome)


def from_record(record: dict[str, Any]) -> Outcome:
    """The outcome of plain values; KeyError or TypeError where they are of none."""
    return Outcome(
        name=record["name"],
        text=record["text"],
        status=record["status"],
        by=tuple(record["by"]),
        rules=tuple((str(n), str(p), str(t)) for n, p, t in record["rules"]),
        evidence=tuple(Evidence.of(e) for e in record["evidence"]),
    )


def read_outcomes(path: Path) -> Iterator[Outcome]:
    """The outcomes of a file of JSON lines; RuleError with the line for one that is none."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            yield from_record(json.loads(line))
        except (KeyError, TypeError, ValueError) as error:
            raise RuleError(
                f"no verified candidate: {error}",
                where=f"{path}:{number}",
                expected="one JSON object a line, written by the verifier",
                remedy="run `eqsat rules verify CANDIDATES.jsonl -o VERIFIED.jsonl`",
            ) from None


def written_outcomes(outcomes: Iterable[Outcome]) -> str:
    """The outcomes as JSON lines."""
    return "".join(json.dumps(as_record(o), ensure_ascii=False) + "\n" for o in outcomes)
