"""Types of all values and constants computed ahead, in one pass: shapes depend on constants and constants on shapes.

Nodes come in topological order and each is finished before the next is looked at, so one pass reaches the fixpoint:
what a node makes never changes what was known of its operands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from eqsat.errors import EqsatError, ShapeError
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.declaration.symbolic import Undecided, as_dims, as_integers, fits, is_shape_like, shape_elements
from eqsat.language.graphs.interpret import run_node
from eqsat.language.graphs.portable import is_portable
from eqsat.language.ops import OPS, spec
from eqsat.language.terms import OPAQUE, UNKNOWN, Array, Constant, DType, Graph, Node, Sym, TensorType, ValueType
from eqsat.language.terms.types import OpaqueType
from eqsat.system.deadline import check

#: A folded constant takes at most this many bytes, or four times those of the operands, whichever is more.
FOLDED_BYTES = 1 << 16
GROWTH = 4
#: A few nodes that each double a constant would fill any memory. So one that is folded takes at most so many times the
#: given ones that it comes from, and all of them so many times all given ones or this many bytes, whichever is more.
_LONG_GROWTH, _ALL_BYTES = 16, 1 << 26

#: Dims from this on do not fit the integers of ONNX once they are multiplied or added.
_LARGEST_DIM = 1 << 62

#: NumPy has no arrays of more dims.
_MOST_DIMS = 64

#: Windows over wider borders are not folded: their intermediate results are larger than their results.
_WIDEST_PAD = 1 << 10

_SHAPES = ("shape", "size")
_FLOATS = Floats()


class Folder:
    """A builder of graphs node by node that infers and folds; the result of a node is known at once.

    Values that turn out to be others (an identity, an equal constant) are renamed: `resolve` follows the renaming.
    """

    def __init__(self, fresh: Callable[[], Sym]) -> None:
        self.fresh = fresh
        self.types: dict[str, ValueType] = {}
        self.constants: dict[str, Constant] = {}
        self.nodes: list[Node] = []
        #: The elements of values that are sequences, where they are known.
        self.sequences: dict[str, tuple[str, ...]] = {}
        self._given = self._folded = 0
        self._sources: dict[str, frozenset[str]] = {}
        self._renamed: dict[str, str] = {}
        self._dims: dict[str, Array] = {}
        self._twins: dict[tuple[TensorType, bytes], list[str]] = {}

    def resolve(self, value: str) -> str:
        """The value that this one turned out to be."""
        return self._renamed.get(value, value)

    def is_defined(self, value: str) -> bool:
        """True for a value that was added or made before."""
        return value in self.types or value in self._renamed

    def type(self, value: str) -> ValueType:
        """The type of a value; UNKNOWN where nothing is stated."""
        return self.types.get(self.resolve(value), UNKNOWN)

    def add_input(self, value: str, type: ValueType) -> None:
        """Add a value known only when the program runs."""
        self.types[value] = type

    def add_constant(self, value: str, constant: Constant, *, merge: bool = True) -> None:
        """Add a constant; one with the dtype, shape and bytes of another becomes that other."""
        self._given += constant.nbytes
        if merge:
            # Most constants differ in a few sampled bytes already; only the rest are hashed as a whole.
            twins = self._twins.setdefault((constant.type, _sample(constant)), [])
            for other in twins:
                if self.constants[other].same_as(constant):
                    self._renamed[value] = other
                    return
            twins.append(value)
        self.constants[value] = constant
        self.types[value] = constant.type

    def dims(self, value: str) -> Array | None:
        """The elements of a small integer tensor as dims, or None where they are not known.

        An object array of integers and `Sym`; booleans are 0 and 1.
        """
        value = self.resolve(value)
        if value not in self._dims:
            constant = self.constants.get(value)
            if constant is None or not is_shape_like(constant.type):
                return None
            self._dims[value] = constant.array.astype(np.int64).astype(object)
        return self._dims[value]

    def know(self, value: str, dims: Array) -> None:
        """Record the elements of a small integer tensor, as dims, where it is computed elsewhere."""
        self._dims[self.resolve(value)] = dims

    def add(self, node: Node) -> None:
        """Add a node whose operands are defined; ShapeError where they do not fit the operator."""
        inputs = tuple(None if v is None else self._renamed.get(v, v) for v in node.inputs)
        if node.op == OPAQUE:
            node = replace(node, inputs=inputs)
            self.nodes.append(node)
            for output in node.outputs:
                if output:
                    self.types.setdefault(output, UNKNOWN)
            return
        declared = spec(node.op)
        node = Node(node.op, inputs, node.outputs, declared.complete(node.attrs), node.name)
        operands = [None if v is None else self._tensor(v) for v in node.inputs]
        results = declared.result_types(operands, node.attrs)
        _check_sizes(results)
        if self._fold(node, operands, results):
            return
        same = _unchanged(node, operands, results)
        if same is not None:
            self._renamed[node.outputs[0]] = same
            return
        self.nodes.append(node)
        self.types |= {v: t for v, t in zip(node.outputs, results, strict=True) if v}

    def declare(self, value: str, stated: ValueType) -> None:
        """Join the type that a model states of a value with the inferred one, which wins where they conflict."""
        value = self.resolve(value)
        known = self.types.get(value, UNKNOWN)
        if isinstance(known, OpaqueType):
            self.types[value] = stated if known is UNKNOWN else known
        elif isinstance(stated, TensorType) and value not in self.constants:
            self.types[value] = known.with_shape(_joined(known, stated))

    def _tensor(self, value: str) -> TensorType:
        type = self.types[value]
        if not isinstance(type, TensorType):
            raise EqsatError(f"{value!r} is {type}", expected="a tensor")
        return type

    def _fold(self, node: Node, operands: Sequence[TensorType | None], results: Sequence[TensorType]) -> bool:
        """Turn the outputs of a node into constants where they are known; remember known dims."""
        outputs = [(v, t) for v, t in zip(node.outputs, results, strict=True) if v]
        if outputs and all(_is_empty(t) for _, t in outputs):
            self._become(node, outputs, [np.empty(t.static, t.dtype.numpy) for _, t in outputs])
            return True
        # Dims are numbers without bounds; arithmetic on integers that are known wraps around.
        if not self._is_arithmetic(node) and self._fold_dims(node, outputs, len(results)):
            return True
        if not self._is_foldable(node, operands, results):
            return False
        arrays = [None if v is None else self.constants[v].array for v in node.inputs]
        if not is_portable(node.op, node.attrs, arrays):
            return False
        try:
            elements = run_node(_FLOATS, node, arrays, list(operands), list(results))
        except (IndexError, ValueError, TypeError, ArithmeticError):
            # The program fails when it gets here, or NumPy lacks the operation for this dtype: either way it stays.
            return False
        if any(np.shape(a) != t.static for a, t in zip(elements, results, strict=True)):
            return False
        self._become(node, outputs, [a for v, a in zip(node.outputs, elements, strict=True) if v])
        return True

    def _is_arithmetic(self, node: Node) -> bool:
        """True for an operator on constants alone, besides those that read a type."""
        if node.op in _SHAPES or not node.inputs or holds_symbols(node.attrs.values()):
            return False
        return all(v is None or v in self.constants for v in node.inputs)

    def _fold_dims(self, node: Node, outputs: Sequence[tuple[str, TensorType]], count: int) -> bool:
        """Shape arithmetic: constants where all dims are integers, else dims that are remembered for later nodes."""
        known = self._known_dims(node, outputs, count)
        if known is None:
            return False
        for (_, type), dims in zip(outputs, known, strict=True):
            if not is_shape_like(type) or dims.shape != type.static or not fits(dims, type.dtype):
                return False
        integers = [as_integers(dims, type.dtype) for (_, type), dims in zip(outputs, known, strict=True)]
        if any(one is None for one in integers):
            self._dims |= {value: dims for (value, _), dims in zip(outputs, known, strict=True)}
            return False
        self._become(node, outputs, [one for one in integers if one is not None])
        return True

    def _known_dims(self, node: Node, outputs: Sequence[tuple[str, TensorType]], count: int) -> list[Array] | None:
        """The dims that each output is known to hold; None where those of one are not."""
        if node.op in _SHAPES:
            operand = self.types[node.inputs[0] or ""]
            if not isinstance(operand, TensorType) or operand.shape is None:
                return None
            if node.op == "shape":
                elements = shape_elements(operand, node.attrs["start"], node.attrs["end"])
                return None if elements is None else [elements]
            size = np.empty((), object)
            size[()] = operand.size
            return [size]
        if len(outputs) < count or not all(is_shape_like(type) for _, type in outputs):
            return None
        return _evaluated(node, [None if v is None else self.dims(v) for v in node.inputs])

    def _is_foldable(self, node: Node, operands: Sequence[TensorType | None], results: Sequence[TensorType]) -> bool:
        if not OPS[node.op].is_foldable or any(v is not None and v not in self.constants for v in node.inputs):
            return False
        if not all(t.is_static and t.dtype is not DType.STRING for t in (*results, *(t for t in operands if t))):
            return False
        if holds_symbols(node.attrs.values()) or any(abs(p) > _WIDEST_PAD for p in node.attrs.get("pads", ())):
            return False
        size = _bytes(results)
        if all(is_shape_like(t) for t in results):
            return True
        if size + self._folded > max(_ALL_BYTES, _LONG_GROWTH * (self._given - self._folded)):
            return False
        given = sum(self.constants[v].nbytes for v in self._given_in(node))
        return size <= max(FOLDED_BYTES, min(GROWTH * _bytes([t for t in operands if t]), _LONG_GROWTH * given))

    def _given_in(self, node: Node) -> frozenset[str]:
        """The given constants that the operands of a node come from."""
        return frozenset().union(*(self._sources.get(v, {v}) for v in node.inputs if v in self.constants))

    def _become(self, node: Node, outputs: Iterable[tuple[str, TensorType]], arrays: Iterable[Array]) -> None:
        sources = self._given_in(node)
        for (value, type), array in zip(outputs, arrays, strict=True):
            constant = Constant.of(array, type.dtype)
            self._folded += constant.nbytes
            self.add_constant(value, constant)
            if value in self.constants:
                self._sources[value] = sources


def _check_sizes(types: Iterable[TensorType]) -> None:
    for type in types:
        if any(isinstance(d, int) and d >= _LARGEST_DIM for d in type.shape or ()):
            raise ShapeError(f"a tensor {type} is larger than any memory", expected="dims below 2**62")


def _is_empty(type: TensorType) -> bool:
    """True for a tensor without elements that NumPy has an array for."""
    if not type.is_static or 0 not in type.static or len(type.static) > _MOST_DIMS:
        return False
    return math.prod(d for d in type.static if d) * type.dtype.itemsize < 1 << 63


def holds_symbols(values: Iterable[object]) -> bool:
    """True where a named dim occurs among attribute values."""
    return any(isinstance(v, Sym) or (isinstance(v, tuple) and holds_symbols(v)) for v in values)


def _bytes(types: Sequence[TensorType]) -> int:
    return sum(math.prod(t.static) * t.dtype.itemsize for t in types)


def _sample(constant: Constant) -> bytes:
    """A few bytes that tell most constants of one type apart."""
    if constant.type.dtype is DType.STRING or not constant.nbytes:
        return b""
    flat = constant.array.reshape(-1) if constant.array.flags.c_contiguous else constant.array.flat
    step = max(1, flat.size // 32 if isinstance(flat, np.ndarray) else len(flat) // 32)
    sample = np.ascontiguousarray(flat[::step]).tobytes()
    constant.release()
    return sample


def _joined(known: TensorType, stated: TensorType) -> tuple[int | Sym, ...] | None:
    """The inferred shape, with anonymous dims and an unknown rank replaced by those that the model states."""
    if stated.shape is None or (known.shape is not None and len(known.shape) != len(stated.shape)):
        return known.shape
    if known.shape is None:
        return stated.shape
    pairs = zip(known.shape, stated.shape, strict=True)
    return tuple(
        s if isinstance(k, Sym) and k.is_anonymous and not (isinstance(s, Sym) and s.is_anonymous) else k
        for k, s in pairs
    )


def _evaluated(node: Node, operands: Sequence[Array | None]) -> list[Array] | None:
    """The results of a shape computation on known operands, or None where known dims do not decide them."""
    rule, known = OPS[node.op].on_dims, [x for x in operands if x is not None]
    if rule is None or len(known) < len(operands):
        return None
    try:
        found = rule(node.attrs, *known)
        return [as_dims(one) for one in (found if isinstance(found, tuple) else (found,))]
    except (Undecided, IndexError, ValueError):
        return None


def _unchanged(node: Node, operands: Sequence[TensorType | None], results: Sequence[TensorType]) -> str | None:
    """The operand that a node hands on as it is, or None."""
    source = node.inputs[0] if node.inputs else None
    if source is None or operands[0] is None or len([v for v in node.outputs if v]) != 1 or not node.outputs[0]:
        return None
    test = OPS[node.op].unchanged
    return source if test is not None and test(node, operands[0], results[0]) else None


def infer_and_fold(graph: Graph) -> Graph:
    """The graph with types for all values, constants computed ahead, and nodes that do nothing removed.

    Output names stay. Constants grow by folding only within bounds (`FOLDED_BYTES`, `GROWTH`); random operators never
    fold. ShapeError names the node whose operands do not fit.
    """
    folder = Folder(fresh_beside(graph.types.values()))
    for value in graph.inputs:
        folder.add_input(value, graph.type(value))
    for value, constant in graph.constants.items():
        folder.add_constant(value, constant)
    for node in graph.nodes:
        check()
        try:
            folder.add(node)
        except EqsatError as fault:
            raise fault.at(f"{graph.name}: {node.describe()}") from fault
        for output in node.outputs:
            if output:
                folder.declare(output, graph.type(output))
    return replace(
        graph,
        outputs={name: folder.resolve(value) for name, value in graph.outputs.items()},
        nodes=tuple(folder.nodes),
        constants=folder.constants,
        types=folder.types,
    ).without_dead()


def fresh_beside(types: Iterable[ValueType]) -> Callable[[], Sym]:
    """A source of anonymous dims that none of these types has."""
    dims = (d for t in types if isinstance(t, TensorType) for d in t.shape or ())
    taken = {name for d in dims if isinstance(d, Sym) for name in d.names()}
    count = 0

    def fresh() -> Sym:
        nonlocal count
        while f"?{count}" in taken:
            count += 1
        count += 1
        return Sym.named(f"?{count - 1}")

    return fresh
