"""Entailment of rules by laws: a rule is one, or Z3 derives it, or a chain of laws that Z3 confirms step by step.

A rule that laws entail only under more conditions is given those that the proof needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from eqsat.egraph.saturation import Limits
from eqsat.rewrites.instances.instance import draw
from eqsat.rewrites.proof.chains.cases import Proved, Stuck, by_cases, forms, rules_used
from eqsat.rewrites.proof.chains.missing import missing_law
from eqsat.rewrites.proof.chains.reading import general, states
from eqsat.rewrites.proof.chains.search import both_ways, goal
from eqsat.rewrites.proof.chains.show import Printer, lines
from eqsat.rewrites.proof.chains.solver import ChainVerdict, PremiseSolver
from eqsat.rewrites.proof.prove import NO_EQUATION
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.rules.rule import Rule

#: What Z3 may do for one question; its own unit, which does not depend on the machine.
STEPS = 400_000
#: How many instances the side conditions of a chain are evaluated on.
INSTANCES = 40
#: How far the e-graph is grown in search of a chain.
LIMITS = Limits(nodes=2500, rounds=8, seconds=10.0, generations=2, radius=4, matches=20_000)


@dataclass(frozen=True, slots=True)
class Entailment:
    """The result of deriving a rule from laws.

    `verdict` is "proved" or "undecided", never false: laws that do not entail a rule say nothing of its truth. `method`
    is "law" where the rule is one, "z3" where Z3 derives it from the laws and the rule's conditions alone, "chain"
    where Z3 confirms each step of a chain whose side conditions `bounded` were checked on instances. `laws` are those
    used, `chain` the terms from side to side with the law of each step. For an undecided rule `missing` is an equation
    that would close the gap.
    """

    verdict: str
    method: str = ""
    laws: tuple[str, ...] = ()
    chain: tuple[str, ...] = ()
    detail: str = ""
    missing: str = ""
    bounded: tuple[str, ...] = ()


def entail(
    rule: Rule, laws: Sequence[Rule], *, steps: int = STEPS, limits: Limits = LIMITS, explain: bool = True
) -> Entailment:
    """True if the laws entail the rule; deterministic, since all limits but a generous clock count steps.

    Without `explain` no missing law is sought where they do not.

    >>> from eqsat.rewrites.rules.parser import parse_rules
    >>> law, rule = parse_rules("law: -(-x) => x\\nrule: relu(-(-x)) => relu(x)")
    >>> entail(rule, [law]).chain
    ('relu(neg(neg(x)))', '= relu(x)  [law]')
    """
    if not rule.is_equation:
        return Entailment("undecided", detail=NO_EQUATION)
    others = [law for law in laws if law is not rule and law.is_equation]
    wanted = general(rule)
    usable = [general(law) for law in others]
    for law in usable:
        if states(law, wanted):
            return Entailment("proved", "law", (law.name,), detail="it is a law")
    instances = draw(rule, INSTANCES)
    if not instances:
        return Entailment("undecided", detail="no instance meets the conditions")
    proofs: list[Proved] = []
    for form in forms(rule, instances):
        result = by_cases(rule, usable, form, limits)
        if isinstance(result, Stuck):  # laws are equations, but few proofs need them from right to left
            result = by_cases(rule, both_ways(usable), form, replace(limits, nodes=limits.nodes // 2, radius=2))
        if isinstance(result, Stuck):
            return _without_chain(rule, usable, result, steps, explain)
        proofs.append(result)
    return _judged(proofs, steps)


def _judged(proofs: Sequence[Proved], steps: int) -> Entailment:
    """Z3's verdict on the chains of every form of the rule."""
    first = proofs[0].cases[0]
    used = rules_used(proofs)
    chain = lines(Printer(first.closure), [k for c in first.chains for k in c], first.names)
    solvers = [(PremiseSolver.of(case, steps), case) for p in proofs for case in p.cases]
    if all(len(p.cases) == 1 for p in proofs):
        cores = [
            solver.entailed(list({e.rule.name: e.rule for e in case.equations}.values())) for solver, case in solvers
        ]
        if all(core is not None for core in cores):
            laws = tuple(dict.fromkeys(name for core in cores for name in core or ()))
            return Entailment("proved", "z3", laws, chain, _forms_text(proofs))
    verdicts = [solver.verdict(case) for solver, case in solvers]
    refused = next((s for s in verdicts if not s.confirmed), None)
    if refused is not None:
        return Entailment("undecided", laws=used, chain=chain, detail=refused.why)
    bounded = tuple(dict.fromkeys(text for s in verdicts for text in s.bounded))
    return Entailment("proved", "chain", used, chain, _chain_text(proofs, verdicts, len(bounded)), bounded=bounded)


def _without_chain(rule: Rule, laws: Sequence[Rule], stuck: Stuck, steps: int, explain: bool) -> Entailment:
    """Z3 alone, where no chain was found."""
    if stuck.search is None:
        return Entailment("undecided", detail=stuck.stopped_by)
    aim = stuck.search.goal
    fresh = goal(rule, aim.bindings)
    core = PremiseSolver(fresh, fresh.closure, steps).entailed(relevant(rule, laws))
    sequences = [t for t in fresh.env.values() if isinstance(t, tuple)]
    if core is not None and not sequences:
        return Entailment("proved", "z3", core, detail="no chain in an instance")
    detail = f"the sides do not meet: {stuck.stopped_by}"
    return Entailment("undecided", detail=detail, missing=missing_law(stuck.search) if explain else "")


def relevant(rule: Rule, laws: Sequence[Rule]) -> list[Rule]:
    """The laws whose left sides are made of operators of the rule, or of those that such laws bring in."""
    known = set(rule.operators())
    chosen: dict[str, Rule] = {}
    for _ in range(2):
        for law in laws:
            if law.name not in chosen and law.matched <= known:
                chosen[law.name] = law
        known |= {o for law in chosen.values() for o in law.operators()}
    return list(chosen.values())[:200]


def _forms_text(proofs: Sequence[Proved]) -> str:
    lengths = sorted({len(t) for p in proofs for c in p.cases for t in c.goal.env.values() if isinstance(t, tuple)})
    return f"sequences of {' and '.join(map(str, lengths))}" if lengths else ""


def _chain_text(proofs: Sequence[Proved], verdicts: Sequence[ChainVerdict], bounded: int) -> str:
    instances = sum(p.instances for p in proofs)
    parts = [f"{sum(s.steps for s in verdicts)} steps"]
    cases = max(len(p.cases) for p in proofs)
    if cases > 1:
        parts.append(f"by {cases} cases")
    follow = sum(s.follow for s in verdicts)
    parts.append(f"{follow} side conditions follow from the rule's own")
    if bounded:
        parts.append(f"{bounded} hold in all {instances} instances drawn")
    text = _forms_text(proofs)
    return "; ".join([*parts, text] if text else parts)


def with_conditions(rule: Rule, laws: Sequence[Rule], *, steps: int = STEPS) -> tuple[Rule, Entailment]:
    """The rule, under more conditions where laws entail it only so, and how they entail it.

    Laws of arithmetic ask for wide floats and finite operands, and instances in float64 of ordinary numbers do not show
    why. No more operands are asked to be finite than the proof needs.

    >>> from eqsat.rewrites.rules.parser import parse_rules
    >>> (law,) = parse_rules("law: (x + y) * z => x * z + y * z if wide(x), finite(z)")
    >>> (rule,) = parse_rules("rule: (x + y) * z => x * z + y * z")
    >>> with_conditions(rule, [law])[0].text
    '(x + y) * z => x * z + y * z if wide(x), finite(z)'
    """
    plain = entail(rule, laws, steps=steps, explain=False)
    if plain.verdict == "proved":
        return rule, plain
    names = (*sorted(rule.tensors), *sorted(rule.tensor_groups))
    wide = next((n for n in names if n in rule.tensors), "")
    stronger = _under(rule, wide, names)
    entailment = entail(stronger, laws, steps=steps)
    if entailment.verdict != "proved":
        return rule, entailment
    finite = names
    for fewer in ("", *names):
        less = (wide, tuple(n for n in finite if n != fewer)) if fewer else ("", finite)
        result = entail(candidate := _under(rule, *less), laws, steps=steps, explain=False)
        if result.verdict == "proved":
            (wide, finite), stronger, entailment = less, candidate, result
    return stronger, entailment


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
    (stronger,) = parse_rules(f"{rule.name}: {text}", rule.where, origin=rule.origin)
    return replace(stronger, phase=rule.phase, laws=rule.laws, reason=rule.reason, where=rule.where)
