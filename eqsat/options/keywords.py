"""The keyword arguments of calls, for type checkers: the fields of `Options`, as a test holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TypedDict

from eqsat.costs.devices.device import DeviceArgument
from eqsat.costs.kernels.precision import PrecisionPolicy
from eqsat.costs.model.asked import CostFunction
from eqsat.costs.model.prices import Objective
from eqsat.costs.table.table import CostTable
from eqsat.language.sizes.buckets import BucketsArgument
from eqsat.language.terms.state import State
from eqsat.options.options import RulesArgument
from eqsat.options.sizes import SizesArgument
from eqsat.quantisation.forms import CalibrationArgument
from eqsat.report.report import Progress
from eqsat.rewrites.rules.rule import Trust
from eqsat.runtime.examples import OverSizes


class ParetoKeywords(TypedDict, total=False):
    """The keyword arguments of `pareto`."""

    device: DeviceArgument
    limits: Mapping[str, float | str] | None
    layouts: str | Sequence[str]
    precision: str | PrecisionPolicy
    calibration: CalibrationArgument | None
    node_limit: int
    time_limit: float
    steps: int | None
    rules: RulesArgument
    trust: Trust
    finite_math: bool | None
    outputs: Sequence[str] | None
    sizes: SizesArgument | None
    seed: int
    table: CostTable | str | Path | None
    threads: int
    progress: Callable[[Progress], None] | None
    should_stop: Callable[[], bool] | None


class ExploreKeywords(ParetoKeywords, total=False):
    """The keyword arguments of `explore`."""

    objective: Objective | None
    cost: CostFunction | None
    boundary: Mapping[str, State] | None
    extractor: str
    alpha: float | None
    over_sizes: OverSizes
    opset: int | None
    portable: bool
    quantised: str
    prune_inputs: bool


class OptimizeKeywords(ExploreKeywords, total=False):
    """The keyword arguments of `optimize`."""

    buckets: BucketsArgument | None
    max_nodes: int
    partition: str
    executor: Executor | int | None
    measure: bool
    strict: bool
    cache: bool
