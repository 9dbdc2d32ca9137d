"""Quantised kernels in an extraction problem: values in integers, the conversions to them, and what they cost.

The kernels are those of a solution in float32, by themselves or with an operator after them that holds their results
between bounds. What they are offered beside is the whole problem: all graphs of the e-graph, layouts and chains.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from eqsat.costs.kernels.fusion import FusedKey, FusedOperator, Key
from eqsat.costs.model.cost import Cost, average
from eqsat.costs.model.graph_costs import kernel_key, measured_cost
from eqsat.costs.model.model import CostModel
from eqsat.extract.problem.problem import Problem, ProblemNode, StateConversion
from eqsat.extract.tensors.fused import member
from eqsat.extract.tensors.integers import IntegerKernel, Roundings, images, packed_bytes
from eqsat.extract.tensors.pricing import KernelOption, Pricing
from eqsat.extract.tensors.tensors import TensorProblem
from eqsat.language.graphs.quantised import BYTES, INTEGER
from eqsat.language.ops import spec
from eqsat.language.terms import PACKINGS, PLAIN, BlockScale, DType, Implementation, Scale, State, TensorType

#: The layout in which runtimes hold images of integers: their kernels read all channels of a point at once.
_IMAGES = "nhwc"


class IntegerOptions:
    """The implementations of integer kernels under a cost model: their keys, and their place in a problem."""

    def __init__(self, extraction: TensorProblem, kernels: Sequence[IntegerKernel], model: CostModel) -> None:
        self.extraction, self.model = extraction, model
        self.snapshot = extraction.snapshot
        self.pricing = Pricing(self.snapshot, model)
        self.images = images(self.snapshot, kernels)
        self.kernels = [kernel for kernel in kernels if self._agrees(kernel)]
        self.pooled = self._pooled() if model.device.is_onnxruntime else frozenset()

    def keys(self) -> list[Key]:
        """The kernels and conversions that have to be measured, each once, with those in float32 that they replace."""
        keys: dict[Key, None] = {}
        for model in (m for _, m in self.model.parts):
            for kernel in self.kernels:
                operators = self._members(kernel)
                keys[kernel_key(model, operators)] = None
                plain = [replace(m, implementation=_plain(m)) for m in operators]
                keys.update(dict.fromkeys(kernel_key(model, [one]) for one in plain))
                keys[kernel_key(model, plain)] = None
            for leader in self._held():
                for target in (True, False):
                    keys.update(dict.fromkeys(self._conversion_keys(model, leader, quantised=target)))
        return [key for key in keys if _is_measurable(key)]

    def added(self, roundings: Roundings) -> TensorProblem:
        """The problem with the kernels whose time is measured, and whose roundings are known."""
        extraction, problem = self.extraction, self.extraction.problem
        states = {state: i for i, state in enumerate(extraction.states)}
        index = {leader: i for i, leader in enumerate(extraction.leaders)}
        nodes, options = list(problem.nodes), list(extraction.options)
        scales: dict[tuple[int, str], Scale | BlockScale] = {}
        sizes: dict[tuple[int, str], int] = {}

        def number(state: State) -> int:
            return states.setdefault(state, len(states))

        held: set[int] = set()
        for kernel in self.kernels:
            error = error_of(kernel, roundings)
            cost = self._cost(kernel) if error is not None else None
            if cost is None or error is None:
                continue
            cost = replace(cost, error=error)
            ways, links = self._ways(kernel)
            operands: dict[tuple[int, int], None] = {}
            for position, way, link in zip(kernel.positions, ways, links, strict=True):
                for leader, state, made in zip(self.snapshot.nodes[position].operands, way.operands, link, strict=True):
                    if made is None:
                        operands[index[leader], number(state)] = None
            result = ways[-1].result
            price = self.model.weigh(cost)
            nodes.append(ProblemNode(index[kernel.eclass], tuple(operands), price, number(result), "integer kernel"))
            options.append(KernelOption(kernel.positions, cost, ways, links))
            held |= {*kernel.reads, *(() if kernel.floats else (kernel.eclass,))}
            if kernel.weights is not None:
                leader = self._weights(kernel)
                if kernel.packing:
                    scales[leader, kernel.packing] = roundings.packed[kernel.weights, kernel.packing][0]
                    packing = PACKINGS[kernel.packing]
                    sizes[leader, kernel.packing] = packed_bytes(self.snapshot, kernel.weights, packing)
                else:
                    scales[leader, INTEGER] = roundings.weights[kernel.weights][0]
        constants = {leader: error for leader, (_, error) in roundings.values.items() if leader in self.pricing.derived}
        for leader, precision in scales:
            size = sizes.get((leader, precision))
            self._hold(nodes, options, index[leader], leader, number(State("row", precision)), 0.0, size)
        conversions, costs = list(problem.conversions), list(extraction.conversions)
        for leader in sorted(held):
            scale, error = roundings.values[leader]
            scales[leader, "uint8"] = scale
            state = self.state(leader)
            if leader in constants:
                self._hold(nodes, options, index[leader], leader, number(state), error)
                continue
            for target in (True, False):
                cost = self._conversion(leader, quantised=target)
                if cost is None or (target and leader in self.pooled):
                    continue
                cost = replace(cost, error=error if target else 0.0)
                ends = (0, number(state)) if target else (number(state), 0)
                conversions.append(StateConversion(index[leader], *ends, self.model.weigh(cost)))
                costs.append(cost)
        whole = Problem(nodes, problem.roots, conversions, len(states))
        return replace(
            extraction,
            problem=whole,
            states=tuple(states),
            options=tuple(options),
            conversions=tuple(costs),
            scales={**extraction.scales, **scales},
        )

    def pays(self, kernel: IntegerKernel) -> bool:
        """Return whether a kernel on packed weights costs less by itself than its e-node in float32."""
        cost = self._cost(kernel)
        if cost is None or kernel.weights is None:
            return False
        size = packed_bytes(self.snapshot, kernel.weights, PACKINGS[kernel.packing])
        price = self.model.weigh(cost) + self.model.weigh(Cost(weight_bytes=size))
        return price < self.pricing.operator(kernel.weights)[0] + self.pricing.constant(self._weights(kernel))[0]

    def state(self, leader: int) -> State:
        """The state in which integers stand for a class."""
        return State(_IMAGES if leader in self.images else "row", "uint8")

    def _hold(
        self,
        nodes: list[ProblemNode],
        options: list[KernelOption],
        eclass: int,
        leader: int,
        state: int,
        error: float,
        size: int | None = None,
    ) -> None:
        """Offer a constant in integers, of a byte each where no size is stated."""
        type = self.pricing.type(leader)
        if size is None:
            size = type.elements(self.model.sizes) if type is not None and type.shape is not None else 0
        cost = Cost(weight_bytes=size, error=error)
        price = self.model.weigh(cost) + self.pricing.derived.get(leader, 0.0) / 4
        nodes.append(ProblemNode(eclass, (), price, state, "constant"))
        options.append(KernelOption((self.snapshot.recipes[leader],), cost))

    def _pooled(self) -> frozenset[int]:
        """The classes that a maximum over windows reads or makes: they come into integers by kernels on integers alone.

        ONNX Runtime moves quantisation before a maximum in float32, and computes one of integers element by element
        unless a kernel on integers made what it reads (1.31: 5.4 ms in the place of 0.3 ms, in SqueezeNet).
        """
        makers = [node for node in self.snapshot.nodes if node.op == "max_pool"]
        return frozenset(leader for node in makers for leader in (node.eclass, *node.operands))

    def _weights(self, kernel: IntegerKernel) -> int:
        return self.snapshot.nodes[kernel.positions[0]].operands[1]

    def _held(self) -> list[int]:
        """The classes that some kernel reads or makes in integers when the program runs."""
        held = {leader for kernel in self.kernels for leader in kernel.reads}
        held |= {kernel.eclass for kernel in self.kernels if not kernel.floats}
        return sorted(leader for leader in held if leader not in self.pricing.derived)

    def _agrees(self, kernel: IntegerKernel) -> bool:
        """Return whether a kernel's operands and result are images alike, and its constants can be held."""
        weights = [] if kernel.weights is None else [self._weights(kernel)]
        if any(leader not in self.pricing.derived for leader in weights):
            return False
        if any(self.snapshot.classes[k].constant and k not in self.pricing.derived for k in kernel.reads):
            return False
        ends = {*kernel.reads, *(() if kernel.floats else (kernel.eclass,))}
        moving = {k for k in ends if not self.snapshot.classes[k].constant}
        return len({leader in self.images for leader in moving}) <= 1

    def _ways(self, kernel: IntegerKernel) -> tuple[tuple[Implementation, ...], tuple[tuple[int | None, ...], ...]]:
        """The implementation of each e-node, and which earlier one makes its operands."""
        made = PLAIN if kernel.floats else self.state(kernel.eclass)
        ways, links = [], []
        for place, position in enumerate(kernel.positions):
            node = self.snapshot.nodes[position]
            inside = None if not place else self.snapshot.nodes[kernel.positions[place - 1]].eclass
            taken = []
            for i, leader in enumerate(node.operands):
                if leader == inside:
                    taken.append(made)
                elif not place and kernel.weights is not None and i == 1:
                    taken.append(State("row", kernel.packing or INTEGER))
                elif not place and leader in kernel.reads:
                    taken.append(self.state(leader))
                else:
                    taken.append(PLAIN)
            ways.append(Implementation(tuple(taken), made, kernel.packing or INTEGER))
            links.append(tuple(0 if leader == inside else None for leader in node.operands))
        return tuple(ways), tuple(links)

    def _members(self, kernel: IntegerKernel) -> list[FusedOperator]:
        ways, links = self._ways(kernel)
        return [member(self.snapshot, self.pricing, *one) for one in zip(kernel.positions, ways, links, strict=True)]

    def _cost(self, kernel: IntegerKernel) -> Cost | None:
        """The measured cost of a kernel; None where one of the sizes has none."""
        operators = self._members(kernel)
        return _mean(self.model, lambda model: measured_cost(model, operators))

    def saving(self, kernel: IntegerKernel) -> float:
        """The seconds by which a kernel was measured to be faster than the same operators in float32."""
        cost = self._cost(kernel)
        plain = [replace(one, implementation=_plain(one)) for one in self._members(kernel)]
        known = _mean(self.model, lambda model: measured_cost(model, plain))
        alone = [_mean(self.model, lambda model, one=one: measured_cost(model, [one])) for one in plain]  # type: ignore[misc]
        before = known.seconds if known is not None else sum(one.seconds for one in alone if one is not None)
        return -math.inf if cost is None else before - cost.seconds

    def _conversion(self, leader: int, *, quantised: bool) -> Cost | None:
        """The measured cost of bringing a class into integers, or back."""

        def of(model: CostModel) -> Cost | None:
            entries = [
                model.measured.get(key.text) for key in self._conversion_keys(model, leader, quantised=quantised)
            ]
            if not entries or any(entry is None for entry in entries):
                return None
            return Cost(seconds=sum(entry.seconds for entry in entries if entry is not None), launches=len(entries))

        return _mean(self.model, of)

    def _conversion_keys(self, model: CostModel, leader: int, *, quantised: bool) -> list[Key]:
        """The operators that bring a class into integers, or back: a transpose too where those are held as images."""
        type = self.pricing.type(leader)
        if type is None:
            return []
        integers = replace(type, dtype=DType.UINT8)
        float_, zero = TensorType.of("float32", ()), TensorType.of("uint8", ())
        op = "quantize_linear" if quantised else "dequantize_linear"
        attrs = spec(op).complete({"axis": 0, "block": 0} | ({"to": "uint8"} if quantised else {}))
        keys: list[Key] = [model.key(op, attrs, [type if quantised else integers, float_, zero], [False, True, True])]
        if leader in self.images:
            stored = integers if quantised else integers.with_shape(tuple(type.dims[a] for a in (0, 2, 3, 1)))
            perm = (0, 2, 3, 1) if quantised else (0, 3, 1, 2)
            keys.append(model.key("transpose", spec("transpose").complete({"perm": perm}), [stored], [False]))
        return keys


def favoured(extraction: TensorProblem, share: float) -> TensorProblem:
    """The problem with kernels on integers at a share of their price, by which those are chosen that save more beside
    others of their kind than they were measured to save alone; those with packed weights read and make floats."""
    program, problem = extraction.problem.program, extraction.problem
    places = {index for index, option in enumerate(extraction.options) if _computes(option)}
    prices = [cost * share if option in places else cost for option, cost in enumerate(program.costs)]
    return replace(extraction, problem=problem.variant(costs=prices, limits=problem.limits, memory=problem.memory))


def is_on_integers(option: KernelOption) -> bool:
    """Return whether a kernel computes on numbers of a byte in the place of float32, or reads packed weights."""
    return _computes(option) or any(way.arithmetic in PACKINGS for way in option.implementations)


def _computes(option: KernelOption) -> bool:
    return any(way.arithmetic in BYTES for way in option.implementations)


def error_of(kernel: IntegerKernel, roundings: Roundings) -> float | None:
    """The error of a kernel's roundings together; None where one of them was not measured."""
    parts: list[float] = []
    if kernel.weights is not None:
        if kernel.packing:
            packed = roundings.packed.get((kernel.weights, kernel.packing))
            return None if packed is None else packed[1]
        if kernel.weights not in roundings.weights:
            return None
        if kernel.online:
            return roundings.online.get(kernel.weights)
        parts.append(roundings.weights[kernel.weights][1])
    if any(leader not in roundings.values for leader in kernel.reads):
        return None
    if not kernel.floats:
        if kernel.eclass not in roundings.values:
            return None
        if kernel.eclass not in roundings.copied:
            parts.append(roundings.values[kernel.eclass][1])
    return math.hypot(*parts)


def _plain(operator: FusedOperator) -> Implementation:
    return Implementation((PLAIN,) * len(operator.operands), PLAIN)


def _is_measurable(key: Key) -> bool:
    return all(one.is_measurable for one in FusedKey.of(key).members)


def _mean(model: CostModel, of: Callable[[CostModel], Cost | None]) -> Cost | None:
    """The mean of a cost over the sizes that a model is costed at; None where one of them has none."""
    costs = [(share, of(part)) for share, part in model.parts]
    known = [(share, cost) for share, cost in costs if cost is not None]
    return average(known) if len(known) == len(costs) else None
