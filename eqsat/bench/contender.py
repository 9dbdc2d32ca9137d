"""Contenders in a comparison: a backend that can load a case, and the case it has loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from eqsat.bench.case import BenchCase


@dataclass(frozen=True)
class Loaded:
    """A case made ready: `call` runs it once on the timed inputs and waits for the result; `outputs` are those for
    other inputs, as NumPy arrays, after what an earlier run left in their place was overwritten with NaN. `close` frees
    its resources."""

    call: Callable[[], object]
    outputs: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    close: Callable[[], object] = lambda: None


class Contender(Protocol):
    """A way to run a model."""

    @property
    def name(self) -> str:
        """The name in tables."""

    @property
    def ours(self) -> bool:
        """True if it is eqsat, in whole or in part."""

    def missing(self, case: BenchCase) -> str | None:
        """Why it cannot take part, naming the package that is missing; None where it can."""

    def load(self, case: BenchCase) -> Loaded:
        """The case made ready; EqsatError where its graph has something that this cannot run."""
