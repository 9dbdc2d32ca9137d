"""Windows of a program's launches as graphs of their own, and programs in which these are sessions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from eqsat.errors import BackendError
from eqsat.language.terms import Graph
from eqsat.runtime.c.program.kernels import CKernel
from eqsat.runtime.kernels.view import View
from eqsat.runtime.programs.launches import Fallback, Launch, SessionRegion
from eqsat.runtime.programs.lowering import Lowering
from eqsat.runtime.programs.program import KernelProgram

#: A window of launches: the index of its first one, and that after its last one.
Window: TypeAlias = tuple[int, int]

#: Operators that the label of a region names.
_NAMED = 4


class RegionMaker:
    """The regions of a program that ONNX Runtime can compute, by windows of its launches.

    `lowering` is what made the program, and holds all values as the graph states them.
    """

    def __init__(self, lowering: Lowering, program: KernelProgram) -> None:
        self.program, self.graph = program, lowering.graph
        self._views = {held.value: view for held, view in lowering.views.items()}
        self._made = [_made(launch) for launch in self.program.launches]
        self._makers = {value: index for index, made in enumerate(self._made) for value in made}
        self._writers: Mapping[str, list[int]] = defaultdict(list)
        self._last_read: dict[str, int] = {}
        for index, launch in enumerate(self.program.launches):
            for view in launch.writes:
                self._writers[view.buffer].append(index)
            self._last_read |= {view.buffer: index for view in launch.reads}
        self._last_read |= {view.buffer: len(self.program.launches) for view in self.program.outputs.values()}

    def region(self, first: int, end: int) -> Launch | None:
        """The launch of one session in the place of those from `first` up to `end`; None where there is none for them.

        There is none where a launch beyond them reads what is no value of the graph, such as a part of an operator.
        """
        results = self._results(first, end)
        if not results:
            return None
        read = {view.buffer for launch in self.program.launches[first:end] for view in launch.reads}
        operands: dict[str, View] = {}
        constants, found, stack = set(), set(), list(results)
        while stack:
            value = stack.pop()
            if value in found or value in operands or value in constants:
                continue
            view = self._known_before(value, first)
            if value in self.graph.constants:
                constants.add(value)
            elif view is None:
                found |= {output for output in self.graph.producers[value].outputs if output}
                stack += [operand for operand in self.graph.producers[value].inputs if operand is not None]
            elif view.buffer in read:
                operands[value] = view
            else:
                return None  # a session before this one need not have written it
        nodes = tuple(node for node in self.graph.nodes if found.intersection(node.outputs))
        graph = replace(
            self.graph,
            name=f"{self.graph.name}, launches {first} to {end - 1}",
            inputs=tuple(operands),
            outputs={value: value for value in results},
            nodes=nodes,
            constants={value: self.graph.constants[value] for value in self.graph.constants if value in constants},
            types={value: self.graph.types[value] for value in self.graph.types if value in found | operands.keys()},
        )
        work = SessionRegion(graph)
        return Launch(work, tuple(operands.values()), tuple(results.values()), tuple(results), _label(graph))

    def _results(self, first: int, end: int) -> dict[str, View] | None:
        """The values that launches of a window make for others, each where it lies; None if one is no value."""
        results: dict[str, View] = {}
        for index in range(first, end):
            named = {view: value for value, view in self._made[index].items()}
            for view in self.program.launches[index].writes:
                if self._last_read.get(view.buffer, -1) < end:
                    continue
                value = named.get(view)
                if value is None or value not in self.graph.producers:
                    return None
                results[value] = view
        return results

    def _known_before(self, value: str, first: int) -> View | None:
        """The place of a value that is there before a launch; None for one that is to be computed from others."""
        if value in self.graph.inputs:
            return self._views[value]
        if value in self._makers:
            index = self._makers[value]
            return self._made[index][value] if index < first else None
        view = self._views.get(value)
        writers = self._writers.get(view.buffer, ()) if view is not None else ()
        return view if view is not None and writers and max(writers) < first and view.is_contiguous else None


def _made(launch: Launch) -> dict[str, View]:
    """The values that a launch makes, each where it writes it."""
    if isinstance(launch.work, CKernel):
        views = (*launch.reads, *launch.writes)
        return {
            value: view
            for value, view in zip(launch.work.arguments, views, strict=True)
            if value in launch.values and view in launch.writes
        }
    assert isinstance(launch.work, Fallback)
    return dict(zip(launch.values, launch.writes, strict=True))


def _label(graph: Graph) -> str:
    named = " + ".join(node.op for node in graph.nodes[:_NAMED])
    more = len(graph.nodes) - _NAMED
    return f"{named} + {more} more" if more > 0 else named


def mixed_program(maker: RegionMaker, windows: Sequence[Window]) -> KernelProgram:
    """The program with some windows of its launches as one session each.

    BackendError for windows that are no part of it, that overlap, or that no session can compute.
    """
    program = maker.program
    launches: list[Launch] = []
    last = 0
    for first, end in windows:
        if not last <= first < end <= len(program.launches):
            raise BackendError(
                f"launches {first} to {end - 1} as a region",
                where=program.name,
                expected=f"windows in order, apart, of launches from 0 to {len(program.launches) - 1}",
            )
        region = maker.region(first, end)
        if region is None:
            raise BackendError(
                f"launches {first} to {end - 1} are no region for ONNX Runtime",
                where=program.name,
                expected="windows of launches beyond which only values of the graph are read",
                remedy="move an end of the window by a launch",
            )
        launches += [*program.launches[last:first], region]
        last = end
    launches += program.launches[last:]
    used = {view.buffer for launch in launches for view in (*launch.reads, *launch.writes)}
    used |= {view.buffer for view in (*program.inputs.values(), *program.outputs.values())}
    return replace(
        program,
        launches=tuple(launches),
        buffers={name: buffer for name, buffer in program.buffers.items() if name in used},
        weights={name: weight for name, weight in program.weights.items() if name in used},
    )
