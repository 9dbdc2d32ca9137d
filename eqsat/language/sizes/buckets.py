"""Buckets: upper bounds of named dims, and which of them inputs fall into."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np

from eqsat.errors import BackendError, UsageError
from eqsat.language.terms import Graph, Sym, TensorType

#: The argument `buckets`: for each named dim the sizes up to which a choice of its own is made.
BucketsArgument: TypeAlias = "Mapping[str, Sequence[int]]"
#: One bucket: the largest size of each named dim.
Bucket: TypeAlias = "tuple[tuple[str, int], ...]"

#: At most so many buckets are chosen for and measured.
MOST = 16


@dataclass(frozen=True)
class Buckets:
    """The sizes of each named dim at which buckets end, ascending."""

    ends: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, given: object) -> Buckets:
        """The buckets of an argument; UsageError for an invalid one.

        >>> Buckets.of({"batch": [8, 1]}).ends
        {'batch': (1, 8)}
        """
        if not isinstance(given, Mapping) or not given:
            raise UsageError(f"buckets = {given!r}", expected="a mapping such as {'batch': [1, 4, 8]}")
        ends = {str(name): _ends(str(name), sizes) for name, sizes in given.items()}
        count = math.prod(map(len, ends.values()))
        if count > MOST:
            raise UsageError(
                f"buckets of {count} combinations",
                expected=f"at most {MOST}: each is chosen for, measured and checked",
                remedy="name fewer sizes",
            )
        return cls(ends)

    def __iter__(self) -> Iterator[Bucket]:
        names = list(self.ends)
        for sizes in itertools.product(*self.ends.values()):
            yield tuple(zip(names, sizes, strict=True))

    def __len__(self) -> int:
        return math.prod(map(len, self.ends.values()))

    def around(self, sizes: Mapping[str, int], where: str = "") -> Bucket:
        """The smallest bucket that holds these sizes; BackendError for one that is beyond the largest."""
        bucket: list[tuple[str, int]] = []
        for name, ends in self.ends.items():
            end = next((e for e in ends if sizes[name] <= e), None)
            if end is None:
                raise BackendError(
                    f"named dim {name!r} is {sizes[name]}, beyond the largest bucket",
                    where=where,
                    expected=f"at most {ends[-1]}",
                    remedy="name a larger bucket, or pass smaller inputs",
                )
            bucket.append((name, end))
        return tuple(bucket)

    def box(self, bucket: Bucket) -> dict[str, tuple[int, int | None]]:
        """The sizes that a bucket is for: above the end of the one before; the last of a dim has no end."""
        box: dict[str, tuple[int, int | None]] = {}
        for name, end in bucket:
            ends = self.ends[name]
            place = ends.index(end)
            box[name] = (ends[place - 1] if place else -1, None if place == len(ends) - 1 else end)
        return box


def _ends(name: str, given: object) -> tuple[int, ...]:
    if not isinstance(given, Sequence) or isinstance(given, str) or not given:
        raise UsageError(f"buckets of {name!r} are {given!r}", expected="a list of sizes, such as [1, 4, 8]")
    for size in given:
        if isinstance(size, bool) or not isinstance(size, Integral) or size < 1:
            raise UsageError(f"bucket {name} = {size!r}", expected="an integer of 1 or more")
    return tuple(sorted({int(size) for size in given}))


def sizes_in(graph: Graph, inputs: Mapping[str, Any]) -> dict[str, int]:
    """The sizes of named dims as inputs have them."""
    sizes: dict[str, int] = {}
    for name in graph.inputs:
        type = graph.type(name)
        if not isinstance(type, TensorType) or type.shape is None or name not in inputs:
            continue
        for dim, size in zip(type.shape, np.shape(inputs[name]), strict=True):
            if isinstance(dim, Sym) and len(names := dim.names()) == 1 and dim == Sym.named(only := next(iter(names))):
                sizes.setdefault(only, int(size))
    return sizes


def check_names(graph: Graph, names: Iterable[str]) -> None:
    """UsageError for a dim that no input has by that name alone: nothing would show which bucket it is in."""
    shown = set()
    for name in graph.inputs:
        type = graph.type(name)
        if isinstance(type, TensorType) and type.shape is not None:
            shown |= {str(d) for d in type.shape if isinstance(d, Sym) and d == Sym.named(str(d))}
    for name in names:
        if name not in shown:
            raise UsageError(
                f"no input has an axis named {name!r}",
                where=graph.name,
                expected="one of " + ", ".join(sorted(n for n in shown if not n.startswith("?"))) if shown else "none",
                remedy="name buckets for dims that inputs have; `eqsat inspect` lists them",
            )
