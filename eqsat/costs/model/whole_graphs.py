"""Whole graphs that were measured, and the correction of sums of kernels by their times."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from eqsat.costs.model.fit import nonnegative
from eqsat.costs.table.entry import Entry
from eqsat.errors import CostError

#: Beginning of the key of a whole graph.
WHOLE = "whole "
#: As many graphs must have been measured before sums are corrected by them.
LEAST = 6
_FIELDS = ("digest", "form", "name", "precision")


@dataclass(frozen=True)
class WholeKey:
    """A whole graph that is measured: its name, its form ("original", "optimised"), precision, and a hash of its parts.

    >>> key = WholeKey("bert", "original", "exact", "0a1b")
    >>> WholeKey.parse(key.text) == key
    True
    """

    name: str
    form: str
    precision: str
    digest: str

    @cached_property
    def text(self) -> str:
        """The key as one line; equal keys have equal lines."""
        # The sign that parts the operators of fused kernels is left to them.
        values = {field: str(getattr(self, field)).replace(";", ",") for field in _FIELDS}
        return WHOLE + json.dumps(values, sort_keys=True, separators=(",", ":"))

    @staticmethod
    def parse(text: str) -> WholeKey:
        """The key that a line stands for; CostError for a line that is none."""
        try:
            values = json.loads(text.removeprefix(WHOLE))
            if text.startswith(WHOLE) and values.keys() == set(_FIELDS) and all(map(_is_text, values.values())):
                key = WholeKey(**values)
                if key.text == text:
                    return key
        except (ValueError, AttributeError, RecursionError):
            pass
        raise CostError(f"no key of a whole graph: {text!r}", expected=WHOLE + "with " + ", ".join(_FIELDS))


@dataclass(frozen=True, slots=True)
class MeasuredGraph:
    """A measured graph: the sum of its kernels' costs as the table had them, their number, and its own time.

    `estimated` is the share of the sum that was no measurement, from 0 to 1.
    """

    key: WholeKey
    sum: float
    kernels: int
    estimated: float
    measured: float

    @staticmethod
    def predicted(sum: float, kernels: int, estimated: float) -> str:
        """The prediction as text, which the entry of a whole graph has for its plan."""
        return json.dumps({"estimated": estimated, "kernels": kernels, "sum": sum}, sort_keys=True)

    @staticmethod
    def of(text: str, entry: Entry) -> MeasuredGraph:
        """A graph as a table has it; CostError for an entry without its prediction."""
        try:
            values = json.loads(entry.plan)
            parts = float(values["sum"]), int(values["kernels"]), float(values["estimated"])
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            raise CostError(f"no prediction: {entry.plan!r}", where=text, expected="sum, kernels, estimated") from error
        return MeasuredGraph(WholeKey.parse(text), *parts, entry.seconds)


@dataclass(frozen=True, slots=True)
class Correction:
    """The time of a graph from the sum of its kernels: factor · sum + overhead · kernels, in seconds."""

    factor: float = 1.0
    overhead: float = 0.0

    def of(self, sum: float, kernels: int) -> float:
        """The time predicted."""
        return self.factor * sum + self.overhead * kernels

    def sum(self, seconds: float, kernels: int) -> float:
        """The sum of which this is the time predicted; the time itself where it says nothing of the sum."""
        return max(seconds - self.overhead * kernels, 0.0) / self.factor if self.factor > 0 else seconds


def measured_graphs(entries: Mapping[str, Entry]) -> tuple[MeasuredGraph, ...]:
    """The whole graphs among entries, in the order of their keys."""
    return tuple(MeasuredGraph.of(text, entries[text]) for text in sorted(entries) if text.startswith(WHOLE))


def correction(graphs: Sequence[MeasuredGraph]) -> Correction:
    """The factor and overhead of 0 or more that miss least in relative terms; none where too few were measured.

    >>> graphs = [MeasuredGraph(WholeKey(str(n), "", "", ""), n, 2, 0.0, 0.5 * n + 6) for n in range(1, 8)]
    >>> found = correction(graphs)
    >>> round(found.factor, 4), round(found.overhead, 4)
    (0.5, 3.0)
    """
    known = [w for w in graphs if w.measured > 0]
    if len(known) < LEAST:
        return Correction()
    rows = np.array([[w.sum, w.kernels] for w in known]) / np.array([[w.measured] for w in known])
    factor, overhead = nonnegative(rows, np.ones(len(known)))
    return Correction(float(factor), float(overhead))


@dataclass(frozen=True, slots=True)
class Prediction:
    """A measured graph beside its predictions: by its sum, and by a correction fitted to other models."""

    whole: MeasuredGraph
    corrected: float

    @property
    def missed(self) -> tuple[float, float]:
        """By which factor the sum and the correction miss, 1 for a prediction that is right."""
        return _missed(self.whole.sum, self.whole.measured), _missed(self.corrected, self.whole.measured)


def predictions(graphs: Sequence[MeasuredGraph]) -> tuple[Prediction, ...]:
    """Each graph predicted from the graphs of other models, so that no time predicts itself."""
    predicted = []
    for whole in graphs:
        others = correction([w for w in graphs if w.key.name != whole.key.name])
        predicted.append(Prediction(whole, others.of(whole.sum, whole.kernels)))
    return tuple(predicted)


def _missed(predicted: float, measured: float) -> float:
    if not (predicted > 0 and measured > 0):
        return math.inf
    return math.exp(abs(math.log(predicted / measured)))


def _is_text(value: object) -> bool:
    return isinstance(value, str)
