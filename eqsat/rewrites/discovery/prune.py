"""Pruning: the few rules of many that derive the rest, and why each of the others went."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count

from eqsat.rewrites.discovery.equations.canonical import canonical, distinct, generalises
from eqsat.rewrites.discovery.equations.derivable import Claim, Derivability, claims, derivations
from eqsat.rewrites.discovery.equations.sides import RuleStatement
from eqsat.rewrites.discovery.equations.subgraph import lifted
from eqsat.rewrites.discovery.journal import Follow, Journal, silent
from eqsat.rewrites.proof.check import check
from eqsat.rewrites.rules.evidence import Evidence
from eqsat.rewrites.rules.rule import Rule

#: Why a rule went: it is another but for names and order; a case of another; a common subgraph makes it a case of one
#: that was proved instead; the others derive it.
RENAMING, SPECIAL, SUBGRAPH, DERIVABLE = "renaming", "special case", "common subgraph", "derivable"
#: Number of rules looked at between two reports of progress and two entries of the journal.
_AT_ONCE = 48

Verify = Callable[[Rule], Evidence]


@dataclass(frozen=True, slots=True)
class Drop:
    """Why a rule went, and by which rules that stay, or that are laws."""

    name: str
    text: str
    why: str
    by: tuple[str, ...]
    phase: str


@dataclass(frozen=True)
class Pruned:
    """The rules that stay, in the order in which they were chosen, and those that went. `lifted` are new rules."""

    kept: tuple[Rule, ...]
    dropped: Mapping[str, Drop]
    lifted: Mapping[str, Rule] = field(default_factory=dict)

    def counts(self) -> dict[str, int]:
        """The number of rules that went for each reason, and of those that stay."""
        counts = {why: sum(d.why == why for d in self.dropped.values()) for why in (RENAMING, SPECIAL, SUBGRAPH)}
        return {**counts, DERIVABLE: sum(d.why == DERIVABLE for d in self.dropped.values()), "kept": len(self.kept)}


def prune(
    verified: Sequence[Rule],
    laws: Sequence[Rule],
    *,
    verify: Verify = check,
    journal: Journal | None = None,
    progress: Follow | None = None,
) -> Pruned:
    """The rules that laws and one another do not derive, each other one with the reason it went.

    Names must differ among rules and laws together. A rule with a common subgraph goes only if the rule without it is
    verified; the latter takes its place under the former's name with "-lifted" after it.
    """
    return _Pruner(list(laws), verify, journal or Journal(), progress or silent).run(verified)


def entailed(laws: Sequence[Rule]) -> Verify:
    """The check of rules that ship: one that holds but that the laws do not entail is undecided."""

    def verify(rule: Rule) -> Evidence:
        from eqsat.rewrites.proof.verify import verify_rule

        evidence = verify_rule(rule, laws)
        if evidence.verdict != "proved" or evidence.entailed:
            return evidence
        return replace(evidence, verdict="undecided", detail="no law entails it")

    return verify


class _Pruner:
    def __init__(self, laws: list[Rule], verify: Verify, journal: Journal, progress: Follow) -> None:
        self.laws, self.verify, self.journal, self.progress = laws, verify, journal, progress
        self.dropped: dict[str, Drop] = {}
        self.rules: dict[str, Rule] = {}
        self.lifted: dict[str, Rule] = {}
        self._claims: dict[str, list[Claim]] = {}
        self._on_request: set[str] = set()

    def run(self, verified: Sequence[Rule]) -> Pruned:
        self.rules = {r.name: r for r in sorted(verified, key=lambda r: RuleStatement.of(r).effort)}
        pending = self._general(self._renamed(list(self.rules)))
        pending = self._underived("by laws", pending, self.laws)
        pending = self._lift(pending)
        names = self._greedy(pending)
        names = self._thinned(names)
        names = self._audited(names)
        chosen = [self.rules[n] for n in names]
        return Pruned(tuple(chosen), self.dropped, {n: r for n, r in self.lifted.items() if n in self.rules})

    # -- form ---------------------------------------------------------------------------------------------------------

    def _renamed(self, names: Sequence[str]) -> list[str]:
        """Drop rules that equal a law or an earlier rule up to names and order."""
        known = [(r.name, RuleStatement.of(r)) for r in self.laws]
        first, repeated = distinct([*known, *((n, RuleStatement.of(self.rules[n])) for n in names)])
        for name in names:
            if name in repeated:
                self._drop(name, RENAMING, [repeated[name]])
        distinct_names = set(first)
        return [n for n in names if n in distinct_names]

    def _general(self, names: Sequence[str]) -> list[str]:
        """Drop rules that are a case of another."""
        equations = {n: RuleStatement.of(self.rules[n]) for n in names}
        operators = {n: self.rules[n].operators() for n in names}
        remaining = dict.fromkeys(names)
        for special in names:
            for general in names:
                if (
                    general != special
                    and general in remaining
                    and operators[general] <= operators[special]
                    and generalises(equations[general], equations[special])
                ):
                    self._drop(special, SPECIAL, [general])
                    del remaining[special]
                    break
        return list(remaining)

    def _lift(self, names: Sequence[str]) -> list[str]:
        """With rules without a common subgraph in place of those that have one, where they are true."""
        known = {canonical(RuleStatement.of(r)): r.name for r in self.laws}
        # What a law says that only runs on request is no reason to leave out a case of it that runs by default.
        self._on_request = {canonical(RuleStatement.of(r)) for r in self.laws if r.phase == "associate"}
        known |= {canonical(RuleStatement.of(self.rules[n])): n for n in names}
        remaining: dict[str, None] = {}
        pending, done = list(reversed(names)), 0
        while pending:
            name = pending.pop()
            stronger = self._lifted(self.rules[name], known)
            if stronger is None:
                remaining[name] = None
            else:
                self._drop(name, SUBGRAPH, [stronger])
                if stronger in self.rules and stronger not in remaining and stronger not in pending:
                    pending.append(stronger)
            done += 1
            self.progress("common subgraphs", done, done + len(pending))
        return list(remaining)

    def _lifted(self, rule: Rule, known: dict[str, str]) -> str | None:
        """The name of a true rule that is this one without a common subgraph, None where there is none."""
        for equation in lifted(RuleStatement.of(rule)):
            key = canonical(equation)
            if key in self._on_request and rule.phase != "associate":
                continue
            if key in known and known[key] != rule.name and not self._rests_on(known[key], rule.name):
                return known[key]
            entry = f"verify:{equation.text}"
            stronger = equation.rule(self._free_name(rule.name), rule.phase)
            if entry not in self.journal:
                self.journal[entry] = self.verify(stronger).verdict
            if self.journal[entry] == "proved":
                known[key] = stronger.name
                self.rules[stronger.name] = self.lifted[stronger.name] = stronger
                return stronger.name
        return None

    def _free_name(self, name: str) -> str:
        stem = name.split("-lifted")[0] + "-lifted"
        return next(n for n in chain([stem], (f"{stem}-{i}" for i in count(2))) if n not in self.rules)

    def _rests_on(self, name: str, other: str) -> bool:
        """Return whether the drops so far lead from one rule to another."""
        pending, seen = [name], set()
        while pending:
            one = pending.pop()
            if one == other:
                return True
            if one in self.dropped and one not in seen:
                seen.add(one)
                pending += self.dropped[one].by
        return False

    # -- derivation ---------------------------------------------------------------------------------------------------

    def _underived(self, stage: str, names: Sequence[str], rules: Sequence[Rule]) -> list[str]:
        """Drop rules that these rules derive, many at a time."""
        remaining: list[str] = []
        for start in range(0, len(names), _AT_ONCE):
            batch = names[start : start + _AT_ONCE]
            entry = f"{stage}:{batch[0]}:{len(batch)}"
            if entry not in self.journal:
                proofs = derivations([c for n in batch for c in self._claims_of(n)], rules)
                self.journal[entry] = {n: list(d.rules) for n, d in proofs.items() if d}
            by = self.journal[entry]
            for name in batch:
                if name in by:
                    self._drop(name, DERIVABLE, by[name])
                else:
                    remaining.append(name)
            self.progress(stage, start + len(batch), len(names))
        return remaining

    def _greedy(self, names: Sequence[str]) -> list[str]:
        """Small and general ones first, each only if those chosen so far do not derive it."""
        chosen: list[str] = []
        order = sorted(names, key=lambda n: RuleStatement.of(self.rules[n]).effort)
        for done, name in enumerate(order, start=1):
            if chosen and (by := self._derived(name, chosen, "chosen")) is not None:
                self._drop(name, DERIVABLE, by)
            else:
                chosen.append(name)
            self.progress("by one another", done, len(order))
        return chosen

    def _thinned(self, names: Sequence[str]) -> list[str]:
        """Drop rules that those chosen later derive, large ones first."""
        remaining = list(names)
        for done, name in enumerate(reversed(names), start=1):
            others = [n for n in remaining if n != name]
            if others != names[: len(others)] and (by := self._derived(name, others, "thinned")) is not None:
                self._drop(name, DERIVABLE, by)
                remaining = others
            self.progress("by later ones", done, len(names))
        return remaining

    def _audited(self, names: Sequence[str]) -> list[str]:
        """Restore every dropped rule that the remaining ones do not derive."""
        remaining = list(names)
        lost = [n for n, d in self.dropped.items() if not self._stands(d, set(remaining))]
        for done, name in enumerate(sorted(lost, key=lambda n: RuleStatement.of(self.rules[n]).effort), start=1):
            by = self._derived(name, remaining, "audited")
            if by is None:
                remaining.append(name)
                del self.dropped[name]
            else:
                self._drop(name, self.dropped[name].why, by)
            self.progress("what was dropped", done, len(lost))
        return remaining

    def _stands(self, drop: Drop, remaining: set[str]) -> bool:
        """Return whether a rule was dropped because of laws and rules that stay, and of no others."""
        return drop.why != SUBGRAPH and all(n in remaining or n not in self.rules for n in drop.by)

    def _derived(self, name: str, chosen: Sequence[str], stage: str) -> list[str] | None:
        entry = f"{stage}:{name}:{len(chosen)}"
        if entry not in self.journal:
            rules = [*self.laws, *(self.rules[n] for n in chosen)]
            proof = derivations(self._claims_of(name), rules).get(name, Derivability(False))
            self.journal[entry] = list(proof.rules) if proof else None
        result: list[str] | None = self.journal[entry]
        return result

    def _claims_of(self, name: str) -> list[Claim]:
        if name not in self._claims:
            self._claims[name] = claims(self.rules[name])
        return self._claims[name]

    def _drop(self, name: str, why: str, by: Iterable[str]) -> None:
        self.dropped[name] = Drop(name, self.rules[name].text, why, tuple(by), self.rules[name].phase)
