"""The space of a search: candidate values by option, and a condition on their combinations."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from random import Random

from eqsat.errors import UsageError
from eqsat.runtime.tuning.candidate import OptionValue, TuningCandidate, check_value, value_text

#: Random combinations that are tried before the space is walked through.
_DRAWS = 64
#: Combinations that a walk looks at. A larger space of which none of these is legal counts as exhausted.
_MOST_WALKED = 100_000


class OptionSpace:
    """Options by name with the values that each may have, and a condition that a legal combination meets.

    UsageError for an option without values, with a value twice, or with a value that JSON cannot state.

    >>> space = OptionSpace({"tile": (1, 2, 4), "unroll": (1, 2)}, lambda c: c["unroll"] <= c["tile"])
    >>> space.size, [candidate.text for candidate in space.candidates()][:2]
    (6, ['{"tile":1,"unroll":1}', '{"tile":2,"unroll":1}'])
    """

    def __init__(
        self,
        options: Mapping[str, Sequence[OptionValue]],
        is_legal: Callable[[TuningCandidate], bool] | None = None,
    ) -> None:
        for name, values in options.items():
            _check_values(name, values)
        self.options: Mapping[str, tuple[OptionValue, ...]] = {name: tuple(values) for name, values in options.items()}
        self._texts = {name: frozenset(map(value_text, values)) for name, values in self.options.items()}
        self._is_legal = is_legal

    @property
    def size(self) -> int:
        """The number of combinations, illegal ones included."""
        return math.prod(map(len, self.options.values()))

    def at(self, index: int) -> TuningCandidate:
        """The combination of a number from 0 to `size` - 1, legal or not; the values of the last option change first.

        >>> OptionSpace({"a": (1, 2), "b": (3, 4)}).at(1).text
        '{"a":1,"b":4}'
        """
        values: dict[str, OptionValue] = {}
        for name in reversed(tuple(self.options)):
            index, place = divmod(index, len(self.options[name]))
            values[name] = self.options[name][place]
        return TuningCandidate(dict(reversed(values.items())))

    def candidates(self) -> Iterator[TuningCandidate]:
        """Every legal candidate, in the order of their numbers."""
        return filter(self._meets_condition, map(self.at, range(self.size)))

    def allows(self, candidate: TuningCandidate) -> bool:
        """True if a candidate is one of this space, and legal."""
        return self._fault(candidate) is None

    def check(self, candidate: TuningCandidate) -> None:
        """UsageError for a candidate with other options or values than the space has, and for an illegal one."""
        if fault := self._fault(candidate):
            what, expected = fault
            raise UsageError(what, where=candidate.text, expected=expected)

    def draw(self, rng: Random, seen: Collection[TuningCandidate] = frozenset()) -> TuningCandidate | None:
        """A random legal candidate that is not among `seen`, None where there is none left.

        Where random combinations meet none, the space is walked through in a random stride; of one with more than
        100 000 combinations, so many are looked at.
        """
        size = self.size
        for _ in range(_DRAWS):
            candidate = self.at(rng.randrange(size))
            if candidate not in seen and self._meets_condition(candidate):
                return candidate
        index, stride = rng.randrange(size), _stride(size, rng)
        for _ in range(min(size, _MOST_WALKED)):
            index = (index + stride) % size
            candidate = self.at(index)
            if candidate not in seen and self._meets_condition(candidate):
                return candidate
        return None

    def mutated(self, candidate: TuningCandidate, probability: float, rng: Random) -> TuningCandidate:
        """A candidate whose every option has, with a probability, another of its values; it need not be legal."""
        values = dict(candidate)
        for name, choices in self.options.items():
            if len(choices) > 1 and rng.random() < probability:
                present = value_text(values[name])
                values[name] = rng.choice([value for value in choices if value_text(value) != present])
        return TuningCandidate(values)

    def neighbours(self, candidate: TuningCandidate) -> Iterator[TuningCandidate]:
        """Every legal candidate that differs in the value of one option."""
        for name, choices in self.options.items():
            for value in choices:
                other = candidate.replaced(name, value)
                if other != candidate and self._meets_condition(other):
                    yield other

    def _fault(self, candidate: TuningCandidate) -> tuple[str, str] | None:
        """The fault of a candidate, and the rule it breaks."""
        if candidate.keys() != self.options.keys():
            return "a candidate with other options than the space", ", ".join(self.options)
        for name, value in candidate.items():
            if value_text(value) not in self._texts[name]:
                return f"the value {value!r} of option {name!r}", f"one of {self.options[name]!r}"
        return None if self._meets_condition(candidate) else ("an illegal candidate", "a combination that is legal")

    def _meets_condition(self, candidate: TuningCandidate) -> bool:
        return self._is_legal is None or self._is_legal(candidate)


def tile_candidates(extent: int) -> tuple[int, ...]:
    """Sizes of tiles for a loop: powers of two up to its extent, and the extent over each whole number, rounded up.

    The latter are the tiles that leave no tail, or the least one (Tensor Comprehensions, section 6.2). UsageError for
    an extent below 1.

    >>> tile_candidates(26)
    (1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 26)
    """
    if isinstance(extent, bool) or not isinstance(extent, int) or extent < 1:
        raise UsageError(f"extent = {extent!r}", expected="a whole number above 0")
    powers = {1 << exponent for exponent in range(extent.bit_length())}
    # Quotients above the root are those by numbers below it, and every number below the root is a quotient.
    root = math.isqrt(extent - 1) + 1
    divisors = {-(-extent // count) for count in range(1, root + 1)}
    divisors |= {-(-extent // divisor) for divisor in divisors} if extent > 1 else set()
    return tuple(sorted(powers | divisors))


def _check_values(name: str, values: Sequence[OptionValue]) -> None:
    if isinstance(values, str) or not values:
        raise UsageError(f"the values {values!r}", where=f"option {name!r}", expected="a tuple of one or more values")
    for value in values:
        check_value(name, value)
    if len({value_text(value) for value in values}) < len(values):
        raise UsageError(f"a value twice in {tuple(values)!r}", where=f"option {name!r}", expected="distinct values")


def _stride(size: int, rng: Random) -> int:
    """A random step that meets every number below `size` before it comes to the first again."""
    while True:
        stride = rng.randrange(size) if size > 1 else 1
        if math.gcd(stride, size) == 1:
            return stride
