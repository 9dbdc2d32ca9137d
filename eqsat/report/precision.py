"""The precisions of a result: its errors, predicted and measured, and the operators in each precision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from eqsat.costs.kernels.precision import BYTES, PACKED
from eqsat.moved import FormerDict


@dataclass(frozen=True)
class OutputError(FormerDict):
    """The relative error of one output, ‖out − ref‖ / ‖ref‖ in float64, over batches of data.

    `agreement` is the share of rows whose largest element is at the same place; None for an output without rows.
    """

    mean: float
    worst: float
    agreement: float | None = None


@dataclass(frozen=True)
class DataParts(FormerDict):
    """The batches that scales and roundings come from, those that the prediction was tightened on, and those that were
    held back for the report; `source` says where they come from."""

    source: str
    calibrate: int
    tighten: int
    report: int


@dataclass(frozen=True)
class RoundingReport(FormerDict):
    """Errors of a result that holds or computes something in a lower precision than float32.

    `predicted` is the error of every output that a further batch like the data for calibration stays below with a
    probability of 99 %; `tightened` is the worst that was measured while choosing, `outputs` are errors on data that
    were held back from all choices, empty where `notes` say that it does not run here.
    `interaction` is the factor on the root of the sum of squares of single roundings. `integers` counts operators that
    compute on integers, by name; `narrow` those in other precisions than float32, by precision and name; `kept` the
    others, by name and reason: "policy", "kernel", "cost" or "error". `equalised` counts values whose channels
    are scaled between the products before and after.
    """

    budget: float | None
    predicted: float
    tightened: float
    interaction: float
    outputs: Mapping[str, OutputError]
    data: DataParts
    rounds: int
    integers: Mapping[str, int] = field(default_factory=dict)
    kept: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    notes: Sequence[str] = ()
    narrow: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    equalised: int = 0

    @property
    def has_scales(self) -> bool:
        """True if numbers stand for values by scales that belong to the data: on other inputs errors say nothing."""
        return bool(self.integers) or any(name in self.narrow for name in (*BYTES, *PACKED))

    @property
    def worst(self) -> float:
        """The worst error of an output that was measured on any data."""
        return max((one.worst for one in self.outputs.values()), default=self.tightened)
