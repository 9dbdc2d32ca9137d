"""The fields of a report, and their form in JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import Any

from eqsat.moved import FormerDict
from eqsat.report import parts
from eqsat.report.explanation import Change
from eqsat.report.precision import RoundingReport
from eqsat.runtime.onnxruntime.levels import DEFAULT_LEVEL

#: Version of the form that reports have in JSON: raised where a field changes its meaning, or goes.
SCHEMA = 1


@dataclass(kw_only=True)
class Record:
    """The fields of a report, which `Report` describes."""

    name: str
    device: str
    nodes_before: int
    nodes_after: int
    cost_before: float
    cost_after: float
    lower_bound: float
    gap: float
    stopped_by: str
    extraction: str
    objective: Mapping[str, Any] = field(default_factory=dict)
    enodes: int = 0
    eclasses: int = 0
    rounds: int = 0
    growth: Sequence[tuple[str, int, int, float]] = ()
    estimated_share: float = 0.0
    borrowed_share: float = 0.0
    borrowed_from: str = ""
    rules_fired: Mapping[str, int] = field(default_factory=dict)
    rules_bounded: Sequence[str] = ()
    rules_refused: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    certificate: parts.CertificateSummary
    seconds: Mapping[str, float] = field(default_factory=dict)
    measured_before: float | None = None
    measured_after: float | None = None
    measured_bound: float | None = None
    kept: str = "original"
    kept_because: str = ""
    opaque: Sequence[parts.OpaqueNode] = ()
    operators_before: Mapping[str, int] = field(default_factory=dict)
    operators_after: Mapping[str, int] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    changes: Sequence[Change | parts.ControlChange] = ()
    amounts: Mapping[str, float] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    steps: Sequence[parts.StepCost] = ()
    baselines: Sequence[parts.Baseline] = ()
    failure: str = ""
    skipped: Sequence[str] = ()
    refuted: Sequence[str] = ()
    sizes: Sequence[parts.CostedSizes] = ()
    measured_at: str = ""
    measured_ratio: float | None = None
    finalists: Sequence[parts.Finalist] = ()
    input: parts.InputModel | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    machine: parts.RunMachine | None = None
    found_again: str = ""
    rounding: RoundingReport | None = None
    levels: Sequence[parts.SessionLevel] = ()
    blocks: Sequence[parts.EqualBlocks] = ()
    partition: Sequence[parts.GraphPart] = ()
    usage_before: parts.Usage | None = None
    usage_after: parts.Usage | None = None

    @property
    def nodes_grown(self) -> int:
        """The nodes of the model that were written into the e-graph."""
        return self.nodes_before - sum((one.count - one.grown) * one.nodes for one in self.blocks)

    @property
    def level(self) -> str:
        """The level of ONNX Runtime's graph optimisation that the result runs at."""
        return next((one.name for one in self.levels if one.kept), DEFAULT_LEVEL)

    def to_json(self) -> dict[str, Any]:
        """The report as plain dicts, lists, strings and numbers; a number that is not finite becomes None."""
        return {"schema": SCHEMA, **{f.name: _plain(getattr(self, f.name)) for f in fields(self)}}

    def json(self) -> str:
        """The report as JSON text that any parser takes."""
        return json.dumps(self.to_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, FormerDict):
        value = value.as_dict()
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Integral):  # NumPy's numbers too
        return int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else None
    return str(value)
