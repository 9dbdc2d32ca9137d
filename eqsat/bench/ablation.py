"""A model run with some of what makes it fast left out: each part alone, all but each, and all together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol

import numpy as np

from eqsat.bench.case import BenchCase
from eqsat.bench.comparison import ROUNDS, SECONDS, plain_error
from eqsat.calls import optimize
from eqsat.costs.kernels.applications import applications, is_free
from eqsat.costs.kernels.work import Work, work_of
from eqsat.costs.table.table import CostTable
from eqsat.errors import UsageError
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.graphs.interpret import last_uses, run
from eqsat.language.onnx.write.availability import lacking
from eqsat.language.terms import Graph, Plan, TensorType
from eqsat.rewrites.rules.definitions import expanded
from eqsat.runtime.cuda.program.streams import dependencies, placed, segments
from eqsat.runtime.inputs import checked_inputs
from eqsat.runtime.measure import Timings, interleaved
from eqsat.runtime.numpy.call_list import CallList
from eqsat.runtime.numpy.reference import OpaqueNodes
from eqsat.runtime.programs.arena import Arrangement, arrange
from eqsat.runtime.programs.launches import Fallback, Launch
from eqsat.runtime.programs.profile import moved_bytes

Part = Literal["graph", "one launch", "memory reuse", "threads", "streams"]
#: Bytes of weights that variants made ready together may hold; each has its own.
_MOST_WEIGHTS = 1 << 30
#: Streams that launches of a plan for a GPU are put on.
_STREAMS = 4


@dataclass(frozen=True)
class AblationRow:
    """One variant: its parts, what it starts from Python, the bytes of its values, and its times in seconds.

    `samples` and those of the variant without any part, `plain`, were taken in the same rounds. On a GPU that is not
    here both are one time, worked out from the figures of the device. `error` is the largest ‖out − ref‖ / ‖ref‖ over
    outputs against float64; None where nothing ran.
    """

    parts: tuple[Part, ...]
    launches: int
    calls: int
    memory: int
    samples: tuple[float, ...]
    plain: tuple[float, ...]
    error: float | None = None

    @property
    def name(self) -> str:
        """The parts as text."""
        return " + ".join(self.parts) or "none"

    @property
    def median(self) -> float:
        """The median time, in seconds."""
        return float(np.median(self.samples))

    @property
    def ratio(self) -> float:
        """The time over that without any part: the median over rounds."""
        return Timings({"with": self.samples, "without": self.plain}, "wall").ratio("with", "without")

    def as_dict(self) -> dict[str, Any]:
        """The row as JSON has it, without the samples."""
        about = {"parts": list(self.parts), "launches": self.launches, "calls": self.calls, "memory": self.memory}
        measured = {"seconds": self.median, "ratio": self.ratio, "rounds": len(self.samples)}
        return {**about, **measured, "error": None if self.error is None else plain_error(self.error)}


@dataclass(frozen=True)
class Ablation:
    """The variants of a model on a device, and whether their times are measured or worked out from its figures."""

    model: str
    device: str
    threads: int
    is_measured: bool
    rows: tuple[AblationRow, ...]

    def as_dict(self) -> dict[str, Any]:
        """The ablation as JSON has it, without the samples."""
        about = {"model": self.model, "device": self.device, "threads": self.threads, "measured": self.is_measured}
        return {**about, "rows": [one.as_dict() for one in self.rows]}


def ablate(
    case: BenchCase,
    table: CostTable,
    *,
    time_limit: float = 30.0,
    rounds: int = ROUNDS,
    seconds: float = SECONDS,
    progress: Callable[[str], None] = lambda what: None,
    should_stop: Callable[[], bool] | None = None,
) -> Ablation:
    """Optimise a model, and run it in all variants: as programs of C, on NumPy, or for a GPU as plans.

    Kernels take the forms that were measured to be fastest, where they were. UsageError for a device that neither runs
    programs of C or NumPy's references nor is a GPU.
    """
    if not case.on_gpu and case.device.backend not in ("c", "numpy"):
        raise UsageError(
            f"--ablation on {case.device.name}",
            expected="c-cpu, numpy-cpu, or a GPU",
            remedy="eqsat bench --ablation --device c-cpu",
        )
    progress(f"{case.name}: optimising")
    result = optimize(
        case.graph,
        device=case.device,
        table=table,
        threads=case.threads,
        time_limit=time_limit,
        measure=False,
        should_stop=should_stop,
    )
    optimised = result.graph if result.plan is None else result.plan
    if case.on_gpu:
        rows = tuple(_planned(case, optimised))
        return Ablation(case.name, case.device.name, case.threads, False, rows)
    parts: list[Part] = ["graph", "one launch", "memory reuse"]
    if case.device.backend == "numpy":
        reference = expanded(result.graph, lacking())
        make: Callable[[tuple[Part, ...]], _Variant] = partial(_NumpyVariant, case, reference)
    else:
        make = partial(_CVariant, case, optimised)
        parts += ["threads"] if case.threads > 1 else []
    bench = _Bench(case, parts, make, rounds, seconds, progress, should_stop)
    return Ablation(case.name, case.device.name, case.threads, True, tuple(bench.rows()))


def variants(parts: Sequence[Part]) -> list[tuple[Part, ...]]:
    """None of the parts, each alone, all but each, and all.

    >>> [len(one) for one in variants(("graph", "one launch", "memory reuse"))]
    [0, 1, 1, 1, 2, 2, 2, 3]
    """
    but = [tuple(one for one in parts if one != left) for left in reversed(parts)]
    return list(dict.fromkeys([(), *((one,) for one in parts), *but, tuple(parts)]))


class _Variant(Protocol):
    """A program with some of the parts, on the inputs of a case."""

    def call(self) -> None:
        """One run."""

    def error(self) -> float:
        """The error of its outputs for the checked inputs."""

    def row(self, samples: tuple[float, ...], plain: tuple[float, ...], error: float) -> AblationRow:
        """The row of its samples."""

    def close(self) -> None:
        """Give its memory up."""


@dataclass
class _Bench:
    """Variants that are made ready and timed in groups beside the one without any part."""

    case: BenchCase
    parts: Sequence[Part]
    make: Callable[[tuple[Part, ...]], _Variant]
    rounds: int
    seconds: float
    progress: Callable[[str], None]
    should_stop: Callable[[], bool] | None

    def rows(self) -> Iterator[AblationRow]:
        """The variants in their order, after that without any part."""
        plain, *others = variants(self.parts)
        weights = max(sum(one.nbytes for one in self.case.graph.constants.values()), 1)
        together = max(_MOST_WEIGHTS // weights - 1, 1)
        groups = [others[first : first + together] for first in range(0, len(others), together)]
        for number, group in enumerate(groups):
            made = self._timed([plain, *group], self.seconds * len(group) / len(others))
            yield from made if not number else made[1:]

    def _timed(self, group: Sequence[tuple[Part, ...]], seconds: float) -> list[AblationRow]:
        with ExitStack() as stack:
            ready: dict[str, _Variant] = {}
            for parts in group:
                one = self.make(parts)
                self.progress(f"{self.case.name}: {', '.join(parts) or 'no part'}")
                stack.callback(one.close)
                ready[" + ".join(parts)] = one
            errors = {name: one.error() for name, one in ready.items()}
            self.progress(f"{self.case.name}: timing")
            timings = interleaved(
                {name: one.call for name, one in ready.items()},
                self.rounds,
                self.case.seed,
                clock="wall",
                time_limit=seconds,
                warm_up=3,
                should_stop=self.should_stop,
            )
            timings.check_rounds(self.case.name)
            samples = timings.samples
            return [one.row(samples[name], samples[""], errors[name]) for name, one in ready.items()]


class _CVariant:
    """A program of C with some of the parts."""

    def __init__(self, case: BenchCase, optimised: Graph | Plan, parts: tuple[Part, ...]) -> None:
        from eqsat.runtime.c.program.lowering import c_program
        from eqsat.runtime.c.program.machine import CMachine
        from eqsat.runtime.c.program.tuning import fastest_choice

        self.case, self.parts = case, parts
        threads = case.threads if "threads" in parts else 1
        self.program = c_program(optimised if "graph" in parts else case.graph)
        self.arrangement = arrange(self.program, is_shared="memory reuse" in parts)
        self.machine = CMachine(self.program, self.arrangement, lambda one: fastest_choice(one, threads), threads)
        self._fill(case.inputs(0))

    def call(self) -> None:
        """One run: a call of the library, or one for each launch."""
        if "one launch" in self.parts:
            self.machine.launch()
        else:
            self.machine.launch_each()

    def error(self) -> float:
        """The error of its outputs for the checked inputs; the inputs to time are put back."""
        self._fill(self.case.checked[0])
        self.call()
        error = self.case.error({name: self.machine.get(name) for name in self.program.outputs})
        self._fill(self.case.inputs(0))
        return error

    def row(self, samples: tuple[float, ...], plain: tuple[float, ...], error: float) -> AblationRow:
        """The row of its samples."""
        launches = len(self.program.launches)
        calls = self.machine.calls if "one launch" in self.parts else launches
        return AblationRow(self.parts, launches, calls, self.arrangement.arena, samples, plain, error)

    def close(self) -> None:
        """Give its memory up."""
        self.machine.close()

    def _fill(self, inputs: Mapping[str, Any]) -> None:
        for name in self.program.inputs:
            self.machine.put(name, inputs[name])


class _NumpyVariant:
    """References in NumPy with some of the parts: as one list of calls, and with values given up once they are read."""

    def __init__(self, case: BenchCase, optimised: Graph, parts: tuple[Part, ...]) -> None:
        self.case, self.parts = case, parts
        self.graph = optimised if "graph" in parts else case.graph
        self._opaque = OpaqueNodes(self.graph)
        self._kept = frozenset() if "memory reuse" in parts else frozenset(self.graph.producers)
        self._calls = CallList(self.graph, self._opaque, kept=bool(self._kept)) if "one launch" in parts else None
        self._inputs = checked_inputs(self.graph, case.inputs(0))

    def call(self) -> None:
        """One run: a call of the list, or one for each operator."""
        self._outputs(self._inputs)

    def _outputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        if self._calls is None:
            return run(self.graph, inputs, Floats(), opaque=self._opaque, keep=self._kept)
        return dict(zip(self.graph.outputs, self._calls(*inputs.values()), strict=True))

    def error(self) -> float:
        """The error of its outputs for the checked inputs."""
        return self.case.error(self._outputs(checked_inputs(self.graph, self.case.checked[0])))

    def row(self, samples: tuple[float, ...], plain: tuple[float, ...], error: float) -> AblationRow:
        """The row of its samples; its memory is that of results, each counted where it is a view as well."""
        launches = len(self.graph.nodes)
        calls = launches if self._calls is None else 1
        return AblationRow(self.parts, launches, calls, self._memory(), samples, plain, error)

    def _memory(self) -> int:
        """The most bytes that results take at once."""
        last = last_uses(self.graph, frozenset(self.graph.outputs.values()) | self._kept)
        held = most = 0
        for index, node in enumerate(self.graph.nodes):
            held += sum(self._bytes(value) for value in node.outputs if value)
            most = max(most, held)
            held -= sum(self._bytes(value) for value in last.get(index, ()) if value in self.graph.producers)
        return most

    def _bytes(self, value: str) -> int:
        type = self.graph.type(value)
        return type.elements({}) * type.dtype.itemsize if isinstance(type, TensorType) else 0

    def close(self) -> None:
        """Nothing is held beyond the variant itself."""


def _planned(case: BenchCase, optimised: Graph | Plan) -> Iterator[AblationRow]:
    """The variants as plans for a GPU, at times that the figures of the device allow."""
    plans = [_GpuPlan(case, given) for given in (case.graph, optimised)]
    plain: tuple[float, ...] = ()
    for parts in variants(("graph", "one launch", "memory reuse", "streams")):
        plan = plans["graph" in parts]
        arrangement = arrange(plan.program, is_shared="memory reuse" in parts)
        seconds = (plan.seconds(arrangement, _STREAMS if "streams" in parts else 1),)
        plain = plain or seconds
        calls = plan.graphs if "one launch" in parts else len(plan.program.launches)
        yield AblationRow(parts, len(plan.program.launches), calls, arrangement.arena, seconds, plain)


class _GpuPlan:
    """A graph or plan lowered for a GPU, with the time of each launch by the figures of the device."""

    def __init__(self, case: BenchCase, given: Graph | Plan) -> None:
        from eqsat.runtime.cuda.program.lowering import program_of

        self._device = case.device
        self.program = program_of(given)
        works = _works(given.graph if isinstance(given, Plan) else given)
        self._launches = [self._launch(launch, works) for launch in self.program.launches]

    def _launch(self, launch: Launch, works: Mapping[str, Work]) -> float:
        weights = sum(view.nbytes for view in launch.reads if self.program.buffers[view.buffer].role == "weight")
        moved = max(moved_bytes(launch), weights)
        return self._device.fused([works[value] for value in launch.values if value in works], moved, weights)

    @property
    def graphs(self) -> int:
        """The captured graphs that a run replays, and what runs between them."""
        return len(segments([not isinstance(launch.work, Fallback) for launch in self.program.launches]))

    def seconds(self, arrangement: Arrangement, streams: int) -> float:
        """The time of a run on so many streams: each launch starts as its stream and those it waits for are free."""
        ends: list[float] = []
        free = [0.0] * streams
        for one in placed(dependencies(self.program, arrangement), streams):
            start = max([free[one.stream], *(ends[other] for other in one.waits)])
            free[one.stream] = start + self._launches[one.index]
            ends.append(free[one.stream])
        return max(free)


def _works(graph: Graph) -> dict[str, Work]:
    """The work of the operator that makes each value, by its first result."""
    return {
        node.outputs[0]: work_of(node.op, node.attrs, operands, results, constant)
        for node, operands, results, constant in applications(graph)
        if not is_free(node.op, operands, constant)
    }
