"""Times of regions in ONNX Runtime beside those of their kernels in C, and the choice of the fastest program."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.errors import EqsatError
from eqsat.language.terms import Array, DType, Graph, Node, TensorType
from eqsat.runtime.c.mixing.prices import RegionPrices
from eqsat.runtime.c.mixing.regions import RegionMaker, Window, mixed_program
from eqsat.runtime.c.program.kernels import ChoiceMaker
from eqsat.runtime.c.program.machine import CMachine
from eqsat.runtime.examples import example_inputs
from eqsat.runtime.measure import Clock, Timings, interleaved
from eqsat.runtime.onnxruntime.bound import BoundSession
from eqsat.runtime.programs.arena import arrange
from eqsat.runtime.programs.program import KernelProgram
from eqsat.runtime.tuning.agreement import agrees
from eqsat.system.deadline import Deadline, TimeUp, check, current

#: Seconds after which no window is measured any more, and the rounds of one.
MOST_SECONDS, _ROUNDS = 60.0, 7
#: Runs of all launches, by which these are priced.
_RUNS = 9
#: Rounds and seconds for which whole programs are compared.
_WHOLE_ROUNDS, _WHOLE_SECONDS = 100, 10.0


@dataclass(frozen=True)
class MeasuredMix:
    """The fastest program by name, its regions, and the median seconds of all that were compared.

    The programs are "c", without regions, "onnxruntime", one region of all launches, and "mixed".
    """

    name: str
    regions: tuple[Window, ...]
    seconds: dict[str, float]


def measured_mix(
    maker: RegionMaker, choose: ChoiceMaker, threads: int | None = None, seconds: float = MOST_SECONDS
) -> MeasuredMix:
    """The fastest of a program in C alone, in ONNX Runtime alone, and with the regions that prices make the cheapest.

    After some seconds, compiling aside, no window is priced any more. BackendError where C cannot be run on inputs
    drawn for its graph.
    """
    return compared(maker, measured_prices(maker, choose, threads, seconds).cheapest(), choose, threads)


def measured_prices(
    maker: RegionMaker, choose: ChoiceMaker, threads: int | None = None, seconds: float = MOST_SECONDS
) -> RegionPrices:
    """The prices of launches, timed one by one in whole runs, and of windows of them as sessions.

    A window is timed in turns with the same launches in C, on the same memory: what slows one slows both, and the price
    is the share of the time of these. Windows of every power of two are timed, and every region that their prices
    choose, until all that are chosen were timed themselves.
    """
    crossing = session_call(threads)
    inputs = example_inputs(maker.graph, {}, 0)
    with closing(_machine(maker.program, inputs, choose, threads, is_shared=False)) as machine:
        clock = _clock(threads)
        kernels = tuple(_launch_seconds(machine, clock))
        windows: dict[Window, float] = {}
        pricing = _Pricing(maker, machine, kernels, clock)
        call = current()
        with Deadline(min(seconds, call.seconds)), suppress(TimeUp):
            for window in _windows(len(kernels)):
                call.check(0)
                windows[window] = pricing.seconds(window)
            while chosen := [
                one for one in RegionPrices(kernels, dict(windows), crossing).cheapest() if one not in windows
            ]:
                for region in chosen:
                    call.check(0)
                    windows[region] = pricing.seconds(region)
        call.check(0)
        return RegionPrices(kernels, windows, crossing)


def _clock(threads: int | None) -> Clock:
    """The clock for programs on so many threads: for one, which is the caller's, the time that it is given."""
    return "thread" if threads == 1 else "wall"


def _launch_seconds(machine: CMachine, clock: Clock) -> Iterator[float]:
    """The median seconds of each launch in whole runs, one by one."""
    now = time.thread_time if clock == "thread" else time.perf_counter
    calls = [machine.window(index, index + 1) for index in range(len(machine.program.launches))]
    with machine.blas_held():
        runs: list[list[float]] = []
        for _ in range(_RUNS):
            times = []
            for call in calls:
                begin = now()
                call()
                times.append(now() - begin)
            runs.append(times)
    yield from (statistics.median(times) for times in zip(*runs, strict=True))


@dataclass
class _Pricing:
    """Windows as sessions on the memory of a program, in which no value overwrites another."""

    maker: RegionMaker
    machine: CMachine
    kernels: Sequence[float]
    clock: Clock

    def seconds(self, window: Window) -> float:
        """The price of a window as one session; infinite where none computes it, or computes something else.

        What memory holds is the same after that as before. TimeUp where there is no time for it.
        """
        check(0)
        region = self.maker.region(*window)
        if region is None:
            return math.inf
        made = [self.machine.array(view) for view in region.writes]
        wanted = [np.array(one) for one in made]
        try:
            session = self.machine.session_of(region)
            session.run()
            if not all(agrees(one, other) for one, other in zip(made, wanted, strict=True)):
                return math.inf
            calls = {"session": session.run, "c": self.machine.window(*window)}
            with self.machine.blas_held():
                timings = interleaved(calls, _ROUNDS, clock=self.clock)
        except EqsatError:
            return math.inf
        finally:
            for array, one in zip(made, wanted, strict=True):
                array[...] = one
        return timings.ratio("session", "c") * sum(self.kernels[slice(*window)])


def _windows(count: int) -> Iterator[Window]:
    """The windows that are timed, from all launches to single ones, each size beginning at every half of it."""
    size = 1
    while size < count:
        size *= 2
    seen: set[Window] = set()
    while size:
        for first in range(0, count, max(size // 2, 1)):
            window = (first, min(first + size, count))
            if window not in seen:
                seen.add(window)
                yield window
        size //= 2


def session_call(threads: int | None = None) -> float:
    """The seconds of calling a session of one operator on one number: the price of a region beside its operators."""
    one = TensorType(DType.FLOAT32, (1,))
    graph = Graph("call", ("x",), {"y": "y"}, (Node("relu", ("x",), ("y",)),), {}, {"x": one, "y": one})
    session = BoundSession(graph, [np.ones(1, np.float32)], [np.ones(1, np.float32)], threads)
    return interleaved({"call": session.run}, _ROUNDS, clock=_clock(threads)).median("call")


def compared(
    maker: RegionMaker, regions: tuple[Window, ...], choose: ChoiceMaker, threads: int | None = None
) -> MeasuredMix:
    """The fastest of C alone, ONNX Runtime alone, and a program with regions, all timed in one run, in turns.

    That with regions is taken where it is faster than both, and ONNX Runtime where it is faster than C; neither where
    an output is not that of C but for rounding. BackendError where C cannot be run on inputs drawn for its graph.
    """
    inputs = example_inputs(maker.graph, {}, 0)
    whole = ((0, len(maker.program.launches)),)
    plans: dict[str, tuple[Window, ...]] = {"c": (), "onnxruntime": whole, "mixed": regions}
    if regions in ((), whole):
        del plans["mixed"]
    with ExitStack() as stack:
        machines: dict[str, CMachine] = {}
        for name, windows in plans.items():
            try:
                made = _machine(mixed_program(maker, windows), inputs, choose, threads)
            except EqsatError:
                if name == "c":
                    raise
                continue
            stack.enter_context(closing(made))
            if name == "c" or _agree(made.outputs, machines["c"].outputs):
                machines[name] = made
        calls: dict[str, Callable[[], object]] = {name: one.launch for name, one in machines.items()}
        timings = interleaved(calls, _WHOLE_ROUNDS, clock=_clock(threads), time_limit=_WHOLE_SECONDS)
    best = fastest(timings)
    return MeasuredMix(best, plans[best], {name: timings.median(name) for name in machines})


def fastest(timings: Timings) -> str:
    """The name of the program to take: "mixed" where it is surely faster than both others, "onnxruntime" than "c".

    >>> fastest(Timings({"c": (3.0,) * 9, "onnxruntime": (2.0,) * 9, "mixed": (2.0,) * 9}, "thread"))
    'onnxruntime'
    """
    ranked = [name for name in ("mixed", "onnxruntime", "c") if name in timings.samples]
    return next(
        name
        for place, name in enumerate(ranked, 1)
        if all(timings.ratio_bound(name, other) < 1.0 for other in ranked[place:])
    )


def _machine(
    program: KernelProgram,
    inputs: Mapping[str, Any],
    choose: ChoiceMaker,
    threads: int | None,
    *,
    is_shared: bool = True,
) -> CMachine:
    """A program that was run once on inputs."""
    machine = CMachine(program, arrange(program, is_shared=is_shared), choose, threads)
    for name, array in inputs.items():
        machine.put(name, array)
    machine.launch()
    return machine


def _agree(made: Mapping[str, Array], wanted: Mapping[str, Array]) -> bool:
    return all(agrees(one, wanted[name]) for name, one in made.items())
