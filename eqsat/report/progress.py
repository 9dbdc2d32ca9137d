"""Progress of an optimisation while it runs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

Phase: TypeAlias = Literal["read", "calibrate", "bodies", "parts", "saturate", "extract", "measure", "certify", "write"]

#: The phases of an optimisation, in order.
PHASES: tuple[Phase, ...] = (
    "read",
    "calibrate",
    "bodies",
    "parts",
    "saturate",
    "extract",
    "measure",
    "certify",
    "write",
)


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of an optimisation: its phase, e-nodes so far, the best cost and the proven bound, in seconds."""

    phase: Phase
    nodes: int = 0
    best: float | None = None
    bound: float | None = None
    detail: str = ""

    @property
    def gap(self) -> float | None:
        """The largest distance of the best from the optimum, as a share of the best; None before both are known."""
        if self.best is None or self.bound is None or not math.isfinite(self.best):
            return None
        return max(0.0, (self.best - self.bound) / self.best) if self.best else 0.0
