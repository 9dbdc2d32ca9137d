"""An average of values by shares of scores, written as attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eqsat.rewrites.theories.attention.indices import AxisIndices, IndexedOperand, Shares, SumOfProducts
from eqsat.rewrites.theories.attention.proof import asked_of_mask
from eqsat.rewrites.theories.contractions import Axis, UnreadError


@dataclass(frozen=True)
class Asked:
    """The conditions on the operands of a region, its numbers, the operands that are finite, and the masks that are
    known to leave each query a key."""

    conditions: tuple[str, ...]
    numbers: tuple[tuple[str, float], ...]
    finite: frozenset[str]
    attending: frozenset[str]


class AttentionWriter:
    """Writes an average by shares as attention: operands with axes for batch, heads, length and width."""

    def __init__(self, indices: AxisIndices, left: SumOfProducts, known: Asked) -> None:
        self.indices, self.left, self.known = indices, left, known
        shares = [f for f in left.factors if isinstance(f, Shares)]
        values = [f for f in left.factors if isinstance(f, IndexedOperand)]
        if len(shares) != 1 or len(values) != 1:
            raise UnreadError
        self.shares, self.values = shares[0], values[0]
        products = [one for one in self.shares.summands if len(one.factors) == 2]
        added = [one.factors[0] for one in self.shares.summands if len(one.factors) == 1 and one.scale == 1]
        self.masks = [one for one in added if isinstance(one, IndexedOperand)]
        if len(products) != 1 or len(self.masks) != len(self.shares.summands) - 1:
            raise UnreadError
        self.scores = products[0]
        self._assign()

    def _flat(self, axes: Sequence[Axis]) -> list[int]:
        return [i for axis in axes for i in self.indices.flat(axis)]

    def _assign(self) -> None:
        """Say what each index is: of batch, heads, repeats of heads, queries, keys or widths."""
        along = self._flat([self.shares.along])
        operands = [f for f in self.scores.factors if isinstance(f, IndexedOperand)]
        keys = [f for f in operands if set(along) <= set(self._flat(f.axes))]
        if len(keys) != 1 or len(operands) != 2:
            raise UnreadError
        (self.keys,) = keys
        (self.queries,) = (f for f in operands if f is not self.keys)
        q, k, v = (self._flat(f.axes) for f in (self.queries, self.keys, self.values))
        kept = set(self._flat(self.scores.axes))
        self.along = along
        self.depth = [i for i in q if i not in kept]
        self.width = [i for i in v if i not in along and i not in self._flat(self.shares.axes)]
        shared = [i for i in k if i not in along and i not in self.depth]
        axes = self.shares.axes
        place = next(n for n, axis in enumerate(axes) if axis == self.shares.along)
        rows = set(self.indices.flat(axes[place - 1])) if place else set()
        self.length = [i for i in q if i in rows and i not in shared]
        repeats = [i for i in q if i not in shared and i not in self.depth and i not in self.length]
        self.batch, heads = shared[:-1], shared[-1:]
        if repeats and shared and not self._is_one_axis(shared[-1], repeats[0]):
            self.batch, heads = shared, []
        self.heads, self.repeats = heads, repeats
        if set(v) != {*shared, *along, *self.width} or set(k) != {*shared, *along, *self.depth}:
            raise UnreadError

    def _is_one_axis(self, one: int, other: int) -> bool:
        """True if the queries have two indices in one axis."""
        return any({one, other} <= set(self.indices.flat(axis)) for axis in self.queries.axes)

    @property
    def about_mask(self) -> str | None:
        """The condition that a mask leaves each query a key, where there is one of which that is known."""
        names = [mask.name for mask in self.masks]
        if len(names) != 1 or names[0] not in self.known.attending:
            return None
        return asked_of_mask([self.queries.name, self.keys.name], names[0])

    def _hidden(self) -> str:
        """The attribute that says what queries without keys have; UnreadError where no attribute says so."""
        finite = self.known.finite.issuperset([self.queries.name, self.keys.name])
        if finite and (not self.masks or self.about_mask is not None):
            return "none"
        if self.shares.guarded and not (finite and self.known.finite.issuperset(m.name for m in self.masks)):
            raise UnreadError
        return "nan"

    def written(self, sharing: bool) -> str:
        """The attention as a term, heads of keys and values shared, or repeated."""
        heads, one = [*self.heads, *self.repeats], self.heads
        q = self._arranged(self.queries, [self.batch, heads, self.length, self.depth])
        k, v = (
            self._arranged(leaf, [self.batch, one, self.along, last])
            for leaf, last in ((self.keys, self.depth), (self.values, self.width))
        )
        if self.repeats and not sharing:
            k, v = (self._repeated(leaf, last) for leaf, last in ((self.keys, self.depth), (self.values, self.width)))
        masks = [self._mask(mask) for mask in self.masks]
        added = masks[0] if len(masks) == 1 else f"add({', '.join(masks)})" if masks else ""
        operands = ", ".join([q, k, v, *([added] if added else [])])
        text = f"attention({operands}, scale={self.scores.scale!r}, causal=False, hidden={self._hidden()!r})"
        made = [self.batch, heads, self.length, self.width]
        return self._moved(text, [tuple(group) for group in made], [self.indices.flat(a) for a in self.left.axes])

    def _mask(self, mask: IndexedOperand) -> str:
        held = set(self._flat(mask.axes))
        groups = []
        for group in (self.batch, [*self.heads, *self.repeats], self.length, self.along):
            some = [i for i in group if i in held]
            if some and some != list(group):
                raise UnreadError
            groups.append(some)
        return self._arranged(mask, groups)

    def _repeated(self, leaf: IndexedOperand, last: Sequence[int]) -> str:
        """Keys or values with each head as often as it is shared."""
        groups = [self.batch, self.heads, [], self.along, list(last)]
        shape = [self._size(g) for g in (self.batch, self.heads, self.repeats, self.along, last)]
        spread = f"expand({self._arranged(leaf, groups)}, shape=({', '.join(map(str, shape))}))"
        whole = [shape[0], shape[1] * shape[2], *shape[3:]]
        return f"reshape({spread}, shape=({', '.join(map(str, whole))}))"

    def _size(self, group: Sequence[int]) -> int:
        return self.indices.size(tuple(group))

    def _arranged(self, leaf: IndexedOperand, groups: Sequence[Sequence[int]]) -> str:
        return self._moved(leaf.name, [self.indices.flat(a) for a in leaf.axes], [tuple(g) for g in groups])

    def _moved(self, text: str, axes: Sequence[Axis], groups: Sequence[Axis]) -> str:
        """A tensor with axes of these indices as one whose axes are other groups of them."""
        if list(axes) == list(groups):
            return text
        flat, wanted = ([i for group in some for i in group] for some in (axes, groups))
        if set(flat) != set(wanted) or len(flat) != len(wanted):
            raise UnreadError
        # Axes that are moved whole keep those of size 1 beside them, as exporters move heads.
        apart = sorted((group for group in groups if group), key=lambda group: flat.index(group[0]))
        if [i for group in apart for i in group] != flat:
            whole = [(i,) for i in flat]
            moved = self._transposed(self._reshaped(text, axes, whole), whole, [(i,) for i in wanted])
            return self._reshaped(moved, [(i,) for i in wanted], groups)
        left = iter(apart)
        ordered = [next(left) if group else () for group in groups]
        return self._transposed(self._reshaped(text, axes, ordered), ordered, groups)

    def _transposed(self, text: str, axes: Sequence[Axis], groups: Sequence[Axis]) -> str:
        """A tensor with its axes in another order; those of size 1 stay where they are."""
        perm = tuple(axes.index(group) if group else place for place, group in enumerate(groups))
        return text if perm == tuple(range(len(perm))) else f"transpose({text}, perm={perm!r})"

    def _reshaped(self, text: str, axes: Sequence[Axis], groups: Sequence[Axis]) -> str:
        """A tensor with the same indices in the same order, in other axes."""
        if list(axes) == list(groups):
            return text
        shape = "".join(f"{self._size(group)}, " for group in groups)
        return f"reshape({text}, shape=({shape.rstrip() if len(groups) == 1 else shape.rstrip(', ')}))"
