"""Products and convolutions of quantised numbers, and quantisation by what is in a tensor, as statements."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from eqsat.language.ops.quantised.quantisation import rounded
from eqsat.language.ops.windows import conv_geometry
from eqsat.language.terms import DType, Node
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, Coords, broadcast, flattened, unflattened
from eqsat.runtime.kernels.expressions.expression import Expr, UnsupportedError, computed, convert, number
from eqsat.runtime.kernels.expressions.operations import FUNCTIONS
from eqsat.runtime.kernels.expressions.scalar import ARITHMETIC, given, operand
from eqsat.runtime.kernels.nests.extents import fixed
from eqsat.runtime.kernels.nests.groups.statements import GroupStatements, Term, reshaped

_add, _subtract, _multiply, _divide = (FUNCTIONS[n] for n in ("add", "subtract", "multiply", "divide"))
#: Terms of a sum of products of numbers of nine bits, which float32 holds exactly, and of numbers of 17, in float64.
_EXACT = {1: (DType.FLOAT32, 256), 2: (DType.FLOAT64, 1 << 18)}
#: Parts of a sum beyond which float64 holds all of it.
_MOST_PARTS = 64
_ZERO = AffineIndex.number(0)
#: What is made of an exact sum.
_Finish = Callable[[Expr, Coords], Expr]
#: A factor of a product at the indices of an element and an index that is summed over.
_FactorAt = Callable[[Coords, AffineIndex], Expr]
#: The places among operands of two factors, and of their zero points.
_Places = tuple[int, int, int, int]


class _Quantised:
    """A product of quantised numbers: its factors less their zero points as floats, and sums that are exact."""

    def __init__(self, body: GroupStatements, node: Node, terms: int, values: Sequence[int]) -> None:
        self.body, self.node = body, node
        sizes = [body.group.types[given(node, place)].dtype for place in values]
        if not all(one.is_integer and one.itemsize in _EXACT for one in sizes):
            raise UnsupportedError("products of integers of so many bits")
        bits = max(one.itemsize for one in sizes)
        self.dtype, self.part = _EXACT[bits]
        if bits == 1 and terms > self.part * _MOST_PARTS:
            self.dtype, self.part = _EXACT[2]
        if terms > self.part * _MOST_PARTS:
            raise UnsupportedError("sums of so many products")
        self.terms = terms
        most = math.prod(2 ** (8 * one.itemsize) - 1 for one in sizes)
        #: True where no sum has more than 32 bits.
        self.is_short = terms * most < 2**31

    def centred(self, x: Expr, zero: Expr | None) -> Expr:
        """A quantised number less its zero point as a float."""
        wide = convert(x, DType.INT32)
        return convert(wide if zero is None else _subtract(wide, convert(zero, DType.INT32)), self.dtype)

    def zero(self, place: int, index: AffineIndex) -> Expr | None:
        """A zero point: one for all, or that at an index."""
        name = operand(self.node, place)
        return None if name is None else self.parameter(name, index)

    def parameter(self, name: str, index: AffineIndex) -> Expr:
        """A scale or a zero point: one for all, or that at an index."""
        shape = self.body.shape(name)
        at = tuple(_ZERO for _ in shape) if math.prod(shape) == 1 else (*(_ZERO for _ in shape[1:]), index)
        return self.body.value(name, at)

    def filled(self, shape: Sequence[int], places: Sequence[int], element: Callable[[Coords], Expr]) -> str:
        """A buffer with the elements of a factor; made once where the operands at some places are constants."""
        body = self.body
        read = [name for name in (operand(self.node, place) for place in places) if name is not None]
        return body.prepared(self.dtype, shape, read, lambda made: body.fill(made, lambda at, _: element(at)))

    def summed(
        self,
        sums: str,
        sizes: Sequence[int],
        left: _FactorAt,
        right: _FactorAt,
        place: Callable[[Coords], Coords],
    ) -> None:
        """Fill a buffer of integers with sums of products, part by part; elements lie where `place` says."""
        body = self.body
        made = body.temporary(self.dtype, sizes)
        for start in range(0, max(self.terms, 1), self.part):
            count = min(self.part, self.terms - start)

            def term(at: Coords, k: Coords, start: int = start) -> Expr:
                return _multiply(left(at, k[0] + start), right(at, k[0] + start))

            def total(at: Coords, _: Coords, start: int = start) -> Expr:
                # A sum beyond 32 bits wraps around; parts in float32 are none.
                whole = body.read(made, at)
                part = convert(whole if self.dtype is DType.FLOAT32 else convert(whole, DType.INT64), DType.INT32)
                return part if not start else _add(body.read(sums, place(at)), part)

            body.fill(made, term, (max(count, 0),), "+")
            body.fill(sums, total, sizes=sizes, place=place)


def _written(
    body: GroupStatements, node: Node, sums: str, finish: _Finish | None = None, shape: Sequence[int] | None = None
) -> None:
    """The result, of its sums element by element: at coordinates under a shape, or under its own."""
    made = node.outputs[0]
    own, held = body.shape(made), tuple(map(fixed, body.buffers[sums].shape))
    target, dtype = body.landing(made).buffer, computed(body.group.types[made].dtype)

    def element(at: Coords, _: Coords) -> Expr:
        value: Expr = body.read(sums, reshaped(at, own, held))
        return value if finish is None else convert(finish(value, reshaped(at, own, shape or own)), dtype)

    body.fill(target, element)


def _as_integers(
    body: GroupStatements, node: Node, one: _Quantised, axes: tuple[int, int], bias: str | None
) -> _Finish:
    """The result from a sum: with a bias, in units of two scales, by a third one as an integer of a type.

    Scales of the operands may have an element for each index along an axis of the result. UnsupportedError where sums
    may wrap around, which are those of 64 bits.
    """
    if not one.is_short:
        raise UnsupportedError("sums that may have more than 32 bits")
    dtype = body.group.types[given(node, 7)].dtype

    def finish(x: Expr, at: Coords) -> Expr:
        left, right = (at[axis] for axis in axes)
        factor = _divide(
            _multiply(one.parameter(given(node, 1), left), one.parameter(given(node, 4), right)),
            one.parameter(given(node, 6), _ZERO),
        )
        wide = convert(x, DType.INT64)
        if bias is not None:
            wide = _add(wide, convert(body.value(bias, (right,)), DType.INT64))
        scaled, zero = _multiply(convert(wide, factor.dtype), factor), one.parameter(given(node, 7), _ZERO)
        value: Expr = rounded(ARITHMETIC, scaled, zero, dtype)
        return value

    return finish


# ---- matrices -------------------------------------------------------------------------------------------------------


def _multiplied(body: GroupStatements, node: Node, places: _Places) -> tuple[_Quantised, str, tuple[int, ...]]:
    """A product of matrices, its sums, and the shape of these with rows and columns, of which vectors have one.

    Rows of a batch that shares a matrix are rows of one product.
    """
    a, b = given(node, places[0]), given(node, places[1])
    shape_a, shape_b = body.shape(a), body.shape(b)
    is_row, is_column = len(shape_a) == 1, len(shape_b) == 1
    (*lead_a, rows, depth) = (1, *shape_a) if is_row else shape_a
    (*lead_b, _, columns) = (*shape_b, 1) if is_column else shape_b
    one = _Quantised(body, node, depth, places[:2])
    is_flat = bool(lead_a) and math.prod(lead_b) == 1 and len(lead_a) >= len(lead_b)
    seen = (math.prod(lead_a) * rows, depth) if is_flat else (*lead_a, rows, depth)
    batch = body.shape(node.outputs[0])[: max(len(lead_a), len(lead_b))]
    lead = () if is_flat else batch

    def row(at: Coords) -> Expr:
        there = reshaped(at, seen, (*lead_a, rows, depth))
        return one.centred(body.value(a, there[is_row:]), one.zero(places[2], there[-2]))

    def column(at: Coords) -> Expr:
        there = at[: len(shape_b)]
        return one.centred(body.value(b, there), one.zero(places[3], at[-1]))

    left = one.filled(seen, (places[0], places[2]), row)
    right = one.filled((*lead_b, depth, columns), (places[1], places[3]), column)
    made = (*lead, seen[-2], columns)
    sums = body.temporary(DType.INT32, made)
    one.summed(
        sums,
        made,
        lambda at, k: body.read(left, (*broadcast(at[:-2], seen[:-2]), at[-2], k)),
        lambda at, k: body.read(right, (*broadcast(at[:-2], lead_b), k, at[-1])),
        lambda at: at,
    )
    return one, sums, (*batch, rows, columns)


def _matmul_integer(body: GroupStatements, node: Node) -> None:
    _, sums, _ = _multiplied(body, node, (0, 1, 2, 3))
    _written(body, node, sums)


def _qlinear_matmul(body: GroupStatements, node: Node) -> None:
    one, sums, shape = _multiplied(body, node, (0, 3, 2, 5))
    _written(body, node, sums, _as_integers(body, node, one, (-2, -1), None), shape)


# ---- convolutions ---------------------------------------------------------------------------------------------------


def _convolved(body: GroupStatements, node: Node, places: _Places) -> tuple[_Quantised, str]:
    """The sums of a convolution: filters as a matrix times windows side by side, by image and group."""
    x, w = given(node, places[0]), given(node, places[1])
    (images, channels, *sizes), (outputs, depth, *kernel) = body.shape(x), body.shape(w)
    strides, dilations, pads = conv_geometry(node.attrs, len(kernel))
    groups, spatial = node.attrs["group"], body.shape(node.outputs[0])[2:]
    each, plane, terms = outputs // groups, math.prod(spatial), depth * math.prod(kernel)
    one = _Quantised(body, node, terms, places[:2])
    if min(pads) < 0:
        raise UnsupportedError("borders that are cut off")
    filters = one.filled(
        (outputs, terms),
        (places[1], places[3]),
        lambda at: one.centred(
            body.value(w, (at[0], *unflattened(at[1], (depth, *kernel)))), one.zero(places[3], at[0])
        ),
    )
    whole = [n + pads[i] + pads[len(kernel) + i] for i, n in enumerate(sizes)]
    source = body.temporary(one.dtype, (images, channels, *whole))
    if any(pads):
        body.fill(source, lambda at, _: number(0, one.dtype))
    body.fill(
        source,
        lambda at, _: one.centred(body.value(x, at), one.zero(places[2], _ZERO)),
        sizes=(images, channels, *sizes),
        place=lambda at: (*at[:2], *(c + begin for c, begin in zip(at[2:], pads, strict=False))),
    )
    sums, columns = body.temporary(DType.INT32, (images, outputs, plane)), body.temporary(one.dtype, (terms, plane))
    lead = 1 + len(kernel)
    with body.repeated(images * groups) as turn:
        image, group = turn // groups, turn % groups

        def window(at: Coords, _: Coords) -> Expr:
            within, place = at[1:lead], at[lead:]
            there = [p * s + i * d for p, s, i, d in zip(place, strides, within, dilations, strict=True)]
            return body.read(source, (image, group * depth + at[0], *there))

        body.fill(
            columns,
            window,
            sizes=(depth, *kernel, *spatial),
            place=lambda at: (flattened(at[:lead], (depth, *kernel)), flattened(at[lead:], spatial)),
        )
        one.summed(
            sums,
            (each, plane),
            lambda at, k: body.read(filters, (group * each + at[0], k)),
            lambda at, k: body.read(columns, (k, at[1])),
            lambda at: (image, group * each + at[0], at[1]),
        )
    return one, sums


def _conv_integer(body: GroupStatements, node: Node) -> None:
    _, sums = _convolved(body, node, (0, 1, 2, 3))
    _written(body, node, sums)


def _qlinear_conv(body: GroupStatements, node: Node) -> None:
    one, sums = _convolved(body, node, (0, 3, 2, 5))
    finish = _as_integers(body, node, one, (1, 1), operand(node, 8))
    _written(body, node, sums, finish)


# ---- quantisation ---------------------------------------------------------------------------------------------------


def _dynamic(body: GroupStatements, node: Node) -> None:
    """The extremes of all elements, and what follows from them; the elements are read again to be quantised."""
    x = given(node)
    shape, dtype = body.shape(x), body.group.types[x].dtype
    if dtype not in (DType.FLOAT32, DType.FLOAT64):
        raise UnsupportedError(f"quantisation of {dtype.value}, which the reference rounds on the way")
    zero, source = number(0, dtype), body.in_memory(x)
    least, most = body.temporary(dtype, ()), body.temporary(dtype, ())
    body.fill(least, lambda _, k: body.read(source, k), shape, "min")
    body.fill(most, lambda _, k: body.read(source, k), shape, "max")
    low, high = FUNCTIONS["minimum"](body.read(least, ()), zero), FUNCTIONS["maximum"](body.read(most, ()), zero)
    width = _subtract(high, low)
    steps, zeros = body.temporary(dtype, ()), body.temporary(DType.UINT8, ())
    share = FUNCTIONS["where"](FUNCTIONS["equal"](width, zero), number(1, dtype), _divide(width, number(255, dtype)))
    body.fill(steps, lambda _, __: share)
    step, middle = body.read(steps, ()), body.read(zeros, ())
    body.fill(zeros, lambda _, __: rounded(ARITHMETIC, FUNCTIONS["negative"](_divide(low, step)), None, DType.UINT8))

    def quantised(at: Coords, _: Coords) -> Expr:
        value: Expr = rounded(ARITHMETIC, _divide(body.read(source, at), step), middle, DType.UINT8)
        return value

    terms: tuple[Term, ...] = (quantised, lambda at, _: step, lambda at, _: middle)
    for made, term in zip(node.outputs, terms, strict=False):
        if made:
            body.fill(body.landing(made).buffer, term)


#: Operators of quantised numbers that are more than element by element.
QUANTISED: Mapping[str, Callable[[GroupStatements, Node], None]] = {
    "matmul_integer": _matmul_integer,
    "qlinear_matmul": _qlinear_matmul,
    "conv_integer": _conv_integer,
    "qlinear_conv": _qlinear_conv,
    "dynamic_quantize_linear": _dynamic,
}
