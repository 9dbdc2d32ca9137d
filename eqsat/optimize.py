"""The call `optimize`: its arguments, checked, and the pipeline they set up."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import TypeAlias

from eqsat.buckets.choice import Buckets, BucketsArgument
from eqsat.buckets.run import choose_each
from eqsat.costs.devices.device import Device
from eqsat.costs.kernels.implementations import Choices
from eqsat.costs.kernels.precision import PrecisionPolicy, policy
from eqsat.costs.model.model import CostFunction, CostModel, Objective
from eqsat.costs.table.table import CostTable
from eqsat.egraph.engine import load
from eqsat.egraph.saturate import Limits
from eqsat.errors import UsageError
from eqsat.extract import EXTRACTORS
from eqsat.language.onnx.read.model import Given, ModelArgument, read
from eqsat.language.terms.state import State
from eqsat.report.report import Progress
from eqsat.report.result import Result
from eqsat.rewrites.rules.loader import load_rules
from eqsat.rewrites.rules.rule import Rule
from eqsat.runtime.examples import OverSizes
from eqsat.steps.arguments import (
    boundary_of,
    bounds_of,
    check_budget,
    check_calls,
    check_finite_math,
    check_flags,
    check_names,
    check_opset,
    check_outputs,
    layouts_of,
    table_of,
)
from eqsat.steps.bodies import optimised_inside
from eqsat.steps.failures import marked
from eqsat.steps.pipeline import Pipeline
from eqsat.steps.settings import Settings
from eqsat.steps.sizes import SizesArgument, check_over_sizes, sizes_of
from eqsat.system.deadline import Deadline

#: The share of the time limit that an explorer grows in, and what it then may choose in.
_SATURATE = 0.4

#: What `rules` accepts: nothing (the library), a file of rules or their text, several of those, or the very rules.
RulesArgument: TypeAlias = "Sequence[Rule | str | Path] | str | Path | None"


def optimize(
    model: ModelArgument,
    *,
    device: str = "onnxruntime-cpu",
    objective: Objective | None = None,
    cost: CostFunction | None = None,
    layouts: str | Sequence[str] = "auto",
    precision: str | PrecisionPolicy = "exact",
    limits: Mapping[str, float | str] | None = None,
    boundary: Mapping[str, State] | None = None,
    extractor: str = "ilp",
    alpha: float | None = None,
    node_limit: int = 20_000,
    time_limit: float = 30.0,
    steps: int | None = None,
    rules: RulesArgument = None,
    finite_math: bool | None = None,
    outputs: Sequence[str] | None = None,
    sizes: SizesArgument | None = None,
    over_sizes: OverSizes = "sum",
    buckets: BucketsArgument | None = None,
    seed: int = 0,
    opset: int | None = None,
    measure: bool = True,
    strict: bool = False,
    portable: bool = False,
    table: CostTable | str | Path | None = None,
    threads: int = 1,
    progress: Callable[[Progress], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> Result:
    """The cheapest graph that rules with evidence prove equal to a model, checked independently.

    The method is equality saturation (Tate et al., POPL 2009; Willsey et al., POPL 2021). Times are in seconds.

    * `model` is a path, a ModelProto or a graph; it is never changed. `outputs` keeps only the outputs it names.
    * `device` names the device whose costs count, "cuda" the GPU that is here. `table` is the cost table, or its file;
      `threads` are those of the runtime. `sizes` says what named dims are costed and measured at: one size a name,
      several, such as {"batch": [1, 8, 32]}, or several with their weights; what the model does not accept gives way to
      the nearest size that it does. `over_sizes` is "sum" for the least weighted sum of costs over several sizes, or
      "worst" for the least share of the original's cost at the size where that is largest.
    * `buckets`, such as {"batch": [1, 4, 8]}, makes a choice for each size from one e-graph, and returns a
      `BucketedResult`, which picks the smallest bucket that holds its inputs.
    * `objective` weighs terms of the cost: time (seconds), flops, bytes, launches, weight_memory and peak_memory
      (bytes), error (relative). `cost` is a function of one operator in its place. `limits` bound terms, such as
      {"peak_memory": "8 GB", "launches": 40}.
    * `layouts` are those that values may be held in, "auto" for all the device has kernels for. `precision` is "exact",
      which keeps the model's element types, "tf32", "mixed", "float16", "bfloat16", or a policy. `boundary` names the
      states of inputs and outputs that are not row-major in their own type.
    * `extractor` is "ilp", "greedy" or "backtracking", the last with its `alpha`. `node_limit` bounds the e-nodes.
    * `time_limit` bounds the seconds of the call, but for reading the model; `report.skipped` says what there was no
      time for. With `steps`, the work is bounded by counted steps (matches, rows, iterations) in its place, and two
      runs with `measure=False` come to the same bytes, however fast the machine is; a step takes some microseconds.
      Measuring depends on the machine, and so do the seconds in a report.
    * `rules` are the library's where left out; a file or a text of rules is checked and added to them, a sequence of
      Rule replaces them. `finite_math` says whether rules may assume that no infinity or NaN occurs; left out, that
      inputs hold none and results do not overflow, unless the model asks (docs/adr/0010).
    * With `measure`, the finalists are timed against the original where the device's backend is here, and the original
      is kept unless the upper 95 % bound of new/old is below 1.
    * `seed` is that of the checks, the search and the timing; `opset` the one written, the model's own if left out.
      Without `portable`, what was optimised for ONNX Runtime's CPU may be written in operators of its own, of the
      domain com.microsoft, which other runtimes lack.
    * Where something fails after the model was read, the original is the result and `report.failure` says what failed;
      a region that is found wrong is first tried anew without the rules behind it. `strict` raises what failed instead.
    * `progress` is called with a Progress while the search runs; `should_stop` ends it with the best so far.

    Raises EqsatError: UsageError for an argument out of its domain, ImportModelError or GraphError for a model that
    cannot be read, RuleError for rules that do not parse or are not proved, CostError for a device or a table that
    cannot be used, and ExtractionError for limits that nothing meets; with `strict`, CertificateError for a result that
    differs from the original, and whatever else failed.
    """
    check_flags(measure=measure, strict=strict, portable=portable)
    bounds = None if buckets is None else Buckets.of(buckets)
    both = sorted(bounds.ends.keys() & dict(sizes or {}).keys()) if bounds is not None else []
    if both:
        raise UsageError(
            f"buckets and sizes of {both[0]!r}", expected="one of the two: buckets are costed at their own"
        )
    prepared = prepare(
        model,
        device=device,
        objective=objective,
        cost=cost,
        layouts=layouts,
        precision=precision,
        limits=limits,
        boundary=boundary,
        extractor=extractor,
        alpha=alpha,
        node_limit=node_limit,
        time_limit=time_limit,
        steps=steps,
        rules=rules,
        finite_math=finite_math,
        outputs=outputs,
        sizes=sizes,
        over_sizes=over_sizes,
        seed=seed,
        opset=opset,
        table=table,
        threads=threads,
        progress=progress,
        should_stop=should_stop,
        strict=strict,
        portable=portable or bounds is not None,
    )
    prepared = prepared.with_bodies()
    if bounds is None:
        return prepared.pipeline.run(prepared.given, prepared.rules, prepared.costs, measure)
    return choose_each(prepared.pipeline, prepared.given, prepared.rules, prepared.costs, bounds, measure)


@dataclass(frozen=True)
class Prepared:
    """What a run needs, with every argument checked: the pipeline, the model as it was read, rules and costs."""

    pipeline: Pipeline
    given: Given
    rules: tuple[Rule, ...]
    costs: CostModel

    def with_bodies(self) -> Prepared:
        """The same with the bodies of If, Loop and Scan optimised."""
        return replace(self, given=optimised_inside(self.pipeline, self.given, self.rules, self.costs))


def prepare(
    model: ModelArgument,
    *,
    device: str,
    objective: Objective | None,
    cost: CostFunction | None,
    layouts: str | Sequence[str],
    precision: str | PrecisionPolicy,
    limits: Mapping[str, float | str] | None,
    boundary: Mapping[str, State] | None,
    extractor: str,
    alpha: float | None,
    node_limit: int,
    time_limit: float,
    steps: int | None,
    rules: RulesArgument,
    finite_math: bool | None,
    outputs: Sequence[str] | None,
    sizes: SizesArgument | None,
    over_sizes: OverSizes,
    seed: int,
    opset: int | None,
    table: CostTable | str | Path | None,
    threads: int,
    progress: Callable[[Progress], None] | None,
    should_stop: Callable[[], bool] | None,
    strict: bool = False,
    portable: bool = False,
) -> Prepared:
    """The arguments of `optimize`, checked before the model is read, and what they set up."""
    check_names(device=device)
    check_budget(node_limit, time_limit, threads, seed, steps)
    check_finite_math(finite_math)
    check_calls(cost=cost, progress=progress, should_stop=should_stop)
    check_over_sizes(over_sizes)
    check_opset(opset)
    check_outputs(outputs)
    check_extractor(extractor, alpha)
    if cost is not None and objective is not None:
        raise UsageError(
            "cost and objective", expected="one of the two: a function stands in place of weights of terms"
        )
    bounds, states, wanted = bounds_of(limits), boundary_of(boundary), sizes_of(sizes)
    store = table_of(table)
    costs = CostModel(device, store, objective, cost=marked(cost), threads=threads)
    choices, warnings = choices_for(costs.device, layouts, precision)
    if (mismatch := store.mismatch(costs.environment)) is not None:
        warnings.append(f"{mismatch}; costs here are estimates")
    if (stand_in := store.stand_in(costs.environment)) is not None:
        warnings.append(stand_in)
    settings = Settings(
        device=costs.device.name,
        extractor=extractor,
        alpha=alpha,
        limits=limits_for(node_limit, time_limit if steps is None else math.inf),
        deadline=Deadline(time_limit, steps=steps, asked=marked(should_stop)),
        choices=choices,
        boundary=states,
        bounds=bounds,
        finite_math=finite_math,
        seed=seed,
        opset=opset,
        threads=threads,
        sizes={name: min(of) for name, of in wanted.items()},
        points=(),
        over_sizes=over_sizes,
        progress=marked(progress),
        should_stop=marked(should_stop),
        strict=strict,
        contrib=not portable and costs.device.name == "onnxruntime-cpu",
    )
    pipeline = Pipeline(settings, warnings=list(warnings))
    with pipeline.phase("read"):
        load()
        loaded = rules_of(rules)
        given = read(model, outputs)
        pipeline.settings.deadline.begin()  # reading is not in the limit, and all that follows is
        points = pipeline.place(given, wanted, costs)
        costs.settle(sum(c.nbytes for c in given.graph.constants.values()), points)
    return Prepared(pipeline, given, loaded, costs)


def limits_for(node_limit: int, time_limit: float) -> Limits:
    """What bounds saturation where growing and choosing together may take so many seconds."""
    return Limits(nodes=node_limit, seconds=_SATURATE * time_limit)


def choices_for(
    device: Device, layouts: str | Sequence[str], precision: str | PrecisionPolicy
) -> tuple[Choices, list[str]]:
    """What may be chosen on a device besides the graph, and what a policy allows but the device has no speed for."""
    held = layouts_of(layouts, device.layouts, device.name)
    wanted = policy(precision)
    known = replace(
        wanted,
        precisions=tuple(p for p in wanted.precisions if p in device.precisions),
        arithmetic=tuple(p for p in wanted.arithmetic if p in device.precisions),
    )
    left = [p for p in (*wanted.precisions, *wanted.arithmetic) if p not in device.precisions]
    warnings = [f"{device.name} has no speed of its own for {', '.join(left)}: left out"] if left else []
    return Choices(held, known), warnings


def check_extractor(extractor: str, alpha: float | None) -> None:
    """UsageError for a way to choose that there is not, and for an alpha that it does not read."""
    if not isinstance(extractor, str) or extractor not in EXTRACTORS:
        raise UsageError(f"no extractor {extractor!r}", expected="one of " + ", ".join(sorted(EXTRACTORS)))
    if alpha is None:
        return
    if extractor != "backtracking":
        raise UsageError(
            f"alpha={alpha!r} with extractor={extractor!r}",
            expected="alpha for the search that reads it",
            remedy="leave it out, or pass extractor='backtracking'",
        )
    if isinstance(alpha, bool) or not isinstance(alpha, Real):
        raise UsageError(f"alpha={alpha!r}", expected="a factor above 0, such as 1.05")


def rules_of(given: RulesArgument) -> tuple[Rule, ...]:
    """The library, the library with files or texts of rules besides, or exactly the rules given."""
    if given is None:
        return load_rules()
    if isinstance(given, str | Path):
        return load_rules([given])
    wrong = [r for r in given if not isinstance(r, Rule | str | Path)] if isinstance(given, Sequence) else [given]
    if wrong:
        raise UsageError(f"rules = {given!r}", expected="a file or a text of rules, or a list of them or of rules")
    exact = tuple(r for r in given if isinstance(r, Rule))
    more = [r for r in given if not isinstance(r, Rule)]
    return (*exact, *load_rules(more)) if more else exact
