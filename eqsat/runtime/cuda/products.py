"""Matrix products, convolutions and attention as library calls, with what libraries do to a product at its end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eqsat.language.graph import Node
from eqsat.language.ops.linear import conv_geometry
from eqsat.language.types import DType
from eqsat.runtime.cuda.calls import Attention, Call, Convolution, Epilogue, Matmul
from eqsat.runtime.cuda.cublaslt import expressible as product_fault
from eqsat.runtime.cuda.cudnn import expressible as network_fault
from eqsat.runtime.cuda.view import View

if TYPE_CHECKING:
    from eqsat.runtime.cuda.lowering import Lowering, Part

#: The libraries whose kernels a program may call.
LIBRARIES = frozenset({"cublaslt", "cudnn"})
_FLOATS = frozenset({DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16, DType.FLOAT64})


@dataclass(frozen=True)
class Ending:
    """What follows a product and a library does at its end: `taken` nodes, the last of which makes `value`."""

    taken: int
    value: str
    alpha: float = 1.0
    bias: View | None = None
    function: str = ""

    @property
    def epilogue(self) -> Epilogue:
        """The ending as cuBLASLt calls it."""
        names: dict[tuple[str, bool], Epilogue] = {
            ("", False): "",
            ("", True): "bias",
            ("relu", False): "relu",
            ("relu", True): "relu_bias",
            ("gelu", False): "gelu",
            ("gelu", True): "gelu_bias",
        }
        return names[self.function, self.bias is not None]


class Products:
    """Finds the library call that computes the first nodes of a part."""

    def __init__(self, lowering: Lowering, libraries: frozenset[str]) -> None:
        self.lowering, self.libraries = lowering, libraries

    def take(self, part: Part) -> int:
        """Launches a library's kernel over the first nodes of a part; how many it computes, 0 where there is none."""
        node = part.nodes[0]
        if any(v is not None and self.lowering.types[v].size == 0 for v in (*node.inputs, *node.outputs) if v):
            return 0
        if "cublaslt" in self.libraries and node.op in ("matmul", "gemm"):
            return self._matmul(part, node)
        if "cudnn" in self.libraries and node.op == "conv":
            return self._convolution(part, node)
        if "cudnn" in self.libraries and node.op == "attention":
            return self._attention(part, node)
        return 0

    def _matmul(self, part: Part, node: Node) -> int:
        a, b = (self.lowering.operand(part, str(v)) for v in node.inputs[:2])
        made = self.lowering.types[node.outputs[0]]
        if a.dtype not in _FLOATS or a.dtype != b.dtype or part.state.typed(made).dtype != a.dtype:
            return 0
        bias = None
        alpha = 1.0
        if node.op == "gemm":
            a = a.permuted((1, 0)) if node.attrs["trans_a"] else a
            b = b.permuted((1, 0)) if node.attrs["trans_b"] else b
            alpha = node.attrs["alpha"]
            if len(node.inputs) > 2 and node.inputs[2] is not None:
                if node.attrs["beta"] != 1.0:
                    return 0
                bias = self._vector(self.lowering.operand(part, node.inputs[2]), made.static[-1])
                if bias is None or bias.dtype != a.dtype:
                    return 0
        a = a if a.rank > 1 else a.broadcast_to((1, *a.shape))
        b = b if b.rank > 1 else _column(b)
        ending = self._ending(part, node, bias, alpha)
        result = self.lowering.result(part, ending.value)
        batch = self._batch(a, b)
        count = math.prod(batch)
        matrix = (*((count,) if count > 1 else ()), a.shape[-2], b.shape[-1])
        label = " + ".join(n.op for n in part.nodes[: ending.taken])
        a, b, matrix = self._joined(a, b, batch, matrix, label)
        target = result.reshaped(matrix)
        written = target if target is not None and _is_matrix(target) else None
        if written is None:
            name = f"{ending.value}, in order"
            self.lowering.buffers[name] = replace(self.lowering.buffers[result.buffer], name=name, nbytes=result.nbytes)
            self.lowering.buffers[name] = replace(self.lowering.buffers[name], role="value")
            written = View.of(name, result.dtype, matrix)
        call = Matmul(a, b, written, ending.bias, ending.alpha, ending.epilogue, part.arithmetic)
        if product_fault(call) is not None:
            return 0
        self._launch(call, part, ending)
        if written is not target:
            whole = written.reshaped(result.shape)
            if whole is None:
                raise AssertionError("a contiguous view has any shape")
            self.lowering.copied(whole, result, ending.value)
        return ending.taken

    def _batch(self, a: View, b: View) -> tuple[int, ...]:
        rank = max(a.rank, b.rank) - 2
        pairs = zip((1,) * (rank - a.rank + 2) + a.shape[:-2], (1,) * (rank - b.rank + 2) + b.shape[:-2], strict=True)
        return tuple(max(x, y) for x, y in pairs)

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
        found = view.reshaped(shape)
        if found is not None and _is_matrix(found):
            return found
        copy = self.lowering.contiguous(view, f"operand of {label}").reshaped(shape)
        if copy is None:
            raise AssertionError("a contiguous view has any shape")
        return copy

    def _ending(self, part: Part, node: Node, bias: View | None, alpha: float = 1.0) -> Ending:
        """As many of the nodes after a product as a library computes at its end."""
        ending = Ending(1, node.outputs[0], alpha, bias)
        columns = self.lowering.types[node.outputs[0]].static[-1:]
        for index, after in enumerate(part.nodes[1:], start=1):
            if ending.value in part.leaving(index) and ending.value in part.results:
                break
            others = [v for v in after.inputs if v != ending.value]
            readers = [n for n in part.nodes[index:] if ending.value in n.inputs]
            if readers != [after] or ending.function:
                break
            found: Ending | None = None
            if after.op == "add" and len(others) == 1 and ending.bias is None and columns:
                view = None if others[0] in part.inner else self.lowering.operand(part, str(others[0]))
                vector = None if view is None else self._vector(view, columns[0])
                same = self.lowering.types[after.outputs[0]] == self.lowering.types[node.outputs[0]]
                if vector is not None and same and vector.dtype == self._held(part, after):
                    found = replace(ending, bias=vector)
            elif (
                after.op in ("mul", "div")
                and len(others) == 1
                and (factor := self._factor(after, others[0])) is not None
            ):
                found = replace(ending, alpha=ending.alpha * factor) if ending.bias is None else None
            elif after.op == "relu" or (after.op == "gelu" and after.attrs["approximate"] == "tanh"):
                found = replace(ending, function=after.op)
            if found is None:
                break
            ending = replace(found, taken=index + 1, value=after.outputs[0])
        return ending

    def _factor(self, node: Node, value: str | None) -> float | None:
        """The finite number that a product is multiplied by; None where it is not known, or divides by nothing."""
        constant = self.lowering.constants.get(str(value))
        if constant is None or constant.type.size != 1 or (node.op == "div" and node.inputs[1] != value):
            return None
        number = float(constant.array.reshape(()))
        if not math.isfinite(number) or (node.op == "div" and number == 0):
            return None
        return 1.0 / number if node.op == "div" else number

    def _held(self, part: Part, node: Node) -> DType:
        return part.state.typed(self.lowering.types[node.outputs[0]]).dtype

    def _vector(self, view: View, size: int) -> View | None:
        """A view that is one contiguous row, repeated over all else; None where it is no such."""
        if view.rank < 1 or view.shape[-1] != size or math.prod(view.shape) != size:
            return None
        found = view.reshaped((size,))
        return found if found is not None and (size == 1 or found.strides == (1,)) else None

    def _launch(self, call: Call, part: Part, ending: Ending) -> None:
        nodes = part.nodes[: ending.taken]
        label = " + ".join(n.op for n in nodes)
        operands = (call.a, call.b) if isinstance(call, Matmul) else (call.x, call.w)  # type: ignore[union-attr]
        bias = getattr(call, "bias", None)
        reads: Sequence[View] = operands if bias is None else (*operands, bias)
        self.lowering.call(call, reads, call.result, (ending.value,), label)

    def _convolution(self, part: Part, node: Node) -> int:
        x, w = (self.lowering.operand(part, str(v)) for v in node.inputs[:2])
        if x.dtype not in _FLOATS or x.dtype != w.dtype or self._held(part, node) != x.dtype:
            return 0
        given = node.inputs[2] if len(node.inputs) > 2 else None
        bias = None if given is None else self.lowering.operand(part, given)
        relu = node.attrs["activation"] == "relu"
        ending = Ending(1, node.outputs[0], bias=bias, function="relu" if relu else "")
        for index, after in enumerate(part.nodes[1:], start=1):
            leaves = ending.value in part.results or ending.function
            others = [v for v in after.inputs if v != ending.value]
            if leaves or sum(ending.value in n.inputs for n in part.nodes[index:]) != 1:
                break
            if after.op == "relu":
                ending = replace(ending, taken=index + 1, value=after.outputs[0], function="relu")
            elif after.op == "add" and ending.bias is None and len(others) == 1 and others[0] not in part.inner:
                channels = self._channels(self.lowering.operand(part, str(others[0])), node)
                if channels is None or channels.dtype != x.dtype:
                    break
                ending = replace(ending, taken=index + 1, value=after.outputs[0], bias=channels)
            else:
                break
        strides, dilations, pads = conv_geometry(node.attrs, x.rank - 2)
        call = Convolution(
            x,
            w,
            self.lowering.result(part, ending.value),
            tuple(strides),
            tuple(pads),
            tuple(dilations),
            node.attrs["group"],
            ending.bias,
            ending.function == "relu",
            part.arithmetic,
        )
        if network_fault(call) is not None:
            return 0
        self._launch(call, part, ending)
        return ending.taken

    def _channels(self, view: View, node: Node) -> View | None:
        """A view that is one number a channel; None where it is no such."""
        made = self.lowering.types[node.outputs[0]]
        channels = made.static[1]
        shape = (1,) * (made.rank - view.rank) + view.shape
        if len(shape) != made.rank or shape != (1, channels, *(1,) * (made.rank - 2)):
            return None
        return view.reshaped((channels,))

    def _attention(self, part: Part, node: Node) -> int:
        q, k, v = (self.lowering.operand(part, str(x)) for x in node.inputs[:3])
        given = node.inputs[3] if len(node.inputs) > 3 else None
        mask = None if given is None else self.lowering.operand(part, given)
        scale = node.attrs["scale"] if node.attrs["scale"] is not None else 1.0 / math.sqrt(q.shape[3])
        call = Attention(q, k, v, self.lowering.result(part, node.outputs[0]), scale, mask, node.attrs["causal"])
        if network_fault(call) is not None:
            return 0
        reads = (q, k, v) if mask is None else (q, k, v, mask)
        self.lowering.call(call, reads, call.result, (node.outputs[0],), node.op)
        return 1


def _column(view: View) -> View:
    """A vector as a matrix of one column."""
    return replace(view, shape=(*view.shape, 1), strides=(*view.strides, 1))


def _is_matrix(view: View) -> bool:
    """Whether the last two axes are a matrix in rows or in columns, without elements that share a place."""
    (rows, columns), (down, along) = view.shape[-2:], view.strides[-2:]
    if rows == 1 and columns == 1:
        return True
    in_rows = (along == 1 or columns == 1) and (down >= columns or rows == 1)
    in_columns = (down == 1 or rows == 1) and (along >= rows or columns == 1)
    return in_rows or in_columns
