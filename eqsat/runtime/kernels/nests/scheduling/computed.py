"""Schedules that isl computed, as loops: bands that chains share, sequences, and the loops of each chain inside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

from eqsat.runtime.kernels.expressions.coordinates import AffineIndex
from eqsat.runtime.kernels.nests.computation import LoopAxis, reads
from eqsat.runtime.kernels.nests.extents import Extent, fixed, largest, tiles_of
from eqsat.runtime.kernels.nests.scheduling.chains import StatementChain
from eqsat.runtime.kernels.nests.scheduling.tiles import Box
from eqsat.runtime.kernels.nests.tree import Assign, Guard, LaneFold, Loop, Node, Vector

#: Elements along the only loop that chains share are taken this many times as many at once as rows are.
_ALONG = 64


@dataclass(frozen=True)
class ElementTime:
    """The round of a loop that an element is computed in: a sum of the indices of its target, and a number."""

    factors: tuple[int, ...]
    constant: int

    @property
    def is_skewed(self) -> bool:
        """True where several indices decide."""
        return sum(factor != 0 for factor in self.factors) > 1


@dataclass(frozen=True)
class ComputedLoop:
    """A loop that chains share, by the times of each; rounds of one that is coincident do not depend on each other."""

    times: Mapping[int, ElementTime]
    is_coincident: bool


@dataclass(frozen=True)
class ComputedBand:
    """Loops one inside the other, and what each round runs."""

    loops: tuple[ComputedLoop, ...]
    body: ComputedPlan


@dataclass(frozen=True)
class ComputedSequence:
    """Parts that run one after the other."""

    parts: tuple[ComputedPlan, ...]


@dataclass(frozen=True)
class ComputedLeaf:
    """Chains by number, each with all of its elements that no loop around has fixed."""

    chains: tuple[int, ...]


ComputedPlan: TypeAlias = "ComputedBand | ComputedSequence | ComputedLeaf"
#: The loops of a chain with fixed indices, and the copies that serve all of their values.
Emit: TypeAlias = "Callable[[int, Box, bool], tuple[list[Node], list[Node]]]"


def chains_in(plan: ComputedPlan) -> list[int]:
    """The numbers of the chains of a plan, in their order."""
    match plan:
        case ComputedBand():
            return chains_in(plan.body)
        case ComputedSequence():
            return [chain for part in plan.parts for chain in chains_in(part)]
        case ComputedLeaf():
            return list(plan.chains)


def is_solvable(times: Sequence[ElementTime]) -> bool:
    """True where the times of an element tell its indices, one after the other, without division."""
    open_rows = [{place for place, factor in enumerate(time.factors) if factor} for time in times]
    units = [{place for place, factor in enumerate(time.factors) if abs(factor) == 1} for time in times]
    known: set[int] = set()
    while True:
        found = next((rest for row, unit in zip(open_rows, units, strict=True) if len(rest := row - known) == 1
                      and rest <= unit), None)  # fmt: skip
        if found is None:
            return all(row <= known for row in open_rows)
        known |= found


def computed_nodes(plan: ComputedPlan, chains: Sequence[StatementChain], rows: int, emit: Emit) -> list[Node]:
    """The loops of a plan.

    `emit` makes those of one chain, copies of operands left out where it is told so. The last loop that all chains of a
    band may share without an order is taken `rows` rounds at a time.
    """
    made = _Realisation(chains, rows, emit)
    return made.plan(plan, {number: _Known({}, (), ()) for number in chains_in(plan)}, 0, False)


@dataclass(frozen=True)
class _Known:
    """The indices of a chain that loops around fix, times that still have several unknown ones, and conditions."""

    box: Mapping[str, tuple[AffineIndex, int]]
    times: tuple[tuple[ElementTime, AffineIndex], ...]
    inside: tuple[tuple[AffineIndex, int], ...]


class _Realisation:
    def __init__(self, chains: Sequence[StatementChain], rows: int, emit: Emit) -> None:
        self.chains, self.rows, self.emit = chains, rows, emit
        self.axes = [chain.first.kept for chain in chains]
        #: Copies that are made before the loops that chains share, and what is written inside of these.
        self._before: list[Node] = []
        self._written: set[str] = set()

    def plan(self, plan: ComputedPlan, known: Mapping[int, _Known], level: int, is_shared: bool) -> list[Node]:
        """The loops of a part of the plan."""
        if len(known) == 1 and not any(one.times for one in known.values()):
            ((chain, one),) = known.items()
            return self._chain(chain, one)
        match plan:
            case ComputedLeaf():
                return [node for chain in plan.chains if chain in known for node in self._chain(chain, known[chain])]
            case ComputedSequence():
                nodes: list[Node] = []
                for part in plan.parts:
                    some = {chain: known[chain] for chain in chains_in(part) if chain in known}
                    nodes += self.plan(part, some, level, is_shared) if some else []
                return nodes
            case ComputedBand() if level:
                return self._band(plan.loops, plan.body, known, level, is_shared)
            case ComputedBand():
                some_chains = [self.chains[number] for number in known]
                self._written = {one.target for chain in some_chains for one in (chain.first, *chain.following)}
                self._before = []
                nodes = self._band(plan.loops, plan.body, known, level, is_shared)
                return [*self._before, *nodes]

    def _band(
        self,
        loops: Sequence[ComputedLoop],
        body: ComputedPlan,
        known: Mapping[int, _Known],
        level: int,
        is_shared: bool,
    ) -> list[Node]:
        if not loops or (len(known) == 1 and not any(one.times for one in known.values())):
            return self.plan(body, known, level, is_shared)
        sequence = _order_of(body)
        if sequence is not None and all(self._is_alike(loop, known) for loop in loops):
            return self._rectangle(loops, [chain for chain in sequence if chain in known], known, level, is_shared)
        loop, *more = loops
        # Chains of one round are in their order alone, unless loops further in decide.
        order = _order_of(body) if not more else None
        first = self._end(loop, order, known, True)
        if first is not None:
            rest = {chain: one for chain, one in known.items() if chain != first}
            return [
                *self._once(loop, more, body, first, known[first], level),
                *self._band(loops, body, rest, level, is_shared),
            ]
        last = self._end(loop, order, known, False)
        if last is not None:
            rest = {chain: one for chain, one in known.items() if chain != last}
            return [
                *self._band(loops, body, rest, level, is_shared),
                *self._once(loop, more, body, last, known[last], level),
            ]
        nodes: list[Node] = []
        for start, extent, active in self._segments(loop, known):
            name = f"level{level}_r"
            at = AffineIndex.variable(name, largest(extent)) + start
            inside = {chain: self._fixed(chain, known[chain], loop.times[chain], at) for chain in active}
            made = self._band(more, body, inside, level + 1, is_shared or len(known) > 1)
            nodes += made if extent == 1 else [Loop(name, extent, tuple(made), is_reduced=not loop.is_coincident)]
        return nodes

    def _end(
        self, loop: ComputedLoop, order: Sequence[int] | None, known: Mapping[int, _Known], is_first: bool
    ) -> int | None:
        """A chain that runs in one round alone, before all others of that round and of others, or after them."""
        if len(known) == 1 or order is None or any(one.times for one in known.values()):
            return None
        active = [chain for chain in order if chain in known]
        chain = active[0 if is_first else -1]
        if any(loop.times[chain].factors):
            return None
        at = loop.times[chain].constant
        for other in active:
            end = self._extremes(other, loop.times[other], known[other])
            if end is None or (at > end[0] if is_first else at < end[1]):
                return None
        return chain

    def _once(
        self,
        loop: ComputedLoop,
        more: Sequence[ComputedLoop],
        body: ComputedPlan,
        chain: int,
        known: _Known,
        level: int,
    ) -> list[Node]:
        """A chain in its one round."""
        at = AffineIndex.number(loop.times[chain].constant)
        return self._band(more, body, {chain: self._fixed(chain, known, loop.times[chain], at)}, level + 1, True)

    def _extremes(self, chain: int, time: ElementTime, known: _Known) -> tuple[int, int] | None:
        """The least and the greatest round, if numbers tell them."""
        free = any(factor and not isinstance(axis.extent, int) for axis, factor in
                   zip(self.axes[chain], time.factors, strict=True))  # fmt: skip
        return None if free else self._range(chain, time, known)

    def _axis(self, chain: int, time: ElementTime, known: _Known) -> LoopAxis | None:
        """The index that alone is the time of an element, but for a number, if no loop around fixes it."""
        places = [place for place, factor in enumerate(time.factors) if factor]
        if len(places) != 1 or time.factors[places[0]] != 1 or self.axes[chain][places[0]].name in known.box:
            return None
        return self.axes[chain][places[0]]

    def _is_alike(self, loop: ComputedLoop, known: Mapping[int, _Known]) -> bool:
        """True of a loop whose rounds have no order, and each of which all chains have an index of their own for."""
        axes = [self._axis(chain, loop.times[chain], one) for chain, one in known.items()]
        starts = {loop.times[chain].constant for chain in known}
        return (
            loop.is_coincident
            and not any(one.times for one in known.values())
            and all(axis is not None for axis in axes)
            and len(starts) == len({axis.extent for axis in axes if axis is not None}) == 1
        )

    def _rectangle(
        self,
        loops: Sequence[ComputedLoop],
        order: Sequence[int],
        known: Mapping[int, _Known],
        level: int,
        is_shared: bool,
    ) -> list[Node]:
        """The chains one after the other, for some rounds at a time: as none depends on another one, any order will do.

        The last loop is inside of those of the chains, if another one is around them.
        """
        is_last_inside = is_shared or len(loops) > 1
        shared = list(loops[:-1] if is_last_inside else loops)
        if not shared:
            return [node for chain in order for node in self._chain(chain, known[chain])]
        *outer, last = shared
        box = {chain: dict(one.box) for chain, one in known.items()}
        extents: list[tuple[str, Extent]] = []
        for number, loop in enumerate(outer):
            for chain, one in known.items():
                axis = self._axis(chain, loop.times[chain], one)
                assert axis is not None
                box[chain][axis.name] = AffineIndex.variable(f"level{level + number}_r", largest(axis.extent)), 1
                extent = axis.extent
            extents.append((f"level{level + number}_r", extent))
        axes = {chain: self._axis(chain, last.times[chain], one) for chain, one in known.items()}
        whole = next(axis.extent for axis in axes.values() if axis is not None)
        nodes: list[Node] = []
        for count, extent_, start in tiles_of(whole, self.rows if is_last_inside else self.rows * _ALONG):
            name = f"level{level + len(outer)}_r"
            first = AffineIndex.variable(name, largest(count)) * extent_ + start
            body: list[Node] = []
            for chain in order:
                axis = axes[chain]
                assert axis is not None
                inside = replace(known[chain], box={**box[chain], axis.name: (first, extent_)})
                body += self._chain(chain, inside)
            nodes += body if count == 1 else [Loop(name, count, tuple(body))]
        for name, extent in reversed(extents):
            nodes = [Loop(name, extent, tuple(nodes))]
        return nodes

    def _segments(
        self, loop: ComputedLoop, known: Mapping[int, _Known]
    ) -> list[tuple[int, Extent, list[int]]]:  # fmt: skip
        """Rounds in which the same chains run: the first one, how many, and the chains."""
        axes = [self._axis(chain, loop.times[chain], one) for chain, one in known.items()]
        if all(axis is not None and not loop.times[n].constant for axis, n in zip(axes, known, strict=True)):
            extents = list(dict.fromkeys(axis.extent for axis in axes if axis is not None))
            if len(extents) == 1:
                return [(0, extents[0], list(known))]
        ranges = {chain: self._range(chain, loop.times[chain], one) for chain, one in known.items()}
        ends = sorted({end for low, high in ranges.values() for end in (low, high + 1)})
        parts: list[tuple[int, Extent, list[int]]] = []
        for first, end in pairwise(ends):
            active = [chain for chain, (low, high) in ranges.items() if low <= first and end <= high + 1]
            if active:
                parts.append((first, end - first, active))
        return parts

    def _range(self, chain: int, time: ElementTime, known: _Known) -> tuple[int, int]:
        """The least and the greatest round that may have elements of a chain."""
        low = high = time.constant
        for axis, factor in zip(self.axes[chain], time.factors, strict=True):
            if factor:
                index, _ = known.box.get(axis.name, (AffineIndex.variable(axis.name, fixed(axis.extent)), 1))
                index = index * factor
                low, high = low + index.low, high + index.high
        return low, high

    def _fixed(self, chain: int, known: _Known, time: ElementTime, at: AffineIndex) -> _Known:
        """The indices that are known of a chain in a round of one more loop."""
        box, inside = dict(known.box), list(known.inside)
        times = [*known.times, (time, at)]
        while True:
            left: list[tuple[ElementTime, AffineIndex]] = []
            for one, round_ in times:
                rest, unknown = round_ - one.constant, list[tuple[LoopAxis, int]]()
                for axis, factor in zip(self.axes[chain], one.factors, strict=True):
                    if factor and axis.name in box:
                        rest = rest - box[axis.name][0] * factor
                    elif factor:
                        unknown.append((axis, factor))
                if not unknown:
                    _limit(inside, rest, 1)
                elif len(unknown) == 1 and abs(unknown[0][1]) == 1:
                    ((axis, sign),) = unknown
                    box[axis.name] = rest * sign, 1
                    _limit(inside, rest * sign, axis.extent)
                else:
                    left.append((one, round_))
            if len(left) == len(times):
                return _Known(box, tuple(left), tuple(inside))
            times = left

    def _chain(self, chain: int, known: _Known) -> list[Node]:
        """The loops of a chain for the indices that are left; what is copied before must be what nothing here makes."""
        assert not known.times, "indices that no loop decides"
        nodes, before = self.emit(chain, known.box, True)
        if known.box and _touched(before) & self._written:
            nodes, before = self.emit(chain, known.box, False)
        self._before += before
        if not known.inside:
            return nodes
        return [Guard(known.inside, tuple(nodes), tuple((index, 0) for index, _ in known.inside))]


def _limit(inside: list[tuple[AffineIndex, int]], index: AffineIndex, extent: Extent) -> None:
    """Add the condition that a sum lies from 0 to below an extent, unless it is known to."""
    if isinstance(extent, int) and not (index.low >= 0 and index.high < extent):
        inside.append((index, extent))


def _order_of(plan: ComputedPlan) -> list[int] | None:
    """The chains of a plan without loops, in their order."""
    if isinstance(plan, ComputedLeaf):
        return list(plan.chains)
    if isinstance(plan, ComputedBand) or not all(isinstance(part, ComputedLeaf) for part in plan.parts):
        return None
    return chains_in(plan)


def _touched(nodes: Sequence[Node]) -> set[str]:
    """The buffers that loops read."""
    found: set[str] = set()
    for node in nodes:
        match node:
            case Loop() | Guard():
                found |= _touched(node.body)
            case Vector():
                found |= {read.buffer for one in node.body for read in reads(one.value)}
            case Assign():
                found |= {read.buffer for read in reads(node.value)}
            case LaneFold():
                found.add(node.source.buffer)
    return found
