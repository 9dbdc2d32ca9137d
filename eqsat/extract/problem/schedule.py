"""The order of steps that keeps the peak of live memory low: exact by best-first search where that ends in time."""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from eqsat.extract.problem.limits import exceeds
from eqsat.extract.problem.program import operands_first

MOST_MOVES = 30_000
"""Continuations of sets of done steps that the exact search looks at."""

LONGEST_CHAIN = 20
"""Steps that are looked ahead for one that leaves less live."""

LOWER = 0.98
"""The improvement on the best known order that is worth a search, as a share of its peak."""


@dataclass(slots=True)
class Dataflow:
    """Steps that touch buffers: a buffer is live from the first step that touches it to the last.

    `sizes[b]` are bytes; `touches[s]` the buffers that step s reads or writes; `before[s]` the steps that must precede
    it. Buffers in `given` are live from the start, those in `kept` to the end.
    """

    sizes: list[float]
    touches: list[tuple[int, ...]]
    before: list[tuple[int, ...]]
    given: frozenset[int] = frozenset()
    kept: frozenset[int] = frozenset()
    owners: list[int] = field(default_factory=list)
    """The caller's number of each step."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """An order of steps with its peak, and a lower bound on the peak of every order."""

    order: tuple[int, ...]
    peak: float
    bound: float

    @property
    def is_exact(self) -> bool:
        """True if no order has a lower peak."""
        return not exceeds(self.peak, self.bound)


def simulate(flow: Dataflow, order: Sequence[int]) -> float:
    """The peak of live bytes when the steps run in this order."""
    users = _users(flow)
    present = math.fsum(flow.sizes[b] for b in flow.given if users[b] or b in flow.kept)
    return max([present, *live_bytes(flow, order)])


def live_bytes(flow: Dataflow, order: Sequence[int]) -> list[float]:
    """The bytes that are live while each step runs, in this order."""
    left = _users(flow)
    live = {b for b in flow.given if left[b] or b in flow.kept}
    during = []
    for step in order:
        live.update(flow.touches[step])
        during.append(math.fsum(flow.sizes[b] for b in live))
        for b in flow.touches[step]:
            left[b] -= 1
            if not left[b] and b not in flow.kept:
                live.discard(b)
    return during


def peaks(during: Sequence[float], most: float) -> list[int]:
    """The highest position of each run of positions above `most`, the first of several."""
    found: list[int] = []
    run: list[int] = []
    for position, live in enumerate((*during, -math.inf)):
        if exceeds(live, most):
            run.append(position)
        elif run:
            found.append(max(run, key=lambda p: (during[p], -p)))
            run = []
    return found


def around(flow: Dataflow, order: Sequence[int], position: int, reach: int) -> list[int]:
    """The steps of an order up to `reach` from a position, and those nearest to it that touch what is live there."""
    before: dict[int, int] = {}
    after: dict[int, int] = {}
    for index, step in enumerate(order):
        for b in flow.touches[step]:
            if index <= position:
                before[b] = index
            else:
                after.setdefault(b, index)
    live = (before.keys() | flow.given) & (after.keys() | flow.kept) | set(flow.touches[order[position]])
    near = set(range(max(position - reach, 0), min(position + reach + 1, len(order))))
    near |= {side[b] for side in (before, after) for b in live if b in side}
    return [order[index] for index in sorted(near)]


def least_peak(flow: Dataflow, moves: int = MOST_MOVES) -> Schedule:
    """The order of least peak; only a good one, with a bound, where more than `moves` have to be looked at."""
    search = _ScheduleSearch(flow)
    order, bound = search.best_first(search.floor, moves)
    if order is not None:
        return Schedule(tuple(order), simulate(flow, order), bound)
    best = depth_first(flow)
    peak = simulate(flow, best)
    while peak > bound:
        order, least = search.best_first(max(LOWER * peak, bound), moves // 2, give_up=True)
        bound = max(bound, least if exceeds(least, LOWER * peak) else bound)
        if order is None:
            break
        best, peak = order, simulate(flow, order)
    return Schedule(tuple(best), peak, min(bound, peak))


def depth_first(flow: Dataflow) -> list[int]:
    """Operands before users, and of several operands first the one that leaves the most room to the others.

    For trees the best order among those that finish one operand before they begin the next (Sethi and Ullman, 1970).
    """
    room = _rooms(flow)
    steps = sorted(range(len(room)), key=room.__getitem__)
    return operands_first(steps, lambda step: sorted(set(flow.before[step]), key=room.__getitem__))


def _rooms(flow: Dataflow) -> list[float]:
    """The rise of memory on the way to a step above the memory that it leaves, as if nothing were shared."""
    count = len(flow.before)
    left = [0.0] * count
    peak = [-1.0] * count
    for first in range(count):
        stack = [first]
        while stack:
            step = stack[-1]
            missing = [s for s in flow.before[step] if peak[s] < 0]
            if missing:
                stack += missing
                continue
            stack.pop()
            earlier = sorted(set(flow.before[step]), key=lambda s: left[s] - peak[s])
            known = set(flow.given).union(*(flow.touches[s] for s in earlier))
            left[step] = math.fsum(flow.sizes[b] for b in flow.touches[step] if b not in known)
            live = highest = 0.0
            for s in earlier:
                highest = max(highest, live + peak[s])
                live += left[s]
            peak[step] = max(highest, live + left[step])
    return [high - low for high, low in zip(peak, left, strict=True)]


def always_exceeds(flow: Dataflow, most: float, moves: int = MOST_MOVES) -> bool:
    """Return whether every order is proved to need more than `most`."""
    search = _ScheduleSearch(flow)
    if exceeds(search.floor, most):
        return True
    return exceeds(search.best_first(max(search.floor, most), moves, give_up=True)[1], most)


def _users(flow: Dataflow) -> list[int]:
    left = [0] * len(flow.sizes)
    for touched in flow.touches:
        for b in touched:
            left[b] += 1
    return left


class _ScheduleSearch:
    """Sets of done steps are bits of an integer; buffers without bytes are left out."""

    def __init__(self, flow: Dataflow) -> None:
        full = [tuple(b for b in touched if flow.sizes[b] > 0) for touched in flow.touches]
        flow = dataclasses.replace(flow, touches=full)
        self.flow = flow
        self.all = (1 << len(flow.touches)) - 1
        users = [0] * len(flow.sizes)
        for step, touched in enumerate(flow.touches):
            for b in touched:
                users[b] |= 1 << step
        self.users = users
        self.before = [sum(1 << s for s in set(earlier)) for earlier in flow.before]
        self.after: list[list[int]] = [[] for _ in flow.before]
        for step, earlier in enumerate(flow.before):
            for s in set(earlier):
                self.after[s].append(step)
        first = [b for b in flow.given if users[b] or b in flow.kept]
        self.start = math.fsum(flow.sizes[b] for b in first)
        ready = tuple(s for s, earlier in enumerate(self.before) if not earlier)
        self.ready = ready
        self.floor = max([self.start, self._end(), *(self._alone(s) for s in range(len(flow.touches)))])

    def _end(self) -> float:
        flow = self.flow
        return math.fsum(flow.sizes[b] for b in flow.kept if self.users[b] or b in flow.given)

    def _alone(self, step: int) -> float:
        """Memory live while a step runs, in every order."""
        flow = self.flow
        touched = flow.touches[step]
        live = set(touched) | (flow.kept & flow.given)
        return math.fsum(flow.sizes[b] for b in live)

    def step(self, done: int, live: float, step: int) -> tuple[float, float]:
        """Memory live while `step` runs, and after it."""
        flow, added, freed = self.flow, 0.0, 0.0
        after = done | (1 << step)
        for b in flow.touches[step]:
            users = self.users[b]
            if not users & done and b not in flow.given:
                added += flow.sizes[b]
            if not users & ~after and b not in flow.kept:
                freed += flow.sizes[b]
        return live + added, live + added - freed

    def next_ready(self, done: int, ready: tuple[int, ...], step: int) -> tuple[int, ...]:
        """The steps that can run once `step` is done too."""
        new = [s for s in self.after[step] if not self.before[s] & ~done]
        return (*(s for s in ready if s != step), *new)

    def run_free(
        self, done: int, live: float, ready: tuple[int, ...], peak: float, trail: list[int]
    ) -> tuple[int, float, tuple[int, ...]]:
        """Run every chain of steps that neither raises the peak nor leaves more live: no order is worse for it.

        Run later, it adds no more and frees no less, as others may only have touched more; so at any time it does not
        add to the live bytes, and neither does the rest of it where a part has run, for no part of it leaves less.
        """
        while True:
            for step in ready:
                chain = self._descend(done, live, step, peak)
                if chain is not None:
                    break
            else:
                return done, live, ready
            steps, live = chain
            for step in steps:
                done |= 1 << step
                ready = self.next_ready(done, ready, step)
            trail += steps

    def _descend(self, done: int, live: float, step: int, peak: float) -> tuple[list[int], float] | None:
        """A chain from `step`, each step waiting for the last, that ends with no more live, within the peak."""
        chain: list[int] = []
        now = live
        while len(chain) < LONGEST_CHAIN:
            during, now = self.step(done, now, step)
            if during > peak:
                return None
            chain.append(step)
            done |= 1 << step
            if now <= live:
                return chain, now
            following = [s for s in self.after[step] if not self.before[s] & ~done]
            if not following:
                return None
            step = following[0]
        return None

    def best_first(self, enough: float, moves: int, *, give_up: bool = False) -> tuple[list[int] | None, float]:
        """An order of least peak, or of any peak up to `enough`, and a lower bound on all that are above it.

        No order where `moves` did not do, or where the least peak is above `enough` and that makes it `give_up`.
        """
        trail: list[int] = []
        done, live, ready = self.run_free(0, self.start, self.ready, enough, trail)
        known = {done: enough}
        parents: dict[int, tuple[int, list[int]]] = {done: (-1, trail)}
        count, looked = 0, 0
        heap = [(enough, -done.bit_count(), live, count, done, ready)]
        while True:
            peak, _, live, _, done, ready = heapq.heappop(heap)
            if peak > known[done]:
                continue
            if done == self.all:
                return self._trace(parents, done), peak
            looked += len(ready)
            if looked > moves or (give_up and exceeds(peak, enough)):
                return None, peak
            for step in ready:
                during, after = self.step(done, live, step)
                higher, trail = max(peak, during), [step]
                then, after, next_ = self.run_free(
                    done | (1 << step), after, self.next_ready(done | (1 << step), ready, step), higher, trail
                )
                if higher < known.get(then, math.inf):
                    known[then], parents[then] = higher, (done, trail)
                    count += 1
                    heapq.heappush(heap, (higher, -then.bit_count(), after, count, then, next_))

    def _trace(self, parents: dict[int, tuple[int, list[int]]], done: int) -> list[int]:
        parts: list[list[int]] = []
        while done >= 0:
            done, trail = parents[done]
            parts.append(trail)
        return [step for part in reversed(parts) for step in part]
