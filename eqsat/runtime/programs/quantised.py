"""Plans with values held by scales as plans over the numbers that stand for them.

Quantisation and what follows a product become operators element by element, which are fused as others are. Products of
int8 are those of integers; floats of 8 bits are another way to hold what is a value in units of its scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from eqsat.errors import BackendError
from eqsat.language.graphs.quantised import BYTES, INTEGER
from eqsat.language.ops import OPS, spec
from eqsat.language.terms import (
    FLOAT8,
    PLAIN,
    Attrs,
    Constant,
    Conversion,
    DType,
    Held,
    Kernel,
    Node,
    Plan,
    Scale,
    State,
    Step,
    TensorType,
    ValueType,
)
from eqsat.language.terms.float8 import LARGEST

#: The state of numbers that are floats of 8 bits.
FLOATS = State("row", DType.FLOAT8E4M3FN.value)
#: Weights are read by columns, which lie together.
_COLUMNS = "column"


def explicit(plan: Plan) -> Plan:
    """The plan with operators in the place of states by scales; a plan without such states is itself.

    BackendError for a kernel on numbers of a byte that is no product by constant weights, and what follows it.
    """
    steps = plan.steps
    held = (h for step in steps if isinstance(step, Kernel) for h in (*step.operands, *step.results))
    converted = (state for step in steps if isinstance(step, Conversion) for state in (step.source, step.target))
    if not any(h.state.is_quantised for h in held) and not any(state.is_quantised for state in converted):
        return plan
    return _Explicit(plan).plan()


class _Explicit:
    """A plan in the making: its nodes, the steps that run them, and where values by scales are now."""

    def __init__(self, plan: Plan) -> None:
        self.given, self.graph = plan, plan.graph
        self.producers = {v: node for node in plan.graph.nodes for v in node.outputs if v}
        self.types: dict[str, ValueType] = dict(plan.graph.types)
        self.constants = dict(plan.graph.constants)
        self.nodes: list[Node] = []
        self.steps: list[Step] = []
        self.moved: dict[Held, Held] = {}
        self.taken = {*self.types, *self.constants}
        self.made = {*plan.graph.inputs, *plan.graph.constants}

    def plan(self) -> Plan:
        """The plan, step by step."""
        for step in self.given.steps:
            if isinstance(step, Conversion):
                self._convert(step)
            elif step.arithmetic in BYTES:
                self._product(step)
            else:
                self._plain(step)
        outputs = {
            name: self._now(Held(value, self.given.boundary.get(name, PLAIN))).value
            for name, value in self.graph.outputs.items()
        }
        read = {v for node in self.nodes for v in node.inputs} | set(outputs.values())
        graph = replace(
            self.graph,
            outputs=outputs,
            nodes=tuple(self.nodes),
            constants={name: constant for name, constant in self.constants.items() if name in read},
            types=self.types,
            origin=None,
        )
        return Plan(graph, tuple(self.steps), self.given.boundary)

    def _now(self, held: Held) -> Held:
        """Where a value in a state is now."""
        return self.moved.get(held, held)

    def _plain(self, kernel: Kernel) -> None:
        """A kernel as it is, of operands where these are now."""
        names = {held.value: self._now(held) for held in kernel.operands}
        for value in kernel.nodes:
            node = self.producers[value]
            if not self.made.issuperset(v for v in node.outputs if v):
                inputs = tuple(v if v is None or v not in names else names[v].value for v in node.inputs)
                self.nodes.append(replace(node, inputs=inputs))
                self.made.update(v for v in node.outputs if v)
        self.steps.append(replace(kernel, operands=tuple(dict.fromkeys(names.values()))))

    def _convert(self, step: Conversion) -> None:
        source, target = Held(step.value, step.source), Held(step.value, step.target)
        if target.state.is_quantised:
            here = self._now(source)
            if source.state.is_quantised:
                raise self._refused(f"{step.value!r} is brought from {step.source} to {step.target}")
            self._quantised(here.value, target, _DraftedKernel(self, {here: None}))
        elif source.state.is_quantised:
            self._restored(source, target)
        else:
            here = self._now(source)
            if here != source:
                self.moved[target] = Held(here.value, step.target)
            self.steps.append(Conversion(here.value, step.source, step.target))

    def _quantised(self, name: str, target: Held, chain: _DraftedKernel) -> None:
        """The last operators of a kernel: a float32 value in the numbers of a scale."""
        scale = self._scale(target)
        step = chain.number(scale.steps, scale.axis)
        stem = f"{target.value} as {target.state.precision}"
        if target.state.precision == FLOAT8:
            bounds = [chain.number([float(bound)], None) for bound in (-LARGEST, LARGEST)]
            made = chain.node("clip", stem, chain.node("div", stem, name, step), *bounds)
            self.moved[target] = Held(made, FLOATS)
        else:
            zero = chain.constant(np.array(scale.zeros, scale.dtype.numpy).reshape(_parameter(scale)))
            attrs = {"to": scale.dtype.value, "axis": scale.axis or 0, "block": 0}
            made = chain.node("quantize_linear", stem, name, step, zero, **attrs)
            self.moved[target] = Held(made, PLAIN)
        chain.end(self.moved[target])

    def _restored(self, source: Held, target: Held) -> None:
        """A float32 value from the numbers of its scale."""
        scale, here = self._scale(source), self._now(source)
        chain = _DraftedKernel(self, {here: None})
        step = chain.number(scale.steps, scale.axis)
        if source.state.precision == FLOAT8:
            made = chain.node("mul", source.value, here.value, step)
        else:
            zero = chain.constant(np.array(scale.zeros, scale.dtype.numpy).reshape(_parameter(scale)))
            made = chain.node("dequantize_linear", source.value, here.value, step, zero, axis=scale.axis or 0, block=0)
        self._leave(made, target, chain)

    def _leave(self, made: str, target: Held, chain: _DraftedKernel) -> None:
        """The end of a kernel with a float as its result."""
        here = Held(made, target.state)
        if here != target:
            self.moved[target] = here
        chain.end(here)

    def _product(self, kernel: Kernel) -> None:
        """A product of numbers of a byte, and the operators that follow it in its kernel."""
        nodes = [self.producers[value] for value in kernel.nodes]
        product, states = nodes[0], {held.value: held.state for held in kernel.operands}
        x, w = (str(v) for v in product.inputs[:2])
        self._check(kernel, product, states)
        (result,) = kernel.results
        here = self._now(Held(x, states[x]))
        weights, scale = self._weights(product, w, states[w])
        unit = np.array(scale.steps) * self._scale(Held(x, states[x])).steps[0] * product.attrs.get("alpha", 1.0)
        chain = _DraftedKernel(self, {here: None, weights: None})
        stem = f"{product.outputs[0]} in {kernel.arithmetic}"
        type = self._type(product.outputs[0])
        if kernel.arithmetic == INTEGER:
            made = chain.node("matmul_integer", stem, here.value, weights.value)
            chain.end(Held(made, PLAIN))
            chain = _DraftedKernel(self, {Held(made, PLAIN): None})
            made = chain.node("cast", stem, made, to="float32")
            made = chain.node("mul", stem, made, chain.number([float(one) for one in unit], type.rank - 1))
        else:
            made = chain.node("matmul", stem, here.value, weights.value)
            alone = len(nodes) == 1 and len(product.inputs) < 3 and not result.state.is_quantised
            stem = product.outputs[0] if alone else stem
            made = chain.node("mul", stem, made, chain.number([float(one) for one in unit], None))
            if alone:
                self._leave(made, result, chain)
                return
            chain.end(Held(made, PLAIN))
            chain = _DraftedKernel(self, {Held(made, PLAIN): None})
        made = self._biased(chain, product, made, states, stem)
        inside = {product.outputs[0]: made}
        for place, node in enumerate(nodes[1:], start=1):
            names = [None if v is None else inside.get(v) or chain.operand(Held(v, states[v])) for v in node.inputs]
            last = place == len(nodes) - 1 and not result.state.is_quantised
            stem = node.outputs[0] if last else f"{node.outputs[0]} in {kernel.arithmetic}"
            inside[node.outputs[0]] = made = chain.node(node.op, stem, *names, **node.attrs)
        if result.state.is_quantised:
            self._quantised(made, result, chain)
        else:
            self._leave(self._named(made, result.value, chain), result, chain)

    def _named(self, made: str, value: str, chain: _DraftedKernel) -> str:
        """The last value of a chain under the name of the value that it is, where that is free."""
        if made == value or value in self.made:
            return made
        *others, last = chain.nodes
        chain.nodes = [*others, replace(last, outputs=(value,))]
        self.made.add(value)
        return value

    def _biased(self, chain: _DraftedKernel, product: Node, made: str, states: Any, stem: str) -> str:
        """A product with its bias, which makes up for what rounding of the weights shifts."""
        bias = product.inputs[2] if len(product.inputs) > 2 else None
        if bias is None:
            return made
        w, beta = str(product.inputs[1]), product.attrs.get("beta", 1.0)
        if bias not in self.graph.constants:
            added = chain.operand(Held(bias, states[bias]))
            added = added if beta == 1.0 else chain.node("mul", stem, added, chain.number([beta], None))
            return chain.node("add", stem, made, added)
        scale, array = self._scale(Held(w, states[w])), self.graph.constants[bias].array
        corrected = scale.corrected(array) if beta == 1.0 else array * np.float32(beta)
        return chain.node("add", stem, made, chain.constant(np.asarray(corrected, np.float32)))

    def _weights(self, product: Node, w: str, state: State) -> tuple[Held, Scale]:
        """Constant weights in the numbers of their scale, as the right operand of a product."""
        scale = self._scale(Held(w, state))
        turned = bool(product.attrs.get("trans_b"))
        name = f"{w} as {state.precision}" + (" turned" if turned else "")
        precision = FLOATS.precision if state.precision == FLOAT8 else ""
        if name not in self.constants:
            numbers = scale.quantised(self.graph.constants[w].array)
            stored = numbers.T if turned else numbers
            dtype = DType.FLOAT32 if precision else scale.dtype
            self.constants[name] = Constant.of(np.ascontiguousarray(stored.astype(dtype.numpy)), dtype)
            self.types[name] = self.constants[name].type
            self.taken.add(name)
        return Held(name, State(_COLUMNS, precision)), scale

    def _check(self, kernel: Kernel, product: Node, states: dict[str, State]) -> None:
        """BackendError for what is no product of numbers of a byte by constant weights."""
        declared = OPS[product.op]
        x, w = (str(v) for v in product.inputs[:2])
        held = {states.get(v, PLAIN).precision for v in (x, w)}
        matrices = declared.product and not declared.windowed and w in self.graph.constants
        if not matrices or held != {kernel.arithmetic} or product.attrs.get("trans_a") or self._type(w).rank != 2:
            raise self._refused(f"{product.describe()} is computed by {kernel.arithmetic}")

    def _refused(self, fault: str) -> BackendError:
        return BackendError(
            fault,
            where=self.graph.name,
            expected="products of numbers of a byte by constant weights, and operators element by element after them",
            remedy="optimise with device='cuda', or the name of a GPU",
        )

    def _scale(self, held: Held) -> Scale:
        scale = self.given.scales[held.value, held.state.precision]
        if not isinstance(scale, Scale):
            raise self._refused(f"{held.value!r} is packed in blocks")
        return scale

    def _type(self, value: str) -> TensorType:
        type = self.types[value]
        if not isinstance(type, TensorType):
            raise TypeError(f"{value} is no tensor")
        return type

    def fresh(self, stem: str) -> str:
        """A name that nothing has yet."""
        name, number = stem, 1
        while name in self.taken:
            number += 1
            name = f"{stem} {number}"
        self.taken.add(name)
        return name


class _DraftedKernel:
    """The nodes of one kernel, with what it reads."""

    def __init__(self, draft: _Explicit, operands: dict[Held, None]) -> None:
        self.draft, self.operands = draft, operands
        self.nodes: list[Node] = []

    def operand(self, held: Held) -> str:
        """The name of what is read for a value in a state."""
        here = self.draft._now(held)
        self.operands[here] = None
        return here.value

    def constant(self, array: Any) -> str:
        """The name of a constant that is read."""
        constant = Constant.of(np.asarray(array))
        name = self.draft.fresh("number")
        self.draft.constants[name], self.draft.types[name] = constant, constant.type
        self.operands[Held(name, PLAIN)] = None
        return name

    def number(self, values: Sequence[float], axis: int | None) -> str:
        """The name of a float32 constant: one number, or one for each place along the last axis."""
        array = np.array(values, np.float32)
        return self.constant(array.reshape(()) if axis is None or array.size == 1 else array)

    def node(self, op: str, stem: str, *inputs: str | None, **attrs: Any) -> str:
        """The name of the result of one more node: the stem, where nothing has made that yet."""
        draft = self.draft
        complete = spec(op).complete(attrs)
        types = [None if v is None else draft._type(v) for v in inputs]
        free = stem in draft.graph.types and stem not in draft.made
        name = stem if free else draft.fresh(stem)
        (draft.types[name],) = spec(op).result_types(types, complete)
        draft.made.add(name)
        self.nodes.append(Node(op, inputs, (name,), Attrs(complete)))
        return name

    def end(self, result: Held) -> None:
        """Add the kernel to the plan."""
        self.draft.nodes += self.nodes
        names = tuple(node.outputs[0] for node in self.nodes)
        self.draft.steps.append(Kernel(names, tuple(self.operands), (result,)))


def _parameter(scale: Scale) -> tuple[int, ...]:
    return () if scale.axis is None else (len(scale.zeros),)
