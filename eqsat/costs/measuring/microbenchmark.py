"""Graphs of copies of one kernel, with data to run them on, for measuring it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eqsat.costs.kernels.fusion import FusedKey, Key
from eqsat.costs.kernels.implementations import Choices, implementations, is_view
from eqsat.costs.kernels.key import OpKey
from eqsat.costs.measuring.operands import Data
from eqsat.errors import CostError, EqsatError
from eqsat.language.graphs.lower import WRITTEN, lower
from eqsat.language.graphs.packed import outputs_axis
from eqsat.language.graphs.quantised import INTEGER
from eqsat.language.onnx.fused.contrib import for_onnxruntime
from eqsat.language.ops import OPS, spec
from eqsat.language.terms import (
    PACKINGS,
    Attrs,
    BlockScale,
    Constant,
    DType,
    Graph,
    Held,
    Implementation,
    Kernel,
    Node,
    Plan,
    Scale,
    State,
    TensorType,
    stored_shape,
)
from eqsat.language.terms.state import QUANTISED

Array = np.ndarray[Any, np.dtype[Any]]


#: Scales of operands and results that are quantised: kernels take the same time with any.
_UNIT_SCALES = {
    "uint8": Scale(DType.UINT8, (1 / 64,), (128,), least=0, most=255),
    "int8": Scale(DType.INT8, (1 / 64,), least=-64, most=64),
}
#: The scale of results that are held between bounds, by which a runtime leaves out the operator that holds them.
_FROM_ZERO = Scale(DType.UINT8, (1 / 64,), least=0, most=255)


@dataclass(frozen=True)
class Microbenchmark:
    """A graph of independent copies of a kernel, the inputs it runs on, and the types of its outputs.

    `tail` is True where each copy ends in a pooling, which is no part of the kernel.
    """

    graph: Graph
    inputs: Mapping[str, Array]
    outputs: Mapping[str, TensorType]
    tail: bool


def build_microbenchmark(
    key: Key, copies: int, seed: int = 0, *, hot: bool = False, contrib: bool = True
) -> Microbenchmark:
    """`copies` independent applications of a kernel, each to data and constants of its own; all results are outputs.

    Where it is `hot` all copies share their constants, which then lie in the nearest memory that holds them.

    Equal applications would be merged by the backend, results that nobody reads removed. A kernel that begins with a
    convolution by constant filters reads one input in all copies and ends in a pooling that keeps one element a
    channel: between convolutions ONNX Runtime keeps a blocked layout, and so the conversions into it and out of it are
    no part of the measured time. What comes or is left column-major is stored so, and a product of such is written as
    `lower` writes it; the backend fuses what it fuses. With `contrib` operators of ONNX Runtime's own stand for those
    that it has. CostError for a kernel that ONNX cannot express.
    """
    chain = FusedKey.of(key)
    results = chain_types(key)
    for member, produced in zip(chain.members, results, strict=True):
        if not is_quantised(member):
            _check_way(member, produced)
    draft = _CopiesDraft(chain, results, Data(seed), hot, contrib)
    for copy in range(copies):
        draft.add(copy)
    graph = draft.graph(f"{copies} x {chain.op}")
    types = {name: graph.type(value) for name, value in graph.outputs.items()}
    outputs = {name: type for name, type in types.items() if isinstance(type, TensorType)}
    return Microbenchmark(graph, draft.inputs, outputs, draft.tail)


def result_types(key: OpKey) -> tuple[TensorType, ...]:
    """The static types an operator makes; CostError where they are not known from its key."""
    declared = OPS.get(key.op)
    if declared is None or not key.is_measurable:
        raise CostError(f"{key.op} cannot be measured alone", where=key.text, expected="an operator on known shapes")
    try:
        results = declared.result_types(key.operands, key.attrs)
    except EqsatError as error:
        raise CostError(f"no such application: {error.what}", where=key.text, expected=error.expected) from error
    except (KeyError, TypeError, ValueError, IndexError) as error:
        attrs = ", ".join(declared.attrs) or "none"
        raise CostError(f"no such application: {error!r}", where=key.text, expected=f"attributes {attrs}") from error
    if not all(r.is_static for r in results):
        raise CostError(f"the shape {key.op} makes depends on its data", where=key.text, expected="known shapes")
    return results


def chain_types(key: Key) -> tuple[tuple[TensorType, ...], ...]:
    """The types that each operator of a kernel makes; CostError where one differs from the operand of the next."""
    chain = stated(FusedKey.of(key))
    results = tuple(result_types(member) for member in chain.members)
    for place, (member, links) in enumerate(zip(chain.members, chain.links, strict=True)):
        for index, link in enumerate(links):
            if link is None:
                _check_same(chain, place, index)
                continue
            producer, read = chain.members[link], member.operands[index]
            if results[link] != (read,) or layout_of(producer, -1) != layout_of(member, index):
                raise CostError(
                    f"{producer.op} does not make the operand {index} of {member.op}",
                    where=chain.text,
                    expected="operators of one result, in the type and the layout in which it is read",
                )
    return results


def is_quantised(key: OpKey) -> bool:
    """Return whether an operator of float32 is computed on quantised numbers."""
    return key.arithmetic == INTEGER or key.arithmetic in PACKINGS


def stated(chain: FusedKey) -> FusedKey:
    """A chain in the element types of its graph: float32 in the place of quantised numbers."""
    if not any(is_quantised(member) for member in chain.members):
        return chain
    members = tuple(replace(_raised(m), layouts=(), result="", arithmetic="") for m in chain.members)
    return FusedKey(members, chain.links, chain.same)


def _raised(key: OpKey) -> OpKey:
    packing = PACKINGS.get(key.arithmetic)
    held = QUANTISED if packing is None else (packing.kind,)
    types = (t if t is None or t.dtype.value not in held else replace(t, dtype=DType.FLOAT32) for t in key.operands)
    return replace(key, operands=tuple(types))


def _state_of(key: OpKey, index: int) -> State:
    """The state of an operand, or of the results at index -1."""
    layout = layout_of(key, index)
    if not is_quantised(key):
        return State(layout)
    if (packing := PACKINGS.get(key.arithmetic)) is not None:
        return State(layout, packing.name if index == 1 else "")
    if index >= 0:
        type = key.operands[index]
        return State(layout, type.dtype.value if type is not None and type.dtype.value in QUANTISED else "")
    first = key.operands[0]
    made = key.result or ("" if first is None else first.dtype.value)
    return State(layout, made if made in QUANTISED else "")


def _check_same(chain: FusedKey, place: int, index: int) -> None:
    """CostError where operands said to be one tensor differ in kind, or are made within the kernel."""
    earlier, other = chain.first(place, index)
    one, two = ((m.operands[i], m.const_operands[i], layout_of(m, i)) for m, i in _operands(chain, place, index))
    if one != two or chain.links[earlier][other] is not None:
        raise CostError(
            f"operand {index} of {chain.members[place].op} is not operand {other} of {chain.members[earlier].op}",
            where=chain.text,
            expected="operands of one type and layout that nothing within makes",
        )


def _operands(chain: FusedKey, place: int, index: int) -> tuple[tuple[OpKey, int], tuple[OpKey, int]]:
    """An operand, and the one that it is the same tensor as."""
    earlier, other = chain.first(place, index)
    return (chain.members[place], index), (chain.members[earlier], other)


def layout_of(key: OpKey, index: int) -> str:
    """The layout of an operand, or of the results at index -1."""
    return key.layouts[index] if key.layouts else "row"


def _check_way(key: OpKey, results: tuple[TensorType, ...]) -> None:
    """CostError for a way to run an operator that ONNX has no words for, or that nothing runs in."""
    foreign = sorted(set(key.layouts) - WRITTEN)
    fault = f"the layout {foreign[0]!r}" if foreign else ""
    fault = f"the arithmetic {key.arithmetic!r}" if key.arithmetic else fault
    fault = f"results in {key.result} of operands in another type" if key.result else fault
    if fault:
        raise CostError(
            f"ONNX has no words for {fault}",
            where=key.text,
            expected="matrices by rows or columns, in the type of the operands",
            remedy="leave it to the estimate",
        )
    check_layouts(key, results, tuple(sorted(WRITTEN)))


def check_layouts(key: OpKey, results: tuple[TensorType, ...], layouts: tuple[str, ...]) -> None:
    """CostError for layouts that no kernel of the operator takes, of those that a backend knows."""
    if not key.layouts:
        return
    way = Implementation(tuple(State(name) for name in key.layouts[:-1]), State(key.layouts[-1]))
    known = implementations(key.op, key.attrs, key.operands, results, key.const_operands, Choices(layouts))
    if way not in known or is_view(key.op, key.attrs, key.operands, way):
        raise CostError(f"{key.op} has no kernel for these layouts", where=key.text, expected="a way it can be run")


class _CopiesDraft:
    """A graph being built copy by copy."""

    def __init__(
        self, chain: FusedKey, results: tuple[tuple[TensorType, ...], ...], data: Data, hot: bool, contrib: bool
    ) -> None:
        self.chain, self.results, self.data, self.hot, self.contrib = chain, results, data, hot, contrib
        self.inputs: dict[str, Array] = {}
        self.constants: dict[str, Constant] = {}
        self.types: dict[str, TensorType] = {}
        self.nodes: list[Node] = []
        self.kernels: list[Kernel] = []
        self.states: dict[str, State] = {}
        self.outputs: list[str] = []
        self.scales: dict[tuple[str, str], Scale | BlockScale] = {}
        self.typed = stated(chain)
        first = chain.members[0]
        filtered = first.op == "conv" and len(first.const_operands) > 1 and first.const_operands[1]
        self.tail = filtered and results[0] == results[-1] and not (is_quantised(first) and contrib)

    def add(self, copy: int) -> None:
        """One more application."""
        read: dict[str, Held] = {}
        values: list[tuple[str, ...]] = []
        for place, (member, links) in enumerate(zip(self.chain.members, self.chain.links, strict=True)):
            operands: list[str | None] = []
            for index, link in enumerate(links):
                name = self._operand(copy, place, index) if link is None else values[link][0]
                operands.append(name)
                if name is not None and link is None:
                    read[name] = Held(name, self._state(member, index))
            last = place == len(self.chain.members) - 1
            values.append(tuple(f"{'y' if last else f't{place}_'}{copy}_{i}" for i in range(len(self.results[place]))))
            self.types.update(zip(values[-1], self.results[place], strict=True))
            self.nodes.append(Node(member.op, tuple(operands), values[-1], member.attrs))
        end = self.chain.members[-1]
        state = self._state(end, -1)
        nodes = tuple(outputs[0] for outputs in values)
        made = tuple(Held(v, state) for v in values[-1])
        self.kernels.append(Kernel(nodes, tuple(read.values()), made, end.arithmetic))
        for held in (*read.values(), *made):
            if (packing := PACKINGS.get(held.state.precision)) is not None:
                shape = self.constants[held.value].array.shape
                self.scales[held.value, packing.name] = BlockScale.even(packing, outputs_axis(end.attrs), shape)
            elif held.state.is_quantised:
                self.scales.setdefault((held.value, held.state.precision), _UNIT_SCALES[held.state.precision])
        if state.precision == "uint8" and (OPS[end.op].clamps or end.attrs.get("activation", "none") != "none"):
            self.scales |= {(held.value, state.precision): _FROM_ZERO for held in made}
        self.states |= dict.fromkeys(values[-1], state)
        self.outputs += [self._pooled(values[-1][0], whole=True)] if self.tail else values[-1]

    def _state(self, key: OpKey, index: int) -> State:
        """The state of an operand or the result: in rows where it is fed to another runtime than ONNX Runtime.

        Turned before it is restored, an image of integers would keep its kernel in float32 on OpenVINO, which turns
        images by itself.
        """
        state = _state_of(key, index)
        return state if self.contrib or not is_quantised(key) else replace(state, layout="row")

    def graph(self, name: str) -> Graph:
        """The graph of all copies, in the words of ONNX."""
        if self.contrib and self._reads_images:
            self._accompany()
        outputs = {v: v for v in self.outputs}
        graph = Graph(name, tuple(self.inputs), outputs, tuple(self.nodes), self.constants, self.types)
        boundary = {value: state for value, state in self.states.items() if not state.is_plain}
        if not any(member.layouts or is_quantised(member) for member in self.chain.members):
            return for_onnxruntime(graph) if self.contrib else graph
        return lower(Plan(graph, tuple(self.kernels), boundary, self.scales))

    @property
    def _reads_images(self) -> bool:
        """True for operators on images of integers none of which is a convolution."""
        first = self.chain.members[0]
        return is_quantised(first) and layout_of(first, 0) == "nhwc" and not OPS[first.op].product

    def _accompany(self) -> None:
        """Add a convolution on integers, of one element.

        Where a graph has one, and only there, ONNX Runtime moves the turning of images past operators that it has
        kernels for, as it does in a network.
        """
        state, image = State("nhwc", "uint8"), TensorType.of("float32", (1, 1, 1, 1))
        self.types |= dict.fromkeys(("image", "filter", "filtered"), image)
        self.constants["filter"] = Constant.of(np.ones((1, 1, 1, 1), np.float32), DType.FLOAT32)
        self.inputs["image"] = np.ones((1, 1, 1, 1), np.uint8)
        attrs = Attrs(spec("conv").complete({}))
        self.nodes.append(Node("conv", ("image", "filter"), ("filtered",), attrs))
        operands = (Held("image", state), Held("filter", State("row", "int8")))
        self.kernels.append(Kernel(("filtered",), operands, (Held("filtered", state),), INTEGER))
        self.scales |= {(v, "uint8"): _UNIT_SCALES["uint8"] for v in ("image", "filtered")}
        self.scales["filter", "int8"] = _UNIT_SCALES["int8"]
        self.states |= {"image": state, "filtered": state}
        self.outputs.append("filtered")

    def _operand(self, copy: int, place: int, index: int) -> str | None:
        place, index = self.chain.first(place, index)
        member = self.chain.members[place]
        type = self.typed.members[place].operands[index]
        if type is None:
            return None
        const = member.const_operands[index]
        # Operands that are only indexed need not differ between copies: the indices do.
        image = self.tail and not const and (place == 0 or type == self.results[0][0])
        shared = image or (const and (self.hot or OPS[member.op].movement))
        number = index + sum(len(earlier.operands) for earlier in self.chain.members[:place])
        name = f"{'w' if const else 'x'}{number}" + ("" if shared else f"_{copy}")
        if name not in self.types:
            self.types[name] = type
            if const:
                self.constants[name] = Constant.of(self.data.operand(member, index, type), type.dtype)
            else:
                state = self.states[name] = self._state(member, index)
                stored = state.typed(type.with_shape(stored_shape(type.dims, state.layout)))
                self.inputs[name] = self.data.operand(member, index, stored)
        # An image that a convolution did not make is brought into the blocked layout once for all copies.
        return self._pooled(name, whole=False) if image and place else name

    def _pooled(self, value: str, *, whole: bool) -> str:
        """A pooling of single elements: of one a channel, by a stride of the whole plane, or of all there are."""
        name = f"{value}_p"
        if name not in self.types:
            (image,) = self.results[0]
            spatial = image.static[2:]
            attrs = {"kernel": (1,) * len(spatial), "strides": spatial if whole else (1,) * len(spatial)}
            pool = spec("max_pool")
            full = pool.complete({k: v for k, v in attrs.items() if k in pool.attrs})
            self.types[name] = pool.result_types((image,), full)[0]
            self.nodes.append(Node("max_pool", (value,), (name,), Attrs(full)))
            if (state := self.states.get(value, State())).is_quantised:
                self._pool_integers(value, name, state)
        return name

    def _pool_integers(self, value: str, name: str, state: State) -> None:
        """The kernel of a pooling on integers; what it makes at the end of a copy is an output."""
        self.kernels.append(Kernel((name,), (Held(value, state),), (Held(name, state),), INTEGER))
        self.scales[name, state.precision] = self.scales.get((value, state.precision), _UNIT_SCALES[state.precision])
        self.states[name] = state
