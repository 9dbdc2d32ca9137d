"""The space of terms over a domain: levels by number of operators, each distinct value kept once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from eqsat.language.terms.types import TensorType
from eqsat.rewrites.discovery.enumerate.arithmetic import BatchPlan, ResidueArithmetic, fingerprints
from eqsat.rewrites.discovery.enumerate.domain import Domain
from eqsat.rewrites.discovery.enumerate.forms import constants, forms
from eqsat.rewrites.discovery.enumerate.term import Apply, InputVariable, Label, Term

#: Codes number the outputs of applications: application · PARTS + output.
PARTS = 8
#: Elements of operands and results that are computed at once.
_BATCH = 1 << 21
#: Rows for which no fast way of evaluating is looked for.
_FEW = 32
#: A pair of values as one number is first · WIDE + second.
WIDE = 1 << 32


@dataclass(slots=True)
class Block:
    """Applications of one form to operands of given types: all pairs of two lists, or pairs listed one by one.

    Applications are numbered from `start` on, the first operand running fastest. `derivations` holds, for pairs listed
    one by one, the terms of the operands that share what they compute.
    """

    form: int
    label: Label
    types: tuple[int, ...]
    results: tuple[TensorType, ...]
    first: Any
    second: Any = None
    listed: bool = False
    derivations: list[tuple[int, int]] | None = None
    commutes: bool = False
    start: int = 0

    @property
    def count(self) -> int:
        """The number of applications."""
        return len(self.first) if self.second is None or self.listed else len(self.first) * len(self.second)

    def operands(self, index: Any) -> tuple[Any, Any]:
        """The values that applications of these numbers, counted from 0, are applied to; -1 for no second one."""
        if self.second is None:
            return self.first[index], np.full(len(index), -1)
        if self.listed:
            return self.first[index], self.second[index]
        return self.first[index % len(self.first)], self.second[index // len(self.first)]

    def operand(self, index: int) -> tuple[int, int]:
        """The values that one application is applied to; -1 for no second one."""
        if self.second is None:
            return int(self.first[index]), -1
        if self.listed:
            return int(self.first[index]), int(self.second[index])
        return int(self.first[index % len(self.first)]), int(self.second[index // len(self.first)])


@dataclass(slots=True)
class Value:
    """A distinct tensor: the simplest term that makes it, and where its elements are.

    `leaves` are the variables of the term in the order of its text; `skeleton` numbers the term without them.
    """

    term: Term
    type: int
    row: int
    level: int
    skeleton: int
    leaves: tuple[int, ...]
    derivation: int = -1

    @property
    def readable(self) -> bool:
        """True if operators are applied to it; not so for constants computed from constants, which are folded."""
        return self.level == 0 or bool(self.leaves)


@dataclass(slots=True)
class SmallestTerm:
    """A term of as few operators as any that makes the value, with the applications it is made of."""

    value: int
    term: Term
    applications: frozenset[int]


@dataclass(slots=True)
class Level:
    """The terms of so many operators: fingerprints and codes of all outputs, and the blocks that they number."""

    blocks: list[Block]
    hashes: Any
    codes: Any
    starts: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.starts = [b.start for b in self.blocks]


class Space:
    """Terms over a domain, level by level; the values of all levels but the last are kept.

    Operands range over values, not over terms: a term whose operands are not the simplest ones of their values equals
    one that is enumerated, by congruence. Where two operands share what they compute, every term of as few operators
    as the simplest counts, so that no graph within the limit is missed for want of sharing.
    """

    def __init__(self, domain: Domain, names: Sequence[str], seed: int) -> None:
        self.domain, self.seed = domain, seed
        self.arithmetic = ResidueArithmetic(seed)
        self.types: list[TensorType] = []
        self.values: list[Value] = []
        self.derivations: list[SmallestTerm] = []
        self.levels: list[Level] = []
        #: Pairs of leaves that turned out equal: (the later, the one kept).
        self.equal_leaves: list[tuple[Term, Term]] = []
        #: The value of each fingerprint, and the fingerprint of each value.
        self.known: dict[int, int] = {}
        self.hashes: list[int] = []
        self._data: list[Any] = []
        self._fresh: list[list[Any]] = []
        self._type_ids: dict[TensorType, int] = {}
        self._skeletons: dict[Any, int] = {}
        self._plans: dict[tuple[Label, tuple[TensorType, ...]], BatchPlan] = {}
        self.typings: dict[tuple[int, tuple[int, ...]], tuple[Label, tuple[TensorType, ...]] | None] = {}
        #: Pairs of values that share subterms, by their number of operators together.
        self.shared: dict[int, Any] = {}
        self.commuting: set[int] = set()
        self._commutes: dict[tuple[int, ...], bool] = {}
        self.leaves = self._leaves(names)
        self.forms = forms(names, [self.types[self.values[i].type] for i in self.leaves], len(domain.variables()))
        self.consolidate()

    def _leaves(self, names: Sequence[str]) -> list[int]:
        """The inputs, variables before constants, as values."""
        domain, types = self.domain, self.domain.variables()
        leaves = []
        for i, type in enumerate(types):
            rows = self.arithmetic.draw(type, domain.samples, 1, i).reshape(1, -1)
            hashed = int(fingerprints(rows, type, self.seed)[0])
            leaves.append(self.add(hashed, InputVariable(i, type), type, rows[0], 0, ("variable", str(type)), (i,)))
        for label, plain in constants(names, [t.static for t in dict.fromkeys(types)]):
            type = domain.typed(plain)
            (array,) = self.arithmetic.one(label, [], [type], [])
            row = np.tile(array.reshape(-1), domain.samples)
            hashed = int(fingerprints(row[None], type, self.seed)[0])
            term = Apply(label, (), type)
            if hashed in self.known:
                self.equal_leaves.append((term, self.values[self.known[hashed]].term))
                continue
            leaves.append(self.add(hashed, term, type, row, 0, ("constant", term.skeleton), ()))
        return leaves

    def add(
        self, hashed: int, term: Term, type: TensorType, row: Any, level: int, skeleton: Any, leaves: tuple[int, ...]
    ) -> int:
        """A new value, made by a term; its number."""
        index, kind = len(self.values), self.type_id(type)
        self.values.append(Value(term, kind, self._rows(kind), level, self.skeleton(skeleton), leaves))
        self._fresh[kind].append(row)
        self.known[hashed] = index
        self.hashes.append(hashed)
        return index

    def skeleton(self, key: Any) -> int:
        """The number of a term without its variables."""
        return self._skeletons.setdefault(key, len(self._skeletons))

    def _rows(self, kind: int) -> int:
        return len(self._data[kind]) + len(self._fresh[kind])

    def type_id(self, type: TensorType) -> int:
        """The number of a type."""
        number = self._type_ids.get(type)
        if number is None:
            number = self._type_ids[type] = len(self.types)
            self.types.append(type)
            self._data.append(np.empty((0, self.domain.samples * int(np.prod(type.static))), np.int64))
            self._fresh.append([])
        return number

    def consolidate(self) -> None:
        """Make arrays of the values, to compute on many at once."""
        for kind, fresh in enumerate(self._fresh):
            if fresh:
                self._data[kind] = np.concatenate([self._data[kind], np.stack(fresh)])
                fresh.clear()
        self.row = np.array([v.row for v in self.values])
        self.kinds = np.array([v.type for v in self.values])
        self.level_of = np.array([v.level for v in self.values])
        self._readable = np.array([v.readable for v in self.values], bool)
        orders: dict[tuple[int, ...], int] = {}
        #: The orders in which variables first occur, and that of each value.
        self.order_of = np.array([orders.setdefault(tuple(dict.fromkeys(v.leaves)), len(orders)) for v in self.values])
        self.orders = list(orders)
        known = sorted(self.known.items())
        self.known_hashes = np.array([h for h, _ in known], np.uint64)
        self.known_values = np.array([v for _, v in known])

    def of(self, level: int, kind: int) -> Any:
        """The values of a level and type that operators are applied to."""
        return np.flatnonzero((self.level_of == level) & (self.kinds == kind) & self._readable)

    def typed(self, form: int, kinds: tuple[int, ...]) -> tuple[Label, tuple[TensorType, ...]] | None:
        """The label and results of a form for operands of these types, None where it takes none such."""
        if (form, kinds) not in self.typings:
            operands = [self.types[k] for k in kinds] + [self.types[self.values[t].type] for t in self.tail(form)]
            typed = self.forms[form].typed(operands)
            self.typings[form, kinds] = typed if typed is None or len(typed[1]) <= PARTS else None
        return self.typings[form, kinds]

    def tail(self, form: int) -> list[int]:
        """The values that a form applies its operator to last."""
        return [self.leaves[i] for i in self.forms[form].tail]

    def commutes(self, form: int, kinds: tuple[int, ...]) -> bool:
        """Return whether a form that commutes on inputs does so on operands of these types."""
        if form not in self.commuting or len(kinds) < 2:
            return False
        key = (form, *kinds)
        if key not in self._commutes:
            there, back = self.typed(form, kinds), self.typed(form, kinds[::-1])
            same = there is not None and there == back
            if same and there is not None:
                types = [self.types[k] for k in kinds]
                operands = [self.arithmetic.draw(t, 1, 9, i)[0] for i, t in enumerate(types)]
                tail = [self._elements(np.array([t]))[0] for t in self.tail(form)]
                read = [*types, *(self.types[self.values[t].type] for t in self.tail(form))]
                swapped = [read[1], read[0], *read[2:]]
                one = self.arithmetic.one(there[0], read, there[1], [*operands, *tail])
                other = self.arithmetic.one(there[0], swapped, there[1], [*operands[::-1], *tail])
                same = all(bool((a == b).all()) for a, b in zip(one, other, strict=True))
            self._commutes[key] = same
        return self._commutes[key]

    def _elements(self, values: Any) -> Any:
        """The elements of values of one type: [values · samples, *shape]."""
        kind = int(self.kinds[values[0]])
        return self._data[kind][self.row[values]].reshape(-1, *self.types[kind].static)

    def skip(self, block: Block, index: Any) -> Any:
        """A mask of the applications left out: the other order of a commuting one, or one of fewer operators."""
        a, b = block.operands(index)
        skipped = (a < b) if block.commutes else np.zeros(len(index), bool)
        if block.second is None or block.listed:
            return skipped
        level = int(self.level_of[a[0]]) + int(self.level_of[b[0]])
        pairs = a * WIDE + b
        for count, codes in self.shared.items():
            if count < level:
                skipped |= np.isin(pairs, codes)
        return skipped

    def evaluate(self, block: Block, start: int, stop: int) -> Iterator[tuple[Any, list[Any]]]:
        """Codes and outputs, a row each, of a block's applications in a range, some at a time."""
        tail = self.tail(block.form)
        types = [self.types[k] for k in block.types] + [self.types[self.values[t].type] for t in tail]
        width = self.domain.samples * sum(int(np.prod(t.static)) for t in (*types, *block.results))
        step = max(_BATCH // width, 1)
        for low in range(start, stop, step):
            index = np.arange(low, min(low + step, stop))
            index = index[~self.skip(block, index)]
            if len(index):
                yield block.start + index, self._outputs(block, index, types, tail)

    def _outputs(self, block: Block, index: Any, types: list[TensorType], tail: list[int]) -> list[Any]:
        plan = self._plan(block, types)
        a, b = block.operands(index)
        fixed = [self._elements(np.array([t])) for t in tail]
        if plan.shared:
            return self._side_by_side(plan, a, None if block.second is None else b, fixed)
        operands = [self._elements(v) for v in ((a,) if block.second is None else (a, b))]
        operands += [np.broadcast_to(f, (len(index), *f.shape)).reshape(-1, *f.shape[1:]) for f in fixed]
        return [m.reshape(len(index), -1) for m in plan.run(operands)]

    def _plan(self, block: Block, types: list[TensorType]) -> BatchPlan:
        """The plan by which a block is evaluated; finding a fast one does not pay where there is little to do."""
        key = (block.label, tuple(types))
        if key not in self._plans:
            if block.count * self.domain.samples < _FEW:
                return self.arithmetic.each(block.label, types, block.results)
            self._plans[key] = self.arithmetic.plan(block.label, types, block.results)
        return self._plans[key]

    def _side_by_side(self, plan: BatchPlan, a: Any, b: Any, fixed: list[Any]) -> list[Any]:
        """Run a plan that takes one second operand for many first ones."""
        cuts = [0, len(a)] if b is None else [0, *(np.flatnonzero(b[1:] != b[:-1]) + 1), len(a)]
        samples = self.domain.samples
        results: list[list[Any]] = []
        for low, high in pairwise(cuts):
            first = self._elements(a[low:high])
            rest = fixed if b is None else [self._elements(b[low : low + 1]), *fixed]
            runs = [plan.run([first[s::samples], *(r[s : s + 1] for r in rest)]) for s in range(samples)]
            results.append([np.stack(outputs, axis=1).reshape(high - low, -1) for outputs in zip(*runs, strict=True)])
        return [np.concatenate(parts) for parts in zip(*results, strict=True)]

    def fingerprints(self, start: int, stop: int, blocks: Sequence[Block]) -> tuple[Any, Any]:
        """Fingerprints and codes of the outputs of the applications numbered from `start` to before `stop`."""
        hashes, codes = [np.empty(0, np.uint64)], [np.empty(0, np.int64)]
        for block in blocks:
            low, high = max(start - block.start, 0), min(stop - block.start, block.count)
            if low < high:
                for numbers, outputs in self.evaluate(block, low, high):
                    for part, (rows, type) in enumerate(zip(outputs, block.results, strict=True)):
                        hashes.append(fingerprints(rows, type, self.seed))
                        codes.append(numbers * PARTS + part)
        return np.concatenate(hashes), np.concatenate(codes)
