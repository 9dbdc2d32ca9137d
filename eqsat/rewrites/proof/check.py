"""Checks of one rule on instances drawn for it: its types, symbolically with Z3, in float64, and modulo a prime."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np

from eqsat.errors import BoundsError, DeclarationError, GraphError
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.arithmetic.reals import Reals
from eqsat.language.arithmetic.residues import Residues
from eqsat.language.ops import spec
from eqsat.language.terms import Attrs, Bindings
from eqsat.rewrites.instances.directed import TURNS, beyond
from eqsat.rewrites.instances.elements import Drawn, Filler
from eqsat.rewrites.instances.extremes import integer_mismatch, nonfinite_mismatch
from eqsat.rewrites.instances.instance import Sampler, arrays_of, evaluated, operands, refuses
from eqsat.rewrites.instances.mismatch import Mismatch
from eqsat.rewrites.instances.typings import Typings
from eqsat.rewrites.proof.bounded import levels, run_bounded
from eqsat.rewrites.proof.floats import numbers_of
from eqsat.rewrites.proof.scope import SizesProof
from eqsat.rewrites.proof.sizes import QUESTIONS, prove_sizes
from eqsat.rewrites.rules.evidence import Evidence, rule_hash
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.rules.term import (
    Term,
    difference,
    distinct,
    is_defined,
    left_terms,
    output_types,
    right_terms,
    typed_left,
    values,
)


@dataclass(frozen=True, slots=True)
class Effort:
    """The amount to draw and check: numeric instances, symbolic ones, tries for each, steps of the solver.

    The first `extremes` numeric instances are tried with infinities, NaN and integers as well; `turned` is how many
    questions of types and conditions are turned to solve for others; `questions` is how often Z3 is asked for a proof
    for every size, 0 for none, and `wider` how many times as often where Z3 does not settle an instance; `bounded` is
    the budget of choices for bounded execution, 0 for none. A symbolic instance has at most `size` elements in all.
    """

    numeric: int = 80
    extremes: int = 24
    turned: int = TURNS
    questions: int = 400
    wider: int = 40
    bounded: int = 0
    symbolic: int = 24
    tries: int = 3000
    solver: int = 1_000_000
    size: int = 400


#: What evidence that is kept takes: bounded execution, and instances for Z3 that cover all pairs of features.
THOROUGH = Effort(bounded=16_000, symbolic=32, questions=QUESTIONS, wider=80)
#: The same with every instance up to 4 a side, which takes hours for convolutions.
EXHAUSTIVE = Effort(bounded=10**12, symbolic=32, questions=QUESTIONS, wider=80)
#: The most elements of an instance that a proof for every size ended on, and how often it is given some.
_ELEMENTS, _FILLINGS = 200_000, 6
#: How many draws of elements that an operator refuses are made for each instance.
_REFUSED = 20
#: The highest rank of an instance that a wider proof is to settle.
_HIGHEST = 5


@dataclass(frozen=True)
class Instance:
    """An instance of a rule with both sides built."""

    bindings: Bindings
    left: list[Any]
    right: list[Any]

    @property
    def size(self) -> int:
        """The number of elements of all values of both sides, operands as often as they are read."""
        return sum(map(_size, distinct(self.left))) + sum(map(_size, distinct(self.right)))

    def features(self) -> set[tuple[str, Any]]:
        """The features of the instance: attributes, ranks, lengths of groups, and sizes on a bound.

        On a bound are dims of one, operands of equal dims, kernels as large as what they run over, as many groups as
        channels, pads of nothing. Of a tuple of numbers the least and the largest count, of a permutation its kind.
        """
        features: set[tuple[str, Any]] = set()
        for name, attr in self.bindings.attrs.items():
            for key, one in attr.items() if isinstance(attr, Attrs) else ((name, attr),):
                features |= {(f"{name}.{key}", kind) for kind in _kinds(one)}
        shapes: dict[str, tuple[int, ...]] = {}
        for name, thing in self.bindings.tensors.items():
            group = thing if isinstance(thing, tuple) else (thing,)
            features.add((f"len {name}", len(group)))
            shapes |= {f"{name}{i}": operand.type.static for i, operand in enumerate(group[:2])}
        for name, dims in shapes.items():
            features |= {
                (f"rank {name}", len(dims)),
                (f"one in {name}", 1 in dims),
                (f"only ones in {name}", {*dims} <= {1}),
            }
            for other, more in shapes.items():
                if name < other and len(dims) == len(more):
                    meet = tuple(i for i, (m, n) in enumerate(zip(dims, more, strict=True)) if m == n)
                    features |= {
                        (f"{name} and {other} meet", len(meet)),
                        (f"{name} and {other} last", dims[-1:] == more[-1:]),
                    }
        groups = [a["group"] for a in self.bindings.attrs.values() if isinstance(a, Attrs) and "group" in a]
        features |= {("a group a channel", any(d[1:2] == (g,) for d in shapes.values())) for g in groups}
        return features


def _kinds(attr: Any) -> Iterable[Any]:
    """Keys that tell one attribute from another."""
    if not isinstance(attr, tuple) or not attr or not all(isinstance(a, int) for a in attr):
        return (repr(attr),)
    if sorted(attr) == list(range(len(attr))) and len(attr) > 1:
        order = list(attr)
        moved = "nothing" if order == sorted(order) else "all" if order == sorted(order)[::-1] else "some"
        return (f"moves {moved}", f"last {'stays' if order[-1] == len(order) - 1 else 'moves'}")
    return (f"least {min(attr)}", f"most {max(attr)}", f"{len(attr)}")


def check(rule: Rule, effort: Effort = Effort(), seed: int = 0) -> Evidence:
    """Everything there is to check of a rule on instances, deterministically.

    "proved" needs every drawn instance to agree, every one of the bounded grid, and Z3 to settle every symbolic one.
    """
    evidence = partial(Evidence, rule.name, rule_hash(rule))
    instances, exact, refuting, seeds = _drawn(rule, effort, seed)
    if refuting is not None:
        return evidence("refuted", numeric=len(instances) + 1, detail=str(refuting))
    counts: dict[str, Any] = {"numeric": len(instances), "exact": exact}
    if effort.questions:
        sizes = prove_sizes(rule, effort.questions)
        refuting = size_mismatch(rule, sizes, seed)
        if refuting is not None:
            return evidence("refuted", **counts, detail=str(refuting))
        counts |= {"ranks": sizes.rank, "every_rank": sizes.every_rank, "open": sizes.open}
    for bindings in beyond(rule, *seeds, seed, effort.turned) if effort.turned else ():
        instance = build(rule, bindings)
        try:
            refuting = instance if isinstance(instance, Mismatch) else numeric_mismatch(instance)
        except BoundsError:
            continue
        counts["numeric"] += 1
        if refuting is not None or isinstance(instance, Mismatch):
            return evidence("refuted", **counts, detail=str(refuting))
        instances.append(instance)
    if len(instances) < 3:
        return evidence("undecided", **counts, detail=f"only {len(instances)} instances meet the conditions")
    if effort.bounded:
        bounded = run_bounded(rule, effort.bounded, seed)
        counts["numeric"] += bounded.floats
        counts |= {"bounded": bounded.exact, "exhaustive": bounded.exhaustive}
        if bounded.level is not None:
            counts |= {"side": bounded.level.side, "deep": bounded.level.deep}
        if bounded.bindings is not None:
            return evidence("refuted", **counts, detail=str(Mismatch(bounded.reason, bounded.bindings)))
        more = _more(rule, seed)
        for instance in more[::2]:
            refuting = extreme_mismatch(rule, instance.bindings)
            if refuting is not None:
                return evidence("refuted", **counts, detail=str(refuting))
        instances += more
    wider: SizesProof | None = None
    chosen, pairs = _cover([i for i in instances if i.size <= effort.size], effort.symbolic)
    for done, instance in enumerate(chosen):
        verdict = symbolic_verdict(instance, effort.solver)
        if verdict != "proved" and effort.questions:
            # What Z3 does not settle for these elements one by one, a proof for every size may.
            rank = max(one.type.rank for one in operands(instance.bindings))
            if wider is None or wider.rank < rank <= _HIGHEST:
                wider = prove_sizes(rule, effort.wider * effort.questions, rank)
            counts |= {"ranks": wider.rank, "every_rank": wider.every_rank, "open": wider.open}
            verdict = "proved" if wider.covers(rule, instance.bindings) else verdict
        if verdict != "proved":
            detail = str(Mismatch(f"Z3 says {verdict}", instance.bindings))
            return evidence("undecided", symbolic=done, **counts, pairs=pairs, detail=detail)
    if not chosen:
        return evidence("undecided", **counts, detail="every instance is too large for Z3")
    return evidence("proved", symbolic=len(chosen), **counts, pairs=pairs, numbers=numbers_of(rule))


def _drawn(
    rule: Rule, effort: Effort, seed: int
) -> tuple[list[Instance], int, Mismatch | None, tuple[list[Bindings], list[Bindings]]]:
    """Drawn instances that agree, those of the grid where none can be drawn, until one refutes the rule.

    Beside them, how many agree modulo a prime too, the mismatch of the one that refutes, and what solving may begin at:
    these instances, and those that conditions refused.
    """
    sampler = Sampler.unnamed(rule, seed)
    instances: list[Instance] = []
    exact = refused = 0
    first = iter(lambda: sampler.draw(effort.tries), None)
    for bindings in itertools.chain(first, _few(rule, seed) if effort.bounded else ()):
        if len(instances) >= effort.numeric:
            break
        instance = build(rule, bindings)
        try:
            refuting = instance if isinstance(instance, Mismatch) else numeric_mismatch(instance)
        except BoundsError:  # elements that the left side does not take
            refused += 1
            if refused > _REFUSED * effort.numeric:
                break
            continue
        if refuting is None and len(instances) < effort.extremes:
            refuting = extreme_mismatch(rule, bindings)
        if refuting is not None or isinstance(instance, Mismatch):
            return instances, exact, refuting, ([], [])
        exact += agrees_modulo_prime(instance)
        instances.append(instance)
    return instances, exact, None, ([one.bindings for one in instances], sampler.refused)


def size_mismatch(rule: Rule, sizes: SizesProof, seed: int = 0) -> Mismatch | None:
    """The mismatch of the instance on which a proof for every size ended, given some elements; None without one."""
    if sizes.instance is None or sum(prod(o.type.static) for o in operands(sizes.instance)) > _ELEMENTS:
        return None
    filler, rng = Filler(rule), random.Random(f"{seed}:sizes")
    for _ in range(_FILLINGS):
        for operand in operands(sizes.instance):
            filler.fill(operand, sizes.instance, rng)
        if typed_left(rule, sizes.instance) is None or rule.refused(sizes.instance) is not None:
            continue
        try:
            found = mismatch(rule, sizes.instance) if is_defined(rule, sizes.instance) else None
        except BoundsError:
            continue
        if found is not None:
            return found
    return None


def _few(rule: Rule, seed: int) -> Iterable[Bindings]:
    """Small instances of the grid."""
    return (bindings for bindings, _ in Typings(rule, levels(rule)[0], seed, budget=4000))


def _more(rule: Rule, seed: int) -> list[Instance]:
    """Instances of the grid from all over it, so that those for Z3 show features that are seldom drawn."""
    few = list(_few(rule, seed))
    instances = (build(rule, b) for b in few[:: max(1, len(few) // 120)] if is_defined(rule, b))
    return [i for i in instances if isinstance(i, Instance) and not refuses(i.left, i.bindings)]


def build(rule: Rule, bindings: Bindings) -> Instance | Mismatch:
    """Both sides over the bindings; a mismatch where the right side does not type, or types differ."""
    left = left_terms(rule, bindings)
    try:
        right = right_terms(rule, bindings)
    except GraphError as error:
        return Mismatch(f"the right side does not type: {error.what}", bindings)
    ours, theirs = output_types(left), output_types(right)
    if ours != theirs:
        text = f"types differ: {', '.join(map(str, ours))} and {', '.join(map(str, theirs))}"
        return Mismatch(text, bindings)
    return Instance(bindings, left, right)


def mismatch(rule: Rule, bindings: Bindings) -> Mismatch | None:
    """The mismatch of types, or of elements in float64, by which an instance refutes a rule; None where it does not."""
    instance = build(rule, bindings)
    return instance if isinstance(instance, Mismatch) else numeric_mismatch(instance)


def numeric_mismatch(instance: Instance) -> Mismatch | None:
    """The difference of the two sides in float64, None where there is none; BoundsError where the left one has none."""
    interpretation = Floats(wide=True)
    arrays = arrays_of(instance.bindings, interpretation)
    sides = []
    for name, side in (("left", instance.left), ("right", instance.right)):
        try:
            with np.errstate(all="ignore"):
                sides.append(values(side, interpretation, arrays))
        except BoundsError as error:
            if name == "left":
                raise
            return Mismatch(f"the right side passes bounds: {error.what}", instance.bindings)
        except (ArithmeticError, IndexError, TypeError, ValueError) as error:  # a shape rule that promised too much
            return Mismatch(f"the {name} side types but cannot be computed: {error}", instance.bindings)
    reason = difference(*sides)
    return Mismatch(reason, instance.bindings) if reason is not None else None


def extreme_mismatch(rule: Rule, bindings: Bindings) -> Mismatch | None:
    """The difference of the two sides with an infinity, NaN or integers in the instance, None where there is none."""
    differing = nonfinite_mismatch(rule, bindings) or integer_mismatch(rule, bindings)
    return Mismatch(*differing) if differing is not None else None


def agrees_modulo_prime(instance: Instance) -> bool:
    """True if both sides are equal in residues, where every function of one variable is a random one."""
    left, right = evaluated(instance.bindings, Residues(), instance.left, instance.right)
    return all(np.array_equal(a, b) for a, b in zip(left, right, strict=True))


def symbolic_verdict(instance: Instance, steps: int) -> str:
    """The verdict of Z3 on the equality of both sides for all elements: "proved", "differs" or "unknown".

    An operator that is declared elsewhere may compute what terms do not follow: that is unknown, for a reason.
    """
    from z3 import Z3Exception

    interpretation = Reals()
    arrays = {id(o): _symbols(o, interpretation) for o in operands(instance.bindings)}
    declared = any(not spec(one.op).is_shipped for one in distinct(instance.left) if isinstance(one, Term))
    try:
        left = values(instance.left, interpretation, arrays)
        right = values(instance.right, interpretation, arrays)
    except (AttributeError, DeclarationError, TypeError, ValueError, Z3Exception) as error:
        if not declared:
            raise
        return f"unknown, as terms do not follow: {type(error).__name__}: {error}"
    for a, b in zip(left, right, strict=True):
        for x, y in zip(a.ravel(), b.ravel(), strict=True):
            verdict = interpretation.settle(x, y, steps)
            if verdict != "proved":
                return verdict
    return "proved"


def _symbols(operand: Drawn, interpretation: Reals) -> Any:
    """Variables for the elements; the elements themselves where the rule has looked at them, or they are indices."""
    if operand.read or operand.type.dtype.is_integer:
        return interpretation.constant(operand.array, operand.type)
    boolean = operand.type.dtype.value == "bool"
    return interpretation.variable(operand.name, operand.type.static, boolean)


def _cover(instances: Sequence[Instance], most: int) -> tuple[list[Instance], int]:
    """Instances that together show as many pairs of features as a greedy choice of so many can, small ones first."""
    pool = [(i, set(itertools.combinations(sorted(i.features(), key=repr), 2))) for i in instances]
    pool.sort(key=lambda p: p[0].size)
    covered: set[Any] = set()
    chosen: list[Instance] = []
    while pool and len(chosen) < most:
        best = max(range(len(pool)), key=lambda k: len(pool[k][1] - covered))
        if chosen and not pool[best][1] - covered:
            break
        instance, pairs = pool.pop(best)
        covered |= pairs
        chosen.append(instance)
    return chosen, len(covered)


def _size(term: Any) -> int:
    return sum(t.elements({}) for t in (term.types if isinstance(term, Term) else (term.type,)))
