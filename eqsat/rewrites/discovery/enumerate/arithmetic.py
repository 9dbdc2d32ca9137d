"""Evaluation of one operator on many operands at once, whatever the operator, and fingerprints of the results."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from eqsat.language.arithmetic.residues import PRIME, Residues
from eqsat.language.ops import spec
from eqsat.language.terms.types import TensorType
from eqsat.rewrites.discovery.enumerate.term import Label
from eqsat.rewrites.rules.term import outputs

#: Computes the outputs, a row each, of operands that are stacked on a new first axis.
Batch: TypeAlias = Callable[[Sequence[Any]], "list[Any]"]
_PROBES = 3
_LARGEST_TABLE = 1 << 10
#: Reports why a fast evaluation of many instances was not used; the slow one then shows the real fault.
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """Evaluation of an operator on many operands: `shared` if the operands after the first are one for all rows."""

    run: Batch
    shared: bool = False


class ResidueArithmetic:
    """Operators by their references, modulo a prime.

    A way of running many rows at once is taken where it is seen to give what running them one by one gives, on random
    rows; nothing need be declared.
    """

    def __init__(self, seed: int) -> None:
        self.residues = Residues()
        self._seed = seed

    def draw(self, type: TensorType, rows: int, *key: int) -> Any:
        """Random tensors of a type: [rows, *shape]."""
        rng = np.random.Generator(np.random.PCG64([self._seed, *key]))
        if type.dtype.is_float:
            return rng.integers(0, PRIME, (rows, *type.static), np.int64)
        return rng.integers(0, 2, (rows, *type.static)).astype(type.dtype.numpy)

    def one(
        self, label: Label, types: Sequence[TensorType], results: Sequence[TensorType], operands: Sequence[Any]
    ) -> list[Any]:
        """The outputs of one application."""
        return outputs(self.residues, label.op, label.attrs, operands, types, results)

    def plan(self, label: Label, types: Sequence[TensorType], results: Sequence[TensorType]) -> BatchPlan:
        """The fastest evaluation of many rows that gives the same as one row at a time."""
        drawn = [self.draw(t, _PROBES, 7, i) for i, t in enumerate(types)]
        want = self.each(label, types, results).run(drawn)
        candidates = (self._stacked, self._shifted, self._trailing, self._grouped, self._tabled)
        for candidate in (self._gathered, *candidates) if spec(label.op).movement else candidates:
            plan = candidate(label, types, results)
            if plan is not None and _agrees(plan.run, drawn, want):
                return plan
        shared = self._merged(label, types, results)
        drawn = [drawn[0], *(np.repeat(d[:1], _PROBES, 0) for d in drawn[1:])]
        want = self.each(label, types, results).run(drawn)
        agrees = _agrees(shared.run, [drawn[0], *(d[:1] for d in drawn[1:])], want)
        return shared if agrees else self.each(label, types, results)

    def each(self, label: Label, types: Sequence[TensorType], results: Sequence[TensorType]) -> BatchPlan:
        """One row after the other."""

        def run(operands: Sequence[Any]) -> list[Any]:
            rows = [self.one(label, types, results, row) for row in zip(*operands, strict=True)]
            return [np.stack(parts) for parts in zip(*rows, strict=True)]

        return BatchPlan(run)

    def _space(self, types: Sequence[TensorType], results: Sequence[TensorType]) -> Any:
        return self.residues.namespace(list(types), list(results))

    def _stacked(self, label: Label, types: Sequence[TensorType], results: Sequence[TensorType]) -> BatchPlan:
        """A new first axis, for operators that take any number of leading axes."""
        rank = max(t.rank for t in types)

        def run(operands: Sequence[Any]) -> list[Any]:
            aligned = [
                o.reshape(o.shape[0], *(1,) * (rank - t.rank), *t.static) for o, t in zip(operands, types, strict=True)
            ]
            return self.one(label, types, results, aligned)

        return BatchPlan(run)

    def _shifted(self, label: Label, types: Sequence[TensorType], results: Sequence[TensorType]) -> BatchPlan | None:
        """A new first axis, for operators that name axes in an attribute `axis` or `axes`."""
        moved = {k: _later(v) for k, v in label.attrs.items() if k in ("axis", "axes")}
        return self._stacked(Label(label.op, label.attrs | moved), types, results) if moved else None

    def _grouped(self, label: Label, types: Sequence[TensorType], results: Sequence[TensorType]) -> BatchPlan | None:
        """More groups, for operators on the channels of axis 1 in groups: the rows become channels."""
        if "group" not in label.attrs or len(types) != 2 or min(t.rank for t in (*types, *results)) < 2:
            return None

        def run(operands: Sequence[Any]) -> list[Any]:
            x, w = operands
            rows = len(x)
            wide = np.moveaxis(x, 0, 1).reshape(x.shape[1], -1, *x.shape[3:])
            more = Label(label.op, label.attrs | {"group": rows * label.attrs["group"]})
            (result,) = self.one(more, types, results, [wide, w.reshape(-1, *w.shape[2:])])
            apart = result.reshape(result.shape[0], rows, -1, *result.shape[2:])
            return [np.moveaxis(apart, 1, 0)]

        return BatchPlan(run)

    def _tabled(self, label: Label, types: Sequence[TensorType], results: Sequence[TensorType]) -> BatchPlan | None:
        """A table of the term that each pair of elements adds to each result, for small products of two operands."""
        sizes = [int(np.prod(t.static)) for t in (*types, *results)]
        if len(types) != 2 or len(results) != 1 or int(np.prod(sizes)) > _LARGEST_TABLE:
            return None
        units = [np.eye(n, dtype=np.int64).reshape(n, *t.static) for n, t in zip(sizes, types, strict=False)]
        try:
            table = np.stack(
                [self.one(label, types, results, [a, b])[0].reshape(-1) for a in units[0] for b in units[1]]
            )
        except Exception as error:  # noqa: BLE001 - a reference may refuse strange operands in any way
            _LOG.debug("no table for %s, which is run one instance at a time: %r", label.op, error)
            return None
        arithmetic = self._space(types, results)

        def run(operands: Sequence[Any]) -> list[Any]:
            a, b = (o.reshape(len(o), -1) for o in operands)
            products = arithmetic.multiply(a[:, :, None], b[:, None, :]).reshape(len(a), -1)
            return [arithmetic.matmul(products, table).reshape(len(a), *results[0].static)]

        return BatchPlan(run)

    def _trailing(self, label: Label, types: Sequence[TensorType], results: Sequence[TensorType]) -> BatchPlan:
        """A new last axis, for operators that name axes from the left."""

        def run(operands: Sequence[Any]) -> list[Any]:
            moved = self.one(label, types, results, [np.moveaxis(o, 0, -1) for o in operands])
            return [np.moveaxis(m, -1, 0) for m in moved]

        return BatchPlan(run)

    def _merged(self, label: Label, types: Sequence[TensorType], results: Sequence[TensorType]) -> BatchPlan:
        """The rows laid side by side on the first axis of the first operand, the other operands the same for all."""

        def run(operands: Sequence[Any]) -> list[Any]:
            x, *rest = operands
            laid = x.reshape(-1, *x.shape[2:])
            laid_out = self.one(label, types, results, [laid, *(r[0] for r in rest)])
            return [m.reshape(x.shape[0], *t.static) for m, t in zip(laid_out, results, strict=True)]

        return BatchPlan(run, shared=len(types) > 1)

    def _gathered(self, label: Label, types: Sequence[TensorType], results: Sequence[TensorType]) -> BatchPlan | None:
        """The index of the element that each element of the result copies, found by moving numbers; else constants."""
        sizes = [int(np.prod(t.static)) for t in types]
        starts = np.cumsum([0, *sizes[:-1]])
        total = sum(sizes)

        def moved(base: int) -> list[Any]:
            places = [base + s + np.arange(n).reshape(t.static) for s, n, t in zip(starts, sizes, types, strict=True)]
            return [m.reshape(-1) for m in self.one(label, types, results, places)]

        try:
            first, second = moved(1), moved(1 + total)
        except (IndexError, TypeError, ValueError):
            return None
        fixed = [a == b for a, b in zip(first, second, strict=True)]
        sources = [np.where(f, 0, a - 1) for f, a in zip(fixed, first, strict=True)]

        def run(operands: Sequence[Any]) -> list[Any]:
            flat = np.concatenate([o.reshape(len(o), -1) for o in operands], axis=1)
            columns = []
            for source, constant, value in zip(sources, fixed, first, strict=True):
                rows = flat[:, source]
                rows[:, constant] = value[constant]
                columns.append(rows)
            return [m.reshape(len(m), *t.static) for m, t in zip(columns, results, strict=True)]

        return BatchPlan(run)


def _later(axes: Any) -> Any:
    return tuple(a + 1 for a in axes) if isinstance(axes, tuple) else axes + 1


def _agrees(run: Batch, operands: Sequence[Any], want: Sequence[Any]) -> bool:
    try:
        got = run(operands)
    except Exception as error:  # noqa: BLE001 - a reference may refuse strange operands in any way
        _LOG.debug("a way to run many instances at once fails, so that it is not taken: %r", error)
        return False
    return all(g.shape == w.shape and bool((g == w).all()) for g, w in zip(got, want, strict=True))


_WORD = (1 << 64) - 1


def fingerprints(rows: Any, type: TensorType, seed: int) -> Any:
    """The fingerprint of each row, the elements of one tensor of the type: uint64[rows].

    A random linear form of the elements modulo 2^64, then mixed with the type: two tensors of different elements
    agree with a chance of about 2^-44 at most, the elements being below 2^20.
    """
    rows = np.ascontiguousarray(rows, np.int64).view(np.uint64)
    with np.errstate(over="ignore"):
        return _mixed(rows @ _weights(rows.shape[1], seed) + np.uint64(_type_seed(type)))


def combined(outputs: Iterable[int]) -> int:
    """The fingerprint of a graph from those of its outputs, whatever their order.

    >>> combined([3, 4]) == combined([4, 3]) != combined([3, 3, 4])
    True
    """
    words = np.array([o & _WORD for o in outputs], np.uint64)
    with np.errstate(over="ignore"):
        total = _mixed(words ^ np.uint64(0x5851F42D4C957F2D)).sum(dtype=np.uint64)
        return int(_mixed(total + np.uint64(len(words))))


@cache
def _weights(count: int, seed: int) -> Any:
    words = np.random.Generator(np.random.PCG64([seed, count])).integers(0, _WORD, count, np.uint64, endpoint=True)
    return words | np.uint64(1)


@cache
def _type_seed(type: TensorType) -> int:
    return int.from_bytes(hashlib.blake2b(str(type).encode(), digest_size=8).digest(), "little")


def _mixed(z: Any) -> Any:
    """A one-to-one mixing of 64 bits (the finaliser of SplitMix64)."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
