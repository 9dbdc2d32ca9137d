"""What `help` and the reference say of an operator: its declaration, and shapes that no index form states."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import Parameter, Signature, signature
from types import MappingProxyType

from eqsat.language.declaration.spec import REQUIRED, OpSpec

#: The shapes of operators that are neither element by element nor have an index form.
SHAPES: Mapping[str, str] = MappingProxyType(
    {
        "argmax": "The shape of x with 1 at `axis`, or without that axis where `keepdims` is False; int64.",
        "argmin": "The shape of x with 1 at `axis`, or without that axis where `keepdims` is False; int64.",
        "concat": "Operands of one rank whose dims agree but at `axis`, where the result has their sum.",
        "conv_integer": "As conv: n, c, spatial… and o, c/group, kernel… become n, o, windows…; int32.",
        "depth_to_space": "n, b·b·c, h, w becomes n, c, h·b, w·b for a blocksize of b.",
        "dequantize_linear": "The shape of x; the scale is a scalar, a vector along `axis`, or one a block.",
        "dynamic_quantize_linear": "Three outputs: the shape of x, and two scalars.",
        "einsum": "Letters of `equation` are dims, equal where the letter is; `...` is dims that broadcast.",
        "enlarge": "o, c, spatial… becomes o, c, kernel…, each no smaller and larger by an even number.",
        "expand": "The broadcast of the shape of x and `shape`, by NumPy's rule.",
        "eye": "A matrix of n by n.",
        "fill": "The dims of `shape`.",
        "gather": "The shape of x with the dims of the indices in place of `axis`.",
        "gather_elements": "The shape of the indices, which have the rank of x.",
        "gather_nd": "The dims of the indices but the last, then the dims of x that an index vector does not reach.",
        "grid_sample": "n, c, spatial… and n, places…, rank become n, c, places….",
        "grouped_attention": "batch, length, heads·width; the two caches are batch, shared, positions, width.",
        "gru": "Steps, batch, input becomes steps, directions, batch, hidden; the last state has no steps.",
        "identity_kernel": "channels, channels, kernel….",
        "iota": "A vector of `size` elements.",
        "lp_pool": "n, c, spatial… becomes n, c, windows….",
        "lstm": "Steps, batch, input becomes steps, directions, batch, hidden; the two last states have no steps.",
        "matmul_integer": "As matmul; int32.",
        "matmul_packed": "…, k and weights of n by k packed in blocks become …, n.",
        "one_hot": "The shape of the indices with the depth put in at `axis`.",
        "pad": "Every dim of x with its begin and its end of `pads` added.",
        "pool_kernel": "channels, 1, kernel….",
        "qlinear_conv": "As conv: n, c, spatial… and o, c/group, kernel… become n, o, windows….",
        "qlinear_matmul": "As matmul.",
        "quantize_linear": "The shape of x; the scale is a scalar, a vector along `axis`, or one a block.",
        "reshape": "The dims of `shape`, as many elements as x has.",
        "reverse_sequence": "The shape of x.",
        "rnn": "Steps, batch, input becomes steps, directions, batch, hidden; the last state has no steps.",
        "scatter_elements": "The shape of x; indices and updates have one shape, of the rank of x.",
        "scatter_nd": "The shape of x; updates have the dims of the indices but the last, then those of a slice.",
        "shape": "A vector of as many elements as there are axes from `start` to before `end`.",
        "size": "A scalar.",
        "slice": "The rank of x; along a named axis as many elements as the steps reach.",
        "space_to_depth": "n, c, h·b, w·b becomes n, b·b·c, h, w for a blocksize of b.",
        "split": "One output a size: the shape of x with that size at `axis`; the sizes add up to the dim there.",
        "tile": "Every dim of x times its number of `repeats`.",
        "topk": "Two outputs of the shape of x with k at `axis`: elements, and their indices in int64.",
        "transpose": "Dim i of the result is dim perm[i] of x.",
    }
)


def documentation(declared: OpSpec) -> str:
    """The text of an operator: what it computes, shapes, attributes, what it returns, errors, and its ONNX operator.

    >>> from eqsat.language.ops import spec
    >>> print(documentation(spec("gelu")).splitlines()[2])
    Shapes: operands broadcast by NumPy's rule, and the result has the shape of their broadcast.
    """
    parts = [declared.doc.strip() or f"The operator {declared.name}.", f"Shapes: {_shapes(declared)}"]
    if declared.attrs:
        parts.append(f"Attributes: {_attributes(declared)}.")
    parts.append(
        "Returns a Tensor, or a tuple of them where there are several outputs. Raises ShapeError for operands whose "
        "shapes or element types do not fit, GraphError for an unknown or missing attribute, and where no operand is a "
        "Tensor."
    )
    if declared.onnx is not None:
        parts.append(f"Source: ONNX {declared.onnx}.")
    return "\n\n".join(parts)


def _shapes(declared: OpSpec) -> str:
    if declared.index:
        return f"by the index form `{declared.index}`."
    if declared.pointwise:
        return "operands broadcast by NumPy's rule, and the result has the shape of their broadcast."
    stated = SHAPES.get(declared.name, "those of its shape rule, `infer`.")
    return stated[0].lower() + stated[1:]


def _attributes(declared: OpSpec) -> str:
    """The attributes with their defaults."""
    return ", ".join(
        f"`{name}` (required)" if default is REQUIRED else f"`{name}` ({default!r} where left out)"
        for name, default in declared.attrs.items()
    )


def call_signature(declared: OpSpec) -> Signature:
    """How an operator is called: its operands by position, its attributes by keyword.

    >>> from eqsat.language.ops import spec
    >>> print(call_signature(spec("softmax")))
    (x: 'TensorLike', /, *, axis=-1) -> 'Tensor'
    """
    operands = []
    for one in list(signature(declared.reference).parameters.values())[1:]:
        if one.kind is Parameter.VAR_POSITIONAL:
            operands.append(one.replace(annotation="TensorLike"))
        elif one.kind is not Parameter.KEYWORD_ONLY:
            kind = "TensorLike" if one.default is Parameter.empty else "TensorLike | None"
            operands.append(one.replace(kind=Parameter.POSITIONAL_ONLY, annotation=kind))
    empty = Parameter.empty
    attributes = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=empty if default is REQUIRED else default)
        for name, default in declared.attrs.items()
    ]
    return Signature([*operands, *attributes], return_annotation="Tensor")
