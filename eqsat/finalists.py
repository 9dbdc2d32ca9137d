"""The finalists measured end to end against the original, in one interleaved run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eqsat.costs.model import Sizes
from eqsat.errors import BackendError
from eqsat.language.graph import Graph
from eqsat.language.interpret import concrete
from eqsat.language.types import TensorType
from eqsat.runtime.backend import Program, select
from eqsat.runtime.measure import Timings, interleaved

#: Rounds and seconds a comparison may take.
ROUNDS, SECONDS = 60, 12.0


@dataclass(frozen=True)
class Measured:
    """Timings of the finalists, "original" among them."""

    timings: Timings

    @property
    def rounds(self) -> int:
        """How many rounds were run."""
        return self.timings.rounds

    def median(self, name: str) -> float:
        """The median of a finalist, in seconds."""
        return self.timings.median(name)

    def bound(self, name: str) -> float:
        """The upper 95 % bound of a finalist's time over the original's; 1 for the original."""
        return 1.0 if name == "original" else self.timings.ratio_bound(name, "original")


def measure_finalists(
    graphs: Mapping[str, Graph],
    source: Any,
    *,
    sizes: Mapping[str, int],
    seed: int,
    threads: int,
    should_stop: Callable[[], bool] | None = None,
    follow: Callable[[str], None] | None = None,
) -> Measured:
    """Times graphs on ONNX Runtime on the same random inputs; the original as the file or model it was given as.

    BackendError where a graph cannot be run there.
    """
    from eqsat.runtime.session import SessionProgram, session

    backend = select("onnxruntime")
    calls: dict[str, Callable[[], object]] = {}
    original = graphs["original"]
    feeds = example_inputs(original, sizes, seed)
    for name, graph in graphs.items():
        if should_stop is not None and should_stop():
            raise BackendError("interrupted before anything was measured")
        if follow is not None:
            follow(f"compiling {name}")
        if name == "original" and source is not None and not _is_graph(source):
            given = Path(source) if isinstance(source, str) else source
            program: Program = SessionProgram(original, session(given, threads=threads, where=graph.name))
        else:
            program = backend.compile(graph, threads=threads)
        calls[name] = program.bind(feeds)
    if follow is not None:
        follow("timing")
    return Measured(interleaved(calls, ROUNDS, seed, clock="thread" if threads == 1 else "wall", time_limit=SECONDS))


def example_inputs(graph: Graph, sizes: Mapping[str, int], seed: int) -> dict[str, Any]:
    """Random inputs of the declared types: normal floats, and integers of 0 and 1, which serve as indices."""
    rng = np.random.default_rng(seed)
    feeds: dict[str, Any] = {}
    for name in graph.inputs:
        type = graph.type(name)
        if not isinstance(type, TensorType) or type.shape is None:
            raise BackendError(f"input {name!r} is {type}, for which no example can be made")
        shape = concrete(type.shape, Sizes(sizes))
        if type.dtype.is_float:
            feeds[name] = rng.standard_normal(shape).astype(type.dtype.numpy)
        else:
            feeds[name] = rng.integers(0, 2, shape).astype(type.dtype.numpy)
    return feeds


def _is_graph(source: Any) -> bool:
    return isinstance(source, Graph) or hasattr(source, "build")
