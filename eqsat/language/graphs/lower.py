"""A plan written as a plain graph: casts and transposes as nodes, values stored in the order their states say."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from eqsat.language.graphs import packed, quantised
from eqsat.language.graphs.boundary import origin_of, stored_constant
from eqsat.language.ops import OPS, spec
from eqsat.language.terms import (
    LAYOUTS,
    PLAIN,
    Attrs,
    Constant,
    Conversion,
    Dim,
    DType,
    Graph,
    Held,
    Kernel,
    Node,
    Plan,
    Scale,
    State,
    TensorType,
    stored_shape,
)

#: The layouts that other runtimes can be told of, by transposes. The rest are a backend's own affair.
WRITTEN = frozenset({"row", "column"})


def lower(plan: Plan) -> Graph:
    """The graph of a plan for a runtime that knows no states.

    A column-major matrix becomes the transpose of itself, a matrix product of such the product that reads it so; lower
    precisions become casts and types, quantised kernels float operators between dequantisation and quantisation.
    Layouts that ONNX has no words for (nhwc, blocked, packed) are left to the runtime, except those of inputs and
    outputs. Names of plain values stay. A plain plan is its graph.
    """
    return plan.graph if plan.is_plain and not plan.boundary else _Lowering(plan).lowered()


def _written(state: State) -> State:
    return state if state.layout in WRITTEN else State("row", state.precision)


class _Lowering:
    def __init__(self, plan: Plan) -> None:
        self.plan, self.graph = plan, plan.graph
        self.names: dict[Held, str] = {}
        self.types = dict(self.graph.types)
        self.constants = dict(self.graph.constants)
        self.nodes: list[Node] = []
        self.made: dict[tuple[str, Attrs, tuple[str | None, ...]], list[str]] = {}
        self.own: dict[tuple[str, bytes], str] = {}
        self.taken = set(self.graph.types) | set(self.graph.inputs) | set(self.graph.constants)
        self.producers = {v: n for n in self.graph.nodes for v in n.outputs if v}

    def lowered(self) -> Graph:
        for value in self.graph.inputs:
            self._enter(value, self.plan.boundary.get(value, PLAIN))
        for step in self.plan.steps:
            if isinstance(step, Conversion):
                source = self._name(Held(step.value, _written(step.source)))
                target = Held(step.value, _written(step.target))
                if target not in self.names:
                    self.names[target] = self._converted(source, step.value, _written(step.source), target.state)
            else:
                self._kernel(step)
        outputs = {
            name: self._leave(name, value, self.plan.boundary.get(name, PLAIN))
            for name, value in self.graph.outputs.items()
        }
        graph = Graph(
            self.graph.name,
            self.graph.inputs,
            outputs,
            tuple(self.nodes),
            self.constants,
            self.types,
            origin_of(self.plan),
        )
        return graph.without_dead()

    def _enter(self, value: str, state: State) -> None:
        """An input, which comes as the caller holds it."""
        if state.is_plain:
            self.names[Held(value, PLAIN)] = value
            return
        type = self._type(value)
        order = LAYOUTS[state.layout].order(type.rank)
        self.types[value] = state.typed(type).with_shape(stored_shape(type.dims, state.layout))
        written = _written(state)
        if written.layout == state.layout or order is None:
            self.names[Held(value, written)] = value
        else:
            inverse = tuple(order.index(axis) for axis in range(type.rank))
            self.names[Held(value, written)] = self._turned(value, state.typed(type), inverse)

    def _leave(self, name: str, value: str, state: State) -> str:
        """An output, in the state the caller wants it in."""
        name_now = self._name(Held(value, _written(state)))
        order = LAYOUTS[state.layout].order(self._type(value).rank) if not state.is_plain else None
        if order is None or _written(state).layout == state.layout:
            return name_now
        stored = state.typed(self._type(value)).with_shape(stored_shape(self._type(value).dims, state.layout))
        return self._turned(name_now, stored, order)

    def _type(self, value: str) -> TensorType:
        type = self.graph.type(value)
        if not isinstance(type, TensorType):
            raise TypeError(f"{value} is no tensor")
        return type

    def _stored(self, name: str) -> TensorType:
        """The type of a value of the lowered graph."""
        type = self.types[name]
        if not isinstance(type, TensorType):
            raise TypeError(f"{name} is no tensor")
        return type

    def _name(self, held: Held) -> str:
        """The value that holds another in a state; constants are put in it when first asked for."""
        name = self.names.get(held)
        if name is None:
            if held.value not in self.graph.constants:
                raise KeyError(held)
            name = self.names[held] = self._constant(held)
        return name

    def _constant(self, held: Held) -> str:
        if held.state.is_plain:
            return held.value
        given = self.graph.constants[held.value]
        if held.state.is_quantised:
            scale = self.plan.scales[held.value, held.state.precision]
            stored = Constant.of(scale.quantised(given.array), scale.dtype)
        else:
            stored = stored_constant(given, held.state)
        return self.constant(f"{held.value}_{held.state}", stored)

    def constant(self, stem: str, given: Constant) -> str:
        """The name of a constant of our own, once for equal ones of a stem."""
        key = (stem, given.array.tobytes())
        if key not in self.own:
            name = self.own[key] = self._fresh(stem)
            self.constants[name] = given
            self.types[name] = given.type
        return self.own[key]

    def held(self, held: Held) -> str:
        """The name of what holds a value in a state."""
        return self._name(Held(held.value, _written(held.state)))

    def known(self, value: str) -> Constant | None:
        """The constant that a value is."""
        return self.graph.constants.get(value)

    def stated(self, value: str) -> TensorType:
        """The type of a value as the plan's graph states it."""
        return self._type(value)

    def _scale(self, value: str, state: State) -> Scale:
        """The scale of a value that is held in integers."""
        scale = self.plan.scales[value, state.precision]
        if not isinstance(scale, Scale):
            raise TypeError(f"{value} is packed in blocks, which products alone read")
        return scale

    def _converted(self, name: str, value: str, source: State, target: State) -> str:
        """A value brought from one state to another, one thing at a time."""
        if source.is_quantised:
            name = quantised.restored(self, name, value, self._scale(value, source))
            source = State(source.layout)
        if target.is_quantised:
            if source.precision:
                name = quantised.cast_to(self, name, self._type(value))
            return quantised.quantised(self, name, value, self._scale(value, target))
        if source.precision != target.precision:
            type = target.typed(self._type(value))
            stored = type.with_shape(stored_shape(type.dims, source.layout))
            name = self._emit("cast", Attrs(spec("cast").complete({"to": stored.dtype.value})), (name,), stored)
        if source.layout != target.layout:
            type = target.typed(self._type(value))
            name = self._turned(name, type.with_shape(stored_shape(type.dims, target.layout)), _swap(type.rank))
        return name

    def _turned(self, name: str, result: TensorType, perm: Sequence[int]) -> str:
        return self._emit("transpose", Attrs(perm=tuple(perm)), (name,), result)

    def _emit(self, op: str, attrs: Attrs, inputs: tuple[str | None, ...], result: TensorType) -> str:
        """A node of our own of one result, once for equal ones."""
        return self.emit(op, attrs, inputs, [result])[0]

    def emit(self, op: str, attrs: Attrs, inputs: tuple[str | None, ...], results: Sequence[TensorType]) -> list[str]:
        """A node of our own, once for equal ones."""
        key = (op, attrs, inputs)
        if key not in self.made:
            names = self.made[key] = [self._fresh(f"eqsat_{op}") for _ in results]
            self.types.update(zip(names, results, strict=True))
            self.nodes.append(Node(op, inputs, tuple(names), attrs))
        return self.made[key]

    def _fresh(self, base: str) -> str:
        clean = base.replace(" ", "_")
        candidates = itertools.chain((clean,), (f"{clean}_{i}" for i in itertools.count()))
        name = next(n for n in candidates if n not in self.taken)
        self.taken.add(name)
        return name

    def _kernel(self, kernel: Kernel) -> None:
        if kernel.arithmetic in quantised.BYTES or packed.is_packed(kernel):
            self._quantised(kernel)
            return
        states = {held.value: held.state for held in kernel.operands}
        result = kernel.results[0].state
        for value in kernel.nodes:
            node = self.producers[value]
            taken = [PLAIN if v is None else _written(states.get(v, result)) for v in node.inputs]
            self._node(node, taken, _written(result), kernel)
            states[value] = result

    def _quantised(self, kernel: Kernel) -> None:
        """A kernel on quantised numbers, its result quantised where it is held so."""
        (result,) = kernel.results
        held = Held(result.value, _written(result.state))
        if held in self.names:
            return
        nodes = [self.producers[value] for value in kernel.nodes]
        if packed.is_packed(kernel):
            name = packed.emit_packed(self, kernel, nodes[0], self.plan.scales)
        else:
            name = quantised.emit_kernel(self, kernel, nodes, self.plan.scales)
        if result.state.is_quantised:
            name = quantised.quantised(self, name, result.value, self._scale(result.value, result.state))
        elif result.state.precision:
            name = quantised.cast_to(self, name, result.state.typed(self._type(result.value)))
        self.names[held] = name

    def _node(self, node: Node, taken: list[State], made: State, kernel: Kernel) -> None:
        value = node.outputs[0] or kernel.nodes[0]
        if Held(value, made) in self.names:
            return  # another kernel has computed the same on the way
        if made.is_plain and all(s.is_plain for s in taken):
            inputs = tuple(None if v is None else self._name(Held(v, PLAIN)) for v in node.inputs)
            self.nodes.append(Node(node.op, inputs, node.outputs, node.attrs, node.name))
            self.names |= {Held(v, PLAIN): v for v in node.outputs if v}
            return
        self.names[Held(value, made)] = self._stated(node, taken, made)

    def _stated(self, node: Node, taken: list[State], made: State) -> str:
        """A node of one result with operands or result in other states than the plain one."""
        value = node.outputs[0]
        type = made.typed(self._type(value))
        stored = type.with_shape(stored_shape(type.dims, made.layout))
        inputs = [None if v is None else self._name(Held(v, s)) for v, s in zip(node.inputs, taken, strict=True)]
        columns = [s.layout == "column" for s in taken]
        turned = made.layout == "column"
        # The float32 result of a product of lower precision is cast where the runtime has no such kernel.
        common = {s.precision for v, s in zip(node.inputs, taken, strict=True) if v is not None and self._floats(v)}
        inner = State("row", common.pop() if len(common) == 1 else made.precision).typed(self._type(value))
        inner = inner.with_shape(stored.dims)
        if node.op == "transpose":
            return self._transposed(node, str(inputs[0]), taken[0], made, inner)
        if _multiplies_matrices(node.op) and (turned or any(columns)):
            name = self._product(node, inputs, columns, turned, inner)
        else:
            if turned:
                inputs = [self._aligned(v, n, s, stored) for v, n, s in zip(node.inputs, inputs, taken, strict=True)]
            name = self._emit(node.op, _turned_attrs(node, made, inner.rank), tuple(inputs), inner)
        if inner.dtype != stored.dtype:
            name = self._emit("cast", Attrs(spec("cast").complete({"to": stored.dtype.value})), (name,), stored)
        return name

    def _transposed(self, node: Node, name: str, taken: State, made: State, result: TensorType) -> str:
        """A transpose between stored orders: nothing at all where the elements lie as they are wanted."""
        before, after = LAYOUTS[taken.layout].order(result.rank), LAYOUTS[made.layout].order(result.rank)
        if before is None or after is None:
            raise TypeError(f"{taken} and {made} are no orders of axes")
        perm = tuple(before.index(node.attrs["perm"][axis]) for axis in after)
        return name if perm == tuple(range(result.rank)) else self._turned(name, result, perm)

    def _floats(self, value: str) -> bool:
        type = self.graph.type(value)
        return isinstance(type, TensorType) and type.dtype is DType.FLOAT32

    def _aligned(self, value: str | None, name: str | None, state: State, stored: TensorType) -> str | None:
        """An operand that broadcasts to a column-major result: a vector along the last axis is one along the other."""
        if value is None or name is None or state.layout == "column":
            return name
        type = state.typed(self._type(value))
        if type.rank == 0 or all(d == 1 for d in type.dims):
            return name
        shape: tuple[Dim, ...] = (*type.dims, 1)
        return self._emit("reshape", Attrs(spec("reshape").complete({"shape": shape})), (name,), type.with_shape(shape))

    def _product(
        self, node: Node, inputs: list[str | None], columns: list[bool], turned: bool, result: TensorType
    ) -> str:
        """A product of matrices held either way: (A B) stored by columns is Bᵀ Aᵀ stored by rows."""
        if node.op == "gemm":
            return self._gemm(node, inputs, columns, turned, result)
        sides = [
            self._facing(str(name), column is not turned) for name, column in zip(inputs[:2], columns[:2], strict=True)
        ]
        ordered = sides[::-1] if turned else sides
        return self._emit("matmul", node.attrs, tuple(ordered), result)

    def _gemm(self, node: Node, inputs: list[str | None], columns: list[bool], turned: bool, result: TensorType) -> str:
        attrs = dict(node.attrs)
        flips = [attrs["trans_a"] != columns[0], attrs["trans_b"] != columns[1]]
        rest = inputs[2:]
        if not turned:
            attrs |= {"trans_a": flips[0], "trans_b": flips[1]}
            return self._emit("gemm", Attrs(attrs), tuple(inputs), result)
        attrs |= {"trans_a": not flips[1], "trans_b": not flips[0]}
        if rest and rest[0] is not None:
            rest = [self._turned_addend(rest[0])]
        return self._emit("gemm", Attrs(attrs), (inputs[1], inputs[0], *rest), result)

    def _turned_addend(self, name: str) -> str:
        """The addend of a gemm whose result is computed transposed."""
        type = self._stored(name)
        if type.rank == 0:
            return name
        if type.rank == 1:
            shape = (*type.dims, 1)
            attrs = Attrs(spec("reshape").complete({"shape": shape}))
            return self._emit("reshape", attrs, (name,), type.with_shape(shape))
        return self._turned(name, type.with_shape(type.dims[::-1]), (1, 0))

    def _facing(self, name: str, turn: bool) -> str:
        """A matrix, or its transpose."""
        if not turn:
            return name
        type = self._stored(name)
        perm = _swap(type.rank)
        return self._turned(name, type.with_shape(tuple(type.dims[a] for a in perm)), perm)


def _turned_attrs(node: Node, made: State, rank: int) -> Attrs:
    """The attributes of an operator that names axes, for operands stored in another order."""
    order = LAYOUTS[made.layout].order(rank)
    if order is None or made.layout == "row":
        return node.attrs
    if node.op == "concat":
        return Attrs({**node.attrs, "axis": order.index(node.attrs["axis"])})
    if node.op == "slice" and node.attrs["axes"]:
        names = ("axes", "starts", "ends", "steps")
        parts = sorted(
            (order.index(axis), *rest) for axis, *rest in zip(*(node.attrs[name] for name in names), strict=True)
        )
        return Attrs({**node.attrs, **dict(zip(names, zip(*parts, strict=True), strict=True))})
    if node.op == "pad":
        pads = node.attrs["pads"]
        return Attrs({**node.attrs, "pads": tuple(pads[side * rank + axis] for side in (0, 1) for axis in order)})
    return node.attrs


def _swap(rank: int) -> tuple[int, ...]:
    """The order of axes with the last two exchanged."""
    return (*range(rank - 2), rank - 1, rank - 2)


def _multiplies_matrices(op: str) -> bool:
    return op in OPS and OPS[op].product and not OPS[op].windowed
