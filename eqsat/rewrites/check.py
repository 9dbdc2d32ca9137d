"""Checks of one rule: symbolically with Z3, in float64, and modulo a prime, on instances drawn for it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.errors import GraphError
from eqsat.language.floats import Floats
from eqsat.language.graph import Attrs
from eqsat.language.pattern import Bindings
from eqsat.language.residues import Residues
from eqsat.language.terms import Terms
from eqsat.rewrites.evidence import Evidence, rule_hash
from eqsat.rewrites.extremes import integer_mismatch, nonfinite_mismatch
from eqsat.rewrites.instance import Drawn, Sampler, operands
from eqsat.rewrites.rule import Rule
from eqsat.rewrites.term import Term, left_terms, output_types, right_terms, values

#: Relative difference in float64 above which two results are not the same.
TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is drawn and checked: numeric instances, symbolic ones, tries for each, steps of the solver.

    The first `extremes` numeric instances are tried with infinities, NaN and integers as well. A symbolic instance has
    at most `size` elements over all its values.
    """

    numeric: int = 80
    extremes: int = 24
    symbolic: int = 24
    tries: int = 3000
    solver: int = 1_000_000
    size: int = 400


@dataclass(frozen=True)
class Instance:
    """An instance of a rule with both sides built."""

    bindings: Bindings
    left: list[Any]
    right: list[Any]

    @property
    def size(self) -> int:
        """The number of elements of all values, each counted as often as it occurs."""
        return sum(_size(t) for t in (*self.left, *self.right))

    def features(self) -> set[tuple[str, Any]]:
        """What is particular about the instance: attributes, ranks, dims of one, lengths of groups."""
        found: set[tuple[str, Any]] = set()
        for name, attr in self.bindings.attrs.items():
            for key, one in attr.items() if isinstance(attr, Attrs) else ((name, attr),):
                found.add((f"{name}.{key}", repr(one)))
        for name, thing in self.bindings.tensors.items():
            group = thing if isinstance(thing, tuple) else (thing,)
            found.add((f"len {name}", len(group)))
            for operand in group[:2]:
                found.add((f"rank {name}", operand.type.rank))
                found.add((f"ones {name}", tuple(d == 1 for d in operand.type.dims)))
        return found


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Why an instance refutes a rule."""

    reason: str
    instance: Bindings

    def __str__(self) -> str:
        lines = [f"{o.name}: {o.type}" + (f" = {_show(o.array)}" if o.read else "") for o in operands(self.instance)]
        attrs = [f"{k} = {v!r}" for k, v in self.instance.attrs.items()]
        return "; ".join([self.reason, *lines, *attrs])


def check(rule: Rule, effort: Effort = Effort(), seed: int = 0) -> Evidence:
    """Everything there is to check of a rule, deterministically.

    "proved" needs every numeric instance to agree and Z3 to settle every symbolic one.
    """
    sampler = Sampler(rule, seed)
    instances: list[Instance] = []
    exact = 0
    while len(instances) < effort.numeric:
        bindings = sampler.draw(effort.tries)
        if bindings is None:
            break
        made = build(rule, bindings)
        mismatch = made if isinstance(made, Mismatch) else numeric_mismatch(made)
        if mismatch is None and len(instances) < effort.extremes:
            mismatch = extreme_mismatch(rule, bindings)
        if isinstance(made, Mismatch) or mismatch is not None:
            return Evidence(rule.name, rule_hash(rule), "refuted", 0, len(instances) + 1, exact, 0, str(mismatch))
        exact += agrees_modulo_prime(made)
        instances.append(made)
    counts: Any = {"numeric": len(instances), "exact": exact}
    if len(instances) < 3:
        detail = f"only {len(instances)} instances meet the conditions"
        return Evidence(rule.name, rule_hash(rule), "undecided", **counts, detail=detail)
    chosen, pairs = _cover([i for i in instances if i.size <= effort.size], effort.symbolic)
    for done, instance in enumerate(chosen):
        verdict = symbolic_verdict(instance, effort.solver)
        if verdict != "proved":
            detail = str(Mismatch(f"Z3 says {verdict}", instance.bindings))
            return Evidence(rule.name, rule_hash(rule), "undecided", done, **counts, pairs=pairs, detail=detail)
    if not chosen:
        return Evidence(rule.name, rule_hash(rule), "undecided", **counts, detail="every instance is too large for Z3")
    return Evidence(rule.name, rule_hash(rule), "proved", len(chosen), **counts, pairs=pairs)


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


def numeric_mismatch(instance: Instance) -> Mismatch | None:
    """The difference of the two sides in float64, None where there is none."""
    interpretation = Floats(wide=True)
    arrays = {id(o): interpretation.constant(o.array, o.type) for o in operands(instance.bindings)}
    with np.errstate(all="ignore"):
        left = values(instance.left, interpretation, arrays)
        right = values(instance.right, interpretation, arrays)
    for a, b in zip(left, right, strict=True):
        if a.shape != b.shape:
            return Mismatch(f"shapes {a.shape} and {b.shape} differ", instance.bindings)
        if a.dtype.kind != "f":
            if not (a == b).all():
                return Mismatch("elements differ", instance.bindings)
            continue
        known = np.isfinite(a) & np.isfinite(b)
        # Where both are not finite, as after a division by zero, which of NaN and infinity they are is not compared.
        if (np.isfinite(a) != np.isfinite(b)).any():
            return Mismatch("one side is finite where the other is not", instance.bindings)
        if known.any():
            scale = max(1.0, float(np.abs(a[known]).max()))
            error = float(np.abs(a[known] - b[known]).max()) / scale
            if error > TOLERANCE:
                return Mismatch(f"float64 differs by {error:.3g}", instance.bindings)
    return None


def extreme_mismatch(rule: Rule, bindings: Bindings) -> Mismatch | None:
    """The difference of the two sides with an infinity, NaN or integers in the instance, None where there is none."""
    found = nonfinite_mismatch(rule, bindings) or integer_mismatch(rule, bindings)
    return Mismatch(*found) if found is not None else None


def agrees_modulo_prime(instance: Instance) -> bool:
    """Whether both sides are equal in residues, where every function of one variable is a random one."""
    interpretation = Residues()
    arrays = {id(o): interpretation.constant(o.array, o.type) for o in operands(instance.bindings)}
    left = values(instance.left, interpretation, arrays)
    right = values(instance.right, interpretation, arrays)
    return all(np.array_equal(a, b) for a, b in zip(left, right, strict=True))


def symbolic_verdict(instance: Instance, steps: int) -> str:
    """What Z3 says of the equality of both sides for all elements: "proved", "differs" or "unknown"."""
    interpretation = Terms()
    arrays = {id(o): _symbols(o, interpretation) for o in operands(instance.bindings)}
    left = values(instance.left, interpretation, arrays)
    right = values(instance.right, interpretation, arrays)
    for a, b in zip(left, right, strict=True):
        for x, y in zip(a.ravel(), b.ravel(), strict=True):
            verdict = interpretation.settle(x, y, steps)
            if verdict != "proved":
                return verdict
    return "proved"


def _symbols(operand: Drawn, interpretation: Terms) -> Any:
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
    total = sum(t.elements({}) for t in (term.types if isinstance(term, Term) else (term.type,)))
    return total + (sum(_size(o) for o in term.operands) if isinstance(term, Term) else 0)


def _show(array: Any) -> str:
    flat: Iterable[Any] = np.asarray(array).ravel()[:6].tolist()
    return "[" + ", ".join(f"{v:.4g}" if isinstance(v, float) else str(v) for v in flat) + "]"
