"""Functions on tensors of a graph under construction: every operator by its name, and friendlier forms of some."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from eqsat.errors import GraphError, ShapeError
from eqsat.language.declaration import normal_axis
from eqsat.language.declaration.documentation import call_signature, documentation
from eqsat.language.graphs.builder import DimLike, Tensor, TensorLike
from eqsat.language.ops import OPS, spec
from eqsat.language.terms import Dim, floordiv, product


@cache
def operator(name: str) -> Callable[..., Any]:
    """The function that applies an operator to tensors, at least one of which names the graph.

    Operands come by position, attributes by keyword. GraphError for a name that is no operator.

    >>> import eqsat
    >>> eqsat.operator("softmax")(eqsat.Graph().input("x", (2, 3)), axis=-1)
    Tensor('softmax_0', float32[2, 3])
    """
    declared = spec(name)

    def function(*operands: TensorLike | None, **attrs: Any) -> Any:
        first = next((o for o in operands if isinstance(o, Tensor)), None)
        if first is None:
            raise GraphError(
                f"{name} of no tensor", expected="a tensor among the operands", remedy=f"use graph.apply({name!r}, …)"
            )
        return first.graph.apply(name, *operands, **attrs)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = documentation(declared)
    function.__signature__ = call_signature(declared)  # type: ignore[attr-defined]
    return function


def __getattr__(name: str) -> Callable[..., Any]:
    """Operators without a form of their own here, users' operators included."""
    if name in OPS:
        return operator(name)
    raise AttributeError(f"module {__name__!r} has no function {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *OPS})


def concat(tensors: Sequence[TensorLike], axis: int = 0) -> Tensor:
    """Tensors one after the other along an axis (ONNX Concat).

    Shapes: of one rank, dims that agree but at `axis`, where the result has their sum. ShapeError where they do not
    fit, GraphError where none is a Tensor.
    """
    joined: Tensor = operator("concat")(*tensors, axis=axis)
    return joined


def stack(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Tensors of one shape along a new axis, of which the result has one dim more, as many as there are tensors.

    ShapeError where the shapes differ or there is no such axis.
    """
    return concat([unsqueeze(t, axis) for t in tensors], axis)


def split(x: Tensor, parts: int | Sequence[Dim], axis: int = 0) -> tuple[Tensor, ...]:
    """A tensor cut along an axis into so many equal parts, or into parts of the sizes given (ONNX Split).

    Returns a tuple of tensors of the shape of x but at `axis`. ShapeError where the parts do not make up the dim.
    """
    axis = normal_axis(axis, x.rank)
    if isinstance(parts, int):
        size = x.shape[axis]
        if isinstance(size, int) and (parts < 1 or size % parts):
            raise ShapeError(f"{x!r} cannot be split into {parts} equal parts along axis {axis}", where=x.graph.name)
        sizes: tuple[Dim, ...] = (floordiv(size, parts),) * parts
    else:
        sizes = tuple(parts)
    pieces = x.graph.apply("split", x, axis=axis, sizes=sizes)
    return pieces if isinstance(pieces, tuple) else (pieces,)


def transpose(x: Tensor, perm: Sequence[int] = ()) -> Tensor:
    """The axes in another order, reversed where none is given (ONNX Transpose).

    Dim i of the result is dim perm[i] of x. ShapeError where `perm` does not name every axis once.
    """
    return x.transpose(*perm)


def reshape(x: Tensor, shape: Sequence[DimLike]) -> Tensor:
    """The elements in row-major order under another shape; one dim may be -1, which stands for what is left.

    Source: ONNX Reshape. ShapeError where the numbers of elements differ, or what is left is not known.
    """
    return x.reshape(*shape)


def squeeze(x: Tensor, axes: int | Sequence[int] | None = None) -> Tensor:
    """The tensor without axes of size 1: those named, or all that are known to be (ONNX Squeeze).

    ShapeError for an axis that is known to be of another size, or is none.
    """
    chosen = [i for i, d in enumerate(x.shape) if d == 1] if axes is None else _axes(axes, x.rank)
    wide = [i for i in chosen if isinstance(x.shape[i], int) and x.shape[i] != 1]
    if wide:
        raise ShapeError(f"squeeze of axis {wide[0]} of {x!r}", where=x.graph.name, expected="axes of size 1")
    return x.reshape(*(d for i, d in enumerate(x.shape) if i not in chosen))


def unsqueeze(x: Tensor, axes: int | Sequence[int]) -> Tensor:
    """The tensor with axes of size 1 put in, named by where they stand in the result (ONNX Unsqueeze).

    ShapeError for an axis that the result has not.
    """
    count = 1 if isinstance(axes, int) else len(axes)
    chosen = _axes(axes, x.rank + count)
    dims = iter(x.shape)
    return x.reshape(*(1 if i in chosen else next(dims) for i in range(x.rank + count)))


def flatten(x: Tensor, axis: int = 1) -> Tensor:
    """A matrix of the elements: the dims before the axis as rows, the rest as columns (ONNX Flatten).

    ShapeError for an axis that is not from -rank to rank.
    """
    if not -x.rank <= axis <= x.rank:
        raise ShapeError(f"flatten of {x!r} at axis {axis}", where=x.graph.name, expected=f"0 to {x.rank}")
    at = axis + x.rank if axis < 0 else axis
    return x.reshape(product(x.shape[:at]), product(x.shape[at:]))


def einsum(equation: str, *operands: TensorLike) -> Tensor:
    """The sum of products that index notation states, such as "ij,jk->ik" (ONNX Einsum).

    Letters are dims, equal where the letter is. ShapeError where operands do not fit the equation, GraphError where
    none is a Tensor.
    """
    total: Tensor = operator("einsum")(*operands, equation=equation)
    return total


def conv(
    x: Tensor,
    w: TensorLike,
    b: TensorLike | None = None,
    *,
    strides: int | Sequence[int] = 1,
    pads: int | Sequence[int] = 0,
    dilations: int | Sequence[int] = 1,
    group: int = 1,
) -> Tensor:
    """The convolution of N,C,spatial… with filters O,C/group,spatial… and a bias O: N,O,spatial… (ONNX Conv).

    A single number counts for every spatial dim; `pads` in full are all begins, then all ends. Strides, pads and
    dilations count elements. ShapeError where shapes do not fit.
    """
    spatial = max(x.rank - 2, 0)
    operands = (x, w) if b is None else (x, w, b)
    result: Tensor = x.graph.apply(
        "conv",
        *operands,
        strides=_each(strides, spatial),
        pads=_each(pads, 2 * spatial),
        dilations=_each(dilations, spatial),
        group=group,
    )
    return result


def max_pool(
    x: Tensor, kernel: int | Sequence[int], *, strides: int | Sequence[int] = 1, pads: int | Sequence[int] = 0
) -> Tensor:
    """The maximum of every window of N,C,spatial…, where padding never counts (ONNX MaxPool).

    The result has the shape N,C,windows…. A single number counts for every spatial dim. ShapeError where shapes do not
    fit.
    """
    return _pool("max_pool", x, kernel, strides, pads)


def avg_pool(
    x: Tensor,
    kernel: int | Sequence[int],
    *,
    strides: int | Sequence[int] = 1,
    pads: int | Sequence[int] = 0,
    count_include_pad: bool = False,
) -> Tensor:
    """The mean of every window of N,C,spatial… (ONNX AveragePool).

    The result has the shape N,C,windows…. `count_include_pad` counts padding as zeros. A single number counts for every
    spatial dim. ShapeError where shapes do not fit.
    """
    return _pool("avg_pool", x, kernel, strides, pads, count_include_pad=count_include_pad)


def _pool(op: str, x: Tensor, kernel: Any, strides: Any, pads: Any, **more: Any) -> Tensor:
    spatial = max(x.rank - 2, 0)
    result: Tensor = x.graph.apply(
        op,
        x,
        kernel=_each(kernel, spatial),
        strides=_each(strides, spatial),
        pads=_each(pads, 2 * spatial),
        dilations=(1,) * spatial,
        **more,
    )
    return result


def _reduction(op: str) -> Callable[..., Tensor]:
    def function(x: Tensor, axes: int | Sequence[int] | None = None, *, keepdims: bool = False) -> Tensor:
        chosen = range(x.rank) if axes is None else _axes(axes, x.rank)
        reduced: Tensor = x.graph.apply(op, x, axes=tuple(sorted(chosen)), keepdims=keepdims)
        return reduced

    function.__name__ = function.__qualname__ = op
    function.__doc__ = (
        f"{spec(op).doc}\n\nReturns a tensor of the shape of x without the axes named, all of them where none is, or "
        f"with 1 in their place where `keepdims`. ShapeError for an axis that x has not. Source: ONNX {spec(op).onnx}."
    )
    return function


reduce_sum = _reduction("reduce_sum")
reduce_mean = _reduction("reduce_mean")
reduce_max = _reduction("reduce_max")
reduce_min = _reduction("reduce_min")
reduce_prod = _reduction("reduce_prod")


def sliced(x: Tensor, index: Sequence[Any]) -> Tensor:
    """The tensor that ``x[index]`` stands for: integers, slices, ``...`` and None, as in NumPy (ONNX Slice).

    An integer takes its axis away, None puts one of size 1 in. ShapeError for more indices than axes, an index out of
    range, or anything else as an index.
    """
    return x[tuple(index)]


def _axes(axes: int | Sequence[int], rank: int) -> list[int]:
    return [normal_axis(a, rank) for a in ([axes] if isinstance(axes, int) else axes)]


def _each(value: int | Sequence[int], count: int) -> tuple[int, ...]:
    return (value,) * count if isinstance(value, int) else tuple(value)
