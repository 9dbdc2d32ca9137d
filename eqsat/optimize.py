"""The pipeline: read, saturate, extract, certify, measure."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from eqsat.certify import assignments, certify
from eqsat.costs.model import CostModel, Objective
from eqsat.costs.table import CostTable
from eqsat.egraph.decode import decode, fold_derived
from eqsat.egraph.encode import Encoding, encode
from eqsat.egraph.explain import CONGRUENCE, Explainer
from eqsat.egraph.saturate import Limits, Saturation, Saturator
from eqsat.egraph.snapshot import Snapshot, snapshot
from eqsat.errors import BackendError, CertificateError, UncheckedError, UsageError
from eqsat.extract import EXTRACTORS, Solution, solve
from eqsat.extract.tensors import TensorProblem, tensor_problem
from eqsat.finalists import Candidate, Measured, kept, measure_finalists, written_size
from eqsat.given import Given, ModelArgument, check_sizes, read
from eqsat.language.graph import OPAQUE, Graph
from eqsat.language.onnx.availability import opset_of
from eqsat.report import Phase, Progress, Report
from eqsat.result import Change, Explanation, Result
from eqsat.rewrites.loader import load_rules
from eqsat.rewrites.rule import Rule
from eqsat.runtime.kernels import available_on

#: The share of the time limit that saturation and extraction may take, each.
_SATURATE, _EXTRACT = 0.4, 0.4

#: What `rules` accepts: nothing (the library), a file of rules or their text, several of those, or the very rules.
RulesArgument: TypeAlias = "Sequence[Rule | str | Path] | str | Path | None"


@dataclass(frozen=True)
class _Outcome:
    given: Given
    candidates: Sequence[Candidate]
    kept: Candidate
    because: str
    encoding: Encoding
    grown: Saturation
    solution: Solution
    measured: Measured | None
    explained: Explanation


def optimize(
    model: ModelArgument,
    *,
    device: str = "onnxruntime-cpu",
    objective: Objective | None = None,
    extractor: str = "ilp",
    node_limit: int = 20_000,
    time_limit: float = 30.0,
    rules: RulesArgument = None,
    finite_math: bool = False,
    outputs: Sequence[str] | None = None,
    sizes: Mapping[str, int] | None = None,
    seed: int = 0,
    opset: int | None = None,
    measure: bool = True,
    table: CostTable | str | Path | None = None,
    threads: int = 1,
    progress: Callable[[Progress], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> Result:
    """The cheapest graph that rules with evidence prove equal to a model, checked independently.

    `model` is a path, a ModelProto or a graph; it is never changed. `objective` weighs terms of the cost or is a
    function of one operator; `extractor` is "ilp" or "greedy". `node_limit` bounds the e-nodes, `time_limit` the
    seconds of growing and choosing together. `rules` are the library's where left out; a file or a text of rules is
    checked and added to them, a sequence of Rule replaces them. `finite_math` lets rules assume that no infinity or NaN
    occurs. `outputs` keeps only these; `sizes` says what a named dim is costed at. With `measure`, the finalists are
    timed against the original where the device's backend is here, and the original is kept unless the upper 95 % bound
    of new/old is below 1.

    Raises EqsatError: UsageError for an argument out of its domain, ImportModelError for a model that cannot be read,
    CertificateError for a result that differs from the original.
    """
    _check_arguments(node_limit, time_limit, threads, seed, extractor, opset)
    store = table if isinstance(table, CostTable) else CostTable(table)
    costs = CostModel(device, store, objective, sizes, threads=threads)
    pipeline = _Pipeline(
        device=device,
        extractor=extractor,
        limits=Limits(nodes=node_limit, seconds=_SATURATE * time_limit),
        extract_seconds=_EXTRACT * time_limit,
        finite_math=finite_math,
        seed=seed,
        opset=opset,
        threads=threads,
        progress=progress,
        should_stop=should_stop,
    )
    with pipeline.phase("read"):
        loaded = _rules(rules)
        given = read(model, outputs)
        check_sizes(given.graph, sizes or {})
    return pipeline.run(given, loaded, costs, sizes or {}, measure)


def _check_arguments(
    node_limit: int, time_limit: float, threads: int, seed: int, extractor: str, opset: int | None
) -> None:
    """What can be refused before a model is read."""
    for name, value in (("node_limit", node_limit), ("time_limit", time_limit), ("threads", threads)):
        if not value > 0:
            raise UsageError(f"{name} = {value}", expected=f"a {name} above 0")
    if seed < 0:
        raise UsageError(f"seed = {seed}", expected="a seed of 0 or more")
    if extractor not in EXTRACTORS:
        raise UsageError(f"no extractor {extractor!r}", expected="one of " + ", ".join(sorted(EXTRACTORS)))
    if opset is not None:
        from eqsat.language.onnx.reader import OLDEST_OPSET, newest_opset

        if not OLDEST_OPSET <= opset <= newest_opset():
            raise UsageError(f"opset = {opset}", expected=f"an opset from {OLDEST_OPSET} to {newest_opset()}")


def _rules(given: RulesArgument) -> tuple[Rule, ...]:
    """The library, the library with files or texts of rules besides, or exactly the rules given."""
    if given is None:
        return load_rules()
    if isinstance(given, str | Path):
        return load_rules([given])
    exact = tuple(r for r in given if isinstance(r, Rule))
    more = [r for r in given if not isinstance(r, Rule)]
    return (*exact, *load_rules(more)) if more else exact


@dataclass
class _Pipeline:
    device: str
    extractor: str
    limits: Limits
    extract_seconds: float
    finite_math: bool
    seed: int
    opset: int | None
    threads: int
    progress: Callable[[Progress], None] | None
    should_stop: Callable[[], bool] | None
    seconds: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @contextmanager
    def phase(self, name: Phase) -> Iterator[None]:
        """Times a phase and says that it began."""
        self._say(Progress(name))
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def run(
        self,
        given: Given,
        rules: tuple[Rule, ...],
        costs: CostModel,
        sizes: Mapping[str, int],
        measure: bool,
    ) -> Result:
        original = given.graph
        with self.phase("saturate"):
            encoding = encode(original, finite_math=self.finite_math)
            self.warnings += [*given.warnings, *_nan_warnings(encoding)]
            grown = self._saturate(encoding, rules)
            frozen = snapshot(encoding)
        with self.phase("extract"):
            available = available_on(self.device, self.opset or opset_of(original))
            framed = tensor_problem(frozen, costs, available)
            solution, candidates = self._candidates(given, frozen, framed, costs)
        with self.phase("measure"):
            measured = self._measure(candidates, sizes, given.source) if measure else None
            best, because = kept(candidates, measured)
        with self.phase("certify"):
            try:
                self._certify(original, best, sizes, grown)
            except UncheckedError as error:
                self.warnings.append(f"{best.name} was left out: {error.what}")
                best, because = candidates[0], "what was found could not be checked"
        explained = _explain(encoding, frozen, best)
        outcome = _Outcome(given, candidates, best, because, encoding, grown, solution, measured, explained)
        report = self._report(outcome, costs)
        source = given.source if best is candidates[0] else None
        return Result(best.graph, report, explained, source, self.threads, self.opset)

    def _say(self, progress: Progress) -> None:
        if self.progress is not None:
            self.progress(progress)

    def _saturate(self, encoding: Encoding, rules: tuple[Rule, ...]) -> Saturation:
        def follow(phase: str, nodes: int) -> None:
            self._say(Progress("saturate", nodes=nodes, detail=phase))

        return Saturator(encoding.egraph, rules, self.limits, follow, self.should_stop).run()

    def _candidates(
        self, given: Given, frozen: Snapshot, framed: TensorProblem, costs: CostModel
    ) -> tuple[Solution, list[Candidate]]:
        """The original, then what each extractor chose, without repetitions."""
        original = given.graph
        candidates = [Candidate("original", original, costs.graph(original), given.nodes)]

        def follow(best: float, bound: float) -> None:
            self._say(Progress("extract", nodes=len(frozen.nodes), best=best, bound=bound))

        greedy = solve(framed.problem, extractor="greedy")
        best = greedy
        if self.extractor != "greedy":
            best = solve(
                framed.problem,
                extractor=self.extractor,
                time_limit=self.extract_seconds,
                seed=self.seed,
                progress=follow,
                should_stop=self.should_stop,
            )
        known: dict[Any, Any] = {}
        # Where reading folded nothing away, a choice of the very same nodes is the original itself.
        seen = [original.nodes] if given.nodes == len(original.nodes) else []
        for name, solution in ((self.extractor, best), ("greedy", greedy)):
            choice = framed.choice(solution)
            decoded = decode(frozen, choice, original)
            if decoded.graph.nodes not in seen:
                seen.append(decoded.graph.nodes)
                folded = fold_derived(decoded.graph, known)
                cost = costs.graph(folded)
                candidates.append(Candidate(name, folded, cost, written_size(folded, self.opset), decoded, choice))
        return best, candidates

    def _certify(self, original: Graph, candidate: Candidate, sizes: Mapping[str, int], grown: Saturation) -> None:
        if candidate.decoded is None:
            return
        try:
            candidate.certificate = certify(
                original,
                candidate.decoded.graph,
                candidate.graph,
                candidate.decoded.shared,
                sizes=assignments(original, sizes),
                seed=self.seed,
            )
        except UncheckedError:
            raise
        except CertificateError as error:
            fired = ", ".join(f"{name} ({count})" for name, count in sorted(grown.fired.items()))
            raise CertificateError(
                error.what,
                where=error.where,
                expected=error.expected,
                remedy=f"{error.remedy}; rules that fired: {fired}",
            ) from error

    def _measure(self, candidates: Sequence[Candidate], sizes: Mapping[str, int], source: Any) -> Measured | None:
        if self.device != "onnxruntime-cpu":
            self.warnings.append(f"not measured: {self.device} is not this machine")
            return None
        if len(candidates) == 1:
            return None
        try:
            measured = measure_finalists(
                {c.name: c.graph for c in candidates},
                source,
                sizes=sizes,
                seed=self.seed,
                threads=self.threads,
                should_stop=self.should_stop,
                follow=lambda text: self._say(Progress("measure", detail=text)),
            )
        except BackendError as error:
            self.warnings.append(f"not measured: {error.what}")
            return None
        self.warnings += [f"{name} was left out: {why}" for name, why in measured.refused.items()]
        return measured

    def _report(self, outcome: _Outcome, costs: CostModel) -> Report:
        given, kept, grown = outcome.given, outcome.kept, outcome.grown
        original = given.graph
        solution, measured = outcome.solution, outcome.measured
        enodes, eclasses = outcome.encoding.egraph.size()
        before = outcome.candidates[0].cost
        bound = min(solution.lower_bound, kept.cost.price)
        refused: dict[str, dict[str, int]] = {}
        for (rule, reason), count in sorted(grown.refused.items()):
            refused.setdefault(rule, {})[reason] = count
        certificate = kept.certificate
        stopped = self.should_stop is not None and self.should_stop()
        return Report(
            name=original.name,
            device=self.device,
            nodes_before=given.nodes,
            nodes_after=kept.size,
            cost_before=before.price,
            cost_after=kept.cost.price,
            lower_bound=bound,
            gap=0.0 if kept.cost.price <= bound else 1 - bound / kept.cost.price,
            objective={} if callable(costs.objective) else dict(costs.objective),
            stopped_by="interrupted" if stopped else grown.stopped_by,
            extraction=solution.status,
            enodes=enodes,
            eclasses=eclasses,
            growth=list(grown.growth),
            estimated_share=kept.cost.estimated_share,
            rules_fired=dict(sorted(grown.fired.items(), key=lambda item: (-item[1], item[0]))),
            rules_refused=refused,
            certificate={
                "kind": certificate.kind,
                "error": certificate.error,
                "regions": [
                    {"values": list(r.values), "kind": r.kind, "error": r.error, "nodes": list(r.nodes)}
                    for r in certificate.regions
                ],
                "folded": certificate.folded,
                "draws": certificate.draws,
                "sizes": [dict(s) for s in certificate.sizes],
                "text": str(certificate),
            },
            seconds=dict(self.seconds),
            measured_before=measured.median("original") if measured else None,
            measured_after=measured.median(kept.name) if measured else None,
            measured_bound=measured.bound(kept.name) if measured else None,
            rounds=measured.rounds if measured else 0,
            kept=kept.name,
            kept_because=outcome.because,
            opaque=[
                {"name": n.name or n.outputs[0], "op": str(n.attrs["op_type"]), "reason": str(n.attrs["reason"])}
                for n in original.nodes
                if n.op == OPAQUE
            ],
            operators_before=_operators(original),
            operators_after=_operators(kept.graph),
            changes=[c.as_dict() for c in outcome.explained.changes],
            warnings=list(self.warnings),
        )


def _nan_warnings(encoding: Encoding) -> Iterator[str]:
    """One warning for each constant that holds NaN; only those are looked at that are not known to be finite."""
    egraph, graph = encoding.egraph, encoding.graph
    for name, constant in graph.constants.items():
        if not constant.type.dtype.is_float or (egraph.eclass(encoding.values[name]).finite and not egraph.finite_math):
            continue
        count = int(np.isnan(constant.array.astype(np.float64)).sum())
        if count:
            yield f"constant {name!r} holds NaN in {count} of {constant.array.size} elements; it is kept as it is"


def _operators(graph: Graph) -> dict[str, int]:
    counts: dict[str, int] = {}
    for node in graph.nodes:
        name = str(node.attrs["op_type"]) if node.op == OPAQUE else node.op
        counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items()))


def _explain(encoding: Encoding, frozen: Snapshot, kept: Candidate) -> Explanation:
    """Which rules lead from each original value to what computes it now."""
    changes: dict[tuple[str, ...], list[Change]] = {}
    unexplained = 0
    if kept.decoded is None:
        return Explanation((), 0)
    explainer = Explainer(encoding.egraph)
    for leader, position in sorted(kept.choice.items()):
        node = frozen.nodes[position]
        for value in frozen.classes[leader].values:
            source = encoding.values[value]
            steps = explainer.chain(source, node.number)
            if steps is None:
                unexplained += 1
                continue
            # Nothing but congruence between the two: the operands changed, and are explained where they are made.
            if rules := tuple(dict.fromkeys(s.rule for s in steps if s.rule != CONGRUENCE)):
                change = Change(value, encoding.egraph.nodes[source].op, node.op, rules)
                changes.setdefault((*rules, change.before, change.after), []).append(change)
    grouped = [Change.together(group) for group in changes.values()]
    return Explanation(tuple(sorted(grouped, key=lambda c: -len(c.values))), unexplained)
