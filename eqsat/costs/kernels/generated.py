"""Comprehensions as kernels of their own on GPUs: how many these are, and the bytes that they move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from eqsat.costs.devices.device import Device
from eqsat.costs.kernels.key import OpKey
from eqsat.costs.kernels.work import Work
from eqsat.language.comprehension.graphs.operators import function_of
from eqsat.language.terms import DType, TensorType

#: The share of its peak of arithmetic that a GPU is taken to reach in these kernels: an assumption, no measurement.
SHARE = 0.25


def is_generated(key: OpKey, results: Sequence[TensorType | None], device: Device) -> bool:
    """True of a comprehension that programs for a GPU have kernels of."""
    return _traffic(key, results, device) is not None


def generated_work(work: Work, key: OpKey, results: Sequence[TensorType | None], device: Device) -> Work | None:
    """The work of an operator as kernels of its own; None where the device has none for it.

    They multiply by no tensor cores: floats of 16 bits are computed with as float32.
    """
    found = _traffic(key, results, device)
    if found is None:
        return None
    dtype = DType.FLOAT32.value if work.dtype in (DType.FLOAT16.value, DType.BFLOAT16.value) else work.dtype
    launches, moved = found
    weights = min(work.weight_bytes, moved)
    return replace(work, dtype=dtype, bytes=moved, weight_bytes=weights, launches=launches, share=SHARE)


def _traffic(key: OpKey, results: Sequence[TensorType | None], device: Device) -> tuple[int, int] | None:
    function = function_of(key.op) if device.gpu else None
    return None if function is None else _counted(key, tuple(results), repr(function))


@lru_cache(maxsize=1024)
def _counted(key: OpKey, results: tuple[TensorType | None, ...], text: str) -> tuple[int, int] | None:
    """The kernels and their bytes; `text` is that of the function, as names may be declared anew."""
    from eqsat.runtime.cuda.program.functions import traffic

    return traffic(key.op, key.attrs, key.operands, results)
