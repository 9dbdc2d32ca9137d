"""Conditions that a graph's operators put on the sizes of its named dims, read from types and attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from eqsat.language.ops import OPS
from eqsat.language.terms.dims import Atom, Dim, Sym, evaluate, product
from eqsat.language.terms.graph import OPAQUE, Attrs, Graph, Node
from eqsat.language.terms.types import Shape, TensorType

#: "equal": a = b; "at_least": a >= b; "extends": a = b or a = 1, as an operand that is repeated to a result;
#: "joins": a = b, or one of them is 1; "grows": a = b or a <= 0, as what a cache lacks for so many new positions;
#: "present": a >= 0, and 1 or more where every tensor is to have elements.
Kind: TypeAlias = Literal["equal", "at_least", "extends", "grows", "joins", "present"]

#: Constants of indices with more elements are not looked into.
_MOST_INDICES = 1 << 16
#: Operators that hand the elements of their first operand on, in another shape or type.
_HANDING_ON = frozenset({"reshape", "expand", "transpose", "cast", "identity", "slice", "tile", "split"})
#: Operators whose results have no place for a window that does not fit.
_WINDOWED = frozenset({"conv", "max_pool", "avg_pool", "lp_pool"})


@dataclass(frozen=True, slots=True)
class Constraint:
    """A condition on two dims, at least one of them named."""

    kind: Kind
    a: Dim
    b: Dim = 0

    @property
    def names(self) -> frozenset[str]:
        """The names that decide it."""
        return names_of((self.a, self.b))

    def holds(self, sizes: Mapping[str, int], *, elements: bool = False) -> bool:
        """Whether the sizes meet it; with `elements` no tensor may be empty."""
        return bool(self.met(evaluate(self.a, sizes), evaluate(self.b, sizes), elements=elements))

    def met(self, a: Any, b: Any, *, elements: bool = False, equal: bool = False) -> Any:
        """Whether numbers, or each of an array of numbers, meet it; `equal` asks that nothing is repeated."""
        match self.kind:
            case "equal":
                return a == b
            case "at_least":
                return a >= b
            case "present":
                return a >= int(elements)
            case "grows":
                return (a == b) | (a <= 0)
            case "extends":
                return (a == b) if equal else (a == b) | (a == 1)
        return (a == b) if equal else (a == b) | (a == 1) | (b == 1)


def names_of(dims: Iterable[Dim]) -> frozenset[str]:
    """Every name that dims depend on."""
    return frozenset().union(*(d.names() for d in dims if isinstance(d, Sym)))


def constraints_of(graph: Graph) -> tuple[Constraint, ...]:
    """The conditions of a graph's nodes on its named dims, each once, in the order of the nodes."""
    found: dict[Constraint, None] = {}
    seen: set[Dim] = set()

    def dims(shape: Iterable[Any]) -> None:
        for dim in shape:
            if isinstance(dim, Sym) and dim not in seen:
                seen.add(dim)
                found.setdefault(Constraint("present", dim))
                found.update(dict.fromkeys(_within(dim, seen)))

    for value in graph.inputs:
        declared = graph.type(value)
        dims(declared.shape or () if isinstance(declared, TensorType) else ())
    for node in graph.nodes:
        results = [_tensor(graph, v) for v in node.outputs]
        for result in results:
            dims((result.shape or ()) if result is not None else ())
        if node.op == OPAQUE or node.op not in OPS:
            continue
        operands = [_tensor(graph, v) for v in node.inputs]
        for name in ("shape", "sizes", "repeats", "size", "total"):
            given = node.attrs.get(name, ())
            dims(given if isinstance(given, tuple) else (given,))
        for constraint in _of_node(graph, node, operands, results):
            if constraint.a != constraint.b and constraint.names:
                found.setdefault(constraint)
    return tuple(found)


def _tensor(graph: Graph, value: str | None) -> TensorType | None:
    found = graph.type(value) if value else None
    return found if isinstance(found, TensorType) else None


def _within(dim: Sym, seen: set[Dim]) -> Iterator[Constraint]:
    """Conditions of the functions that a dim is made of."""
    for monomial, _ in dim.terms:
        for atom, _power in monomial:
            yield from _of_atom(atom, seen)


def _of_atom(atom: Atom, seen: set[Dim]) -> Iterator[Constraint]:
    if isinstance(atom, str):
        return
    name, a, b = atom
    if name == "broadcast":
        yield Constraint("joins", a, b)
    if name in ("floordiv", "mod") and isinstance(b, Sym):
        yield Constraint("at_least", b, 1)
    for part in (a, b):
        if isinstance(part, Sym) and part not in seen:
            seen.add(part)
            yield from _within(part, seen)


Types: TypeAlias = Sequence[TensorType | None]


def _of_node(graph: Graph, node: Node, operands: Types, results: Types) -> Iterator[Constraint]:
    """Conditions of one operator; nothing where a rank is not known."""
    rule = _RULES.get(node.op)
    if any(t is not None and t.shape is None for t in (*operands, *results)):
        return
    if rule is not None and operands and operands[0] is not None and results[0] is not None:
        yield from rule([t.dims if t is not None else () for t in operands], results[0].dims, node.attrs)
    if OPS[node.op].pointwise and results[0] is not None:
        for operand in operands:
            if operand is not None:
                yield from _extends(operand.dims, results[0].dims)
    if node.op in _WINDOWED and results[0] is not None:
        yield from (Constraint("at_least", d, 1) for d in results[0].dims[2:] if isinstance(d, Sym))
    if node.op == "gather" and operands[0] is not None:
        yield from _of_indices(graph, node, operands[0].dims)


def _extends(operand: Shape, result: Shape) -> Iterator[Constraint]:
    """Conditions under which an operand is repeated to a result, aligned at the last axis."""
    for a, b in zip(reversed(operand), reversed(result), strict=False):
        if a not in (1, b):
            yield Constraint("extends", a, b)


def _reshape(operands: Sequence[Shape], result: Shape, attrs: Attrs) -> Iterator[Constraint]:
    yield Constraint("equal", product(operands[0]), product(attrs["shape"]))


def _split(operands: Sequence[Shape], result: Shape, attrs: Attrs) -> Iterator[Constraint]:
    total: Dim = 0
    for size in attrs["sizes"]:
        total = total + size
    yield Constraint("equal", operands[0][attrs["axis"]], total)


def _concat(operands: Sequence[Shape], result: Shape, attrs: Attrs) -> Iterator[Constraint]:
    axis = attrs["axis"] % len(result)
    for shape in operands:
        for at, (a, b) in enumerate(zip(shape, result, strict=True)):
            if at != axis:
                yield Constraint("equal", a, b)


def _matmul(operands: Sequence[Shape], result: Shape, attrs: Attrs) -> Iterator[Constraint]:
    a, b = operands[:2]
    if attrs.get("trans_a"):
        a = a[::-1]
    if attrs.get("trans_b"):
        b = b[::-1]
    yield Constraint("equal", a[-1], b[0] if len(b) == 1 else b[-2])
    batch = result[: max(len(a), len(b)) - 2]
    yield from _extends(a[:-2], batch)
    yield from _extends(b[:-2], batch)
    if len(operands) > 2:
        yield from _extends(operands[2], result)


def _conv(operands: Sequence[Shape], result: Shape, attrs: Attrs) -> Iterator[Constraint]:
    yield Constraint("equal", operands[0][1], operands[1][1] * attrs["group"])


def _expand(operands: Sequence[Shape], result: Shape, attrs: Attrs) -> Iterator[Constraint]:
    yield from _extends(operands[0], result)
    yield from _extends(attrs["shape"], result)


def _slice(operands: Sequence[Shape], result: Shape, attrs: Attrs) -> Iterator[Constraint]:
    """Bounds that are computed count from the left; below 0 they would count from the right when the model runs."""
    steps = attrs["steps"] or (1,) * len(attrs["axes"])
    for start, end, step in zip(attrs["starts"], attrs["ends"], steps, strict=True):
        yield Constraint("at_least", start, 0)
        if step > 0:
            yield Constraint("at_least", end, 0)


def _pad(operands: Sequence[Shape], result: Shape, attrs: Attrs) -> Iterator[Constraint]:
    rank = len(result)
    if attrs["mode"] != "reflect":
        return
    for axis, dim in enumerate(operands[0]):
        for pad in (attrs["pads"][axis], attrs["pads"][rank + axis]):
            if pad != 0:
                yield Constraint("at_least", dim, pad + 1)


def _topk(operands: Sequence[Shape], result: Shape, attrs: Attrs) -> Iterator[Constraint]:
    axis = attrs.get("axis", -1) % len(result)
    yield Constraint("at_least", operands[0][axis], result[axis])


def _moved(operands: Sequence[Shape], result: Shape, attrs: Attrs) -> Iterator[Constraint]:
    """As many elements after as before, which is what blocks that must divide the axes come to."""
    yield Constraint("equal", product(operands[0]), product(result))


def _trailing(operands: Sequence[Shape], result: Shape, attrs: Attrs) -> Iterator[Constraint]:
    for shape in operands[1:]:
        yield from _extends(shape, result)


def _grouped(operands: Sequence[Shape], result: Shape, attrs: Attrs) -> Iterator[Constraint]:
    """A cache grows by the new positions or has room for them; after earlier ones, several are new in one sequence."""
    batch, length, total = *operands[0][:2], attrs["total"]
    past = operands[4][2] if len(operands) > 4 and operands[4] else 0
    yield Constraint("at_least", total, length)
    yield Constraint("grows", total - past, length)
    yield Constraint("equal", (batch - 1) * (length - 1) * (total - length), 0)


_RULES: Mapping[str, Callable[[Sequence[Shape], Shape, Attrs], Iterator[Constraint]]] = {
    "reshape": _reshape,
    "split": _split,
    "concat": _concat,
    "matmul": _matmul,
    "gemm": _matmul,
    "conv": _conv,
    "expand": _expand,
    "slice": _slice,
    "pad": _pad,
    "topk": _topk,
    "space_to_depth": _moved,
    "depth_to_space": _moved,
    "layer_norm": _trailing,
    "rms_norm": _trailing,
    "grouped_attention": _grouped,
}


def _of_indices(graph: Graph, node: Node, shape: Shape) -> Iterator[Constraint]:
    """Indices known ahead lie in the axis they select from."""
    size = shape[node.attrs["axis"] % len(shape)]
    source = handed_on(graph, node.inputs[1])
    constant = graph.constants.get(source)
    if constant is not None:
        if (
            isinstance(size, Sym)
            and constant.type.dtype.is_integer
            and 0 < np.prod(constant.type.static) < _MOST_INDICES
        ):
            array = constant.array
            yield Constraint("at_least", size, max(int(array.max()) + 1, -int(array.min())))
        return
    maker = graph.producers.get(source)
    if maker is not None and maker.op == "iota":
        start, step, count = (maker.attrs[k] for k in ("start", "step", "size"))
        if all(isinstance(v, int | Sym) for v in (start, step, count)):
            yield Constraint("at_least", size, start + 1)
            yield Constraint("at_least", size, start + step * (count - 1) + 1)


def handed_on(graph: Graph, value: str | None) -> str:
    """The value that this one has its elements from, through operators that only move or convert them."""
    name = value or ""
    while (maker := graph.producers.get(name)) is not None and maker.op in _HANDING_ON and maker.inputs[0]:
        name = maker.inputs[0]
    return name
