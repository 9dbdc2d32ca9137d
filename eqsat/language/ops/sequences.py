"""Sequences of evenly spaced integers, whose length may be a named dim."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eqsat.language.declaration import Operands, Sample, op, symbolic
from eqsat.language.terms import Attrs, Dim, DType, Shape, TensorType


def _iota_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    return (TensorType.of(attrs["dtype"], (attrs["size"],)),)


def _iota_flops(operands: Operands, results: Sequence[TensorType], attrs: Attrs) -> Dim:
    return 0


def _iota_sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    return (), {"size": rng.randint(1, 3), "start": rng.randint(-2, 2), "step": rng.choice((-1, 1, 2)), **attrs}


@op(
    infer=_iota_type,
    flops=_iota_flops,
    sample=_iota_sample,
    shapes="A vector of `size` elements.",
    on_dims=symbolic.iota,
    generated=True,
)
def iota(xp: Any, *, size: int, start: int = 0, step: int = 1, dtype: str = "int64") -> Any:
    """The vector of start, start + step, … with `size` elements (ONNX Range)."""
    return (start + step * np.arange(size, dtype=np.int64)).astype(DType.of(dtype).numpy)
