"""Library calls as operators: the substitute for a library that is missing or refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from eqsat.language.terms import Attrs, Constant, DType, Node, TensorType
from eqsat.runtime.cuda.libraries.calls import Attention, Call, Convolution, Matmul, Normalisation
from eqsat.runtime.kernels.expressions.expression import NARROW
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.source import KernelSource
from eqsat.runtime.kernels.templates.codegen import generate
from eqsat.runtime.kernels.view import View


def group_of(call: Call) -> Group:
    """The operators that compute the result of a call: floats of 16 bits or less are held so, and computed in
    float32, and integers of 8 bits in int32."""
    chain = _Chain()
    if isinstance(call, Matmul):
        made = chain.node("matmul", [chain.operand("a", call.a), chain.operand("b", call.b)], call.result)
        if call.alpha != 1.0:
            made = chain.node("mul", [made, chain.number("alpha", call.alpha, call.result)], call.result)
        made = _ended(chain, made, call)
    elif isinstance(call, Convolution):
        operands = [chain.operand("x", call.x), chain.operand("w", call.w)]
        operands += [chain.operand("bias", call.bias)] if call.bias is not None else []
        made = chain.node(
            "conv",
            operands,
            call.result,
            strides=call.strides,
            pads=call.pads,
            dilations=call.dilations,
            group=call.groups,
            activation="relu" if call.relu and call.addend is None else "none",
        )
        if call.addend is not None:
            made = _added(chain, made, call, call.addend)
    elif isinstance(call, Attention):
        made = _attention(chain, call)
    else:
        made = _normalisation(chain, call)
    return chain.group(made, call.result)


def source_of(call: Call) -> tuple[KernelSource, tuple[View, ...]] | None:
    """The generated kernel that computes the result of a call, with the views it takes; None where there is none."""
    group = group_of(call)
    source = generate(group)
    if source is None or any(name in group.constants for name in source.arguments):
        return None
    views = {**group.operands, **group.results}
    return source, tuple(views[name] for name in source.arguments)


def parted(call: Call) -> tuple[Call, KernelSource, tuple[View, ...]] | None:
    """Split a call into one for a library and a generated kernel for the rest, with the views that it takes.

    For a product with an epilogue, and a convolution to which a tensor is added or whose result is cut at 0: cuDNN has
    no engine for one that is cut, without a bias, with its channels first. None for other calls, and for results of 8
    bits, which cannot hold a product before its epilogue. The kernel reads and writes the result.
    """
    chain, first = _Chain(), call
    if isinstance(call, Matmul) and call.epilogue and call.result.dtype.itemsize > 1:
        first = replace(call, bias=None, epilogue="")
        made = _ended(chain, chain.operand("made", call.result), call)
    elif isinstance(call, Convolution) and call.addend is not None:
        first = replace(call, addend=None, relu=False)
        made = _added(chain, chain.operand("made", call.result), call, call.addend)
    elif isinstance(call, Convolution) and call.relu:
        first = replace(call, relu=False)
        made = chain.node("relu", [chain.operand("made", call.result)], call.result)
    else:
        return None
    group = chain.group(made, call.result)
    source = generate(group)
    if source is None:
        return None
    # Every element is read where it is written, which this would deny.
    source = replace(source, code=source.code.replace(" __restrict__", ""))
    views = {**group.operands, **group.results}
    return first, source, tuple(views[name] for name in source.arguments)


def _ended(chain: _Chain, made: str, call: Matmul) -> str:
    """The bias and the function that follow a product."""
    if call.bias is not None:
        made = chain.node("add", [made, chain.operand("bias", call.bias)], call.result)
    if call.epilogue.startswith("relu"):
        return chain.node("relu", [made], call.result)
    if call.epilogue.startswith("gelu"):
        return chain.node("gelu", [made], call.result, approximate="tanh")
    return made


def _added(chain: _Chain, made: str, call: Convolution, addend: View) -> str:
    made = chain.node("add", [made, chain.operand("addend", addend)], call.result)
    return chain.node("relu", [made], call.result) if call.relu else made


def _attention(chain: _Chain, call: Attention) -> str:
    operands = [chain.operand("q", call.q), chain.operand("k", call.k), chain.operand("v", call.v)]
    operands += [chain.operand("mask", call.mask)] if call.mask is not None else []
    return chain.node("attention", operands, call.result, scale=call.scale, causal=call.causal)


def _normalisation(chain: _Chain, call: Normalisation) -> str:
    operands = [chain.operand("x", call.x), chain.operand("scale", call.scale)]
    operands += [chain.operand("bias", call.bias)] if call.bias is not None else []
    op = "rms_norm" if call.bias is None else "layer_norm"
    return chain.node(op, operands, call.result, axis=-1, epsilon=call.epsilon)


class _Chain:
    """Operators one after the other, over operands that lie in memory."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.types: dict[str, TensorType] = {}
        self.operands: dict[str, View] = {}
        self.constants: dict[str, Constant] = {}

    def operand(self, name: str, view: View) -> str:
        self.types[name] = _computed(view)
        self.operands[name] = view
        return name

    def node(self, op: str, inputs: list[str], like: View, **attrs: object) -> str:
        made = f"t{len(self.nodes)}"
        self.types[made] = _computed(like)
        self.nodes.append(Node(op, tuple(inputs), (made,), Attrs(attrs)))
        return made

    def number(self, name: str, value: float, like: View) -> str:
        """A number as a constant of the element type that `like` is computed in, which goes into the source."""
        dtype = _computed(like).dtype
        self.constants[name] = Constant.of(np.asarray(value, dtype.numpy))
        return self.operand(name, View.of(name, dtype, ()))

    def group(self, made: str, view: View) -> Group:
        return Group(tuple(self.nodes), self.types, self.operands, {made: view}, self.constants)


def _computed(view: View) -> TensorType:
    """The type that a call computes the elements of a view in."""
    dtype = DType.FLOAT32 if view.dtype in NARROW else DType.INT32 if view.dtype is DType.INT8 else view.dtype
    return TensorType(dtype, view.shape)
