"""Estimates for operators that a table lacks: a device's roofline, fitted to the operators that it has."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from eqsat.costs.device import Device
from eqsat.costs.entry import Entry
from eqsat.costs.key import OpKey
from eqsat.costs.work import Work, work_of
from eqsat.language.spec import OPS

#: An operator with this many measured entries corrects the estimates of its other shapes, by at most this factor.
FITTED_ENTRIES = 3
FITTED_FACTOR = 4.0


class Fit:
    """The roofline of a device, corrected by the median of measured/estimated over the entries of each operator."""

    def __init__(self, device: Device, entries: Mapping[str, Entry]) -> None:
        self.device = device
        ratios: dict[str, list[float]] = {}
        for text, entry in entries.items():
            work = known_work(OpKey.parse(text))
            if work is not None:
                ratios.setdefault(work.variant, []).append(entry.seconds / device.roofline(work))
        self._factors = {
            variant: min(max(statistics.median(found), 1 / FITTED_FACTOR), FITTED_FACTOR)
            for variant, found in ratios.items()
            if len(found) >= FITTED_ENTRIES
        }

    def seconds(self, work: Work) -> float:
        """The estimate for one operator."""
        return self.device.roofline(work) * self._factors.get(work.variant, 1.0)


def known_work(key: OpKey) -> Work | None:
    """The work of an operator on static operands; None where this version does not know the operator."""
    declared = OPS.get(key.op)
    if declared is None or not key.is_measurable:
        return None
    results = declared.result_types(key.operands, key.attrs)
    return work_of(key.op, key.attrs, key.operands, results, key.const_operands)
