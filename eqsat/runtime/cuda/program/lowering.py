"""From a plan to the launches that compute it: views, library calls where they fit, generated kernels for the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from eqsat.errors import BackendError
from eqsat.language.terms.graph import Graph, Node
from eqsat.language.terms.plan import Conversion, Held, Kernel, Plan
from eqsat.language.terms.state import LAYOUTS, PLAIN, State
from eqsat.language.terms.types import DType, TensorType
from eqsat.runtime.cuda.libraries.calls import Call
from eqsat.runtime.cuda.program.grouping import grouped
from eqsat.runtime.cuda.program.placement import Placement, placement, seen_as
from eqsat.runtime.cuda.program.products import LIBRARIES, Products
from eqsat.runtime.cuda.program.program import Buffer, CudaProgram, Fallback, Launch, Role
from eqsat.runtime.cuda.program.sharing import Blocks
from eqsat.runtime.cuda.program.static import plain_plan, static_graph, static_plan, whole_sizes
from eqsat.runtime.cuda.program.unfolding import unfolded
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.templates.codegen import generate
from eqsat.runtime.kernels.view import View


def program_of(
    given: Plan | Graph, sizes: Mapping[str, int] | None = None, *, libraries: Iterable[str] = LIBRARIES
) -> CudaProgram:
    """The launches of a plan, or of a graph, at sizes of its named dims.

    `libraries` are those whose kernels may be called: "cublaslt" for matrix products, "cudnn" for convolutions and
    attention; what they do not compute is generated. BackendError for what cannot run on a GPU at all.
    """
    sizes = whole_sizes(sizes or {}, (given.graph if isinstance(given, Plan) else given).name)
    plan = given if isinstance(given, Plan) else plain_plan(static_graph(given, sizes))
    plan = static_plan(plan, sizes)
    return Lowering(grouped(plan), frozenset(libraries)).program()


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
        """The state of the values made on the way."""
        return next(iter(self.results.values()))

    def rest(self, taken: int) -> Part:
        """The part without its first nodes."""
        return replace(self, nodes=self.nodes[taken:])

    def leaving(self, taken: int) -> tuple[str, ...]:
        """The values of the first `taken` nodes that are read later, or are results."""
        later = {v for n in self.nodes[taken:] for v in n.inputs}
        made = (o for n in self.nodes[:taken] for o in n.outputs if o)
        return tuple(v for v in made if v in later or v in self.results)


class Lowering:
    """One program in the making: the views of values by state, and the launches so far."""

    def __init__(self, plan: Plan, libraries: frozenset[str]) -> None:
        self.plan, self.graph = plan, plan.graph
        self.types: dict[str, TensorType] = {v: _tensor(t) for v, t in plan.graph.types.items()}
        self.constants = dict(plan.graph.constants)
        self.buffers: dict[str, Buffer] = {}
        self.blocks = Blocks()
        self.views: dict[Held, View] = {}
        self.launches: list[Launch] = []
        self.wishes: Placement = placement(plan, self.types)
        self.producers = {next(o for o in n.outputs if o): n for n in plan.graph.nodes}
        self.products = Products(self, libraries)

    def program(self) -> CudaProgram:
        """The launches, with only the buffers that they or the caller need."""
        inputs = {}
        for name in self.graph.inputs:
            state = self.plan.boundary.get(name, PLAIN)
            view = self.views[Held(name, state)] = self.new(name, name, state, "input")
            inputs[name] = _as_stored(view, state)
        for step in self.plan.steps:
            if isinstance(step, Conversion):
                self._convert(step)
            else:
                self._kernel(step)
        outputs = {}
        for name, value in self.graph.outputs.items():
            state = self.plan.boundary.get(name, PLAIN)
            outputs[name] = _as_stored(self.read(Held(value, state)), state)
        used = {v.buffer for launch in self.launches for v in (*launch.reads, *launch.writes)}
        used |= {v.buffer for v in (*inputs.values(), *outputs.values())}
        kept = {name: b for name, b in self.buffers.items() if name in used}
        for view in outputs.values():
            if kept[view.buffer].role == "value":
                kept[view.buffer] = replace(kept[view.buffer], role="output")
        weights = {
            view.buffer: (self.constants[held.value], view)
            for held, view in self.views.items()
            if held.value in self.constants and kept.get(view.buffer, Buffer("", 0, "value")).role == "weight"
        }
        return CudaProgram(self.graph.name, kept, tuple(self.launches), inputs, outputs, weights)

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
        title = name if name not in self.buffers else f"{name} ({len(self.buffers)})"
        view = View.of(title, type.dtype, type.static, stored if order is None else order)
        self.buffers[title] = Buffer(title, view.nbytes, role)
        return view

    def place(self, held: Held) -> View:
        """The view to write a value to: within the concatenation it is a part of, or in a buffer of its own."""
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
            name = held.value if held.state.is_plain else f"{held.value} as {held.state}"
            view = self.new(name, held.value, held.state, "value", order)
        self.views[held] = view
        return view

    def read(self, held: Held) -> View:
        """The view of a value in a state; a constant is put in that state when first asked for."""
        found = self.views.get(held)
        if found is None:
            if held.value not in self.constants:
                raise BackendError(f"{held.value!r} is not held in state {held.state}", where=self.graph.name)
            name = held.value if held.state.is_plain else f"{held.value} as {held.state}"
            view = self.new(name, held.value, held.state, "weight")
            # What is handed out may be written to by whoever gets it.
            handed_out = held.value in self.graph.outputs.values()
            shared = None if handed_out else self.blocks.shared(self.constants[held.value], view)
            if shared is not None:
                del self.buffers[view.buffer]
            found = self.views[held] = view if shared is None else shared
        return found

    def operand(self, part: Part, value: str) -> View:
        """The view a part reads a value by."""
        found = part.inner.get(value)
        return self.read(Held(value, part.states.get(value, part.state))) if found is None else found

    def result(self, part: Part, value: str) -> View:
        """The view a part writes a value to: its place, or a buffer that only the part itself reads."""
        if value in part.results:
            part.inner[value] = self.place(Held(value, part.results[value]))
        elif value not in part.inner:
            part.inner[value] = self.new(value, value, part.state, "value")
        return part.inner[value]

    def copied(self, view: View, target: View, label: str) -> View:
        """A launch that copies the elements of one view to another, which may be of another element type."""
        type = TensorType(view.dtype, view.shape)
        node = Node("identity", ("from",), ("to",))
        group = Group((node,), {"from": type, "to": type}, {"from": view}, {"to": target})
        source = generate(group)
        if source is None:
            raise BackendError(f"no kernel copies {view.dtype.value} to {target.dtype.value}", where=label)
        source = replace(source, comment=f"copy of {label}")
        reads = (view,) if "from" in source.arguments else ()  # of no elements nothing is read
        self.launches.append(Launch(source, reads, (target,), (), f"copy of {label}"))
        return target

    def spare(self, label: str, dtype: DType, shape: Sequence[int]) -> View:
        """A buffer between two launches, for an array that is no value of the graph, with its elements in order."""
        title = f"{label}, in order"
        title = title if title not in self.buffers else f"{title} ({len(self.buffers)})"
        view = View.of(title, dtype, shape)
        self.buffers[title] = Buffer(title, view.nbytes, "value")
        return view

    def contiguous(self, view: View, label: str) -> View:
        """A copy with its elements in order."""
        return self.copied(view, self.spare(label, view.dtype, view.shape), label)

    def call(self, call: Call, reads: Sequence[View], result: View, values: Sequence[str], label: str) -> None:
        """A launch of a library's kernel."""
        self.launches.append(Launch(call, tuple(reads), (result,), tuple(values), label))

    def _convert(self, step: Conversion) -> None:
        held = Held(step.value, step.target)
        view = self.read(Held(step.value, step.source))
        if step.value in self.constants:
            self.read(held)
            return
        target = self.new(f"{step.value} as {step.target}", step.value, step.target, "value")
        if target.dtype == view.dtype and view.offset == 0 and _same_places(view, target):
            self.views[held] = view
        else:
            self.views[held] = self.copied(view, target, f"{step.value} as {step.target}")

    def _kernel(self, kernel: Kernel) -> None:
        states = {held.value: held.state for held in kernel.operands}
        results = {held.value: held.state for held in kernel.results}
        self._part(Part(tuple(self.producers[v] for v in kernel.nodes), states, results, kernel.arithmetic))

    def _part(self, part: Part) -> None:
        """Views where they do, else launches, for all nodes of a part."""
        if len(part.nodes) == 1 and (self._as_views(part) or self._as_parts(part)):
            return
        while part.nodes:
            taken = self.products.take(part) or self._unfold(part) or self._generate(part)
            part = part.rest(taken)

    def _unfold(self, part: Part) -> int:
        """Replace nodes that no kernel computes at once by operators with kernels; their number, or 0 if one stays.

        What comes after it in its part goes on after the last of them.
        """
        node = part.nodes[0]
        if node.op == "gemm" and "cublaslt" not in self.products.libraries:
            return 0  # one generated kernel computes it all
        made = unfolded(node, self.types, lambda op: f"{node.outputs[0]} ({op} {len(self.types)})")
        if made is None:
            return 0
        self.constants |= made.constants
        inner = State("row", part.state.precision)
        states = {v: part.states.get(v, part.state) for n in part.nodes for v in n.inputs if v is not None}
        states |= {n.outputs[0]: part.results.get(n.outputs[0], inner) for n in made.nodes}
        states |= part.results
        groups = made.groups()
        groups[-1] += part.nodes[1:]
        for index, group in enumerate(groups):
            later = {v for rest in groups[index + 1 :] for n in rest for v in n.inputs} | set(part.results)
            results = {o: states[o] for n in group for o in n.outputs if o in later}
            taken = {v: states.get(v, inner) for n in group for v in n.inputs if v is not None and v not in results}
            self._part(Part(group, taken, results, part.arithmetic, part.inner))
        return len(part.nodes)

    def _as_views(self, part: Part) -> bool:
        """Return whether the results are their operand seen in another way, and need no launch."""
        node = part.nodes[0]
        source = node.inputs[0] if node.inputs else None
        if source is None:
            return False
        type = self.types[source]
        if part.states[source].typed(type).dtype != part.state.typed(type).dtype:
            return False
        made = [o for o in node.outputs if o]
        views = seen_as(node, self.operand(part, source), [self.types[o] for o in made])
        if views is None:
            return False
        for name, view in zip(node.outputs, views, strict=True):
            if name:
                self.views[Held(name, part.results[name])] = view
        return True

    def _as_parts(self, part: Part) -> bool:
        """Return whether some parts of a concatenation lie in it already; the others are copied there."""
        node = part.nodes[0]
        whole = node.outputs[0]
        if node.op != "concat" or not any(h.whole.value == whole for h in self.wishes.homes.values()):
            return False
        target = self.place(Held(whole, part.results[whole]))
        axis, start = node.attrs["axis"] % target.rank, 0
        for value in node.inputs:
            name = str(value)
            size = self.types[name].static[axis]
            here, there = self.operand(part, name), target.sliced(axis, start, size)
            placed = here.buffer == there.buffer and here.offset == there.offset and _same_places(here, there)
            if not placed and self.types[name].size:
                self.copied(here, there, f"{name} into {whole}")
            start += size
        return True

    def _generate(self, part: Part) -> int:
        """Launch one generated kernel over as many of the first nodes as one can compute."""
        for taken in range(len(part.nodes), 0, -1):
            nodes = part.nodes[:taken]
            within = {o for n in nodes for o in n.outputs if o}
            read = dict.fromkeys(v for n in nodes for v in n.inputs if v is not None and v not in within)
            operands = {v: self.operand(part, v) for v in read}
            leaving = part.leaving(taken)
            before = set(self.buffers)
            results = {v: self.result(part, v) for v in leaving}
            types = {v: self.types[v] for v in (*read, *within)}
            constants = {v: self.constants[v] for v in read if v in self.constants}
            source = generate(Group(nodes, types, operands, results, constants))
            if source is not None:
                views = {**operands, **results}
                reads = tuple(views[v] for v in source.arguments if v in operands)
                writes = tuple(views[v] for v in source.arguments if v in results)
                label = " + ".join(n.op for n in nodes)
                self.launches.append(Launch(source, reads, writes, leaving, label))
                return taken
            if taken > 1:
                self._forget(part, leaving, before)
        return self._fall_back(part)

    def _forget(self, part: Part, leaving: Sequence[str], before: set[str]) -> None:
        """Remove the buffers made for a kernel that is given up."""
        for name in set(self.buffers) - before:
            del self.buffers[name]
        for value in leaving:
            view = part.inner.pop(value, None)
            if view is not None and view.buffer not in self.buffers:
                self.views = {h: v for h, v in self.views.items() if v.buffer in self.buffers}

    def _fall_back(self, part: Part) -> int:
        node = part.nodes[0]
        reads = tuple(self.operand(part, v) for v in node.inputs if v is not None)
        writes = tuple(self.result(part, v) for v in node.outputs if v)
        values = tuple(v for v in node.outputs if v)
        self.launches.append(Launch(Fallback(node), reads, writes, values, node.op))
        return 1


def _as_stored(view: View, state: State) -> View:
    """A value at the boundary as the caller holds it: the axes in the order they are stored."""
    order = LAYOUTS[state.layout].order(view.rank)
    return view if order is None else view.permuted(order)


def _same_places(one: View, other: View) -> bool:
    """Return whether two views of one shape put their elements in the same places."""
    pairs = zip(one.shape, one.strides, other.strides, strict=True)
    return all(size == 1 or a == b for size, a, b in pairs)


def _tensor(type: object) -> TensorType:
    if not isinstance(type, TensorType):
        raise BackendError(f"{type} is no tensor", expected="tensors alone")
    return type
