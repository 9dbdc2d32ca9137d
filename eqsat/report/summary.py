"""The outcome of a run of the pipeline, and the report of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from eqsat.certify import Certificate
from eqsat.costs.model.cost import Cost
from eqsat.costs.model.model import CostModel
from eqsat.egraph.encode import Encoding
from eqsat.egraph.saturation import Saturation
from eqsat.extract import Solution
from eqsat.extract.problem.peaks import peak_of_graph, peak_of_plan
from eqsat.language.graphs.repeats import KEPT, Condensed
from eqsat.language.onnx.files.origin import OnnxOrigin
from eqsat.language.onnx.read.model import Given, Inside
from eqsat.language.sizes.solve import sizing_of
from eqsat.language.terms.graph import OPAQUE, Graph, operator_name
from eqsat.language.terms.plan import Conversion
from eqsat.report import parts
from eqsat.report.explanation import Explanation
from eqsat.report.finalists import RUN_SECONDS, Candidate, Measured
from eqsat.report.report import Report
from eqsat.report.units import count, percent
from eqsat.runtime.examples import SizePoint


@dataclass(frozen=True)
class Findings:
    """Everything a run found out."""

    given: Given
    candidates: Sequence[Candidate]
    kept: Candidate
    because: str
    encoding: Encoding
    grown: Saturation
    solution: Solution
    baselines: Sequence[parts.Baseline]
    measured: Measured | None
    explained: Explanation
    finalists: Sequence[parts.Finalist]


def report_of(
    outcome: Findings,
    costs: CostModel,
    device: str,
    stopped: bool,
    seconds: Mapping[str, float],
    warnings: Sequence[str],
    points: Sequence[SizePoint] = (),
) -> Report:
    """The report of an outcome."""
    given, best, grown, solution = outcome.given, outcome.kept, outcome.grown, outcome.solution
    enodes, eclasses = outcome.encoding.egraph.size()
    bound = min(solution.lower_bound, best.cost.price)
    refused: dict[str, dict[str, int]] = {}
    for (rule, reason), times in sorted(grown.refused.items()):
        refused.setdefault(rule, {})[reason] = times
    # With the original its bodies are kept as well.
    bodies = [] if best is outcome.candidates[0] else [body for body in given.inside if not body.failure]
    certificate = replace(
        summary_of(best.certificate),
        text=_certified(best.certificate, bodies),
        bodies=[parts.BodyCertificate(body.place, body.certificate) for body in bodies],
    )
    report = kept_report(
        given,
        outcome.candidates[0],
        best,
        outcome.because,
        outcome.measured,
        outcome.finalists,
        certificate,
        costs,
        device,
        points,
    )
    return replace(
        report,
        lower_bound=bound,
        gap=0.0 if best.cost.price <= bound else 1 - bound / best.cost.price,
        stopped_by="interrupted" if stopped else grown.stopped_by,
        extraction=solution.status,
        enodes=enodes,
        eclasses=eclasses,
        growth=list(grown.growth),
        rules_fired=most_often(grown.fired),
        rules_bounded=[name for name, one in outcome.explained.grounds.items() if not one.is_for_every_size],
        rules_refused=refused,
        seconds=dict(seconds),
        changes=[*report.changes, *map(_change_inside, bodies), *outcome.explained.changes],
        amounts=dict(best.amounts),
        rounding=best.rounding,
        baselines=list(outcome.baselines),
        blocks=[] if given.condensed is None else list(_blocks(given.condensed)),
        warnings=list(warnings),
    )


def kept_report(
    given: Given,
    original: Candidate,
    best: Candidate,
    because: str,
    measured: Measured | None,
    finalists: Sequence[parts.Finalist],
    certificate: parts.CertificateSummary,
    costs: CostModel,
    device: str,
    points: Sequence[SizePoint],
) -> Report:
    """The report of the finalist that is kept, without a bound on its cost and all else that its search tells."""
    graph = given.original
    return Report(
        name=graph.name,
        device=device,
        nodes_before=given.nodes,
        nodes_after=best.size,
        cost_before=original.cost.price,
        cost_after=best.cost.price,
        lower_bound=0.0,
        gap=1.0,
        objective={} if costs.cost is not None else dict(costs.objective),
        stopped_by="",
        extraction="heuristic",
        estimated_share=best.cost.estimated_share,
        borrowed_share=best.cost.borrowed_share,
        borrowed_from="" if costs.borrowed is None or not best.cost.borrowed_share else costs.borrowed.description,
        certificate=certificate,
        measured_before=measured.median("original") if measured else None,
        measured_after=measured.median(best.name) if measured else None,
        measured_ratio=measured.ratio(best.name) if measured else None,
        measured_bound=measured.bound(best.name) if measured else None,
        finalists=list(finalists),
        rounds=measured.rounds if measured else 0,
        kept=best.name,
        kept_because=because,
        opaque=[
            parts.OpaqueNode(n.name or n.outputs[0], str(n.attrs["op_type"]), str(n.attrs["reason"]))
            for n in graph.nodes
            if n.op == OPAQUE
        ],
        operators_before=operators_of(graph),
        operators_after=operators_of(best.graph),
        changes=list(_settled_changes(graph)),
        steps=list(steps_of(best)),
        sizes=[parts.CostedSizes(shown(graph, p), p.weight) for p in points],
        measured_at=described(graph, measured.points) if measured else "",
        usage_before=_usage(original, costs),
        usage_after=_usage(best, costs),
    )


def most_often(fired: Mapping[str, int]) -> dict[str, int]:
    """The number of times that each rule fired, the largest first."""
    return dict(sorted(fired.items(), key=lambda item: (-item[1], item[0])))


def summary_of(certificate: Certificate) -> parts.CertificateSummary:
    """The record of a certificate."""
    return parts.CertificateSummary(
        kind=certificate.kind,
        error=certificate.error,
        regions=certificate.regions,
        folded=certificate.folded,
        draws=certificate.draws,
        sizes=[dict(sizes) for sizes in certificate.sizes],
        text=str(certificate),
    )


def _usage(candidate: Candidate, costs: CostModel) -> parts.Usage:
    """The launches and the memory of a finalist."""
    total, plan = candidate.cost.total, None if candidate.assembled is None else candidate.assembled.plan
    peak = peak_of_graph(candidate.graph, costs.sizes) if plan is None else peak_of_plan(plan, costs.sizes)
    weights = sum(constant.nbytes for constant in candidate.graph.constants.values())
    return parts.Usage(total.launches, peak, weights)


def _blocks(condensed: Condensed) -> Iterator[parts.EqualBlocks]:
    """The runs of equal blocks of a graph."""
    return (parts.EqualBlocks(repeat.length, repeat.count, KEPT) for repeat in condensed.repeats)


def _certified(certificate: Certificate, bodies: Sequence[Inside]) -> str:
    """The method by which a result was checked, and the number of its bodies that were checked by themselves."""
    return f"{certificate}; {count(len(bodies), 'body', 'bodies')} checked apart" if bodies else str(certificate)


def _settled_changes(graph: Graph) -> Iterator[parts.ControlChange]:
    """The nodes that reading put in the place of control flow, as changes."""
    for settled in graph.origin.settled if isinstance(graph.origin, OnnxOrigin) else ():
        yield parts.ControlChange(settled.text, rules=("known ahead",), predicted=settled.runs * RUN_SECONDS)


def _change_inside(body: Inside) -> parts.ControlChange:
    """A body that was optimised, as a change."""
    before, after = body.nodes
    text = f"{body.place}: {before} -> {count(after, 'node')}"
    return parts.ControlChange(text, after - before, body.rules, body.saved)


def shown(graph: Graph, point: SizePoint) -> dict[str, int]:
    """The sizes of a point by the users' names of the dims of inputs."""
    return {label: point.sizes[name] for name, label in sizing_of(graph).labels.items() if name in point.sizes}


def described(graph: Graph, points: Sequence[SizePoint]) -> str:
    """Points as a report shows them: "batch=1, length=64", or several with their shares."""
    texts = [sizing_of(graph).describe(p.sizes) for p in points if sizing_of(graph).labels]
    if len(texts) < 2:
        return "".join(texts)
    return "; ".join(f"{text} ({percent(p.weight)})" for text, p in zip(texts, points, strict=True))


def steps_of(candidate: Candidate) -> Iterator[parts.StepCost]:
    """The steps in order: each kernel and each conversion with its operators, states and cost."""
    if candidate.assembled is None:
        for node, cost in candidate.cost.nodes:
            yield _step(cost, operator_name(node), node.outputs[0], ["row"], "row")
        return
    graph = candidate.assembled.graph
    producers = {v: node for node in graph.nodes for v in node.outputs if v}
    for step, cost in zip(candidate.assembled.plan.steps, candidate.assembled.costs, strict=True):
        if isinstance(step, Conversion):
            kind = "cast" if step.source.precision != step.target.precision else "copy"
            yield _step(cost, f"convert ({kind})", step.value, [str(step.source)], str(step.target))
        else:
            ops = " + ".join(operator_name(producers[value]) for value in step.nodes)
            taken = list(dict.fromkeys(str(operand.state) for operand in step.operands)) or ["row"]
            yield _step(cost, ops, step.nodes[-1], taken, str(step.results[0].state), step.arithmetic)


def _step(cost: Cost, op: str, value: str, operands: list[str], result: str, by: str = "") -> parts.StepCost:
    estimated = cost.estimated or cost.borrowed
    return parts.StepCost(op, value, operands, result, by, cost.seconds, cost.flops, cost.bytes, estimated)


def operators_of(graph: Graph) -> dict[str, int]:
    """The number of nodes of each operator in a graph."""
    counts = Counter(node.op for node in graph.nodes)
    if counts.pop(OPAQUE, 0):
        counts.update(operator_name(node) for node in graph.nodes if node.op == OPAQUE)
    return dict(sorted(counts.items()))
