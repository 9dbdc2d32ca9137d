"""Products on numbers of a byte in an extraction problem, for GPUs: int8 and float8, beside all that is offered.

A product by constant weights, alone or with what follows it in a kernel of floats, is offered where the library has it:
the times are those of the table, or estimates by the device's figures.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from eqsat.costs.kernels.fusion import Key
from eqsat.costs.kernels.precision import NARROW, ROUNDOFF, PrecisionPolicy, is_product
from eqsat.costs.model.cost import Cost
from eqsat.egraph.snapshot import Snapshot, SnapshotNode
from eqsat.extract.problem.problem import Problem, ProblemNode, StateConversion
from eqsat.extract.problem.solution import Solution
from eqsat.extract.tensors.fused import member
from eqsat.extract.tensors.integers import IntegerKernel, Roundings, computed_classes
from eqsat.extract.tensors.pricing import KernelOption
from eqsat.extract.tensors.quantised import IntegerOptions, error_of
from eqsat.extract.tensors.tensors import TensorProblem
from eqsat.language.ops import OPS, spec
from eqsat.language.terms import FLOAT8, PLAIN, DType, Implementation, Scale, State, TensorType
from eqsat.runtime.cuda.libraries.cublaslt import MULTIPLES
from eqsat.runtime.cuda.libraries.epilogues import epilogue_of

#: Operators at the end of a product in one kernel of a library: a scale, a bias, and a function.
_MOST_EPILOGUES = 3
#: Terms of int8 whose sum int32 holds at most, by numbers up to 127.
_MOST_TERMS = (2**31 - 1) // 127**2
#: What columns and terms of products in a precision are multiples of.
_MULTIPLES = {"int8": MULTIPLES[DType.INT8], FLOAT8: MULTIPLES[DType.FLOAT8E4M3FN]}


def byte_kernels(
    extraction: TensorProblem, solution: Solution, allowed: Sequence[str], policy: PrecisionPolicy
) -> Iterator[IntegerKernel]:
    """The kernels of a problem that begin with a product by constant weights, on numbers of a byte.

    Products and what they read and make are of classes that the solution computes: what these hold is known where the
    solution is run.
    """
    snapshot = extraction.snapshot
    known = computed_classes(extraction, solution)
    seen: set[IntegerKernel] = set()
    for option in extraction.options:
        if option.split is not None or option.fetch or snapshot.nodes[option.positions[0]].op not in allowed:
            continue
        for precision in _MULTIPLES:
            first = snapshot.nodes[option.positions[0]]
            if not policy.allows(first.op, precision) or not _fits(snapshot, first, precision):
                continue
            for kernel in _of_option(snapshot, option, precision):
                if kernel not in seen and {first.eclass, *kernel.reads, kernel.eclass} <= known:
                    seen.add(kernel)
                    yield kernel


def _fits(snapshot: Snapshot, node: SnapshotNode, precision: str) -> bool:
    """Return whether a library multiplies an e-node's operands in a precision."""
    data, weights = (snapshot.classes[k] for k in node.operands[:2])
    x, w = data.type, weights.type
    if not weights.constant or data.constant or node.attrs.get("trans_a"):
        return False
    if node.attrs.get("activation", "none") != "none" or len(node.types) != 1:
        return False
    types = (x, w, node.types[0])
    if not all(isinstance(t, TensorType) and t.dtype is DType.FLOAT32 and t.shape is not None for t in types):
        return False
    if not isinstance(x, TensorType) or not isinstance(w, TensorType) or x.rank < 2 or w.rank != 2:
        return False
    if not all(isinstance(dim, int) and dim > 0 and dim % _MULTIPLES[precision] == 0 for dim in w.dims):
        return False
    return precision == FLOAT8 or w.static[1 if node.attrs.get("trans_b") else 0] <= _MOST_TERMS


def _of_option(snapshot: Snapshot, option: KernelOption, precision: str) -> Iterator[IntegerKernel]:
    """A kernel of floats on numbers of a byte: with its result as it is, and in such numbers too."""
    nodes = [snapshot.nodes[position] for position in option.positions]
    given = option.implementations or (Implementation((PLAIN,) * len(nodes[0].operands), PLAIN),)
    if any(way.arithmetic for way in given) or not all(OPS[node.op].pointwise for node in nodes[1:]):
        return
    links = option.links or ((None,) * len(nodes[0].operands),)
    x, w = nodes[0].operands[:2]
    linked = list(zip(nodes, links, strict=True))
    outside = [k for node, link in linked for k, made in zip(node.operands, link, strict=True) if made is None]
    last = given[-1].result
    rows = all(state.layout == "row" for way in given for state in (*way.operands, last))
    if not rows or outside.count(x) > 1 or outside.count(w) > 1 or last.precision not in ("", *NARROW):
        return
    numbers = State("row", precision)
    for made in (last, numbers):
        ways = []
        for place, (way, link) in enumerate(zip(given, links, strict=True)):
            # What is made on the way stays in float32.
            taken = [PLAIN if inside is not None else state for state, inside in zip(way.operands, link, strict=True)]
            if not place:
                taken[:2] = numbers, numbers
            result = made if place == len(nodes) - 1 else PLAIN
            ways.append(Implementation(tuple(taken), result, precision))
        yield IntegerKernel(
            option.positions,
            (x,),
            nodes[-1].eclass,
            option.positions[0],
            floats=made is not numbers,
            precision=precision,
            ways=tuple(ways),
            links=tuple(links),
        )


class ByteOptions(IntegerOptions):
    """The place of kernels on numbers of a byte in a problem, under a cost model."""

    def keys(self) -> list[Key]:
        """The kernels that have to be measured: none, since what has no time is estimated."""
        return []

    def added(self, roundings: Roundings) -> TensorProblem:
        """The problem with the kernels whose roundings are known, at their times, or estimates of these."""
        extraction, problem = self.extraction, self.extraction.problem
        states = {state: i for i, state in enumerate(extraction.states)}
        index = {leader: i for i, leader in enumerate(extraction.leaders)}
        nodes, options = list(problem.nodes), list(extraction.options)
        scales: dict[tuple[int, str], Scale] = {}
        held: dict[tuple[int, str], float] = {}

        def number(state: State) -> int:
            return states.setdefault(state, len(states))

        for kernel in self.kernels:
            known = roundings.of(kernel.precision)
            error = error_of(kernel, known)
            weights = None if kernel.weights is None else known.weights.get(kernel.weights)
            if error is None or weights is None:
                continue
            place = self._weights(kernel), kernel.precision
            if scales.setdefault(place, weights[0]) != weights[0]:
                continue  # another product holds the same constant by another scale
            result = kernel.ways[-1].result
            cost = replace(self._estimated(kernel), error=math.hypot(error, ROUNDOFF.get(result.precision, 0.0)))
            operands: dict[tuple[int, int], None] = {}
            for position, way, link in zip(kernel.positions, kernel.ways, kernel.links, strict=True):
                for leader, state, made in zip(self.snapshot.nodes[position].operands, way.operands, link, strict=True):
                    if made is None:
                        operands[index[leader], number(state)] = None
            price = self.model.weigh(cost)
            nodes.append(ProblemNode(index[kernel.eclass], tuple(operands), price, number(result), "byte kernel"))
            options.append(KernelOption(kernel.positions, cost, kernel.ways, kernel.links))
            for leader in (*kernel.reads, *(() if kernel.floats else (kernel.eclass,))):
                scale, moved = known.values[leader]
                scales[leader, kernel.precision], held[leader, kernel.precision] = scale, moved
        for leader, precision in scales:
            if (leader, precision) not in held:
                self._hold(nodes, options, index[leader], leader, number(State("row", precision)), 0.0)
        conversions, costs = list(problem.conversions), list(extraction.conversions)
        floats = [State("row", name) for name in ("", *NARROW) if State("row", name) in states]
        for (leader, precision), moved in sorted(held.items()):
            for state in floats:
                for source, target in ((state, State("row", precision)), (State("row", precision), state)):
                    cost = self._brought(leader, source, target, moved)
                    ends = number(source), number(target)
                    conversions.append(StateConversion(index[leader], *ends, self.model.weigh(cost)))
                    costs.append(cost)
        return replace(
            extraction,
            problem=Problem(nodes, problem.roots, conversions, len(states)),
            states=tuple(states),
            options=tuple(options),
            conversions=tuple(costs),
            scales={**extraction.scales, **scales},
        )

    def _estimated(self, kernel: IntegerKernel) -> Cost:
        """The cost of a product, and of the kernel after it that scales its sums, and computes the rest.

        A library scales sums of floats itself.
        """
        way = replace(kernel.ways[0], result=PLAIN)
        first = member(self.snapshot, self.pricing, kernel.positions[0], way, kernel.links[0])
        model = self.model
        cost = model.node(first.op, first.attrs, first.operands, first.results, first.const, way)
        result = kernel.ways[-1].result
        alone = len(kernel.positions) == 1 and len(first.operands) < 3 and not result.is_quantised
        if kernel.precision == FLOAT8 and alone:
            return cost
        type = first.results[0]
        assert type is not None
        sums = replace(type, dtype=DType.INT32) if kernel.precision != FLOAT8 else type
        return cost + self._cast(sums, result.typed(type))

    def _brought(self, leader: int, source: State, target: State, moved: float) -> Cost:
        """The cost of bringing a class into numbers of a byte, where that moves outputs, or back."""
        type = self.pricing.type(leader)
        assert type is not None
        cost = self._cast(source.typed(type), target.typed(type))
        if target.is_quantised and self._is_generated(leader):
            written = target.typed(type).elements(self.model.sizes)
            cost = Cost(written / self.model.device.bandwidth, bytes=written, estimated=True)
        return replace(cost, error=moved if target.is_quantised else ROUNDOFF.get(target.precision, 0.0))

    def _is_generated(self, leader: int) -> bool:
        """Return whether a generated kernel makes a class, which then writes it in numbers of a byte as well.

        A library's kernel does not: it makes products, and what it computes at their end.
        """
        nodes = [self.snapshot.nodes[position] for position in self.snapshot.classes[leader].nodes]
        declared = [OPS[node.op] for node in nodes if node.op in OPS]
        computed = any((one.pointwise or one.rowwise) and not one.view for one in declared)
        return computed and not self._ends_product(leader, _MOST_EPILOGUES)

    def _ends_product(self, leader: int, depth: int) -> bool:
        """Return whether a library may make a class: a product, or one with as many operators at its end."""
        for position in self.snapshot.classes[leader].nodes:
            node = self.snapshot.nodes[position]
            if is_product(node.op):
                return True
            if not depth or node.op not in OPS or not OPS[node.op].pointwise:
                continue
            for place, operand in enumerate(node.operands):
                others = [k for i, k in enumerate(node.operands) if i != place]
                if self._is_epilogue(node, others) and self._ends_product(operand, depth - 1):
                    return True
        return False

    def _is_epilogue(self, node: SnapshotNode, others: Sequence[int]) -> bool:
        """Return whether an e-node may be computed at the end of a product of matrices."""
        made, types = self.pricing.results(node)[0], [self.pricing.type(k) for k in others]
        known = [type for type in types if type is not None]
        if made is None or len(known) < len(types):
            return False
        return bool(epilogue_of("matmul", node.op, node.attrs, made, known))

    def _cast(self, source: TensorType, target: TensorType) -> Cost:
        attrs = spec("cast").complete({"to": target.dtype.value})
        return replace(self.model.node("cast", attrs, [source], [target], [False]), error=0.0)
