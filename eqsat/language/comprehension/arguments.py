"""Arguments of comprehensions: arrays and numbers of any library as those of NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from eqsat.errors import UsageError
from eqsat.language.comprehension.pytorch import is_tensor
from eqsat.language.terms import Array, DType

#: Devices of DLPack whose memory is this machine's: of the processor, and what is locked for GPUs.
_AT_HAND = (1, 3)


def number_of(value: bool | int | float, dtype: DType) -> Array | None:
    """A number in a type; None of one that it does not hold, too large floats aside, which become infinite."""
    if not dtype.is_float:
        if isinstance(value, float) or isinstance(value, bool) != (dtype is DType.BOOL):
            return None
        if dtype is not DType.BOOL and not np.iinfo(dtype.numpy).min <= value <= np.iinfo(dtype.numpy).max:
            return None
    try:
        whole = float(value) if dtype.is_float else value
    except OverflowError:
        return None
    with np.errstate(all="ignore"):
        return np.asarray(whole).astype(dtype.numpy)


def array_of(value: Any) -> Array:
    """An array of NumPy on what was passed: in place where it speaks DLPack, a copy of what a GPU holds."""
    if isinstance(value, np.ndarray | np.generic) or not hasattr(value, "__dlpack__"):
        try:
            return np.asarray(value)
        except (ValueError, TypeError, RuntimeError) as error:
            raise UsageError(f"no array: {error}", expected="an array") from None
    try:
        if is_tensor(value):
            from eqsat.language.pytorch import tensors

            value = tensors.array_of(value if is_at_hand(value) else value.detach().cpu())
        elif is_cupy_array(value):
            value = value.get()
        return value if isinstance(value, np.ndarray) else np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise UsageError(
            f"an array that NumPy cannot read: {error}", expected="an array in this machine's memory"
        ) from None


def is_at_hand(value: Any) -> bool:
    """True of an array in this machine's memory, as DLPack says."""
    if not hasattr(value, "__dlpack_device__"):
        return True
    kind, _ = value.__dlpack_device__()
    return int(kind) in _AT_HAND


def is_cupy_array(value: Any) -> bool:
    """True of an array of CuPy; CuPy is not imported for it."""
    return any(one.__module__.partition(".")[0] == "cupy" and one.__name__ == "ndarray" for one in type(value).__mro__)


def maker_of(values: Sequence[Any]) -> Callable[[Array], Any] | None:
    """The function that makes results of arrays, of the library that an argument is of; None where that is NumPy.

    Results are on the device of the first argument of PyTorch's, or on CuPy's current one.
    """
    for value in values:
        if is_tensor(value):
            from eqsat.language.pytorch.tensors import tensor_of

            device = value.device
            return lambda array: tensor_of(array).to(device)
        if is_cupy_array(value):
            import cupy

            return lambda array: cupy.asarray(array)
    return None


def overlaps_itself(array: Array) -> bool:
    """True where elements of an array share memory, or lie in no order of its axes."""
    reached = array.itemsize
    for stride, extent in sorted((abs(s), n) for s, n in zip(array.strides, array.shape, strict=True) if n > 1):
        if stride < reached:
            return array.size > 0
        reached += stride * (extent - 1)
    return False


def overlap(a: Array, b: Array) -> bool:
    """True where two arrays share an element, as far as that is seen in time."""
    try:
        return np.shares_memory(a, b, max_work=10_000)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return False
