"""Outputs of a choice against those of the original: errors, and rows whose largest element stays where it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.quantisation.sensitivity import array_error
from eqsat.report.precision import OutputError
from eqsat.runtime.backend import Program

Batch = Mapping[str, Any]

#: The most axes of an output whose last one may be of scores: batch, sequence and scores.
MOST_AXES = 3
#: The relative difference of elements that rounding to float32 may turn around.
_TIE = 1e-5


def errors_of(program: Program, held: Sequence[tuple[Batch, Mapping[str, Any]]]) -> dict[str, OutputError]:
    """The errors of each output over batches, and how often rows keep their largest element."""
    errors: dict[str, list[float]] = {}
    rows: dict[str, list[bool]] = {}
    for batch, expected in held:
        outputs = program.run(batch)
        for name, reference in expected.items():
            errors.setdefault(name, []).append(array_error(outputs[name], reference))
            rows.setdefault(name, []).extend(_largest_agree(outputs[name], reference))
    return {
        name: OutputError(float(np.mean(e)), max(e), float(np.mean(rows[name])) if rows[name] else None)
        for name, e in errors.items()
    }


@dataclass(frozen=True)
class ComparedOutputs:
    """Outputs of a program against those of the original: the error on each batch, whether all rows keep their largest
    elements, and the worst error of an output that has no rows."""

    errors: Sequence[float]
    keeps_largest: bool
    unranked: float

    @classmethod
    def of(cls, program: Program, data: Sequence[tuple[Batch, Mapping[str, Any]]]) -> ComparedOutputs:
        """Run a program on batches, one after the other, and compare with the outputs that are expected."""
        errors: list[float] = []
        keeps, unranked = True, 0.0
        for batch, expected in data:
            outputs = program.run(batch)
            by_output = {name: array_error(outputs[name], reference) for name, reference in expected.items()}
            errors.append(max(by_output.values(), default=0.0))
            for name, reference in expected.items():
                if _has_rows(np.asarray(reference)):
                    keeps = keeps and all(_largest_agree(outputs[name], reference))
                else:
                    unranked = max(unranked, by_output[name])
        return cls(errors, keeps, unranked)


def _has_rows(reference: np.ndarray[Any, Any]) -> bool:
    """True for vectors and rows of scores; False for single numbers, and for images and other maps."""
    return reference.dtype.kind == "f" and 1 <= reference.ndim <= MOST_AXES and reference.shape[-1] > 1


def _largest_agree(given: Any, expected: Any) -> Iterator[bool]:
    """For each row along the last axis, whether its largest element is at the same place, or at one of equal ones."""
    out, ref = np.asarray(given), np.asarray(expected)
    if ref.size and _has_rows(ref):
        wide, place = ref.astype(np.float64), out.argmax(-1)
        largest, there = wide.max(-1), np.take_along_axis(wide, place[..., None], -1)[..., 0]
        with np.errstate(invalid="ignore"):
            tied = np.isfinite(largest) & (largest - there <= _TIE * np.abs(largest))
        yield from (tied | (place == ref.argmax(-1))).reshape(-1).tolist()
