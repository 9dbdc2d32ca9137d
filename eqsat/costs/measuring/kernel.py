"""A kernel as a plan of its own with data to run it on, for devices whose programs are made of plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from eqsat.costs.kernels.fusion import FusedKey, Key
from eqsat.costs.kernels.key import OpKey
from eqsat.costs.kernels.precision import NARROW, is_product
from eqsat.costs.measuring.microbenchmark import Array, chain_types, check_layouts, layout_of
from eqsat.costs.measuring.operands import Data
from eqsat.errors import EqsatError
from eqsat.language.terms import Constant, DType, Graph, Held, Kernel, Node, Plan, State, TensorType, stored_shape

#: The layouts that strides can say.
_ORDERS = ("row", "column", "nhwc")


@dataclass(frozen=True)
class PlannedKernel:
    """One kernel as a plan, and the inputs it is run on, each with its axes in the order in which it is stored."""

    plan: Plan
    inputs: Mapping[str, Array]


def planned(key: Key, seed: int = 0) -> PlannedKernel:
    """The plan of one kernel: operands in the states of its key, random nonzero data, constants as weights.

    A product that rounds its operands and keeps its sums is stated in float32 with its operands held lower. CostError
    for a kernel that nothing runs.
    """
    chain = FusedKey.of(key)
    stated = _stated(chain)
    draft = _KernelDraft(stated, _states(chain), seed)
    for member, results in zip(stated.members, draft.results, strict=True):
        check_layouts(member, results, _ORDERS)
    return draft.planned(chain.op)


def runs_nothing(key: Key) -> bool:
    """Return whether a GPU launches nothing for a kernel, as for a change of strides; False for one it cannot run.

    >>> runs_nothing(OpKey.parse('transpose {"perm":[1,0]} float32[2, 3]'))
    True
    """
    from eqsat.runtime.cuda.program.lowering import program_of

    try:
        return not program_of(planned(key).plan).launches
    except EqsatError:
        return False


def _states(chain: FusedKey) -> tuple[tuple[tuple[State, ...], State], ...]:
    """The states of each member's operands, then of its result."""
    mixed = any(member.result for member in chain.members)

    def state(layout: str, type: TensorType | None) -> State:
        return State(layout, type.dtype.value if mixed and type is not None and type.dtype.value in NARROW else "")

    states = []
    for member in chain.members:
        taken = tuple(state(layout_of(member, i), t) for i, t in enumerate(member.operands))
        narrow = next((s.precision for s in taken if s.precision), "")
        # Where a product says what it makes, that is float32; what comes after it makes what it reads.
        precision = ("" if member.result == DType.FLOAT32.value else member.result) if member.result else narrow
        states.append((taken, State(layout_of(member, -1), precision)))
    return tuple(states)


def _stated(chain: FusedKey) -> FusedKey:
    """The chain in the element types of its graph: float32 where operands are held lower than results."""
    if not any(member.result for member in chain.members):
        return chain
    return FusedKey(tuple(_raised(member) for member in chain.members), chain.links, chain.same)


def _raised(member: OpKey) -> OpKey:
    operands = tuple(
        replace(t, dtype=DType.FLOAT32) if t is not None and t.dtype.value in NARROW else t for t in member.operands
    )
    return replace(member, operands=operands, result="")


class _KernelDraft:
    """A plan of one kernel being built."""

    def __init__(self, chain: FusedKey, states: tuple[tuple[tuple[State, ...], State], ...], seed: int) -> None:
        self.chain, self.member_states = chain, states
        self.results = chain_types(chain)
        self.data = Data(seed, signed=any(is_product(m.op) for m in chain.members))
        self.inputs: dict[str, Array] = {}
        self.constants: dict[str, Constant] = {}
        self.types: dict[str, TensorType] = {}
        self.states: dict[str, State] = {}

    def planned(self, name: str) -> PlannedKernel:
        """The plan, once all operands and nodes are named."""
        nodes: list[Node] = []
        read: dict[str, Held] = {}
        last = len(self.chain.members) - 1
        for place, (member, links) in enumerate(zip(self.chain.members, self.chain.links, strict=True)):
            operands: list[str | None] = []
            for index, link in enumerate(links):
                value = self._operand(place, index) if link is None else nodes[link].outputs[0]
                operands.append(value)
                if value is not None and link is None:
                    read[value] = Held(value, self.member_states[place][0][index])
            stem = "y" if place == last else f"t{place}_"
            computed = tuple(f"{stem}{i}" for i in range(len(self.results[place])))
            self.types.update(zip(computed, self.results[place], strict=True))
            nodes.append(Node(member.op, tuple(operands), computed, member.attrs))
        state = self.member_states[-1][1]
        results = tuple(Held(value, state) for value in nodes[-1].outputs)
        arithmetic = next((m.arithmetic for m in self.chain.members if m.arithmetic), "")
        kernel = Kernel(tuple(node.outputs[0] for node in nodes), tuple(read.values()), results, arithmetic)
        outputs = {value: value for value in nodes[-1].outputs}
        graph = Graph(name, tuple(self.inputs), outputs, tuple(nodes), self.constants, self.types)
        boundary = {value: read[value].state for value in self.inputs} | dict.fromkeys(outputs, state)
        plain = {value: state for value, state in boundary.items() if not state.is_plain}
        return PlannedKernel(Plan(graph, (kernel,), plain), self.inputs)

    def _operand(self, place: int, index: int) -> str | None:
        place, index = self.chain.first(place, index)
        member = self.chain.members[place]
        type = member.operands[index]
        if type is None:
            return None
        const = member.const_operands[index]
        name = f"{'w' if const else 'x'}{place}_{index}"
        self.types[name] = type
        if const:
            self.constants[name] = Constant.of(self.data.operand(member, index, type), type.dtype)
        else:
            state = self.member_states[place][0][index]
            stored = state.typed(type).with_shape(stored_shape(type.dims, state.layout))
            self.inputs[name] = self.data.operand(member, index, stored)
        return name
