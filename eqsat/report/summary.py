"""The outcome of a run of the pipeline, and the report of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from eqsat.certify import Certificate
from eqsat.costs.model.cost import Cost
from eqsat.costs.model.model import CostModel
from eqsat.egraph.encode import Encoding
from eqsat.egraph.saturation import Saturation
from eqsat.extract import Solution
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
    given, best, grown = outcome.given, outcome.kept, outcome.grown
    original = given.original
    solution, measured = outcome.solution, outcome.measured
    enodes, eclasses = outcome.encoding.egraph.size()
    before = outcome.candidates[0].cost
    bound = min(solution.lower_bound, best.cost.price)
    refused: dict[str, dict[str, int]] = {}
    for (rule, reason), times in sorted(grown.refused.items()):
        refused.setdefault(rule, {})[reason] = times
    certificate = best.certificate
    # With the original its bodies are kept as well.
    bodies = [] if best is outcome.candidates[0] else [body for body in given.inside if not body.failure]
    return Report(
        name=original.name,
        device=device,
        nodes_before=given.nodes,
        nodes_after=best.size,
        cost_before=before.price,
        cost_after=best.cost.price,
        lower_bound=bound,
        gap=0.0 if best.cost.price <= bound else 1 - bound / best.cost.price,
        objective={} if costs.cost is not None else dict(costs.objective),
        stopped_by="interrupted" if stopped else grown.stopped_by,
        extraction=solution.status,
        enodes=enodes,
        eclasses=eclasses,
        growth=list(grown.growth),
        estimated_share=best.cost.estimated_share,
        borrowed_share=best.cost.borrowed_share,
        borrowed_from="" if costs.borrowed is None or not best.cost.borrowed_share else costs.borrowed.description,
        rules_fired=dict(sorted(grown.fired.items(), key=lambda item: (-item[1], item[0]))),
        rules_refused=refused,
        certificate=parts.CertificateSummary(
            kind=certificate.kind,
            error=certificate.error,
            regions=certificate.regions,
            folded=certificate.folded,
            draws=certificate.draws,
            sizes=[dict(s) for s in certificate.sizes],
            text=_certified(certificate, bodies),
            bodies=[parts.BodyCertificate(body.place, body.certificate) for body in bodies],
        ),
        seconds=dict(seconds),
        measured_before=measured.median("original") if measured else None,
        measured_after=measured.median(best.name) if measured else None,
        measured_ratio=measured.ratio(best.name) if measured else None,
        measured_bound=measured.bound(best.name) if measured else None,
        finalists=list(outcome.finalists),
        rounds=measured.rounds if measured else 0,
        kept=best.name,
        kept_because=outcome.because,
        opaque=[
            parts.OpaqueNode(n.name or n.outputs[0], str(n.attrs["op_type"]), str(n.attrs["reason"]))
            for n in original.nodes
            if n.op == OPAQUE
        ],
        operators_before=operators_of(original),
        operators_after=operators_of(best.graph),
        changes=[*_settled(original), *map(_change_inside, bodies), *outcome.explained.changes],
        amounts=dict(best.amounts),
        rounding=best.rounding,
        steps=list(steps_of(best)),
        baselines=list(outcome.baselines),
        sizes=[parts.CostedSizes(shown(original, p), p.weight) for p in points],
        measured_at=described(original, measured.points) if measured else "",
        warnings=list(warnings),
    )


def _certified(certificate: Certificate, bodies: Sequence[Inside]) -> str:
    """The method by which a result was checked, and the number of its bodies that were checked by themselves."""
    return f"{certificate}; {count(len(bodies), 'body', 'bodies')} checked apart" if bodies else str(certificate)


def _settled(graph: Graph) -> Iterator[parts.ControlChange]:
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
