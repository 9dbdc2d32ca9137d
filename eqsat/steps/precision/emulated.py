"""Narrow floats and products in TF32 on NumPy, for choices whose device is not here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.certify.stated import Narrow, NarrowNamespace
from eqsat.language.arithmetic.floats import FloatNamespace
from eqsat.language.graphs.interpret import run
from eqsat.language.terms import Graph, TensorType

#: The bits of float32 that TF32 lacks at the end, and half of the last one that it has.
_CUT = np.uint32(0xFFFFE000)
_HALF = np.uint32(0x1000)


def tf32(array: Any) -> Any:
    """The elements of float32 rounded to the 10 stored bits of TF32; others as they are.

    >>> import numpy as np
    >>> float(tf32(np.float32([1 + 2**-11 + 2**-13]))[0]) == 1 + 2**-10
    True
    """
    array = np.asarray(array)
    if array.dtype != np.float32:
        return array
    bits = np.ascontiguousarray(array).view(np.uint32)
    rounded = ((bits + _HALF) & _CUT).view(np.float32).reshape(array.shape)
    return np.where(np.isfinite(array), rounded, array)


class _Tf32Namespace(NarrowNamespace):
    def matmul(self, a: Any, b: Any) -> Any:  # type: ignore[override]
        """A product of matrices."""
        return super().matmul(tf32(a), tf32(b))

    def einsum(self, equation: str, *operands: Any) -> Any:
        """A sum of products over indices."""
        return super().einsum(equation, *map(tf32, operands))


class _Tf32(Narrow):
    def namespace(self, operands: list[TensorType | None], results: list[TensorType]) -> FloatNamespace:
        """Products of float32 in TF32."""
        return _Tf32Namespace()


@dataclass(frozen=True)
class EmulatedProgram:
    """A graph on NumPy in the element types that it states; with `tf32`, products of float32 are formed in TF32."""

    graph: Graph
    tf32: bool = False

    def __call__(self, **inputs: Any) -> dict[str, Any]:
        """The outputs by name, as `run` has it."""
        return self.run(inputs)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name for inputs by name."""
        with np.errstate(over="ignore", invalid="ignore"):
            return run(self.graph, inputs, _Tf32() if self.tf32 else Narrow())

    def bind(self, inputs: Mapping[str, Any]) -> Callable[[], object]:
        """A call that runs the program on these inputs."""
        return lambda: self.run(inputs)
