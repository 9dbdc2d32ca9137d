"""Kernels that libraries have: matrix products, convolutions, attention and normalisations, by their results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from eqsat.runtime.kernels.view import View
from eqsat.runtime.programs.launches import LibraryCall

#: Operations of cuBLASLt on a product before it is stored.
Epilogue = Literal["", "bias", "relu", "relu_bias", "gelu", "gelu_bias"]


@dataclass(frozen=True)
class Matmul(LibraryCall):
    """result = epilogue(alpha · a @ b + bias), batched over all axes but the last two; `bias` is a vector of columns.

    The views have equal rank; batch axes of stride 0 repeat an operand. `arithmetic` is "tf32" where products of
    float32 may be formed so. GELU is the tanh form. Products of int8 are added up in int32, those of floats of 8 bits
    in float32.
    """

    a: View
    b: View
    result: View
    bias: View | None = None
    alpha: float = 1.0
    epilogue: Epilogue = ""
    arithmetic: str = ""


@dataclass(frozen=True)
class Convolution(LibraryCall):
    """result = relu?(conv(x, w) + bias + addend), of images [n, c, plane...] held in any strides.

    `addend` has the shape of the result.
    """

    x: View
    w: View
    result: View
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    groups: int
    bias: View | None = None
    relu: bool = False
    arithmetic: str = ""
    addend: View | None = None


@dataclass(frozen=True)
class Attention(LibraryCall):
    """result = softmax(scale · q @ kᵀ [+ mask] [causal]) @ v over [batch, heads, positions, features]."""

    q: View
    k: View
    v: View
    result: View
    scale: float
    mask: View | None = None
    causal: bool = False


@dataclass(frozen=True)
class Normalisation(LibraryCall):
    """result = (x - mean) / √(variance + epsilon) · scale + bias, along each row of [rows, width].

    Without a bias it is x / √(mean of squares + epsilon) · scale.
    """

    x: View
    scale: View
    result: View
    epsilon: float
    bias: View | None = None


Call = Matmul | Convolution | Attention | Normalisation


def library_of(call: Call) -> str:
    """The name of the library that computes a call."""
    return "cublaslt" if isinstance(call, Matmul) else "cudnn"
