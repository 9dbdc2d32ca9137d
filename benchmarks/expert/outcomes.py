"""How far eqsat gets from a graph as given towards the expert's, by costs on a device."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.expert.case import Case
from eqsat.language.terms import Graph, Sym, evaluate

#: The devices whose costs count: of this machine's runtime, and of a GPU.
DEVICES = ("onnxruntime-cpu", "nvidia-h200")
#: What a case may come to, from best to worst; of some there is nothing to gain.
CLASSES = ("reached", "close", "part", "missed")
NOTHING = "nothing to gain"
#: The share of the expert's cost within which it is reached, and that of the way to it that is close, or part of it.
_REACHED, _CLOSE, _PART = 0.01, 0.9, 0.01
#: Relative distance of outputs in float32 that are equal.
_EQUAL = 1e-3
#: The opset that both sides are written at: the first with normalisation by the root mean square, attention and rotary
#: embeddings as operators that ONNX Runtime has kernels of.
_OPSET = 23
#: Seconds for one call.
_SECONDS = 30.0

Row = dict[str, Any]


def measured(case: Case, devices: Iterable[str] = DEVICES) -> Row:
    """The costs of a case on devices: as given, as optimised, and the expert's; with what was wrong with it."""
    given, expert = case.graphs()
    row: Row = {"group": case.group, "name": case.name, "source": case.source}
    row["differs"] = difference(given, expert)
    for device in devices:
        before, _ = _cost(given, device, rules=[])
        started = time.perf_counter()
        after, gap = _cost(given, device)
        seconds = time.perf_counter() - started
        # The expert chooses operators; kernels are chosen for both.
        best = min(_cost(expert, device, rules=[])[0], _cost(expert, device)[0])
        row[device] = {"before": before, "after": after, "expert": best, "gap": gap, "seconds": seconds}
        row[device]["class"] = class_of(before, after, best)
    return row


def class_of(before: float, after: float, expert: float) -> str:
    """How far a cost came from that of the graph as given towards that of the expert's.

    >>> [class_of(2.0, after, 1.0) for after in (1.005, 1.05, 1.5, 2.0)]
    ['reached', 'close', 'part', 'missed']
    >>> class_of(1.0, 1.0, 1.0)
    'nothing to gain'
    """
    if before <= (1.0 + _REACHED) * min(expert, after):
        return NOTHING
    if after <= (1.0 + _REACHED) * expert:
        return "reached"
    way = (before - after) / (before - expert)
    return "close" if way >= _CLOSE else "part" if way >= _PART else "missed"


def worst(row: Mapping[str, Any]) -> str:
    """The class of a case over devices: the worst of those on which there is something to gain; a failure is a miss."""
    if "failed" in row:
        return "missed"
    found = [row[device]["class"] for device in DEVICES if device in row and row[device]["class"] != NOTHING]
    return max(found, key=CLASSES.index) if found else NOTHING


def counted(rows: Sequence[Mapping[str, Any]]) -> dict[str, Counter[str]]:
    """The number of cases of each class, by group, and of all under the name "all"."""
    groups: dict[str, Counter[str]] = {}
    for row in rows:
        groups.setdefault(row["group"], Counter())[worst(row)] += 1
    return groups | {"all": sum(groups.values(), Counter())}


def difference(given: Graph, expert: Graph) -> float:
    """The largest relative distance of the outputs of the two sides of a case, in float32 on random inputs.

    Named dims have different sizes.
    """
    from eqsat.runtime.backend import select

    random = np.random.default_rng(0)
    inputs = {}
    types = {name: (given if name in given.inputs else expert).type(name) for name in {*given.inputs, *expert.inputs}}
    names = sorted({name for type in types.values() for d in type.dims if isinstance(d, Sym) for name in d.names()})
    sizes = {name: 3 + place for place, name in enumerate(names)}
    for name, type in types.items():
        shape = tuple(evaluate(d, sizes) for d in type.dims)
        floats = type.dtype.is_float
        inputs[name] = random.standard_normal(shape, np.float32) if floats else random.integers(0, 64, shape)
    first, second = (_outputs(select("numpy"), graph, inputs) for graph in (given, expert))
    return max(_distance(a, b) for a, b in zip(first, second, strict=True))


def is_equal(row: Mapping[str, Any]) -> bool:
    """True if the two sides of a case were equal."""
    return bool(row["differs"] < _EQUAL)


def _outputs(backend: Any, graph: Graph, inputs: Mapping[str, Any]) -> list[Any]:
    found = backend.compile(graph).run({name: inputs[name] for name in graph.inputs})
    return [found[name] for name in graph.outputs]


def _distance(a: Any, b: Any) -> float:
    if a.shape != b.shape:
        return float("inf")
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return float(np.linalg.norm(a - b) / max(float(np.linalg.norm(b)), 1e-30))


def _cost(graph: Graph, device: str, **options: Any) -> tuple[float, float | None]:
    """The predicted cost of what a graph becomes on a device, and the gap to its bound."""
    import eqsat

    report = eqsat.optimize(
        graph, device=device, measure=False, cache=False, threads=1, time_limit=_SECONDS, opset=_OPSET, **options
    ).report
    return report.cost_after, report.gap
