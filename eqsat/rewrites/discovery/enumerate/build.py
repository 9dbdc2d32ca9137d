"""Levels of a space: which applications have so many operators, and the values they add."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from eqsat.rewrites.discovery.enumerate.arithmetic import fingerprints
from eqsat.rewrites.discovery.enumerate.space import PARTS, WIDE, Block, Level, SmallestTerm, Space
from eqsat.rewrites.discovery.enumerate.term import Apply, InputVariable


class SpaceBuilder:
    """A builder that adds levels to a space, one after the other."""

    def __init__(self, space: Space) -> None:
        self.space = space
        #: The values of the outputs of each application of the levels made: by form and operands.
        self.results: dict[tuple[int, ...], dict[int, int]] = {}
        self._applications: dict[tuple[int, int, int], int] = {}
        self._by_set: dict[frozenset[int], list[int]] = {}
        self._paired: dict[int, dict[tuple[int, int], tuple[int, int]]] = {}
        #: The first form of the same operator and setting as each.
        self.groups: dict[int, int] = {}
        for i, form in enumerate(space.forms):
            self.groups[i] = next(j for j, f in enumerate(space.forms) if (f.op, f.setting) == (form.op, form.setting))

    def blocks(self, level: int) -> list[Block]:
        """All applications of `level` operators, numbered."""
        blocks = [*self._products(level), *self._sharing(level)]
        blocks = [b for b in blocks if b.count]
        start = 0
        for block in blocks:
            block.start = start
            start += block.count
        return blocks

    def _products(self, level: int) -> Iterator[Block]:
        space = self.space
        kinds = range(len(space.types))
        lists = {(n, k): ids for n in range(level) for k in kinds if len(ids := space.of(n, k))}
        for i, form in enumerate(space.forms):
            if form.inputs_only and level > 1:
                continue
            if form.arity == 1:
                for k in kinds:
                    if (level - 1, k) in lists:
                        yield from self._block(i, (k,), lists[level - 1, k])
                continue
            for n, k in lists:
                for m, j in lists:
                    if n + m == level - 1:
                        yield from self._block(i, (k, j), lists[n, k], lists[m, j])

    def _block(self, form: int, kinds: tuple[int, ...], first: Any, second: Any = None) -> Iterator[Block]:
        typed = self.space.typed(form, kinds)
        if typed is None:
            return
        commutes = second is not None and self.space.commutes(form, kinds)
        if not commutes or first[-1] >= second[0]:
            yield Block(form, typed[0], kinds, typed[1], first, second, commutes=commutes)

    def _sharing(self, level: int) -> Iterator[Block]:
        """Applications to operands that share subterms."""
        if level < 2:
            return
        space = self.space
        pairs = self._paired[level - 1] = self._pairs(level - 1)
        space.shared[level - 1] = np.array(sorted(a * WIDE + b for a, b in pairs), np.int64)
        grouped: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for pair in sorted(pairs):
            grouped.setdefault((space.values[pair[0]].type, space.values[pair[1]].type), []).append(pair)
        for i, form in enumerate(space.forms):
            if form.arity != 2 or form.inputs_only:
                continue
            for kinds, listed in grouped.items():
                typed = space.typed(i, kinds)
                if typed is not None:
                    ends = np.array(listed)
                    yield Block(
                        i,
                        typed[0],
                        kinds,
                        typed[1],
                        ends[:, 0],
                        ends[:, 1],
                        listed=True,
                        derivations=[pairs[p] for p in listed],
                        commutes=space.commutes(i, kinds),
                    )

    def _pairs(self, count: int) -> dict[tuple[int, int], tuple[int, int]]:
        """Pairs of values with shared applications, `count` in all and no fewer, each with derivations that show it."""
        derived: dict[tuple[int, int], tuple[int, int]] = {}
        fewer = [pairs for n, pairs in self._paired.items() if n < count]
        derivations = self.space.derivations
        for one, other in self._overlapping(count):
            for x in self._by_set[one]:
                for y in self._by_set[other]:
                    for a, b in ((x, y), (y, x)):
                        pair = derivations[a].value, derivations[b].value
                        if pair not in derived and not any(pair in pairs for pairs in fewer):
                            derived[pair] = (a, b)
        return derived

    def _overlapping(self, count: int) -> Iterator[tuple[frozenset[int], frozenset[int]]]:
        """Pairs of sets of applications that overlap and have `count` together."""
        holding: dict[int, list[frozenset[int]]] = {}
        for apps in self._by_set:
            if len(apps) < count:
                for application in apps:
                    holding.setdefault(application, []).append(apps)
        for apps in self._by_set:
            if len(apps) == count:
                for size in range(1, count + 1):
                    yield from ((apps, s) for c in combinations(apps, size) if (s := frozenset(c)) in self._by_set)
            elif len(apps) < count and count > 2:
                for other in {o for a in apps for o in holding[a]}:
                    if len(apps | other) == count:
                        yield apps, other

    def build(self, level: int) -> Level:
        """Add the level's new values to the space, and give all its terms."""
        space = self.space
        blocks = self.blocks(level)
        rows: dict[int, Any] = {}
        hashes, codes = [np.empty(0, np.uint64)], [np.empty(0, np.int64)]
        for block in blocks:
            for numbers, outputs in space.evaluate(block, 0, block.count):
                for part, (elements, type) in enumerate(zip(outputs, block.results, strict=True)):
                    hashed_rows = fingerprints(elements, type, space.seed)
                    hashes.append(hashed_rows)
                    codes.append(numbers * PARTS + part)
                    unique, places = np.unique(hashed_rows, return_index=True)
                    new = ~np.isin(unique, space.known_hashes)
                    for hashed, place in zip(unique[new].tolist(), places[new].tolist(), strict=True):
                        if hashed not in rows:
                            rows[hashed] = elements[place].copy()
        new_level = Level(blocks, np.concatenate(hashes), np.concatenate(codes))
        self._add_values(level, new_level, rows)
        if level == 1:
            self._find_commuting(new_level)
        space.levels.append(new_level)
        space.consolidate()
        return new_level

    def _add_values(self, level: int, new_level: Level, rows: dict[int, Any]) -> None:
        space = self.space
        best: dict[int, tuple[Any, tuple[int, ...], int]] = {}
        fresh: list[tuple[int, int]] = []
        for hashed, code in zip(new_level.hashes.tolist(), new_level.codes.tolist(), strict=True):
            if hashed not in rows:
                continue
            key, leaves = self.key(new_level, code)
            fresh.append((hashed, code))
            if hashed not in best or (key, leaves) < best[hashed][:2]:
                best[hashed] = (key, leaves, code)
        for hashed, (key, leaves, code) in best.items():
            term, _ = self.term(new_level, code)
            space.add(hashed, term, term.type, rows[hashed], level, key, leaves)
        for hashed, code in zip(new_level.hashes.tolist(), new_level.codes.tolist(), strict=True):
            block, a, b = locate(new_level, code)
            place = (block.form, a, b) if b >= 0 else (block.form, a)
            self.results.setdefault(place, {})[code % PARTS] = space.known[hashed]
        for hashed, code in fresh:
            term, applications = self.term(new_level, code)
            value = space.known[hashed]
            if code == best[hashed][2]:
                space.values[value].derivation = len(space.derivations)
            if space.values[value].readable:
                self._by_set.setdefault(applications, []).append(len(space.derivations))
            space.derivations.append(SmallestTerm(value, term, applications))

    def key(self, level: Level, code: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The sort key of terms: first without the names of their variables, then by these."""
        values = self.space.values
        block, a, b = locate(level, code)
        operands = [values[i] for i in (a, b, *self.space.tail(block.form)) if i >= 0]
        key = (self.groups[block.form], code % PARTS, *(o.skeleton for o in operands))
        return key, tuple(v for o in operands for v in o.leaves)

    def term(self, level: Level, code: int) -> tuple[Apply, frozenset[int]]:
        """The term of a code, and the applications it is made of."""
        tree, used = self.tree(level, code)
        block, a, b = locate(level, code)
        application = self._applications.setdefault((block.form, a, b), len(self._applications))
        derivations = self.space.derivations
        return tree, frozenset({application}).union(*(derivations[d].applications for d in used if d >= 0))

    def tree(self, level: Level, code: int) -> tuple[Apply, Sequence[int]]:
        """The term of a code, and the derivations of its operands; -1 for those of inputs."""
        space = self.space
        block, a, b = locate(level, code)
        if block.derivations is not None:
            used: Sequence[int] = block.derivations[code // PARTS - block.start]
            terms = [space.derivations[d].term for d in used]
        else:
            used = [space.values[v].derivation for v in (a, b) if v >= 0]
            terms = [space.values[v].term for v in (a, b) if v >= 0]
        terms += [space.values[v].term for v in space.tail(block.form)]
        part = code % PARTS
        return Apply(block.label, tuple(terms), block.results[part], part, len(block.results)), used

    def _find_commuting(self, level: Level) -> None:
        """The forms that give one value for two variables in either order."""
        space = self.space
        hash_of = {}
        for hashed, code in zip(level.hashes.tolist(), level.codes.tolist(), strict=True):
            block, a, b = locate(level, code)
            hash_of[block.form, a, b, code % PARTS] = hashed
        for (form, a, b, part), hashed in hash_of.items():
            ends = [space.values[v].term for v in (a, b) if v >= 0]
            apart = len(ends) == 2 and a < b and all(isinstance(t, InputVariable) for t in ends)
            if apart and hash_of.get((form, b, a, part)) == hashed:
                space.commuting.add(form)


def locate(level: Level, code: int) -> tuple[Block, int, int]:
    """The block that a code lies in, and the values it applies its form to."""
    number = code // PARTS
    block = level.blocks[bisect_right(level.starts, number) - 1]
    return block, *block.operand(number - block.start)
