"""The interface of import functions: the node that each translates, and ways to add operators to the graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np
from onnx import NodeProto

from eqsat.language.declaration import normal_axis
from eqsat.language.graphs.fold import Folder
from eqsat.language.onnx.files.protos import attributes
from eqsat.language.onnx.files.schemas import declared_as
from eqsat.language.terms import Array, Attrs, Constant, Dim, DType, Node, Shape, Sym, TensorType, ValueType


class Unsupported(Exception):  # noqa: N818  (nothing is wrong)
    """The node has no counterpart among the operators and stays opaque; the text says why."""


class Unreadable(Unsupported):
    """The node stays opaque also where ONNX defines its operator by others: that definition says something else."""


class Call:
    """One ONNX node to translate; operands by index, attributes by name; `read` are all values that anything reads."""

    def __init__(
        self, node: NodeProto, opset: int, folder: Folder, fresh_name: Callable[[str], str], read: Set[str]
    ) -> None:
        self.node = node
        self._read = read
        self.opset = opset
        self.attrs = attributes(node)
        self._folder = folder
        self._fresh_name = fresh_name
        #: Values whose elements the translation rests on.
        self.looked_at: set[str] = set()

    @property
    def op(self) -> str:
        """The operator that is declared as the node's; Unsupported where none is."""
        declared = declared_as(self.node.op_type)
        if declared is None:
            raise Unsupported(f"no operator is declared as {self.node.op_type}")
        return declared

    @property
    def arity(self) -> int:
        """The number of operands, left-out ones in between included."""
        return len(self.node.input)

    def has(self, index: int) -> bool:
        """True where the operand is given."""
        return index < len(self.node.input) and bool(self.node.input[index])

    def value(self, index: int) -> str:
        """The operand; Unsupported where it is left out."""
        if not self.has(index):
            raise Unsupported(f"input {index} is left out")
        return str(self.node.input[index])

    def optional(self, index: int) -> str | None:
        """The operand, or None where it is left out."""
        return self.node.input[index] if self.has(index) else None

    def type(self, index: int) -> TensorType:
        """The type of an operand; Unsupported where it is no tensor."""
        return self.type_of(self.value(index))

    def type_of(self, value: str) -> TensorType:
        """The type of a value; Unsupported where it is no tensor."""
        type = self._folder.type(value)
        if not isinstance(type, TensorType):
            raise Unsupported(f"the type of {value!r} is {type}")
        return type

    def shape(self, index: int) -> Shape:
        """The shape of an operand; Unsupported where its rank is unknown."""
        shape = self.type(index).shape
        if shape is None:
            raise Unsupported(f"the rank of {self.value(index)!r} is unknown")
        return shape

    def size(self, index: int, axis: int) -> int:
        """A dim of an operand; Unsupported where it is known by name only."""
        dim = self.shape(index)[axis]
        if isinstance(dim, Sym):
            raise Unsupported(f"dim {axis} of {self.value(index)!r} is known by name only")
        return dim

    def axis(self, default: int | None = None, *, name: str = "axis", rank: int | None = None) -> int:
        """An axis attribute, counted from the left."""
        axis = self.attrs.get(name, default)
        if axis is None:
            raise Unsupported(f"attribute {name} is missing")
        return normal_axis(axis, len(self.shape(0)) if rank is None else rank)

    def constant(self, index: int) -> Array | None:
        """The elements of a constant operand, or None where it is computed at run time."""
        value = self._folder.resolve(self.value(index))
        self.looked_at.add(value)
        constant = self._folder.constants.get(value)
        return None if constant is None else constant.array

    def dims(self, index: int) -> Shape:
        """The elements of a vector (or scalar) of integers, as dims; Unsupported where they are not known ahead."""
        self.looked_at.add(self._folder.resolve(self.value(index)))
        known = self._folder.dims(self.value(index))
        if known is None:
            raise Unsupported(f"{self.value(index)!r} is computed at run time")
        return tuple(known.ravel())

    def integers(self, index: int) -> tuple[int, ...]:
        """The elements of a vector of integers known ahead as plain numbers."""
        dims = self.dims(index)
        if any(isinstance(d, Sym) for d in dims):
            raise Unsupported(f"{self.value(index)!r} depends on named dims")
        return tuple(int(str(d)) for d in dims)

    def scalar(self, index: int) -> Any:
        """The one element of a constant operand as a Python number."""
        array = self.constant(index)
        if array is None or array.size != 1:
            raise Unsupported(f"{self.value(index)!r} is not one number known ahead")
        return array.reshape(()).item()

    def is_tensor(self, index: int) -> bool:
        """True where the operand is a tensor."""
        return isinstance(self._folder.type(self.value(index)), TensorType)

    def elements(self, index: int) -> tuple[str, ...]:
        """The elements of an operand that is a sequence; Unsupported where they are not known ahead."""
        elements = self._folder.sequences.get(self.value(index))
        if elements is None:
            raise Unsupported("a sequence whose elements are known at run time")
        return elements

    def know_elements(self, elements: Sequence[str]) -> None:
        """Record the elements of the sequence that the node makes."""
        self._folder.sequences[self.node.output[0]] = tuple(elements)

    def fresh_dim(self) -> Sym:
        """A dim of which nothing is known."""
        return self._folder.fresh()

    def uses(self, index: int) -> bool:
        """True where the output is there; whether anybody reads it does not matter."""
        return index < len(self.node.output) and bool(self.node.output[index])

    def reads(self, index: int) -> bool:
        """True where a node reads the output, or the model hands it out."""
        return self.uses(index) and self.node.output[index] in self._read

    def unused(self, index: int) -> str:
        """A name for an output that nobody reads."""
        return self._fresh_name(f"{self.node.name or 'unused'}:{index}")

    def make(self, op: str, *operands: str | None, **attrs: Any) -> str:
        """Add an operator whose result only this node's translation uses."""
        name = self._fresh_name(next((o for o in self.node.output if o), "value"))
        self._folder.add(Node(op, _trimmed(operands), (name,), Attrs(attrs)))
        return name

    def make_several(self, op: str, count: int, *operands: str | None, **attrs: Any) -> list[str]:
        """Add an operator of several results that only this node's translation uses."""
        names = tuple(self._fresh_name(self.node.output[0]) for _ in range(count))
        self._folder.add(Node(op, _trimmed(operands), names, Attrs(attrs)))
        return list(names)

    def number(self, value: Any, dtype: DType) -> str:
        """A scalar constant that only this node's translation uses."""
        name = self._fresh_name(next((o for o in self.node.output if o), "value"))
        self._folder.add_constant(name, Constant.of(np.asarray(value).astype(dtype.numpy), dtype))
        return name

    def emit(self, op: str, *operands: str | None, outputs: Sequence[str] | None = None, **attrs: Any) -> None:
        """Add the operator that makes the node's outputs, the first alone unless `outputs` says otherwise."""
        names = tuple(outputs) if outputs is not None else (self.node.output[0],)
        self._folder.add(Node(op, _trimmed(operands), names, Attrs(attrs), self.node.name))

    def emit_constant(self, constant: Constant) -> None:
        """Make the node's output a constant."""
        self._folder.add_constant(self.node.output[0], constant)


def _trimmed(operands: Sequence[str | None]) -> tuple[str | None, ...]:
    """Operands without those left out at the end."""
    count = len(operands)
    while count and operands[count - 1] is None:
        count -= 1
    return tuple(operands[:count])


def integer(dim: Dim) -> int:
    """The dim as a number; Unsupported where it is known by name only."""
    if isinstance(dim, Sym):
        raise Unsupported(f"{dim} is known by name only")
    return int(dim)


Importer = Callable[[Call], None]


def may_hold_nothing(folder: Folder, operands: Iterable[str]) -> bool:
    """True where a tensor is empty, or may be by dims that have no name: ONNX Runtime checks no axes or shapes then.

    Operands that are sequences count by their elements, as far as they are known.
    """
    values = [folder.resolve(v) for v in operands if v]
    values += [folder.resolve(part) for v in values for part in folder.sequences.get(v, ())]
    shapes = [type.shape or () for v in values if isinstance(type := folder.types.get(v), TensorType)]
    return any(d == 0 or (isinstance(d, Sym) and d.is_anonymous) for shape in shapes for d in shape)


#: The types of a node's outputs in order; fewer than it has where those at the end are not known.
TypeRule = Callable[[Call], Sequence[ValueType]]


def types_by(rule: TypeRule | None, call: Call) -> Mapping[str, ValueType]:
    """The types of the outputs of a node that is kept as it is, by a rule; nothing where there is none."""
    if rule is None:
        return {}
    try:
        types = rule(call)
    except (Unsupported, KeyError, IndexError, ValueError, TypeError):
        # A malformed node is left to ONNX Runtime: nothing here rests on its types.
        return {}
    return {o: t for o, t in zip(call.node.output, types, strict=False) if o}
