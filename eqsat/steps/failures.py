"""Runs that fail: whose fault it is, which rules are behind a wrong region, and the result that keeps the original."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar

from eqsat.costs.model.model import CostModel
from eqsat.egraph.encode import Encoding
from eqsat.egraph.explain import Explainer
from eqsat.errors import (
    CertificateError,
    CostError,
    DeclarationError,
    EqsatError,
    ExtractionError,
    MissingExtraError,
    RuleError,
    UnsoundRuleError,
    UsageError,
    first_line,
)
from eqsat.language.onnx.read.model import Given
from eqsat.report.changes import regions
from eqsat.report.explanation import Explanation
from eqsat.report.finalists import Candidate
from eqsat.report.report import Report
from eqsat.report.result import Result
from eqsat.report.summary import operators_of
from eqsat.system.deadline import TimeUp

Call = TypeVar("Call", bound=Callable[..., Any])

#: Errors that say what a caller has to change.
_FOR_THE_CALLER = (UsageError, CostError, DeclarationError, MissingExtraError, RuleError)
_NOTE = "raised by a function that the caller passed"


def marked(call: Call | None) -> Call | None:
    """A function of the caller's, whose own exceptions are told from eqsat's by a note."""
    if call is None:
        return None

    @wraps(call)
    def noted(*arguments: Any, **more: Any) -> Any:
        try:
            return call(*arguments, **more)
        except Exception as error:
            error.add_note(_NOTE)
            raise

    return noted  # type: ignore[return-value]


def is_for_the_caller(error: Exception, limited: bool) -> bool:
    """Whether an error is the answer to what was asked, and no fault met while answering.

    `limited` says that the caller set limits, which nothing may meet.
    """
    if _NOTE in getattr(error, "__notes__", ()):
        return True
    if isinstance(error, CertificateError | UnsoundRuleError):
        return False
    return isinstance(error, _FOR_THE_CALLER) or (limited and isinstance(error, ExtractionError))


def rules_behind(encoding: Encoding, candidate: Candidate, pairs: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """The rules by which values of a finalist came to equal the original's; all it uses where that is unknown."""
    assembled = candidate.assembled
    if assembled is None:
        return ()
    nodes, choice = assembled.snapshot.nodes, assembled.choice
    numbers = {name: nodes[choice[k]].number for k, name in assembled.decoded.names.items() if k in choice}
    known = [(encoding.values[b], numbers[a]) for a, b in pairs if a in numbers and b in encoding.values]
    rules = Explainer(encoding.egraph).derive(pair for pair in known if pair[0] != pair[1]).rules
    if rules:
        return rules
    found = (rule for region in regions(encoding, candidate) for rule in region.derivation.rules)
    return tuple(dict.fromkeys(found))


def released(error: Exception) -> Exception:
    """An error that holds nothing of the work it ended but where that was.

    Frames hold what was local to them, an e-graph among it, and an e-graph that waits for the collector may be dropped
    in another thread than its own, which egglog forbids.
    """
    seen: list[BaseException] = []
    following: list[BaseException | None] = [error]
    while following:
        one = following.pop()
        if one is not None and one not in seen:
            seen.append(one)
            traceback.clear_frames(one.__traceback__)
            following += [one.__cause__, one.__context__]
    return error


def told(error: Exception) -> str:
    """An error in one line."""
    if isinstance(error, EqsatError):
        return f"{error.where}: {error.what}" if error.where else error.what
    return f"unexpected {type(error).__name__}: {first_line(error)}"


def kept_original(
    given: Given,
    costs: CostModel,
    phase: str,
    failures: Sequence[Exception],
    seconds: Mapping[str, float],
    warnings: Sequence[str],
    skipped: Sequence[str] = (),
    *,
    threads: int,
    opset: int | None,
    interrupted: bool = False,
) -> Result:
    """The original as the result of a run that failed in a phase, or was `skipped`; nothing in it was computed."""
    graph = given.original
    try:
        price = costs.graph(graph).price
    except TimeUp as late:
        price, skipped = 0.0, [*skipped, f"the original was not costed: {late}"]
    except Exception as fault:  # noqa: BLE001 - costs may be what failed; the report says so
        price, warnings = 0.0, [*warnings, f"the original was not costed: {told(fault)}"]
    operators = operators_of(graph)
    report = Report(
        name=graph.name,
        device=costs.device.name,
        nodes_before=given.nodes,
        nodes_after=given.nodes,
        cost_before=price,
        cost_after=price,
        lower_bound=0.0,
        gap=0.0,
        stopped_by="failed" if failures else "interrupted" if interrupted else "time_limit",
        extraction="none",
        objective={} if costs.cost is not None else dict(costs.objective),
        certificate={"kind": "identical", "error": 0.0, "text": "nothing changed"},
        seconds=dict(seconds),
        kept_because="the run failed"
        if failures
        else f"there was {'an interruption' if interrupted else 'no time for more'}",
        opaque=[],
        operators_before=operators,
        operators_after=dict(operators),
        warnings=list(warnings),
        failure=f"{phase}: {told(failures[-1])}" if failures else "",
        skipped=tuple(skipped),
    )
    return Result(graph, report, Explanation(()), given.source, threads, opset, failures=tuple(failures))
