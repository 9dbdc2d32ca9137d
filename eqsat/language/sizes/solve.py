"""Sizes of a graph's named dims that its operators accept, solved for from types and attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from eqsat.errors import EqsatError
from eqsat.language.graphs.interpret import concrete
from eqsat.language.ops import OPS
from eqsat.language.sizes.constraints import constraints_of
from eqsat.language.sizes.search import Exhausted, Order, SizeSearch, proved
from eqsat.language.terms import OPAQUE, Constraint, Dim, Graph, Node, Sym, TensorType, evaluate
from eqsat.system.deadline import check, watched

#: What a named dim is taken to be where nobody says: this, or the next size above that the model accepts.
DEFAULT_SIZE = 16
#: Where dims start that are to differ from each other, as far as they may.
_DISTINCT = (3, 5, 7, 11, 13)
#: Where dims are started that an operator refused otherwise, and that are tried where nothing says what it accepts.
_STARTS = (DEFAULT_SIZE, 32, 64, 1, 8, 128, 96, 160, 224, 256, 320, 512, 640, 1024, 2, 4)


@dataclass(frozen=True)
class Sizing:
    """The named dims of a graph, and the assignments of sizes to them that its operators accept.

    `names` are all of them, those of inputs first. `unread` says why the constraints may not be all there are: what a
    node that is kept as it is accepts, or one of a rank that is not known, nobody can say before it is run.

    >>> from eqsat.language.graphs.builder import Builder
    >>> g = Builder("g")
    >>> x = g.input("x", ("n",))
    >>> g.output("y", g.apply("reshape", x, shape=(2, Sym.named("n") // 2)))
    >>> sizing_of(g.build()).near({"n": 7})
    {'n': 8}
    """

    graph: Graph
    names: tuple[str, ...]
    constraints: tuple[Constraint, ...]
    unread: str | None
    _given_up: set[tuple[tuple[Constraint, ...], bool, bool]] = field(default_factory=set, compare=False, repr=False)

    @staticmethod
    def of(graph: Graph) -> Sizing:
        """The sizing of a graph; `sizing_of` computes it once a graph."""
        names: dict[str, None] = {}
        for value in (*graph.inputs, *graph.types):
            for dim in _dims(graph, value):
                names.update(dict.fromkeys(_ordered(dim)))
        constraints = constraints_of(graph) if names else ()
        for constraint in constraints:
            names.update(dict.fromkeys(sorted(constraint.names)))
        return Sizing(graph, tuple(names), constraints, _unread(graph) if names else None)

    @cached_property
    def _open(self) -> tuple[Node, ...]:
        """The nodes that sizes make a difference to: those with operands or results that are not of one shape."""
        types = self.graph.types.items()
        values = {v for v, t in watched(types) if isinstance(t, TensorType) and not t.is_static}
        if not values:
            return ()
        return tuple(n for n in watched(self.graph.nodes) if not values.isdisjoint((*n.inputs, *n.outputs)))

    @cached_property
    def labels(self) -> Mapping[str, str]:
        """The label of each dim that an input shows: its name, or where it has none, its input and axis, as x[2]."""
        labels: dict[str, str] = {}
        for value in self.graph.inputs:
            for axis, dim in enumerate(_dims(self.graph, value)):
                for name in _ordered(dim):
                    plain = dim == Sym.named(name) and name.startswith("?")
                    labels.setdefault(name, f"{value}[{axis}]" if plain else name)
        return labels

    def describe(self, sizes: Mapping[str, int]) -> str:
        """Sizes as messages show them, those of inputs alone: "batch=1, length=64"."""
        return ", ".join(f"{label}={sizes[name]}" for name, label in self.labels.items() if name in sizes)

    def named(self, wanted: Mapping[str, int]) -> dict[str, int]:
        """Sizes by name for sizes by name or label."""
        known = {label: name for name, label in self.labels.items()}
        return {known.get(key, key): size for key, size in wanted.items()}

    def near(self, wanted: Mapping[str, int] | None = None, default: int = DEFAULT_SIZE) -> dict[str, int] | None:
        """The accepted sizes nearest to those wanted, the first ones first.

        Dims that are not named there are `default`, or what is accepted next above it, or below. None where the
        constraints leave nothing, or where it is not known whether they do.
        """
        given = self.named(wanted or {})
        starts = (default, *(s for s in _STARTS if s != default))
        for start in starts if self.names else (default,):
            sizes = self._solved(self.constraints, self._orders(given, [start]))
            if sizes is not None and self.accepts(sizes):
                return sizes
        return None

    def completed(self, given: Mapping[str, int]) -> dict[str, int]:
        """The sizes that are given, as they are, and accepted ones beside them for the names that are missing."""
        sizes = self.named(given)
        if all(name in sizes for name in self.names):
            return sizes
        return {**dict.fromkeys(self.names, DEFAULT_SIZE), **(self.near(sizes) or {}), **sizes}

    def smallest(self) -> dict[str, int] | None:
        """The smallest accepted sizes at which no tensor is empty where that can be; None as in `near`."""
        return self.near({}, 1)

    def distinct(self, wanted: Mapping[str, int] | None = None) -> dict[str, int] | None:
        """Small accepted sizes that differ from each other where they may; those wanted as in `near`."""
        sizes = self._solved(self.constraints, self._orders(self.named(wanted or {}), _DISTINCT))
        return sizes if sizes is not None and self.accepts(sizes) else self.near(wanted, _DISTINCT[0])

    def several(self, wanted: Mapping[str, int] | None = None) -> list[dict[str, int]]:
        """Assignments to check a result at: a general one, near what is wanted, and the smallest; none is [{}]."""
        if not self.names:
            return [{}]
        assignments = [s for s in (self.distinct(wanted), self.smallest()) if s is not None]
        return assignments[:1] if len(assignments) == 2 and assignments[0] == assignments[1] else assignments

    def trials(self, wanted: Mapping[str, int] | None = None) -> Iterator[dict[str, int]]:
        """Sizes of the dims that inputs show, to try where only running the model says what it accepts, each once."""
        given = self.named(wanted or {})
        free = [n for n in self.labels if n not in given]
        shapes = [_dims(self.graph, v) for v in self.graph.inputs]
        first = {n for shape in shapes for d in shape[:1] for n in _ordered(d)}
        last = {n for shape in shapes for d in shape[1:][-1:] for n in _ordered(d)}
        known = tuple(c for c in self.constraints if c.names <= self.labels.keys())
        seen: set[tuple[int, ...]] = set()
        for start in _STARTS:
            # One row; one of whatever is not the last axis, as batches of states are; all dims alike.
            for single in (first, set(free) - last, ()):
                orders = {n: o for n, o in self._orders(given, [start]).items() if n in self.labels}
                orders |= {n: ("from", 1) for n in free if n in single}
                sizes = self._solved(known, orders)
                key = () if sizes is None else tuple(sizes.values())
                if sizes is not None and key not in seen:
                    seen.add(key)
                    yield sizes

    def accepts(self, sizes: Mapping[str, int]) -> bool:
        """True if every operator that can be looked into takes its operands at these sizes, and makes what it says."""
        try:
            if not all(c.holds(sizes) for c in self.constraints):
                return False
            for node in self._open:
                check()
                if not _takes(self.graph, node, sizes):
                    return False
            return True
        except ZeroDivisionError:
            return False

    def _orders(self, given: Mapping[str, int], starts: Sequence[int]) -> dict[str, Order]:
        """Preferences by name, those that are given first."""
        orders: dict[str, Order] = {n: ("near", size) for n, size in given.items() if n in self.names}
        place = {name: index for index, name in enumerate(sorted(set(self.names) - orders.keys()))}
        for name in self.names:
            if name in place:
                orders[name] = ("from", starts[place[name] % len(starts)])
        return orders

    def _solved(self, constraints: tuple[Constraint, ...], orders: Mapping[str, Order]) -> dict[str, int] | None:
        """An assignment that meets constraints: without repeated or empty tensors where there is one such."""
        for elements, equal in ((True, True), (True, False), (False, False)):
            try:
                sizes = SizeSearch(constraints, elements, equal).first(orders)
            except Exhausted:
                # Z3 looks for any assignment before one near the wishes: where it found none, it does for no wishes.
                question = (constraints, elements, equal)
                sizes = None
                if question not in self._given_up:
                    sizes = proved(constraints, orders, elements=elements, equal=equal)
                if sizes is None:
                    self._given_up.add(question)
            if sizes is not None:
                return {name: sizes[name] for name in orders}
        return None


def sizing_of(graph: Graph) -> Sizing:
    """The sizes of named dims that a graph's operators accept, computed once a graph."""
    return graph.derived(Sizing.of)


def _dims(graph: Graph, value: str) -> tuple[Dim, ...]:
    declared = graph.type(value)
    return (declared.shape or ()) if isinstance(declared, TensorType) else ()


def _ordered(dim: Dim) -> list[str]:
    return sorted(dim.names()) if isinstance(dim, Sym) else []


def _unread(graph: Graph) -> str | None:
    """Why some node may want more of the sizes than its types say, or None."""
    for node in graph.nodes:
        types = [graph.type(v) for v in (*node.inputs, *node.outputs) if v]
        if all(isinstance(t, TensorType) and t.is_static for t in types):
            continue
        if node.op == OPAQUE:
            return f"{node.describe()} is kept as it is"
        if not all(isinstance(t, TensorType) and t.shape is not None for t in types):
            return f"{node.describe()} has operands of unknown rank"
    return None


def _takes(graph: Graph, node: Node, sizes: Mapping[str, int]) -> bool:
    """True if an operator's shape rule takes its operands at these sizes and makes the shapes that are stated."""
    types = [graph.type(v) if v else None for v in node.inputs]
    results = [graph.type(v) if v else None for v in node.outputs]
    declared = OPS.get(node.op)
    if declared is None:
        return True
    if not all(t is None or isinstance(t, TensorType) for t in types):
        return True
    operands = [t.at(sizes) if isinstance(t, TensorType) else None for t in types]
    attrs = type(node.attrs)({name: concrete(value, sizes) for name, value in node.attrs.items()})
    try:
        made = declared.result_types(operands, attrs)
    except (EqsatError, ValueError, IndexError, ZeroDivisionError):
        return False
    return all(
        not isinstance(stated, TensorType) or _agree(result, stated, sizes)
        for result, stated in zip(made, results, strict=True)
    )


def _agree(made: TensorType, stated: TensorType, sizes: Mapping[str, int]) -> bool:
    if made.shape is None or stated.shape is None:
        return True
    if len(made.shape) != len(stated.shape):
        return False
    pairs = zip(made.shape, stated.shape, strict=True)
    return all(not isinstance(m, int) or m == evaluate(s, sizes) for m, s in pairs)
