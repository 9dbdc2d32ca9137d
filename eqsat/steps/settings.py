"""The settings of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from eqsat.costs.kernels.implementations import Choices
from eqsat.egraph.saturate import Limits
from eqsat.language.terms.state import State
from eqsat.report.report import Progress
from eqsat.runtime.examples import OverSizes, SizePoint
from eqsat.system.deadline import Deadline


@dataclass(frozen=True)
class Settings:
    """The choices that a run of the pipeline has, and how long it may take.

    `contrib` says whether a result may be written in operators of ONNX Runtime's own.
    """

    device: str
    extractor: str
    alpha: float | None
    limits: Limits
    deadline: Deadline
    choices: Choices
    boundary: Mapping[str, State]
    bounds: Mapping[str, float]
    finite_math: bool | None
    seed: int
    opset: int | None
    threads: int
    sizes: Mapping[str, int]
    points: Sequence[SizePoint]
    over_sizes: OverSizes
    progress: Callable[[Progress], None] | None
    should_stop: Callable[[], bool] | None
    strict: bool = False
    contrib: bool = False
