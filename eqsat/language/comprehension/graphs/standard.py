"""Standard operators as functions of comprehensions, for those that go into one with a function of a user's."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from types import MappingProxyType

from eqsat.language.comprehension.functions import TensorFunction
from eqsat.language.comprehension.meaning.element_types import NAME_OF
from eqsat.language.comprehension.meaning.resolver import resolve
from eqsat.language.comprehension.text.parser import parse
from eqsat.language.terms import Dim, DType, Node, TensorType, ValueType

_UNARY = MappingProxyType(
    {
        "neg": "-{}",
        "abs": "fabs({})",
        "relu": "max({}, 0)",
        "sigmoid": "1 / (1 + exp(-{}))",
        "reciprocal": "1 / {}",
        **{name: f"{name}({{}})" for name in "ceil cos erf exp floor log sin sqrt tanh".split()},  # noqa: SIM905
    }
)
_BINARY = MappingProxyType(
    {
        "add": "{} + {}",
        "sub": "{} - {}",
        "mul": "{} * {}",
        "div": "{} / {}",
        "maximum": "max({}, {})",
        "minimum": "min({}, {})",
    }
)
_REDUCED = MappingProxyType({"reduce_sum": "+=!", "reduce_mean": "+=!", "reduce_max": "max=!", "reduce_min": "min=!"})


def function_of_node(node: Node, operands: Sequence[ValueType | None], result: ValueType) -> TensorFunction | None:
    """A standard operator on operands of these types as a function; None of one that is not written as such.

    These are functions and operations of single floats, sums and extremes over axes, and softmax.
    """
    types = [one for one in (*operands, result) if isinstance(one, TensorType) and one.shape is not None]
    floats = {one.dtype for one in types}
    if len(types) < len(operands) + 1 or len(floats) != 1 or not next(iter(floats)).is_float:
        return None
    shapes = [one.dims for one in types]
    if node.op in _UNARY or node.op in _BINARY:
        text = _pointwise(node.op, shapes[:-1], shapes[-1], next(iter(floats)))
    elif node.op in _REDUCED and shapes[0]:
        text = _reduction(node, len(shapes[0]), next(iter(floats)))
    elif node.op == "softmax":
        text = _softmax(node.attrs["axis"] % len(shapes[0]), len(shapes[0]), next(iter(floats)))
    else:
        return None
    return None if text is None else _function(text)


@cache
def _function(text: str) -> TensorFunction:
    (function,) = parse(text)
    return TensorFunction(resolve(function, text))


def _pointwise(op: str, operands: Sequence[Sequence[Dim]], result: Sequence[Dim], dtype: DType) -> str | None:
    """An operator on single elements; an axis of one element is read at 0 where the result has more."""
    rank, given, read = len(result), [], []
    for number, dims in enumerate(operands):
        extents, places = [], []
        for axis, dim in enumerate(dims, rank - len(dims)):
            spread = dim == 1 and result[axis] != 1
            if not spread and dim != result[axis]:
                return None
            extents.append("1" if spread else f"D{axis}")
            places.append("0" if spread else f"i{axis}")
        name = f"x{number}"
        given.append(f"{NAME_OF[dtype]}{_listed(extents)} {name}")
        read.append(name + _listed(places))
    value = (_UNARY.get(op) or _BINARY[op]).format(*read)
    # Every axis of the result is that of an operand, if not one of one element.
    return f"def {op}({', '.join(given)}) -> (y) {{ y{_listed([f'i{k}' for k in range(rank)])} = {value} }}"


def _reduction(node: Node, rank: int, dtype: DType) -> str | None:
    axes = {axis % rank for axis in node.attrs["axes"]}
    keeps = node.attrs["keepdims"]
    if not axes or rank == len(axes):
        return None
    indices = [f"i{axis}" for axis in range(rank)]
    kept = [f"k{axis}" if axis in axes else index for axis, index in enumerate(indices) if keeps or axis not in axes]
    clauses = ", ".join(f"k{axis} in 0:1" for axis in sorted(axes)) if keeps else ""
    count = " / (" + " * ".join(f"D{axis}" for axis in sorted(axes)) + ")" if node.op == "reduce_mean" else ""
    extents = _listed([f"D{axis}" for axis in range(rank)])
    where = f" where {clauses}" if clauses else ""
    value = f"x{_listed(indices)}{count}"
    return (
        f"def {node.op}({NAME_OF[dtype]}{extents} x) -> (y) {{ y{_listed(kept)} {_REDUCED[node.op]} {value}{where} }}"
    )


def _softmax(axis: int, rank: int, dtype: DType) -> str | None:
    if rank < 2:
        return None
    indices = [f"i{place}" for place in range(rank)]
    row, all_ = _listed([one for place, one in enumerate(indices) if place != axis]), _listed(indices)
    extents = _listed([f"D{place}" for place in range(rank)])
    return (
        f"def softmax({NAME_OF[dtype]}{extents} x) -> (y) {{ m{row} max=! x{all_}  e{all_} = exp(x{all_} - m{row})"
        f"  t{row} +=! e{all_}  y{all_} = e{all_} / t{row} }}"
    )


def _listed(items: Sequence[str]) -> str:
    return f"({', '.join(items)})" if items else ""
