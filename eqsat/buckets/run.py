"""A choice for each bucket from one e-graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from eqsat.buckets.choice import Bucket, Buckets, check_names
from eqsat.buckets.result import BucketedResult
from eqsat.costs.model.model import CostModel
from eqsat.language.onnx.read.model import Given
from eqsat.language.terms.graph import Graph
from eqsat.report.result import Result
from eqsat.rewrites.rules.rule import Rule
from eqsat.steps.pipeline import Pipeline
from eqsat.system.deadline import TimeUp


def choose_each(
    pipeline: Pipeline,
    given: Given,
    rules: tuple[Rule, ...],
    costs: CostModel,
    buckets: Buckets,
    measure: bool,
) -> BucketedResult:
    """The result of each bucket: one e-graph, grown once, and a choice for the sizes at which each bucket ends.

    The time for choosing is shared among the buckets; each is measured and certified at its own sizes. Choices that are
    one graph become one. UsageError for a bucket of a dim that no input has.
    """
    check_names(given.graph, buckets.ends)

    def attempt(left: tuple[Rule, ...], again: bool) -> dict[Bucket, Result]:
        grown = pipeline.grow(given, left)

        def choose(part: Pipeline, priced: CostModel) -> Result:
            try:
                return part.finish(given, *grown, priced, measure, again).result
            except TimeUp as late:
                part.skipped.append(f"nothing was chosen for this bucket: {late}")
                return part.original(given, priced)

        return _each(pipeline, given, costs, buckets, choose)

    def original() -> dict[Bucket, Result]:
        return _each(pipeline, given, costs, buckets, lambda part, priced: part.original(given, priced))

    results = _merged(pipeline.guarded(attempt, rules, original))
    largest = list(results.values())[-1]
    fields = {name: getattr(largest, name) for name in Result.__dataclass_fields__}
    return BucketedResult(**fields, buckets=buckets, results=results)


def _each(
    pipeline: Pipeline,
    given: Given,
    costs: CostModel,
    buckets: Buckets,
    choose: Callable[[Pipeline, CostModel], Result],
) -> dict[Bucket, Result]:
    """The result chosen for each bucket, costed and measured at the sizes at which it ends."""
    results: dict[Bucket, Result] = {}
    for done, bucket in enumerate(buckets):
        share = pipeline.settings.deadline.part(1 / (len(buckets) - done))
        part = replace(
            pipeline,
            settings=replace(pipeline.settings, deadline=share),
            skipped=list(pipeline.skipped),
            seconds=dict(pipeline.seconds),
            warnings=list(pipeline.warnings),
            failures=list(pipeline.failures),
        )
        priced = costs.at({})
        sizes = {**pipeline.settings.sizes, **dict(bucket)}
        points = part.place(given, {name: {size: 1.0} for name, size in sizes.items()}, priced)
        priced.settle(sum(c.nbytes for c in given.graph.constants.values()), points)
        results[bucket] = choose(part, priced)
    return results


def _merged(results: dict[Bucket, Result]) -> dict[Bucket, Result]:
    """The results with equal choices as one graph, so that they are compiled and written once."""
    kept: list[Result] = []
    merged: dict[Bucket, Result] = {}
    for bucket, result in results.items():
        same = next((k for k in kept if _is_same(k.graph, result.graph) and _steps(k) == _steps(result)), None)
        if same is None:
            kept.append(result)
        merged[bucket] = result if same is None else replace(result, graph=same.graph, plan=same.plan)
    return merged


def _steps(result: Result) -> object:
    """The kernels and states by which a result is run, apart from its graph."""
    return None if result.plan is None else (result.plan.steps, dict(result.plan.boundary))


def _is_same(one: Graph, two: Graph) -> bool:
    """Return whether two graphs have the same nodes over equal constants."""
    if one is two:
        return True
    if (one.nodes, one.inputs, dict(one.outputs)) != (two.nodes, two.inputs, dict(two.outputs)):
        return False
    if one.constants.keys() != two.constants.keys():
        return False
    pairs = ((c, two.constants[name]) for name, c in one.constants.items())
    return all(a is b or (a.type == b.type and a.digest == b.digest) for a, b in pairs)
