"""Two forms of the same part of a graph, timed beside each other on the backend of a CPU."""

from __future__ import annotations

from typing import Any

from eqsat.costs.devices.device import Device
from eqsat.language.terms import Graph
from eqsat.runtime.examples import example_inputs
from eqsat.runtime.measure import clock_for, interleaved

#: Seconds that the rounds of one pair may take; making the programs comes on top.
_SECONDS = 0.2


def bound_of_ratio(new: Graph, old: Graph, device: Device, threads: int = 1) -> float:
    """The upper bound, at 95 %, of the time of a form over that of another with the same inputs, each a whole program.

    Both run by kernels as they are known on this machine. What a call takes beside its kernels counts for both, so that
    short forms are nearer to each other than their kernels are. Every dim is a number. BackendError where one cannot be
    compiled, and TimeUp where the deadline that it runs under is over.
    """
    from eqsat.runtime.backend import select

    backend: Any = select(device.backend)
    inputs = example_inputs(old, {}, seed=0)
    calls = {
        name: backend.compile(graph, threads=threads, regions=()).bind(inputs)
        for name, graph in (("new", new), ("old", old))
    }
    timings = interleaved(calls, clock=clock_for(threads, device.backend), time_limit=_SECONDS)
    return timings.ratio_bound("new", "old")
