"""Named dims as values of the model: read from shapes and computed by integer operators."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Protocol

from onnx import TensorProto

from eqsat.errors import ExportModelError
from eqsat.language.declaration.symbolic import at_least
from eqsat.language.terms import Dim, DType, Graph, Shape, Sym, TensorType, ValueType
from eqsat.language.terms.dims import linear_in


class NodeWriter(Protocol):
    """A model that grows by nodes and initializers."""

    graph: Graph
    opset: int

    def fresh(self, stem: str, /) -> str:
        """A name that no value has."""

    def parameter(self, array: Any, dtype: DType) -> str:
        """The name of an initializer."""

    def add(self, op_type: str, inputs: Sequence[str], outputs: Sequence[str], label: str = "", **attrs: Any) -> None:
        """Add a node."""


class DimsWriter:
    """Vectors of int64 with the sizes that named dims have when the model runs; each is computed once."""

    def __init__(self, model: NodeWriter) -> None:
        self._model = model
        self._sources: dict[Dim, tuple[str, int, int]] = {}
        self._shapes: dict[Shape, str] = {}
        self._known: dict[Dim, str] = {}
        self._vectors: dict[Shape, str] = {}
        self._narrow: dict[Dim, str] = {}

    def offer(self, name: str, type: ValueType) -> None:
        """Make known a value whose shape may be read from here on."""
        if not isinstance(type, TensorType) or type.shape is None or type.is_static:
            return
        self._shapes.setdefault(type.shape, name)
        for axis, dim in enumerate(type.shape):
            if isinstance(dim, Sym):
                self._sources.setdefault(dim, (name, axis, len(type.shape)))

    def vector(self, dims: Sequence[Dim]) -> str:
        """A vector with these elements."""
        shape = tuple(dims)
        if shape not in self._vectors:
            self._vectors[shape] = self._vector(shape)
        return self._vectors[shape]

    def narrow(self, dim: Dim) -> str:
        """A vector of one int32 with a dim."""
        if dim not in self._narrow:
            self._narrow[dim] = self._make("Cast", self.vector((dim,)), to=TensorProto.INT32)
        return self._narrow[dim]

    def _vector(self, shape: Shape) -> str:
        if not any(isinstance(d, Sym) for d in shape):
            return self._model.parameter(list(shape), DType.INT64)
        if shape in self._shapes:
            return self._make("Shape", self._shapes[shape])
        parts: list[str] = []
        for symbolic, group in groupby(shape, lambda d: isinstance(d, Sym)):
            if symbolic:
                parts += [self._element(d) for d in group]
            else:
                parts.append(self._model.parameter(list(group), DType.INT64))
        return parts[0] if len(parts) == 1 else self._make("Concat", *parts, axis=0)

    def _element(self, dim: Dim) -> str:
        """A vector with one element."""
        if not isinstance(dim, Sym):
            return self._model.parameter([dim], DType.INT64)
        if dim not in self._known:
            self._known[dim] = self._read(dim) if dim in self._sources else self._computed(dim)
        return self._known[dim]

    def _read(self, dim: Dim) -> str:
        name, axis, _ = self._sources[dim]
        if self._model.opset >= 15:
            return self._make("Shape", name, start=axis, end=axis + 1)
        shape = self._make("Shape", name)
        return self._make("Gather", shape, self._model.parameter([axis], DType.INT64), axis=0)

    def _computed(self, dim: Sym) -> str:
        total: str | None = None
        for monomial, coefficient in dim.terms:
            product: str | None = None
            for atom, power in monomial:
                for _ in range(power):
                    factor = self._atom(atom)
                    product = factor if product is None else self._make("Mul", product, factor)
            if product is None or coefficient != 1:
                number = self._model.parameter([coefficient], DType.INT64)
                product = number if product is None else self._make("Mul", product, number)
            total = product if total is None else self._make("Add", total, product)
        return total or self._model.parameter([0], DType.INT64)

    def _atom(self, atom: str | tuple[str, Dim, Dim]) -> str:
        if isinstance(atom, str):
            named = Sym.named(atom)
            if named in self._known:
                return self._known[named]
            if named not in self._sources:
                solved = self._solved(atom)
                if solved is not None:
                    return solved
                raise ExportModelError(
                    f"no value that comes before shows how large dim {atom!r} is",
                    where=self._model.graph.name,
                    expected="an input or a value with that dim",
                    remedy="name the dim in the shape of an input",
                )
            return self._element(named)
        name, a, b = atom
        left, right = self._element(a), self._element(b)
        match name:
            case "floordiv":
                return self._floordiv(a, left, right)
            case "mod":
                return self._make("Mod", left, right)
            case "max" | "min":
                larger = self._make("Greater" if name == "max" else "Less", left, right)
                return self._make("Where", larger, left, right)
        one = self._make("Equal", right, self._model.parameter([1], DType.INT64))
        return self._make("Where", one, left, right)

    def _solved(self, name: str) -> str | None:
        """A vector with a dim that no shape holds as it is, from one that holds a multiple of it plus known dims."""
        for dim in self._sources:
            parts = linear_in(dim, name)
            if parts is None:
                continue
            factor, rest = parts
            if isinstance(rest, Sym) and any(Sym.named(n) not in self._sources for n in rest.names()):
                continue
            # The last step divides evenly, so that it does not matter which way it rounds.
            named = Sym.named(name)
            top = self._make("Sub", self._element(dim), self._element(rest))
            divisor = self._model.parameter([factor], DType.INT64)
            self._known[named] = top if factor == 1 else self._make("Div", top, divisor)
            return self._known[named]
        return None

    def _floordiv(self, a: Dim, left: str, right: str) -> str:
        """ONNX divides integers toward zero; a numerator that may be negative is first made to divide evenly."""
        if not at_least(a, 0):
            left = self._make("Sub", left, self._make("Mod", left, right))
        return self._make("Div", left, right)

    def _make(self, op_type: str, *inputs: str, **attrs: Any) -> str:
        name = self._model.fresh(f"dims/{op_type}")
        self._model.add(op_type, inputs, [name], **attrs)
        return name
