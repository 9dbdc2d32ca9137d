"""Attention over a cache of keys and values as statements: the cache, scores, their shares, and sums of values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from eqsat.language.terms import DType, Node
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, Coords, broadcast
from eqsat.runtime.kernels.expressions.expression import Expr, UnsupportedError, computed, convert, number
from eqsat.runtime.kernels.expressions.operations import FUNCTIONS
from eqsat.runtime.kernels.expressions.scalar import given, operand
from eqsat.runtime.kernels.nests.computation import Coordinate
from eqsat.runtime.kernels.nests.groups.statements import GroupStatements, Moved

_add, _subtract, _multiply, _where = (FUNCTIONS[n] for n in ("add", "subtract", "multiply", "where"))
_less, _and, _clip = FUNCTIONS["less"], FUNCTIONS["logical_and"], FUNCTIONS["clip"]
_WIDE = DType.INT64


def _whole(value: int) -> Expr:
    return number(value, _WIDE)


def _place(index: AffineIndex) -> Expr:
    return Coordinate.of(index, _WIDE)


class _GroupedAttention:
    """The statements of one operator; heads of queries that share one of keys are rows below each other."""

    def __init__(self, body: GroupStatements, node: Node) -> None:
        self.body, self.node, self.attrs = body, node, node.attrs
        names = [operand(node, place) for place in range(10)]
        self.q, self.lens = given(node, 0), given(node, 1)
        self.k, self.v, *past, self.cos, self.sin, self.bias, self.sink = names[2:]
        self.past = past[0], past[1]
        self.heads, self.shared = int(self.attrs["heads"]), int(self.attrs["shared"])
        self.turns = self.heads // self.shared
        self.batch, self.length, columns = body.shape(self.q)
        self.size = columns // (self.heads + 2 * self.shared if self.k is None else self.heads)
        self.before = body.shape(past[0])[2] if past[0] is not None else 0
        self.count = max(self.attrs["total"], self.before)
        self.dtype = computed(body.group.types[self.q].dtype)
        if not self.dtype.is_float:
            raise UnsupportedError("attention of integers")

    def run(self) -> None:
        """Add all statements."""
        body, rows = self.body, self.turns * self.length
        if 0 in (self.length, self.count, self.batch, self.size):
            raise UnsupportedError("attention of nothing")
        self._starts()
        queries = body.temporary(self.dtype, (self.batch, self.shared, rows, self.size))
        self._fill_turned(
            queries,
            self._apart(None, 0),
            (self.batch, self.shared, self.turns, self.length),
            lambda at: (*at[:2], at[2] * self.length + at[3], at[4]),
            lambda at: (at[0], at[1] * self.turns + at[2], *at[3:]),
        )
        fresh = (self.batch, self.shared, self.length, self.size)
        new_keys, new_values = (body.temporary(self.dtype, fresh) for _ in range(2))
        self._fill_turned(new_keys, self._apart(self.k, self.heads), fresh[:3], lambda at: at, lambda at: at)
        value = self._apart(self.v, self.heads + self.shared)
        body.fill(new_values, lambda at, _: value(at))
        keys, values = self._cache(0, new_keys), self._cache(1, new_values)
        shares = self._shares(queries, keys)
        sums = body.temporary(self.dtype, (self.batch, self.shared, rows, self.size))
        body.fill(
            sums,
            lambda at, k: _multiply(body.read(shares, (*at[:3], *k)), body.read(values, (*at[:2], *k, at[3]))),
            (self.count,),
            "+",
        )
        made = self.node.outputs[0]
        if made:
            body.fill(body.landing(made).buffer, lambda at, _: body.read(sums, self._row(at)))

    def _row(self, at: Coords) -> Coords:
        """The coordinates of an element of the result among rows of queries."""
        head, column = at[2] // self.size, at[2] % self.size
        return (at[0], head // self.turns, head % self.turns * self.length + at[1], column)

    # ---- places -----------------------------------------------------------------------------------------------------

    def _starts(self) -> None:
        """Fill where new positions begin, and where all end, by sequence."""
        body = self.body
        self.ends, self.first = body.temporary(_WIDE, (self.batch,)), body.temporary(_WIDE, (self.batch,))
        body.fill(self.ends, lambda at, _: _add(convert(body.value(self.lens, at), _WIDE), _whole(1)))

        def start(at: Coords, _: Coords) -> Expr:
            if self.attrs["total"] == self.length:
                return _whole(0)
            return _clip(_subtract(body.read(self.ends, at), _whole(self.length)), _whole(0), _whole(self.before))

        body.fill(self.first, start)

    def _start(self, batch: AffineIndex) -> Expr:
        return self.body.read(self.first, (batch,))

    def _is_seen(self, batch: AffineIndex, query: AffineIndex, key: AffineIndex) -> Expr:
        """The truth that a query looks at a key."""
        place, seen = _place(key), _less(_place(key), self.body.read(self.ends, (batch,)))
        if self.attrs["causal"]:
            own = _add(self._start(batch), _place(query))
            seen = _and(seen, FUNCTIONS["less_equal"](place, own))
            if self.attrs["window"] > 0:
                seen = _and(seen, _less(_subtract(own, _whole(self.attrs["window"])), place))
        return seen

    # ---- operands by batch, head, position and column ---------------------------------------------------------------

    def _apart(self, name: str | None, first: int) -> Callable[[Coords], Expr]:
        """Elements of an operand with its heads side by side; of the queries', from a head on, where it is left out."""
        source, start = (self.q, first) if name is None else (name, 0)

        def element(at: Coords) -> Expr:
            batch, head, position, column = at
            return convert(self.body.value(source, (batch, position, (head + start) * self.size + column)), self.dtype)

        return element

    def _fill_turned(
        self, buffer: str, element: Callable[[Coords], Expr], sizes: Sequence[int], place: Moved, own: Moved
    ) -> None:
        """Fill a buffer with elements turned in pairs by the angles of their positions, as far as columns are.

        Indices of all but the columns have sizes; `own` are an element's coordinates in the operand, `place` in the
        buffer.
        """
        body, half = self.body, 0
        if self.cos is not None and self.sin is not None:
            positions, half = body.shape(self.cos)
            cosines, sines = body.in_memory(self.cos), body.in_memory(self.sin)

        def column(at: AffineIndex, which: int) -> AffineIndex:
            return at * 2 + which if self.attrs["interleaved"] else at + which * half

        for which in range(2) if half else ():

            def turned(at: Coords, _: Coords, which: int = which) -> Expr:
                batch, _head, position, pair = own(at)
                there = _clip(_add(self._start(batch), _place(position)), _whole(0), _whole(positions - 1))
                cosine, sine = (convert(body.read(one, (there, pair)), self.dtype) for one in (cosines, sines))
                mine, theirs = (element(own((*at[:-1], column(at[-1], one)))) for one in (which, 1 - which))
                join = _add if which else _subtract
                return join(_multiply(mine, cosine), _multiply(theirs, sine))

            body.fill(
                buffer,
                turned,
                sizes=(*sizes, half),
                place=lambda at, which=which: place((*at[:-1], column(at[-1], which))),  # type: ignore[misc]
            )
        if 2 * half < self.size:
            body.fill(
                buffer,
                lambda at, _: element(own((*at[:-1], at[-1] + 2 * half))),
                sizes=(*sizes, self.size - 2 * half),
                place=lambda at: place((*at[:-1], at[-1] + 2 * half)),
            )

    def _cache(self, which: int, new: str) -> str:
        """The cache of keys or values: what it held, then the new positions of each sequence, then zeros."""
        body, output = self.body, [*self.node.outputs, "", ""][1 + which]
        past = self.past[which]
        held = body.in_memory(past) if past is not None and self.before else None
        if output:
            target = body.landing(output).buffer
        else:
            target = body.temporary(self.dtype, (self.batch, self.shared, self.count, self.size))

        def element(at: Coords, _: Coords) -> Expr:
            batch, head, key, column = at
            beyond = _subtract(_place(key), self._start(batch))
            there = _clip(beyond, _whole(0), _whole(self.length - 1))
            fresh = _where(
                _less(beyond, _whole(self.length)), body.read(new, (batch, head, there, column)), number(0, self.dtype)
            )
            if held is None:
                return fresh
            before = convert(
                body.read(held, (batch, head, _clip(_place(key), _whole(0), _whole(self.before - 1)), column)),
                self.dtype,
            )
            return _where(_less(beyond, _whole(0)), before, fresh)

        body.fill(target, element)
        return target

    # ---- scores -----------------------------------------------------------------------------------------------------

    def _shares(self, queries: str, keys: str) -> str:
        """The shares of all keys for each query, as by softmax of the scores that are seen."""
        body, dtype, lead = self.body, self.dtype, (self.batch, self.shared, self.turns * self.length)
        products, scores = (body.temporary(dtype, (*lead, self.count)) for _ in range(2))
        body.fill(
            products,
            lambda at, k: _multiply(
                body.read(queries, (*at[:3], *k)), convert(body.read(keys, (*at[:2], at[3], *k)), dtype)
            ),
            (self.size,),
            "+",
        )
        body.fill(scores, lambda at, _: self._score(body.read(products, at), at))
        top, whole, some = body.temporary(dtype, lead), body.temporary(dtype, lead), body.temporary(DType.INT32, lead)
        none, zero = number(-math.inf, dtype), number(0, dtype)

        def is_seen(at: Coords, key: AffineIndex) -> Expr:
            return self._is_seen(at[0], at[2] % self.length, key)

        def ones(at: Coords, k: Coords) -> Expr:
            return _where(is_seen(at, k[0]), number(1, DType.INT32), number(0, DType.INT32))

        body.fill(
            top, lambda at, k: _where(is_seen(at, k[0]), body.read(scores, (*at, *k)), none), (self.count,), "max"
        )
        body.fill(some, ones, (self.count,), "max")

        def beside(at: Coords) -> Expr | None:
            """A score that has no value."""
            if self.sink is not None:
                shape = body.shape(self.sink)
                return convert(
                    body.value(self.sink, (*(AffineIndex.number(0) for _ in shape[1:]), self._head(at))), dtype
                )
            return zero if self.attrs["smooth"] else None

        def level(at: Coords) -> Expr:
            """A number that is taken from scores, so that none is large."""
            most, extra = body.read(top, at), beside(at)
            settled = _where(FUNCTIONS["equal"](most, none), zero, most)
            return settled if extra is None else FUNCTIONS["maximum"](settled, extra)

        def weight(at: Coords, _: Coords) -> Expr:
            value = FUNCTIONS["exp"](_subtract(body.read(scores, at), level(at[:3])))
            return _where(is_seen(at[:3], at[3]), value, zero)

        body.fill(scores, weight)
        body.fill(whole, lambda at, k: body.read(scores, (*at, *k)), (self.count,), "+")

        def share(at: Coords, _: Coords) -> Expr:
            row = at[:3]
            extra = beside(row)
            total: Expr = body.read(whole, row)
            total = total if extra is None else _add(total, FUNCTIONS["exp"](_subtract(extra, level(row))))
            total = _where(FUNCTIONS["equal"](body.read(some, row), number(0, DType.INT32)), number(1, dtype), total)
            return FUNCTIONS["divide"](body.read(scores, at), total)

        body.fill(products, share)
        return products

    def _head(self, at: Coords) -> AffineIndex:
        """The head of a row of queries."""
        return at[1] * self.turns + at[2] // self.length

    def _score(self, product: Expr, at: Coords) -> Expr:
        """A score from a product of a query and a key."""
        body, attrs, dtype = self.body, self.attrs, self.dtype
        factor = attrs["scale"] if attrs["scale"] is not None else 1.0 / math.sqrt(self.size)
        score = _multiply(product, number(factor, dtype))
        if attrs["softcap"] > 0:
            cap = number(attrs["softcap"], dtype)
            score = _multiply(cap, FUNCTIONS["tanh"](FUNCTIONS["divide"](score, cap)))
        if self.bias is None:
            return score
        shape = body.shape(self.bias)
        coords = broadcast((at[0], self._head(at), at[2] % self.length, AffineIndex.number(0)), shape)[:3]
        key = _clip(_place(at[3]), _whole(0), _whole(shape[3] - 1)) if shape[3] < self.count else at[3]
        added = convert(body.read(body.in_memory(self.bias), (*coords, key)), dtype)
        if shape[3] < self.count:
            added = _where(_less(_place(at[3]), _whole(shape[3])), added, number(0, dtype))
        return _add(score, added)


def _grouped_attention(body: GroupStatements, node: Node) -> None:
    _GroupedAttention(body, node).run()


#: Operators that attend to a cache.
ATTENTION: Mapping[str, Callable[[GroupStatements, Node], None]] = {"grouped_attention": _grouped_attention}
