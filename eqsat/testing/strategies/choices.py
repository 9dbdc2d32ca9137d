"""Random choices that Hypothesis makes, so that instances drawn by sample rules shrink."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from hypothesis import strategies as st

#: Chooses an integer of 0 or more under a bound; 0 is the simplest choice.
Below: TypeAlias = Callable[[int], int]
#: Draws from a strategy, as composite strategies do.
Draw: TypeAlias = Callable[[st.SearchStrategy[Any]], Any]

#: Number of distinct values of `ChoiceSource.random`.
_LEVELS = 40
#: One drawn choice: below `_PLAIN` it is the choice, else a trace is followed.
_PLAIN = 64
_CHOICE = st.integers(0, 16 * _PLAIN - 1)


class ChoiceSource(random.Random):
    """A source of randomness all of whose answers come from `below`, lower choices giving simpler answers."""

    def __init__(self, below: Below) -> None:
        super().__init__(0)
        self.below = below

    def random(self) -> float:
        """One of forty numbers from 0 on."""
        return self.below(_LEVELS) / _LEVELS

    def getrandbits(self, k: int, /) -> int:
        """An integer of `k` bits."""
        return self.below(1 << k)

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        """An element of the range, its first one simplest."""
        numbers = range(start) if stop is None else range(start, stop, step)
        return numbers[self._under(len(numbers))]

    def randint(self, a: int, b: int) -> int:
        """An integer from `a` to `b`, `a` simplest."""
        return a + self._under(b - a + 1)

    def choice(self, seq: Any) -> Any:
        """An element, the first one simplest."""
        return seq[self._under(len(seq))]

    def sample(self, population: Sequence[Any], k: int, *, counts: Any = None) -> list[Any]:
        """So many different elements, those in front in their order simplest."""
        pool = (
            list(population)
            if counts is None
            else [p for p, n in zip(population, counts, strict=True) for _ in range(n)]
        )
        if not 0 <= k <= len(pool):
            raise ValueError("sample larger than population or negative")
        return [pool.pop(self._under(len(pool))) for _ in range(k)]

    def shuffle(self, x: Any) -> None:
        """Shuffle the elements; the simplest order is their own."""
        x[:] = self.sample(x, len(x))

    def _under(self, bound: int) -> int:
        if bound < 1:
            raise ValueError("an empty range to choose from")
        return self.below(bound) if bound > 1 else 0


def recorded(rng: random.Random, trace: list[int]) -> Below:
    """Choices of a pseudo-random source, written down."""

    def below(bound: int) -> int:
        trace.append(rng.randrange(bound))
        return trace[-1]

    return below


def drawn(draw: Draw, trace: Sequence[int] = ()) -> Below:
    """Choices drawn through Hypothesis, most of them those of a trace where there is one.

    Following the trace counts as less simple than any choice of one's own, so that shrinking leaves it step by step.
    """
    steps = iter(trace)

    def below(bound: int) -> int:
        step = next(steps, None)
        seed = int(draw(_CHOICE))
        return (seed if seed < _PLAIN or step is None else step) % bound

    return below
