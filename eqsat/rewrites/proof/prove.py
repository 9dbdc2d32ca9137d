"""Proofs of equations by rules: refuted on instances, or proved by saturation with a chain of rules, or neither."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from eqsat.egraph.saturation import Limits
from eqsat.errors import RuleError
from eqsat.language.terms.pattern import App, Bindings
from eqsat.rewrites.instances.directed import beyond
from eqsat.rewrites.instances.instance import Sampler, operands
from eqsat.rewrites.instances.mismatch import Mismatch
from eqsat.rewrites.instances.numbers import instances_with_numbers
from eqsat.rewrites.proof.chains.cases import ProofCase, Proved, Stuck, by_cases, forms, rules_used
from eqsat.rewrites.proof.chains.missing import missing_law
from eqsat.rewrites.proof.chains.reading import general
from eqsat.rewrites.proof.chains.show import Printer, lines
from eqsat.rewrites.proof.chains.solver import PremiseSolver
from eqsat.rewrites.proof.check import extreme_mismatch, mismatch, size_mismatch
from eqsat.rewrites.proof.sizes import prove_sizes
from eqsat.rewrites.proof.unmet import Unmet, unmet
from eqsat.rewrites.rules.derive import spellings
from eqsat.rewrites.rules.rule import Rule

#: Instances that a chain has to hold in.
INSTANCES = 24
#: The instances that are drawn to compare the sides, and the tries for each of them.
DRAWN, TRIES = 80, 2000
#: What Z3 may do to derive a condition on element types.
STEPS = 200_000
#: The widest search; it begins with a fourth of the e-nodes and a radius of two.
LIMITS = Limits(nodes=20_000, rounds=12, seconds=60.0, generations=2, radius=8, matches=50_000)
#: How often Z3 is asked for a proof for every size.
QUESTIONS = 1_000
#: So many of the instances are tried with infinities, NaN and integers as well.
_EXTREMES = 8
#: Why neither chains nor logic prove a rule.
NO_EQUATION = "an operand is left out, or outputs are told apart, which proofs do not read"
#: Operands of more elements are shown by their type.
_SHOWN_ELEMENTS = 8
#: At most this many outputs have their chain shown.
_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of trying to prove an equation.

    `verdict` is "proved", "refuted" or "undecided". `chain` holds the terms from the left side to the right side, each
    but the first with the rule that leads to it, in the most typical of the cases; `rules` all rules used in any.
    `counterexample` are operands and attributes on which the sides differ. `instances` is how many instances the chain
    holds in, or how many were compared; `detail` says what limit ended the search, and what equation would close the
    gap, which `missing` is. `unmet` says why there is no instance. A line of a file that is no equation is "malformed",
    and `error` says what, where, what was expected and what to do; `where` is its place, or the equation's. `swapped`
    says that the chain begins at the right side, for the left one is a bare variable; `implied` are conditions that the
    equation's numbers imply. `assumed` are side conditions of steps that follow from no condition of the equation: they
    hold in all instances that were looked at. `ranks` is the rank up to which elements at every index are shown to be
    equal for every size, -1 where they are not, `every_rank` says that no higher one is left, and `open` why the proof
    goes no further.
    """

    name: str
    verdict: str
    chain: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    counterexample: str = ""
    instances: int = 0
    cases: int = 0
    detail: str = ""
    missing: str = ""
    unmet: Unmet | None = None
    where: str = ""
    error: Mapping[str, str] | None = None
    swapped: bool = False
    implied: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    ranks: int = -1
    every_rank: bool = False
    open: str = ""


def prove(rule: Rule, rules: Sequence[Rule], limits: Limits = LIMITS) -> Proof:
    """Refute an equation on drawn instances, or prove it by saturating with the rules, ever wider.

    Conditions that only say when a rule is worth firing, `constant` and `static`, are left out: a rule is an equation
    here. A proof is a chain found in one instance whose every step is an instance of its rule in all others drawn, or
    several such chains for different cases; sequences have two and three elements. What rules ask of element types, Z3
    has to derive from what the equation says of them, since instances are drawn in one type. Attributes that are left
    out or written out, and axes counted from either end, are known to be the same.

    >>> from eqsat.rewrites.rules.parser import parse_rules
    >>> law, rule = parse_rules("law: -(-x) => x\\nrule: relu(-(-x)) => relu(x)")
    >>> prove(rule, [law]).chain
    ('relu(neg(neg(x)))', '= relu(x)  [law]')
    >>> prove(parse_rules("wrong: -(-x) => -x")[0], [law]).verdict
    'refuted'
    """
    instances, refuting = examined(rule)
    if not instances:
        missed = unmet(rule)
        return Proof(rule.name, "undecided", detail=str(missed), unmet=missed)
    asked = unswapped(rule)
    if refuting is None and asked is not None:
        refuting = examined(asked)[1]
    if refuting is not None:
        return Proof(rule.name, "refuted", counterexample=counterexample(refuting), instances=len(instances))
    sizes = prove_sizes(rule, QUESTIONS)
    refuting = size_mismatch(rule, sizes)
    if refuting is not None:
        return Proof(rule.name, "refuted", counterexample=counterexample(refuting), instances=len(instances) + 1)
    if not rule.is_equation:
        return Proof(rule.name, "undecided", instances=len(instances), detail=NO_EQUATION)
    equations = [general(r) for r in (*rules, *spellings(rule.operators())) if r.is_equation]
    proofs: list[Proved] = []
    assumed: dict[str, None] = {}
    start = time.perf_counter()
    for form in forms(rule, instances):
        result = _widening(rule, equations, form, limits, start)
        if isinstance(result, Stuck):
            gap = missing_law(result.search, itself=False) if result.search is not None else ""
            hint = f"would follow from {gap}" if gap else "no smaller equation was found that it would follow from"
            detail = f"{result.stopped_by}; {hint}" if result.search is not None else result.stopped_by
            return Proof(rule.name, "undecided", instances=len(instances), detail=detail, missing=gap)
        proofs.append(result)
        for case in result.cases:
            types, _ = PremiseSolver.of(case, STEPS).side_conditions(case)
            if not types.confirmed:
                return Proof(rule.name, "undecided", chain_text(case), instances=len(instances), detail=types.why)
            assumed |= dict.fromkeys(types.bounded)
    return replace(_proof(rule, proofs, tuple(assumed)), ranks=sizes.rank, every_rank=sizes.every_rank, open=sizes.open)


def examined(rule: Rule) -> tuple[list[Bindings], Mismatch | None]:
    """Instances to search for a proof in, and the mismatch of one that refutes the rule: drawn, or else solved for."""
    sampler = Sampler.unnamed(rule)
    drawn = list(instances_with_numbers(rule, INSTANCES, TRIES))
    drawn += islice(iter(lambda: sampler.draw(TRIES), None), DRAWN - len(drawn))
    refuting = refutation(rule, drawn)
    if refuting is not None:
        return drawn[:INSTANCES], refuting
    solved = list(beyond(rule, drawn, sampler.refused))
    return (drawn or solved)[:INSTANCES], refutation(rule, solved)


def unswapped(rule: Rule) -> Rule | None:
    """An equation of a bare variable as it was asked, of any tensor that the conditions admit; None for any other.

    None too where the other side binds names: it is asked where these have values for which it types.
    """
    if not rule.swapped or not isinstance(rule.left, tuple):
        return None
    left = (App("identity", rule.right),)
    try:
        return replace(rule, left=left, right=rule.left, text=f"turned: {rule.text}", swapped=False)
    except RuleError:
        return None


def refutation(rule: Rule, instances: Sequence[Bindings]) -> Mismatch | None:
    """The smallest of these instances in which the sides differ, in type or in an element; None where none does."""
    mismatches = [m for m in (mismatch(rule, bindings) for bindings in instances) if m is not None]
    if not mismatches:
        mismatches = [m for m in (extreme_mismatch(rule, b) for b in instances[:_EXTREMES]) if m is not None]
    return min(mismatches, key=lambda m: sum(o.array.size for o in operands(m.instance)), default=None)


def counterexample(mismatch: Mismatch) -> str:
    """A mismatch as text, with the operands' elements where they are few."""
    parts = [mismatch.reason]
    for operand in operands(mismatch.instance):
        array = np.asarray(operand.array)
        shown = np.array2string(array, precision=3, separator=", ", max_line_width=1000).replace("\n", "")
        parts.append(f"{operand.name}: {operand.type}" + (f" = {shown}" if array.size <= _SHOWN_ELEMENTS else ""))
    return "; ".join(parts + [f"{k} = {v!r}" for k, v in mismatch.instance.attrs.items()])


def _widening(
    rule: Rule, equations: Sequence[Rule], instances: Sequence[Bindings], limits: Limits, start: float
) -> Proved | Stuck:
    """Search with limits that grow to the given ones, until the sides meet or nothing more can come."""
    radius, nodes = min(2, limits.radius), limits.nodes
    result: Proved | Stuck | None = None
    for share in (16, 4, 1):
        left = limits.seconds - (time.perf_counter() - start)
        if result is not None and left <= 0:
            break
        step = replace(limits, nodes=max(nodes // share, 1), radius=radius, seconds=max(left, 0.0))
        result = by_cases(rule, equations, instances, step)
        if isinstance(result, Proved) or result.stopped_by == "saturated":
            break
        radius = min(2 * radius, limits.radius)
    if result is None:
        raise ValueError("no search was made")
    return result


def _proof(rule: Rule, proofs: Sequence[Proved], assumed: tuple[str, ...]) -> Proof:
    return Proof(
        rule.name,
        "proved",
        chain=chain_text(proofs[0].cases[0]),
        rules=rules_used(proofs),
        instances=sum(p.instances for p in proofs),
        cases=max(len(p.cases) for p in proofs),
        assumed=assumed,
    )


def chain_text(case: ProofCase) -> tuple[str, ...]:
    """The chains of a case's outputs as text."""
    printer = Printer(case.closure)
    shown: list[str] = []
    for start, chain in list(zip(case.goal.left, case.chains, strict=True))[:_SHOWN]:
        shown += lines(printer, chain, case.names) or (printer.term(start),)
    return tuple(shown)
