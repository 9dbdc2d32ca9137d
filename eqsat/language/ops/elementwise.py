"""Operators on single elements: arithmetic, comparisons, logic, selection and conversion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from eqsat.errors import ShapeError
from eqsat.language.arithmetic import divergence
from eqsat.language.declaration import InferRule, Operands, OpSpec, op, present, same_dtype, symbolic, unchanged
from eqsat.language.declaration.spec import Reference, broadcast, same_as
from eqsat.language.ops import sampling
from eqsat.language.terms import Array, Attrs, DType, Shape, TensorType, broadcast_shapes


def broadcasts_to(shape: Shape, target: Shape) -> bool:
    """False where a tensor of a shape provably does not broadcast to another shape.

    >>> broadcasts_to((1, 3), (2, 3)), broadcasts_to((2, 3), (1, 3))
    (True, False)
    """
    if len(shape) > len(target):
        return False
    pairs = zip(reversed(shape), reversed(target), strict=False)
    return all(d in (1, t) or not isinstance(d, int) or not isinstance(t, int) for d, t in pairs)


def pointwise(onnx: str, infer: InferRule, **facts: Any) -> Callable[[Reference], OpSpec]:
    """Declare an operator on single elements of broadcast operands."""
    return op(infer=infer, sample=sampling.pointwise, pointwise=True, onnx=onnx, **facts)


def _binary(
    onnx: str, on_dims: Callable[..., Array], *, dtype: str | None = None, **facts: Any
) -> Callable[[Reference], OpSpec]:
    """Declare an operator on two operands, whose results have their element type or one of their own."""
    return pointwise(onnx, broadcast(dtype), on_dims=on_dims, **facts)


@_binary("Add", symbolic.add, commutative=True, instances=({},))
def add(xp: Any, a: Any, b: Any) -> Any:
    """Sum."""
    return xp.add(a, b)


@_binary("Sub", symbolic.subtract, instances=({},))
def sub(xp: Any, a: Any, b: Any) -> Any:
    """Difference."""
    return xp.subtract(a, b)


@_binary("Mul", symbolic.multiply, commutative=True, multilinear=(0, 1), instances=({},))
def mul(xp: Any, a: Any, b: Any) -> Any:
    """Product, element by element."""
    return xp.multiply(a, b)


@_binary(
    "Div",
    symbolic.divide,
    multilinear=(0,),
    partial=True,
    sensitive=True,
    portable=divergence.quotient,
    fails_on_integers=True,
)
def div(xp: Any, a: Any, b: Any) -> Any:
    """Quotient; of integers, truncated toward zero, and then not linear."""
    return xp.divide(a, b)


def _pow_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    base, exponent = present(operands, 0), present(operands, 1)
    if base.shape is None or exponent.shape is None:
        return (base.with_shape(None),)
    return (base.with_shape(broadcast_shapes(base.shape, exponent.shape)),)


@pointwise(
    "Pow",
    _pow_type,
    name="pow",
    partial=True,
    sensitive=True,
    on_dims=symbolic.power,
    portable=divergence.power,
    fails_on_integers=True,
)
def pow_(xp: Any, a: Any, b: Any) -> Any:
    """Power; the exponent may have another element type than the base, whose type the result has."""
    return xp.power(a, b)


@_binary("Mod", symbolic.modulo, partial=True, sensitive=True, portable=divergence.remainder, fails_on_integers=True)
def mod(xp: Any, a: Any, b: Any, *, fmod: bool = False) -> Any:
    """Remainder with the sign of the divisor, or with `fmod` that of the dividend."""
    if xp.exact:
        return xp.subtract(a, xp.multiply(b, xp.apply("trunc" if fmod else "floor", xp.divide(a, b))))
    with np.errstate(all="ignore"):
        return np.fmod(a, b) if fmod else np.mod(a, b)


@_binary("Max", symbolic.maximum, commutative=True)
def maximum(xp: Any, a: Any, b: Any) -> Any:
    """The larger element."""
    return xp.maximum(a, b)


@_binary("Min", symbolic.least_of, commutative=True)
def minimum(xp: Any, a: Any, b: Any) -> Any:
    """The smaller element."""
    return xp.minimum(a, b)


@_binary("Equal", symbolic.equal, dtype="bool", commutative=True, hides_sign=True)
def equal(xp: Any, a: Any, b: Any) -> Any:
    """True where the elements are equal."""
    return xp.equal(a, b)


@_binary("Less", symbolic.less, dtype="bool", hides_sign=True)
def less(xp: Any, a: Any, b: Any) -> Any:
    """True where the left element is smaller."""
    return xp.less(a, b)


@_binary("LessOrEqual", symbolic.less_equal, dtype="bool", hides_sign=True)
def less_equal(xp: Any, a: Any, b: Any) -> Any:
    """True where the left element is smaller or equal."""
    return xp.less_equal(a, b)


@_binary("Greater", symbolic.greater, dtype="bool", hides_sign=True)
def greater(xp: Any, a: Any, b: Any) -> Any:
    """True where the left element is larger."""
    return xp.less(b, a)


@_binary("GreaterOrEqual", symbolic.greater_equal, dtype="bool", hides_sign=True)
def greater_equal(xp: Any, a: Any, b: Any) -> Any:
    """True where the left element is larger or equal."""
    return xp.less_equal(b, a)


def _of_kind(kind: str) -> InferRule:
    """A shape rule: the operands broadcast and must be booleans, or integers."""

    def infer(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
        (result,) = broadcast()(operands, attrs)
        fits = result.dtype is DType.BOOL if kind == "bool" else result.dtype.is_integer
        if not fits:
            names = " and ".join(str(t) for t in operands)
            raise ShapeError(f"operands are {names}", expected="booleans" if kind == "bool" else "integers")
        return (result,)

    return infer


_BOOLEANS = {0: "bool", 1: "bool"}
_INTEGERS = {0: "int32", 1: "int32"}
_logical, _bitwise = _of_kind("bool"), _of_kind("integer")


@pointwise("And", _logical, commutative=True, dtypes=_BOOLEANS, on_dims=symbolic.both)
def and_(xp: Any, a: Any, b: Any) -> Any:
    """Logical and."""
    return xp.where(a, b, a)


@pointwise("Or", _logical, commutative=True, dtypes=_BOOLEANS, on_dims=symbolic.either)
def or_(xp: Any, a: Any, b: Any) -> Any:
    """Logical or."""
    return xp.where(a, a, b)


@pointwise("Xor", _logical, commutative=True, dtypes=_BOOLEANS, on_dims=symbolic.one_of)
def xor(xp: Any, a: Any, b: Any) -> Any:
    """Logical exclusive or."""
    return xp.where(a, xp.where(b, False, True), b)


@pointwise("Not", _logical, dtypes={0: "bool"}, hides_sign=True, on_dims=symbolic.inverse)
def not_(xp: Any, a: Any) -> Any:
    """Logical not."""
    return xp.where(a, False, True)


@pointwise("BitwiseAnd", _bitwise, commutative=True, dtypes=_INTEGERS)
def bitwise_and(xp: Any, a: Any, b: Any) -> Any:
    """And of the bits of integers."""
    return np.bitwise_and(a, b)


@pointwise("BitwiseOr", _bitwise, commutative=True, dtypes=_INTEGERS)
def bitwise_or(xp: Any, a: Any, b: Any) -> Any:
    """Or of the bits of integers."""
    return np.bitwise_or(a, b)


@pointwise("BitwiseXor", _bitwise, commutative=True, dtypes=_INTEGERS)
def bitwise_xor(xp: Any, a: Any, b: Any) -> Any:
    """Exclusive or of the bits of integers."""
    return np.bitwise_xor(a, b)


@pointwise("BitwiseNot", _bitwise, dtypes={0: "int32"})
def bitwise_not(xp: Any, a: Any) -> Any:
    """Complement of the bits of integers."""
    return np.bitwise_not(a)


_SHIFTED = {0: "uint32", 1: "uint32"}


@pointwise("BitShift", _bitwise, dtypes=_SHIFTED, portable=divergence.shift)
def bit_shift(xp: Any, a: Any, b: Any, *, direction: str = "LEFT") -> Any:
    """The bits of integers moved by `b` places to the "LEFT" or "RIGHT"."""
    return np.left_shift(a, b) if direction == "LEFT" else np.right_shift(a, b)


def _where_type(operands: Operands, attrs: Attrs) -> Sequence[TensorType]:
    condition = present(operands, 0)
    if condition.dtype is not DType.BOOL:
        raise ShapeError(f"condition is {condition}", expected="booleans", remedy="cast the condition")
    return broadcast(like=1)(operands, attrs)


@pointwise("Where", _where_type, dtypes={0: "bool"}, on_dims=symbolic.where)
def where(xp: Any, condition: Any, a: Any, b: Any) -> Any:
    """The element of `a` where the condition is true, else that of `b`."""
    return xp.where(condition, a, b)


def _clip_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    given = [t for t in operands if t is not None]
    same_dtype(given)
    for bound in operands[1:]:
        if bound is not None and bound.shape not in (None, (), (1,)):
            raise ShapeError(f"bound {bound} of clip", expected="a scalar", remedy="use maximum and minimum")
    return (present(operands, 0),)


def _clip_sample(rng: Any, known: Any, attrs: Any) -> Any:
    drawn = sampling.pointwise(rng, known[:1], attrs)
    if drawn is None:
        return None
    return [*drawn[0], *(s if s is not None else () for s in known[1:])], attrs


@op(infer=_clip_type, sample=_clip_sample, pointwise=True, clamps=True, onnx="Clip")
def clip(xp: Any, x: Any, low: Any = None, high: Any = None) -> Any:
    """Elements held between two scalars, either of which may be left out; the upper one wins where they cross."""
    if low is not None:
        x = xp.maximum(x, np.reshape(low, ()))
    return x if high is None else xp.minimum(x, np.reshape(high, ()))


def _cast_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    x, to = present(operands, 0), DType.of(attrs["to"])
    if (x.dtype is DType.STRING) != (to is DType.STRING):
        raise ShapeError(f"cast of {x} to {to.value}", expected="numbers or booleans on both sides")
    return (TensorType(to, x.shape),)


@op(
    infer=_cast_type,
    sample=sampling.one_operand(0, to=sampling.choice("float32", "float64")),
    pointwise=True,
    partial=True,
    onnx="Cast",
    on_dims=symbolic.cast,
    unchanged=unchanged.same_type,
    portable=divergence.conversion,
    hands_on=True,
)
def cast(xp: Any, x: Any, *, to: str) -> Any:
    """Conversion to the element type named; to an integer, truncated toward zero."""
    return xp.cast(x, DType.of(to))


@pointwise(
    "Identity",
    same_as(),
    multilinear=(0,),
    view=True,
    total="all",
    on_dims=symbolic.same,
    unchanged=unchanged.always,
    hands_on=True,
    strided=True,
)
def identity(xp: Any, x: Any) -> Any:
    """The operand itself."""
    return x
