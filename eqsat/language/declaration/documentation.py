"""The text of an operator in `help` and in the reference, made from its declaration."""

from __future__ import annotations

from inspect import Parameter, Signature, signature

from eqsat.language.declaration.spec import REQUIRED, OpSpec


def documentation(declared: OpSpec) -> str:
    """The text of an operator: its computation, shapes, attributes, results, errors, and its ONNX operator.

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
    stated = declared.shapes or "those of its shape rule, `infer`."
    return stated[0].lower() + stated[1:]


def _attributes(declared: OpSpec) -> str:
    """The attributes with their defaults."""
    return ", ".join(
        f"`{name}` (required)" if default is REQUIRED else f"`{name}` ({default!r} where left out)"
        for name, default in declared.attrs.items()
    )


def call_signature(declared: OpSpec) -> Signature:
    """The signature of an operator's calls: its operands by position, its attributes by keyword.

    >>> from eqsat.language.ops import spec
    >>> print(call_signature(spec("softmax")))
    (x: 'TensorLike', /, *, axis=-1) -> 'Tensor'
    """
    operands = []
    for one in list(signature(declared.reference).parameters.values())[1:]:
        if one.kind is Parameter.VAR_POSITIONAL:
            operands.append(one.replace(annotation="TensorLike"))
        elif one.kind not in (Parameter.KEYWORD_ONLY, Parameter.VAR_KEYWORD):
            kind = "TensorLike" if one.default is Parameter.empty else "TensorLike | None"
            operands.append(one.replace(kind=Parameter.POSITIONAL_ONLY, annotation=kind))
    empty = Parameter.empty
    attributes = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=empty if default is REQUIRED else default)
        for name, default in declared.attrs.items()
    ]
    return Signature([*operands, *attributes], return_annotation="Tensor")
