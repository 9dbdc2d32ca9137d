"""Kernels that combine the elements along axes to one: sums, means, extremes and their places; and running sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from eqsat.language.terms import DType, Node
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, Coords
from eqsat.runtime.kernels.expressions.expression import STORED, Expr, UnsupportedError, computed, convert, number
from eqsat.runtime.kernels.expressions.operations import FUNCTIONS
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.packs import PackedBody, generated
from eqsat.runtime.kernels.source import KernelSource
from eqsat.runtime.kernels.templates.sweep import RowKernel
from eqsat.runtime.kernels.templates.team import MANY_ROWS, WARP, Team
from eqsat.runtime.kernels.writer import bare


def _plain(x: Expr) -> Expr:
    return x


def _square(x: Expr) -> Expr:
    return FUNCTIONS["multiply"](x, x)


def _total(total: Expr, count: int) -> Expr:
    return total


def _average(total: Expr, count: int) -> Expr:
    return FUNCTIONS["divide"](total, number(count, total.dtype))


def _root(total: Expr, count: int) -> Expr:
    return FUNCTIONS["sqrt"](total)


def _logarithm(total: Expr, count: int) -> Expr:
    return FUNCTIONS["log"](total)


@dataclass(frozen=True)
class Accumulation:
    """A reduction: the operation that joins elements, the function of each element, and that of the joined value."""

    operator: str
    prepare: Callable[[Expr], Expr] = _plain
    finish: Callable[[Expr, int], Expr] = _total


ACCUMULATIONS: Mapping[str, Accumulation] = {
    "reduce_sum": Accumulation("Sum"),
    "reduce_mean": Accumulation("Sum", finish=_average),
    "global_avg_pool": Accumulation("Sum", finish=_average),
    "reduce_max": Accumulation("Greatest"),
    "global_max_pool": Accumulation("Greatest"),
    "reduce_min": Accumulation("Least"),
    "reduce_prod": Accumulation("Product"),
    "reduce_l1": Accumulation("Sum", FUNCTIONS["abs"]),
    "reduce_l2": Accumulation("Sum", _square, _root),
    "reduce_sum_square": Accumulation("Sum", _square),
    "reduce_log_sum": Accumulation("Sum", finish=_logarithm),
}
#: Poolings by the reduction that they are where one window is the whole plane.
_WHOLE = {"avg_pool": ACCUMULATIONS["global_avg_pool"], "max_pool": ACCUMULATIONS["global_max_pool"]}
_PLACES = {"argmax": "false", "argmin": "true"}
#: Operators that this module has kernels of.
REDUCTIONS = frozenset({*ACCUMULATIONS, *_PLACES, "reduce_log_sum_exp", "cumsum"})


def generate(group: Group) -> KernelSource | None:
    """One kernel of a reduction with the operators before and after it; None for other groups."""
    core = next((node for node in group.nodes if node.op in REDUCTIONS), None)
    if core is None:
        return None
    if core.op in ACCUMULATIONS:
        return generated(group, core, reduced)
    if core.op in _PLACES:
        return generated(group, core, _placed)
    return generated(group, core, _log_sum_exp if core.op == "reduce_log_sum_exp" else _running_sum)


def identity(operator: str, dtype: DType) -> Expr:
    """The neutral element of the operation that joins elements."""
    if operator in ("Sum", "Product"):
        if dtype is DType.BOOL:
            raise UnsupportedError("sums of truth values")
        return number(operator == "Product", dtype)
    least = operator == "Greatest"
    if dtype is DType.BOOL:
        return number(not least, dtype)
    if dtype.is_float:
        return number(-np.inf if least else np.inf, dtype)
    return number(np.iinfo(dtype.numpy).min if least else np.iinfo(dtype.numpy).max, dtype)


def axes_of(group: Group, node: Node) -> tuple[int, ...]:
    """The axes that an operator combines, counted from the front."""
    rank = group.types[str(node.inputs[0])].rank
    if "pool" in node.op:
        return tuple(range(2, rank))
    axes = (node.attrs["axis"],) if "axis" in node.attrs else node.attrs["axes"]
    return tuple(a % rank for a in axes)


def joined(
    kernel: RowKernel, operator: str, dtype: DType, stem: str, term: Callable[[PackedBody, Coords], Expr]
) -> Expr:
    """The reduction over a row of `term` of each element; elements that are not made yet are made."""
    part = kernel.declare(f"{stem}_part", dtype, identity(operator, dtype).template)

    def fill(body: PackedBody, coords: Coords) -> None:
        text = bare(body.writer.render(convert(term(body, coords), dtype), stem))
        # C makes ints of smaller integers, and join takes two of one type.
        text = f"({STORED[dtype]})({text})" if dtype.itemsize < 4 else text
        body.writer.line(f"{part} = {operator}::join({part}, {text});")

    if kernel.has_swept:
        kernel.sweep(fill)
    else:
        kernel.first(fill)
    return kernel.reduce(operator, part, dtype, stem)


def reduced(group: Group, core: Node) -> KernelSource:
    """The kernel of a reduction, or of a pooling whose only window is the whole plane, without padding."""
    reduction = _WHOLE.get(core.op) or ACCUMULATIONS[core.op]
    kernel = RowKernel(group, core, axes_of(group, core), sweeps=1)
    first = reduction.prepare(number(0, kernel.dtype)).dtype
    total = joined(kernel, reduction.operator, first, "total", lambda b, c: reduction.prepare(kernel.element(b, c)))
    return _finished(kernel, reduction.finish(total, kernel.rows.size))


def _log_sum_exp(group: Group, core: Node) -> KernelSource:
    """Shifted by the maximum, where that is finite, so as not to overflow."""
    kernel = RowKernel(group, core, axes_of(group, core), sweeps=2)
    if not kernel.dtype.is_float:
        raise UnsupportedError("logarithms of integers")
    top = joined(kernel, "Greatest", kernel.dtype, "top", kernel.element)
    top = kernel.constant(Expr(kernel.dtype, "({0} - {0} == 0 ? {0} : 0)", (top,)), "shift")

    def weight(body: PackedBody, coords: Coords) -> Expr:
        return FUNCTIONS["exp"](FUNCTIONS["subtract"](kernel.element(body, coords), top))

    total = joined(kernel, "Sum", kernel.dtype, "total", weight)
    return _finished(kernel, FUNCTIONS["add"](FUNCTIONS["log"](total), top))


def _placed(group: Group, core: Node) -> KernelSource:
    (axis,) = axes_of(group, core)
    kernel = RowKernel(group, core, (axis,), sweeps=1)
    operator = f"Extreme<{_PLACES[core.op]}, {'true' if core.attrs['select_last'] else 'false'}>"
    return _finished(kernel, Expr(DType.INT64, f"(i64){extreme_place(kernel, axis, operator)}.index"))


def extreme_place(kernel: RowKernel, axis: int, operator: str) -> str:
    """The name in C of the extreme of a row and its place along an axis, found by the first sweep."""
    writer, type = kernel.body.writer, f"Place<{kernel.c_type}>"
    best = writer.name("best")
    writer.line(f"{type} {best} = {{0, -1}};")

    def fill(body: PackedBody, coords: Coords) -> None:
        value, place = body.writer.render(kernel.element(body, coords), "element"), body.writer.index(coords[axis])
        body.writer.line(f"{best} = {operator}::join({best}, {type}{{{value}, {place}}});")

    kernel.first(fill)
    return writer.define(type, "found", kernel.team.reduced(operator, best))


def _finished(kernel: RowKernel, value: Expr) -> KernelSource:
    """The kernel that stores a value for each row, and the values made from it."""
    body, core = kernel.body, kernel.core
    gone = set(axes_of(kernel.group, core))
    keeps = bool(core.attrs.get("keepdims", True))
    with kernel.one_of_each_row() as row:
        at = kernel.rows.coords(row, AffineIndex.number(0))
        coords = tuple(AffineIndex.number(0) if a in gone else c for a, c in enumerate(at) if keeps or a not in gone)
        result = convert(value, computed(kernel.group.types[kernel.made].dtype))
        coords = body.forwardable(kernel.made, kernel.after, coords)
        body.store_made(kernel.made, kernel.after, coords, body.named(result, core.op))
    return kernel.source()


def _running_sum(group: Group, core: Node) -> KernelSource:
    """A thread walks each row; where rows are few, long and contiguous, a warp does, 32 elements at a time."""
    kernel = RowKernel(group, core, axes_of(group, core), sweeps=1, vectors=False, team=_scanning)
    identity("Sum", kernel.dtype)
    body, writer, size = kernel.body, kernel.body.writer, kernel.rows.size
    carry = kernel.declare("carry", kernel.dtype, "0")
    exclusive, warp = core.attrs["exclusive"], kernel.team.size > 1
    with ExitStack() as stack:
        stack.enter_context(writer.block(f"for (int turn = 0; turn < {kernel.team.turns}; ++turn)"))
        writer.line("const int step = turn * 32 + member;" if warp else "const int step = turn;")
        inside = [] if kernel.whole else [f"row < {kernel.rows.count}"]
        inside += [f"step < {size}"] if warp and size % WARP else []
        place = AffineIndex.variable("step", size)
        if core.attrs["reverse"]:
            place = place * -1 + (size - 1)
        coords = kernel.rows.coords(AffineIndex.variable("row", kernel.rows.count), place)
        value, running = writer.name("value"), writer.name("running")
        writer.line(f"{kernel.c_type} {value} = 0;")
        with writer.block(f"if ({' && '.join(inside)})" if inside else ""):
            writer.line(f"{value} = {bare(writer.render(body.value(kernel.x, coords), 'element'))};")
            body.store_at(kernel.before, coords)
        scanned = f"warp_scan({value})" if warp else value
        writer.line(f"const {kernel.c_type} {running} = Sum::join({carry}, {scanned});")
        if exclusive:
            before = f"exclusive_of({running}, {carry})" if warp else carry
            shown = writer.define(kernel.c_type, "shown", before)
        else:
            shown = running
        with writer.block(f"if ({' && '.join(inside)})" if inside else ""):
            coords = body.forwardable(kernel.made, kernel.after, coords)
            body.store_made(kernel.made, kernel.after, coords, Expr(kernel.dtype, shown))
        writer.line(f"{carry} = {f'last_of_warp({running})' if warp else running};")
    return kernel.source()


def _scanning(kernel: RowKernel) -> Team:
    rows = kernel.rows
    if rows.contiguous and rows.size > WARP and rows.count < MANY_ROWS:
        return Team("lanes", WARP, 4, 1, -(-rows.size // WARP))
    return Team("lanes", 1, 64, 1, rows.size)
