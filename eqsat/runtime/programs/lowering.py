"""From a plan to the launches that compute it: views, library calls where they fit, generated kernels for the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from eqsat.language.terms import LAYOUTS, PLAIN, Conversion, Graph, Held, Kernel, Plan, State
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.view import View
from eqsat.runtime.programs.emitter import Emitter, KernelMaker, Part
from eqsat.runtime.programs.grouping import ProductEnds, grouped
from eqsat.runtime.programs.launches import Buffer, Fallback, KernelSeries, Launch
from eqsat.runtime.programs.placement import seen_as
from eqsat.runtime.programs.program import KernelProgram
from eqsat.runtime.programs.quantised import explicit
from eqsat.runtime.programs.static import plain_plan, static_graph, static_plan, whole_sizes
from eqsat.runtime.programs.unfolding import unfolded


class ProductTaker(Protocol):
    """Finds what a library computes, by the names of the libraries whose kernels may be called."""

    @property
    def libraries(self) -> frozenset[str]:
        """The names of the libraries."""

    def take(self, part: Part) -> int:
        """Launch a library's kernel over the first nodes of a part; how many it computes, 0 where there is none."""


@dataclass(frozen=True)
class KernelMakers:
    """Makers of the kernels of a program: of groups, and of products by libraries, with what these compute at the end.

    Without libraries every kernel is generated.
    """

    make: KernelMaker
    products: Callable[[Emitter], ProductTaker] | None = None
    ends: ProductEnds | None = None


def lowered_program(given: Plan | Graph, sizes: Mapping[str, int], makers: KernelMakers) -> KernelProgram:
    """The launches of a plan, or of a graph, at sizes of its named dims.

    BackendError for nodes that no program runs, and for invalid sizes.
    """
    return lowering_of(given, sizes, makers).program()


def lowering_of(given: Plan | Graph, sizes: Mapping[str, int], makers: KernelMakers) -> Lowering:
    """The lowering of a plan, or of a graph, at sizes of its named dims; it knows where values lie once it is done.

    BackendError for nodes that no program runs, and for invalid sizes.
    """
    sizes = whole_sizes(sizes, (given.graph if isinstance(given, Plan) else given).name)
    plan = given if isinstance(given, Plan) else plain_plan(static_graph(given, sizes))
    plan = static_plan(explicit(plan), sizes)
    return Lowering(grouped(plan, makers.ends), makers)


class Lowering(Emitter):
    """The lowering of one plan, step by step."""

    def __init__(self, plan: Plan, makers: KernelMakers) -> None:
        super().__init__(plan, makers.make)
        self.producers = {next(o for o in n.outputs if o): n for n in plan.graph.nodes}
        self.products = makers.products(self) if makers.products is not None else None

    def program(self) -> KernelProgram:
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
        buffers = {name: b for name, b in self.buffers.items() if name in used}
        for view in outputs.values():
            if buffers[view.buffer].role == "value":
                buffers[view.buffer] = replace(buffers[view.buffer], role="output")
        weights = {
            view.buffer: (self.constants[held.value], view)
            for held, view in self.views.items()
            if held.value in self.constants and buffers.get(view.buffer, Buffer("", 0, "value")).role == "weight"
        }
        launches = tuple(self.launches)
        return KernelProgram(self.graph.name, buffers, launches, inputs, outputs, weights, self.flag)

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
            taken = (
                (self.products.take(part) if self.products is not None else 0)
                or self._unfold(part)
                or self._generate(part)
            )
            part = part.rest(taken)

    def _unfold(self, part: Part) -> int:
        """Replace nodes that no kernel computes at once by operators with kernels; their number, or 0 if one stays.

        The nodes after it in its part follow the last of them.
        """
        node = part.nodes[0]
        if node.op == "gemm" and (self.products is None or "cublaslt" not in self.products.libraries):
            return 0  # one generated kernel computes it all
        parts = unfolded(node, self.types, lambda op: f"{node.outputs[0]} ({op} {len(self.types)})")
        if parts is None:
            return 0
        self.constants |= parts.constants
        inner = State("row", part.inner_state.precision)
        states = {v: part.states.get(v, part.state) for n in part.nodes for v in n.inputs if v is not None}
        states |= {n.outputs[0]: part.results.get(n.outputs[0], inner) for n in parts.nodes}
        states |= part.results
        groups = parts.groups()
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
        outputs = [o for o in node.outputs if o]
        views = seen_as(node, self.operand(part, source), [self.types[o] for o in outputs])
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
        """Launch a generated kernel, or kernels, over as many of the first nodes as are computed so."""
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
            source = self.make(Group(nodes, types, operands, results, constants))
            views = {**operands, **results}
            label = " + ".join(n.op for n in nodes)
            if isinstance(source, KernelSeries):
                self.series(source, views, results, label)
                return taken
            if source is not None:
                reads = tuple(views[v] for v in source.arguments if v in operands)
                writes = tuple(views[v] for v in source.arguments if v in results)
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
