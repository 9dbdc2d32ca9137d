"""Values that float16 cannot hold on calibration data, which keep float32 for their range."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eqsat.egraph.snapshot import Snapshot
from eqsat.extract.tensors.assembly import Assembled
from eqsat.language.terms import Conversion, Graph, TensorType
from eqsat.language.terms.types import DType
from eqsat.quantisation.sensitivity import recorder
from eqsat.report.finalists import Candidate
from eqsat.steps.settings import Settings
from eqsat.system.deadline import check

Batch = Mapping[str, Any]

#: The precision whose range is checked: that of bfloat16 is the range of float32.
PRECISION = DType.FLOAT16.value
#: The largest number of float16, and how many times as large as on the data a value may be elsewhere.
LARGEST, MARGIN = 65504.0, 2.0


@dataclass
class FloatRanges:
    """The largest magnitudes of values on calibration data, by class, where these are beyond what float16 holds."""

    batches: Sequence[Batch]
    beyond: dict[int, float] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: Settings, graph: Graph, snapshot: Snapshot) -> FloatRanges:
        """The ranges of a model's own values."""
        parts = None if settings.data is None else settings.data.parts
        ranges = cls([] if parts is None else [*parts.calibrate, *parts.tighten])
        leaders = {value: leader for leader, facts in snapshot.classes.items() for value in facts.values}
        ranges._see(graph, {value: leaders[value] for value in _floats(graph) if value in leaders})
        return ranges

    def missed(self, candidates: Iterable[Candidate]) -> bool:
        """Return whether a candidate holds a value in float16 that is beyond it; its class is known from then on."""
        before = len(self.beyond)
        for candidate in candidates:
            if candidate.assembled is not None:
                held = _held(candidate.assembled)
                self._see(candidate.assembled.graph, {v: one for v, one in held.items() if one not in self.beyond})
        return len(self.beyond) > before

    @property
    def note(self) -> str:
        """The classes that keep float32, as a report says it; "" for none."""
        if not self.beyond:
            return ""
        values = "1 value reaches" if len(self.beyond) == 1 else f"{len(self.beyond)} values reach up to"
        return (
            f"float32 is kept for range: {values} {max(self.beyond.values()):.3g} on the calibration data, and float16 "
            f"holds {LARGEST:.0f}"
        )

    def _see(self, graph: Graph, leaders: Mapping[str, int]) -> None:
        """Run a graph on the data, and keep the classes of its values that are beyond float16."""
        if not leaders:
            return
        read = recorder(graph, tuple(leaders))
        for batch in self.batches:
            check()
            for value, array in read(batch).items():
                most = _magnitude(np.asarray(array))
                if most * MARGIN > LARGEST:
                    leader = leaders[value]
                    self.beyond[leader] = max(most, self.beyond.get(leader, 0.0))


def may_overflow(settings: Settings) -> bool:
    """Return whether values may be held in float16, and there are data that say how large they are."""
    return settings.data is not None and PRECISION in settings.choices.policy.floats


def _magnitude(array: Any) -> float:
    """The largest finite magnitude: an infinity of the original is one in float16 too."""
    magnitudes = np.abs(array.astype(np.float64, copy=False))
    return float(np.max(magnitudes, where=np.isfinite(magnitudes), initial=0.0))


def _floats(graph: Graph) -> list[str]:
    """The values of float32 that a graph reads or makes."""
    values = (*graph.inputs, *(v for node in graph.nodes for v in node.outputs if v))
    return [v for v in values if _is_float32(graph, v)]


def _is_float32(graph: Graph, value: str) -> bool:
    type = graph.type(value)
    return isinstance(type, TensorType) and type.dtype is DType.FLOAT32


def _held(assembled: Assembled) -> dict[str, int]:
    """The values that a plan holds in float16, those on the way within a kernel included, with their classes."""
    plan, names = assembled.plan, assembled.decoded.names
    leaders = {name: assembled.origins.get(instance, instance) for instance, name in names.items()}
    held: list[str] = []
    for step in plan.steps:
        if isinstance(step, Conversion):
            held += [step.value] if step.target.precision == PRECISION else []
        elif step.results[-1].state.precision == PRECISION:
            held += [*step.nodes, *(h.value for h in step.operands if h.state.precision == PRECISION)]
    known = plan.graph.constants
    floats = [v for v in dict.fromkeys(held) if v not in known and _is_float32(plan.graph, v)]
    return {v: leaders[v] for v in floats if v in leaders}
