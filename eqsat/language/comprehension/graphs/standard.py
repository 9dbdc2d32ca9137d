"""Standard operators as functions of comprehensions, for those that go into one with a function of a user's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
        "silu": "{0} / (1 + exp(-({alpha!r} * {0})))",
        "leaky_relu": "{0} < 0 ? {alpha!r} * {0} : {0}",
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
#: How elements are put together along axes, and what of each.
_REDUCED = MappingProxyType(
    {
        "reduce_sum": ("+=!", "{}"),
        "reduce_mean": ("+=!", "{}"),
        "reduce_max": ("max=!", "{}"),
        "reduce_min": ("min=!", "{}"),
        "reduce_l1": ("+=!", "fabs({})"),
        "reduce_sum_square": ("+=!", "{0} * {0}"),
    }
)


def function_of_node(node: Node, operands: Sequence[ValueType | None], result: ValueType) -> TensorFunction | None:
    """A standard operator on operands of these types as a function; None of one that is not written as such.

    These are functions and operations of single floats, sums and extremes over axes, softmax and norms of rows.
    """
    types = [one for one in (*operands, result) if isinstance(one, TensorType) and one.shape is not None]
    floats = {one.dtype for one in types}
    if len(types) < len(operands) + 1 or len(floats) != 1 or not next(iter(floats)).is_float:
        return None
    shapes = [one.dims for one in types]
    if node.op in _UNARY or node.op in _BINARY:
        text = _pointwise(node, shapes[:-1], shapes[-1], next(iter(floats)))
    elif node.op in _REDUCED and shapes[0]:
        text = _reduction(node, len(shapes[0]), next(iter(floats)))
    elif node.op in _ALONG_ROWS and shapes[0]:
        text = _ALONG_ROWS[node.op](node, shapes, next(iter(floats)))
    else:
        return None
    return None if text is None else _function(text)


@cache
def _function(text: str) -> TensorFunction:
    (function,) = parse(text)
    return TensorFunction(resolve(function, text))


def _pointwise(node: Node, operands: Sequence[Sequence[Dim]], result: Sequence[Dim], dtype: DType) -> str | None:
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
    value = (_UNARY.get(node.op) or _BINARY[node.op]).format(*read, **node.attrs)
    # Every axis of the result is that of an operand, if not one of one element.
    return f"def {node.op}({', '.join(given)}) -> (y) {{ y{_listed([f'i{k}' for k in range(rank)])} = {value} }}"


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
    sign, part = _REDUCED[node.op]
    return (
        f"def {node.op}({NAME_OF[dtype]}{extents} x) -> (y) {{ y{_listed(kept)} {sign} {part.format(value)}{where} }}"
    )


def _softmax(node: Node, shapes: Sequence[Sequence[Dim]], dtype: DType) -> str | None:
    rank, axis = len(shapes[0]), node.attrs["axis"] % len(shapes[0])
    if rank < 2:
        return None
    indices = [f"i{place}" for place in range(rank)]
    row, all_ = _listed([one for place, one in enumerate(indices) if place != axis]), _listed(indices)
    extents = _listed([f"D{place}" for place in range(rank)])
    shares = {"softmax": f"e{all_} / t{row}", "log_softmax": f"x{all_} - m{row} - log(t{row})"}
    return (
        f"def {node.op}({NAME_OF[dtype]}{extents} x) -> (y) {{ m{row} max=! x{all_}  e{all_} = exp(x{all_} - m{row})"
        f"  t{row} +=! e{all_}  y{all_} = {shares[node.op]} }}"
    )


def _normalisation(node: Node, shapes: Sequence[Sequence[Dim]], dtype: DType) -> str | None:
    """Rows of the axes from one on, less their mean where that is taken away, over their deviation, then scaled."""
    rank, first = len(shapes[0]), node.attrs["axis"] % len(shapes[0])
    if not first:
        return None
    indices, sizes = [f"i{place}" for place in range(rank)], [f"D{place}" for place in range(rank)]
    row, all_, last = _listed(indices[:first]), _listed(indices), _listed(indices[first:])
    count, type_ = " * ".join(sizes[first:]), NAME_OF[dtype]
    given = [f"{type_}{_listed(sizes)} x", *(f"{type_}{_listed(sizes[first:])} c{k}" for k in range(len(shapes) - 2))]
    x, mean = f"x{all_}", ""
    if node.op == "layer_norm":
        x, mean = f"(x{all_} - m{row})", f"m{row} +=! x{all_} / ({count})  "
    bias = f" + c1{last}" if len(given) > 2 else ""
    return (
        f"def {node.op}({', '.join(given)}) -> (y) {{ {mean}v{row} +=! {x} * {x} / ({count})"
        f"  d{row} = sqrt(v{row} + {node.attrs['epsilon']!r})  y{all_} = {x} / d{row} * c0{last}{bias} }}"
    )


#: The texts of operators along rows, by their shapes.
_ALONG_ROWS: Mapping[str, Callable[[Node, Sequence[Sequence[Dim]], DType], str | None]] = MappingProxyType(
    {"softmax": _softmax, "log_softmax": _softmax, "layer_norm": _normalisation, "rms_norm": _normalisation}
)
#: The operators along axes.
REDUCING = frozenset({*_REDUCED, *_ALONG_ROWS})


def _listed(items: Sequence[str]) -> str:
    return f"({', '.join(items)})" if items else ""
