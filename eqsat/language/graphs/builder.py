"""Building graphs in Python: tensor handles with operators, checked as they are written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np

from eqsat.errors import GraphError, ShapeError
from eqsat.language.declaration import OpSpec
from eqsat.language.graphs.slicing import slicing
from eqsat.language.ops import spec
from eqsat.language.terms import (
    Attrs,
    Constant,
    Dim,
    DType,
    Graph,
    Node,
    Shape,
    Sym,
    TensorType,
    polynomial_quotient,
    product,
)
from eqsat.language.terms.dims import fresh_dims
from eqsat.language.terms.graph import listed

#: An operand: a tensor, or numbers that become a constant.
TensorLike: TypeAlias = "Tensor | float | int | bool | np.generic | np.ndarray[Any, Any] | list[Any]"
#: A dim as users write it: a size, a name, or an expression over dims of other tensors.
DimLike: TypeAlias = "int | str | Sym"


class Builder:
    """A graph under construction; tensors of it are inputs, constants and results of operators.

    >>> import eqsat
    >>> g = eqsat.Graph("double")
    >>> g.output("y", g.input("x", ("batch", 3)) * 2)
    >>> g.build()
    Graph('double', 1 nodes, inputs=['x'], outputs=['y'])
    """

    def __init__(self, name: str = "graph") -> None:
        self.name = name
        self._inputs: list[str] = []
        self._outputs: dict[str, str] = {}
        self._nodes: list[Node] = []
        self._constants: dict[str, Constant] = {}
        self._types: dict[str, TensorType] = {}
        self._known: dict[bytes, str] = {}
        self._counts: dict[str, int] = {}
        self._fresh = fresh_dims()

    def input(self, name: str, shape: Iterable[DimLike | None] | None, dtype: str = "float32") -> Tensor:
        """A tensor given when the program runs; strings are named dims, None a dim of its own, shape None any rank.

        ShapeError for a negative dim, GraphError for a name that is taken.
        """
        dims = None if shape is None else [self._fresh() if d is None else d for d in shape]
        self._define(name, TensorType.of(dtype, dims))
        self._inputs.append(name)
        return Tensor(self, name)

    def constant(self, array: Any, dtype: str | None = None, name: str | None = None) -> Tensor:
        """A tensor known now, of the shape of the array and its element type, or of `dtype`.

        Equal constants become one unless named. GraphError for a name that is taken.
        """
        constant = Constant.of(np.array(array), DType.of(dtype) if dtype is not None else None)
        if name is None and constant.digest in self._known:
            return Tensor(self, self._known[constant.digest])
        value = name or self._unused("constant")
        self._define(value, constant.type)
        self._constants[value] = constant
        self._known.setdefault(constant.digest, value)
        return Tensor(self, value)

    def apply(self, op: str, /, *operands: TensorLike | None, **attrs: Any) -> Any:
        """An operator by name: its tensor, or a tuple of tensors where it makes several.

        ShapeError or GraphError, naming the node and the types of its operands, where they do not fit.
        """
        declared = spec(op)
        tensors = self._operands(declared, operands)
        name = self._unused(op)
        types = [None if t is None else t.type for t in tensors]
        try:
            full = _normal(declared, declared.complete(attrs), types)
            results = declared.result_types(types, full)
        except GraphError as error:
            shapes = ", ".join("nothing" if t is None else str(t) for t in types) or "nothing"
            raise error.at(f"{self.name}: node {name!r} ({op}) of {shapes}") from None
        values = [name] if len(results) == 1 else [f"{name}.{i}" for i in range(len(results))]
        for value, result in zip(values, results, strict=True):
            self._define(value, result)
        inputs = tuple(None if t is None else t.name for t in tensors)
        self._nodes.append(Node(op, inputs, tuple(values), full, name))
        made_tensors = tuple(Tensor(self, v) for v in values)
        return made_tensors[0] if len(made_tensors) == 1 else made_tensors

    def output(self, name: str, tensor: Tensor) -> None:
        """Make a tensor of any shape an output; GraphError for a name that is taken, or a tensor of another graph."""
        if name in self._outputs:
            raise GraphError(f"output {name!r} is defined twice", where=self.name, expected="one tensor an output")
        self._outputs[name] = self._own(tensor).name

    def build(self) -> Graph:
        """The immutable graph built so far; GraphError where no output is named."""
        if not self._outputs:
            raise GraphError("the graph has no output", where=self.name, remedy="name one with .output(name, tensor)")
        return Graph(
            name=self.name,
            inputs=tuple(self._inputs),
            outputs=self._outputs,
            nodes=tuple(self._nodes),
            constants=self._constants,
            types=self._types,
        )

    def __repr__(self) -> str:
        nodes = f"{len(self._nodes)} node{'s' * (len(self._nodes) != 1)} so far"
        return f"Builder({self.name!r}, {nodes}, inputs={self._inputs}, outputs={list(self._outputs)})"

    def _repr_html_(self) -> str:
        return listed(self.name, self._inputs, self._outputs, self._nodes, self.type_of)

    def type_of(self, value: str) -> TensorType:
        """The element type and shape of a value by its name; GraphError for a name that it does not have."""
        if value not in self._types:
            raise GraphError(f"no value {value!r}", where=self.name, expected="the name of one that was made")
        return self._types[value]

    def _define(self, value: str, type: TensorType) -> None:
        if value in self._types:
            raise GraphError(f"value {value!r} is defined twice", where=self.name, expected="one definition a name")
        self._types[value] = type

    def _unused(self, stem: str) -> str:
        while True:
            count = self._counts.get(stem, 0)
            self._counts[stem] = count + 1
            name = f"{stem}_{count}"
            if name not in self._types:
                return name

    def _own(self, tensor: Tensor) -> Tensor:
        if tensor.graph is not self:
            raise GraphError(
                f"tensor {tensor.name!r} belongs to graph {tensor.graph.name!r}",
                where=self.name,
                expected="tensors of one graph",
            )
        return tensor

    def _operands(self, declared: OpSpec, operands: Iterable[TensorLike | None]) -> list[Tensor | None]:
        """Tensors for operands, numbers taking the element type of the other operands."""
        given = list(operands)
        floats = [x.dtype for i, x in enumerate(given) if isinstance(x, Tensor) and i not in declared.dtypes]
        tensors: list[Tensor | None] = []
        for index, operand in enumerate(given):
            if operand is None or isinstance(operand, Tensor):
                tensors.append(None if operand is None else self._own(operand))
            elif isinstance(operand, np.ndarray):
                tensors.append(self.constant(operand))
            else:
                kind = DType.of(declared.dtypes[index]) if index in declared.dtypes else floats[0] if floats else None
                tensors.append(self._promoted(operand, kind, declared.name))
        return tensors

    def _promoted(self, number: Any, dtype: DType | None, op: str) -> Tensor:
        array = np.asarray(number)
        if dtype is None:
            return self.constant(array.astype(np.float32) if array.dtype == np.float64 else array)
        exact = array.astype(dtype.numpy)
        if dtype.is_integer and not np.array_equal(exact, array):
            raise ShapeError(
                f"{number} is no {dtype.value}",
                where=f"{self.name}: operand of {op}",
                expected=f"numbers of element type {dtype.value}",
                remedy="cast the tensor",
            )
        return self.constant(exact, dtype.value)


class Tensor:
    """A value of a graph under construction; arithmetic on it adds nodes. Numbers become constants of its type."""

    __slots__ = ("graph", "name")

    #: NumPy arrays leave operators with a tensor on the right to the tensor.
    __array_ufunc__ = None

    def __init__(self, graph: Builder, name: str) -> None:
        self.graph = graph
        self.name = name

    @property
    def type(self) -> TensorType:
        """Element type and shape."""
        return self.graph.type_of(self.name)

    @property
    def shape(self) -> Shape:
        """The dims; ShapeError where the rank is unknown."""
        return self.type.dims

    @property
    def dtype(self) -> DType:
        """The element type, a DType."""
        return self.type.dtype

    @property
    def rank(self) -> int:
        """The number of dims; ShapeError where it is unknown."""
        return self.type.rank

    def transpose(self, *perm: int) -> Tensor:
        """The tensor with its axes in another order, reversed where none is given (ONNX Transpose).

        Dim i of the result is dim perm[i]. ShapeError where `perm` does not name every axis once.
        """
        axes = perm or tuple(reversed(range(self.rank)))
        return self._apply("transpose", self, perm=tuple(a + self.rank if a < 0 else a for a in axes))

    def reshape(self, *shape: DimLike) -> Tensor:
        """The elements in row-major order under another shape; one dim may be -1, which stands for what is left.

        ShapeError where the numbers of elements differ, or what is left is not known. Source: ONNX Reshape.

        >>> import eqsat
        >>> eqsat.Graph().input("x", ("n", 6, 4)).reshape("n", 2, -1).shape
        (Sym('n'), 2, 12)
        """
        dims: list[Dim] = [Sym.named(d) if isinstance(d, str) else d for d in shape]
        if dims.count(-1) > 1:
            raise ShapeError(f"reshape to {list(shape)}", expected="at most one -1")
        if -1 in dims:
            rest = product(d for d in dims if d != -1)
            left = polynomial_quotient(self.type.size, rest)
            if left is None:
                raise ShapeError(
                    f"reshape of {self.name!r}, {self.type}, to {list(shape)}",
                    where=self.graph.name,
                    expected=f"a number of elements that {rest} divides",
                    remedy="give every dim",
                )
            dims[dims.index(-1)] = left
        return self._apply("reshape", self, shape=tuple(dims))

    def cast(self, dtype: str) -> Tensor:
        """The elements in another element type, a tensor of the same shape (ONNX Cast).

        To an integer they are truncated toward zero.
        """
        return self._apply("cast", self, to=DType.of(dtype).value)

    def _apply(self, op: str, *operands: TensorLike, **attrs: Any) -> Tensor:
        tensor: Tensor = self.graph.apply(op, *operands, **attrs)
        return tensor

    def __add__(self, other: TensorLike) -> Tensor:
        return self._apply("add", self, other)

    def __radd__(self, other: TensorLike) -> Tensor:
        return self._apply("add", other, self)

    def __sub__(self, other: TensorLike) -> Tensor:
        return self._apply("sub", self, other)

    def __rsub__(self, other: TensorLike) -> Tensor:
        return self._apply("sub", other, self)

    def __mul__(self, other: TensorLike) -> Tensor:
        return self._apply("mul", self, other)

    def __rmul__(self, other: TensorLike) -> Tensor:
        return self._apply("mul", other, self)

    def __truediv__(self, other: TensorLike) -> Tensor:
        return self._apply("div", self, other)

    def __rtruediv__(self, other: TensorLike) -> Tensor:
        return self._apply("div", other, self)

    def __pow__(self, other: TensorLike) -> Tensor:
        return self._apply("pow", self, other)

    def __rpow__(self, other: TensorLike) -> Tensor:
        return self._apply("pow", other, self)

    def __matmul__(self, other: TensorLike) -> Tensor:
        return self._apply("matmul", self, other)

    def __rmatmul__(self, other: TensorLike) -> Tensor:
        return self._apply("matmul", other, self)

    def __neg__(self) -> Tensor:
        return self._apply("neg", self)

    def __abs__(self) -> Tensor:
        return self._apply("abs", self)

    def __lt__(self, other: TensorLike) -> Tensor:
        return self._apply("less", self, other)

    def __le__(self, other: TensorLike) -> Tensor:
        return self._apply("less_equal", self, other)

    def __gt__(self, other: TensorLike) -> Tensor:
        return self._apply("greater", self, other)

    def __ge__(self, other: TensorLike) -> Tensor:
        return self._apply("greater_equal", self, other)

    def __getitem__(self, index: Any) -> Tensor:
        shape = self.shape
        cuts, axes = slicing(index if isinstance(index, tuple) else (index,), shape, self, self.graph.name)
        cut = self
        if cuts:
            starts, ends, cut_axes, steps = zip(*cuts, strict=True)
            cut = self._apply("slice", self, starts=starts, ends=ends, axes=cut_axes, steps=steps)
        if axes == tuple(range(len(shape))):
            return cut
        return cut.reshape(*(1 if axis is None else cut.shape[axis] for axis in axes))

    def __iter__(self) -> Iterator[Tensor]:
        size = self.shape[0] if self.shape else None
        if not isinstance(size, int):
            raise ShapeError(f"cannot iterate over {self.name!r}, {self.type}", expected="a first dim of known size")
        return (self[i] for i in range(size))

    def __bool__(self) -> bool:
        raise GraphError(
            f"{self.name!r} has no truth value before the program runs",
            remedy="choose with eqsat.where(condition, a, b)",
        )

    def __repr__(self) -> str:
        return f"Tensor({self.name!r}, {self.type})"


def _normal(declared: OpSpec, attrs: Attrs, types: list[TensorType | None]) -> Attrs:
    """The attributes with axes counted from the left, where the rank of the first operand says how."""
    first = types[0] if types else None
    if first is None or first.shape is None:
        return attrs
    rank = first.rank + declared.adds_axis
    changed: dict[str, Any] = {}
    if isinstance(attrs.get("axis"), int) and -rank <= attrs["axis"] < 0:
        changed["axis"] = attrs["axis"] + rank
    axes = attrs.get("axes")
    if isinstance(axes, tuple) and any(-rank <= a < 0 for a in axes):
        changed["axes"] = tuple(a + rank if -rank <= a < 0 else a for a in axes)
    return attrs | changed if changed else attrs
