"""Launches as they are added to a program, with the views of values that they read and write."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from eqsat.errors import BackendError
from eqsat.language.terms import LAYOUTS, DType, Held, Node, Plan, State, TensorType
from eqsat.language.terms.constant import Array, Constant, narrowed
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.source import KernelSource
from eqsat.runtime.kernels.view import View
from eqsat.runtime.programs.launches import Buffer, KernelSeries, KernelWork, Launch, LibraryCall, Role
from eqsat.runtime.programs.placement import Placement, placement

#: Makes the kernel or kernels of a group; None where there are none for all of its operators together.
KernelMaker = Callable[[Group], "KernelWork | KernelSeries | None"]
#: Elements that tell most blocks of one size apart.
_SAMPLE = 32


@dataclass
class Part:
    """Nodes on their way to a launch: the states they read their operands in, and make their results in."""

    nodes: tuple[Node, ...]
    states: Mapping[str, State]
    results: Mapping[str, State]
    arithmetic: str
    inner: dict[str, View] = field(default_factory=dict)

    @property
    def state(self) -> State:
        """The state of the first result."""
        return next(iter(self.results.values()))

    @property
    def inner_state(self) -> State:
        """The state of the values made on the way: that of the result, but in no float of 8 bits."""
        bits8 = self.state.precision == DType.FLOAT8E4M3FN.value
        return State(self.state.layout) if bits8 else self.state

    def rest(self, taken: int) -> Part:
        """The part without its first nodes."""
        return replace(self, nodes=self.nodes[taken:])

    def leaving(self, taken: int) -> tuple[str, ...]:
        """The values of the first nodes that are read later, or are results."""
        later = {v for n in self.nodes[taken:] for v in n.inputs}
        made = (o for n in self.nodes[:taken] for o in n.outputs if o)
        return tuple(v for v in made if v in later or v in self.results)


class Emitter:
    """A program in the making: the views of values by state, and the launches so far."""

    def __init__(self, plan: Plan, make: KernelMaker) -> None:
        self.make = make
        self.plan, self.graph = plan, plan.graph
        self.types: dict[str, TensorType] = {v: _tensor(t) for v, t in plan.graph.types.items()}
        self.constants = dict(plan.graph.constants)
        self.buffers: dict[str, Buffer] = {}
        self.views: dict[Held, View] = {}
        self.launches: list[Launch] = []
        self.flag: View | None = None
        self.wishes: Placement = placement(plan, self.types)
        self._blocks = Blocks()

    def new(self, name: str, value: str, state: State, role: Role, order: Sequence[int] | None = None) -> View:
        """A buffer of its own for a value in a state."""
        type = state.typed(self.types[value])
        stored = LAYOUTS[state.layout].order(type.rank)
        if stored is None:
            raise BackendError(
                f"{value!r} is held in the layout {state.layout!r}, which no kernel here reads",
                where=self.graph.name,
                expected="a plan for a GPU",
                remedy="optimise with device='cuda', or the name of a GPU",
            )
        return self._buffer(name, type.dtype, type.static, role, stored if order is None else order)

    def _buffer(
        self, name: str, dtype: DType, shape: Sequence[int], role: Role, order: Sequence[int] | None = None
    ) -> View:
        title = name if name not in self.buffers else f"{name} ({len(self.buffers)})"
        view = View.of(title, dtype, shape, order)
        self.buffers[title] = Buffer(title, view.nbytes, role)
        return view

    def place(self, held: Held) -> View:
        """Where a value is to be written: in the concatenation it is a part of, or in a buffer of its own."""
        if held in self.views:
            return self.views[held]
        home = self.wishes.homes.get(held.value)
        if home is not None and home.whole.state == held.state:
            whole = self.place(home.whole)
            part = whole.sliced(home.axis, home.start, home.size)
            seen = part.reshaped(self.types[held.value].static)
            view = part if seen is None else seen
        else:
            order = self.wishes.orders.get(held.value) if held.state.layout == "row" else None
            view = self.new(_title(held), held.value, held.state, "value", order)
        self.views[held] = view
        return view

    def read(self, held: Held) -> View:
        """Where a value lies in a state; a constant is put in that state when first asked for."""
        view_there = self.views.get(held)
        if view_there is None:
            if held.value not in self.constants:
                raise BackendError(f"{held.value!r} is not held in state {held.state}", where=self.graph.name)
            view = self.new(_title(held), held.value, held.state, "weight")
            # An output may be written to by whoever gets it.
            handed_out = held.value in self.graph.outputs.values()
            shared = None if handed_out else self._blocks.shared(self.constants[held.value], view)
            if shared is not None:
                del self.buffers[view.buffer]
            view_there = self.views[held] = view if shared is None else shared
        return view_there

    def operand(self, part: Part, value: str) -> View:
        """The view a part reads a value by."""
        view = part.inner.get(value)
        return self.read(Held(value, part.states.get(value, part.state))) if view is None else view

    def result(self, part: Part, value: str) -> View:
        """The view a part writes a value to: its place, or a buffer that only the part itself reads."""
        if value in part.results:
            part.inner[value] = self.place(Held(value, part.results[value]))
        elif value not in part.inner:
            part.inner[value] = self.new(value, value, part.inner_state, "value")
        return part.inner[value]

    def copied(self, view: View, target: View, label: str) -> View:
        """A launch that copies the elements of one view to another, which may be of another element type."""
        type = TensorType(view.dtype, view.shape)
        node = Node("identity", ("from",), ("to",))
        group = Group((node,), {"from": type, "to": type}, {"from": view}, {"to": target})
        source = self.make(group)
        if source is None or isinstance(source, KernelSeries):
            raise BackendError(f"no kernel copies {view.dtype.value} to {target.dtype.value}", where=label)
        if isinstance(source, KernelSource):
            source = replace(source, comment=f"copy of {label}")
        reads = (view,) if "from" in source.arguments else ()  # of no elements nothing is read
        self.launches.append(Launch(source, reads, (target,), (), f"copy of {label}"))
        return target

    def spare(self, label: str, dtype: DType, shape: Sequence[int]) -> View:
        """A buffer between two launches, for elements in order that are no value of the graph."""
        return self._buffer(f"{label}, in order", dtype, shape, "value")

    def contiguous(self, view: View, label: str) -> View:
        """A copy with its elements in order."""
        return self.copied(view, self.spare(label, view.dtype, view.shape), label)

    def series(self, series: KernelSeries, views: Mapping[str, View], results: Mapping[str, View], label: str) -> None:
        """Launches of kernels one after the other, with buffers for what only they use."""
        places = {buffer: views[value] for buffer, value in series.values.items()}
        for name, type in series.temporaries.items():
            places[name] = self._buffer(f"{label}, {name}", type.dtype, type.static, "value")
        last = {series.values.get(name): number for number, one in enumerate(series.kernels) for name in one.writes}
        for number, one in enumerate(series.kernels):
            reads = tuple(places[name] for name in one.reads)
            writes = tuple(places[name] if name in places else self._flag() for name in one.writes)
            made = tuple(value for value in results if last.get(value) == number)
            part = f", {number + 1} of {len(series.kernels)}" if len(series.kernels) > 1 else ""
            self.launches.append(Launch(one.source, reads, writes, made, f"{label}{part}"))

    def _flag(self) -> View:
        """The flag of the program, which all kernels that can fail share."""
        if self.flag is None:
            self.flag = self._buffer("failed", DType.INT32, (1,), "flag")
        return self.flag

    def call(self, call: LibraryCall, reads: Sequence[View], result: View, values: Sequence[str], label: str) -> None:
        """A launch of a library's kernel."""
        self.launches.append(Launch(call, tuple(reads), (result,), tuple(values), label))


def _title(held: Held) -> str:
    return held.value if held.state.is_plain else f"{held.value} as {held.state}"


def _tensor(type: object) -> TensorType:
    if not isinstance(type, TensorType):
        raise BackendError(f"{type} is no tensor", expected="tensors alone")
    return type


@dataclass
class _StoredConstant:
    """A constant in memory: the whole buffer that the view shows, in the order in which it is stored."""

    constant: Constant
    view: View

    def ordered(self) -> Array:
        """The elements as they are stored, in the element type of the constant itself."""
        order = sorted(range(self.view.rank), key=lambda axis: (-self.view.strides[axis], axis))
        return np.transpose(self.constant.array.reshape(self.view.shape), order)

    def sample(self) -> bytes:
        """A few of the stored elements, from the first to the last."""
        ordered = self.ordered()
        places = np.unique(np.linspace(0, ordered.size - 1, _SAMPLE).astype(np.int64))
        return self._bytes(ordered.flat[places])

    def stored(self) -> bytes:
        """All of the bytes."""
        return self._bytes(self.ordered())

    @cached_property
    def digest(self) -> bytes:
        """A hash of all of the bytes."""
        return hashlib.blake2b(self.stored(), digest_size=16).digest()

    def _bytes(self, elements: Array) -> bytes:
        return np.ascontiguousarray(narrowed(elements, self.view.dtype)).tobytes()


class Blocks:
    """The constants that are in memory so far: one block for all whose bytes are the same, whatever their shapes.

    Memory that a caller may write to is an input, and never among them.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[DType, int, bytes], list[_StoredConstant]] = {}

    def shared(self, constant: Constant, view: View) -> View | None:
        """A view of a constant that is stored already as `view` asks; None if there is none, and `view` is then stored.

        Compared by element type and size, then by a sample of the bytes, by a hash of them, and by all of them: 0.0 is
        not -0.0, and NaN is NaN where its bits are the same.
        """
        if not view.count:
            return None
        block = _StoredConstant(constant, view)
        alike = self._known.setdefault((view.dtype, view.nbytes, block.sample()), [])
        for other in alike:
            if other.digest == block.digest and other.stored() == block.stored():
                return replace(view, buffer=other.view.buffer)
        alike.append(block)
        return None
