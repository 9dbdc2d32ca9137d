"""A case run by all contenders in one interleaved run, and the results."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from eqsat.bench.case import FORMS, BenchCase, HardwareLimits
from eqsat.bench.contender import Contender, Loaded
from eqsat.bench.jax_peer import JaxPeer
from eqsat.bench.ours import OnnxRuntimePeer, Ours
from eqsat.bench.torch_peers import TorchPeer
from eqsat.costs.table.table import CostTable
from eqsat.errors import BackendError, EqsatError
from eqsat.runtime.measure import Timings, interleaved

#: Rounds and seconds a comparison of one model may take, beside making it ready.
ROUNDS, SECONDS = 100, 60.0


@dataclass(frozen=True)
class ContenderResult:
    """One contender: its samples in seconds, one a round, and its error against float64 on the CPU.

    The error is the largest ‖out − ref‖ / ‖ref‖ over outputs, for inputs that nothing was timed on; None unchecked.
    """

    name: str
    ours: bool
    samples: tuple[float, ...]
    error: float | None

    @property
    def median(self) -> float:
        """The median, in seconds."""
        return float(np.median(self.samples))

    @property
    def spread(self) -> tuple[float, float]:
        """The tenth and the ninetieth percentile, in seconds."""
        low, high = np.quantile(self.samples, (0.1, 0.9))
        return float(low), float(high)


@dataclass(frozen=True)
class Comparison:
    """A case with the results of its contenders, those that took no part and why, and the limits of the hardware."""

    model: str
    device: str
    precision: str
    limits: HardwareLimits
    results: tuple[ContenderResult, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)

    @property
    def peer(self) -> ContenderResult | None:
        """The fastest that is not ours."""
        return min((r for r in self.results if not r.ours), key=lambda r: r.median, default=None)

    def ratio(self, name: str, to: str) -> tuple[float, float, float] | None:
        """The time of one contender over that of another: the median over rounds, and its 90 % interval."""
        timings = Timings({r.name: r.samples for r in self.results}, "wall")
        if not {name, to} <= timings.samples.keys():
            return None
        return timings.ratio(name, to), 1 / timings.ratio_bound(to, name), timings.ratio_bound(name, to)

    def as_dict(self) -> dict[str, Any]:
        """The comparison as JSON has it, without the samples."""
        rows = [
            {"name": r.name, "ours": r.ours, "median": r.median, "p10": r.spread[0], "p90": r.spread[1]}
            | {"rounds": len(r.samples), "error": _plain(r.error)}
            for r in self.results
        ]
        about = {"model": self.model, "device": self.device, "precision": self.precision}
        limits = asdict(self.limits) | {"seconds": self.limits.seconds}
        return about | {"limits": limits, "results": rows, "skipped": dict(self.skipped), "ratios": self._ratios()}

    def _ratios(self) -> dict[str, Any]:
        """Times of peers over ours, and of parts of eqsat's optimisation over all of it; above 1 eqsat is faster."""
        ours = next((r.name for r in self.results if r.ours), None)
        ratios: dict[str, Any] = {}
        for other in self.results:
            if ours is not None and other.name != ours and (ratio := self.ratio(other.name, ours)) is not None:
                ratios[other.name] = {"median": ratio[0], "low": ratio[1], "high": ratio[2]}
        return ratios


def contenders(table: CostTable, *, forms: Sequence[str] = FORMS, time_limit: float = 30.0) -> list[Contender]:
    """All there are: eqsat in whole and in part, and its peers."""
    ours: list[Contender] = [Ours(form, table, time_limit) for form in forms]
    return [*ours, TorchPeer(), TorchPeer("max-autotune"), JaxPeer(), OnnxRuntimePeer()]


def compare(
    case: BenchCase,
    taking_part: Sequence[Contender],
    *,
    check: bool = True,
    rounds: int = ROUNDS,
    seconds: float = SECONDS,
    progress: Callable[[str], None] = lambda what: None,
    should_stop: Callable[[], bool] | None = None,
) -> Comparison:
    """Load every contender that can take part, check its outputs, and time all in one interleaved run.

    By the wall clock, each call until its result is there. BackendError where nothing can be run.
    """
    skipped: dict[str, str] = {}
    errors: dict[str, float | None] = {}
    ready: dict[str, Loaded] = {}
    ours = {contender.name: contender.ours for contender in taking_part}
    with ExitStack() as stack:
        for contender in taking_part:
            if should_stop is not None and should_stop():
                raise BackendError("interrupted before anything was measured", where=case.name)
            reason = contender.missing(case)
            if reason is None:
                progress(f"{case.name}: {contender.name}")
                reason = _load(case, contender, check, ready, errors, stack)
            if reason is not None:
                skipped[contender.name] = reason
        if not ready:
            raise BackendError("nothing can run it here", where=case.name, expected="; ".join(skipped.values()))
        progress(f"{case.name}: timing")
        calls = {name: loaded.call for name, loaded in ready.items()}
        timings = interleaved(
            calls, rounds, case.seed, clock="wall", time_limit=seconds, warm_up=3, should_stop=should_stop
        )
    timings.check_rounds(case.name)
    results = tuple(ContenderResult(name, ours[name], timings.samples[name], errors[name]) for name in ready)
    return Comparison(case.name, case.device.name, case.precision, case.limits, results, skipped)


def _load(
    case: BenchCase,
    contender: Contender,
    check: bool,
    ready: dict[str, Loaded],
    errors: dict[str, float | None],
    stack: ExitStack,
) -> str | None:
    """Make a contender ready and check it; the reason where it fails, which must not end the comparison."""
    try:
        loaded = contender.load(case)
        stack.callback(loaded.close)
        loaded.call()
        errors[contender.name] = case.error(loaded.outputs(case.checked[0])) if check else None
    except EqsatError as error:
        return error.what
    except Exception as error:  # noqa: BLE001 - frameworks raise whatever they like; the others are still compared
        lines = str(error).strip().splitlines()
        return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
    ready[contender.name] = loaded
    return None


def summary(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Over all models: the geometric mean of the best peer's time over ours, those behind a peer, and each form's."""
    best: dict[str, float] = {}
    parts: dict[str, list[float]] = {}
    for one in comparisons:
        ours = next((r.name for r in one.results if r.ours), None)
        if ours is None:
            continue
        if one.peer is not None and (ratio := one.ratio(one.peer.name, ours)) is not None:
            best[f"{one.model}, {one.precision}"] = ratio[0]
        for form in (r.name for r in one.results if r.ours and r.name != ours):
            if (ratio := one.ratio(form, ours)) is not None:
                parts.setdefault(form, []).append(ratio[0])
    return {
        "best peer over eqsat": _mean(best.values()),
        "models": len(best),
        "behind": sorted(name for name, ratio in best.items() if ratio < 1),
        "forms over joint": {form: _mean(ratios) for form, ratios in parts.items()},
    }


def _plain(error: float | None) -> float | str | None:
    """An error as JSON has it: one that is no finite number as text."""
    return error if error is None or math.isfinite(error) else str(error)


def _mean(ratios: Any) -> float | None:
    """The geometric mean; None of nothing."""
    known = list(ratios)
    return math.exp(sum(map(math.log, known)) / len(known)) if known else None
