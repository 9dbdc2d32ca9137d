"""The tuner beside exhaustive search, on small spaces of kernels in C.

`python -m benchmarks.tuning_spaces [--json FILE] [CASE …]` compiles and times every candidate of a space of some
hundred, then searches it anew, genetically and at random, by fewer evaluations. What each found and the five fastest of
all are timed in turn at the end, and compared by medians. One thread of one core.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.rows import document
from eqsat.language.terms import Array
from eqsat.runtime.c.kernel import CompiledFunction, compiled
from eqsat.runtime.c.tuned import function_of
from eqsat.runtime.kernels.nests.options import MappingOptions
from eqsat.runtime.tuning.candidate import TuningCandidate
from eqsat.runtime.tuning.config import TunerConfig
from eqsat.runtime.tuning.search import search_of
from eqsat.runtime.tuning.space import OptionSpace
from eqsat.runtime.tuning.tuner import tune

RESULTS = Path(__file__).parent / "results" / "tuning_spaces.json"
#: A measurement takes so many seconds; finalists, so many of the exhaustive search among them, are timed in rounds.
_SECONDS, _ROUNDS, _BEST = 5e-3, 41, 5


@dataclass(frozen=True)
class SmallSpace:
    """A function at shapes, and the options that are searched."""

    source: str
    shapes: tuple[tuple[int, ...], ...]
    options: Mapping[str, tuple[Any, ...]]
    is_legal: Callable[[TuningCandidate], bool] | None = None


CASES = {
    "product 128 x 32 x 256": SmallSpace(
        "def tmm(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }",
        ((128, 32), (256, 32)),
        {"rows": (1, 2, 4, 6, 8), "vectors": (1, 2, 3, 4), "unroll": (1, 2, 4), "pack": (True, False)},
    ),
    "softmax over the first axis": SmallSpace(
        """def softmax(float(D,N) x) -> (y) {
          m(n) max=! x(d,n)
          e(d,n) = exp(x(d,n) - m(n))
          s(n) +=! e(d,n)
          y(d,n) = e(d,n) / s(n)
        }""",
        ((37, 1000),),
        {
            "vectors": (1, 2, 4),
            "rows": (1, 4),
            "fused_rows": (1, 4, 16),
            "fusion": ("max", "min", "preserve3"),
            "scheduler": ("own", "isl"),
        },
    ),
    "grouped convolution": SmallSpace(
        """def gconv(float(N,G,C,H,W) I, float(G,F,C,KH,KW) W1) -> (O) {
          O(n,g,f,h,w) +=! I(n,g,c,h+kh,w+kw) * W1(g,f,c,kh,kw)
        }""",
        ((1, 8, 4, 30, 30), (8, 4, 4, 3, 3)),
        {
            "rows": (1, 2, 4, 6),
            "vectors": (1, 2, 4),
            "unroll": (1, 2, 3),
            "is_column_major": (True, False),
            "pack": (True, False),
        },
    ),
}


@click.command()
@click.argument("cases", nargs=-1)
@click.option("--json", "target", type=click.Path(path_type=Path), default=RESULTS)
def main(cases: tuple[str, ...], target: Path) -> None:
    """Search all spaces, or those named, and tabulate them."""
    unknown = [name for name in cases if name not in CASES]
    if unknown:
        raise click.UsageError(f"no case {unknown[0]!r}; one of {', '.join(CASES)}")
    rows = [searched(name, CASES[name]) for name in cases or CASES]
    Console(width=150).print(table(rows))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(document(rows, ()), indent=1) + "\n")


def searched(name: str, case: SmallSpace) -> dict[str, Any]:
    """The medians of what exhaustive, genetic and random search find."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape, dtype=np.float32) for shape in case.shapes]
    function = function_of(case.source)
    inferred, tensors = function.bind(arrays, {})
    space = OptionSpace(case.options, case.is_legal)
    made: dict[TuningCandidate, CompiledFunction] = {}

    def build(candidate: TuningCandidate) -> CompiledFunction:
        if candidate not in made:
            made[candidate] = compiled(function, inferred, frozenset(), MappingOptions.of(dict(candidate)))
        return made[candidate]

    def measure(one: CompiledFunction) -> float:
        return seconds_of(one, tensors)

    times = {candidate: measure(build(candidate)) for candidate in space.candidates()}
    fastest = sorted(times, key=times.__getitem__)[:_BEST]
    plain = TuningCandidate({option: getattr(MappingOptions(), option) for option in case.options})
    population = len(times) // 10 + 3
    config = TunerConfig(generations=4, population=population, elites=min(3, population - 1), threads=1)
    found = {}
    evaluations = {}
    for kind in ("genetic", "random"):
        search = search_of(kind, space, config, (plain,) if space.allows(plain) else ())  # type: ignore[arg-type]
        result = tune(space, search, build, measure)
        found[kind], evaluations[kind] = result.candidate, len(result.history)
    finals = _medians({one: made[one] for one in dict.fromkeys((*fastest, *found.values()))}, tensors)
    best = min(finals.values())
    return {
        "case": name,
        "candidates": len(times),
        "evaluations": evaluations,
        "best_us": best * 1e6,
        "slowest_us": max(times.values()) * 1e6,
        "over_best": {kind: finals[one] / best for kind, one in found.items()},
        "best": dict(min(finals, key=finals.__getitem__)),
        "found": {kind: dict(one) for kind, one in found.items()},
    }


def seconds_of(one: CompiledFunction, tensors: Mapping[str, Array]) -> float:
    """The median of some calls."""
    call, times = one.bound(tensors), list[float]()
    call()
    while sum(times) < _SECONDS:
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return median(times)


def _medians(
    kernels: Mapping[TuningCandidate, CompiledFunction], tensors: Mapping[str, Array]
) -> dict[TuningCandidate, float]:
    """The median seconds of kernels that are timed in turn, in another order each round."""
    times: dict[TuningCandidate, list[float]] = {one: [] for one in kernels}
    rng, order = Random(0), list(kernels)
    for _ in range(_ROUNDS):
        rng.shuffle(order)
        for one in order:
            times[one].append(seconds_of(kernels[one], tensors))
    return {one: median(samples) for one, samples in times.items()}


def table(rows: list[dict[str, Any]]) -> Table:
    """The cases, one a row."""
    made = Table("case", "candidates", "best, µs", "slowest, µs", "evaluations", "genetic / best", "random / best")
    for row in rows:
        over, evaluations = row["over_best"], row["evaluations"]
        made.add_row(
            row["case"], str(row["candidates"]), f"{row['best_us']:.1f}", f"{row['slowest_us']:.1f}",
            f"{evaluations['genetic']}, {evaluations['random']}", f"{over['genetic']:.3f}", f"{over['random']:.3f}",
        )  # fmt: skip
    return made


if __name__ == "__main__":
    main()
