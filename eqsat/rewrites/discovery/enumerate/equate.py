"""Equations: terms of equal fingerprints that pass a second test, without renamings and instances of earlier ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from eqsat.language.arithmetic.floats import Floats
from eqsat.language.ops import spec
from eqsat.language.terms.types import TensorType
from eqsat.rewrites.discovery.enumerate.arithmetic import ResidueArithmetic, combined
from eqsat.rewrites.discovery.enumerate.build import SpaceBuilder
from eqsat.rewrites.discovery.enumerate.instances import Key, Simplifier, SubsumptionIndex, match, unordered
from eqsat.rewrites.discovery.enumerate.space import PARTS, Level
from eqsat.rewrites.discovery.enumerate.term import Apply, InputVariable, Term, size, variables
from eqsat.rewrites.rules.term import outputs


@dataclass(frozen=True, slots=True)
class TermEquation:
    """Terms equal to others, output by output; `lossy` as in a candidate. The left side binds every variable."""

    left: tuple[Term, ...]
    right: tuple[Term, ...]
    lossy: float = 0.0
    fingerprint: int = 0


#: Counts of a domain: distinct values; equal pairs before any is left out; those left out because neither side binds
#: all variables, or as renamings, as instances or as derived; those that fresh data rejects, and the lossy ones.
TALLIES = ("values", "pairs", "unbound", "renamed", "instances", "derived", "rejected", "lossy")
#: Two equal terms, their fingerprint, and the code of the first.
Pair: TypeAlias = "tuple[Term, Term, int, int]"


class Finder:
    """A search for the equations of a space's levels, lowest first."""

    def __init__(self, builder: SpaceBuilder, retest: Retest, instances: SubsumptionIndex) -> None:
        self.builder, self.space, self.retest, self.instances = builder, builder.space, retest, instances
        self.simplifier = Simplifier(builder, instances)
        self.tally: Counter[str] = Counter()
        self._seen: set[Key] = set()
        self._ranks: list[tuple[Any, int]] = []
        counts: Counter[Any] = Counter()
        for type in self.space.domain.variables():
            self._ranks.append((type, counts[type]))
            counts[type] += 1

    def leaves(self) -> list[TermEquation]:
        """Constants that are equal."""
        return self._kept([(a, b, 0, 0) for a, b in self.space.equal_leaves])

    def level(self, number: int, level: Level) -> list[TermEquation]:
        """The equations between a level's terms and terms of as many operators or fewer."""
        self.instances.commuting.update(self.space.forms[f].op for f in self.space.commuting)
        return self._kept(self._pairs(number, level), number, level)

    def _pairs(self, number: int, level: Level) -> Iterator[Pair]:
        for hashed, codes, low in self._classes(number, level):
            pairs = self._to_known(level, codes, low) if low is not None else self._among(level, codes)
            yield from ((a, b, hashed, code) for a, b, code in pairs)

    def _classes(self, number: int, level: Level) -> Iterator[tuple[int, list[int], int | None]]:
        """Fingerprint, codes and the value of fewer operators, for each class of terms that says something."""
        order = np.argsort(level.hashes, kind="stable")
        hashes, codes = level.hashes[order], level.codes[order]
        firsts = np.flatnonzero(np.r_[True, hashes[1:] != hashes[:-1]]) if len(hashes) else np.empty(0, np.int64)
        ends = np.r_[firsts[1:], len(hashes)]
        place = np.searchsorted(self.space.known_hashes, hashes[firsts])
        place = np.minimum(place, len(self.space.known_hashes) - 1)
        known = self.space.known_hashes[place] == hashes[firsts]
        values = np.where(known, self.space.known_values[place], -1)
        lower = known & (self.space.level_of[values] < number)
        self.tally["values"] += int((~lower).sum())
        self.tally["pairs"] += int((ends - firsts - ~lower).sum())
        telling = np.flatnonzero(lower | (ends - firsts > 1))
        named = self._canonical(level, codes)
        sums = np.r_[0, np.cumsum(named)]
        for i in telling[sums[ends[telling]] > sums[firsts[telling]]].tolist():
            low, high = int(firsts[i]), int(ends[i])
            if lower[i]:
                yield int(hashes[low]), codes[low:high][named[low:high]].tolist(), int(values[i])
            else:
                flags = named[low:high]
                # Those with their variables in order come first, with their sign turned.
                members = codes[low:high]
                yield int(hashes[low]), [*(-1 - members[flags]).tolist(), *members[~flags].tolist()], None

    def _canonical(self, level: Level, codes: Any) -> Any:
        """Return whether the terms of codes meet the variables of each type in order, one way round if they commute."""
        numbers = codes // PARTS
        blocks = np.searchsorted(level.starts, numbers, side="right") - 1
        result = np.zeros(len(codes), bool)
        order = np.argsort(blocks, kind="stable")
        cuts = np.flatnonzero(np.r_[True, blocks[order][1:] != blocks[order][:-1], True]) if len(codes) else [0]
        for low, high in pairwise(cuts):
            chosen = order[low:high]
            block = level.blocks[int(blocks[chosen[0]])]
            a, b = block.operands(numbers[chosen] - block.start)
            count = len(self.space.orders)
            first = self.space.order_of[a]
            second = np.full(len(a), -1) if block.second is None else self.space.order_of[b]
            unique, inverse = np.unique(first * (count + 1) + second + 1, return_inverse=True)
            tail = [v for t in self.space.tail(block.form) for v in self.space.values[t].leaves]
            flags = [
                self._ordered(int(u) // (count + 1), int(u) % (count + 1) - 1, tail, block.commutes) for u in unique
            ]
            result[chosen] = np.array(flags, bool)[inverse]
        return result

    def _ordered(self, first: int, second: int, tail: list[int], commutes: bool) -> bool:
        orders = self.space.orders
        one, other = orders[first], orders[second] if second >= 0 else ()
        return self._in_order([*one, *other, *tail]) or (commutes and self._in_order([*other, *one, *tail]))

    def _in_order(self, leaves: Sequence[int]) -> bool:
        counts: dict[Any, int] = {}
        for leaf in dict.fromkeys(leaves):
            type, rank = self._ranks[leaf]
            if counts.setdefault(type, 0) != rank:
                return False
            counts[type] += 1
        return True

    def _to_known(self, level: Level, codes: list[int], value: int) -> Iterator[tuple[Term, Term, int]]:
        low = self.space.values[value].term
        for code in codes:
            yield self.builder.tree(level, code)[0], low, code

    def _among(self, level: Level, codes: list[int]) -> Iterator[tuple[Term, Term, int]]:
        """Each term with the simplest form of all, and those of the simplest form with each other."""
        members = []
        for code in codes:
            plain = -1 - code if code < 0 else code
            shape, leaves = self.builder.key(level, plain)
            members.append((shape, leaves, plain, code < 0))
        members.sort()
        simplest = [m for m in members if m[0] == members[0][0]]
        terms: dict[int, Apply] = {}

        def term(member: tuple[Any, tuple[int, ...], int, bool]) -> Apply:
            if member[2] not in terms:
                terms[member[2]] = self.builder.tree(level, member[2])[0]
            return terms[member[2]]

        for member in members:
            if not member[3]:
                continue
            if member[0] == members[0][0]:
                yield from ((term(member), term(other), member[2]) for other in simplest if other[2] != member[2])
                continue
            bound = set(member[1])
            fit = next((s for s in simplest if set(s[1]) <= bound), None)
            fit = fit or next((s for s in simplest if set(s[1]) >= bound), None)
            fit = fit or next((m for m in members if set(m[1]) <= bound and m[2] != member[2]), simplest[0])
            yield term(member), term(fit), member[2]

    def joints(self, level: Level, most: int) -> list[TermEquation]:
        """The equations of several outputs whose right side is a split of a level."""
        candidates = sorted(joints(self.builder, level, most), key=lambda j: generality(j[1], j[0][0]))
        chosen: dict[Joint, TermEquation] = {}
        seen: set[Any] = set()
        for joint in candidates:
            left, whole, hashed = joint
            self.tally["pairs"] += 1
            names = {v: i for i, v in enumerate(variables(*left))}
            shape = (whole.skeleton, *(t.skeleton for t in left if isinstance(t, Apply)))
            key = (shape, tuple(names[v] for t in (*left, whole) if isinstance(t, Apply) for v in t.leaves))
            if key in seen or any(covers(k, joint) for k in chosen):
                self.tally["renamed" if key in seen else "instances"] += 1
                continue
            seen.add(key)
            parts = [Apply(whole.label, whole.operands, t.type, i, whole.parts) for i, t in enumerate(left)]
            if any(self.retest.differs(a, b) for a, b in zip(left, parts, strict=True)):
                self.tally["rejected"] += 1
                continue
            loss = max(self.retest.loss(a, b) for a, b in zip(left, parts, strict=True))
            chosen[joint] = TermEquation(left, (whole,), loss, hashed)
        return list(chosen.values())

    def _kept(self, pairs: Iterable[Pair], number: int = 0, level: Level | None = None) -> list[TermEquation]:
        """Equations that are new, general ones before special ones, retested."""
        fresh: list[tuple[Any, Apply, Term, int, int]] = []
        for one, other, hashed, code in pairs:
            oriented = _oriented(one, other)
            if oriented is None:
                self.tally["unbound"] += 1
                continue
            name = unordered(one, other)
            if name in self._seen:
                self.tally["renamed"] += 1
                continue
            self._seen.add(name)
            sign = code if one is oriented[0] else -1 - code
            if not self._follows(*oriented, sign, number, level):
                fresh.append((generality(*oriented), *oriented, hashed, sign))
        # Those that are left come in again, general ones first, since each may say that others follow.
        equations = []
        for _, left, right, hashed, sign in sorted(fresh, key=lambda f: f[0]):
            if self._follows(left, right, sign, number, level):
                continue
            if self.retest.differs(left, right):
                self.tally["rejected"] += 1
                continue
            loss = self.retest.loss(left, right)
            self.tally["lossy"] += loss > 0
            self.instances.add(left, right)
            equations.append(TermEquation((left,), (right,), loss, hashed))
        return equations

    def _follows(self, left: Apply, right: Term, sign: int, number: int, level: Level | None) -> bool:
        """Return whether an equation follows from earlier ones; `sign` is the code of its newer side."""
        if self.instances.cover(left, right):
            self.tally["instances"] += 1
            return True
        own, code = (left, sign) if sign >= 0 else (right, -1 - sign)
        if level is None or not isinstance(own, Apply) or not self.simplifier.simplifies(number, level, code, own):
            return False
        self.tally["derived"] += 1
        return True


def generality(left: Term, right: Term) -> tuple[Any, ...]:
    """An order in which no equation comes after its instances: by length, then by variables, most first."""
    length = sum(t.length if isinstance(t, Apply) else 1 for t in (left, right))
    bound = variables(left, right)
    names = {v: i for i, v in enumerate(bound)}
    places = tuple(names[v] for t in (left, right) for v in (t.leaves if isinstance(t, Apply) else (t,)))
    shapes = tuple(t.skeleton if isinstance(t, Apply) else "" for t in (left, right))
    return length, -len(bound), *shapes, places


def _oriented(one: Term, other: Term) -> tuple[Apply, Term] | None:
    """The sides so that the left one is larger and binds all variables; None where neither does."""
    orders = []
    for left, right in ((one, other), (other, one)):
        if isinstance(left, Apply) and (
            right.variables <= left.variables if isinstance(right, Apply) else right in left.variables
        ):
            orders.append((left, right))
    if len(orders) < 2:
        return orders[0] if orders else None
    return min(orders, key=lambda w: (-size(w[0]), w[0].skeleton))


#: A left side of several outputs, and the first output of the split that yields them all in order.
Joint = tuple[tuple[Term, ...], Apply, int]


def joints(builder: SpaceBuilder, level: Level, most: int) -> Iterator[Joint]:
    """Splits of a level each of whose outputs equals a term of fewer operators, `most` of them in all.

    Where every left side binds all variables of the split, the equation is no more than one for each output, and is
    left out.
    """
    space = builder.space
    for block in level.blocks:
        parts = len(block.results)
        if parts < 2:
            continue
        numbers = level.codes // PARTS
        inside = np.flatnonzero((numbers >= block.start) & (numbers < block.start + block.count))
        values_of: dict[int, dict[int, int]] = {}
        for code, hashed in zip(level.codes[inside].tolist(), level.hashes[inside].tolist(), strict=True):
            value = space.known.get(hashed)
            if value is not None:
                values_of.setdefault(code // PARTS, {})[code % PARTS] = value
        for number, values in values_of.items():
            if len(values) < parts:
                continue
            left = tuple(space.values[values[i]].term for i in range(parts))
            whole = builder.tree(level, number * PARTS)[0]
            if _telling(left, whole, most):
                yield left, whole, combined(space.hashes[values[i]] for i in range(parts))


def _telling(left: tuple[Term, ...], whole: Apply, most: int) -> bool:
    if any(not isinstance(t, Apply) or not t.operands for t in left) or len(set(left)) < len(left):
        return False
    if any(isinstance(t, Apply) and t.application == whole.application for t in left):
        return False
    needed = set(variables(whole))
    bound = [set(variables(t)) for t in left]
    return size(*left) <= most and needed <= set().union(*bound) and any(not needed <= b for b in bound)


def covers(one: Joint, other: Joint) -> bool:
    """Return whether the second is the first with terms for its variables."""
    bound: dict[InputVariable, Term] = {}
    pairs = zip((one[1], *one[0]), (other[1], *other[0]), strict=False)
    return len(one[0]) == len(other[0]) and all(match(p, t, bound) for p, t in pairs)


#: Largest difference of two sides in float32 on [-1, 1], relative to elements above 1.
TOLERANCE = 1e-5
_DRAWS = 2


class Retest:
    """A second evaluation of terms, on inputs that the fingerprints have not seen."""

    def __init__(self, variables: Sequence[TensorType], seed: int, tolerance: float = TOLERANCE) -> None:
        self.tolerance = tolerance
        self._residues = [ResidueArithmetic(seed + 1 + i) for i in range(_DRAWS)]
        self._floats = Floats()
        self._tables: list[dict[Term, list[Any]]] = [{} for _ in range(_DRAWS + 1)]
        rng = np.random.Generator(np.random.PCG64([seed, 11]))
        self._inputs: list[list[Any]] = [
            [a.draw(t, 1, i)[0] for i, t in enumerate(variables)] for a in self._residues
        ] + [[rng.uniform(-1, 1, t.static).astype(np.float32) for t in variables]]

    def differs(self, one: Term, other: Term) -> bool:
        """Return whether the two are different on fresh elements modulo the prime."""
        if one.type != other.type:
            return True
        return any(not np.array_equal(self._value(i, one), self._value(i, other)) for i in range(_DRAWS))

    def loss(self, one: Term, other: Term) -> float:
        """By how much the two differ in float32 on [-1, 1]; 0.0 where that is within the tolerance."""
        a, b = self._value(_DRAWS, one), self._value(_DRAWS, other)
        with np.errstate(invalid="ignore"):
            gap = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a.astype(np.float64) - b))
        gap = np.where(np.isnan(gap), np.inf, gap)
        scale = max(1.0, float(np.abs(a[np.isfinite(a)]).max(initial=0.0)))
        worst = float(gap.max(initial=0.0))
        return worst if worst > self.tolerance * scale else 0.0

    def forget(self) -> None:
        """Drop the results computed so far."""
        for table in self._tables:
            table.clear()

    def _value(self, draw: int, term: Term) -> Any:
        if isinstance(term, InputVariable):
            return self._inputs[draw][term.index]
        # Parts of one application are found under its first.
        table = self._tables[draw]
        key = term if not term.part else Apply(term.label, term.operands, term.type, 0, term.parts)
        if key not in table:
            operands = [self._value(draw, o) for o in term.operands]
            types = [o.type for o in term.operands]
            results = spec(term.label.op).result_types(types, term.label.attrs)
            interpretation = self._residues[draw].residues if draw < _DRAWS else self._floats
            table[key] = outputs(interpretation, term.label.op, term.label.attrs, operands, types, results)
        return table[key][term.part]
