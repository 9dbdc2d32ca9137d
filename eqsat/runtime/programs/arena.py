"""The arena: where each value's buffer lies so that none is overwritten while it is still read."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from eqsat.errors import BackendError
from eqsat.runtime.kernels.view import padded
from eqsat.runtime.programs.launches import Buffer, Launch


class Launches(Protocol):
    """Launches in order over buffers, as a program has them."""

    @property
    def name(self) -> str:
        """The name that errors show."""

    @property
    def buffers(self) -> Mapping[str, Buffer]:
        """Every buffer by name."""

    @property
    def launches(self) -> Sequence[Launch]:
        """The launches, first to last."""


@dataclass(frozen=True)
class Lifetime:
    """The launches, by index, from the first that writes a buffer to the last that reads or writes it."""

    first: int
    last: int

    def overlaps(self, other: Lifetime) -> bool:
        """Return whether there is a launch at which both are needed."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class Arrangement:
    """The places of the buffers of values in one arena, and the bytes of the rest; all sizes are in bytes.

    `bound` is the most that is alive at one launch, which no arrangement in this order of launches can be below; `sum`
    is the bytes that the values would take without sharing.
    """

    arena: int
    offsets: Mapping[str, int]
    bound: int
    sum: int
    weights: int
    inputs: int
    outputs: int
    largest: tuple[str, int]

    @property
    def total(self) -> int:
        """All the memory a program takes, the workspace of libraries aside."""
        return self.arena + self.weights + self.inputs + self.outputs

    def __str__(self) -> str:
        share = self.arena / self.sum if self.sum else 1.0
        return (
            f"values {_size(self.arena)} in one arena ({share:.0%} of {_size(self.sum)} apart, at least "
            f"{_size(self.bound)}); weights {_size(self.weights)}, inputs {_size(self.inputs)}, "
            f"outputs {_size(self.outputs)}; largest: {self.largest[0]} {_size(self.largest[1])}"
        )


def _size(nbytes: int) -> str:
    for unit, scale in (("GB", 1 << 30), ("MB", 1 << 20), ("kB", 1 << 10)):
        if nbytes >= scale:
            return f"{nbytes / scale:.3g} {unit}"
    return f"{nbytes} B"


def lifetimes(program: Launches) -> dict[str, Lifetime]:
    """The long each buffer of a value is needed; BackendError for one that is read before anything is written to it."""
    alive: dict[str, Lifetime] = {}
    for index, launch in enumerate(program.launches):
        for view in launch.reads:
            if program.buffers[view.buffer].role != "value":
                continue
            if view.buffer not in alive:
                raise BackendError(
                    f"launch {index} ({launch.label}) reads {view.buffer!r}, which nothing before it writes",
                    where=program.name,
                    expected="launches in an order that writes before it reads",
                )
            alive[view.buffer] = Lifetime(alive[view.buffer].first, index)
        for view in launch.writes:
            if program.buffers[view.buffer].role == "value":
                known = alive.get(view.buffer, Lifetime(index, index))
                alive[view.buffer] = Lifetime(known.first, index)
    return alive


def arrange(program: Launches, *, is_shared: bool = True) -> Arrangement:
    """Put the buffers of values in one arena, the largest first, each at the lowest place that is free all its life.

    Of three orders (by size, by size and length of life, by first launch) the one with the smallest arena stays. Where
    it is not `is_shared`, each buffer has a place of its own.
    """
    alive = lifetimes(program)
    sizes = {name: padded(program.buffers[name].nbytes) for name in alive}

    def span(name: str) -> int:
        return alive[name].last - alive[name].first + 1

    orders = (
        sorted(alive, key=lambda n: (-sizes[n], alive[n].first, n)),
        sorted(alive, key=lambda n: (-sizes[n] * span(n), alive[n].first, n)),
        sorted(alive, key=lambda n: (alive[n].first, -sizes[n], n)),
    )
    lives = alive if is_shared else dict.fromkeys(alive, Lifetime(0, len(program.launches)))
    placed = [_placed(order, sizes, lives) for order in (orders if is_shared else orders[:1])]
    offsets = min(placed, key=lambda o: _end(o, sizes))

    def held(role: str) -> int:
        return sum(padded(b.nbytes) for b in program.buffers.values() if b.role == role)

    largest = max(program.buffers.values(), key=lambda b: b.nbytes, default=None)
    return Arrangement(
        _end(offsets, sizes),
        offsets,
        _bound(alive, sizes, len(program.launches)),
        sum(sizes.values()),
        held("weight"),
        held("input"),
        held("output"),
        ("", 0) if largest is None else (largest.name, largest.nbytes),
    )


def _end(offsets: Mapping[str, int], sizes: Mapping[str, int]) -> int:
    return max((offset + sizes[name] for name, offset in offsets.items()), default=0)


def _placed(order: Iterable[str], sizes: Mapping[str, int], alive: Mapping[str, Lifetime]) -> dict[str, int]:
    offsets: dict[str, int] = {}
    for name in order:
        taken = sorted((offsets[n], offsets[n] + sizes[n]) for n in offsets if alive[n].overlaps(alive[name]))
        place = 0
        for begin, end in taken:
            if place + sizes[name] <= begin:
                break
            place = max(place, end)
        offsets[name] = place
    return offsets


def _bound(alive: Mapping[str, Lifetime], sizes: Mapping[str, int], launches: int) -> int:
    changes = [0] * (launches + 1)
    for name, life in alive.items():
        changes[life.first] += sizes[name]
        changes[life.last + 1] -= sizes[name]
    return max(itertools.accumulate(changes), default=0)


def check(program: Launches, arrangement: Arrangement) -> None:
    """BackendError unless no two buffers that are needed at one launch share a byte, and every view lies in its buffer.

    Works launch by launch from the views alone, and so shares nothing with the placement of the buffers.
    """
    needed = _needed(program)
    for index, names in enumerate(needed):
        spans = sorted(
            (arrangement.offsets[n], arrangement.offsets[n] + program.buffers[n].nbytes, n)
            for n in names
            if program.buffers[n].nbytes
        )
        for (_, end, one), (begin, _, other) in itertools.pairwise(spans):
            if end > begin:
                raise BackendError(
                    f"{one!r} and {other!r} overlap in memory at launch {index}",
                    where=program.name,
                    expected="values that are needed at the same time to lie apart",
                )
        if spans and max(end for _, end, _ in spans) > arrangement.arena:
            raise BackendError(f"a value reaches beyond the arena at launch {index}", where=program.name)
    for launch in program.launches:
        for view in (*launch.reads, *launch.writes):
            low, high = view.extent
            if low < 0 or high > program.buffers[view.buffer].nbytes:
                raise BackendError(
                    f"{launch.label} reaches bytes {low} to {high} of {view.buffer!r}",
                    where=program.name,
                    expected=f"bytes from 0 to {program.buffers[view.buffer].nbytes}",
                )


def _needed(program: Launches) -> list[set[str]]:
    """The buffers of values that hold something at each launch: written before or there, and read there or later."""
    values = {n for n, b in program.buffers.items() if b.role == "value"}
    count = len(program.launches)
    written: list[set[str]] = []
    so_far: set[str] = set()
    for launch in program.launches:
        so_far = so_far | {v.buffer for v in launch.writes if v.buffer in values}
        written.append(so_far)
    needed: list[set[str]] = [set()] * count
    later: set[str] = set()
    for index in reversed(range(count)):
        launch = program.launches[index]
        here = {v.buffer for v in (*launch.reads, *launch.writes) if v.buffer in values}
        later = later | here
        needed[index] = written[index] & later
    return needed
