"""Runtimes that a model may be given to, each with the original graph and the optimised one, in one interleaved run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

import numpy as np

from eqsat.bench.case import BenchCase
from eqsat.bench.comparison import ROUNDS, SECONDS, plain_error
from eqsat.bench.contender import Contender, Loaded
from eqsat.bench.jax_peer import JaxPeer
from eqsat.bench.openvino_peer import OpenVinoPeer
from eqsat.bench.ours import OnnxRuntimePeer
from eqsat.bench.torch_peers import TorchPeer
from eqsat.calls import optimize
from eqsat.costs.table.table import CostTable
from eqsat.errors import BackendError, EqsatError, first_line
from eqsat.report.result import Result
from eqsat.runtime.measure import Timings, interleaved


@dataclass(frozen=True)
class Consumer:
    """A runtime, the line that installs it, and whether it lacks the operators of ONNX Runtime's own."""

    name: str
    contender: Contender
    install: str
    portable: bool = True


#: Every consumer that the two graphs are compared in.
CONSUMERS = (
    Consumer("ONNX Runtime", OnnxRuntimePeer(), "pip install onnxruntime", portable=False),
    Consumer("OpenVINO", OpenVinoPeer(), "pip install openvino"),
    Consumer("torch.compile", TorchPeer("default"), "pip install 'eqsat[torch]'"),
    Consumer("XLA (JAX)", JaxPeer(), "pip install jax"),
)


@dataclass(frozen=True, kw_only=True)
class RewrittenCase(BenchCase):
    """A case with another graph, and the inputs of the case that it was rewritten from."""

    original: BenchCase

    def inputs(self, draw: int) -> dict[str, Any]:
        """The original's random inputs."""
        return self.original.inputs(draw)


@dataclass(frozen=True)
class ConsumerResult:
    """A consumer's samples of the original and of the optimised graph, in seconds, one of each a round.

    The errors are the largest ‖out − ref‖ / ‖ref‖ over outputs against float64, for inputs that nothing was timed on.
    """

    name: str
    original: tuple[float, ...]
    optimised: tuple[float, ...]
    errors: tuple[float, float]

    @property
    def medians(self) -> tuple[float, float]:
        """The medians of the original and of the optimised graph, in seconds."""
        return float(np.median(self.original)), float(np.median(self.optimised))

    @property
    def ratio(self) -> tuple[float, float]:
        """The time of the optimised graph over that of the original: the median over rounds, and its 95 % bound."""
        timings = Timings({"new": self.optimised, "old": self.original}, "wall")
        return timings.ratio("new", "old"), timings.ratio_bound("new", "old")

    def as_dict(self) -> dict[str, Any]:
        """The result as JSON has it, without the samples."""
        (old, new), (ratio, bound) = self.medians, self.ratio
        about = {"name": self.name, "original": old, "optimised": new, "ratio": ratio, "bound": bound}
        return {**about, "rounds": len(self.original), "errors": list(map(plain_error, self.errors))}


@dataclass(frozen=True)
class ConsumerComparison:
    """A model in every consumer that is here, and the reasons why others took no part.

    `kept` says which finalist the optimised graph is: with operators of ONNX Runtime's own, and without.
    """

    model: str
    device: str
    kept: Mapping[str, str]
    results: tuple[ConsumerResult, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The comparison as JSON has it, without the samples."""
        about = {"model": self.model, "device": self.device, "kept": dict(self.kept)}
        return {**about, "results": [one.as_dict() for one in self.results], "skipped": dict(self.skipped)}


def compare_consumers(
    case: BenchCase,
    table: CostTable,
    consumers: Sequence[Consumer] = CONSUMERS,
    *,
    time_limit: float = 30.0,
    rounds: int = ROUNDS,
    seconds: float = SECONDS,
    progress: Callable[[str], None] = lambda what: None,
    should_stop: Callable[[], bool] | None = None,
) -> ConsumerComparison:
    """Optimise a model as a user does, give both graphs to every consumer that is here, and time all in one run.

    A consumer that lacks an operator of either graph is left out, with the reason. BackendError where none is left.
    """

    @cache
    def optimised(portable: bool) -> Result:
        progress(f"{case.name}: optimising" + (", portable" if portable else ""))
        return optimize(
            case.graph,
            device=case.device,
            table=table,
            threads=case.threads,
            time_limit=time_limit,
            portable=portable,
            should_stop=should_stop,
        )

    skipped: dict[str, str] = {}
    kept: dict[str, str] = {}
    ready: dict[str, tuple[Loaded, Loaded]] = {}
    errors: dict[str, tuple[float, float]] = {}
    with ExitStack() as stack:
        for one in consumers:
            reason = one.contender.missing(case)
            if reason is not None:
                skipped[one.name] = f"{reason}; {one.install}" if "not installed" in reason else reason
                continue
            result = optimised(one.portable)
            kept["portable" if one.portable else "own operators"] = result.report.kept
            progress(f"{case.name}: {one.name}")
            try:
                ready[one.name], errors[one.name] = _loaded(one.contender, case, result, stack)
            except EqsatError as error:
                skipped[one.name] = error.what
            except Exception as error:  # noqa: BLE001 - frameworks raise whatever they like; the others still take part
                skipped[one.name] = f"{type(error).__name__}: {first_line(error)}"
        if not ready:
            raise BackendError("no consumer can run it here", where=case.name, expected="; ".join(skipped.values()))
        progress(f"{case.name}: timing")
        calls = {f"{name}, {side}": pair[side].call for name, pair in ready.items() for side in (0, 1)}
        timings = interleaved(
            calls, rounds, case.seed, clock="wall", time_limit=seconds, warm_up=3, should_stop=should_stop
        )
    timings.check_rounds(case.name)
    samples = timings.samples
    results = (ConsumerResult(n, samples[f"{n}, 0"], samples[f"{n}, 1"], errors[n]) for n in ready)
    return ConsumerComparison(case.name, case.device.name, kept, tuple(results), skipped)


def _loaded(
    contender: Contender, case: BenchCase, result: Result, stack: ExitStack
) -> tuple[tuple[Loaded, Loaded], tuple[float, float]]:
    """Both graphs made ready, and their errors."""
    known = {one.name: getattr(case, one.name) for one in fields(BenchCase)}
    cases = (case, RewrittenCase(**{**known, "graph": result.graph}, original=case))
    pair: list[Loaded] = []
    errors: list[float] = []
    for one in cases:
        loaded = contender.load(one)
        stack.callback(loaded.close)
        loaded.call()
        errors.append(case.error(loaded.outputs(case.checked[0])))
        pair.append(loaded)
    return (pair[0], pair[1]), (errors[0], errors[1])
