"""Bodies of If, Loop and Scan, each optimised as a graph of its own before the graph around it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

from onnx import GraphProto

from eqsat.egraph.encode import Encoding, encode
from eqsat.errors import ExportModelError
from eqsat.language.graphs.fold import fresh_beside
from eqsat.language.onnx.control.hoisting import Moved, hoisted
from eqsat.language.onnx.control.inference import Body
from eqsat.language.onnx.control.sites import Site, holds_bodies, names_in, replaced, sites, written
from eqsat.language.onnx.read.model import Given, Inside, dims_of
from eqsat.language.onnx.write.availability import lacking
from eqsat.language.terms import Constant, Dim, Graph, evaluate
from eqsat.report.finalists import written_size
from eqsat.report.parts import CertificateSummary
from eqsat.report.report import Progress
from eqsat.report.result import Result
from eqsat.rewrites.rules.definitions import expanded
from eqsat.steps.failures import is_for_the_caller, released, told
from eqsat.steps.log import Log
from eqsat.steps.settings import Settings
from eqsat.steps.sizes import points_for
from eqsat.system.deadline import Deadline, TimeUp

#: The share of the limit that all bodies together may take, and the share of what is left of that that one may.
_SHARE, _MOST = 0.5, 0.25
#: How often a loop is taken to run where that is not known; this decides nothing that is measured.
_TRIPS = 8
#: What a change is put down to that moved nodes in front of a loop.
HOISTED = "loop-invariant"


#: What optimises a body, given as a model, under settings.
Optimise: TypeAlias = Callable[[Given, Settings], Result]


def optimised_inside(given: Given, settings: Settings, log: Log, optimise: Optimise) -> Given:
    """The model with the bodies of its nodes optimised, each as a graph of its own, and a record of each.

    Each has the rules, the checks and a share of the time of a whole model; times are not measured, as those of the
    whole model are. Where something fails the body stays as it was, and its record says so; the log lists the bodies
    that there was no time for.
    """
    if not settings.is_plain or not holds_bodies(given.graph):
        return given
    warned = len(log.warnings)
    deadline = settings.deadline.part(_SHARE)
    try:
        with log.phase("bodies"), deadline:
            graph, inside = _Bodies(given.graph, settings, log, optimise, deadline).whole(given.graph)
    except TimeUp as late:
        released(late)
        log.skipped.append(f"bodies of If, Loop and Scan were left as they were: {late}")
        return given
    except Exception as error:
        if settings.options.strict or is_for_the_caller(error, False):
            raise
        del log.warnings[warned:]
        graph, inside = given.graph, [Inside("bodies of If, Loop and Scan", (0, 0), failure=told(error))]
    if graph is given.graph:
        return replace(given, inside=tuple(inside))
    # What was built in Python, or is a part of a model, is compared with what it was before.
    return replace(given, graph=graph, before=given.graph, inside=tuple(inside))


class _Bodies:
    def __init__(self, graph: Graph, settings: Settings, log: Log, optimise: Optimise, deadline: Deadline) -> None:
        self.settings = settings
        self.log = log
        self.optimise = optimise
        self.deadline = deadline
        self.costs = settings.costs
        self.names = names_in(graph)
        self.fresh = fresh_beside(graph.types.values())
        self.late = 0

    def whole(self, graph: Graph) -> tuple[Graph, list[Inside]]:
        """A graph with the bodies of its nodes optimised and freed of loop-invariant nodes, and the records of both.

        Bodies that there is no time for stay as they are.
        """
        graph, before = self._hoisted_in_time(graph)
        graph, inside = self.improved(graph)
        graph, after = self._hoisted_in_time(graph)
        if self.late:
            what = f"{self.late} bodies were" if self.late > 1 else "1 body was"
            self.log.skipped.append(f"{what} left as given: {self.deadline.reason}")
        return graph, [*before, *inside, *after]

    def _hoisted_in_time(self, graph: Graph) -> tuple[Graph, list[Inside]]:
        try:
            return self.hoisted(graph)
        except TimeUp as late:
            released(late)
            self.log.skipped.append(f"nodes were not moved out of loops: {late}")
            return graph, []

    def hoisted(self, graph: Graph) -> tuple[Graph, list[Inside]]:
        """A graph with the loop-invariant nodes in front of their loops, and the record of the nodes moved."""
        graph, moved = hoisted(graph, self.fresh, self.names)
        return graph, [self._moved(each) for each in moved]

    def _moved(self, moved: Moved) -> Inside:
        """The cost saved by moving nodes out of a loop: all runs but one."""
        costs = self.costs.at({})
        saved = (costs.graph(moved.before).price, costs.graph(moved.after).price)
        nodes = len(moved.before.nodes), len(moved.after.nodes)
        certificate = CertificateSummary("identical", 0.0, text="the same nodes in front of the loop")
        return Inside(moved.place, nodes, saved, self._often(moved.trips) - 1, (HOISTED,), certificate)

    def improved(
        self, graph: Graph, where: str = "", runs: float = 1.0, doubted: frozenset[str] = frozenset()
    ) -> tuple[Graph, list[Inside]]:
        """A graph that runs so often with the bodies of its nodes optimised, inner ones first, and the records."""
        finite = _Finite(graph, self.settings.options.finite_math, doubted)
        nodes, constants, types = list(graph.nodes), dict(graph.constants), dict(graph.types)
        inside: list[Inside] = []
        changed = False
        for site in sites(graph, self.fresh):
            rewritten: dict[str, GraphProto] = {}
            for body in site.control.bodies:
                place = f"{where}{body.name} of {site.place}"
                often = runs * self._runs(site)
                records, new = self._body(body, place, often, finite.doubted(site, body), constants)
                inside += records
                if new is not None:
                    rewritten[body.name], added = new
                    constants |= added
                    types |= {name: constant.type for name, constant in added.items()}
            if rewritten:
                changed = True
                nodes[nodes.index(site.node)] = replaced(site, rewritten)
        if changed:
            graph = replace(graph, nodes=tuple(nodes), constants=constants, types=types)
        return graph, inside

    def _body(
        self, body: Body, place: str, runs: float, doubted: frozenset[str], outside: Mapping[str, Constant]
    ) -> tuple[list[Inside], _Written | None]:
        """The changes to a body and the bodies within it, and its replacement where there are any."""
        size = sum(n.op_type != "Constant" for n in body.proto.node)
        records: list[Inside] = []
        stop = self.settings.options.should_stop
        if stop is not None and stop():
            return records, None
        if self.deadline.over:
            self.late += 1
            return records, None
        try:
            graph, records = self.improved(body.graph, f"{place}: ", runs, doubted)
            result = self._chosen(body, graph, size, doubted, place)
            unchanged = result.report.kept == "original"
            final = graph if unchanged else expanded(result.graph, lacking())
            after = written_size(final, None)
            if unchanged and graph is body.graph and after >= size:
                return records, None
            new = written(final, body, outside, self.names)
        except TimeUp as late:
            released(late)
            self.log.skipped.append(f"{place} was left as it was: {late}")
            return [], None
        except ExportModelError as error:
            self.log.warnings.append(f"{place} was left as it was: {error.what}")
            return [], None
        except Exception as error:
            if self.settings.options.strict or is_for_the_caller(error, False):
                raise
            self.log.warnings.append(f"{place} was left as it was: {told(error)}")
            return [Inside(place, (size, size), failure=told(error))], None
        report = result.report
        rules = tuple(dict.fromkeys(rule for change in report.changes for rule in change.rules))
        costs = (report.cost_before, report.cost_after)
        mine = Inside(place, (size, after), costs, runs, rules, report.certificate, report.failure)
        return [*records, mine], new

    def _chosen(self, body: Body, graph: Graph, size: int, doubted: frozenset[str], place: str) -> Result:
        """The result of optimising a body by itself, chosen by cost."""
        before = body.graph if graph is not body.graph else None
        given = Given(None, graph, size, before=before, doubted=doubted, heard=True)
        settings, names = self.settings, dims_of(graph)
        sizes = {name: size for name, size in settings.sizes.items() if name in names}
        points, _ = points_for(given, {name: {size: 1.0} for name, size in sizes.items()}, run=False)
        options = replace(settings.options, progress=None, limits=None, opset=None, sizes=sizes, measure=False)
        # Calibration data are inputs of the whole model: a body stays in the precision of the model.
        options = replace(options, calibration=None)
        costs = self.costs.at({})
        costs.settle(graph, points)
        deadline = self.deadline.part(_MOST)
        settings = replace(settings, options=options, costs=costs, deadline=deadline, points=points, contrib=False)
        if settings.choices.policy.quantises:
            settings = settings.exact
        self.log.say(Progress("bodies", detail=place))
        result = self.optimise(given, settings)
        self.log.warnings += [f"{place}: {warning}" for warning in result.report.warnings]
        self.log.skipped += [f"{place}: {skipped}" for skipped in result.report.skipped]
        return result

    def _runs(self, site: Site) -> float:
        """The assumed number of runs of a body; of each branch, one half."""
        if len(site.control.bodies) > 1:
            return 1 / len(site.control.bodies)
        return self._often(site.control.trips)

    def _often(self, trips: Dim | None) -> float:
        return float(_TRIPS if trips is None else max(evaluate(trips, self.costs.sizes), 0))


class _Finite:
    """Values of a graph that are taken for finite, and inputs of bodies that are not."""

    def __init__(self, graph: Graph, finite_math: bool | None, doubted: frozenset[str]) -> None:
        self._asked = finite_math is None
        self._encoding = encode(graph, doubted=doubted) if self._asked and holds_bodies(graph) else None

    def doubted(self, site: Site, body: Body) -> frozenset[str]:
        """The inputs of a body that may be infinite or NaN: values from outside, and a state that some run makes so."""
        encoding = self._encoding
        if encoding is None:
            return frozenset()
        own = [v.name for v in body.proto.input]
        first = 1 if site.proto.op_type == "Loop" else 0
        outer = {name: name for name in body.graph.inputs if name not in own} | dict(
            zip(own, site.proto.input, strict=False)
        )
        doubtful = {name for name, value in outer.items() if value and not _is_finite(encoding, value)}
        states = own[2:] if first else own if site.proto.op_type == "Scan" else []
        results = list(body.graph.outputs.values())[first:]
        while True:
            inner = encode(body.graph, doubted=doubtful)
            more = {s for s, value in zip(states, results, strict=False) if not _is_finite(inner, value)} - doubtful
            if not more:
                return frozenset(doubtful)
            doubtful |= more


def _is_finite(encoding: Encoding, value: str) -> bool:
    return encoding.egraph.eclass(encoding.values[value]).finite


_Written: TypeAlias = "tuple[GraphProto, dict[str, Constant]]"
