"""Matrix products by cuBLASLt, through nvmath's bindings: every algorithm it proposes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from eqsat.errors import BackendError
from eqsat.language.terms.types import DType
from eqsat.runtime.cuda.libraries.calls import Matmul
from eqsat.runtime.cuda.libraries.cublaslt import (
    EPILOGUES,
    NAME,
    TYPES,
    Matrix,
    described,
    parse_plan,
    plan_text,
    product_of,
)
from eqsat.runtime.cuda.libraries.library import WORKSPACE_BYTES, Address, opened
from eqsat.runtime.kernels.view import BUFFER_ALIGNMENT, View

#: Algorithms that are asked for; the library has fewer for most products.
MOST_ALGORITHMS = 64
#: Types that products are summed in (cublasComputeType_t), and that their factors alpha and beta have, by the element
#: type of operands, and of those of float32 in TF32.
_COMPUTE = {DType.FLOAT64: (70, DType.FLOAT64), DType.INT8: (72, DType.INT32)}
_COMPUTE_32F, _COMPUTE_TF32 = (68, DType.FLOAT32), (77, DType.FLOAT32)
#: The way in which sums split over blocks may be joined (cublasLtReductionScheme_t): in the type of the sums, through
#: the workspace. Others join them in the type of the result, in float16 after each part.
_IN_COMPUTE_TYPE = 2


def library() -> CublasLt:
    """The library, opened; BackendError that names the missing part where nvmath or cuBLASLt is not here."""
    return opened(
        "nvmath.bindings.cublasLt",
        CublasLt,
        called="cuBLASLt",
        package="nvmath-python, through which cuBLASLt is called",
        version="cuBLASLt of the CUDA that the driver supports",
    )


class CublasLt:
    """cuBLASLt with a handle of its own."""

    name = NAME

    def __init__(self, lt: Any) -> None:
        self._lt = lt
        self.version = str(lt.get_version())
        self._handle = lt.create()

    def plans(self, call: Matmul, address: Address) -> tuple[str, ...]:
        """Every algorithm that cuBLASLt proposes for a call, its own choice first."""
        with Descriptors(self._lt, call, address) as descriptors:
            proposed = descriptors.algorithms(self._handle, MOST_ALGORITHMS)
        return tuple(dict.fromkeys(self._text(algorithm, size) for algorithm, size in proposed))

    def prepare(self, call: Matmul, address: Address, plan: str | None = None) -> PreparedMatmul:
        """The call by an algorithm, or by cuBLASLt's own choice."""
        descriptors = Descriptors(self._lt, call, address)
        try:
            if plan is None:
                proposed = descriptors.algorithms(self._handle, 1)
                if not proposed:
                    raise BackendError(f"cuBLASLt {self.version} has no algorithm for {described(call)}")
                algorithm, size = proposed[0]
            else:
                algorithm, size = parse_plan(plan, self.version)
            return PreparedMatmul(self._lt, self._handle, descriptors, algorithm, size, self._text(algorithm, size))
        except BaseException:
            descriptors.close()
            raise

    def close(self) -> None:
        """Give the handle back."""
        if self._handle:
            self._lt.destroy(self._handle)
            self._handle = 0

    def _text(self, algorithm: bytes, workspace: int) -> str:
        return plan_text(algorithm, workspace, self.version)


class Descriptors:
    """The descriptors of a product, and their lifetime."""

    def __init__(self, lt: Any, call: Matmul, address: Address) -> None:
        product = product_of(call)
        if isinstance(product, str):
            raise BackendError(f"cuBLASLt does not compute {described(call)}: {product}")
        self.lt, self.call, self.product = lt, call, product
        self.matmul = 0
        self.layouts: list[int] = []
        otherwise = _COMPUTE_TF32 if call.arithmetic == "tf32" else _COMPUTE_32F
        compute, scale = _COMPUTE.get(call.a.dtype, otherwise)
        self.alpha, self.beta = np.array([call.alpha], scale.numpy), np.array([0], scale.numpy)
        self.addresses = [address(m.view) for m in (product.left, product.right, product.result)]
        try:
            self.matmul = lt.matmul_desc_create(compute, TYPES[scale])
            self._describe(None if call.bias is None else address(call.bias))
            for matrix in (product.left, product.right, product.result):
                self._lay_out(matrix)
        except BaseException:
            self.close()
            raise

    def _describe(self, bias: int | None) -> None:
        names = self.lt.MatmulDescAttribute
        wanted = {
            names.TRANSA: int(self.product.left.turned),
            names.TRANSB: int(self.product.right.turned),
            names.EPILOGUE: EPILOGUES[self.call.epilogue],
        }
        if bias is not None:
            wanted |= {names.BIAS_POINTER: bias, names.BIAS_DATA_TYPE: TYPES[self.call.result.dtype]}
        self._set("matmul_desc", self.matmul, wanted)

    def _set(self, kind: str, descriptor: int, attributes: Mapping[Any, int]) -> None:
        """Set attributes of a descriptor of a kind, by the names that nvmath has for both."""
        type_of, assign = (getattr(self.lt, name) for name in (f"get_{kind}_attribute_dtype", f"{kind}_set_attribute"))
        for attribute, value in attributes.items():
            buffer = np.array([value], type_of(attribute))
            assign(descriptor, attribute, buffer.ctypes.data, buffer.nbytes)

    def _lay_out(self, matrix: Matrix) -> None:
        lt, names = self.lt, self.lt.MatrixLayoutAttribute
        layout = lt.matrix_layout_create(TYPES[matrix.view.dtype], matrix.rows, matrix.columns, matrix.ld)
        self.layouts.append(layout)
        if self.product.batch > 1:
            batches = {names.BATCH_COUNT: self.product.batch, names.STRIDED_BATCH_OFFSET: matrix.step}
            self._set("matrix_layout", layout, batches)

    def algorithms(self, handle: int, most: int) -> list[tuple[bytes, int]]:
        """Algorithms that the heuristics propose, the best first, each with its workspace in bytes."""
        lt = self.lt
        left, right, result = self.layouts
        preference = self.preference()
        try:
            proposed = np.zeros(most, lt.matmul_heuristic_result_dtype)
            count = np.zeros(1, np.int32)
            layouts = (left, right, result, result)
            out = (proposed.ctypes.data, count.ctypes.data)
            lt.matmul_algo_get_heuristic(handle, self.matmul, *layouts, preference, most, *out)
        finally:
            lt.matmul_preference_destroy(preference)
        usable = [one for one in proposed[: int(count[0])] if one["state"] == 0]
        return [(one["algo"].tobytes(), int(one["workspace_size"])) for one in usable]

    def preference(self) -> int:
        """The handle of the bounds on what the heuristics propose, which the caller destroys."""
        names = self.lt.MatmulPreferenceAttribute
        a, b, c = (_alignment(matrix.view) for matrix in (self.product.left, self.product.right, self.product.result))
        # There is none for the bias, which is read where the result is written.
        d = c if self.call.bias is None else math.gcd(c, _alignment(self.call.bias))
        wanted = {
            names.MAX_WORKSPACE_BYTES: WORKSPACE_BYTES,
            names.REDUCTION_SCHEME_MASK: _IN_COMPUTE_TYPE,
            **{names[f"MIN_ALIGNMENT_{side}_BYTES"]: n for side, n in zip("ABCD", (a, b, c, d), strict=True)},
        }
        preference = int(self.lt.matmul_preference_create())
        try:
            self._set("matmul_preference", preference, wanted)
        except BaseException:
            self.lt.matmul_preference_destroy(preference)
            raise
        return preference

    def __enter__(self) -> Descriptors:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the descriptors back."""
        while self.layouts:
            self.lt.matrix_layout_destroy(self.layouts.pop())
        if self.matmul:
            self.lt.matmul_desc_destroy(self.matmul)
            self.matmul = 0


class PreparedMatmul:
    """A product with its algorithm chosen."""

    def __init__(
        self, lt: Any, handle: int, descriptors: Descriptors, algorithm: bytes, workspace: int, plan: str
    ) -> None:
        self.plan, self.workspace = plan, workspace
        self._lt, self._handle, self._descriptors = lt, handle, descriptors
        # The bytes as an array of eight-byte words, whose address is aligned as the library's struct is.
        self._algorithm = np.frombuffer(algorithm, np.uint64).copy()

    def launch(self, stream: int, workspace: int) -> None:
        """Put the product on a stream."""
        d = self._descriptors
        left, right, result = d.layouts
        a, b, c = d.addresses
        operands = (d.alpha.ctypes.data, a, left, b, right, d.beta.ctypes.data, c, result, c, result)
        algorithm = self._algorithm.ctypes.data
        self._lt.matmul(self._handle, d.matmul, *operands, algorithm, workspace, self.workspace, stream)

    def close(self) -> None:
        """Give the descriptors back."""
        self._descriptors.close()


def _alignment(view: View) -> int:
    place = view.offset * view.dtype.itemsize
    return math.gcd(place, BUFFER_ALIGNMENT) if place else BUFFER_ALIGNMENT
