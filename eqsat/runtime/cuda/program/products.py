"""Matrix products, convolutions, attention and normalisations as library calls, with their epilogues."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from eqsat.language.graphs.attending import attends
from eqsat.language.ops.windows import conv_geometry
from eqsat.language.terms import LAYOUTS, DType, Held, Node, State
from eqsat.runtime.cuda.libraries.calls import Attention, Convolution, Epilogue, Matmul, Normalisation
from eqsat.runtime.cuda.libraries.cublaslt import expressible as product_fault
from eqsat.runtime.cuda.libraries.cublaslt import matrix_of
from eqsat.runtime.cuda.libraries.cudnn import addend_fault, views_of
from eqsat.runtime.cuda.libraries.cudnn import expressible as network_fault
from eqsat.runtime.cuda.libraries.epilogues import epilogue_of, may_follow
from eqsat.runtime.kernels.view import View
from eqsat.runtime.programs.emitter import Emitter, Part

#: The libraries whose kernels a program may call.
LIBRARIES = frozenset({"cublaslt", "cudnn"})
_FLOATS = frozenset({DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16, DType.FLOAT64})
#: Element types of one byte that matrices are multiplied in, and the kinds of epilogues beside them.
_BYTES = {DType.INT8: frozenset[str](), DType.FLOAT8E4M3FN: frozenset({"scale"})}


@dataclass(frozen=True)
class ProductTail:
    """Nodes after a product that a library computes at its end: `taken` nodes, the last of which makes `value`.

    `constant` is the name of the bias where that is one, which may then be held in any element type.
    """

    taken: int
    value: str
    alpha: float = 1.0
    bias: View | None = None
    constant: str = ""
    function: str = ""
    addend: View | None = None

    @property
    def epilogue(self) -> Epilogue:
        """The epilogue by cuBLASLt's name."""
        parts = (self.function, "bias" if self.bias is not None else "")
        return cast(Epilogue, "_".join(part for part in parts if part))


class Products:
    """Finds the library call that computes the first nodes of a part."""

    def __init__(self, emitter: Emitter, libraries: frozenset[str]) -> None:
        self.emitter, self.libraries = emitter, libraries

    def take(self, part: Part) -> int:
        """Launch a library's kernel over the first nodes of a part; how many it computes, 0 where there is none."""
        node = part.nodes[0]
        if any(v is not None and self.emitter.types[v].size == 0 for v in (*node.inputs, *node.outputs) if v):
            return 0
        if "cublaslt" in self.libraries and node.op in ("matmul", "gemm", "matmul_integer"):
            return self._matmul(part, node)
        if "cudnn" in self.libraries and node.op == "conv":
            return self._convolution(part, node)
        if "cudnn" in self.libraries and node.op == "attention":
            return self._attention(part, node)
        if "cudnn" in self.libraries and node.op in ("layer_norm", "rms_norm") and len(part.nodes) == 1:
            return self._normalisation(part, node)
        return 0

    def _matmul(self, part: Part, node: Node) -> int:
        a, b = (self.emitter.operand(part, str(v)) for v in node.inputs[:2])
        type = self.emitter.types[node.outputs[0]]
        integers = node.op == "matmul_integer"
        if a.dtype != b.dtype or (a.dtype is not DType.INT8 if integers else a.dtype not in (*_FLOATS, *_BYTES)):
            return 0
        if integers and any(v is not None for v in node.inputs[2:]):
            return 0  # zero points
        bare = ProductTail(1, node.outputs[0])
        if node.op == "gemm":
            a = a.permuted((1, 0)) if node.attrs["trans_a"] else a
            b = b.permuted((1, 0)) if node.attrs["trans_b"] else b
            bare = replace(bare, alpha=node.attrs["alpha"])
            if len(node.inputs) > 2 and node.inputs[2] is not None:
                bias = self._vector(self.emitter.operand(part, node.inputs[2]), type.static[-1])
                along = epilogue_of("gemm", "add", {}, type, [self.emitter.types[node.inputs[2]]]) == "bias"
                if bias is None or not along or node.attrs["beta"] != 1.0:
                    return 0
                bare = replace(bare, bias=bias, constant=self._constant(node.inputs[2]))
        a = a if a.rank > 1 else a.broadcast_to((1, *a.shape))
        b = b if b.rank > 1 else _column(b)
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        count = math.prod(batch)
        matrix = (*((count,) if count > 1 else ()), a.shape[-2], b.shape[-1])
        before = len(self.emitter.launches)
        a, b, matrix = self._joined(a, b, batch, matrix, node.op)
        if a.dtype in _BYTES:
            a, b = self._facing(a, b, node.op)
        for tail in dict.fromkeys((self._tail(part, node, bare), bare)):
            result = self.emitter.result(part, tail.value)
            for dtype in dict.fromkeys((result.dtype, DType.FLOAT32 if a.dtype in _BYTES else a.dtype)):
                if self._product(part, tail, (a, b), result, matrix, dtype):
                    return tail.taken
        del self.emitter.launches[before:]
        return 0

    def _product(
        self,
        part: Part,
        tail: ProductTail,
        operands: tuple[View, View],
        result: View,
        matrix: tuple[int, ...],
        dtype: DType,
    ) -> bool:
        """Return whether the library makes a product in an element type, from which it is copied to the wanted one."""
        target = result.reshaped(matrix)
        if target is None or not _is_matrix(target) or dtype != result.dtype:
            target = None
        written = self.emitter.spare(tail.value, dtype, matrix) if target is None else target
        bias = self._held_as(tail, dtype, matrix[-1])
        call = Matmul(*operands, written, bias, tail.alpha, tail.epilogue, part.arithmetic)
        if product_fault(call) is not None:
            return False
        self._launch(call, part, tail)
        if target is None:
            self.emitter.copied(View.of(written.buffer, dtype, result.shape), result, tail.value)
        return True

    def _facing(self, a: View, b: View, label: str) -> tuple[View, View]:
        """Operands of one byte as a library takes them: the left one in rows, the right one in columns."""
        if not _is_in_rows(a):
            a = self.emitter.contiguous(a, f"operand of {label}")
        turned = _transposed(b)
        if not _is_in_rows(turned):
            turned = self.emitter.contiguous(turned, f"operand of {label}")
        return a, _transposed(turned)

    def _constant(self, value: str | None) -> str:
        return value if value is not None and value in self.emitter.constants else ""

    def _held_as(self, tail: ProductTail, dtype: DType, size: int) -> View | None:
        """The bias, in the element type of the product where it is a constant."""
        if tail.bias is None or not tail.constant or tail.bias.dtype == dtype:
            return tail.bias
        stated = self.emitter.types[tail.constant].dtype
        state = State("row", "" if dtype == stated else dtype.value)
        return self._vector(self.emitter.read(Held(tail.constant, state)), size)

    def _joined(
        self, a: View, b: View, batch: tuple[int, ...], matrix: tuple[int, ...], label: str
    ) -> tuple[View, View, tuple[int, ...]]:
        """Both operands with at most one axis of products, copied where their strides do not allow it.

        Products by one and the same matrix are one product of more rows.
        """
        rows, depth, columns = a.shape[-2], a.shape[-1], b.shape[-1]
        if math.prod(b.shape[:-2]) == 1 and math.prod(batch) > 1:
            whole = a.broadcast_to((*batch, rows, depth)).reshaped((math.prod(batch) * rows, depth))
            if whole is not None and _is_matrix(whole):
                right = self._matrix(b, (depth, columns), label)
                return whole, right, (math.prod(batch) * rows, columns)
        lead = matrix[:-2]
        left = self._matrix(a.broadcast_to((*batch, rows, depth)), (*lead, rows, depth), label)
        right = self._matrix(b.broadcast_to((*batch, depth, columns)), (*lead, depth, columns), label)
        return left, right, matrix

    def _matrix(self, view: View, shape: tuple[int, ...], label: str) -> View:
        matrix = view.reshaped(shape)
        if matrix is not None and _is_matrix(matrix):
            return matrix
        copy = self.emitter.contiguous(view, f"operand of {label}").reshaped(shape)
        if copy is None:
            raise AssertionError("a contiguous view has any shape")
        return copy

    def _tail(self, part: Part, node: Node, tail: ProductTail) -> ProductTail:
        """As many of the nodes after a product as a library computes at its end."""
        done = ["scale"] * (tail.alpha != 1.0) + ["bias"] * (tail.bias is not None)
        done += ["function"] * bool(tail.function)
        held = self.emitter.operand(part, str(node.inputs[0])).dtype
        for index, after in enumerate(part.nodes[1:], start=1):
            others = [v for v in after.inputs if v is not None and v != tail.value]
            if tail.value in part.results or [n for n in part.nodes[index:] if tail.value in n.inputs] != [after]:
                break
            types = [self.emitter.types[v] for v in others]
            kind = epilogue_of(node.op, after.op, after.attrs, self.emitter.types[after.outputs[0]], types)
            if kind not in _BYTES.get(held, {kind}):
                break
            if not may_follow(done, kind) or any(v in part.inner for v in others):
                break
            longer = self._with_next(part, node, after, tail, kind)
            if longer is None:
                break
            tail = replace(longer, taken=index + 1, value=after.outputs[0])
            done.append(kind)
        return tail

    def _with_next(self, part: Part, node: Node, after: Node, tail: ProductTail, kind: str) -> ProductTail | None:
        """The nodes with one more; None if its operand is not held as the library wants it."""
        other = next((v for v in after.inputs if v is not None and v != tail.value), None)
        if kind == "function":
            return replace(tail, function=after.op)
        if kind == "addend":
            addend = self.emitter.operand(part, str(other))
            return replace(tail, addend=addend) if self._adds(part, node, addend) else None
        dtype = self.emitter.operand(part, str(node.inputs[0])).dtype
        if kind == "scale":
            factor = self._factor(after, other)
            if factor is None or not _is_scale(tail.alpha * factor, dtype):
                return None
            return replace(tail, alpha=tail.alpha * factor)
        type = self.emitter.types[node.outputs[0]]
        if type.rank == 0:
            return None
        size = type.static[1 if node.op == "conv" else -1]
        vector = self._vector(self.emitter.operand(part, str(other)), size)
        fits = vector is not None and vector.dtype in (dtype, self._held(part, after))
        return replace(tail, bias=vector, constant=self._constant(other)) if fits else None

    def _adds(self, part: Part, node: Node, addend: View) -> bool:
        """Return whether a library adds a tensor at the end of a convolution whose result is held as the part's are."""
        x, w = self._images(part, node)
        type = self.emitter.types[node.outputs[0]]
        stored = part.state.typed(type)
        like = View.of("", stored.dtype, type.static, LAYOUTS[part.state.layout].order(type.rank))
        call = Convolution(x, w, like, (), (), (), node.attrs["group"], arithmetic=part.arithmetic)
        return addend_fault(call, addend) is None

    def _images(self, part: Part, node: Node) -> tuple[View, View]:
        """Images and filters of a convolution; constant filters are put with their channels where the images' are."""
        image, filters = str(node.inputs[0]), str(node.inputs[1])
        state = part.states.get(filters, part.state)
        last = part.states.get(image, part.state).layout == "nhwc"
        if last and filters in self.emitter.constants and state.layout == "row":
            return self.emitter.operand(part, image), self.emitter.read(Held(filters, replace(state, layout="nhwc")))
        return self.emitter.operand(part, image), self.emitter.operand(part, filters)

    def _factor(self, node: Node, value: str | None) -> float | None:
        """The finite number that a product is multiplied by; None where it is not known, or divides by nothing."""
        constant = self.emitter.constants.get(str(value))
        if constant is None or constant.type.size != 1 or (node.op == "div" and node.inputs[1] != value):
            return None
        number = float(constant.array.reshape(()))
        if not math.isfinite(number) or (node.op == "div" and number == 0):
            return None
        return 1.0 / number if node.op == "div" else number

    def _held(self, part: Part, node: Node) -> DType:
        return part.state.typed(self.emitter.types[node.outputs[0]]).dtype

    def _vector(self, view: View, size: int) -> View | None:
        """A view of so many elements as one contiguous row; None where it is no such."""
        row = view.reshaped((size,)) if view.count == size else None
        return row if row is not None and (size == 1 or row.strides == (1,)) else None

    def _launch(self, call: Matmul | Convolution, part: Part, tail: ProductTail) -> None:
        nodes = part.nodes[: tail.taken]
        label = " + ".join(n.op for n in nodes)
        reads = views_of(call)[:-1] if isinstance(call, Convolution) else (call.a, call.b, call.bias)
        self.emitter.call(call, [v for v in reads if v is not None], call.result, (tail.value,), label)

    def _convolution(self, part: Part, node: Node) -> int:
        x, w = self._images(part, node)
        if x.dtype not in _FLOATS or x.dtype != w.dtype or self._held(part, node) != x.dtype:
            return 0
        given = node.inputs[2] if len(node.inputs) > 2 else None
        bias = None if given is None else self.emitter.operand(part, given)
        relu = node.attrs["activation"] == "relu"
        start = ProductTail(1, node.outputs[0], bias=bias, function="relu" if relu else "")
        tail = self._tail(part, node, start)
        strides, dilations, pads = conv_geometry(node.attrs, x.rank - 2)
        call = Convolution(
            x,
            w,
            self.emitter.result(part, tail.value),
            tuple(strides),
            tuple(pads),
            tuple(dilations),
            node.attrs["group"],
            tail.bias,
            tail.function == "relu",
            part.arithmetic,
            tail.addend,
        )
        if network_fault(call) is not None:
            return 0
        self._launch(call, part, tail)
        return tail.taken

    def _attention(self, part: Part, node: Node) -> int:
        q, k, v = (self.emitter.operand(part, str(x)) for x in node.inputs[:3])
        given = node.inputs[3] if len(node.inputs) > 3 else None
        if node.attrs["hidden"] == "nan" and not attends(self.emitter.graph, given, causal=node.attrs["causal"]):
            return 0  # where the library makes 0
        mask = None if given is None else self.emitter.operand(part, given)
        scale = node.attrs["scale"] if node.attrs["scale"] is not None else 1.0 / math.sqrt(q.shape[3])
        call = Attention(q, k, v, self.emitter.result(part, node.outputs[0]), scale, mask, node.attrs["causal"])
        if network_fault(call) is not None:
            return 0
        reads = (q, k, v) if mask is None else (q, k, v, mask)
        self.emitter.call(call, reads, call.result, (node.outputs[0],), node.op)
        return 1

    def _normalisation(self, part: Part, node: Node) -> int:
        """Normalised rows with nothing computed before or after; others are left to a generated kernel."""
        x, scale, *given = (self.emitter.operand(part, v) for v in node.inputs if v is not None)
        if node.op == "layer_norm" and not given:
            return 0
        width = math.prod(x.shape[node.attrs["axis"] % x.rank :])
        result = self.emitter.result(part, node.outputs[0])
        rows, result_rows = (view.reshaped((view.count // width, width)) for view in (x, result))
        vectors = [self._vector(view, width) for view in (scale, *given)]
        if rows is None or result_rows is None or None in vectors:
            return 0
        factor, *bias = (v for v in vectors if v is not None)
        call = Normalisation(rows, factor, result_rows, node.attrs["epsilon"], bias[0] if bias else None)
        if network_fault(call) is not None:
            return 0
        self.emitter.call(call, views_of(call)[:-1], result, (node.outputs[0],), node.op)
        return 1


def _is_scale(alpha: float, operands: DType) -> bool:
    """Return whether a library scales by a number as written: it takes float64 for operands of that, else float32.

    By 0 it does not: then it looks at no operand, and products of infinity would be 0.
    """
    limits = np.finfo(np.float64 if operands is DType.FLOAT64 else np.float32)
    return float(limits.tiny) <= abs(alpha) <= float(limits.max)


def _transposed(view: View) -> View:
    axes = range(view.rank)
    return view.permuted((*axes[:-2], axes[-1], axes[-2]))


def _is_in_rows(view: View) -> bool:
    last = replace(view, shape=view.shape[-2:], strides=view.strides[-2:])
    matrix = matrix_of(last, 0)
    return matrix is not None and not matrix.turned


def _column(view: View) -> View:
    """A vector as a matrix of one column."""
    return replace(view, shape=(*view.shape, 1), strides=(*view.strides, 1))


def _is_matrix(view: View) -> bool:
    """Return whether the last two axes are a matrix in rows or in columns, without elements that share a place."""
    last = replace(view, shape=view.shape[-2:], strides=view.strides[-2:])
    return matrix_of(last, 0) is not None
