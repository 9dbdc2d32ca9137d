"""Checks of a set of laws as a whole: each holds, none makes all tensors equal, and which follow from the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

from eqsat.egraph.saturation import Limits
from eqsat.errors import GraphError, UnsoundRuleError
from eqsat.language.terms.pattern import Bindings
from eqsat.rewrites.instances.instance import draw
from eqsat.rewrites.proof.chains.cases import forms
from eqsat.rewrites.proof.chains.closure import Closure, ClosureTerm
from eqsat.rewrites.proof.chains.logic import keeps_dtype, keeps_shape
from eqsat.rewrites.proof.chains.reading import Claims, general, states
from eqsat.rewrites.proof.chains.search import Goal, ProofSearch, goal
from eqsat.rewrites.proof.chains.solver import PremiseSolver
from eqsat.rewrites.proof.entail import Entailment, entail, relevant
from eqsat.rewrites.proof.prove import counterexample, refutation
from eqsat.rewrites.rules.rule import Rule

#: What Z3 may do in search of a contradiction around one law.
STEPS = 200_000
_INSTANCES = 40
#: Laws that one task of an executor checks.
_TOGETHER = 8
_LIMITS = Limits(nodes=600, rounds=3, seconds=4.0, radius=2, matches=5_000)


@dataclass(frozen=True, slots=True)
class LawCheck:
    """The result of checking one law among others.

    `verdict` is "holds", "false" with a counterexample in `detail`, "inconsistent" where it and `because` make two
    different variables equal, or "undecided" where no instance meets its conditions. `redundant` are the laws that
    entail it, none where the others do not, and `method` says how.
    """

    name: str
    verdict: str
    detail: str = ""
    because: tuple[str, ...] = ()
    redundant: tuple[str, ...] = ()
    method: str = ""


def check_laws(
    laws: Sequence[Rule], *, redundancy: bool = True, steps: int = STEPS, executor: Executor | None = None
) -> Iterator[LawCheck]:
    """Check each law against instances and against the others, in order; several at once in an executor.

    That all laws hold of tensors of numbers, on instances, is what makes them consistent: tensors are a model of them.
    Beside that, e-graphs that hold a law's terms, saturated with all laws, and Z3, given the same terms, must not find
    two of its variables equal. A law is redundant where the others, the same law turned round apart, entail it.

    >>> from eqsat.rewrites.rules.parser import parse_rules
    >>> [c.verdict for c in check_laws(parse_rules("good: -(-x) => x\\nbad: relu(x) => -x"))]
    ['holds', 'false']
    """
    check = partial(_check, laws=tuple(laws), redundancy=redundancy, steps=steps)
    places = range(len(laws))
    yield from map(check, places) if executor is None else executor.map(check, places, chunksize=_TOGETHER)


def _check(place: int, laws: Sequence[Rule], redundancy: bool, steps: int) -> LawCheck:
    law = laws[place]
    instances = draw(law, _INSTANCES)
    if not instances:
        return LawCheck(law.name, "undecided", "no instance meets the conditions")
    mismatch = refutation(law, instances)
    because = collapse(law, laws, instances, steps)
    if mismatch is not None:
        return LawCheck(law.name, "false", counterexample(mismatch), because or ())
    if because is not None:
        return LawCheck(law.name, "inconsistent", "two different variables become equal", because)
    entailment = redundant(law, laws) if redundancy else Entailment("undecided")
    proved = entailment.verdict == "proved"
    return LawCheck(law.name, "holds", "", (), entailment.laws if proved else (), entailment.method if proved else "")


def redundant(law: Rule, laws: Sequence[Rule]) -> Entailment:
    """True if the other laws entail this one; the same law written again or turned round does not count."""
    plain = general(law)
    others = [o for o in laws if o is not law and not (states(general(o), plain) and states(plain, general(o)))]
    return entail(law, others, explain=False)


def collapse(
    law: Rule, laws: Sequence[Rule], instances: Sequence[Bindings], steps: int = STEPS
) -> tuple[str, ...] | None:
    """The laws that make two variables of this law equal, None where neither an e-graph nor Z3 finds them to.

    Its sides are looked at as they are, and with an operator of the law put on a variable, so that a law can meet
    itself.
    """
    if not law.is_equation:
        return None
    laws = [one for one in laws if one.is_equation]
    try:
        aim = goal(law, forms(law, instances)[0][0])
    except GraphError:
        return None
    leaves = aim.closure.leaves
    seeds = _seeds(aim, law)
    general_laws = [general(other) for other in laws]
    names = _collapsed(aim, law, general_laws, seeds)
    if names is not None:
        return names
    if len(leaves) < 2:
        return None
    return PremiseSolver(aim, aim.closure, steps).collapses(relevant(law, general_laws), seeds, leaves)


def _collapsed(aim: Goal, law: Rule, laws: Sequence[Rule], seeds: Sequence[int]) -> tuple[str, ...] | None:
    """The laws used where an e-graph makes variables equal, or two tensors of different type."""
    try:
        search = ProofSearch(aim, Claims(law))
        numbers = [search.encode(seed) for seed in seeds]
        search.run(laws, _LIMITS, until_proved=False)
    except UnsoundRuleError as error:
        return (error.what,)
    except GraphError:
        return None
    leaves = aim.closure.leaves
    classes = [search.egraph.find(search.encode(leaf)) for leaf in leaves]
    if len(set(classes)) == len(classes) or not numbers:
        return None
    search.replay()
    for place, leaf in enumerate(leaves):
        for other in leaves[:place]:
            if aim.closure.find(leaf) == aim.closure.find(other):
                used = sorted(aim.closure.used(leaf, other))
                return tuple(dict.fromkeys(search.equations[i].rule.name for i in used))
    return (law.name,)


def _seeds(aim: Goal, law: Rule) -> list[int]:
    """The sides, and the left side with an operator that keeps types put on each of its variables in turn."""
    closure = aim.closure
    keeping = sorted(op for op in law.operators() if keeps_shape(op) and keeps_dtype(op))
    seeds = [*aim.left, *aim.right]
    for op in keeping:
        (example, *_) = (t for t in closure.terms if t.op == op)
        for leaf in closure.leaves:
            put = closure.intern(ClosureTerm(op, example.attrs, example.symbols, (leaf,)))
            seeds += [_substituted(closure, side, leaf, put) for side in aim.left]
    for number in seeds:
        closure.revive(number)
    return list(dict.fromkeys(seeds))


def _substituted(closure: Closure, number: int, leaf: int, put: int) -> int:
    if number == leaf:
        return put
    term = closure.terms[number]
    if not term.children:
        return number
    children = tuple(_substituted(closure, c, leaf, put) for c in term.children)
    return closure.intern(ClosureTerm(term.op, term.attrs, term.symbols, children))
