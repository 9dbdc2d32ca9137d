"""Launches that need not wait for each other, and their assignment to several streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.runtime.kernels.view import View
from eqsat.runtime.programs.arena import Arrangement
from eqsat.runtime.programs.arrays import aligned, strided
from eqsat.runtime.programs.program import KernelProgram

#: Streams must save this share of the time to be worth their events.
WORTH = 0.02
#: Work that NumPy's exact test for shared elements may take, before views that may overlap are held to do so.
_MOST_WORK = 1000

Span = tuple[str, int, int]


@dataclass(frozen=True)
class Placed:
    """A launch on a stream: the launches of other streams it waits for, by index, and whether others wait for it."""

    index: int
    stream: int
    waits: tuple[int, ...]
    awaited: bool


def dependencies(program: KernelProgram, arrangement: Arrangement) -> tuple[frozenset[int], ...]:
    """For each launch the earlier ones it must follow: writers of its operands, and users of the memory it writes.

    Views that lie in the arena where another value has been count as overlapping: memory that is used again orders
    launches too. Flags do not, which kernels set to the same number in any order.
    """
    flags = {name for name, buffer in program.buffers.items() if buffer.role == "flag"}
    spans = [
        (
            [(v, _span(program, arrangement, v)) for v in launch.reads],
            [(v, _span(program, arrangement, v)) for v in launch.writes if v.buffer not in flags],
        )
        for launch in program.launches
    ]
    before_each: list[frozenset[int]] = []
    behind: list[int] = []  # for each launch a bit for each one that it follows, directly or not
    for index, (reads, writes) in enumerate(spans):
        before: set[int] = set()
        reached = 0
        for earlier in reversed(range(index)):
            if reached >> earlier & 1:
                continue
            past_reads, past_writes = spans[earlier]
            if _meet(reads, past_writes) or _meet(writes, past_writes) or _meet(writes, past_reads):
                before.add(earlier)
                reached |= behind[earlier] | 1 << earlier
        before_each.append(frozenset(before))
        behind.append(reached)
    return tuple(before_each)


def _span(program: KernelProgram, arrangement: Arrangement, view: View) -> Span:
    """The memory of a view: where it lies, and its first byte and the one after its last."""
    low, high = view.extent
    if program.buffers[view.buffer].role != "value":
        return view.buffer, low, high
    begin = arrangement.offsets[view.buffer]
    return "", begin + low, begin + high


def _meet(one: Sequence[tuple[View, Span]], other: Sequence[tuple[View, Span]]) -> bool:
    return any(a[0] == b[0] and a[1] < b[2] and b[1] < a[2] and _share(x, y) for x, a in one for y, b in other)


def _share(one: View, other: View) -> bool:
    """Return whether views share an element; parts of one concatenation lie between each other without doing so."""
    if one.buffer != other.buffer or not one.count or not other.count:
        return bool(one.count and other.count)
    end = max(one.extent[1], other.extent[1])
    memory = aligned(end)  # never touched, so that it takes no memory
    try:
        return bool(np.shares_memory(strided(memory, one), strided(memory, other), _MOST_WORK))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def placed(before: Sequence[frozenset[int]], stream_count: int) -> tuple[Placed, ...]:
    """Launches on at most so many streams, in their order: each goes on behind the last one it waits for, if that is
    the latest of its stream, else to the stream that has been free for longest."""
    stream_of: list[int] = []
    last = [-1] * stream_count
    waits: list[tuple[int, ...]] = []
    for index, earlier in enumerate(before):
        behind = [stream_of[e] for e in sorted(earlier, reverse=True) if last[stream_of[e]] == e]
        stream = behind[0] if behind else min(range(stream_count), key=lambda n: last[n])
        latest: dict[int, int] = {}
        for e in earlier:
            if stream_of[e] != stream:
                latest[stream_of[e]] = max(latest.get(stream_of[e], -1), e)
        stream_of.append(stream)
        last[stream] = index
        waits.append(tuple(sorted(latest.values())))
    awaited = {w for some in waits for w in some}
    return tuple(Placed(i, stream_of[i], waits[i], i in awaited) for i in range(len(before)))


def width(before: Sequence[frozenset[int]]) -> int:
    """The most launches that are equally far from the beginning: more streams than that are of no use."""
    levels: list[int] = []
    for earlier in before:
        levels.append(1 + max((levels[e] for e in earlier), default=-1))
    return max((levels.count(level) for level in set(levels)), default=0)


def quickest(seconds: Mapping[int, float]) -> int:
    """The number of streams to use, from the time measured with each: one, unless more save WORTH of it.

    >>> quickest({1: 1.0, 2: 0.99}), quickest({1: 1.0, 2: 0.7, 4: 0.69})
    (1, 4)
    """
    best = min(seconds, key=lambda count: (seconds[count], count))
    alone = min(seconds)
    return best if seconds[best] < (1 - WORTH) * seconds[alone] else alone


def segments(captured: Sequence[bool]) -> list[tuple[bool, range]]:
    """Launches that follow each other cut where one cannot be captured: runs of those that can, and single ones.

    >>> segments([True, True, False, True])
    [(True, range(0, 2)), (False, range(2, 3)), (True, range(3, 4))]
    """
    runs: list[tuple[bool, range]] = []
    for index, one in enumerate(captured):
        if one and runs and runs[-1][0]:
            runs[-1] = (True, range(runs[-1][1].start, index + 1))
        else:
            runs.append((one, range(index, index + 1)))
    return runs


def enqueue(
    launches: Sequence[Placed],
    start: Callable[[int, Any], None],
    streams: Sequence[Any],
    new_event: Callable[[], Any],
) -> None:
    """Start launches on their streams, which fork from the first and join it at the end.

    `start(index, stream)` starts one; streams have `wait_event(event)`, events `record(stream)`, as CuPy's do. Waits
    for launches that are not among these are left out: earlier launches are done when the first stream begins.
    """
    used = sorted({p.stream for p in launches} - {0})
    here = {p.index for p in launches}
    if used:
        fork = new_event()
        fork.record(streams[0])
        for stream in used:
            streams[stream].wait_event(fork)
    events: dict[int, Any] = {}
    for p in launches:
        for index in p.waits:
            if index in here:
                streams[p.stream].wait_event(events[index])
        start(p.index, streams[p.stream])
        if p.awaited:
            events[p.index] = new_event()
            events[p.index].record(streams[p.stream])
    for stream in used:
        join = new_event()
        join.record(streams[stream])
        streams[0].wait_event(join)
