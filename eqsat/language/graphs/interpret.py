"""The run of a graph under an interpretation: floats, integers modulo a prime, or Z3 terms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from eqsat.errors import BackendError, GraphError
from eqsat.language.declaration import OpSpec
from eqsat.language.declaration.faults import check_results, declaration_at_fault
from eqsat.language.ops import spec
from eqsat.language.terms import OPAQUE, Attrs, Graph, Node, Sym, TensorType, ValueType, evaluate
from eqsat.language.terms.dims import linear_in
from eqsat.system.deadline import check, expect

#: Seconds that NumPy takes for an element that it reads or writes, and for an operation of a product, on one slow core.
_ELEMENT_SECONDS, _FLOP_SECONDS = 1e-8, 1e-10
#: From so many elements on, the time that a node takes is weighed against the deadline before it begins.
LONG = 1 << 18

OpaqueRunner = Callable[[Node, list[Any]], list[Any]]


class Interpretation(Protocol):
    """The arithmetic that references compute with.

    `namespace(operands, results)` is the arithmetic for one node, given the dtypes it reads and makes, so that integer
    tensors (indices, shapes) stay plain integers under every interpretation; `constant` brings a constant in; `finish`
    gives a computed array the element type declared for it.
    """

    def namespace(self, operands: list[TensorType | None], results: list[TensorType]) -> Any:
        """The arithmetic for a node that reads and makes these types."""

    def constant(self, array: Any, type: TensorType) -> Any:
        """A constant's elements in this interpretation."""

    def finish(self, array: Any, type: TensorType) -> Any:
        """A computed array in the element type declared for it."""


def run_node(
    interpretation: Interpretation,
    node: Node,
    operands: list[Any],
    types: list[TensorType | None],
    results: list[TensorType],
    sizes: Mapping[str, int] | None = None,
) -> list[Any]:
    """The outputs of one node by its operator's reference; TimeUp where there is no time for a large one."""
    declared = spec(node.op)
    elements = sum(getattr(o, "size", 0) for o in operands)
    if elements >= LONG:
        expect(expected_seconds(declared, node.attrs, elements, types, results))
    attrs = {k: concrete(v, sizes or {}) for k, v in node.attrs.items()}
    xp = interpretation.namespace(types, results)
    if declared.is_shipped:
        made = declared.reference(xp, *operands, **attrs)
    else:
        with declaration_at_fault(declared, "reference", types, attrs):
            made = declared.reference(xp, *operands, **attrs)
    outputs = list(made) if isinstance(made, tuple) else [made]
    if not declared.is_shipped:
        check_results(declared, outputs, results, types)
    return [interpretation.finish(o, t) for o, t in zip(outputs, results, strict=True)]


def expected_seconds(
    declared: OpSpec,
    attrs: Attrs,
    elements: int,
    types: list[TensorType | None],
    results: list[TensorType],
) -> float:
    """About how long a node whose operands have so many elements takes NumPy, which nothing can end."""
    elements += sum(t.elements({}) for t in results if t.is_static)
    counted = declared.flops is not None and declared.is_shipped
    counted = counted and all(t is None or t.is_static for t in (*types, *results))
    flops = declared.flops(types, results, attrs) if declared.flops is not None and counted else 0
    return _ELEMENT_SECONDS * elements + _FLOP_SECONDS * (flops if isinstance(flops, int) else 0)


def concrete(attr: Any, sizes: Mapping[str, int]) -> Any:
    """An attribute with its named dims replaced by integers."""
    if isinstance(attr, Sym):
        return evaluate(attr, sizes)
    return tuple(concrete(a, sizes) for a in attr) if isinstance(attr, tuple) else attr


def run(
    graph: Graph,
    inputs: Mapping[str, Any],
    interpretation: Interpretation,
    *,
    sizes: Mapping[str, int] | None = None,
    opaque: OpaqueRunner | None = None,
    keep: frozenset[str] = frozenset(),
    each: Callable[[str, Any], object] | None = None,
) -> dict[str, Any]:
    """Evaluate a graph; return its outputs by name, and the values in `keep` by theirs.

    `sizes` gives the named dims; they are read from the inputs where left out. An opaque node goes to `opaque`, or is a
    BackendError. Where outputs together would take much memory, `each` is given one after the other, by its name, and
    they are not returned.
    """
    missing = [v for v in graph.inputs if v not in inputs]
    if missing:
        raise BackendError(f"input {missing[0]!r} is missing", where=graph.name, expected=", ".join(graph.inputs))
    known = dict(bound_sizes(graph, inputs)) | dict(sizes or {})
    env: dict[str, Any] = {v: inputs[v] for v in graph.inputs}
    names: dict[str, list[str]] = {}
    for output, wanted in graph.outputs.items():
        names.setdefault(wanted, []).append(output)
    last = last_uses(graph, keep.union(names if each is None else graph.inputs))
    for index, node in enumerate(graph.nodes):
        check()
        for value in node.inputs:
            if value is not None and value not in env:
                constant = graph.constants[value]
                env[value] = interpretation.constant(constant.array, constant.type)
        operands = [None if v is None else env[v] for v in node.inputs]
        for value, array in zip(
            node.outputs, _outputs(graph, node, operands, interpretation, known, opaque), strict=True
        ):
            if value:
                env[value] = array
                # Dims that depend on data are known once the value that has them is.
                _bind(known, graph.type(value), array)
                if each is not None:
                    for output in names.pop(value, ()):
                        each(output, array)
        for value in last.get(index, ()):
            env.pop(value, None)
    for value in (*names, *keep):
        if value not in env:
            constant = graph.constants[value]
            env[value] = interpretation.constant(constant.array, constant.type)
    kept = {value: env[value] for value in keep}
    if each is None:
        return {name: env[value] for name, value in graph.outputs.items()} | kept
    for value, given in names.items():
        for output in given:
            each(output, env[value])
    return kept


def _outputs(
    graph: Graph,
    node: Node,
    operands: list[Any],
    interpretation: Interpretation,
    sizes: Mapping[str, int],
    opaque: OpaqueRunner | None,
) -> list[Any]:
    if node.op == OPAQUE:
        if opaque is None:
            raise BackendError(
                f"{node.describe()} is opaque and cannot be run here",
                where=graph.name,
                expected="operators that eqsat declares",
                remedy="run the model on ONNX Runtime",
            )
        return opaque(node, operands)
    types, results = node_types(graph, node)
    return run_node(interpretation, node, operands, types, results, sizes)


def node_types(graph: Graph, node: Node) -> tuple[list[TensorType | None], list[TensorType]]:
    """The types of a node's operands and of its results, unused ones too; GraphError for one that is no tensor."""
    types = [None if v is None else _tensor(graph, v, node) for v in node.inputs]
    results = [_tensor(graph, v, node) if v else None for v in node.outputs]
    if any(r is None for r in results):
        inferred = spec(node.op).result_types(types, node.attrs)
        results = [r or i for r, i in zip(results, inferred, strict=True)]
    return types, [r for r in results if r]


def _tensor(graph: Graph, value: str, node: Node) -> TensorType:
    type = graph.type(value)
    if not isinstance(type, TensorType):
        raise GraphError(f"{value!r} of {node.describe()} has no tensor type", where=graph.name)
    return type


def bound_sizes(graph: Graph, inputs: Mapping[str, Any]) -> dict[str, int]:
    """The sizes of named dims as the shapes of the inputs give them."""
    sizes: dict[str, int] = {}
    for name in graph.inputs:
        _bind(sizes, graph.type(name), inputs[name])
    for name in graph.inputs:
        _bind_composed(sizes, graph.type(name), inputs[name])
    return sizes


def _bind_composed(sizes: dict[str, int], declared: ValueType, value: Any) -> None:
    """Add the size of a name that only a dim such as 2*n shows."""
    if not isinstance(declared, TensorType) or declared.is_static or not hasattr(value, "shape"):
        return
    for dim, size in zip(declared.shape or (), value.shape, strict=False):
        unknown = sorted(dim.names() - sizes.keys()) if isinstance(dim, Sym) else []
        parts = linear_in(dim, unknown[0]) if len(unknown) == 1 else None
        if parts is not None:
            factor, rest = parts
            sizes[unknown[0]] = (int(size) - evaluate(rest, sizes)) // factor


def _bind(sizes: dict[str, int], declared: ValueType, value: Any) -> None:
    """Add the sizes of dims that are a plain name, as the shape of a value of this type gives them."""
    if not isinstance(declared, TensorType) or declared.is_static or not hasattr(value, "shape"):
        return
    for dim, size in zip(declared.shape or (), value.shape, strict=False):
        if isinstance(dim, Sym) and dim == Sym.named(name := next(iter(dim.names()), "")):
            sizes.setdefault(name, int(size))


def last_uses(graph: Graph, wanted: frozenset[str]) -> dict[int, list[str]]:
    """After which node each value is needed no more; those that are wanted are needed to the end."""
    last: dict[str, int] = {}
    for index, node in enumerate(graph.nodes):
        for value in (*node.inputs, *node.outputs):
            if value and value not in wanted:
                last[value] = index
    grouped: dict[int, list[str]] = {}
    for value, index in last.items():
        grouped.setdefault(index, []).append(value)
    return grouped
