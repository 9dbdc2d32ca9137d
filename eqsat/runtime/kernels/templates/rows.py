"""Kernels along rows that make as many elements as they read: softmax and its kin, and normalisations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from eqsat.language.terms import DType, Node
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, Coords, broadcast
from eqsat.runtime.kernels.expressions.expression import Expr, number
from eqsat.runtime.kernels.expressions.operations import FUNCTIONS
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.packs import PackedBody, generated
from eqsat.runtime.kernels.source import KernelSource
from eqsat.runtime.kernels.templates.reduction import extreme_place, joined
from eqsat.runtime.kernels.templates.sweep import RowKernel

_add, _subtract, _multiply = FUNCTIONS["add"], FUNCTIONS["subtract"], FUNCTIONS["multiply"]
_exp, _log, _sqrt, _abs = FUNCTIONS["exp"], FUNCTIONS["log"], FUNCTIONS["sqrt"], FUNCTIONS["abs"]


def generate(group: Group) -> KernelSource | None:
    """One kernel of such an operator with the operators before and after it; None for other groups.

    A value element by element with the operand may be a result as well: a residual sum beside its norm.
    """
    core = next((node for node in group.nodes if node.op in _KINDS), None)
    if core is None or not group.types[str(core.inputs[0])].dtype.is_float:
        return None
    return generated(group, core, _KINDS[core.op])


def _axis(group: Group, node: Node) -> int:
    axis: int = node.attrs["axis"]
    return axis % group.types[str(node.inputs[0])].rank


def _top(kernel: RowKernel) -> Expr:
    return joined(kernel, "Greatest", kernel.dtype, "top", kernel.element)


# ---- softmax and its kin --------------------------------------------------------------------------------------------


def _softmax(group: Group, core: Node) -> KernelSource:
    """Exponentials are kept where the elements were: the last sweep reads no others."""
    kernel = RowKernel(group, core, (_axis(group, core),))
    top = _top(kernel)

    def weight(body: PackedBody, coords: Coords) -> Expr:
        exponential = body.named(_exp(_subtract(kernel.element(body, coords), top)), "weight")
        kernel.replace(body, exponential)
        return exponential

    total = joined(kernel, "Sum", kernel.dtype, "total", weight)
    kernel.is_replaced = kernel.held
    share = kernel.constant(Expr(kernel.dtype, "(1 / {0})", (total,)), "share")

    def result(body: PackedBody, coords: Coords) -> Expr:
        return _multiply(kernel.element(body, coords) if kernel.held else weight(body, coords), share)

    kernel.last(result)
    return kernel.source()


def _log_softmax(group: Group, core: Node) -> KernelSource:
    kernel = RowKernel(group, core, (_axis(group, core),))
    top = _top(kernel)
    total = joined(kernel, "Sum", kernel.dtype, "total", lambda b, c: _exp(_subtract(kernel.element(b, c), top)))
    shift = kernel.constant(_log(total), "shift")
    kernel.last(lambda b, c: _subtract(_subtract(kernel.element(b, c), top), shift))
    return kernel.source()


def _hardmax(group: Group, core: Node) -> KernelSource:
    axis = _axis(group, core)
    kernel = RowKernel(group, core, (axis,), sweeps=1)
    extreme = extreme_place(kernel, axis, "Extreme<false, false>")

    def result(body: PackedBody, coords: Coords) -> Expr:
        here = Expr(DType.BOOL, f"({body.writer.index(coords[axis])} == {extreme}.index)")
        return Expr(kernel.dtype, "({0} ? {1} : {2})", (here, number(1, kernel.dtype), number(0, kernel.dtype)))

    kernel.last(result)
    return kernel.source()


def _lp_norm(group: Group, core: Node) -> KernelSource:
    kernel = RowKernel(group, core, (_axis(group, core),), sweeps=2)
    power = _abs if core.attrs["p"] == 1 else _of_itself
    total = joined(kernel, "Sum", kernel.dtype, "total", lambda b, c: power(kernel.element(b, c)))
    norm = kernel.constant(total if core.attrs["p"] == 1 else _sqrt(total), "norm")
    kernel.last(lambda b, c: Expr(kernel.dtype, "({0} == 0 ? {0} : {1} / {0})", (norm, kernel.element(b, c))))
    return kernel.source()


def _of_itself(x: Expr) -> Expr:
    return _multiply(x, x)


# ---- normalisations -------------------------------------------------------------------------------------------------

#: The factor of an element's row, made of the mean of squares, by its name in C.
_Factor = Callable[[RowKernel, Expr], Expr]


def _inverse_root(epsilon: float) -> _Factor:
    def factor(kernel: RowKernel, variance: Expr) -> Expr:
        root = "rsqrtf({0})" if kernel.dtype is DType.FLOAT32 else "rsqrt({0})"
        return Expr(kernel.dtype, root, (_add(variance, number(epsilon, kernel.dtype)),))

    return factor


def _inverse_deviation(kernel: RowKernel, variance: Expr) -> Expr:
    return Expr(kernel.dtype, "(1 / {0})", (_add(_sqrt(variance), number(1e-9, kernel.dtype)),))


def _normalised(
    kernel: RowKernel,
    factor: _Factor,
    affine: Callable[[PackedBody, Coords, Expr], Expr] = lambda body, coords, x: x,
    *,
    centred: bool = True,
) -> KernelSource:
    """Elements less their mean, times a factor: the variance is computed in a second pass, so as not to cancel."""
    count = number(max(kernel.rows.size, 1), kernel.dtype)
    mean: Expr | None = None
    if centred:
        total = joined(kernel, "Sum", kernel.dtype, "total", kernel.element)
        mean = kernel.constant(FUNCTIONS["divide"](total, count), "mean")

    def element(body: PackedBody, coords: Coords) -> Expr:
        x = kernel.element(body, coords)
        return x if mean is None else body.named(_subtract(x, mean), "centred")

    squares = joined(kernel, "Sum", kernel.dtype, "squares", lambda b, c: _of_itself(element(b, c)))
    scale = kernel.constant(factor(kernel, FUNCTIONS["divide"](squares, count)), "factor")
    kernel.last(lambda b, c: affine(b, c, _multiply(element(b, c), scale)))
    return kernel.source()


def _trailing(group: Group, core: Node, *, centred: bool) -> KernelSource:
    axes = tuple(range(_axis(group, core), group.types[str(core.inputs[0])].rank))
    kernel = RowKernel(group, core, axes, sweeps=3 if centred else 2)

    def affine(body: PackedBody, coords: Coords, x: Expr) -> Expr:
        return _scaled(body, core, x, lambda shape: broadcast(coords, shape))

    return _normalised(kernel, _inverse_root(core.attrs["epsilon"]), affine, centred=centred)


def _scaled(body: PackedBody, core: Node, x: Expr, at: Callable[[Sequence[int]], Coords]) -> Expr:
    """Multiply by the second operand, and add the third where there is one."""
    scale, bias = (*core.inputs[1:], None)[:2]
    if scale is not None:
        x = _multiply(x, body.value(scale, at(body.shape(scale))))
    return x if bias is None else _add(x, body.value(bias, at(body.shape(bias))))


def _by_channel(core: Node) -> Callable[[PackedBody, Coords, Expr], Expr]:
    return lambda body, coords, x: _scaled(body, core, x, lambda shape: coords[1:2])


def _instance_norm(group: Group, core: Node) -> KernelSource:
    rank = group.types[str(core.inputs[0])].rank
    kernel = RowKernel(group, core, tuple(range(2, rank)))
    return _normalised(kernel, _inverse_root(core.attrs["epsilon"]), _by_channel(core))


def _group_norm(group: Group, core: Node) -> KernelSource:
    """Rows are the channels of a group with their planes: x is seen with its channels as two axes."""
    batch, channels, *plane = group.types[str(core.inputs[0])].static
    groups = core.attrs["groups"]
    each = channels // groups if groups else 0

    def seen(coords: Coords) -> Coords:
        return (coords[0], coords[1] * each + coords[2], *coords[3:])

    shape = (batch, groups, each, *plane)
    kernel = RowKernel(group, core, tuple(range(2, len(shape))), shape=shape, seen=seen)
    return _normalised(kernel, _inverse_root(core.attrs["epsilon"]), _by_channel(core))


def _mvn(group: Group, core: Node) -> KernelSource:
    rank = group.types[str(core.inputs[0])].rank
    kernel = RowKernel(group, core, tuple(a % rank for a in core.attrs["axes"]))
    return _normalised(kernel, _inverse_deviation)


# ---- local response normalisation -----------------------------------------------------------------------------------


def _lrn(group: Group, core: Node) -> KernelSource:
    """Each element divided by a power of its neighbours among the channels: a row of one element."""
    kernel = RowKernel(group, core, (), sweeps=1)
    size, (alpha, beta, bias) = core.attrs["size"], (core.attrs[n] for n in ("alpha", "beta", "bias"))
    channels = group.types[kernel.x].static[1]

    def result(body: PackedBody, coords: Coords) -> Expr:
        writer, low = body.writer, (size - 1) // 2
        squares = Expr(kernel.dtype, writer.name("squares"))
        writer.line(f"{kernel.c_type} {squares.template} = 0;")
        with writer.block(f"for (int beside = 0; beside < {size}; ++beside)"):
            there = coords[1] + AffineIndex.variable("beside", size) - low
            text = writer.index(there)
            with writer.block(f"if ({text} >= 0 && {text} < {channels})"):
                place = AffineIndex.variable(writer.define("int", "channel", text), channels)
                value = body.value(kernel.x, (coords[0], place, *coords[2:]))
                writer.line(f"{squares.template} += {writer.render(_of_itself(value), 'square')};")
        base = _add(number(bias, kernel.dtype), _multiply(number(alpha / size, kernel.dtype), squares))
        return FUNCTIONS["divide"](body.value(kernel.x, coords), FUNCTIONS["power"](base, number(beta, kernel.dtype)))

    if kernel.before:
        kernel.first(lambda body, coords: None)
    kernel.last(result)
    return kernel.source()


_KINDS: Mapping[str, Callable[[Group, Node], KernelSource]] = {
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "hardmax": _hardmax,
    "lp_norm": _lp_norm,
    "layer_norm": partial(_trailing, centred=True),
    "rms_norm": partial(_trailing, centred=False),
    "instance_norm": _instance_norm,
    "group_norm": _group_norm,
    "mvn": _mvn,
    "lrn": _lrn,
}
#: Operators that this module has kernels of.
ROW_OPERATORS = frozenset(_KINDS)
