"""Parts of a graph on their way to another process and back: bytes, with each constant once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TypeAlias

from eqsat.certify import Certificate, assignments, certify
from eqsat.certify.outputs import DRIFT
from eqsat.certify.stated import stated_difference
from eqsat.errors import UncheckedError
from eqsat.language.comprehension.graphs.operators import DeclaredRegion, declare_region, regions_in
from eqsat.language.onnx.write.availability import opset_of
from eqsat.language.terms import Constant, Graph
from eqsat.options.options import Options
from eqsat.report.finalists import Candidate
from eqsat.report.result import Result
from eqsat.steps.archive.codec import read_back, written
from eqsat.steps.archive.constants import Finding, Keeping, LostConstantError, restored

#: A time limit has to be above 0.
_LEAST_SECONDS = 1e-3


@dataclass(frozen=True)
class PartTask:
    """A part as a graph of its own in bytes, the inputs that may not be finite, and the options it is optimised with.

    Its opset is that of the whole, its sizes are those of the dims that it has.
    """

    content: bytes
    doubted: frozenset[str]
    options: Options

    @classmethod
    def of(cls, graph: Graph, doubted: frozenset[str], options: Options) -> PartTask:
        """The task of a graph; LostConstantError for constants of strings, which have no bytes."""
        return cls(_content(graph, frozenset()), doubted, options)

    @property
    def graph(self) -> Graph:
        """The graph of the part."""
        graph: Graph = _value(self.content, {})
        return graph

    @property
    def seconds(self) -> float:
        """The seconds that it may take; without end where steps are counted."""
        return self.options.time_limit if self.options.steps is None else math.inf

    def within(self, amount: float) -> PartTask:
        """The same task within so many seconds, or counted steps."""
        if self.options.steps is not None:
            return replace(self, options=replace(self.options, steps=max(1, int(amount))))
        return replace(self, options=replace(self.options, time_limit=max(amount, _LEAST_SECONDS)))


@dataclass(frozen=True)
class FoundPart:
    """The graph that is to stand for a part, and what its certificate rests on, to be checked where it is taken.

    `chosen` is the graph before its constants were computed, `folded` the one after, and `claims` are the values of the
    part that values of it are said to equal; `graph` is that in the operators and states it runs in, and `regions`
    those of whose functions these have operators.
    """

    graph: Graph
    chosen: Graph
    folded: Graph
    claims: Mapping[str, Sequence[str]]
    regions: tuple[DeclaredRegion, ...] = ()

    @classmethod
    def of(cls, candidate: Candidate) -> FoundPart | None:
        """The graph of a finalist, and its claims; None for the original."""
        assembled = candidate.assembled
        if assembled is None:
            return None
        decoded = assembled.decoded
        graph, chosen, folded = (replace(one, origin=None) for one in (candidate.graph, decoded.graph, assembled.graph))
        return cls(graph, chosen, folded, dict(decoded.shared), regions_in(chosen))

    def check(self, part: Graph, sizes: Mapping[str, int], seed: int) -> Certificate:
        """The certificate that it equals a part; CertificateError where it does not.

        UncheckedError where that cannot be told.
        """
        assigned = assignments(part, sizes)
        certificate = certify(part, self.chosen, self.folded, self.claims, sizes=assigned, seed=seed)
        error = stated_difference(self.folded, self.graph, {}, assigned[0], seed)
        if error > DRIFT:
            raise UncheckedError(f"its layouts move an output by {error:.1e}", where=part.name)
        return replace(certificate, stated=error)


@dataclass(frozen=True)
class PartOutcome:
    """The outcome of a part: what was found in bytes, None where it stays, and figures of its report."""

    content: bytes | None
    costs: tuple[float, float]
    enodes: int
    eclasses: int
    rules_fired: Mapping[str, int]
    stopped_by: str
    failure: str
    warnings: tuple[str, ...]
    skipped: tuple[str, ...]

    @classmethod
    def of(cls, result: Result, found: FoundPart | None, graph: Graph) -> PartOutcome:
        """The outcome of a result for a part; constants that the part has are left out of its bytes."""
        report, own = result.report, frozenset(c.digest for c in graph.constants.values())
        return cls(
            None if found is None or report.kept == "original" else _content(found, own),
            (report.cost_before, report.cost_after),
            report.enodes,
            report.eclasses,
            dict(report.rules_fired),
            report.stopped_by,
            report.failure,
            tuple(report.warnings),
            tuple(report.skipped),
        )

    def found(self, part: Graph) -> FoundPart | None:
        """The graph that was found for a part, None where it stays."""
        if self.content is None:
            return None
        found: FoundPart = _value(self.content, {c.digest: c for c in part.constants.values()})
        for region in found.regions:
            declare_region(region)  # which the process that found it had
        return found


#: Makes a task when it is to be done.
MakeTask: TypeAlias = Callable[[], PartTask]
#: Optimises a part.
Work: TypeAlias = Callable[[PartTask], PartOutcome]


def options_for(options: Options, whole: Graph, dims: Mapping[str, Mapping[int, float]]) -> Options:
    """The options of a part whose named dims have these sizes: nothing is measured, kept, cut or told of.

    Calibration data are of the inputs of the whole, and exact choices read none.
    """
    return replace(
        options,
        sizes={name: dict(sizes) for name, sizes in dims.items()} or None,
        opset=options.opset or opset_of(whole),
        outputs=None,
        prune_inputs=False,
        calibration=None,
        boundary=None,
        measure=False,
        cache=False,
        strict=False,
        executor=None,
        progress=None,
        should_stop=None,
    )


def _content(value: Graph | FoundPart, given: frozenset[bytes]) -> bytes:
    keeping = Keeping(given, {})
    body = written(value, keeping.place)
    return written((tuple(keeping.kept), body), _none)


def _value(content: bytes, given: Mapping[bytes, Constant]) -> Any:
    kept, body = read_back(content, _none)
    finding = Finding(given, {}, tuple(restored(*each) for each in kept))
    return read_back(body, finding.constant)


def _none(_: Any) -> NoReturn:
    raise LostConstantError("a constant among what is no graph")
