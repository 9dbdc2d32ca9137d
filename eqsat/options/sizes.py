"""The sizes of named dims that a user asks for, with their weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any, TypeAlias

from eqsat.errors import UsageError

#: What `sizes` takes: a size a name, several, or several with their weights.
SizesArgument: TypeAlias = "Mapping[str, int | Sequence[int] | Mapping[int, float]]"
#: The sizes of each name with their weights, which add up to 1.
Sizes: TypeAlias = "Mapping[str, Mapping[int, float]]"

#: At most so many combinations of sizes are costed and measured.
MOST = 16


def sizes_of(given: SizesArgument | None) -> dict[str, dict[int, float]]:
    """The sizes of each named dim with their shares; whether a model has the dims is seen when it is read.

    >>> sizes_of({"batch": 8, "length": [64, 128]})
    {'batch': {8: 1.0}, 'length': {64: 0.5, 128: 0.5}}
    """
    if given is not None and not isinstance(given, Mapping):
        raise UsageError(f"sizes = {given!r}", expected="a mapping, such as {'batch': 8} or {'batch': [1, 8, 32]}")
    chosen = {name: _weighted(name, size) for name, size in (given or {}).items()}
    count = math.prod(map(len, chosen.values()))
    if count > MOST:
        raise UsageError(
            f"sizes give {count} combinations",
            expected=f"at most {MOST}: each is costed and measured",
            remedy="name fewer sizes, those that matter most",
        )
    return chosen


def _weighted(name: str, given: Any) -> dict[int, float]:
    if isinstance(given, Mapping):
        weights = list(given.items())
    else:
        several = isinstance(given, Sequence) and not isinstance(given, str)
        weights = [(size, 1.0) for size in (given if several else [given])]
    for size, weight in weights:
        if isinstance(size, bool) or not isinstance(size, Integral) or size < 1:
            raise UsageError(f"size {name} = {size!r}", expected="an integer of 1 or more, or several")
        if isinstance(weight, bool) or not isinstance(weight, Real) or not 0 < float(weight) < math.inf:
            raise UsageError(f"size {name} = {size!r} has weight {weight!r}", expected="a finite weight above 0")
    total = math.fsum(float(weight) for _, weight in weights)
    shares: dict[int, float] = {}
    for size, weight in weights:
        shares[int(size)] = shares.get(int(size), 0.0) + float(weight) / total
    if not shares:
        raise UsageError(f"sizes of {name!r} are {given!r}", expected="one size or more")
    return shares
