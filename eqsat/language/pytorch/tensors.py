"""Tensors of PyTorch as arrays and back, without copies where memory can be shared."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch

#: Element types that NumPy knows through ml_dtypes, with integers of the same size that torch and NumPy share.
_BY_BITS = {
    torch.bfloat16: (torch.int16, np.dtype(ml_dtypes.bfloat16)),
    torch.float8_e4m3fn: (torch.int8, np.dtype(ml_dtypes.float8_e4m3fn)),
    torch.float8_e5m2: (torch.int8, np.dtype(ml_dtypes.float8_e5m2)),
}
_TORCH_TYPES = {foreign: dtype for dtype, (_, foreign) in _BY_BITS.items()}


def array_of(tensor: torch.Tensor) -> Any:
    """An array that shares memory with a tensor; one on another device than the CPU as it is, for DLPack."""
    tensor = tensor.detach()
    if tensor.device.type != "cpu":
        return tensor
    tensor = tensor.resolve_conj().resolve_neg()
    if tensor.dtype in _BY_BITS:
        bits, foreign = _BY_BITS[tensor.dtype]
        return tensor.contiguous().view(bits).numpy().view(foreign)
    return tensor.numpy()


def tensor_of(array: Any) -> torch.Tensor:
    """A tensor that shares memory with an array, or holds a copy of one that may not be written."""
    if isinstance(array, torch.Tensor):
        return array
    if not isinstance(array, np.ndarray):
        return torch.from_dlpack(array) if hasattr(array, "__dlpack__") else torch.as_tensor(array)
    array = np.ascontiguousarray(array).reshape(array.shape)
    if not array.flags.writeable:
        array = array.copy()
    dtype = _TORCH_TYPES.get(array.dtype)
    if dtype is None:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(f"int{8 * array.dtype.itemsize}")).view(dtype)
