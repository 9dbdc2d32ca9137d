"""Measured savings of the changes: each region alone, as it was and as it is, timed in turn."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace

from eqsat.errors import BackendError, EqsatError
from eqsat.language.terms import Graph, Node, TensorType
from eqsat.report.changes import Region
from eqsat.report.explanation import Change, Explanation
from eqsat.report.finalists import Candidate, measure_finalists
from eqsat.runtime.examples import SizePoint
from eqsat.system.deadline import TimeUp, current

#: Seconds that measuring the changes of one result may take, and those of timing one of them.
SECONDS, EACH = 3.0, 0.5


def measured_changes(
    explained: Explanation,
    changed: Sequence[Region],
    original: Graph,
    finalist: Candidate,
    *,
    points: Sequence[SizePoint],
    seed: int,
    threads: int,
    backend: str = "onnxruntime",
    should_stop: Callable[[], bool] | None = None,
) -> Explanation:
    """The explanation with the savings of its changes, the largest predicted ones first, until the time is up.

    A change made in several places is timed in the first and counted for all. A change that cannot be run alone has the
    reason.
    """
    if finalist.assembled is None:
        return explained
    plain = finalist.assembled.plan.is_plain
    deadline = current().part(most=SECONDS)
    first = {region.old[0].outputs: region for region in changed if region.old}
    changes: list[Change] = []
    for change in explained.changes:
        region = next((r for outputs, r in first.items() if change.replaced and change.replaced[0] in outputs), None)
        if deadline.over or (should_stop is not None and should_stop()):
            changes.append(replace(change, unmeasured="the time for measuring was up"))
        elif region is None or not plain:
            why = "it is no region of its own" if region is None else "its values are held in other states"
            changes.append(replace(change, unmeasured=why))
        else:
            try:
                graphs = part(original, region, finalist.assembled.graph)
                timed = measure_finalists(
                    graphs,
                    None,
                    points=points,
                    seed=seed,
                    threads=threads,
                    backend=backend,
                    # Values between two regions are drawn as if they were independent; the certificate compares them.
                    drift={"new": math.inf},
                    seconds=EACH,
                    should_stop=should_stop,
                )
            except TimeUp as late:
                changes.append(replace(change, unmeasured=str(late)))
                continue
            except EqsatError as error:
                changes.append(replace(change, unmeasured=error.what))
                continue
            if "new" in timed.refused:
                changes.append(replace(change, unmeasured=timed.refused["new"]))
                continue
            samples = timed.timings.samples
            # Of pairs of one round, so that disturbances of both cancel.
            pairs = zip(samples["original"], samples["new"], strict=True)
            low, saved, high = statistics.quantiles((old - new for old, new in pairs), n=4)
            changes.append(replace(change, measured=saved * change.places, spread=(high - low) * change.places))
    return replace(explained, changes=tuple(changes))


def part(original: Graph, region: Region, result: Graph) -> dict[str, Graph]:
    """A region as two graphs, "original" and "new", of the same inputs and outputs; BackendError where it is none."""
    computed = {o for n in region.old for o in n.outputs}
    read = [v for n in region.old for v in n.inputs if v is not None and v not in computed]
    outside = [v for v in (*read, *region.reads.values()) if v not in computed and v not in original.constants]
    inputs = tuple(dict.fromkeys(outside))
    if any(not isinstance(original.type(v), TensorType) for v in inputs):
        raise BackendError("it reads what is no tensor")
    outputs = [(old, new) for old, new in region.values if old in computed]
    if not outputs:
        raise BackendError("its values are made by other nodes too")
    old = Graph(
        name=f"{original.name}: {outputs[0][0]}",
        inputs=inputs,
        outputs={str(i): v for i, (v, _) in enumerate(outputs)},
        nodes=tuple(region.old),
        constants={v: original.constants[v] for v in read if v in original.constants},
        types={v: original.type(v) for n in region.old for v in (*n.inputs, *n.outputs) if v}
        | {v: original.type(v) for v in inputs},
        origin=original.origin,
    )
    return {"original": old, "new": _new_side(old, region, result, outputs)}


def _new_side(old: Graph, region: Region, result: Graph, outputs: Sequence[tuple[str, str]]) -> Graph:
    """The new nodes over the inputs of the old ones; names that both have for different values are kept apart."""
    wanted = {o for n in region.new for o in n.outputs}
    nodes = [n for n in result.nodes if not wanted.isdisjoint(n.outputs)]
    names = {v: f"new {v}" for n in nodes for v in (*n.inputs, *n.outputs) if v}
    names |= {v: t for v, t in region.reads.items() if v not in {o for n in nodes for o in n.outputs}}
    constants = {v: c for v, c in result.constants.items() if v in names}
    computed = {o for n in nodes for o in n.outputs}
    read = [v for n in nodes for v in n.inputs if v and v not in computed and v not in constants]
    loose = [v for v in read if names[v] not in old.inputs]
    if loose:
        raise BackendError(f"it reads {loose[0]!r}, which the original does not have")
    for _, new in outputs:
        if new not in computed and names.get(new, new) not in old.inputs:
            raise BackendError("its values are made by other nodes too")
    renamed = [
        Node(
            n.op,
            tuple(v and names[v] for v in n.inputs),
            tuple(v and names[v] for v in n.outputs),
            n.attrs,
        )
        for n in nodes
    ]
    return Graph(
        name=old.name,
        inputs=old.inputs,
        outputs={str(i): names.get(new, new) for i, (_, new) in enumerate(outputs)},
        nodes=tuple(renamed),
        constants={names[v]: c for v, c in constants.items()},
        types={names[v]: result.type(v) for v in names} | {v: old.type(v) for v in old.inputs},
        origin=old.origin,
    )
