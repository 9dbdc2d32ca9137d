"""Outputs of a choice against those of the original: errors, and rows whose largest element stays where it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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


def agreement_of(outputs: Mapping[str, Any], reference: Mapping[str, Any]) -> float:
    """The share of rows, over all outputs, whose largest element stays where it is.

    >>> rows, other = np.array([[1.0, 2.0], [4.0, 3.0]]), np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> agreement_of({"y": rows}, {"y": other})
    0.5
    >>> agreement_of({"y": np.array([0.0, 1e-9])}, {"y": np.array([0.0, 0.0])})
    1.0
    >>> agreement_of({"y": np.array([2.0, 1.0, -np.inf])}, {"y": np.array([1.0, 2.0, -np.inf])})
    0.0
    """
    rows = [agrees for name, expected in reference.items() for agrees in _largest_agree(outputs[name], expected)]
    return float(np.mean(rows)) if rows else 1.0


def unranked_error(outputs: Mapping[str, Any], reference: Mapping[str, Any]) -> float:
    """The error of the worst output that has no rows; 0 where every one has.

    >>> one = {"y": np.array([[2.0]]), "classes": np.array([[2.0, 3.0]])}
    >>> unranked_error(one, {"y": np.array([[4.0]]), "classes": np.array([[9.0, 9.0]])})
    0.5
    """
    names = [name for name, expected in reference.items() if not _has_rows(np.asarray(expected))]
    return max((array_error(outputs[name], reference[name]) for name in names), default=0.0)


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
