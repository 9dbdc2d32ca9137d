"""Synthetic costs of kernels: spaces of options with times that depend on combinations of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from eqsat.runtime.tuning.candidate import TuningCandidate
from eqsat.runtime.tuning.space import OptionSpace, tile_candidates


@dataclass(frozen=True)
class Landscape:
    """A space and the seconds that each of its candidates takes."""

    space: OptionSpace
    seconds: Callable[[TuningCandidate], float]

    @property
    def least(self) -> float:
        """The time of the fastest candidate, by exhaustive search."""
        return min(map(self.seconds, self.space.candidates()))


def _off(value, best):
    """The distance of two sizes in octaves."""
    return abs(math.log2(value / best))


def matmul(m: int = 128, n: int = 256, k: int = 32) -> Landscape:
    """A tiled product on a GPU: blocks too small starve it, blocks too large do not fit, and options interact."""
    options = {
        "tile_m": tile_candidates(m),
        "tile_n": tile_candidates(n),
        "tile_k": tile_candidates(k),
        "threads": (32, 64, 128, 256, 512, 1024),
        "unroll": (1, 2, 4, 8, 16, 64, 256),
        "shared": (False, True),
        "private": (False, True),
        "fusion": ("max", "min", "preserve"),
    }

    def fits(c):
        return (
            4 * c["tile_k"] * (c["tile_m"] + c["tile_n"]) <= 48 * 1024 and c["threads"] <= 4 * c["tile_m"] * c["tile_n"]
        )

    def seconds(c):
        work = c["tile_m"] * c["tile_n"] / c["threads"]
        tail = math.prod(-(-e // c[t]) * c[t] / e for t, e in (("tile_m", m), ("tile_n", n), ("tile_k", k)))
        blocks = -(-m // c["tile_m"]) * -(-n // c["tile_n"])
        traffic = (1 / c["tile_m"] + 1 / c["tile_n"]) * (3.0 if c["shared"] else 9.0)
        registers = 1.0 + 0.5 * _off(work, 8 if c["private"] else 2) ** 1.2
        unrolling = 1.0 + 0.25 * _off(c["unroll"], min(c["tile_k"], 16))
        starved = 1.0 + 0.4 * max(math.log2(64 / blocks), 0.0)
        fusion = {"max": 1.0, "min": 1.3, "preserve": 1.15 if c["shared"] else 0.97}[c["fusion"]]
        return 1e-5 * tail * registers * unrolling * starved * fusion * (0.3 + traffic)

    return Landscape(OptionSpace(options, fits), seconds)


def pointwise(size: int = 1000) -> Landscape:
    """A small space without conditions: a block, a vector width that must divide the work, and a cache hint."""
    options = {"block": tile_candidates(size), "vector": (1, 2, 4, 8), "read_only": (False, True)}

    def seconds(c):
        whole = 1.0 if c["block"] % c["vector"] == 0 else 2.5
        hint = 0.9 if c["read_only"] == (c["vector"] < 4) else 1.0
        return 2e-6 * whole * hint * (1 + 0.2 * _off(c["block"], 128)) * (1 + 0.3 * _off(c["vector"], 4))

    return Landscape(OptionSpace(options), seconds)


def reduction() -> Landscape:
    """A small space of which a diagonal alone is fast, and most is illegal."""
    options = {"rows": tile_candidates(72), "columns": tile_candidates(26), "order": ((0, 1), (1, 0))}

    def seconds(c):
        ratio = c["rows"] / c["columns"] if c["order"] == (0, 1) else c["columns"] / c["rows"]
        return 5e-6 * (1 + _off(ratio, 4)) * (1 + 0.1 * _off(c["rows"] * c["columns"], 256))

    return Landscape(OptionSpace(options, lambda c: 16 <= c["rows"] * c["columns"] <= 1024), seconds)


def stencil() -> Landscape:
    """A small space whose options matter in pairs only: the best of one depends on another."""
    sizes = (1, 2, 4, 8, 16)
    options = {"a": sizes, "b": sizes, "c": sizes, "d": sizes}

    def seconds(c):
        return (
            1e-6 * (1 + _off(c["a"] * c["b"], 64)) * (1 + _off(c["c"] * c["d"], 32)) * (1 + 0.5 * _off(c["a"], c["c"]))
        )

    return Landscape(OptionSpace(options), seconds)


def searched(search, landscape: Landscape, evaluations: int) -> list[tuple[TuningCandidate, float]]:
    """The candidates of a search with their times, in order, at most so many."""
    history = []
    while batch := search.propose():
        for candidate in batch:
            if len(history) == evaluations:
                return history
            history.append((candidate, landscape.seconds(candidate)))
            search.tell(*history[-1])
    return history
