"""Outputs of a choice against those of the original: errors, and rows whose largest element stays where it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from eqsat.quantisation.sensitivity import array_error
from eqsat.report.precision import OutputError
from eqsat.runtime.backend import Program

Batch = Mapping[str, Any]


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


def agreement_of(program: Program, data: Sequence[tuple[Batch, Mapping[str, Any]]]) -> float:
    """The share of rows, over all outputs and batches, whose largest element stays where it is."""
    rows = [
        agrees
        for batch, expected in data
        for outputs in (program.run(batch),)
        for name, reference in expected.items()
        for agrees in _largest_agree(outputs[name], reference)
    ]
    return float(np.mean(rows)) if rows else 1.0


def _largest_agree(given: Any, expected: Any) -> Iterator[bool]:
    """For each row along the last axis, whether its largest element is at the same place."""
    out, ref = np.asarray(given), np.asarray(expected)
    if ref.dtype.kind != "f" or ref.ndim < 1 or ref.shape[-1] < 2 or not ref.size:
        return
    yield from (out.argmax(-1) == ref.argmax(-1)).reshape(-1).tolist()
