"""Random tensor graphs for fuzzing: well-typed compositions of what models are made of, and of its corner cases."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.random_steps import STEPS
from eqsat.errors import EqsatError
from eqsat.language.graphs.builder import Builder, Tensor
from eqsat.language.terms import DType, Graph

_FLOATS = ("float32",) * 8 + ("float64", "float64", "float16", "bfloat16")


class RandomGraph:
    """A graph under random construction; everything follows from the seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.data = np.random.default_rng(seed)
        self.graph = Builder(f"random_{seed}")
        self.dtype = self.rng.choice(_FLOATS)
        self.special = self.rng.random() < 0.1
        self.named = self.rng.random() < 0.3
        self.empty = self.rng.random() < 0.08
        self.pool: list[Tensor] = []
        self.inputs = 0

    def build(self, steps: int) -> Graph:
        """A graph of about so many steps, each a few operators."""
        self.input(self.shape(self.rng.choice((2, 2, 3, 4))))
        while steps > 0:
            step = self.rng.choice(STEPS)
            before = len(self.pool)
            try:
                made = step(self)
            except EqsatError:  # a step that does not fit what it drew is drawn again
                made = None
            steps -= 1
            if made is not None:
                self.pool += made if isinstance(made, list | tuple) else [made]
            self.pool = self.pool[:before] + [t for t in self.pool[before:] if _is_small(t)]
        return self._finished()

    def _finished(self) -> Graph:
        values = list(dict.fromkeys(t.name for t in self.pool))
        for value in values:
            self.graph.output(value, Tensor(self.graph, value))
        whole = self.graph.build()
        ends = [v for v in values if v not in whole.consumers and v not in whole.inputs]
        chosen = self.rng.sample(ends, min(len(ends), 6)) or values[-1:]
        # An output twice, and outputs that are inputs, constants or read by other nodes.
        if self.rng.random() < 0.08:
            chosen.append(chosen[0])
        if self.rng.random() < 0.04 and whole.constants:
            chosen.append(self.rng.choice(list(whole.constants)))
        if self.rng.random() < 0.1:
            chosen.append(self.rng.choice(values))
        return replace(whole, outputs={f"out{i}": v for i, v in enumerate(chosen)}).without_dead()

    def size(self) -> Any:
        """A dim."""
        if self.empty and self.rng.random() < 0.2:
            return 0
        return self.rng.choice((1, 2, 2, 3, 4, 4, 6))

    def shape(self, rank: int) -> tuple[Any, ...]:
        """A random shape; the first dim may be a name."""
        dims = [self.size() for _ in range(rank)]
        if rank and self.named and self.rng.random() < 0.6:
            dims[0] = "n"
        elif rank > 1 and self.named and self.rng.random() < 0.15:
            dims[1] = "m"
        return tuple(dims)

    def input(self, shape: Any, dtype: str | None = None) -> Tensor:
        """A new input."""
        made = self.graph.input(f"in{self.inputs}", shape, dtype or self.dtype)
        self.inputs += 1
        self.pool.append(made)
        return made

    def constant(self, shape: Any, dtype: str | None = None) -> Tensor:
        """A constant: normal numbers, or one of those that rules know."""
        dtype = dtype or self.dtype
        kind = DType.of(dtype)
        if kind is DType.BOOL:
            return self.graph.constant(self.data.integers(0, 2, shape).astype(bool))
        if not kind.is_float:
            return self.graph.constant(self.data.integers(-3 if dtype[0] == "i" else 0, 4, shape), dtype)
        array = self.data.standard_normal(shape)
        form = self.rng.random()
        if form < 0.15:
            array = np.full(shape, self.rng.choice((0.0, 1.0, -1.0, 2.0, 0.5, -0.0)))
        elif form < 0.2 and len(shape) == 2:
            array = np.eye(*shape)
        elif form < 0.25:
            array = np.abs(array)
        if self.special and array.size and self.rng.random() < 0.4:
            array = array.copy()
            array.flat[self.rng.randrange(array.size)] = self.rng.choice((np.inf, -np.inf, np.nan))
        return self.graph.constant(array.astype(kind.numpy), dtype)

    def any(self, rank: int | None = None, dtype: str | None = None, least: int = 0) -> Tensor:
        """A tensor already there, of this rank where one is given, else a new input."""
        wanted = dtype or self.dtype
        fits = [t for t in self.pool if t.dtype.value == wanted and t.rank >= least and rank in (None, t.rank)]
        if fits and self.rng.random() < 0.9:
            return self.rng.choice(fits[-6:])
        return self.input(self.shape(self.rng.randint(max(least, 1), 4) if rank is None else rank), wanted)

    def like(self, shape: Any, dtype: str | None = None, constant: float = 0.5) -> Tensor:
        """A tensor of a shape: an old one, a constant or a new input."""
        wanted = dtype or self.dtype
        fits = [t for t in self.pool if t.type.shape == tuple(shape) and t.dtype.value == wanted]
        if fits and self.rng.random() < 0.6:
            return self.rng.choice(fits)
        if all(isinstance(d, int) for d in shape) and self.rng.random() < constant:
            return self.constant(shape, wanted)
        return self.input(shape, wanted)

    def weight(self, shape: Any) -> Tensor:
        """A matrix or filter, mostly constant."""
        return self.like(shape, constant=0.85)

    def mate(self, x: Tensor) -> Tensor:
        """Something that broadcasts with a tensor: its like, a scalar, a row, a column."""
        form = self.rng.random()
        if form < 0.4:
            return self.like(x.shape, x.dtype.value)
        if form < 0.6 or not x.rank:
            return self.constant((1,) * self.rng.choice((0, 0, min(1, x.rank), x.rank)), x.dtype.value)
        dims = tuple(d if self.rng.random() < 0.5 and isinstance(d, int) else 1 for d in x.shape)
        return self.like(dims[self.rng.choice((0, 0, x.rank - 1)) :], x.dtype.value, 0.7)


def _is_small(tensor: Tensor) -> bool:
    return tensor.type.elements({"n": 3, "m": 3}) <= 4096 if tensor.type.shape is not None else False


def random_graph(seed: int, steps: int | None = None) -> Graph:
    """The graph of a seed."""
    drawn = RandomGraph(seed)
    return drawn.build(drawn.rng.randint(1, 6) if steps is None else steps)


def random_inputs(graph: Graph, sizes: dict[str, int], seed: int) -> dict[str, Any]:
    """Data for every input of a graph: normal numbers, small integers that serve as indices."""
    rng = np.random.default_rng(seed)
    made: dict[str, Any] = {}
    for name in graph.inputs:
        type: Any = graph.type(name)
        shape = type.at(sizes).static
        if type.dtype.is_float:
            made[name] = rng.standard_normal(shape).astype(type.dtype.numpy)
        else:
            made[name] = rng.integers(0, 2, shape).astype(type.dtype.numpy)
    return made
