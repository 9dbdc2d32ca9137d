"""Fingerprints of tensors and of graphs: 64-bit hashes of elements modulo a prime."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np

from eqsat.language.terms.types import TensorType

_WORD = (1 << 64) - 1


def fingerprints(rows: Any, type: TensorType, seed: int) -> Any:
    """The fingerprint of each row, the elements of one tensor of the type: uint64[rows].

    A random linear form of the elements modulo 2^64, then mixed with the type: two tensors of different elements
    agree with a chance of about 2^-44 at most, the elements being below 2^20.
    """
    rows = np.ascontiguousarray(rows, np.int64).view(np.uint64)
    with np.errstate(over="ignore"):
        return _mixed(rows @ _weights(rows.shape[1], seed) + np.uint64(_type_seed(type)))


def combined(outputs: Iterable[int]) -> int:
    """The fingerprint of a graph from those of its outputs, whatever their order.

    >>> combined([3, 4]) == combined([4, 3]) != combined([3, 3, 4])
    True
    """
    words = np.array([o & _WORD for o in outputs], np.uint64)
    with np.errstate(over="ignore"):
        total = _mixed(words ^ np.uint64(0x5851F42D4C957F2D)).sum(dtype=np.uint64)
        return int(_mixed(total + np.uint64(len(words))))


@cache
def _weights(count: int, seed: int) -> Any:
    words = np.random.Generator(np.random.PCG64([seed, count])).integers(0, _WORD, count, np.uint64, endpoint=True)
    return words | np.uint64(1)


@cache
def _type_seed(type: TensorType) -> int:
    return int.from_bytes(hashlib.blake2b(str(type).encode(), digest_size=8).digest(), "little")


def _mixed(z: Any) -> Any:
    """A one-to-one mixing of 64 bits (the finaliser of SplitMix64)."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
