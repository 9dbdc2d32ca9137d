"""For which element types ONNX Runtime's CPU provider has a kernel of an operator."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Collection, Sequence
from functools import cache

from eqsat.language.declaration.symbolic import at_least
from eqsat.language.onnx.operators.export_reshape import ALLOWS_ZERO, runs_at_every_size
from eqsat.language.onnx.write.availability import has
from eqsat.language.ops import OPS
from eqsat.language.terms import Attrs, Dim, DType, Graph, Sym, TensorType
from eqsat.runtime.onnxruntime.halves import ends_the_process

#: Names of element types among kernels; the rest are called as here. An operator without a kernel for float16 is run in
#: float32 between casts that ONNX Runtime puts in; of bfloat16 it runs next to nothing, so there is nothing to choose
#: by.
_NAMES = {DType.FLOAT32: "float", DType.FLOAT64: "double", DType.FLOAT16: "float", DType.BFLOAT16: "float"}
Types = Sequence[TensorType | None]


def available_on(
    opset: int, *, contrib: bool = False, windowed: Collection[Dim] = ()
) -> Callable[[str, Attrs, Types, Types], bool]:
    """Return whether an operator of ours is one of ONNX's at an opset, and runs on a CPU on operands of some types.

    With `contrib`, operators that ONNX Runtime has of its own count too, where it has kernels of them. `windowed`
    are dims that the original moves windows over: at sizes where one is 0 it does not run either.
    """

    def available(op: str, attrs: Attrs, operands: Types, results: Types) -> bool:
        name = OPS[op].onnx
        if contrib and has_fused_kernel(op, attrs, operands):
            return True
        if op == "attention" and attrs["hidden"] == "nan":
            return False  # ONNX's operator makes 0
        if not has(op, opset) or name is None:
            return has(op, opset)
        if op == "reshape" and opset < ALLOWS_ZERO and not _reshapes_to_nothing(operands[0], results[0], opset):
            return False
        if op == "attention" and any(_may_be_empty(t) for t in operands[:3]):
            return False
        if op == "transpose" and ends_the_process(attrs["perm"], operands[0]):
            return False
        if OPS[op].windowed and not all(_holds_a_window(d, windowed) for d in _window_dims(operands[0])):
            return False
        return has_kernel(name, opset, operands) and not (op == "matmul" and may_spread_over_nothing(*operands))

    return available


def windowed_dims(graph: Graph) -> frozenset[Dim]:
    """The dims that operators of a graph move windows over."""
    moved = (
        graph.type(n.inputs[0]) for n in graph.nodes if n.op in OPS and OPS[n.op].windowed and n.inputs[0] is not None
    )
    return frozenset(d for type in moved if isinstance(type, TensorType) for d in _window_dims(type))


def _window_dims(type: TensorType | None) -> Sequence[Dim]:
    return () if type is None or type.shape is None else type.shape[2:]


def _holds_a_window(dim: Dim, windowed: Collection[Dim]) -> bool:
    """True unless the dim may be 0 at sizes where the original runs: at the smallest, which are 1."""
    if not isinstance(dim, Sym):
        return dim > 0
    try:
        some = dim.evaluate(dict.fromkeys(dim.names(), 1)) > 0
    except ZeroDivisionError:
        some = False
    return some or any(at_least(dim, known) for known in windowed)


def _reshapes_to_nothing(source: TensorType | None, wanted: TensorType | None, opset: int) -> bool:
    """True where a reshape is written so that it runs at every size of the named dims, 0 among them."""
    if source is None or wanted is None or source.shape is None or wanted.shape is None:
        return True
    return runs_at_every_size(source.shape, wanted.shape, opset)


def _may_be_empty(type: TensorType | None) -> bool:
    """True where some dim may be 0, which ONNX Runtime's Attention refuses."""
    return type is not None and type.shape is not None and not all(at_least(d, 1) for d in type.shape)


def has_fused_kernel(op: str, attrs: Attrs, operands: Sequence[TensorType | None]) -> bool:
    """Return whether ONNX Runtime has its own CPU kernel for one of our operators on operands of these types.

    >>> heads = TensorType.of("float32", (1, 2, 3, 4))
    >>> attrs = OPS["attention"].complete({"hidden": "nan"})
    >>> has_fused_kernel("attention", attrs, [heads, heads, heads]), has_fused_kernel("relu", Attrs(), [heads])
    (True, False)
    """
    from eqsat.language.onnx.fused.operators import DOMAIN, FUSED

    if op not in FUSED or not FUSED[op].takes(attrs, operands):
        return False
    return _has_kernel_of(FUSED[op].name, DOMAIN)


@cache
def _has_kernel_of(name: str, domain: str) -> bool:
    if importlib.util.find_spec("onnxruntime") is None:
        return False
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    return any(
        (kernel.op_name, kernel.domain, kernel.provider) == (name, domain, "CPUExecutionProvider")
        for kernel in state.get_all_opkernel_def()
    )


def may_spread_over_nothing(left: TensorType | None, right: TensorType | None) -> bool:
    """True for a product whose left operand is spread over a dim of the right one that may be 0.

    ONNX Runtime 1.31 refuses to (matmul_helper.h: "right operand cannot broadcast"), and runs the mirrored product.
    """
    if left is None or right is None or left.shape is None or right.shape is None or right.rank < 3:
        return False
    batch = right.shape[:-2]
    beside = ((1,) * right.rank + left.shape[:-2])[-len(batch) :]
    return any(a == 1 and at_least(b, 1) is not True for a, b in zip(beside, batch, strict=True))


def has_kernel(name: str, opset: int, operands: Sequence[TensorType | None]) -> bool:
    """True where an operator of ONNX runs on operands of these types, or onnxruntime is not here to be asked.

    >>> [has_kernel("GlobalAveragePool", 17, [TensorType.of(t, (1, 2, 3))]) for t in ("float32", "float64")]
    [True, False]
    """
    if importlib.util.find_spec("onnxruntime") is None:
        return True
    kernels = _kernels(name, opset)
    if kernels is None:
        return True
    names, variants = kernels
    used = {
        place: f"tensor({_NAMES.get(t.dtype, t.dtype.value)})"
        for place, t in zip(_places(names, len(operands)), operands, strict=True)
        if t is not None
    }
    return any(all(used[p] in allowed.get(p, (used[p],)) for p in used) for allowed in variants)


def _places(names: tuple[str, ...], count: int) -> tuple[str, ...]:
    """The type parameter of each operand; those of a variadic operator share the last."""
    return (*names, *names[-1:] * count)[:count] if names else ("",) * count


@cache
def _kernels(name: str, opset: int) -> tuple[tuple[str, ...], tuple[dict[str, tuple[str, ...]], ...]] | None:
    """The type parameters of the operands and the types each kernel takes for them; None where any will do."""
    from onnx import defs
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    try:
        schema = defs.get_schema(name, opset, "")
    except defs.SchemaError:
        return None
    if schema.has_function or schema.has_context_dependent_function:
        return None  # written by its parts where there is no kernel
    since = schema.since_version
    variants = tuple(
        {place: tuple(types) for place, types in kernel.type_constraints.items()}
        for kernel in state.get_all_opkernel_def()
        if (kernel.op_name, kernel.domain, kernel.provider) == (name, "", "CPUExecutionProvider")
        and kernel.version_range[0] <= since <= kernel.version_range[1]
    )
    return tuple(i.type_str for i in schema.inputs), variants
