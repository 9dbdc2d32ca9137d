"""Cases: a graph as it is found, and the one that an expert would write in its place."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import eqsat
from eqsat.language.terms import Graph

Tensor = eqsat.Tensor
#: What a case makes: the outputs as given and those of an expert, in the same order.
Pair = tuple[Tensor | Sequence[Tensor], Tensor | Sequence[Tensor]]


class Maker:
    """The inputs and constants of a case, numbered in the order they are asked for; constants are drawn by its name."""

    def __init__(self, name: str) -> None:
        self.builder = eqsat.Graph("case")
        self._random = np.random.default_rng(zlib.crc32(name.encode()))
        self._count = 0

    def x(self, *shape: int | str, dtype: str = "float32") -> Tensor:
        """An input; a dim that is free has a name."""
        self._count += 1
        return self.builder.input(f"x{self._count}", shape, dtype)

    def w(self, *shape: int) -> Tensor:
        """A constant of normal numbers, scaled as weights are."""
        return self.c(self.array(*shape))

    def array(self, *shape: int) -> Any:
        """Normal numbers, scaled as weights are."""
        scale = 1.0 / np.sqrt(shape[0]) if len(shape) > 1 else 1.0
        return (scale * self._random.standard_normal(shape)).astype(np.float32)

    def c(self, array: Any, dtype: Any = np.float32) -> Tensor:
        """A constant of these numbers."""
        return self.builder.constant(np.asarray(array, dtype))


@dataclass(frozen=True)
class Case:
    """A graph that is found in the wild, with an equal one that an expert would write; `source` says where from."""

    group: str
    name: str
    source: str
    make: Callable[[Maker], Pair]

    def graphs(self) -> tuple[Graph, Graph]:
        """The graph as given, and the expert's; both have the same inputs, and outputs in the same order."""
        maker = Maker(self.name)
        given, expert = ([side] if isinstance(side, Tensor) else list(side) for side in self.make(maker))
        sides = {"given": given, "expert": expert}
        for side, tensors in sides.items():
            for number, tensor in enumerate(tensors):
                maker.builder.output(f"{side}{number}", tensor)
        graph = maker.builder.build()
        first, second = (graph.restricted([f"{side}{n}" for n in range(len(sides[side]))]) for side in sides)
        return first, second


#: All cases, in the order their files are read.
CASES: list[Case] = []


def case(group: str, name: str, source: str) -> Callable[[Callable[[Maker], Pair]], Callable[[Maker], Pair]]:
    """Register a function that makes the two sides of a case."""

    def register(make: Callable[[Maker], Pair]) -> Callable[[Maker], Pair]:
        CASES.append(Case(group, name, source, make))
        return make

    return register
