"""Prices of launches and of regions, and the cheapest choice of regions among them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from eqsat.runtime.c.mixing.regions import Window


@dataclass(frozen=True)
class RegionPrices:
    """Seconds of each launch in C, of windows of launches as one session, and of the call of a session.

    The seconds of a window have its call in them. A window that has none is priced as others that it is made of, in one
    session, which is called once; one that no session computes takes infinitely long.
    """

    kernels: tuple[float, ...]
    windows: Mapping[Window, float]
    crossing: float

    def seconds(self, regions: Sequence[Window]) -> float:
        """The price of the program with these regions, which are apart."""
        within = sum(sum(self.kernels[first:end]) for first, end in regions)
        prices = [self._from(first).get(end, math.inf) for first, end in regions]
        return sum(self.kernels) - within + sum(prices)

    def cheapest(self) -> tuple[Window, ...]:
        """The regions of the cheapest program, in order.

        Launches keep their order, so that a program is a path from one launch to a later one, by a kernel or by a
        region that kernels follow: the shortest path is exact, among all choices of regions.
        """
        count = len(self.kernels)
        # For a place, the cheapest way there that ends with a kernel, and that ends with a region: regions next to each
        # other are one.
        nowhere: tuple[float, tuple[Window, ...]] = (math.inf, ())
        by_kernel, by_region = [nowhere] * (count + 1), [nowhere] * (count + 1)
        by_kernel[0] = (0.0, ())
        for place in range(count):
            so_far, chosen = min(by_kernel[place], by_region[place], key=_price)
            by_kernel[place + 1] = min(by_kernel[place + 1], (so_far + self.kernels[place], chosen), key=_price)
            so_far, chosen = by_kernel[place]
            for end, seconds in self._from(place).items():
                way = (so_far + seconds, (*chosen, (place, end)))
                by_region[end] = min(by_region[end], way, key=_price)
        return min(by_kernel[count], by_region[count], key=_price)[1]

    def _from(self, first: int) -> dict[int, float]:
        """The prices of the regions that begin at a launch, by where they end."""
        prices = dict(self._starts.get(first, ()))
        for middle in range(first + 1, len(self.kernels)):
            if middle in prices:
                for end, seconds in self._starts.get(middle, ()):
                    joined = prices[middle] + seconds - self.crossing
                    if (first, end) not in self.windows:
                        prices[end] = min(prices.get(end, math.inf), joined)
        return prices

    @cached_property
    def _starts(self) -> Mapping[int, list[tuple[int, float]]]:
        """The ends and seconds of windows, by where they begin."""
        starts: dict[int, list[tuple[int, float]]] = {}
        for (first, end), seconds in self.windows.items():
            starts.setdefault(first, []).append((end, seconds))
        return starts


def _price(way: tuple[float, tuple[Window, ...]]) -> float:
    return way[0]
