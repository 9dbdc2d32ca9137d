"""A choice for each bucket from one e-graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from eqsat.buckets.result import BucketedResult
from eqsat.language.sizes.buckets import Bucket, Buckets
from eqsat.language.terms.graph import Graph
from eqsat.report.result import Result
from eqsat.rewrites.rules.ruleset import RuleSet
from eqsat.run import Run
from eqsat.steps.failures import guarded
from eqsat.steps.sizes import placed
from eqsat.system.deadline import TimeUp


def choose_each(run: Run, buckets: Buckets) -> BucketedResult:
    """The result of each bucket: one e-graph, grown once, and a choice for the sizes at which each bucket ends.

    The time for choosing is shared among the buckets; each is measured and certified at its own sizes. Choices that are
    one graph become one.
    """

    def attempt(rules: RuleSet, again: bool) -> dict[Bucket, Result]:
        grown = run.saturate(rules)

        def choose(part: Run) -> Result:
            try:
                return part.finish(grown, run.settings.options.measure, again).result
            except TimeUp as late:
                part.log.skipped.append(f"nothing was chosen for this bucket: {late}")
                return part.original()

        return _each(run, buckets, choose)

    def original() -> dict[Bucket, Result]:
        return _each(run, buckets, Run.original)

    results = _merged(guarded(attempt, run.rules, original, run.settings, run.log))
    largest = list(results.values())[-1]
    fields = {name: getattr(largest, name) for name in Result.__dataclass_fields__}
    return BucketedResult(**fields, buckets=buckets, results=results)


def _each(run: Run, buckets: Buckets, choose: Callable[[Run], Result]) -> dict[Bucket, Result]:
    """The result for each bucket, costed and measured at the sizes at which it ends."""
    results: dict[Bucket, Result] = {}
    settings = run.settings
    for done, bucket in enumerate(buckets):
        share = settings.deadline.part(1 / (len(buckets) - done))
        log = run.log.copy()
        sizes = {**settings.sizes, **dict(bucket)}
        part = replace(settings, costs=settings.costs.at({}), deadline=share)
        part = placed(run.given, {name: {size: 1.0} for name, size in sizes.items()}, part, log)
        results[bucket] = choose(replace(run, settings=part, log=log))
    return results


def _merged(results: dict[Bucket, Result]) -> dict[Bucket, Result]:
    """The results with equal choices as one graph, so that they are compiled and written once."""
    distinct: list[Result] = []
    merged: dict[Bucket, Result] = {}
    for bucket, result in results.items():
        same = next((k for k in distinct if _is_same(k.graph, result.graph) and _steps(k) == _steps(result)), None)
        if same is None:
            distinct.append(result)
        merged[bucket] = result if same is None else replace(result, graph=same.graph, plan=same.plan)
    return merged


def _steps(result: Result) -> object:
    """The plan of a result without its graph."""
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
